//! Informers: one task each keeps the cache of one (cluster, kind, namespace, selectors) true and
//! tells its subscribers what changed.
//!
//! The protocol is `listwatch`, the objects are in a [`StoreWriter`]. An informer lives as long as
//! somebody holds its [`Informer`] handle; `registry` shares them.
//!
//! It holds the objects that somebody claims, and no others: see [`crate::coverage`]. All claims are
//! met by one store, whatever the roles, ranges and groups of those that claim, so no object is
//! cached twice; who reads may find more in it than it claimed.
//!
//! | file | owns |
//! |---|---|
//! | `task` | the task: what each arrival changes, and who is told |
//! | `claims` | who needs what |
//! | `extent` | what is held, what is wanted, when to list anew: pure |
//! | `division` | whether the server sends only what is wanted: pure |
//! | `trainer` | the dictionary being trained on another thread |
//!
//! # Invariants
//! - A subscriber is told of every change after its replay, in order, with the object as it was
//!   before; a slow one slows the informer down rather than losing anything (L2).
//! - The store is changed before subscribers are told, so what they read is at least that new.
//! - [`Change::Synced`] comes after everything that the claims up to its number cover. What is told
//!   of an object before that is [`Priority::Initial`]; of one that was covered already it is live,
//!   also while a list for others is read, so no change of it is taken for a first look (L2).
//! - A delete carries the last state known, whether it was seen or found missing by a new list. An
//!   object that leaves all ranges, because its owner changed, is told as deleted; one that enters,
//!   as new. One that is dropped because its claim was, is told of to nobody: it is not gone.
//! - What a claim covers stays in the store until the claim is dropped. Tenures hold claims, and
//!   runs hold tenures, so a draining shard reads everything until its last run has ended.
//! - An object that nobody claims is not read beyond its sketch: it is neither stored nor decoded.

mod claims;
mod division;
mod extent;
mod task;
mod trainer;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::{Clock, ClusterName, Moment};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Span;

pub(crate) use self::claims::Claimed;
use self::claims::Claims;
pub use self::division::ShardMode;
use self::task::Task;
use crate::cache::{Entry, ResourceVersion, Store, StoreWriter};
use crate::controller::Scope;
use crate::coverage::{Claim, Coverage};
use crate::listwatch::intake::Intake;
use crate::metrics::InformerMetrics;
use crate::object::Kind;
use crate::queue::core::Priority;
use crate::status::InformerStatus;

/// Events one subscriber may have outstanding before the informer waits for it.
pub const SUBSCRIBER_BUFFER: usize = 256;
/// Subscribers that may be waiting to be admitted.
const ADMISSIONS: usize = 16;

/// What an informer watches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    pub(crate) cluster: ClusterName,
    /// The incarnation of the cluster: another kubeconfig, another informer.
    pub(crate) incarnation: u64,
    pub(crate) kind: Kind,
    pub(crate) scope: Scope,
}

/// What happened to an object.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Upsert {
        old: Option<Arc<Entry>>,
        new: Arc<Entry>,
    },
    Delete {
        old: Arc<Entry>,
    },
    /// Everything that the claims up to this number cover has been told of.
    Synced(u64),
}

/// A change as told to subscribers.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) change: Change,
    pub(crate) priority: Priority,
    pub(crate) received: Moment,
    /// The `watch.event` span; disabled for the first list.
    pub(crate) span: Span,
}

/// A handle that keeps an informer running.
#[derive(Debug)]
pub(crate) struct Informer {
    shared: Arc<Shared>,
    claims: Claims,
    admissions: mpsc::Sender<mpsc::Sender<Event>>,
    _stop: DropGuard,
}

/// A subscriber's end.
#[derive(Debug)]
pub(crate) struct Subscription {
    events: mpsc::Receiver<Event>,
    shared: Arc<Shared>,
}

/// What others may see of an informer.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) target: Target,
    pub(crate) store: Store,
    condition: Mutex<Condition>,
    /// The version up to which the store shows everything; changes with each change of the store.
    seen: watch::Sender<Option<ResourceVersion>>,
    queued: AtomicUsize,
    subscribers: AtomicUsize,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Condition {
    pub(crate) synced: bool,
    pub(crate) resource_version: String,
    pub(crate) heard: Option<Moment>,
    pub(crate) error: Option<String>,
    /// What is wanted of the kind, and who divides it.
    pub(crate) coverage: Coverage,
    pub(crate) mode: ShardMode,
}

// === impl Informer ===

impl Informer {
    /// Starts one. It holds nothing until somebody claims something.
    pub(crate) fn start(
        target: Target,
        client: kube::Client,
        intake: Intake,
        clock: Arc<dyn Clock>,
        metrics: InformerMetrics,
        rng: fastrand::Rng,
        writer: StoreWriter,
    ) -> Arc<Self> {
        let shared = Arc::new(Shared {
            store: writer.store(),
            condition: Mutex::default(),
            seen: watch::Sender::default(),
            queued: AtomicUsize::new(0),
            subscribers: AtomicUsize::new(0),
            target,
        });
        let (admissions, waiting) = mpsc::channel(ADMISSIONS);
        let claims = Claims::default();
        let task = Task::new(
            Arc::clone(&shared),
            writer,
            claims.follow(),
            client,
            waiting,
            intake,
            (clock, metrics, rng),
        );
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(async move { stopped.run_until_cancelled(task.run()).await });
        Arc::new(Self { shared, claims, admissions, _stop: stop.drop_guard() })
    }

    /// Asks for objects to be held, from now until the claim is dropped.
    pub(crate) fn claim(&self, claim: Claim) -> Claimed {
        self.claims.claim(claim)
    }

    /// Subscribes: what the store holds comes first, then every change.
    pub(crate) async fn subscribe(&self) -> Subscription {
        let (sender, events) = mpsc::channel(SUBSCRIBER_BUFFER);
        // Fails only if the task has ended; the subscription then ends as well.
        let _ = self.admissions.send(sender).await;
        Subscription { events, shared: Arc::clone(&self.shared) }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn store(&self) -> &Store {
        &self.shared.store
    }
}

impl Subscription {
    /// The next event; `None` once the informer has stopped.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        let event = self.events.recv().await?;
        self.shared.queued.fetch_sub(1, Ordering::Relaxed);
        Some(event)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.events.close();
        while self.events.try_recv().is_ok() {
            self.shared.queued.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

// === impl Shared ===

impl Shared {
    pub(crate) fn condition(&self) -> Condition {
        self.condition.lock().expect("no holder of this lock panics").clone()
    }

    /// The version up to which the store shows everything, once a list is complete.
    pub(crate) fn seen(&self) -> Option<ResourceVersion> {
        self.seen.borrow().clone()
    }

    /// Tells of each change of the store and of [`Self::seen`].
    pub(crate) fn follow(&self) -> watch::Receiver<Option<ResourceVersion>> {
        self.seen.subscribe()
    }

    fn update<T>(&self, change: impl FnOnce(&mut Condition) -> T) -> T {
        change(&mut self.condition.lock().expect("no holder of this lock panics"))
    }

    /// Sends one event, waiting for room. Gives whether the subscriber is still there.
    async fn send(&self, subscriber: &mpsc::Sender<Event>, event: Event) -> bool {
        self.queued.fetch_add(1, Ordering::Relaxed);
        let sent = subscriber.send(event).await.is_ok();
        if !sent {
            self.queued.fetch_sub(1, Ordering::Relaxed);
        }
        sent
    }

    /// Events that wait in subscribers' buffers.
    pub(crate) fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// Time since the server was last heard.
    pub(crate) fn lag(&self, now: Moment) -> Option<Duration> {
        self.update(|condition| condition.heard).map(|heard| now.since(heard))
    }

    pub(crate) fn status(&self, now: Moment) -> InformerStatus {
        let Condition { synced, resource_version, heard, error, coverage, mode } = self.condition();
        let Target { cluster, kind, scope, .. } = &self.target;
        let labels = scope.labels.to_string();
        let selector = [labels.as_str(), scope.fields.as_str()];
        InformerStatus {
            cluster: cluster.clone(),
            kind: kind.to_string(),
            namespace: scope.namespace.clone(),
            selector: selector.into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(";"),
            ranges: coverage.to_string(),
            mode,
            synced,
            objects: self.store.len(),
            bytes: self.store.bytes(),
            resource_version,
            lag_seconds: heard.map(|heard| now.since(heard).as_secs_f64()),
            subscribers: self.subscribers.load(Ordering::Relaxed),
            error,
        }
    }
}
