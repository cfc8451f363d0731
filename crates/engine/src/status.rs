//! What the engine reports about itself: readiness, queues, informers and the gates of clusters, for
//! `/readyz`, `/debug/queues` and `/debug/clusters`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

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
    /// Whether it runs and its first lists have been waited for, but for those of clusters that do not answer or fail.
    /// They are waited for once, and for a minute at most: no cluster may keep a replica from being ready for the
    /// others. What it gains later is warm before it is handed over.
    pub ready: bool,
    /// Informers that have yet to sync. While it is not ready, they are waited for.
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
    /// When the first informer began.
    began: OnceLock<Moment>,
    /// Whether the first lists have been waited for.
    has_listed: AtomicBool,
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
            began: OnceLock::new(),
            has_listed: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_running(&self, running: bool) {
        self.running.store(running, Ordering::Release);
    }

    pub(crate) fn watch_informer(&self, informer: &Arc<Informer>) {
        let mut informers = self.informers.lock().expect("no holder of this lock panics");
        if informers.len() == informers.capacity() {
            // Seldom, because a cluster more is no reason to look at the informers of all others.
            informers.retain(|informer| informer.strong_count() > 0);
            let alive = informers.len();
            informers.reserve(alive);
        }
        informers.push(Arc::downgrade(informer));
        self.began.get_or_init(|| self.now());
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

    /// The same as [`Readiness::ready`]. Once the first lists have been waited for it looks at no informer, of which there
    /// are thousands: whoever reaches the port of the probes may ask at any rate.
    fn is_ready(&self) -> bool {
        match self.has_listed.load(Ordering::Acquire) {
            true => self.running.load(Ordering::Acquire),
            false => self.readiness().ready,
        }
    }

    fn readiness(&self) -> Readiness {
        let now = self.now();
        let dispensable = self.presences.dispensable();
        let left_alone: BTreeMap<_, _> = self.gates.left_alone(now).collect();
        let (mut waiting, mut failing, mut any_synced) = (Vec::new(), Vec::new(), false);
        for state in self.informers() {
            let Condition { synced, error, .. } = state.condition();
            any_synced |= synced;
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
        let is_late = self.began.get().is_some_and(|began| now.since(*began) >= SYNC_PATIENCE);
        // One that holds nothing yet is ready, and waits for its first lists later.
        if is_late || (any_synced && waiting.is_empty()) {
            self.has_listed.store(true, Ordering::Release);
        }
        let has_listed = self.has_listed.load(Ordering::Acquire);
        Readiness { ready: running && (has_listed || waiting.is_empty()), waiting, failing }
    }
}

/// A handle that tells how the engine is doing, before, while and after it runs.
#[derive(Clone, Debug)]
pub struct EngineStatus(pub(crate) Arc<Board>);

impl EngineStatus {
    /// Whether the engine does its work.
    pub fn is_ready(&self) -> bool {
        self.0.is_ready()
    }

    /// The same, and what it waits for.
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
