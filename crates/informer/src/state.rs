//! What an informer watches, and what others may see of it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cache::{ResourceVersion, Store};
use listwatch::{Form, Intake, Scope};
use model::{ClusterName, Kind, Moment};
use tokio::sync::watch;

use crate::status::{Absence, InformerStatus};
use extent::{RangeFilter, ShardMode};

/// How long readiness waits for a first list. One that takes longer is no reason to be unready for other
/// clusters.
pub const SYNC_PATIENCE: Duration = Duration::from_secs(60);
/// An informer whose attempts have failed for so long makes its cluster a failing one.
pub const FAILING_AFTER: Duration = Duration::from_secs(30);

/// And so does one whose list has not ended by then, although the server answers: the largest that a budget
/// admits takes a few minutes over a slow line.
pub const ENDLESS_AFTER: Duration = Duration::from_secs(900);

/// What an informer watches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The cluster.
    pub cluster: ClusterName,
    /// The number of the cluster's engagement here: after another kubeconfig or a quarantine, another informer.
    pub engagement: u64,
    /// The kind.
    pub kind: Kind,
    /// Namespace and selectors.
    pub scope: Scope,
    /// Whole objects, or their metadata.
    pub form: Form,
}

/// What others may see of an informer.
#[derive(Debug)]
pub struct InformerState {
    /// What it watches.
    pub target: Target,
    /// What it holds.
    pub store: Store,
    began: Moment,
    /// How much of its cluster is taken in at once.
    pub intake: Intake,
    pub(crate) condition: Mutex<Condition>,
    /// The version up to which the store shows everything; changes with each change of the store.
    pub(crate) seen: watch::Sender<Option<ResourceVersion>>,
    pub(crate) queued: AtomicUsize,
    pub(crate) subscribers: AtomicUsize,
}

/// How an informer fares.
#[derive(Clone, Debug, Default)]
pub struct Condition {
    /// Whether everything that is wanted has been listed.
    pub synced: bool,
    /// When the server was heard last.
    pub heard: Option<Moment>,
    /// Why the last attempt failed, until a list is complete or a watch after it is answered.
    pub error: Option<String>,
    /// Since when there is such an error.
    pub failing_since: Option<Moment>,
    /// When an answer began of which no line was understood yet, and since when attempts had failed then.
    pub(crate) opened: Option<(Moment, Option<Moment>)>,
    /// Since when everything is being listed, however often the list starts over.
    pub listing_since: Option<Moment>,
    /// Why the kind is not there, if that is what the server said last.
    pub absent: Option<Absence>,
    /// What is wanted of the kind.
    pub filter: RangeFilter,
    /// Who divides it.
    pub mode: ShardMode,
}

impl InformerState {
    pub(crate) fn new(target: Target, store: Store, began: Moment, intake: Intake) -> Self {
        Self {
            target,
            store,
            began,
            intake,
            condition: Mutex::default(),
            seen: watch::Sender::default(),
            queued: AtomicUsize::new(0),
            subscribers: AtomicUsize::new(0),
        }
    }

    /// How it fares.
    pub fn condition(&self) -> Condition {
        self.condition.lock().expect("no holder of this lock panics").clone()
    }

    /// Why the kind is not there.
    pub fn absence(&self) -> Option<Absence> {
        self.update(|condition| condition.absent)
    }

    /// Whether everything that is wanted has been listed, and the server lets it be followed.
    pub fn is_available(&self) -> bool {
        self.update(|condition| condition.synced && condition.absent.is_none())
    }

    /// Whether its first list takes longer than others wait for it.
    pub fn is_overdue(&self, now: Moment) -> bool {
        !self.update(|condition| condition.synced) && now.since(self.began) >= SYNC_PATIENCE
    }

    /// Why it cannot list or watch, if attempts have failed for a while, or a list does not end.
    pub fn failure(&self, now: Moment) -> Option<String> {
        let Condition { error, failing_since, listing_since, .. } = self.condition();
        let lasts = |since: Option<Moment>, most| since.is_some_and(|at| now.since(at) >= most);
        let is_endless = lasts(listing_since, ENDLESS_AFTER);
        let endless = || format!("its list has not ended within {}s", ENDLESS_AFTER.as_secs());
        let error = error.filter(|_| lasts(failing_since, FAILING_AFTER));
        error.or_else(|| is_endless.then(endless))
    }

    /// The version up to which the store shows everything, once a list is complete.
    pub fn seen(&self) -> Option<ResourceVersion> {
        self.seen.borrow().clone()
    }

    /// Changes with each change of the store and of [`Self::seen`].
    pub fn follow(&self) -> watch::Receiver<Option<ResourceVersion>> {
        self.seen.subscribe()
    }

    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut Condition) -> T) -> T {
        change(&mut self.condition.lock().expect("no holder of this lock panics"))
    }

    /// Events that wait for subscribers.
    pub fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// Time since the server was last heard.
    pub fn lag(&self, now: Moment) -> Option<Duration> {
        self.update(|condition| condition.heard).map(|heard| now.since(heard))
    }

    /// For people.
    pub fn status(&self, now: Moment) -> InformerStatus {
        let Condition { synced, heard, error, absent, filter, mode, .. } = self.condition();
        let resource_version = self.seen().map(|seen| seen.to_string()).unwrap_or_default();
        let Target { cluster, kind, scope, form, .. } = &self.target;
        let labels = scope.labels.to_string();
        let selector = [labels.as_str(), scope.fields.as_str()];
        InformerStatus {
            cluster: cluster.clone(),
            kind: kind.to_string(),
            namespace: scope.namespace.clone(),
            selector: selector.into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(";"),
            ranges: filter.to_string(),
            mode,
            synced,
            objects: self.store.len(),
            bytes: self.store.bytes(),
            resource_version,
            throttled: self.intake.throttled(),
            lag_seconds: heard.map(|heard| now.since(heard).as_secs_f64()),
            subscribers: self.subscribers.load(Ordering::Relaxed),
            metadata_only: *form == Form::Metadata,
            absent,
            error,
        }
    }
}
