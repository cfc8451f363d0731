//! What the engine tells about itself: readiness, queues, informers and the gates before clusters,
//! for `/readyz`, `/debug/queues` and `/debug/clusters`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use model::{Clock, ClusterName, ControllerName, Moment};
use serde::Serialize;

pub use crate::informer::ShardMode;
use crate::informer::{Condition, Informer, Shared};
use crate::queue::WorkQueue;
use crate::upstream::BreakerPhase;
use crate::upstream::gate::Gate;
use crate::upstream::gates::Gates;

/// One queue at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatus {
    /// The controller.
    pub controller: ControllerName,
    /// Keys ready to be dispatched, or held until their shard is active.
    pub depth: usize,
    /// Keys waiting for a retry or a wake-up.
    pub delayed: usize,
    /// Keys being reconciled.
    pub running: usize,
    /// How long the oldest ready key has waited.
    pub oldest_seconds: f64,
    /// Ready keys of each cluster.
    pub clusters: BTreeMap<ClusterName, usize>,
}

/// One informer at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InformerStatus {
    /// The cluster.
    pub cluster: ClusterName,
    /// The kind, as `group/Kind`.
    pub kind: String,
    /// The namespace it is restricted to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The label and field selectors it is restricted to.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// Of which objects it holds: ranges of their uids, as `0/2,5/8`, and of their owners', as
    /// `owner:0/2`. `0/1` are all.
    pub ranges: String,
    /// Who leaves the others out.
    pub mode: ShardMode,
    /// Whether the first list is complete.
    pub synced: bool,
    /// Objects in the cache.
    pub objects: usize,
    /// Bytes of the cache: objects, tables, dictionaries.
    pub bytes: usize,
    /// The newest resourceVersion seen.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Seconds since the server was last heard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_seconds: Option<f64>,
    /// Subscribers.
    pub subscribers: usize,
    /// Why the last attempt failed; absent once the server answers again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The gate before one cluster at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamStatus {
    /// The cluster.
    pub cluster: ClusterName,
    /// Whether requests pass.
    pub breaker: BreakerPhase,
    /// Why reconciles are refused; absent while they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Seconds until the cluster is asked again; absent while requests pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_seconds: Option<f64>,
    /// Requests that may be under way at once.
    pub concurrency_limit: usize,
    /// Requests under way whose answer has not begun.
    pub in_flight: usize,
    /// Requests that wait for their turn.
    pub waiting: usize,
}

/// Whether the engine does its work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Readiness {
    /// Whether the informers of every owned shard have synced, those of clusters that do not
    /// answer left out: a dead cluster must not keep a replica from being ready for the others.
    pub ready: bool,
    /// What is waited for: informers that have yet to sync.
    pub waiting: Vec<String>,
    /// Informers that have not synced because their cluster refuses or does not answer.
    pub failing: Vec<String>,
}

/// Where the engine's parts can be looked at from outside its task. A read handle: it holds no
/// informer alive and decides nothing.
#[derive(Debug)]
pub(crate) struct Board {
    clock: Arc<dyn Clock>,
    queues: Vec<Arc<WorkQueue>>,
    informers: Mutex<Vec<Weak<Informer>>>,
    gates: Gates,
    /// Whether the first look at shards and clusters has been acted on.
    running: AtomicBool,
}

impl Board {
    pub(crate) fn new(clock: Arc<dyn Clock>, queues: Vec<Arc<WorkQueue>>, gates: Gates) -> Self {
        let (informers, running) = (Mutex::default(), AtomicBool::new(false));
        Self { clock, queues, informers, gates, running }
    }

    pub(crate) fn set_running(&self, running: bool) {
        self.running.store(running, Ordering::Release);
    }

    pub(crate) fn watch_informer(&self, informer: &Arc<Informer>) {
        let mut informers = self.informers.lock().expect("no holder of this lock panics");
        informers.retain(|informer| informer.strong_count() > 0);
        informers.push(Arc::downgrade(informer));
    }

    pub(crate) fn watch_gate(&self, cluster: &ClusterName, gate: &Arc<Gate>) {
        self.gates.watch(cluster, gate);
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(crate) fn queues(&self) -> &[Arc<WorkQueue>] {
        &self.queues
    }

    /// The running informers, ordered by what they watch.
    pub(crate) fn informers(&self) -> Vec<Arc<Shared>> {
        let informers = self.informers.lock().expect("no holder of this lock panics");
        let running = informers.iter().filter_map(Weak::upgrade);
        let mut shared: Vec<_> = running.map(|informer| Arc::clone(informer.shared())).collect();
        shared.sort_by(|a, b| a.target.cmp(&b.target));
        shared
    }

    /// The gates of engaged clusters, ordered by name.
    pub(crate) fn gates(&self) -> Vec<(ClusterName, Arc<Gate>)> {
        self.gates.all()
    }

    fn readiness(&self) -> Readiness {
        let left_alone: BTreeMap<_, _> = self.gates.left_alone(self.now()).collect();
        let (mut waiting, mut failing) = (Vec::new(), Vec::new());
        for shared in self.informers() {
            let Condition { synced, error, .. } = shared.condition();
            let name = format!("{}/{}", shared.target.cluster, shared.target.kind);
            // One that waits for its first turn has not failed itself.
            match error.or_else(|| left_alone.get(&shared.target.cluster).map(ToString::to_string))
            {
                _ if synced => {}
                Some(error) => failing.push(format!("{name}: {error}")),
                None => waiting.push(name),
            }
        }
        let running = self.running.load(Ordering::Acquire);
        Readiness { ready: running && waiting.is_empty(), waiting, failing }
    }
}

/// A handle that tells how the engine is doing, before, while and after it runs.
#[derive(Clone, Debug)]
pub struct EngineStatus(pub(crate) Arc<Board>);

impl EngineStatus {
    /// Whether the engine does its work.
    pub fn readiness(&self) -> Readiness {
        self.0.readiness()
    }

    /// Every controller's queue.
    pub fn queues(&self) -> Vec<QueueStatus> {
        self.0.queues().iter().map(|queue| queue.status()).collect()
    }

    /// The gate before every engaged cluster, ordered by name.
    pub fn upstreams(&self) -> Vec<UpstreamStatus> {
        let now = self.0.now();
        self.0.gates().into_iter().map(|(cluster, gate)| gate.status(cluster, now)).collect()
    }

    /// Every running informer, ordered by cluster and kind.
    pub fn informers(&self) -> Vec<InformerStatus> {
        let now = self.0.now();
        self.0.informers().iter().map(|shared| shared.status(now)).collect()
    }
}
