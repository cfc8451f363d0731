//! The smallest world a controller lives in: one embedded cluster, and one engine that holds all of
//! it. The engine can be stopped and started again while the cluster goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use apiserver::Server;
use engine::{ControllerSpec, Engine, EngineConfig, Meter, Unobserved};
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Client, Resource};
use model::group::groups;
use model::{Clock, Cluster, ClusterName, ClusterSet, ClusterState, Epoch, Range, ShardId};
use prometheus::Registry;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::clock::TokioClock;
use crate::sole::Sole;

/// How long a condition may take to come true, in tokio's time.
const DEADLINE: Duration = Duration::from_secs(120);
/// How often it is looked at.
const POLL: Duration = Duration::from_millis(50);

/// One cluster, and the engine that works on it.
#[derive(Debug)]
pub struct Solo {
    server: Server,
    name: ClusterName,
    clusters: watch::Sender<Arc<ClusterSet>>,
    clock: Arc<dyn Clock>,
    epoch: Epoch,
    engine: Option<Running>,
}

#[derive(Debug)]
struct Running {
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Solo {
    /// A cluster with stand-ins for the workload controllers and the garbage collector, with
    /// these CRDs and namespaces. It is `wall` o'clock.
    pub async fn new(wall: &str, crds: Vec<CustomResourceDefinition>, namespaces: &[&str]) -> Self {
        let wall: Timestamp = wall.parse().expect("a timestamp");
        let server = Server::builder()
            .name("east")
            .workloads(true)
            .garbage_collector(true)
            .start()
            .await
            .expect("an embedded server starts");
        let name: ClusterName = "east".parse().expect("a name");
        let client = server.client();
        let cluster = Cluster { name: name.clone(), client, incarnation: 1 };
        let set = BTreeMap::from([(name.clone(), ClusterState::Engaged(cluster))]);
        let solo = Self {
            server,
            name,
            clusters: watch::Sender::new(Arc::new(ClusterSet { clusters: set })),
            clock: Arc::new(TokioClock::starting_at(wall)),
            epoch: Epoch(0),
            engine: None,
        };
        solo.prepare(crds, namespaces).await;
        solo
    }

    async fn prepare(&self, crds: Vec<CustomResourceDefinition>, namespaces: &[&str]) {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client());
        for crd in &crds {
            definitions.create(&PostParams::default(), crd).await.expect("the CRD is accepted");
        }
        for crd in &crds {
            let name = crd.metadata.name.as_deref().expect("a CRD has a name");
            self.until("the CRD to be established", async || {
                let status = definitions.get(name).await.ok()?.status?;
                let conditions = status.conditions.unwrap_or_default();
                conditions
                    .iter()
                    .any(|found| found.type_ == "Established" && found.status == "True")
                    .then_some(())
            })
            .await;
        }
        let api: Api<Namespace> = Api::all(self.client());
        for name in namespaces {
            let mut namespace = Namespace::default();
            namespace.metadata.name = Some((*name).to_owned());
            api.create(&PostParams::default(), &namespace).await.expect("a namespace is made");
        }
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

    /// The server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The wall clock.
    pub fn now(&self) -> Timestamp {
        self.clock.wall()
    }

    /// Starts an engine with these controllers, as a member new to the cluster.
    pub fn start(&mut self, controllers: Vec<ControllerSpec>) {
        assert!(self.engine.is_none(), "an engine runs");
        self.epoch = self.epoch.next();
        let inputs: Vec<_> = controllers.iter().map(ControllerSpec::group_input).collect();
        let groups = groups(&inputs);
        let shards: BTreeSet<_> = groups
            .values()
            .map(|group| ShardId {
                cluster: self.name.clone(),
                group: group.clone(),
                range: Range::WHOLE,
            })
            .collect();
        let member = format!("solo-{}", self.epoch).parse().expect("a member's name");
        let config = EngineConfig {
            clock: Arc::clone(&self.clock),
            meter: Meter::new(Arc::clone(&self.clock)),
            ownership: Arc::new(Sole::of(member, shards, self.epoch)),
            clusters: self.clusters.subscribe(),
            groups,
            registry: &Registry::new(),
            observer: Arc::new(Unobserved),
            seed: 1,
            cluster_labels: engine::metrics::DEFAULT_CLUSTER_LABELS,
        };
        let engine = Engine::new(config, controllers).expect("the engine fits together");
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(engine.run(shutdown.clone()));
        self.engine = Some(Running { shutdown, task });
    }

    /// Stops the engine and waits until it has stopped.
    pub async fn stop(&mut self) {
        if let Some(running) = self.engine.take() {
            running.shutdown.cancel();
            running.task.await.expect("the engine does not panic");
        }
    }

    /// Applies a manifest of one or more objects, as `kubectl apply --server-side` does.
    pub async fn apply(&self, manifest: &str) {
        let objects: Vec<DynamicObject> =
            serde_saphyr::from_multiple(manifest).expect("a manifest of objects");
        for object in objects {
            let types = object.types.clone().expect("apiVersion and kind");
            let kind = GroupVersionKind::try_from(&types).expect("a group and a version");
            let resource = ApiResource::from_gvk(&kind);
            let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
            let api: Api<DynamicObject> = Api::namespaced_with(self.client(), namespace, &resource);
            let name = object.metadata.name.clone().expect("a name");
            api.patch(&name, &PatchParams::apply("tests").force(), &Patch::Apply(&object))
                .await
                .unwrap_or_else(|error| panic!("apply {kind:?} {name}: {error}"));
        }
    }

    /// Waits until `look` finds something.
    ///
    /// # Panics
    /// If it finds nothing in time; `what` was waited for.
    pub async fn until<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        let search = async {
            loop {
                if let Some(found) = look().await {
                    return found;
                }
                tokio::time::sleep(POLL).await;
            }
        };
        match tokio::time::timeout(DEADLINE, search).await {
            Ok(found) => found,
            Err(_) => panic!("waited {DEADLINE:?} in vain for {what}"),
        }
    }

    /// Waits until an object of that name is as `look` wants it.
    ///
    /// # Panics
    /// If it is not in time; the panic shows how it is instead.
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
        match tokio::time::timeout(DEADLINE, search).await {
            Ok(found) => found,
            Err(_) => panic!("{name} is not as it should be after {DEADLINE:?}: {last:#?}"),
        }
    }

    /// Lets `time` pass, with all that happens in it.
    pub async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}
