//! `leasehold explain`, against a replica whose admin server is reached through home's API server.

use std::fs;
use std::net::SocketAddr;
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use apiserver::{Matcher, Process, Program, Server, Start};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::{Api, Client};
use leasehold::config::{ClusterSources, Config, Home, KubeconfigSource, Risk};
use leasehold::{Action, Context, Controller, Manager, ObjectKey, ReconcileError, Reconciler};
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const NAMESPACE: &str = "leasehold-system";
const PATIENCE: Duration = Duration::from_secs(60);
/// The replica: its identity, which is the name of its Pod.
const REPLICA: &str = "replica-0";
const PORT: u16 = 8443;

/// Fails for one object.
struct Picky;

impl Reconciler for Picky {
    type Kind = ConfigMap;

    async fn reconcile(&self, _: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        match &*key.name {
            "bad" => Err(ReconcileError::terminal(std::io::Error::other("no such bucket"))),
            _ => Ok(Action::Done),
        }
    }
}

/// A container in which the replica seems to run: its port is the replica's.
struct Door(SocketAddr);

impl Program for Door {
    fn start(&self, _: &Start) -> Arc<dyn Process> {
        Arc::new(Self(self.0))
    }
}

impl Process for Door {
    fn connect(&self, port: u16) -> Option<DuplexStream> {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let address = self.0;
        (port == PORT).then(|| {
            tokio::spawn(async move {
                let mut replica = TcpStream::connect(address).await?;
                tokio::io::copy_bidirectional(&mut far, &mut replica).await
            });
            near
        })
    }
}

struct Fleet {
    _home: Server,
    _east: Server,
    stop: CancellationToken,
    dir: tempfile::TempDir,
}

async fn create<K>(client: Client, namespace: Option<&str>, object: Value)
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug,
    K: serde::de::DeserializeOwned + serde::Serialize,
{
    let resource = kube::api::ApiResource::erase::<K>(&());
    let api: Api<kube::api::DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    };
    let object = serde_json::from_value(object).expect("an object");
    api.create(&PostParams::default(), &object).await.expect("created");
}

impl Fleet {
    async fn start() -> Self {
        let address = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr();
        let address = address.expect("an address");
        let home = Server::builder().name("home").workloads(true);
        let home = home.program(Matcher::Container("manager".into()), Arc::new(Door(address)));
        let home = home.start().await.expect("it starts");
        let east = Server::builder().name("east").start().await.expect("it starts");
        create::<Namespace>(home.client(), None, json!({"metadata": {"name": NAMESPACE}})).await;
        for crd in sharding::api::crds() {
            create::<CustomResourceDefinition>(home.client(), None, json!(crd)).await;
        }
        let pod = json!({"metadata": {"name": REPLICA},
            "spec": {"containers": [{"name": "manager", "image": "leasehold:1"}]}});
        create::<Pod>(home.client(), Some(NAMESPACE), pod).await;
        for name in ["good", "bad"] {
            let map = json!({"metadata": {"name": name}});
            create::<ConfigMap>(east.client(), Some("default"), map).await;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let (home_path, path) = (dir.path().join("home"), dir.path().join("clusters"));
        fs::write(&home_path, home.kubeconfig()).expect("written");
        fs::write(&path, east.kubeconfig()).expect("written");
        let allow = [Risk::Loopback].into();
        let source = KubeconfigSource { path, allow, ..KubeconfigSource::default() };
        let clusters = ClusterSources { kubeconfigs: vec![source], ..ClusterSources::default() };
        let allow = [Risk::Loopback].into();
        let at = Home::Kubeconfig { path: home_path, context: None, allow };
        let mut config = Config::new(at, REPLICA, clusters);
        config.admin = Some(address.into());
        let controller = Controller::for_kind::<ConfigMap>("picky").reconciler(Picky);
        let stop = CancellationToken::new();
        tokio::spawn(Manager::new(config).controller(controller).run(stop.clone()));
        Self { _home: home, _east: east, stop, dir }
    }

    async fn leasehold(&self, args: &[&str]) -> Output {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(args).arg("--kubeconfig").arg(self.dir.path().join("home"));
        timeout(PATIENCE, command.output()).await.expect("in time").expect("the binary runs")
    }

    async fn explain(&self, object: &str) -> Output {
        self.leasehold(&["explain", object, "--plaintext"]).await
    }

    /// What is said of an object, once these lines are in it.
    async fn said(&self, object: &str, lines: &[&str]) -> String {
        let mut last = String::new();
        let said = async {
            while !lines.iter().all(|line| last.contains(line)) {
                let output = self.explain(object).await;
                last = String::from_utf8_lossy(&output.stdout).into_owned()
                    + &String::from_utf8_lossy(&output.stderr);
            }
        };
        let in_time = timeout(PATIENCE, said).await.is_ok();
        assert!(in_time, "{object}: {lines:?} never came in\n{last}");
        last
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_owner_of_an_object_says_how_it_stands() {
    let fleet = Fleet::start().await;
    let idle = "its key is not queued";
    let good = fleet.said("east/ConfigMap/default/good", &[idle]).await;
    for line in [
        "shard east/picky/0/1 is owned by replica-0-",
        "controller picky on member replica-0-",
        "the cache has it at resourceVersion",
        "this member holds its shard east/picky/0/1 at epoch 1",
    ] {
        assert!(good.contains(line), "{line:?} in\n{good}");
    }
    let failed = "its last reconcile failed for good";
    let bad = fleet.said("east/configmaps/default/bad", &[failed]).await;
    assert!(bad.contains("no such bucket"), "{bad}");
    fleet.said("east/ConfigMap/default/none", &["it does not exist"]).await;
    fleet
        .said("east/Secret/default/x", &["reconciles the kind Secret; there are: ConfigMap"])
        .await;
    let west = ["home has no shard of cluster west", "does not have cluster west configured"];
    fleet.said("west/ConfigMap/default/good", &west).await;

    let json = ["explain", "east/ConfigMap/default/bad", "--plaintext", "--output", "json"];
    let json = fleet.leasehold(&json).await;
    assert!(json.status.success(), "{}", String::from_utf8_lossy(&json.stderr));
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(json["shards"][0]["shard"], "east/picky/0/1", "{json:#}");
    let failure = &json["members"][0]["controllers"][0]["key"]["failure"];
    assert_eq!((&failure["result"], &failure["times"]), (&json!("failed for good"), &json!(1)));

    // TLS is spoken where the replica speaks none, and an object has no name.
    let tls = fleet.leasehold(&["explain", "east/ConfigMap/default/good"]).await;
    let text = String::from_utf8_lossy(&tls.stdout);
    assert_eq!(tls.status.code(), Some(1), "{text}");
    assert!(text.contains("does not say: speak TLS with its admin server"), "{text}");
    let unnamed = fleet.explain("east/good").await;
    let text = String::from_utf8_lossy(&unnamed.stderr).into_owned();
    assert!(text.contains("write CLUSTER/KIND/NAMESPACE/NAME"), "{text}");
    fleet.stop.cancel();
}
