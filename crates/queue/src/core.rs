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
use std::hash::BuildHasher;
use std::time::Duration;

use foldhash::quality::RandomState;
use model::{ClusterName, Epoch, Moment, ObjectKey, ShardId};
use slab::Slab;
use tracing::Span;

use super::backoff;
use super::lane::Lane;
use super::priority::Priority;
use super::route::{Hashed, Nudge, Place, Route, RouteId, Wake};

/// How long a key waits that the fence refused; by then the shard is lost or ours again.
pub const REFUSED_DELAY: Duration = Duration::from_secs(1);

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
///
/// Clusters are numbered while they have anything here, so that only what comes from outside is
/// looked up by name.
#[derive(Debug)]
pub struct Queue<T> {
    limits: Limits,
    hasher: RandomState,
    lanes: Slab<Lane<T>>,
    by_name: HashMap<ClusterName, usize, RandomState>,
    /// Clusters that have something to give out and are below their limit.
    turns: VecDeque<usize>,
    delayed: BTreeMap<(Moment, u64), Delayed>,
    running: usize,
    next_id: u64,
    adds: u64,
    retries: u64,
}

/// Where a delayed key waits.
#[derive(Clone, Copy, Debug)]
struct Delayed {
    lane: usize,
    route: RouteId,
    place: Place,
}

impl<T: Clone> Queue<T> {
    /// An empty queue.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            hasher: RandomState::default(),
            lanes: Slab::new(),
            by_name: HashMap::default(),
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
        let lanes = &mut self.lanes;
        let lane = self.by_name.entry(shard.cluster.clone());
        let lane = *lane.or_insert_with(|| lanes.insert(Lane::new()));
        self.lanes[lane].routes.push(Route::new(id, shard.clone(), epoch, tenure));
    }

    /// Lets the keys of a shard be given out. Nothing happens if it is not held at this epoch. Gives
    /// whether they were not given out before.
    pub fn open(&mut self, shard: &ShardId, epoch: Epoch, now: Moment) -> bool {
        let Some(lane) = self.lane(&shard.cluster) else { return false };
        let held = |route: &&mut Route<T>| route.shard == *shard && route.epoch == epoch;
        let Some(route) = self.lanes[lane].routes.iter_mut().find(held) else { return false };
        let opened = route.opened().is_none();
        self.adds += route.open(now);
        self.enlist(lane);
        opened
    }

    /// Drops whatever waits for a shard. What runs goes on; see [`Self::running_of`].
    pub fn close(&mut self, shard: &ShardId) {
        let Some(lane) = self.lane(&shard.cluster) else { return };
        let routes = &mut self.lanes[lane].routes;
        let Some(index) = routes.iter().position(|route| route.shard == *shard) else { return };
        for wake in routes.swap_remove(index).wakes() {
            self.delayed.remove(&(wake.at, wake.token));
        }
        self.forget_if_empty(lane, &shard.cluster);
    }

    /// Whether a shard is held at this epoch and may give out keys.
    pub fn is_open(&self, shard: &ShardId, epoch: Epoch) -> bool {
        let lane = self.lane(&shard.cluster).map(|lane| &self.lanes[lane]);
        let is_it = |route: &Route<T>| {
            route.shard == *shard && route.epoch == epoch && route.opened().is_some()
        };
        lane.is_some_and(|lane| lane.routes.iter().any(is_it))
    }

    /// How many keys of a shard run, under whatever epoch they began.
    pub fn running_of(&self, shard: &ShardId) -> usize {
        self.lane(&shard.cluster).map_or(0, |lane| self.lanes[lane].running_of(shard))
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
        let Some(number) = self.lane(&key.cluster) else { return Added::NoRoute };
        let key = self.hashed(key);
        let lane = &mut self.lanes[number];
        let Some(index) = lane.routes.iter().position(|route| route.takes(hash)) else {
            return Added::NoRoute;
        };
        let nudge = Nudge { priority, retry: false, span: cause.clone() };
        let route = lane.routes[index].id;
        if let Some(run) = lane.run(key) {
            run.run_again(route, nudge);
            return Added::Queued;
        }
        let route = &mut lane.routes[index];
        let limit = if route.opened().is_some() { self.limits.keys } else { usize::MAX };
        let Some(place) = route.place_or_new(key, limit) else { return Added::Full };
        self.next_id += 1;
        self.adds += u64::from(route.make_ready(place, nudge, self.next_id, now));
        self.enlist(number);
        Added::Queued
    }

    /// Gives out the next key, if one is ready and within the limits.
    pub fn pop(&mut self, now: Moment) -> Option<Popped<T>> {
        self.wake_due(now);
        while self.running < self.limits.total {
            let number = self.turns.pop_front()?;
            let lane = &mut self.lanes[number];
            lane.has_turn = false;
            let has_room = lane.running().len() < self.limits.per_cluster;
            let Some(taken) = has_room.then(|| lane.take()).flatten() else { continue };
            if let Some(wake) = taken.wake {
                // The run that begins decides anew when to wake up.
                self.delayed.remove(&(wake.at, wake.token));
            }
            let popped = lane.begin(taken, now);
            self.running += usize::from(popped.is_some());
            self.enlist(number);
            if popped.is_some() {
                return popped;
            }
        }
        None
    }

    /// Ends a run. Gives how long it took; `None` for a key that does not run.
    pub fn finish(&mut self, key: &ObjectKey, outcome: Outcome, now: Moment) -> Option<Duration> {
        let lane = self.lane(&key.cluster)?;
        let hashed = self.hashed(key);
        let run = self.lanes[lane].end(hashed)?;
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
            self.delay(lane, run.route, hashed, failures, wake);
        }
        if let Some((route, nudge)) = run.again {
            let token = self.fresh_id();
            if let Some(route) = self.lanes[lane].route(route)
                && let Some(place) = route.place_or_new(hashed, usize::MAX)
            {
                self.adds += u64::from(route.make_ready(place, nudge, token, now));
            }
        }
        self.enlist(lane);
        self.forget_if_empty(lane, &key.cluster);
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
        self.lanes.iter().fold([0; 4], |sum, (_, lane)| lane.depth(sum))
    }

    /// Ready keys of open shards, by cluster.
    pub fn depth_by_cluster(&self) -> impl Iterator<Item = (&ClusterName, usize)> {
        let depth = |lane: usize| self.lanes[lane].depth([0; 4]).iter().sum();
        self.by_name.iter().map(move |(cluster, lane)| (cluster, depth(*lane)))
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
        self.lanes.iter().flat_map(|(_, lane)| lane.running().iter().map(|run| run.since))
    }

    /// Since when the key is ready that is ready longest.
    pub fn oldest(&self) -> Option<Moment> {
        self.lanes.iter().flat_map(|(_, lane)| &lane.routes).filter_map(Route::oldest).min()
    }

    fn lane(&self, cluster: &ClusterName) -> Option<usize> {
        self.by_name.get(cluster).copied()
    }

    fn hashed<'k>(&self, key: &'k ObjectKey) -> Hashed<'k> {
        Hashed { key, hash: self.hasher.hash_one((&key.namespace, &key.name)) }
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
            let waking = first.key().1;
            let Delayed { lane, route, place } = first.remove();
            let token = self.fresh_id();
            // Where a route is closed its wake-ups are dropped: this one's is there.
            let Some(route) = self.lanes.get_mut(lane).and_then(|lane| lane.route(route)) else {
                continue;
            };
            if let Some(Wake { priority, .. }) = route.take_wake(place, waking) {
                let retry = priority == Priority::Retry;
                let nudge = Nudge { priority, retry, span: Span::none() };
                self.adds += u64::from(route.make_ready(place, nudge, token, now));
                self.enlist(lane);
            }
        }
    }

    /// Lets a key wait under the route its run began under; if that is gone, so is the wait.
    fn delay(&mut self, lane: usize, id: RouteId, key: Hashed<'_>, failures: u32, wake: Wake) {
        let Some(route) = self.lanes[lane].route(id) else { return };
        let Some(place) = route.place_or_new(key, usize::MAX) else { return };
        if let Some(replaced) = route.delay(place, failures, wake) {
            self.delayed.remove(&(replaced.at, replaced.token));
        }
        self.delayed.insert((wake.at, wake.token), Delayed { lane, route: id, place });
        self.retries += 1;
    }

    /// Gives a cluster its turn, if it has something to give out and room to run it.
    fn enlist(&mut self, number: usize) {
        let lane = &mut self.lanes[number];
        if !lane.has_turn
            && lane.running().len() < self.limits.per_cluster
            && lane.routes.iter().any(Route::has_ready)
        {
            lane.has_turn = true;
            self.turns.push_back(number);
        }
    }

    fn forget_if_empty(&mut self, number: usize, cluster: &ClusterName) {
        if self.lanes[number].is_empty() {
            self.lanes.remove(number);
            self.by_name.remove(cluster);
            self.turns.retain(|turn| *turn != number);
        }
    }
}
