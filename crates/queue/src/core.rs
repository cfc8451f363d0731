//! The decisions of a work queue, without clock, lock or task: what is ready, what is delayed, what
//! comes next.
//!
//! ```text
//!   Queue ─▶ ClusterQueue ─▶ ShardQueue ─▶ Item        a key that waits, and its Reason
//!                    └─────▶ Running                   a key that is reconciled
//! ```
//!
//! A shard queue holds the keys of one shard, held at one epoch, with an assignment `T` that is
//! handed out with each key. A key whose shard is not held is dropped, so nothing is ever queued for
//! a shard that is not ours. A shard queue begins *warm*: keys gather and none is given out. Once it
//! is *open*, they are. Closing it drops all that waits in it.
//!
//! ```text
//!              add                    pop                     finish
//!   (absent) ───────▶ ready ────────────────▶ running ───────────────────▶ (absent)
//!                      ▲ ▲   add while running: again │ │ failed, or to be requeued
//!                      │ └──────────────────────────── ┘ ▼
//!                      └────────────── due ───────── delayed
//! ```
//!
//! # Invariants
//! 1. A key that runs is not given out again until it is finished; if it was added meanwhile, it is
//!    ready again then (S6). By construction: `pop` makes a key `Running` and passes over keys that
//!    are.
//! 2. After a shard is closed none of its keys is ready or delayed, and `running_of` counts those
//!    that still run (S2).
//! 3. Order: clusters in turn (deficit round robin with equal weights, where every key costs one),
//!    then priority, then first come, first served. A key that waits for its shard to open comes when it
//!    opens. A cluster at its limit of running keys is passed
//!    over, so it delays no other. While runs make each other late, fewer run over all clusters, and quick clusters go
//!    before slow ones (`concurrency`, `turns`). Where more urgent keys never end, every fourth key of the cluster is
//!    the less urgent one that has waited for longest, if that is five seconds or more.
//! 4. Only a failure of a first run or of a retry raises the backoff. A run that a change caused in
//!    between does not.
//! 5. Each key has at most one item in each shard, with at most one delay. How many keys there are is
//!    bounded by whoever adds them, so that nobody waits here for room: one shard's keys would delay
//!    those of others. The engine charges keys that wait to the budget of their cluster.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use foldhash::quality::RandomState;
use model::{ClusterName, Epoch, Moment, ObjectKey, ShardId};
use slab::Slab;
use tracing::Span;

use super::arrival::{Arrival, KeyHasher};
use super::cluster_queue::ClusterQueue;
use super::concurrency::{Concurrency, Pace, STILL};
use super::item::{Local, Origin, Outcome, Popped, Reason, Running, WakeUp};
use super::priority::Priority;
use super::rate_limiter::{RateLimiter, SHORTEST};
use super::shard_queue::ShardQueue;
use super::status::{KeyStatus, RunningKey};
use super::turns::{Turn, Turns};
use super::write_times::Answered;

/// How long a key waits after the fence refused it. By then the shard is lost, or ours again.
const REFUSED_DELAY: Duration = Duration::from_secs(1);

/// The queue's bounds.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Keys of one cluster that run at once.
    pub per_cluster: usize,
    /// Keys that run at once in all, at most: fewer while they make each other late.
    pub total: usize,
}

/// What became of an added key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is ready, or will be when its present run ends.
    Queued,
    /// Dropped: its shard is not held.
    NotHeld,
}

/// The whole state.
///
/// A cluster has a number while it has anything here, so only what comes from outside is looked up
/// by name.
#[derive(Debug)]
pub struct Queue<T> {
    limits: Limits,
    rate_limiter: RateLimiter,
    rng: fastrand::Rng,
    hasher: KeyHasher,
    clusters: Slab<ClusterQueue<T>>,
    by_name: HashMap<ClusterName, usize, RandomState>,
    /// Those of clusters that have a key to give out and are below their limit.
    turns: Turns,
    concurrency: Concurrency,
    /// Delayed items in the order in which they are due: the cluster of each, the shard and the slot.
    delayed: BTreeMap<WakeUp, (u32, u32, u32)>,
    running: usize,
    next_id: u64,
    adds: u64,
    retries: u64,
}

impl<T: Clone> Queue<T> {
    /// An empty queue. Draws the jitter of retries from `rng`.
    pub fn new(limits: Limits, rate_limiter: RateLimiter, rng: fastrand::Rng) -> Self {
        Self {
            limits,
            rate_limiter,
            rng,
            hasher: KeyHasher::default(),
            clusters: Slab::new(),
            by_name: HashMap::default(),
            turns: Turns::default(),
            concurrency: Concurrency::new(limits.total),
            delayed: BTreeMap::new(),
            running: 0,
            next_id: 0,
            adds: 0,
            retries: 0,
        }
    }

    /// Begins to gather keys for a shard, to be given out once it is opened. If its range has a
    /// queue already, that one is closed first.
    pub fn warm(&mut self, shard: &ShardId, epoch: Epoch, assignment: T) {
        let number = self.number(&shard.cluster);
        let present = number.and_then(|n| Some((n, self.clusters[n].of_range(shard.range)?)));
        if let Some((number, index)) = present {
            self.close_at(number, index, &shard.cluster);
        }
        let id = self.fresh_id();
        let clusters = &mut self.clusters;
        let number = self.by_name.entry(shard.cluster.clone());
        let new = || clusters.insert(ClusterQueue::new(shard.cluster.clone()));
        let number = *number.or_insert_with(new);
        self.clusters[number].hold(shard, ShardQueue::new(id, epoch, assignment));
    }

    /// Lets the keys of a shard be given out. Does nothing if it is not held at this epoch. Returns
    /// whether they were not given out before.
    pub fn open(&mut self, shard: &ShardId, epoch: Epoch, now: Moment) -> bool {
        let Some((number, index)) = self.find(shard) else { return false };
        let cluster = &mut self.clusters[number];
        let queue = cluster.queue(index).filter(|queue| queue.epoch == epoch);
        let Some(queue) = queue else { return false };
        let opened = queue.opened().is_none();
        self.adds += cluster.open(index, now);
        self.enlist(number);
        opened
    }

    /// Drops all that waits for a shard. What runs goes on; see [`Self::running_of`].
    pub fn close(&mut self, shard: &ShardId) {
        if let Some((number, index)) = self.find(shard) {
            self.close_at(number, index, &shard.cluster);
        }
    }

    /// Drops all that waits for a shard of a cluster.
    fn close_at(&mut self, number: usize, index: usize, cluster: &ClusterName) {
        let Some(closed) = self.clusters[number].close(index) else { return };
        for wake_up in closed.wake_ups() {
            self.delayed.remove(&wake_up);
        }
        self.forget_if_empty(number, cluster);
    }

    /// Whether a shard is held at this epoch and gives out keys.
    pub fn is_open(&self, shard: &ShardId, epoch: Epoch) -> bool {
        let found = self.find(shard);
        let queue = found.and_then(|(number, index)| self.clusters[number].queue(index));
        queue.is_some_and(|queue| queue.epoch == epoch && queue.opened().is_some())
    }

    /// Whether a shard of a cluster gives out keys.
    pub fn has_open(&self, cluster: &ClusterName) -> bool {
        self.number(cluster).is_some_and(|number| self.clusters[number].has_open())
    }

    /// How many keys of a shard run, whatever the epoch they were given out at.
    pub fn running_of(&self, shard: &ShardId) -> usize {
        let number = self.number(&shard.cluster);
        number.map_or(0, |number| self.clusters[number].running_of(shard))
    }

    /// Where a key stands, without how it failed.
    pub fn look(&self, key: &ObjectKey, now: Moment) -> KeyStatus {
        let Some(number) = self.number(&key.cluster) else { return KeyStatus::default() };
        let cluster = &self.clusters[number];
        let status = cluster.look(key, self.hash(key), now);
        let waits = cluster.turn.is_some_and(|turn| !self.concurrency.has_room(turn.pace));
        let is_crowded = waits && status.ready_seconds.is_some();
        KeyStatus { crowded: is_crowded.then(|| self.concurrency.limit()), ..status }
    }

    /// Whether a shard of a cluster has a queue.
    pub fn holds(&self, cluster: &ClusterName) -> bool {
        self.number(cluster).is_some_and(|number| self.clusters[number].holds())
    }

    /// Whether a key waits, ready or delayed.
    pub fn is_waiting(&self, key: &ObjectKey) -> bool {
        let number = self.number(&key.cluster);
        number.is_some_and(|number| self.clusters[number].is_waiting(key, self.hash(key)))
    }

    /// How many keys of a cluster wait, ready or delayed.
    pub fn waiting(&self, cluster: &ClusterName) -> usize {
        self.number(cluster).map_or(0, |number| self.clusters[number].waiting())
    }

    /// Adds a key. `uid_hash` is that of the primary object's uid; without it, the key is dropped
    /// unless a shard over the whole cluster is held.
    pub fn add(
        &mut self,
        key: &ObjectKey,
        uid_hash: Option<u64>,
        priority: Priority,
        cause: &Span,
        now: Moment,
    ) -> Added {
        let Some(number) = self.number(&key.cluster) else { return Added::NotHeld };
        let (hash, cause) = (self.hash(key), cause.clone());
        let key = Local::from(key);
        let arrival = Arrival { cluster: None, key, hash, uid_hash, priority, cause, at: now };
        self.arrive(number, arrival)
    }

    /// [`Self::add`] for keys that have come, in order.
    pub(super) fn arrive_all(&mut self, arrivals: impl IntoIterator<Item = Arrival>) {
        let mut number = None;
        for arrival in arrivals {
            if let Some(cluster) = &arrival.cluster {
                number = self.number(cluster);
            }
            if let Some(number) = number {
                self.arrive(number, arrival);
            }
        }
    }

    /// A key of the cluster of that number comes.
    fn arrive(&mut self, number: usize, arrival: Arrival) -> Added {
        let Arrival { key, hash, uid_hash, priority, cause: span, at: now, .. } = arrival;
        let cluster = &mut self.clusters[number];
        let Some(index) = cluster.shard_of(uid_hash) else { return Added::NotHeld };
        let Some(shard) = cluster.queue(index) else { return Added::NotHeld };
        let reason = Reason { priority, retry: false, span };
        let from = Origin { shard: index, id: shard.id };
        if let Some(running) = cluster.run(&key, hash) {
            running.run_again(from, reason);
            return Added::Queued;
        }
        let slot = cluster.slot(index, key, hash);
        self.next_id += 1;
        self.adds += u64::from(cluster.make_ready(index, slot, reason, self.next_id, now));
        self.enlist(number);
        Added::Queued
    }

    /// Hands out the next key, if one is ready and within the limits.
    pub fn pop(&mut self, now: Moment) -> Option<Popped<T>> {
        self.wake_due(now);
        self.concurrency.look(now);
        while self.running < self.limits.total {
            let (number, turn) = self.turns.next(&self.concurrency)?;
            let cluster = self.clusters.get_mut(number);
            let is_its =
                |cluster: &&mut ClusterQueue<T>| cluster.turn.is_some_and(|t| t.id == turn);
            let Some(cluster) = cluster.filter(is_its) else { continue };
            cluster.turn = None;
            let has_room = cluster.running().len() < self.limits.per_cluster;
            let taken = has_room.then(|| cluster.take(now)).flatten();
            let Some((index, item)) = taken else { continue };
            if let Some(wake_up) = item.wake_up {
                // The run that begins decides when the key runs again.
                self.delayed.remove(&wake_up);
            }
            let running = cluster.running().len();
            let popped = cluster.begin(index, item, now);
            if popped.is_some() {
                self.running += 1;
                self.concurrency.begin(&mut cluster.progress, running, now);
            }
            self.enlist(number);
            if popped.is_some() {
                return popped;
            }
        }
        None
    }

    /// Ends a run. Returns how long it took; `None` for a key that does not run.
    pub fn finish(&mut self, key: &ObjectKey, outcome: Outcome, now: Moment) -> Option<Duration> {
        let number = self.number(&key.cluster)?;
        let hash = self.hash(key);
        let cluster = &mut self.clusters[number];
        let run = cluster.end(key, hash)?;
        self.running -= 1;
        let took = now.since(run.since);
        let ended_well = matches!(outcome, Outcome::Done | Outcome::Requeue { .. });
        let running = cluster.running().len();
        self.concurrency.end(&mut cluster.progress, running, ended_well, now);
        if !ended_well && took > STILL {
            cluster.pace = Pace::Slow;
        }
        let failures = run.failures_after(outcome);
        if let Some((after, priority)) = self.delay_after(outcome, failures) {
            self.next_id += 1;
            let wake_up = (nanos(now + after), self.next_id);
            let cluster = &mut self.clusters[number];
            // If the shard was closed meanwhile, nothing of it waits any more.
            if let Some(shard) = cluster.still(run.from) {
                let slot = cluster.slot(shard, key, hash);
                let queue = cluster.queue_mut(shard);
                let replaced =
                    queue.and_then(|queue| queue.delay(slot, wake_up, priority, failures));
                if let Some(replaced) = replaced {
                    self.delayed.remove(&replaced);
                }
                let numbered = |number: usize| {
                    u32::try_from(number).expect("a u32 can number clusters and shards")
                };
                self.delayed.insert(wake_up, (numbered(number), numbered(shard), slot));
                self.retries += 1;
            }
        }
        let cluster = &mut self.clusters[number];
        if let Some((from, reason)) = run.again
            && let Some(shard) = cluster.still(from)
        {
            let slot = cluster.slot(shard, key, hash);
            self.next_id += 1;
            self.adds += u64::from(cluster.make_ready(shard, slot, reason, self.next_id, now));
        }
        self.enlist(number);
        self.forget_if_empty(number, &key.cluster);
        Some(took)
    }

    /// Writes of runs were answered.
    pub fn wrote(&mut self, answered: &[Answered], now: Moment) {
        let (mut in_time, mut late) = (0, 0);
        for Answered { cluster, is_late } in answered {
            *if *is_late { &mut late } else { &mut in_time } += 1;
            if let Some(number) = self.number(cluster) {
                let cluster = &mut self.clusters[number];
                cluster.pace = if *is_late { Pace::Slow } else { Pace::Quick };
                let running = cluster.running().len();
                self.concurrency.got_on(&mut cluster.progress, running, now);
            }
        }
        self.concurrency.wrote(in_time, late, now);
    }

    /// How many keys may run of clusters that get on.
    pub fn concurrency_limit(&self) -> usize {
        self.concurrency.limit()
    }

    /// Whether a key that is ready waits until fewer run, so that [`Self::next_due`] is when.
    pub fn is_crowded(&self) -> bool {
        self.turns.waits(&self.concurrency)
    }

    /// Whether [`Self::pop`] may find a key that is ready now.
    pub fn has_turn(&self) -> bool {
        self.running < self.limits.total && self.turns.has_next(&self.concurrency)
    }

    /// When a key may be ready that is not now: the next delayed one, or one that waits until fewer run.
    pub fn next_due(&self) -> Option<Moment> {
        let delayed = self.delayed.first_key_value();
        let delayed = delayed.map(|((at, _), _)| Moment::from_origin(Duration::from_nanos(*at)));
        let room = self.is_crowded().then(|| self.concurrency.next_room());
        delayed.into_iter().chain(room).min()
    }

    /// Keys that became ready, and delayed adds, since the last call.
    pub fn take_counts(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.adds), std::mem::take(&mut self.retries))
    }

    /// Ready keys of open shards, by priority.
    pub fn depth(&self) -> [usize; 4] {
        let clusters = self.clusters.iter().map(|(_, cluster)| cluster.depth());
        clusters.fold([0_usize; 4], |sum, depth| std::array::from_fn(|at| sum[at] + depth[at]))
    }

    /// Ready keys of open shards, by cluster.
    pub fn depth_by_cluster(&self) -> impl Iterator<Item = (&ClusterName, usize)> {
        let depth = |number: usize| self.clusters[number].depth().iter().sum();
        self.by_name.iter().map(move |(cluster, number)| (cluster, depth(*number)))
    }

    /// Ready keys of the initial list, by shard.
    pub fn initial(&self) -> impl Iterator<Item = (&ShardId, usize)> {
        self.clusters.iter().flat_map(|(_, cluster)| cluster.initial())
    }

    /// Keys that are delayed.
    pub fn delayed(&self) -> usize {
        self.delayed.len()
    }

    /// Keys that run.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Since when each running key runs.
    pub fn running_since(&self) -> impl Iterator<Item = Moment> {
        let all = self.clusters.iter().flat_map(|(_, cluster)| cluster.running());
        all.map(|running| running.since)
    }

    /// The keys that have run longest; at most so many.
    pub fn longest(&self, count: usize, now: Moment) -> Vec<RunningKey> {
        let clusters = self.clusters.iter().map(|(_, cluster)| cluster);
        let mut all: Vec<_> = clusters
            .flat_map(|cluster| cluster.running().iter().map(move |run| (cluster.name(), run)))
            .collect();
        all.sort_by_key(|(_, run)| run.since);
        all.truncate(count);
        let shown = |(cluster, run): (&ClusterName, &Running)| RunningKey {
            key: run.key.clone().of(cluster).to_string(),
            seconds: now.since(run.since).as_secs_f64(),
        };
        all.into_iter().map(shown).collect()
    }

    /// Since when the oldest ready key is ready.
    pub fn oldest(&self) -> Option<Moment> {
        self.clusters.iter().filter_map(|(_, cluster)| cluster.oldest()).min()
    }

    fn number(&self, cluster: &ClusterName) -> Option<usize> {
        self.by_name.get(cluster).copied()
    }

    /// The number of a shard's cluster, and its index there.
    fn find(&self, shard: &ShardId) -> Option<(usize, usize)> {
        let number = self.number(&shard.cluster)?;
        Some((number, self.clusters[number].index(shard)?))
    }

    /// What hashes keys.
    pub(super) fn hasher(&self) -> KeyHasher {
        self.hasher.clone()
    }

    fn hash(&self, key: &ObjectKey) -> u64 {
        self.hasher.hash(key)
    }

    fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// How long a key waits after a run that ended like this, and its priority then.
    fn delay_after(&mut self, outcome: Outcome, failures: u32) -> Option<(Duration, Priority)> {
        let (delay, priority) = match outcome {
            Outcome::Done => return None,
            Outcome::Requeue { after, priority } => (after, priority),
            Outcome::Failed => (self.rate_limiter.delay(failures, &mut self.rng), Priority::Retry),
            Outcome::Refused => (REFUSED_DELAY, Priority::Retry),
            Outcome::RetryAfter(delay) | Outcome::Held(delay) => (delay, Priority::Retry),
        };
        Some((delay.max(SHORTEST), priority))
    }

    /// Makes the delayed items ready that are due.
    fn wake_due(&mut self, now: Moment) {
        while let Some(first) = self.delayed.first_entry()
            && first.key().0 <= nanos(now)
        {
            let (cluster, shard, slot) = first.remove();
            let (number, shard) = (cluster as usize, shard as usize);
            let token = self.fresh_id();
            // A shard queue that is closed takes its entries out of `delayed`, so it is there.
            let Some(cluster) = self.clusters.get_mut(number) else { continue };
            let woken = cluster.queue_mut(shard).and_then(|queue| queue.wake(slot));
            if let Some(priority) = woken {
                let retry = priority == Priority::Retry;
                let reason = Reason { priority, retry, span: Span::none() };
                self.adds += u64::from(cluster.make_ready(shard, slot, reason, token, now));
                self.enlist(number);
            }
        }
    }

    /// Gives a cluster a turn, if it has a key to give out and may run one more.
    fn enlist(&mut self, number: usize) {
        let cluster = &self.clusters[number];
        let running = cluster.running().len();
        if running >= self.limits.per_cluster || !cluster.has_ready() {
            return;
        }
        let pace = if running == 0 { cluster.pace } else { Pace::Slow };
        if cluster.turn.is_some_and(|turn| turn.pace == pace || pace == Pace::Slow) {
            return;
        }
        let id = cluster.turn.map(|turn| turn.id);
        let turn = Turn { id: id.unwrap_or_else(|| self.fresh_id()), pace };
        self.clusters[number].turn = Some(turn);
        self.turns.push(number, turn);
        self.tidy_turns();
    }

    fn tidy_turns(&mut self) {
        let clusters = &self.clusters;
        self.turns.tidy(clusters.len(), |number, turn| {
            clusters.get(number).is_some_and(|cluster| cluster.turn == Some(turn))
        });
    }

    fn forget_if_empty(&mut self, number: usize, cluster: &ClusterName) {
        if self.clusters[number].is_empty() {
            self.clusters.remove(number);
            self.by_name.remove(cluster);
            self.tidy_turns();
        }
    }
}

/// A moment in nanoseconds since the clock's origin.
fn nanos(at: Moment) -> u64 {
    u64::try_from(at.since_origin().as_nanos()).unwrap_or(u64::MAX)
}
