//! Embedded clusters, one by default, and one engine that holds all of their shards.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use apiserver::faults::{Fault, Request};
use apiserver::{Matcher, Program, Server};
use engine::{Engine, EngineConfig, Meter, Unobserved};
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::Api;
use kube::{Client, Resource, ResourceExt};
use model::{
    Clock, Cluster, ClusterName, ClusterSet, ClusterState, Epoch, GroupName, Identity, Ownership,
    Range, ShardId,
};
use prometheus::Registry;
use sdk::ControllerSpec;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Sole, TokioClock};
use crate::assemble::groups;

/// How long to wait for a condition, in tokio's time, by default.
const DEADLINE: Duration = Duration::from_secs(120);
/// How often it is checked.
const POLL: Duration = Duration::from_millis(50);
/// The name of the only cluster, in keys and shards.
const CLUSTER: &str = "east";
/// The default time at the start: a test that prints times prints the same ones.
const NOON: &str = "2026-01-01T12:00:00Z";

/// The settings of an environment.
#[derive(Clone, Debug)]
#[must_use = "nothing runs until `start`"]
pub struct Builder {
    wall: Timestamp,
    deadline: Duration,
    crds: Vec<CustomResourceDefinition>,
    namespaces: Vec<String>,
    clusters: Vec<String>,
    programs: Programs,
    has_server_times: bool,
}

/// What runs in containers.
#[derive(Clone, Default)]
pub(super) struct Programs(Vec<(Matcher, Arc<dyn Program>)>);

impl Debug for Programs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(matcher, _)| matcher)).finish()
    }
}

/// The clusters, and the engine that works on them. Methods that name no cluster use the first.
#[derive(Debug)]
pub struct TestEnv {
    /// In the order in which they were named; at least one.
    members: Vec<TestCluster>,
    pub(super) clusters: watch::Sender<Arc<ClusterSet>>,
    clock: Arc<dyn Clock>,
    deadline: Duration,
    /// The last engine's: rises with each.
    pub(super) epoch: Epoch,
    /// The engine that holds all shards.
    pub(super) engine: Option<Running>,
    /// Where replicas keep their Leases, once one has joined.
    pub(super) home: Option<TestCluster>,
}

/// One of the clusters.
#[derive(Debug)]
pub struct TestCluster {
    name: ClusterName,
    server: Server,
    identity: Option<Arc<Identity>>,
}

/// An engine at work.
#[derive(Debug)]
pub(super) struct Running {
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    /// Stops it, and waits until it has stopped.
    pub(super) async fn stop(mut self) {
        self.shutdown.cancel();
        (&mut self.task).await.expect("the engine does not panic");
    }
}

/// Without [`Running::stop`] it ends at once.
impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Builder {
    /// Installs a CRD.
    pub fn crd(mut self, crd: CustomResourceDefinition) -> Self {
        self.crds.push(crd);
        self
    }

    /// Installs CRDs.
    pub fn crds(mut self, crds: impl IntoIterator<Item = CustomResourceDefinition>) -> Self {
        self.crds.extend(crds);
        self
    }

    /// Creates a namespace, besides `default`.
    pub fn namespace(mut self, name: &str) -> Self {
        self.namespaces.push(name.to_owned());
        self
    }

    /// The time at the start.
    ///
    /// # Panics
    /// If `wall` is not an RFC 3339 timestamp.
    pub fn at(mut self, wall: &str) -> Self {
        self.wall = wall.parse().unwrap_or_else(|error| panic!("{wall:?}: {error}"));
        self
    }

    /// Lets the servers write times of the same clock into objects, instead of the machine's: for controllers that
    /// compare the two. Events go after an hour of it.
    pub fn server_times(mut self) -> Self {
        self.has_server_times = true;
        self
    }

    /// How long to wait for a condition, in tokio's time; 120 s by default.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Starts clusters of these names, instead of one named `east`. Each gets the CRDs and namespaces.
    pub fn clusters(mut self, names: impl IntoIterator<Item = &'static str>) -> Self {
        self.clusters = names.into_iter().map(str::to_owned).collect();
        self
    }

    /// What runs in the containers that match, in every cluster. The first that matches a container
    /// counts; others run nothing, and are Ready at once.
    pub fn program(mut self, matcher: Matcher, program: Arc<dyn Program>) -> Self {
        self.programs.0.push((matcher, program));
        self
    }

    /// Starts the clusters.
    ///
    /// # Panics
    /// If a server does not start or refuses a CRD or namespace, or a name is not a valid cluster name.
    pub async fn start(self) -> TestEnv {
        let Self { wall, deadline, crds, namespaces, clusters, programs, has_server_times } = self;
        assert!(!clusters.is_empty(), "an environment has at least one cluster");
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::starting_at(wall));
        let mut members = Vec::new();
        for name in clusters {
            let times = has_server_times.then_some(&clock);
            let member = TestCluster::start(&name, &crds, &namespaces, &programs, times);
            members.push(member.await);
        }
        TestEnv {
            clusters: watch::Sender::new(engaged(&members)),
            members,
            clock,
            deadline,
            epoch: Epoch(0),
            engine: None,
            home: None,
        }
    }
}

/// All of them, engaged.
fn engaged(members: &[TestCluster]) -> Arc<ClusterSet> {
    let cluster = |TestCluster { name, server, identity }: &TestCluster| {
        let cluster = Cluster::new(name.clone(), server.client(), 1);
        let identity = identity.clone();
        (name.clone(), ClusterState::Engaged(Cluster { identity, ..cluster }))
    };
    Arc::new(ClusterSet {
        clusters: members.iter().map(cluster).collect(),
        ..ClusterSet::default()
    })
}

/// Which cluster a server is, as the manager learns it.
async fn identity(name: &ClusterName, client: &Client) -> Option<Arc<Identity>> {
    let namespaces = Api::<Namespace>::all(client.clone());
    let uid = namespaces.get("kube-system").await.ok()?.uid()?.parse().ok()?;
    Some(Arc::new(Identity { uid, origin: name.as_str().into(), place: 0 }))
}

impl TestCluster {
    /// Its name in keys and shards.
    pub fn name(&self) -> &ClusterName {
        &self.name
    }

    pub(super) async fn start(
        name: &str,
        crds: &[CustomResourceDefinition],
        namespaces: &[String],
        programs: &Programs,
        clock: Option<&Arc<dyn Clock>>,
    ) -> Self {
        let with = |server: apiserver::Builder,
                    (matcher, program): &(Matcher, Arc<dyn Program>)| {
            server.program(matcher.clone(), Arc::clone(program))
        };
        let server = programs.0.iter().fold(Server::builder(), with);
        let server = match clock.cloned() {
            Some(clock) => server.clock(Arc::new(move || clock.wall())),
            None => server,
        };
        let server = server
            .name(name)
            .workloads(true)
            .garbage_collector(true)
            .start()
            .await
            .expect("an embedded server starts");
        let name = name.parse().unwrap_or_else(|error| panic!("{error}"));
        let client = server.client();
        install::definitions(&client, crds).await.unwrap_or_else(|error| fail(&error));
        for namespace in namespaces {
            install::namespace(&client, namespace).await.unwrap_or_else(|error| fail(&error));
        }
        let identity = identity(&name, &client).await;
        Self { name, server, identity }
    }

    /// An administrator's client.
    pub fn client(&self) -> Client {
        self.server.client()
    }

    /// Objects of a kind in a namespace.
    pub fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client(), namespace)
    }

    /// The server: what was written to it, its watches, its past.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Sets a hook that decides what happens to each request, the test's own included: those of
    /// controllers have a `user_agent` that begins with `leasehold/`.
    pub fn set_faults(&self, hook: impl Fn(&Request) -> Fault + Send + Sync + 'static) {
        self.server.set_faults(Some(Arc::new(hook)));
    }

    /// Ends all faults.
    pub fn end_faults(&self) {
        self.server.set_faults(None);
    }

    /// Applies a manifest of one or more objects, as `kubectl apply --server-side` does.
    ///
    /// # Panics
    /// If it is not a manifest, or the server refuses an object.
    pub async fn apply(&self, manifest: &str) {
        install::manifest(&self.client(), manifest).await.unwrap_or_else(|error| fail(&error));
    }
}

impl TestEnv {
    /// An environment with nothing in it yet.
    pub fn builder() -> Builder {
        let wall = NOON.parse().expect("a timestamp");
        let clusters = vec![CLUSTER.to_owned()];
        Builder {
            wall,
            deadline: DEADLINE,
            crds: Vec::new(),
            namespaces: Vec::new(),
            clusters,
            programs: Programs::default(),
            has_server_times: false,
        }
    }

    /// One of the clusters.
    ///
    /// # Panics
    /// If there is no cluster of that name.
    pub fn cluster(&self, name: &str) -> &TestCluster {
        let mut found = self.members.iter().filter(|cluster| cluster.name.as_str() == name);
        found.next().unwrap_or_else(|| panic!("there is no cluster {name}"))
    }

    /// How long to wait for a condition.
    pub(super) fn deadline(&self) -> Duration {
        self.deadline
    }

    fn first(&self) -> &TestCluster {
        &self.members[0]
    }

    /// An administrator's client.
    pub fn client(&self) -> Client {
        self.first().client()
    }

    /// Objects of a kind in a namespace.
    pub fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        self.first().api(namespace)
    }

    /// The server: what was written to it, its watches, its past.
    pub fn server(&self) -> &Server {
        self.first().server()
    }

    /// Sets a hook that decides what happens to each request, the test's own included: those of
    /// controllers have a `user_agent` that begins with `leasehold/`.
    pub fn set_faults(&self, hook: impl Fn(&Request) -> Fault + Send + Sync + 'static) {
        self.first().set_faults(hook);
    }

    /// Ends all faults.
    pub fn end_faults(&self) {
        self.first().end_faults();
    }

    /// The clock of the engine, for stand-ins of services outside.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// The wall clock.
    pub fn now(&self) -> Timestamp {
        self.clock.wall()
    }

    /// Gives a cluster another name, as somebody does who renames a context. Its server stays.
    ///
    /// # Panics
    /// If an engine runs, there is no cluster `from`, or `to` is not a valid name.
    pub fn rename(&mut self, from: &str, to: &str) {
        assert!(self.engine.is_none(), "an engine runs; stop it first");
        let mut named = self.members.iter_mut().filter(|cluster| cluster.name.as_str() == from);
        let cluster = named.next().unwrap_or_else(|| panic!("there is no cluster {from}"));
        cluster.name = to.parse().unwrap_or_else(|error| panic!("{error}"));
        self.clusters.send_replace(engaged(&self.members));
    }

    /// From now on no cluster tells which one it is, as where nobody may read `kube-system`.
    ///
    /// # Panics
    /// If an engine runs.
    pub fn forget_identities(&mut self) {
        assert!(self.engine.is_none(), "an engine runs; stop it first");
        self.members.iter_mut().for_each(|cluster| cluster.identity = None);
        self.clusters.send_replace(engaged(&self.members));
    }

    /// From now on every cluster tells which one it is again.
    ///
    /// # Panics
    /// If an engine runs.
    pub async fn learn_identities(&mut self) {
        assert!(self.engine.is_none(), "an engine runs; stop it first");
        for TestCluster { name, server, identity: known } in &mut self.members {
            *known = identity(name, &server.client()).await;
        }
        self.clusters.send_replace(engaged(&self.members));
    }

    /// Starts an engine with these controllers, as a new member of every cluster.
    ///
    /// # Panics
    /// If one runs already, or two controllers have the same name.
    pub fn run(&mut self, controllers: impl IntoIterator<Item = ControllerSpec>) {
        assert!(self.engine.is_none(), "an engine runs; stop it first");
        self.engine = Some(self.alone(controllers));
    }

    /// Starts an engine with these controllers that holds all shards, as a new member.
    pub(super) fn alone(
        &mut self,
        controllers: impl IntoIterator<Item = ControllerSpec>,
    ) -> Running {
        let controllers: Vec<_> = controllers.into_iter().collect();
        self.epoch = self.epoch.next();
        let in_all = |group: &GroupName| {
            let shard = |cluster: &TestCluster| ShardId {
                cluster: cluster.name.clone(),
                group: group.clone(),
                range: Range::WHOLE,
            };
            self.members.iter().map(shard).collect::<Vec<_>>()
        };
        let shards: BTreeSet<_> = groups(&controllers).values().flat_map(in_all).collect();
        let member = format!("test-{}", self.epoch).parse().expect("a member's name");
        let ownership = Arc::new(Sole::of(member, shards, self.epoch));
        let meter = Meter::new(Arc::clone(&self.clock));
        self.engine(controllers, ownership, meter)
    }

    /// Starts an engine for the shards of `ownership`.
    pub(super) fn engine(
        &self,
        controllers: Vec<ControllerSpec>,
        ownership: Arc<dyn Ownership>,
        meter: Meter,
    ) -> Running {
        let config = EngineConfig {
            clock: Arc::clone(&self.clock),
            meter,
            ownership,
            clusters: self.clusters.subscribe(),
            groups: groups(&controllers),
            registry: &Registry::new(),
            observer: Arc::new(Unobserved),
            seed: 1,
            upstream: upstream::UpstreamLimits::default(),
            budgets: model::Budgets::default(),
            stamps: false,
            cluster_labels: Arc::default(),
            allocated: None,
        };
        let engine = Engine::new(config, controllers).expect("controllers of different names");
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(engine.run(shutdown.clone()));
        Running { shutdown, task }
    }

    /// Stops the engine, if one runs, and waits until it has stopped. The clusters go on.
    pub async fn stop(&mut self) {
        if let Some(running) = self.engine.take() {
            running.stop().await;
        }
    }

    /// Applies a manifest of one or more objects, as `kubectl apply --server-side` does.
    ///
    /// # Panics
    /// If it is not a manifest, or the server refuses an object.
    pub async fn apply(&self, manifest: &str) {
        self.first().apply(manifest).await;
    }

    /// Waits until `look` finds something.
    ///
    /// # Panics
    /// If it finds nothing in time; the panic says `what` it waited for.
    pub async fn until<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        let search = async {
            loop {
                if let Some(found) = look().await {
                    return found;
                }
                tokio::time::sleep(POLL).await;
            }
        };
        let deadline = self.deadline;
        match tokio::time::timeout(deadline, search).await {
            Ok(found) => found,
            Err(_) => panic!("gave up after {deadline:?} waiting for {what}"),
        }
    }

    /// Waits until `look` accepts the object of that name.
    ///
    /// # Panics
    /// If it does not in time; the panic shows the object.
    pub async fn until_object<K>(
        &self,
        api: &Api<K>,
        name: &str,
        mut look: impl FnMut(&K) -> bool,
    ) -> K
    where
        K: Clone + Debug + DeserializeOwned,
    {
        let mut last = None;
        let search = async {
            loop {
                last = api.get_opt(name).await.expect("the server answers");
                if let Some(found) = last.as_ref().filter(|found| look(found)) {
                    return found.clone();
                }
                tokio::time::sleep(POLL).await;
            }
        };
        let deadline = self.deadline;
        match tokio::time::timeout(deadline, search).await {
            Ok(found) => found,
            Err(_) => panic!("gave up after {deadline:?} waiting for {name}, which is {last:#?}"),
        }
    }

    /// Waits until an object of that name has a condition of this type with status `True`.
    ///
    /// # Panics
    /// If it does not in time; the panic shows the object.
    pub async fn until_condition<K>(&self, api: &Api<K>, name: &str, condition: &str) -> K
    where
        K: Clone + Debug + DeserializeOwned + serde::Serialize,
    {
        let holds = |object: &K| {
            let object = serde_json::to_value(object).unwrap_or_default();
            let conditions = object.pointer("/status/conditions").and_then(|all| all.as_array());
            conditions.is_some_and(|all| {
                all.iter().any(|found| found["type"] == condition && found["status"] == "True")
            })
        };
        self.until_object(api, name, holds).await
    }

    /// Waits until there is no object of that name.
    ///
    /// # Panics
    /// If there still is one when the time is up.
    pub async fn until_gone<K>(&self, api: &Api<K>, name: &str)
    where
        K: Clone + Debug + DeserializeOwned,
    {
        let what = format!("{name} to be gone");
        self.until(&what, async || match api.get_opt(name).await.expect("the server answers") {
            Some(_) => None,
            None => Some(()),
        })
        .await;
    }

    /// Lets `time` pass.
    pub async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

/// Ends the test with an error and its causes.
pub(super) fn fail<T>(error: &(dyn std::error::Error + 'static)) -> T {
    panic!("{}", model::error::chain(error))
}
