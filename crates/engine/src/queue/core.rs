//! The decisions of a work queue, without clock, lock or task: what is ready, what waits, what
//! comes next.
//!
//! Keys enter under a *route*: one shard held at one epoch, with a tenure `T` that is handed out
//! with each of its keys. A key for which no route is there is dropped, so nothing is ever queued
//! for a shard this member does not hold. A route begins *warm*: keys gather, none is given out;
//! once *open*, they are. Closing a route drops whatever waits in it.
//!
//! ```text
//!              add                    pop                     finish
//!   (absent) ───────▶ ready ────────────────▶ running ───────────────────▶ (absent)
//!                      ▲ ▲   add while running: again │ │ failed, or asked to wake up
//!                      │ └──────────────────────────── ┘ ▼
//!                      └────────────── due ───────── delayed
//! ```
//!
//! # Invariants
//! 1. A key that runs is not given out again until it is finished; a change meanwhile makes it
//!    ready again then (S6). By construction: `pop` puts the key into `running` and passes over
//!    keys that are there.
//! 2. Closing a route leaves none of its keys ready or delayed, and what still runs of it is
//!    counted by `running_of` (S2).
//! 3. Order: round robin over clusters (deficit round robin with equal weights, where every key
//!    costs one), then priority, then first come. A cluster at its limit of running keys is
//!    passed over, so it delays nobody else.
//! 4. Only a failure of a first run or of a retry raises the backoff; a run that a change caused
//!    meanwhile does not.
//! 5. Each key waits at most once per shard and has at most one wake-up there; with
//!    [`Limits::keys`] that bounds everything here. The bound is each shard's own, so that one with
//!    much to do takes nobody's room.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use model::{ClusterName, Epoch, Moment, ObjectKey, ShardId};
use tracing::Span;

use super::backoff;
use super::lane::{Lane, Nudge, Route, RouteId, Wake};
#[cfg(feature = "planted")]
use crate::planted::{self, Planted};

/// How long a key waits that the fence refused; by then the shard is lost or ours again.
pub const REFUSED_DELAY: Duration = Duration::from_secs(1);

/// Why a key is ready; the more urgent, the earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Something changed.
    Change = 0,
    /// An earlier run failed.
    Retry = 1,
    /// A wake-up that an earlier run asked for.
    Resync = 2,
    /// The first look at everything after a shard was gained.
    Initial = 3,
}

impl Priority {
    /// All of them, most urgent first.
    pub const ALL: [Self; 4] = [Self::Change, Self::Retry, Self::Resync, Self::Initial];

    /// The number for it in metrics: the higher, the more urgent, with controller-runtime's for
    /// changes and for the first list.
    pub fn label(self) -> &'static str {
        match self {
            Self::Change => "0",
            Self::Retry => "-10",
            Self::Resync => "-50",
            Self::Initial => "-100",
        }
    }
}

/// The queue's bounds.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Keys of one cluster running at once.
    pub per_cluster: usize,
    /// Keys running at once in all.
    pub total: usize,
    /// Keys of one shard ready or delayed, once it is open. Before that, the informer's
    /// cache is the bound: every object there must be able to wait for the shard to open.
    pub keys: usize,
}

/// What became of an added key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is ready, or will be when its present run ends.
    Queued,
    /// No shard that would hold it is held: dropped.
    NoRoute,
    /// The queue is full: try again when there is room.
    Full,
}

/// How a run ended, as far as the queue cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing more to do.
    Done,
    /// Wake it up after this long.
    After(Duration),
    /// It failed: retry with backoff.
    Failed,
    /// It was not run because the fence refused.
    Refused,
    /// It could not be done because its cluster is left alone: again after this long.
    Held(Duration),
}

/// A key given out, to be run and then finished.
#[derive(Debug)]
pub struct Popped<T> {
    /// The key.
    pub key: ObjectKey,
    /// What its route was opened with.
    pub tenure: T,
    /// How long it was ready.
    pub waited: Duration,
    /// The span of its wait, child of what caused it.
    pub span: Span,
}

/// The whole state.
#[derive(Debug)]
pub struct Queue<T> {
    limits: Limits,
    lanes: HashMap<ClusterName, Lane<T>>,
    /// Clusters that have something to give out and are below their limit.
    turns: VecDeque<ClusterName>,
    delayed: BTreeMap<(Moment, u64), (RouteId, ObjectKey)>,
    running: usize,
    next_id: u64,
    adds: u64,
    retries: u64,
}

impl<T: Clone> Queue<T> {
    /// An empty queue.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            lanes: HashMap::new(),
            turns: VecDeque::new(),
            delayed: BTreeMap::new(),
            running: 0,
            next_id: 0,
            adds: 0,
            retries: 0,
        }
    }

    /// Begins to gather keys for a shard, to be given out once it is opened. A route the shard
    /// already has is closed first.
    pub fn warm(&mut self, shard: &ShardId, epoch: Epoch, tenure: T) {
        self.close(shard);
        let id = RouteId(self.fresh_id());
        let lane = self.lanes.entry(shard.cluster.clone()).or_default();
        lane.routes.push(Route::new(id, shard.clone(), epoch, tenure));
    }

    /// Lets the keys of a shard be given out. Nothing happens if it is not held at this epoch.
    pub fn open(&mut self, shard: &ShardId, epoch: Epoch, now: Moment) {
        let Some(lane) = self.lanes.get_mut(&shard.cluster) else { return };
        let held = |route: &&mut Route<T>| route.shard == *shard && route.epoch == epoch;
        if let Some(route) = lane.routes.iter_mut().find(held) {
            self.adds += route.open(now);
            self.enlist(&shard.cluster);
        }
    }

    /// Drops whatever waits for a shard. What runs goes on; see [`Self::running_of`].
    pub fn close(&mut self, shard: &ShardId) {
        let Some(lane) = self.lanes.get_mut(&shard.cluster) else { return };
        let Some(index) = lane.routes.iter().position(|route| route.shard == *shard) else {
            return;
        };
        let route = lane.routes.swap_remove(index);
        for wake in route.wakes() {
            self.delayed.remove(&(wake.at, wake.token));
        }
        self.forget_empty_lane(&shard.cluster);
    }

    /// Whether a shard is held at this epoch and may give out keys.
    pub fn is_open(&self, shard: &ShardId, epoch: Epoch) -> bool {
        let routes = self.lanes.get(&shard.cluster).map(|lane| &lane.routes);
        routes
            .into_iter()
            .flatten()
            .any(|route| route.shard == *shard && route.epoch == epoch && route.is_open())
    }

    /// How many keys of a shard run, under whatever epoch they began.
    pub fn running_of(&self, shard: &ShardId) -> usize {
        let lane = self.lanes.get(&shard.cluster);
        lane.map_or(0, |lane| lane.running.values().filter(|run| run.shard == *shard).count())
    }

    /// Adds a key. `hash` is that of the primary object's uid; without one, only a shard over the
    /// whole cluster takes it.
    pub fn add(
        &mut self,
        key: &ObjectKey,
        hash: Option<u64>,
        priority: Priority,
        cause: &Span,
        now: Moment,
    ) -> Added {
        let Some(lane) = self.lanes.get_mut(&key.cluster) else { return Added::NoRoute };
        let Some(route) = lane.routes.iter_mut().find(|route| route.takes(hash)) else {
            return Added::NoRoute;
        };
        #[cfg(feature = "planted")]
        if planted::is(Planted::ForgetDelayed)
            && priority == Priority::Initial
            && route.epoch > Epoch(1)
        {
            return Added::NoRoute;
        }
        let nudge = Nudge { priority, retry: false, span: cause.clone() };
        if let Some(run) = lane.running.get_mut(key) {
            #[cfg(feature = "planted")]
            if planted::is(Planted::ForgetChangeOfRunning) {
                return Added::Queued;
            }
            run.run_again(route.id, nudge);
            return Added::Queued;
        }
        if route.is_open() && !route.contains(key) && route.len() >= self.limits.keys {
            return Added::Full;
        }
        let route = route.id;
        self.ready(&key.cluster, route, key, nudge, now);
        Added::Queued
    }

    /// Gives out the next key, if one is ready and within the limits.
    pub fn pop(&mut self, now: Moment) -> Option<Popped<T>> {
        self.wake_due(now);
        while self.running < self.limits.total {
            let cluster = self.turns.pop_front()?;
            let Some(lane) = self.lanes.get_mut(&cluster) else { continue };
            lane.has_turn = false;
            let taken =
                if lane.running.len() < self.limits.per_cluster { lane.take() } else { None };
            let Some(taken) = taken else { continue };
            if let Some(wake) = taken.wake {
                // The run that begins decides anew when to wake up.
                self.delayed.remove(&(wake.at, wake.token));
            }
            let popped = lane.begin(taken, now);
            self.running += usize::from(popped.is_some());
            self.enlist(&cluster);
            if popped.is_some() {
                return popped;
            }
        }
        None
    }

    /// Ends a run. Gives how long it took; `None` for a key that does not run.
    pub fn finish(&mut self, key: &ObjectKey, outcome: Outcome, now: Moment) -> Option<Duration> {
        let lane = self.lanes.get_mut(&key.cluster)?;
        let run = lane.running.remove(key)?;
        self.running -= 1;
        let failures = match outcome {
            Outcome::Done | Outcome::After(_) => 0,
            Outcome::Failed if run.escalates => run.failures.saturating_add(1),
            Outcome::Failed | Outcome::Refused | Outcome::Held(_) => run.failures,
        };
        let wake = match outcome {
            Outcome::Done => None,
            Outcome::After(delay) => Some((delay, Priority::Resync)),
            Outcome::Failed => Some((backoff::delay(failures), Priority::Retry)),
            Outcome::Refused => Some((REFUSED_DELAY, Priority::Retry)),
            Outcome::Held(delay) => Some((delay, Priority::Retry)),
        };
        if let Some((delay, priority)) = wake {
            let wake = Wake { at: now + delay, token: self.fresh_id(), priority };
            self.delay(run.route, key, failures, wake);
        }
        if let Some((route, nudge)) = run.again {
            self.ready(&key.cluster, route, key, nudge, now);
        }
        self.enlist(&key.cluster);
        self.forget_empty_lane(&key.cluster);
        Some(now.since(run.since))
    }

    /// When the next delayed key is due.
    pub fn next_due(&self) -> Option<Moment> {
        self.delayed.first_key_value().map(|((at, _), _)| *at)
    }

    /// Keys that became ready, and delayed adds, since the last call.
    pub fn take_counts(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.adds), std::mem::take(&mut self.retries))
    }

    /// Ready keys of open shards, by priority.
    pub fn depth(&self) -> [usize; 4] {
        self.lanes.values().fold([0; 4], |sum, lane| lane.depth(sum))
    }

    /// Ready keys of open shards, by cluster.
    pub fn depth_by_cluster(&self) -> impl Iterator<Item = (&ClusterName, usize)> {
        self.lanes.iter().map(|(cluster, lane)| (cluster, lane.depth([0; 4]).iter().sum()))
    }

    /// Keys that wait for a retry or a wake-up.
    pub fn delayed(&self) -> usize {
        self.delayed.len()
    }

    /// Keys that run.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Since when each running key runs.
    pub fn running_since(&self) -> impl Iterator<Item = Moment> {
        self.lanes.values().flat_map(|lane| lane.running.values().map(|run| run.since))
    }

    /// Since when the key is ready that is ready longest.
    pub fn oldest(&self) -> Option<Moment> {
        self.lanes.values().flat_map(|lane| lane.routes.iter()).filter_map(Route::oldest).min()
    }

    fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Makes delayed keys ready that are due.
    fn wake_due(&mut self, now: Moment) {
        while let Some(first) = self.delayed.first_entry()
            && first.key().0 <= now
        {
            let (route, key) = first.remove();
            let lane = self.lanes.get_mut(&key.cluster);
            let wake = lane.and_then(|lane| lane.route(route)?.take_wake(&key));
            if let Some(Wake { priority, .. }) = wake {
                let retry = priority == Priority::Retry;
                let nudge = Nudge { priority, retry, span: Span::none() };
                self.ready(&key.cluster, route, &key, nudge, now);
            }
        }
    }

    /// Makes a key ready under a route, if the route is still there.
    fn ready(
        &mut self,
        cluster: &ClusterName,
        route: RouteId,
        key: &ObjectKey,
        nudge: Nudge,
        now: Moment,
    ) {
        let token = self.fresh_id();
        let lane = self.lanes.get_mut(cluster);
        if let Some(route) = lane.and_then(|lane| lane.route(route)) {
            self.adds += u64::from(route.make_ready(key, nudge, token, now));
            self.enlist(cluster);
        }
    }

    /// Lets a key wait under the route its run began under; if that is gone, so is the wait.
    fn delay(&mut self, route: RouteId, key: &ObjectKey, failures: u32, wake: Wake) {
        let lane = self.lanes.get_mut(&key.cluster);
        if let Some(route) = lane.and_then(|lane| lane.route(route)) {
            if let Some(replaced) = route.delay(key, failures, wake) {
                self.delayed.remove(&(replaced.at, replaced.token));
            }
            self.delayed.insert((wake.at, wake.token), (route.id, key.clone()));
            self.retries += 1;
        }
    }

    /// Gives a cluster its turn, if it has something to give out and room to run it.
    fn enlist(&mut self, cluster: &ClusterName) {
        if let Some(lane) = self.lanes.get_mut(cluster)
            && !lane.has_turn
            && lane.running.len() < self.limits.per_cluster
            && lane.routes.iter().any(Route::has_ready)
        {
            lane.has_turn = true;
            self.turns.push_back(cluster.clone());
        }
    }

    fn forget_empty_lane(&mut self, cluster: &ClusterName) {
        if self.lanes.get(cluster).is_some_and(|l| l.is_empty()) {
            self.lanes.remove(cluster);
            self.turns.retain(|turn| turn != cluster);
        }
    }
}
