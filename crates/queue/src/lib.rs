//! Work queues, one for each controller. The decisions are in [`core`], which is pure; [`WorkQueue`]
//! adds the clock, the lock and the waiting. Keys that are added gather beside the state, under a lock of their own, until
//! somebody takes the state. Whoever adds the 64th takes it, if it is free.

mod arrival;
mod by_range;
mod cluster_queue;
mod concurrency;
pub mod core;
#[cfg(test)]
mod crowded;
mod failures;
mod item;
#[cfg(test)]
mod laws;
mod lines;
#[cfg(test)]
mod many_shards;
mod metrics;
mod priority;
mod rate_limiter;
mod shard_queue;
mod status;
mod successes;
mod turns;
mod write_times;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use model::{Clock, ClusterName, ControllerName, Epoch, Moment, ObjectKey, ShardId};
use tokio::sync::Notify;
use tracing::Span;

use self::arrival::{Arrival, Arrivals, KeyHasher};
pub use self::by_range::containing;
pub use self::core::Limits;
use self::core::Queue;
use self::failures::Failures;
use self::item::Local;
pub use self::item::{Outcome, Popped};
pub use self::metrics::QueueMetrics;
pub use self::priority::Priority;
pub use self::rate_limiter::RateLimiter;
use self::status::MAX_SHOWN_KEYS;
pub use self::status::{
    FailingKey, FailureStatus, HeldShard, KeyStatus, QueueGauges, QueueStatus, RunningKey,
};
use self::successes::Successes;
pub use self::write_times::WriteTimes;

/// The longest that the runner sleeps. Timers stand still while the machine is suspended; the clock,
/// which decides what is due, does not.
const MAX_NAP: Duration = Duration::from_secs(10);
/// The shortest, so that the runner does not spin when timers and clock differ a little.
const MIN_NAP: Duration = Duration::from_millis(1);

/// The most keys that are added under one lock. Whoever adds the last of so many puts them in, if the state is free.
const ADDED_AT_ONCE: usize = 64;
/// Whoever adds the last of so many waits for the state, and puts them in.
const MOST_ARRIVALS: usize = 1024;

/// What a queue says of the shards that were gained.
pub trait InitialKeys: std::fmt::Debug + Send + Sync {
    /// How many keys of the initial list wait for a worker, of each shard that has any.
    fn initial(&self) -> Vec<(ShardId, u64)>;
}

/// A key, and the hash of its primary object's uid if it is known.
pub type HashedKey = (ObjectKey, Option<u64>);

/// One controller's queue, shared by those who add and the runner.
#[derive(Debug)]
pub struct WorkQueue<T> {
    name: ControllerName,
    clock: Arc<dyn Clock>,
    state: Mutex<State<T>>,
    hasher: KeyHasher,
    /// Keys that have come. Whoever has the state next puts them in first, so that it does not go from thread to
    /// thread with each key, and those who add hardly ever wait.
    arrivals: Mutex<Arrivals>,
    records: Mutex<Records>,
    writes: Arc<WriteTimes>,
    metrics: QueueMetrics,
    /// A key may be ready. Only the runner waits for it.
    ready: Notify,
    /// Whether the runner was told so since it looked last: threads that tell it wait for each other, so once is enough.
    is_told: AtomicBool,
    /// A run ended, and somebody waits until a shard is idle.
    settled: Notify,
    /// How many wait for that: most runs end while nobody does.
    idlers: AtomicUsize,
    /// A shard was closed.
    closed: Notify,
}

#[derive(Debug)]
struct State<T> {
    queue: Queue<T>,
    /// Empty, with room for the keys that come next.
    room: Vec<Arrival>,
}

/// How keys ended last.
#[derive(Debug, Default)]
struct Records {
    failures: Failures,
    successes: Successes,
}

/// Counts one more for as long as it lives.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn of(number: &'a AtomicUsize) -> Self {
        number.fetch_add(1, Ordering::AcqRel);
        Self(number)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<T: Clone> WorkQueue<T> {
    /// An empty queue of the controller of that name. Draws the jitter of retries from `rng`.
    pub fn new(
        name: ControllerName,
        limits: Limits,
        (rate_limiter, rng): (RateLimiter, fastrand::Rng),
        clock: Arc<dyn Clock>,
        metrics: QueueMetrics,
    ) -> Self {
        let queue = Queue::new(limits, rate_limiter, rng);
        Self {
            name,
            clock,
            hasher: queue.hasher(),
            state: Mutex::new(State { queue, room: Vec::new() }),
            arrivals: Mutex::default(),
            records: Mutex::default(),
            writes: Arc::default(),
            metrics,
            ready: Notify::new(),
            is_told: AtomicBool::new(false),
            settled: Notify::new(),
            idlers: AtomicUsize::new(0),
            closed: Notify::new(),
        }
    }

    /// The controller's name.
    pub fn name(&self) -> &ControllerName {
        &self.name
    }

    /// What is told how long each write of a run took.
    pub fn writes(&self) -> &Arc<WriteTimes> {
        &self.writes
    }

    /// Puts in what has come, runs `act` on the state, then counts what became ready.
    fn with<R>(&self, act: impl FnOnce(&mut Queue<T>, Moment) -> R) -> R {
        let now = self.clock.now();
        self.within(self.state(), now, act)
    }

    fn within<R>(
        &self,
        mut state: MutexGuard<'_, State<T>>,
        now: Moment,
        act: impl FnOnce(&mut Queue<T>, Moment) -> R,
    ) -> R {
        let State { queue, room } = &mut *state;
        self.arrivals().leave(room);
        queue.arrive_all(room.drain(..));
        let answered = self.writes.take();
        if !answered.is_empty() {
            queue.wrote(&answered, now);
        }
        let result = act(queue, now);
        let (adds, retries) = queue.take_counts();
        drop(state);
        // Threads wait for each other at a counter, even if one adds nothing.
        for (counter, count) in [(&self.metrics.adds, adds), (&self.metrics.retries, retries)] {
            if count > 0 {
                counter.inc_by(count);
            }
        }
        result
    }

    /// Begins to gather keys for a shard held at an epoch. `assignment` is handed out with each key.
    pub fn warm(&self, shard: &ShardId, epoch: Epoch, assignment: T) {
        self.with(|queue, _| queue.warm(shard, epoch, assignment));
    }

    /// Lets the keys of a shard be given out, if it is still held at this epoch. Returns whether they
    /// were not before.
    pub fn open(&self, shard: &ShardId, epoch: Epoch) -> bool {
        let opened = self.with(|queue, now| queue.open(shard, epoch, now));
        self.tell();
        opened
    }

    /// Drops all that waits for a shard.
    pub fn close(&self, shard: &ShardId) {
        let holds = self.with(|queue, _| {
            queue.close(shard);
            queue.holds(&shard.cluster)
        });
        if !holds {
            self.records().failures.forget(&shard.cluster);
        }
        self.closed.notify_waiters();
    }

    /// Whether a shard is held at this epoch and its keys are given out.
    pub fn is_open(&self, shard: &ShardId, epoch: Epoch) -> bool {
        self.with(|queue, _| queue.is_open(shard, epoch))
    }

    /// Whether keys of any shard of a cluster are given out.
    pub fn has_open(&self, cluster: &ClusterName) -> bool {
        self.with(|queue, _| queue.has_open(cluster))
    }

    /// Waits until the keys of a shard held at this epoch are no longer given out. Each run that waits for its own
    /// writes waits here too, so no run that ends may wake it.
    pub async fn closed(&self, shard: &ShardId, epoch: Epoch) {
        until(&self.closed, || !self.is_open(shard, epoch)).await;
    }

    /// Waits until no key of a shard runs. Close the shard first, or that may never happen.
    pub async fn idle(&self, shard: &ShardId) {
        let _waits = Counted::of(&self.idlers);
        until(&self.settled, || self.with(|queue, _| queue.running_of(shard)) == 0).await;
    }

    /// Adds keys, in order. Drops keys whose shard is not held.
    pub async fn add(&self, keys: &[HashedKey], priority: Priority, cause: &Span) {
        for (part, keys) in keys.chunks(ADDED_AT_ONCE).enumerate() {
            if part > 0 {
                // Many keys must not starve the other tasks of this thread.
                tokio::task::consume_budget().await;
            }
            let at = self.clock.now();
            let mut arrivals = self.arrivals();
            for (key, uid_hash) in keys {
                let arrival = Arrival {
                    cluster: None,
                    key: Local::from(key),
                    hash: self.hasher.hash(key),
                    uid_hash: *uid_hash,
                    priority,
                    cause: cause.clone(),
                    at,
                };
                arrivals.push(&key.cluster, arrival);
            }
            let count = arrivals.len();
            drop(arrivals);
            let state = match count {
                MOST_ARRIVALS.. => Some(self.state()),
                // Whoever has it takes them when it takes the state next.
                ADDED_AT_ONCE.. => self.state.try_lock().ok(),
                _ => None,
            };
            if let Some(state) = state {
                self.within(state, at, |_, _| ());
            }
            self.tell();
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().expect("no holder of this lock panics")
    }

    fn arrivals(&self) -> MutexGuard<'_, Arrivals> {
        self.arrivals.lock().expect("no holder of this lock panics")
    }

    /// Tells the runner that a key may be ready, once until it looks. Callers first change the state, or what has come,
    /// under its lock. A runner that looked before that has said so by the flag, and hears of the change.
    fn tell(&self) {
        if !self.is_told.load(Ordering::Acquire) && !self.is_told.swap(true, Ordering::AcqRel) {
            self.ready.notify_one();
        }
    }

    /// The next key. Waits until there is one. Only the runner calls this; what runs takes its next key by
    /// [`Self::finish_and_take`].
    pub async fn next(&self) -> Popped<T> {
        loop {
            self.is_told.store(false, Ordering::Release);
            let (popped, due) = self.with(|queue, now| {
                let popped = queue.pop(now);
                (popped, queue.next_due().map(|at| now.until(at)))
            });
            if let Some(popped) = popped {
                self.taken(&popped);
                return popped;
            }
            let nap = due.map_or(MAX_NAP, |wait| wait.clamp(MIN_NAP, MAX_NAP));
            // Woken up or timed out: look again.
            let _ = tokio::time::timeout(nap, self.ready.notified()).await;
        }
    }

    /// Ends a run.
    pub fn finish(&self, key: &ObjectKey, outcome: Outcome) {
        let took = self.with(|queue, now| queue.finish(key, outcome, now));
        self.ended(took, true);
    }

    /// Ends a run, and takes the next key in its place if one is ready. The runner is woken only for what it would
    /// not find by itself: another key that can run, or a delay.
    pub fn finish_and_take(&self, key: &ObjectKey, outcome: Outcome) -> Option<Popped<T>> {
        let (took, popped, is_for_runner) = self.with(|queue, now| {
            let took = queue.finish(key, outcome, now);
            let popped = queue.pop(now);
            let is_for_runner = queue.has_turn() || popped.is_none() && queue.is_crowded();
            (took, popped, is_for_runner)
        });
        self.ended(took, is_for_runner || outcome != Outcome::Done);
        popped.inspect(|popped| self.taken(popped))
    }

    /// Tells of a run that ended and took so long.
    fn ended(&self, took: Option<Duration>, is_for_runner: bool) {
        if let Some(took) = took {
            self.metrics.worked.observe(took.as_secs_f64());
        }
        if is_for_runner {
            self.tell();
        }
        if self.idlers.load(Ordering::Acquire) > 0 {
            self.settled.notify_waiters();
        }
    }

    /// Counts a key that was taken.
    fn taken(&self, popped: &Popped<T>) {
        self.metrics.waited.observe(popped.waited.as_secs_f64());
    }

    /// Keeps how a run of a key failed, until one does not, for [`Self::look`].
    pub fn failed(&self, key: &ObjectKey, result: &'static str, error: &str) {
        let now = self.clock.now();
        self.records().failures.failed(key, result, error, now);
    }

    /// A run of a key did not fail.
    pub fn succeeded(&self, key: &ObjectKey) {
        let now = self.clock.now();
        let mut records = self.records();
        records.failures.succeeded(key);
        records.successes.succeeded(key, now);
    }

    /// Whether a key waits, ready or delayed.
    pub fn is_waiting(&self, key: &ObjectKey) -> bool {
        self.with(|queue, _| queue.is_waiting(key))
    }

    /// How many keys of a cluster wait, ready or delayed.
    pub fn waiting(&self, cluster: &ClusterName) -> usize {
        self.with(|queue, _| queue.waiting(cluster))
    }

    /// Where a key stands.
    pub fn look(&self, key: &ObjectKey) -> KeyStatus {
        let status = self.with(|queue, now| queue.look(key, now));
        let now = self.clock.now();
        let records = self.records();
        let succeeded_seconds = records.successes.of(key, now).map(|ago| ago.as_secs_f64());
        KeyStatus { failure: records.failures.of(key, now), succeeded_seconds, ..status }
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().expect("no holder of this lock panics")
    }

    /// Its status.
    pub fn status(&self) -> QueueStatus {
        let failing = self.records().failures.worst(MAX_SHOWN_KEYS, self.clock.now());
        self.with(|queue, now| QueueStatus {
            controller: self.name.clone(),
            resource: None,
            depth: queue.depth().iter().sum(),
            delayed: queue.delayed(),
            running: queue.running(),
            oldest_seconds: queue.oldest().map_or(0.0, |since| now.since(since).as_secs_f64()),
            clusters: queue.depth_by_cluster().map(|(c, depth)| (c.clone(), depth)).collect(),
            longest: queue.longest(MAX_SHOWN_KEYS, now),
            failing,
        })
    }

    /// Its gauges, and the ready keys of each cluster.
    pub fn gauges(&self) -> (QueueGauges, BTreeMap<ClusterName, usize>) {
        self.with(|queue, now| {
            let gauges = QueueGauges {
                depth: queue.depth(),
                oldest: queue.oldest().map_or(Duration::ZERO, |since| now.since(since)),
                unfinished: queue.running_since().map(|since| now.since(since)).sum(),
                longest_running: queue
                    .running_since()
                    .map(|since| now.since(since))
                    .max()
                    .unwrap_or_default(),
                concurrency_limit: queue.concurrency_limit(),
            };
            let clusters = queue.depth_by_cluster().map(|(c, depth)| (c.clone(), depth)).collect();
            (gauges, clusters)
        })
    }
}

impl<T: Clone + std::fmt::Debug + Send> InitialKeys for WorkQueue<T> {
    fn initial(&self) -> Vec<(ShardId, u64)> {
        self.with(|queue, _| queue.initial().map(|(id, keys)| (id.clone(), keys as u64)).collect())
    }
}

/// Waits until something holds that only what `notify` tells can bring about.
async fn until(notify: &Notify, holds: impl Fn() -> bool) {
    loop {
        let mut told = std::pin::pin!(notify.notified());
        told.as_mut().enable();
        if holds() {
            return;
        }
        told.await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    use model::Range;
    use model::testing::PausedClock;
    use prometheus::{Histogram, HistogramOpts, IntCounter};

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A queue that gives out one key at a time, of that shard.
    fn queue() -> (WorkQueue<()>, ShardId) {
        let counter = || IntCounter::new("a", "a").unwrap();
        let histogram = || Histogram::with_opts(HistogramOpts::new("a", "a")).unwrap();
        let metrics = QueueMetrics {
            adds: counter(),
            retries: counter(),
            waited: histogram(),
            worked: histogram(),
        };
        let retries = (RateLimiter::default(), fastrand::Rng::with_seed(1));
        let limits = Limits { per_cluster: 1, total: 1 };
        let name = "q".parse().unwrap();
        let queue = WorkQueue::<()>::new(name, limits, retries, PausedClock::new(), metrics);
        let (cluster, group) = ("east".parse().unwrap(), "g".parse().unwrap());
        let shard = ShardId { cluster, group, range: Range::WHOLE };
        queue.warm(&shard, Epoch(1), ());
        queue.open(&shard, Epoch(1));
        (queue, shard)
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("east".parse().unwrap(), Some("ns"), name)
    }

    #[test]
    fn who_waits_until_a_shard_is_closed_is_not_woken_by_runs() {
        let (queue, shard) = queue();
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut cx = Context::from_waker(&waker);
        let mut closed = std::pin::pin!(queue.closed(&shard, Epoch(1)));
        assert_eq!(closed.as_mut().poll(&mut cx), Poll::Pending);
        queue.finish(&key("a"), Outcome::Done);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        queue.close(&shard);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert_eq!(closed.as_mut().poll(&mut cx), Poll::Ready(()));
    }

    /// However many keys of one shard wait, those of others are added.
    #[test]
    fn who_adds_keys_waits_for_no_room() {
        let (queue, shard) = queue();
        let name = |number: usize| (key(&number.to_string()), None);
        let keys: Vec<HashedKey> = (0..10 * ADDED_AT_ONCE).map(name).collect();
        let (waker, cause) = (Waker::from(Arc::new(Wakes::default())), Span::none());
        let mut added = std::pin::pin!(queue.add(&keys, Priority::Resync, &cause));
        assert!(added.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
        assert_eq!(queue.waiting(&shard.cluster), keys.len());
    }

    #[tokio::test]
    async fn who_adds_a_key_leaves_it_to_the_thread_that_has_the_state() {
        let (queue, shard) = queue();
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut cx = Context::from_waker(&waker);
        let mut runner = std::pin::pin!(queue.next());
        assert!(runner.as_mut().poll(&mut cx).is_pending());
        let keys = ["a", "b", "a"].map(|name| (key(name), None));
        let cause = Span::none();
        let mut add = |keys: &[HashedKey]| {
            let mut added = std::pin::pin!(queue.add(keys, Priority::Change, &cause));
            assert!(added.as_mut().poll(&mut cx).is_ready());
        };
        let state = queue.state.lock().unwrap();
        add(&keys[..2]);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1, "the runner puts them in");
        drop(state);
        add(&keys[2..]);
        assert_eq!(queue.waiting(&shard.cluster), 2);
        assert_eq!(&*runner.await.key.name, "a", "it came first");
        let state = queue.state.lock().unwrap();
        add(&keys[2..]);
        drop(state);
        queue.close(&shard);
        assert_eq!(queue.waiting(&shard.cluster), 0, "it came before the shard was closed");
        queue.warm(&shard, Epoch(2), ());
        let state = queue.state.lock().unwrap();
        let many: Vec<_> = (0..MOST_ARRIVALS - 1).map(|n| (key(&n.to_string()), None)).collect();
        add(&many);
        drop(state);
        assert_eq!(queue.waiting(&shard.cluster), many.len(), "whoever comes next puts them in");
    }

    #[tokio::test]
    async fn who_ends_a_run_takes_the_next_key_and_wakes_the_runner_only_for_the_rest() {
        let (queue, _) = queue();
        let keys = ["a", "b"].map(|name| (key(name), None));
        queue.add(&keys, Priority::Change, &Span::none()).await;
        let first = queue.next().await;
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut cx = Context::from_waker(&waker);
        let mut runner = std::pin::pin!(queue.next());
        assert!(runner.as_mut().poll(&mut cx).is_pending(), "one key runs");
        let second = queue.finish_and_take(&first.key, Outcome::Done).unwrap();
        assert_eq!((&*first.key.name, &*second.key.name), ("a", "b"));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0, "there is nothing else to do");
        let later = Outcome::Requeue { after: MAX_NAP, priority: Priority::Resync };
        assert!(queue.finish_and_take(&second.key, later).is_none());
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1, "a delay began");
        assert!(runner.as_mut().poll(&mut cx).is_pending());
        queue.add(&keys[..1], Priority::Change, &Span::none()).await;
        assert_eq!(wakes.0.load(Ordering::Relaxed), 2, "a key came");
        assert_eq!(&*runner.await.key.name, "a");
    }
}
