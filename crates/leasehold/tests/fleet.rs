//! The commands that look at a fleet or ask something of it, against members over an embedded home
//! cluster.

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
use model::{ClusterSet, ClusterState, Hold, Ownership, Unmeasured};
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
        tokio::spawn(async move {
            let mut owned = sharding.watch();
            loop {
                let held = Arc::clone(&owned.borrow_and_update());
                for (shard, holding) in &held.holdings {
                    if matches!(holding.hold, Hold::Draining { .. }) {
                        sharding.acknowledge_drain(shard, holding.epoch);
                    }
                }
                if owned.changed().await.is_err() {
                    return;
                }
            }
        });
    }

    /// Waits until each member holds so many shards.
    async fn balanced(&self, each: usize) {
        for member in &self.members {
            let mut owned = member.watch();
            let even = owned.wait_for(|owned| owned.holdings.len() == each);
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
