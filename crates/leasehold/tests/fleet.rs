//! The commands that show or change a fleet, against members over an embedded home cluster.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use apiserver::Server;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::PostParams;
use leasehold::clock::SystemClock;
use model::ownership::acknowledge_drains;
use model::{ClusterSet, ClusterState, Hold, Holding, Ownership, Unmeasured};
use serde_json::{Value, json};
use sharding::{Config, Sharding};
use tokio::sync::watch;
use tokio::time::timeout;

const NAMESPACE: &str = "leasehold-system";
const PATIENCE: Duration = Duration::from_secs(60);

/// A home cluster with its members.
struct Fleet {
    server: Server,
    clusters: watch::Sender<Arc<ClusterSet>>,
    members: Vec<Sharding>,
    dir: tempfile::TempDir,
}

impl Fleet {
    async fn start(members: u64, clusters: usize) -> Self {
        let server = Server::builder().name("home").start().await.expect("the server starts");
        let namespaces = Api::<Namespace>::all(server.client());
        let namespace =
            serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).expect("a namespace");
        namespaces.create(&PostParams::default(), &namespace).await.expect("created");
        let definitions = Api::<CustomResourceDefinition>::all(server.client());
        for crd in sharding::api::crds() {
            definitions.create(&PostParams::default(), &crd).await.expect("created");
        }
        let down =
            |n| (format!("c{n}").parse().expect("a name"), ClusterState::Down("not needed".into()));
        let clusters = ClusterSet { clusters: (0..clusters).map(down).collect() };
        let clusters = watch::channel(Arc::new(clusters)).0;
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("home"), server.kubeconfig()).expect("written");
        let mut fleet = Self { server, clusters, members: Vec::new(), dir };
        for number in 0..members {
            fleet.join(number);
        }
        fleet
    }

    /// Another member, with the least of an engine: it acknowledges each drain at once.
    fn join(&mut self, number: u64) {
        let groups = BTreeSet::from(["g".parse().expect("a name")]);
        let sharding = Sharding::spawn(
            self.server.client(),
            Config::new(&format!("replica-{number}"), groups, number),
            self.clusters.subscribe(),
            Arc::new(Unmeasured),
            Arc::new(SystemClock),
            &prometheus::Registry::new(),
        );
        let sharding = sharding.expect("the settings are right");
        self.members.push(sharding.clone());
        tokio::spawn(acknowledge_drains(sharding));
    }

    /// Waits until each member holds this many shards, and none of them is changing hands.
    async fn balanced(&self, each: usize) {
        for member in &self.members {
            let mut owned = member.watch();
            let even = owned.wait_for(|owned| {
                let active = |holding: &Holding| holding.hold == Hold::Active;
                owned.holdings.len() == each && owned.holdings.values().all(active)
            });
            timeout(PATIENCE, even).await.expect("in time").expect("the member lives");
        }
    }

    async fn leasehold(&self, args: &[&str]) -> Output {
        let kubeconfig: PathBuf = self.dir.path().join("home");
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(args).arg(kubeconfig);
        timeout(PATIENCE, command.output()).await.expect("in time").expect("the binary runs")
    }

    async fn json(&self, args: &[&str]) -> Value {
        let output = self.leasehold(args).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_fleet_is_simulated_without_being_touched() {
    let fleet = Fleet::start(3, 6).await;
    fleet.balanced(2).await;
    let writes = || {
        let written = fleet.server.history().into_iter();
        written.filter(|write| write.resource.starts_with("shardmaps")).count()
    };
    let before = writes();
    let report = fleet.json(&["simulate", "--leave", "1", "--output", "json", "--from-live"]).await;
    assert_eq!((&report["moves"], &report["excess"]), (&json!(2), &json!(0)), "{report}");
    assert_eq!(report["after"]["members"], 2);
    assert_eq!(report["after"]["shards"], 6);
    assert_eq!(writes(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_is_drained_and_taken_back() {
    let fleet = Fleet::start(2, 4).await;
    fleet.balanced(2).await;
    let drained = fleet.leasehold(&["drain", "replica-1", "--wait", "--kubeconfig"]).await;
    let drained = stdout(&drained);
    assert!(drained.contains("asked to drain, 2 shards"), "{drained}");
    assert!(drained.ends_with("replica-1: drained\n"), "{drained}");
    let status = fleet.json(&["status", "--output", "json", "--kubeconfig"]).await;
    let members = status["members"].as_array().unwrap();
    let of = |identity: &str| members.iter().find(|m| m["identity"] == identity).unwrap();
    assert_eq!((&of("replica-1")["drain"], &of("replica-1")["shards"]), (&json!(true), &json!(0)));
    assert_eq!((&of("replica-0")["drain"], &of("replica-0")["shards"]), (&json!(false), &json!(4)));
    let undone = fleet.leasehold(&["drain", "replica-1", "--undo", "--kubeconfig"]).await;
    assert!(stdout(&undone).contains("takes shards again"));
    fleet.balanced(2).await;
    let unknown = fleet.leasehold(&["drain", "replica-7", "--kubeconfig"]).await;
    assert_eq!(unknown.status.code(), Some(1));
    let text = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(text.contains("no member \"replica-7\"") && text.contains("replica-1"), "{text}");
}
