//! The manager as a library: replicas in one process share embedded clusters, one leaves, and
//! kubeconfigs are added and removed.
//!
//! - `across`: controllers that work in several clusters
//! - `beside`: what a program runs beside its controllers: runnables and checks
//! - `earlier`: a home cluster with the definitions of the last release
//! - `guarded`: who may read metrics and debug views
//! - `marks`: clusters with two fleets
//! - `names`: clusters with two names
//! - `outage`: replicas that cannot renew their Lease
//! - `series`: what clusters cost in metrics

mod across;
mod beside;
mod earlier;
mod guarded;
mod marks;
mod names;
mod outage;
mod series;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use apiserver::Server;
use fleet::{self, Fleet};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use leasehold::config::{
    ClusterSources, Config, DirectorySource, Home, KubeconfigSource, Risk, SecretSource,
};
use leasehold::{Departure, Manager};
use sdk::{Controller, ControllerSpec};
use serde_json::json;
use sharding::LeaseTimings;
use tests::install;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use tests::copy::{Copy, seen};

/// The longest that anything here may take: a takeover on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
/// How often a condition of another process is checked.
const LOOK: Duration = Duration::from_millis(100);
const NAMESPACE: &str = "leasehold-system";
const OBJECTS: usize = 12;

fn copy() -> ControllerSpec {
    Controller::for_kind::<ConfigMap>("copy").reconciler(Copy::default())
}

/// One embedded API server.
async fn server(name: &str) -> Server {
    Server::builder().name(name).bind("127.0.0.1:0").start().await.unwrap()
}

/// Clusters in one kubeconfig, each a context of its name.
fn sources(dir: &Path, servers: &[&Server]) -> ClusterSources {
    let path = dir.join("kubeconfig");
    fs::write(&path, apiserver::merge_kubeconfigs(servers)).unwrap();
    let allow = [Risk::Loopback].into();
    let kubeconfigs = vec![KubeconfigSource { path, allow, ..KubeconfigSource::default() }];
    ClusterSources { kubeconfigs, ..Default::default() }
}

/// A home cluster with our CRDs and namespace.
async fn home(dir: &Path) -> (Server, Home) {
    let server = server("home").await;
    let home = home_at(dir, &server).await;
    (server, home)
}

/// Makes a home cluster of a server.
async fn home_at(dir: &Path, server: &Server) -> Home {
    home_with(dir, server, leasehold::crds::home_crds()).await
}

/// Makes a home cluster of a server, with these definitions.
async fn home_with(dir: &Path, server: &Server, crds: Vec<CustomResourceDefinition>) -> Home {
    install::crds(&server.client(), crds).await;
    install::namespace(&server.client(), NAMESPACE).await;
    let path = dir.join("home.kubeconfig");
    fs::write(&path, server.kubeconfig()).unwrap();
    Home::Kubeconfig { path, context: None, allow: [Risk::Loopback].into() }
}

/// A configuration with a short Lease.
fn config(identity: &str, home: &Home, clusters: &ClusterSources) -> Config {
    let mut config = Config::new(home.clone(), identity, clusters.clone());
    config.lease = LeaseTimings {
        duration: Duration::from_secs(3),
        renew_interval: Duration::from_secs(1),
        margin: Duration::from_millis(500),
    };
    config
}

/// A running manager.
struct Replica {
    stop: CancellationToken,
    run: JoinHandle<Result<Departure, leasehold::Error>>,
}

impl Replica {
    fn start(identity: &str, home: &Home, clusters: &ClusterSources) -> Self {
        Self::start_with(identity, home, clusters, |manager| manager.controller(copy()))
    }

    fn start_with(
        identity: &str,
        home: &Home,
        clusters: &ClusterSources,
        with: impl FnOnce(Manager) -> Manager,
    ) -> Self {
        Self::run(with(Manager::new(config(identity, home, clusters))))
    }

    fn run(manager: Manager) -> Self {
        let stop = CancellationToken::new();
        let run = tokio::spawn(manager.run(stop.clone()));
        Self { stop, run }
    }

    async fn leave(self) -> Departure {
        self.stop.cancel();
        self.run.await.unwrap().unwrap()
    }
}

/// Waits until `holds` is true.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let looking = async {
        while !holds().await {
            tokio::time::sleep(LOOK).await;
        }
    };
    let waited = tokio::time::timeout(DEADLINE, looking).await;
    assert!(waited.is_ok(), "{what}: not within {DEADLINE:?}");
}

async fn fleet(home: &Client) -> Fleet {
    fleet::read(home.clone(), NAMESPACE).await.unwrap_or_default()
}

/// How many shards each identity owns.
async fn owners(home: &Client) -> BTreeMap<String, u32> {
    fleet(home).await.members.into_iter().map(|m| (m.identity, m.shards)).collect()
}

async fn want(client: &Client, value: &str) {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    for n in 0..OBJECTS {
        let name = format!("map-{n}");
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {"wanted": value},
        });
        let apply = PatchParams::apply("test").force();
        api.patch(&name, &apply, &Patch::Apply(object)).await.unwrap();
    }
}

async fn converged(client: &Client, value: &str) -> bool {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let maps = api.list(&Default::default()).await.unwrap();
    maps.items.iter().filter(|map| seen(map) == Some(value)).count() == OBJECTS
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_share_the_clusters_and_one_that_leaves_hands_over() {
    let dir = tempfile::tempdir().unwrap();
    let (home_server, home) = home(dir.path()).await;
    let (east, west) = (server("east").await, server("west").await);
    let sources = sources(dir.path(), &[&east, &west]);
    let clients = [east.client(), west.client()];

    let first = Replica::start("first", &home, &sources);
    let second = Replica::start("second", &home, &sources);
    for client in &clients {
        want(client, "one").await;
    }
    let home_client = home_server.client();
    until("each owns a cluster's shard", async || {
        owners(&home_client).await == BTreeMap::from([("first".into(), 1), ("second".into(), 1)])
    })
    .await;
    for client in &clients {
        until("the first value is copied", async || converged(client, "one").await).await;
    }

    assert_eq!(first.leave().await, Departure::HandedOver);
    assert_eq!(owners(&home_client).await, BTreeMap::from([("second".into(), 2)]));
    for client in &clients {
        want(client, "two").await;
        until("the second value is copied", async || converged(client, "two").await).await;
    }
    assert_eq!(second.leave().await, Departure::HandedOver);
    assert_eq!(owners(&home_client).await, BTreeMap::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubeconfigs_are_added_broken_and_removed_while_the_manager_runs() {
    let dir = tempfile::tempdir().unwrap();
    let (home_server, home) = home(dir.path()).await;
    let (east, west) = (server("east").await, server("west").await);
    let folder = dir.path().join("clusters");
    fs::create_dir(&folder).unwrap();
    let mut source = DirectorySource::new(&folder);
    source.allow.insert(Risk::Loopback);
    let sources = ClusterSources { directories: vec![source], ..Default::default() };
    let replica = Replica::start("only", &home, &sources);
    let home_client = home_server.client();

    for (name, server) in [("east", &east), ("west", &west)] {
        fs::write(folder.join(name), server.kubeconfig()).unwrap();
        let client = server.client();
        want(&client, "one").await;
        until(name, async || converged(&client, "one").await).await;
    }

    fs::write(folder.join("east"), "broken").unwrap();
    until("the member tells that east is down", async || {
        let members = fleet(&home_client).await.members;
        let mut down = members.iter().flat_map(|member| &member.down_clusters);
        down.any(|down| down.cluster.as_str() == "east" && down.reason.contains("fix: "))
    })
    .await;
    let client = west.client();
    want(&client, "two").await;
    until("west continues", async || converged(&client, "two").await).await;

    fs::write(folder.join("east"), east.kubeconfig()).unwrap();
    let client = east.client();
    want(&client, "three").await;
    until("east is back", async || converged(&client, "three").await).await;

    fs::remove_file(folder.join("west")).unwrap();
    until("west has no shards any more", async || {
        let shards = fleet(&home_client).await.shards;
        shards.iter().all(|shard| shard.shard.cluster.as_str() == "east")
    })
    .await;
    assert_eq!(replica.leave().await, Departure::HandedOver);
}

/// What the configuration of a stranger's folder does not allow, a manager does not do; and it says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_takes_no_name_and_reaches_no_server_that_it_may_not() {
    let dir = tempfile::tempdir().unwrap();
    let (home_server, home) = home(dir.path()).await;
    let (east, impostor) = (server("east").await, server("east").await);
    let mut sources = sources(dir.path(), &[&east]);
    for (folder, allow) in [("a", vec![Risk::Loopback]), ("b", vec![Risk::Loopback]), ("c", vec![])]
    {
        let path = dir.path().join(folder);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("east"), impostor.kubeconfig()).unwrap();
        let prefix = (folder != "a").then(|| folder.parse().unwrap());
        let allow = allow.into_iter().collect();
        let source = DirectorySource { prefix, allow, ..DirectorySource::new(path) };
        sources.directories.push(source);
    }
    let replica = Replica::start("only", &home, &sources);
    let home_client = home_server.client();
    want(&east.client(), "one").await;
    want(&impostor.client(), "one").await;
    until("east", async || converged(&east.client(), "one").await).await;
    until("b.east", async || converged(&impostor.client(), "one").await).await;
    let fleet = fleet(&home_client).await;
    let shards = fleet.shards.iter().map(|shard| shard.shard.cluster.to_string());
    assert_eq!(shards.collect::<Vec<_>>(), ["b.east", "c.east", "east"], "a name for each");
    let down = fleet.members.iter().flat_map(|member| &member.down_clusters);
    let down: Vec<_> = down.map(|down| (down.cluster.to_string(), down.reason.clone())).collect();
    let [(name, reason)] = &down[..] else { panic!("{down:?}") };
    assert_eq!(name, "c.east");
    assert!(reason.contains("which is not allowed; fix: change the kubeconfig"), "{reason}");
    assert!(reason.contains("write allow: [loopback]"), "{reason}");
    assert_eq!(replica.leave().await, Departure::HandedOver);
}

/// A Secret of the namespace of Leases, with a kubeconfig.
fn cluster_secret(name: &str, server: &Server) -> Secret {
    let labels = [(clusters::LABEL.to_owned(), String::new())].into();
    let metadata =
        ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
    let data = [("kubeconfig".to_owned(), ByteString(server.kubeconfig().into_bytes()))].into();
    Secret { metadata, data: Some(data), ..Secret::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_come_and_go_with_labelled_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let (home_server, home) = home(dir.path()).await;
    let home_client = home_server.client();
    let secrets: Api<Secret> = Api::namespaced(home_client.clone(), NAMESPACE);
    let (east, west) = (server("east").await, server("west").await);
    let new = PostParams::default();
    secrets.create(&new, &cluster_secret("east", &east)).await.unwrap();
    let mut unlabelled = cluster_secret("other", &west);
    unlabelled.metadata.labels = None;
    secrets.create(&new, &unlabelled).await.unwrap();

    let allow = [Risk::Loopback].into();
    let source = SecretSource { allow, ..SecretSource::new(clusters::LABEL) };
    let sources = ClusterSources { secrets: vec![source], ..Default::default() };
    let replica = Replica::start("only", &home, &sources);
    want(&east.client(), "one").await;
    until("east", async || converged(&east.client(), "one").await).await;

    // A watch that has ended is resumed, one whose version is forgotten is begun anew.
    home_server.close_watches();
    secrets.create(&new, &cluster_secret("west", &west)).await.unwrap();
    want(&west.client(), "one").await;
    until("west", async || converged(&west.client(), "one").await).await;

    home_server.close_watches();
    secrets.delete("east", &Default::default()).await.unwrap();
    home_server.compact();
    let names = async || {
        let fleet = fleet(&home_client).await;
        fleet.shards.iter().map(|shard| shard.shard.cluster.to_string()).collect::<Vec<_>>()
    };
    until("east to be gone", async || names().await == ["west"]).await;
    assert_eq!(replica.leave().await, Departure::HandedOver);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_without_controllers_joins_and_leaves_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (home_server, home) = home(dir.path()).await;
    let stop = CancellationToken::new();
    let mut config = Config::new(home, "idle", ClusterSources::default());
    assert!(matches!(
        Manager::new(config.clone()).run(stop.clone()).await,
        Err(leasehold::Error::NoControllers)
    ));
    config.controllers = Some(BTreeMap::new());
    let run = tokio::spawn(Manager::new(config).builtin_controllers().run(stop.clone()));
    let replica = Replica { stop, run };
    let client = home_server.client();
    until("it joins", async || owners(&client).await.contains_key("idle")).await;
    assert_eq!(replica.leave().await, Departure::HandedOver);
}
