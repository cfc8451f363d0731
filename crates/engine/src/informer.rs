//! Informers: one task each keeps the cache of one (cluster, kind, namespace, selectors) true and
//! tells its subscribers what changed.
//!
//! The protocol is `listwatch`, the objects are in a [`StoreWriter`]. An informer lives as long as
//! somebody holds its [`Informer`] handle; `registry` shares them.
//!
//! # Invariants
//! - A subscriber is told of every change after its replay, in order, with the object as it was
//!   before; a slow one slows the informer down rather than losing anything (L2).
//! - The store is changed before subscribers are told, so what they read is at least that new.
//! - [`Change::Synced`] comes after everything of the first list, once per subscriber.
//! - A delete carries the last state known, whether it was seen or found missing by a new list.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use model::{Clock, ClusterName, Moment};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, watch};
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Span;

use crate::cache::{Entry, ResourceVersion, Store, StoreWriter, Trained};
use crate::controller::Scope;
use crate::listwatch::connection::{Arrival, Connection};
use crate::listwatch::machine::{End, Machine, Signal, Verdict};
use crate::listwatch::wire::{self, Line};
use crate::metrics::InformerMetrics;
use crate::object::Kind;
#[cfg(feature = "planted")]
use crate::planted::{self, Planted};
use crate::queue::core::Priority;
use crate::status::InformerStatus;

/// Events one subscriber may have outstanding before the informer waits for it.
pub const SUBSCRIBER_BUFFER: usize = 256;
/// Subscribers that may be waiting to be admitted.
const ADMISSIONS: usize = 16;

/// Entries packed anew before the informer looks up: about a millisecond.
const RECODED_AT_ONCE: usize = 32;
/// Dictionaries trained at once in this process. A training takes a core for a tenth of a second.
static TRAININGS: Semaphore = Semaphore::const_new(1);

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
    /// The first list is complete.
    Synced,
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
}

// === impl Informer ===

impl Informer {
    /// Starts one.
    pub(crate) fn start(
        target: Target,
        client: kube::Client,
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
            target: target.clone(),
        });
        let (admissions, waiting) = mpsc::channel(ADMISSIONS);
        let task = Task {
            shared: Arc::clone(&shared),
            writer,
            training: None,
            machine: Machine::new(rng),
            connection: Connection::new(client, target.kind, target.scope),
            waiting,
            subscribers: Vec::new(),
            clock,
            metrics,
        };
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(async move { stopped.run_until_cancelled(task.run()).await });
        Arc::new(Self { shared, admissions, _stop: stop.drop_guard() })
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
        let Condition { synced, resource_version, heard, error } = self.condition();
        let Target { cluster, kind, scope, .. } = &self.target;
        let labels = scope.labels.to_string();
        let selector = [labels.as_str(), scope.fields.as_str()];
        InformerStatus {
            cluster: cluster.clone(),
            kind: kind.to_string(),
            namespace: scope.namespace.clone(),
            selector: selector.into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(";"),
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

// === The task ===

struct Task {
    shared: Arc<Shared>,
    writer: StoreWriter,
    /// A dictionary being trained.
    training: Option<JoinHandle<Trained>>,
    machine: Machine,
    connection: Connection,
    waiting: mpsc::Receiver<mpsc::Sender<Event>>,
    subscribers: Vec<mpsc::Sender<Event>>,
    clock: Arc<dyn Clock>,
    metrics: InformerMetrics,
}

impl Task {
    async fn run(mut self) {
        self.request(Duration::ZERO);
        loop {
            tokio::select! {
                biased;
                Some(subscriber) = self.waiting.recv() => self.admit(subscriber).await,
                trained = trained(&mut self.training) => self.adopt(trained),
                Ok(turn) = TRAININGS.acquire(), if self.may_train() => self.train(turn),
                arrival = self.connection.next() => self.arrived(arrival).await,
                () = tokio::task::yield_now(), if self.writer.is_recoding() => {
                    self.writer.recode(RECODED_AT_ONCE);
                }
            }
        }
    }

    fn may_train(&self) -> bool {
        self.training.is_none() && self.writer.is_training_due()
    }

    /// Trains a dictionary on another thread, while the list or watch goes on.
    fn train(&mut self, turn: SemaphorePermit<'static>) {
        self.training = self.writer.training().map(|training| {
            tokio::task::spawn_blocking(move || {
                let trained = training.run();
                drop(turn);
                trained
            })
        });
    }

    fn adopt(&mut self, trained: Result<Trained, JoinError>) {
        self.training = None;
        // It fails only when the runtime shuts down.
        if let Ok(trained) = trained {
            self.writer.adopt(trained);
        }
    }

    fn request(&mut self, after: Duration) {
        let (request, anew) = self.machine.begin(self.clock.now() + after);
        if anew {
            self.writer.begin_replace();
        }
        self.connection.request(request, after);
    }

    /// Tells a new subscriber what there is already.
    async fn admit(&mut self, subscriber: mpsc::Sender<Event>) {
        let received = self.clock.now();
        let event =
            |change| Event { change, priority: Priority::Initial, received, span: Span::none() };
        for new in self.shared.store.list(None, &crate::Selector::all()) {
            let change = Change::Upsert { old: None, new };
            if !self.shared.send(&subscriber, event(change)).await {
                return;
            }
        }
        if self.shared.condition().synced
            && !self.shared.send(&subscriber, event(Change::Synced)).await
        {
            return;
        }
        self.subscribers.push(subscriber);
        self.shared.subscribers.store(self.subscribers.len(), Ordering::Relaxed);
    }

    async fn arrived(&mut self, arrival: Arrival) {
        // A long list must not starve the other tasks of this thread.
        tokio::task::consume_budget().await;
        let now = self.clock.now();
        let (end, why) = match arrival {
            Arrival::Opened => return self.heard(now),
            Arrival::Line(bytes) => {
                self.heard(now);
                match self.line(&bytes, now).await {
                    Ok(()) => return,
                    Err(end) => end,
                }
            }
            Arrival::Page(bytes) => {
                self.heard(now);
                self.page(&bytes, now).await
            }
            Arrival::End(end, why) => (end, why),
        };
        self.ended(end, why);
    }

    fn heard(&self, now: Moment) {
        let recovered = self.shared.update(|condition| {
            condition.heard = Some(now);
            condition.error.take()
        });
        if recovered.is_some() {
            let Target { cluster, kind, .. } = &self.shared.target;
            tracing::info!(%cluster, %kind, "watch works again");
        }
    }

    fn ended(&mut self, end: End, why: Option<String>) {
        if end != End::Page {
            self.metrics.restarted(end.reason());
        }
        let after = self.machine.end(end, self.clock.now());
        if let Some(error) = why {
            let Target { cluster, kind, .. } = &self.shared.target;
            let retry_ms = after.as_millis();
            let first = self.shared.update(|c| c.error.replace(error.clone())).is_none();
            // Say it once, not with each attempt.
            if first {
                tracing::warn!(%cluster, %kind, error, retry_ms, "watch failed, retrying");
            } else {
                tracing::debug!(%cluster, %kind, error, retry_ms, "watch failed again");
            }
        }
        self.request(after);
    }

    /// Takes in one line; an error ends the connection.
    async fn line(&mut self, bytes: &Bytes, now: Moment) -> Result<(), (End, Option<String>)> {
        let verdict = match wire::line(bytes) {
            Ok(Line::Upsert(raw)) => {
                let entry = self.writer.parse(raw).map_err(|error| garbage(&error))?;
                let verdict = self.change(&entry);
                self.upsert(entry, now).await;
                verdict
            }
            Ok(Line::Delete(raw)) => {
                let entry = self.writer.parse(raw).map_err(|error| garbage(&error))?;
                let verdict = self.change(&entry);
                if self.writer.remove(&entry.header.key).is_some() {
                    self.show();
                    self.tell(Change::Delete { old: entry }, now).await;
                }
                verdict
            }
            Ok(Line::Bookmark { resource_version, initial_end }) => {
                self.shared.update(|c| c.resource_version.clone_from(&resource_version));
                let resource_version = &resource_version;
                let verdict = self.machine.line(Signal::Bookmark { resource_version, initial_end });
                if verdict == Verdict::Continue {
                    self.show();
                }
                verdict
            }
            Ok(Line::Error { code, reason, message }) => {
                let Verdict::Restart(end) = self.machine.line(Signal::Error { code }) else {
                    return Ok(());
                };
                return Err((end, Some(format!("{code} {reason}: {message}"))));
            }
            Err(error) => return Err(garbage(&error)),
        };
        if verdict == Verdict::Synced {
            self.synced(now).await;
        }
        Ok(())
    }

    /// Tells whoever waits for what it wrote that the store has changed, and up to where it shows
    /// everything.
    fn show(&self) {
        let position = self.machine.position().map(ResourceVersion::new);
        self.shared.seen.send_modify(|seen| *seen = position.or_else(|| seen.take()));
    }

    fn change(&mut self, entry: &Entry) -> Verdict {
        let version = entry.header.resource_version.to_string();
        let verdict = self.machine.line(Signal::Change(&version));
        self.shared.update(|condition| {
            // The versions of a list come in no order.
            if condition.synced {
                condition.resource_version = version;
            }
        });
        verdict
    }

    /// Takes in one page. Gives how its request ended.
    async fn page(&mut self, bytes: &Bytes, now: Moment) -> (End, Option<String>) {
        let page = match wire::page(bytes) {
            Ok(page) => page,
            Err(error) => return garbage(&error),
        };
        for raw in page.items {
            match self.writer.parse(raw) {
                Ok(entry) => self.upsert(entry, now).await,
                Err(error) => return garbage(&error),
            }
        }
        let verdict = self.machine.page(&page.resource_version, page.continue_token);
        if verdict == Verdict::Synced {
            self.shared.update(|c| c.resource_version.clone_from(&page.resource_version));
            self.synced(now).await;
        }
        (End::Page, None)
    }

    /// A list is complete: what it did not mention was deleted while we did not look.
    async fn synced(&mut self, now: Moment) {
        #[cfg(feature = "planted")]
        if planted::is(Planted::RelistDropsDeletes) {
            drop(self.writer.finish_replace());
        }
        let missing = self.writer.finish_replace();
        self.show();
        for old in missing {
            self.tell(Change::Delete { old }, now).await;
        }
        let first = self.shared.update(|c| !std::mem::replace(&mut c.synced, true));
        if first {
            let Target { cluster, kind, .. } = &self.shared.target;
            tracing::debug!(%cluster, %kind, objects = self.shared.store.len(), "synced");
            self.tell(Change::Synced, now).await;
        }
    }

    async fn upsert(&mut self, new: Arc<Entry>, now: Moment) {
        let old = self.writer.upsert(&new);
        self.show();
        match old {
            // A list after a gap tells of what did not change, too.
            Some(old) if old.header.resource_version == new.header.resource_version => {}
            // Deleted and created anew in a gap: two objects, two events.
            Some(old) if old.header.uid != new.header.uid => {
                self.tell(Change::Delete { old }, now).await;
                self.tell(Change::Upsert { old: None, new }, now).await;
            }
            old => self.tell(Change::Upsert { old, new }, now).await,
        }
    }

    async fn tell(&mut self, change: Change, received: Moment) {
        let live = self.shared.update(|condition| condition.synced);
        let priority = if live { Priority::Change } else { Priority::Initial };
        let span = if live { self.event_span(&change) } else { Span::none() };
        let event = Event { change, priority, received, span };
        let mut open = Vec::with_capacity(self.subscribers.len());
        for subscriber in std::mem::take(&mut self.subscribers) {
            if self.shared.send(&subscriber, event.clone()).await {
                open.push(subscriber);
            }
        }
        self.subscribers = open;
        self.shared.subscribers.store(self.subscribers.len(), Ordering::Relaxed);
    }

    fn event_span(&self, change: &Change) -> Span {
        let (entry, what) = match change {
            Change::Upsert { old: None, new } => (new, "added"),
            Change::Upsert { new, .. } => (new, "modified"),
            Change::Delete { old } => (old, "deleted"),
            Change::Synced => return Span::none(),
        };
        let Target { cluster, kind, .. } = &self.shared.target;
        let key = &entry.header.key;
        tracing::info_span!(
            parent: None,
            "watch.event",
            %cluster,
            %kind,
            namespace = key.namespace.as_deref(),
            name = &*key.name,
            resource_version = %entry.header.resource_version,
            change = what,
        )
    }
}

/// The training under way, once it is done; never, if there is none.
async fn trained(training: &mut Option<JoinHandle<Trained>>) -> Result<Trained, JoinError> {
    match training {
        Some(training) => training.await,
        None => std::future::pending().await,
    }
}

fn garbage(error: &(dyn std::error::Error + 'static)) -> (End, Option<String>) {
    (End::Garbage, Some(model::error::chain(error)))
}
