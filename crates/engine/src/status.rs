//! What the engine reports about itself: readiness, queues, informers and the gates of clusters, for
//! `/readyz`, `/debug/queues` and `/debug/clusters`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use model::{Clock, ClusterName, Moment, Ownership};
use serde::Serialize;

use crate::assignment::AssignmentQueue;
use crate::meter::Meter;
use crate::presence::{AbsentSource, Presences};
use crate::source::Source;
use extent::{QuarantineStatus, Quarantines};
use informer::{Condition, Informer, InformerState, InformerStatus, SYNC_PATIENCE};
use queue::QueueStatus;
use upstream::{Gate, Gates, UpstreamStatus};

/// Whether the engine does its work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Readiness {
    /// Whether the informers of every owned shard have synced, those of clusters left out that do not
    /// answer, fail, or take longer than a minute for a list: no cluster may keep a replica from being
    /// ready for the others.
    pub ready: bool,
    /// What is waited for: informers that have yet to sync.
    pub waiting: Vec<String>,
    /// Informers that have not synced because their cluster refuses, does not answer or is too slow. What
    /// every controller does without is left out.
    pub failing: Vec<String>,
}

/// Where the engine's parts can be looked at from outside its task. A read handle: it holds no
/// informer alive and decides nothing.
#[derive(Debug)]
pub(crate) struct Board {
    clock: Arc<dyn Clock>,
    ownership: Arc<dyn Ownership>,
    queues: Vec<Arc<AssignmentQueue>>,
    /// What the controllers watch, in the order of their queues.
    sources: Vec<Vec<Source>>,
    informers: Mutex<Vec<Weak<Informer>>>,
    gates: Gates,
    presences: Presences,
    quarantines: Quarantines,
    /// Whether the first look at shards and clusters has been acted on.
    running: AtomicBool,
}

impl Board {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        ownership: Arc<dyn Ownership>,
        controllers: impl Iterator<Item = (Arc<AssignmentQueue>, Vec<Source>)>,
        meter: &Meter,
    ) -> Self {
        let (queues, sources) = controllers.unzip();
        let (informers, running) = (Mutex::default(), AtomicBool::new(false));
        let (gates, presences) = (meter.gates().clone(), meter.presences().clone());
        let quarantines = meter.quarantines().clone();
        Self {
            clock,
            ownership,
            queues,
            sources,
            informers,
            gates,
            presences,
            quarantines,
            running,
        }
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

    pub(crate) fn queues(&self) -> &[Arc<AssignmentQueue>] {
        &self.queues
    }

    /// The controllers' queues, and what they watch.
    pub(crate) fn controllers(&self) -> impl Iterator<Item = (&AssignmentQueue, &[Source])> {
        self.queues.iter().map(|queue| &**queue).zip(self.sources.iter().map(Vec::as_slice))
    }

    /// What this member holds, and the fence.
    pub(crate) fn ownership(&self) -> &dyn Ownership {
        &*self.ownership
    }

    /// The running informers, ordered by what they watch.
    pub(crate) fn informers(&self) -> Vec<Arc<InformerState>> {
        let informers = self.informers.lock().expect("no holder of this lock panics");
        let running = informers.iter().filter_map(Weak::upgrade);
        let mut state: Vec<_> = running.map(|informer| Arc::clone(informer.state())).collect();
        state.sort_by(|a, b| a.target.cmp(&b.target));
        state
    }

    /// The gates of engaged clusters, ordered by name.
    pub(crate) fn gates(&self) -> Vec<(ClusterName, Arc<Gate>)> {
        self.gates.all()
    }

    pub(crate) fn presences(&self) -> &Presences {
        &self.presences
    }

    pub(crate) fn quarantines(&self) -> &Quarantines {
        &self.quarantines
    }

    fn readiness(&self) -> Readiness {
        let now = self.now();
        let dispensable = self.presences.dispensable();
        let left_alone: BTreeMap<_, _> = self.gates.left_alone(now).collect();
        let (mut waiting, mut failing) = (Vec::new(), Vec::new());
        for state in self.informers() {
            let Condition { synced, error, .. } = state.condition();
            let mut name = format!("{}/{}", state.target.cluster, state.target.kind);
            if let Some(namespace) = &state.target.scope.namespace {
                name += &format!(" in {namespace}");
            }
            // One that waits for its first turn has not failed itself.
            let cluster = &state.target.cluster;
            let error = error.or_else(|| left_alone.get(cluster).map(ToString::to_string));
            // One that is tried again after a quarantine is not waited for.
            let excess = || Some(self.quarantines.last_reason(cluster, now)?.to_string());
            let error = error.or_else(excess);
            let overdue = || {
                let text = format!("its list has not ended within {}s", SYNC_PATIENCE.as_secs());
                state.is_overdue(now).then_some(text)
            };
            match error.or_else(overdue) {
                _ if synced || dispensable.contains(&state.target) => {}
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
        let status = |(queue, sources): (&AssignmentQueue, &[Source])| {
            // The kind that is reconciled comes first.
            let resource = sources.first().map(|source| source.kind.resource());
            QueueStatus { resource, ..queue.status() }
        };
        self.0.controllers().map(status).collect()
    }

    /// The gate before every engaged cluster, ordered by name.
    pub fn upstreams(&self) -> Vec<UpstreamStatus> {
        let now = self.0.now();
        self.0.gates().into_iter().map(|(cluster, gate)| gate.status(cluster, now)).collect()
    }

    /// The clusters that exceeded their budget lately.
    pub fn quarantines(&self) -> Vec<QuarantineStatus> {
        self.0.quarantines().status(self.0.now())
    }

    /// What controllers watch and clusters do not have, or do not let be watched.
    pub fn absent(&self) -> Vec<AbsentSource> {
        self.0.presences().absent()
    }

    /// Every running informer, ordered by cluster and kind.
    pub fn informers(&self) -> Vec<InformerStatus> {
        let now = self.0.now();
        self.0.informers().iter().map(|state| state.status(now)).collect()
    }
}
