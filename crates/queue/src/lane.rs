//! One cluster's part of a queue: its routes, what waits under each, and what runs.

use hashbrown::HashTable;
use model::{Moment, ObjectKey, ShardId};

use super::core::Popped;
use super::route::{Hashed, Nudge, Ready, Route, RouteId, Waiting, Wake, same};

/// Everything of one cluster.
#[derive(Debug)]
pub(super) struct Lane<T> {
    pub(super) routes: Vec<Route<T>>,
    running: HashTable<Run>,
    /// The shards that running keys began under, for as long as the lane is there: a cluster has
    /// few, and a run need not count references.
    shards: Vec<ShardId>,
    /// Whether the cluster stands in the line of turns.
    pub(super) has_turn: bool,
}

/// A key that runs.
#[derive(Debug)]
pub(super) struct Run {
    key: ObjectKey,
    hash: u64,
    pub(super) route: RouteId,
    /// Which of the lane's shards.
    shard: usize,
    pub(super) since: Moment,
    /// Failures in a row before this run.
    pub(super) failures: u32,
    /// Whether a failure of this run raises the backoff.
    pub(super) escalates: bool,
    /// What came in meanwhile.
    pub(super) again: Option<(RouteId, Nudge)>,
}

/// A ready key taken out of its line.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) wake: Option<Wake>,
    route: usize,
    key: ObjectKey,
    hash: u64,
    ready: Ready,
    failures: u32,
}

// === impl Lane ===

impl<T: Clone> Lane<T> {
    pub(super) fn new() -> Self {
        Self { routes: Vec::new(), running: HashTable::new(), shards: Vec::new(), has_turn: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.routes.is_empty() && self.running.is_empty()
    }

    pub(super) fn route(&mut self, id: RouteId) -> Option<&mut Route<T>> {
        self.routes.iter_mut().find(|route| route.id == id)
    }

    /// Adds the ready keys of open routes to `sum`, by priority.
    pub(super) fn depth(&self, mut sum: [usize; 4]) -> [usize; 4] {
        for route in self.routes.iter().filter(|route| route.opened().is_some()) {
            for (sum, ready) in sum.iter_mut().zip(route.ready()) {
                *sum += ready;
            }
        }
        sum
    }

    /// The keys that run.
    pub(super) fn running(&self) -> &HashTable<Run> {
        &self.running
    }

    /// How many keys of a shard run, under whatever epoch they began.
    pub(super) fn running_of(&self, shard: &ShardId) -> usize {
        let of = self.shards.iter().position(|known| known == shard);
        of.map_or(0, |of| self.running.iter().filter(|run| run.shard == of).count())
    }

    /// The run of a key.
    pub(super) fn run(&mut self, key: Hashed<'_>) -> Option<&mut Run> {
        self.running.find_mut(key.hash, |run| run.is_of(key))
    }

    /// Takes the run of a key: it has ended.
    pub(super) fn end(&mut self, key: Hashed<'_>) -> Option<Run> {
        let found = self.running.find_entry(key.hash, |run| run.is_of(key));
        found.ok().map(|entry| entry.remove().0)
    }

    /// Takes the next key out of its line: the most urgent of any route, the earliest of those.
    pub(super) fn take(&mut self) -> Option<Taken> {
        let best = |(index, route): (usize, &mut Route<T>)| Some((route.front()?, index));
        let (_, index) = self.routes.iter_mut().enumerate().filter_map(best).min()?;
        let Waiting { key, hash, ready, wake, failures } = self.routes[index].take_front()?;
        Some(Taken { wake, route: index, key, hash, ready: ready?, failures })
    }

    /// Begins the run of a taken key. One that runs already, having been queued a second time under
    /// another shard, is put off until that run ends.
    pub(super) fn begin(&mut self, taken: Taken, now: Moment) -> Option<Popped<T>> {
        let Taken { route, key, hash, ready, failures, .. } = taken;
        let Ready { priority, retry, since, span, .. } = ready;
        let id = self.routes[route].id;
        if let Some(run) = self.run(Hashed { key: &key, hash }) {
            run.run_again(id, Nudge { priority, retry, span });
            return None;
        }
        let shard = self.shard(route);
        let run = Run {
            key: key.clone(),
            hash,
            route: id,
            shard,
            since: now,
            failures,
            escalates: retry || failures == 0,
            again: None,
        };
        self.running.insert_unique(hash, run, |run| run.hash);
        let route = &self.routes[route];
        // A key that was held back became ready when its shard was opened.
        let since = since.max(route.opened().unwrap_or_default());
        Some(Popped { key, tenure: route.tenure.clone(), waited: now.since(since), span })
    }

    /// The number of a route's shard.
    fn shard(&mut self, route: usize) -> usize {
        let shard = &self.routes[route].shard;
        self.shards.iter().position(|known| known == shard).unwrap_or_else(|| {
            self.shards.push(shard.clone());
            self.shards.len() - 1
        })
    }
}

// === impl Run ===

impl Run {
    /// Notes that the key must run again under `route`.
    pub(super) fn run_again(&mut self, route: RouteId, nudge: Nudge) {
        match &mut self.again {
            Some((present, earlier)) => {
                *present = route;
                earlier.priority = earlier.priority.min(nudge.priority);
                earlier.retry |= nudge.retry;
                if earlier.span.is_disabled() {
                    earlier.span = nudge.span;
                }
            }
            None => self.again = Some((route, nudge)),
        }
    }

    fn is_of(&self, Hashed { key, hash }: Hashed<'_>) -> bool {
        self.hash == hash && same(&self.key, key)
    }
}
