//! Periodic resync: reconciles every object again, about once in an interval.
//!
//! A task for each controller in a cluster walks the caches of the primary kind, in the order of keys, at a
//! pace that passes each object once in an interval, however many shards are held there: the queue finds the
//! shard of each key, and drops the keys of others. There is no timer for each key, nothing is listed, and
//! each step queues a small part of the objects.
//!
//! All objects of a shard are reconciled when it is gained, so the first walk begins when a shard opens. It
//! begins at a random object, and each takes up to a tenth more or less than the interval, so neither the
//! objects of one cluster nor those of many are reconciled at the same time. Objects of a shard that is
//! gained later are spread over the rest of the walk.

use std::sync::Arc;
use std::time::Duration;

use model::{Clock, ClusterName};
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::assignment::{AssignmentQueue, keys};
use cache::{LocalKey, Store};
use queue::Priority;

/// Objects that a walk passes before other tasks get their turn.
const AT_ONCE: usize = 64;
/// Steps in an interval, if there are few objects.
const STEPS: usize = 16;
/// The shortest step.
const MIN_STEP: Duration = Duration::from_millis(100);
/// The part of an interval that a walk may take more, or less.
const JITTER: f64 = 0.1;

/// The resync of one controller in one cluster.
pub(crate) struct Resync {
    pub(crate) cluster: ClusterName,
    /// The caches of the primary kind.
    pub(crate) stores: Arc<[Store]>,
    pub(crate) queue: Arc<AssignmentQueue>,
    pub(crate) interval: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rng: fastrand::Rng,
}

/// How far a walk has come.
struct Walk {
    /// How long it takes.
    length: Duration,
    /// The part of that which has passed, from 0 to 1.
    progress: f64,
    /// Objects that should have been passed by now.
    due: f64,
    /// Objects passed.
    passed: usize,
    /// The store that the next object is in, and the key of the last one passed there.
    store: usize,
    after: Option<LocalKey>,
}

impl Resync {
    /// Runs until `stop`.
    pub(crate) fn start(self, stop: CancellationToken) {
        // In a box: what waits for the end holds it twice.
        tokio::spawn(stop.run_until_cancelled_owned(Box::pin(self.run())));
    }

    async fn run(mut self) {
        let mut walk = None;
        let mut last = self.clock.now();
        loop {
            self.clock.sleep_until(last + step(self.interval, self.total())).await;
            let now = self.clock.now();
            let took = now.since(std::mem::replace(&mut last, now));
            walk = match walk.take() {
                _ if !self.queue.has_open(&self.cluster) => None,
                Some(walk) => Some(self.go_on(walk, took).await),
                None => Some(self.begin().await),
            };
        }
    }

    /// Begins the first walk, somewhere in the middle.
    async fn begin(&mut self) -> Walk {
        let mut walk = self.next_walk();
        let due = walk.go_on(self.rng.f64(), self.total());
        self.pass(&mut walk, due, false).await;
        walk
    }

    /// Queues the objects that are due after some more time.
    async fn go_on(&mut self, mut walk: Walk, took: Duration) -> Walk {
        let due = walk.go_on(took.as_secs_f64() / walk.length.as_secs_f64(), self.total());
        let goes_on = self.pass(&mut walk, due, true).await;
        if goes_on { walk } else { self.next_walk() }
    }

    fn next_walk(&mut self) -> Walk {
        let length = self.interval.mul_f64(1.0 - JITTER + 2.0 * JITTER * self.rng.f64());
        Walk { length, progress: 0.0, due: 0.0, passed: 0, store: 0, after: None }
    }

    /// Passes so many objects, and queues them or not. Returns false at the end of the walk.
    async fn pass(&self, walk: &mut Walk, mut due: usize, queued: bool) -> bool {
        while due > 0 {
            let Some(store) = self.stores.get(walk.store) else { return false };
            let next = store.after(walk.after.as_ref(), due.min(AT_ONCE));
            match next.last() {
                Some(last) => walk.after = Some(last.header.key.clone()),
                None => (walk.store, walk.after) = (walk.store + 1, None),
            }
            walk.passed += next.len();
            due -= next.len();
            if queued {
                let keys = keys(&self.cluster, &next, |_| true);
                self.queue.add(&keys, Priority::Resync, &Span::none()).await;
            }
            tokio::task::yield_now().await;
        }
        true
    }

    /// The objects of the primary kind, those of other shards included.
    fn total(&self) -> usize {
        self.stores.iter().map(Store::len).sum()
    }
}

impl Walk {
    /// Goes on by a part of the whole walk. Returns how many more of `total` objects are due: as large a part of those
    /// that are left as of the time that is left. So what comes into the caches meanwhile is not due all at once.
    fn go_on(&mut self, part: f64, total: usize) -> usize {
        let left = 1.0 - self.progress;
        self.progress += part;
        if part >= left {
            return usize::MAX;
        }
        self.due += (total as f64 - self.due).max(0.0) * part / left;
        (self.due as usize).saturating_sub(self.passed)
    }
}

/// How long to wait between two steps of a walk over this many objects.
fn step(interval: Duration, total: usize) -> Duration {
    let part = AT_ONCE as f64 / total.max(STEPS * AT_ONCE) as f64;
    interval.mul_f64(part).max(MIN_STEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_small_parts_of_the_interval_and_of_the_objects() {
        let hour = Duration::from_secs(3600);
        for (total, expect) in [(0, 225.0), (1, 225.0), (1024, 225.0), (10_240, 22.5)] {
            assert_eq!(step(hour, total).as_secs_f64(), expect, "{total}");
        }
        assert_eq!(step(Duration::from_secs(1), 1), MIN_STEP);
        assert_eq!(step(hour, 10_000_000), MIN_STEP, "278 objects");
    }

    #[test]
    fn objects_that_come_during_a_walk_are_spread_over_the_rest_of_it() {
        let (length, progress, due) = (Duration::from_secs(3600), 0.5, 500.0);
        let mut walk = Walk { length, progress, due, passed: 500, store: 0, after: None };
        assert_eq!(walk.go_on(0.125, 1_500), 250, "a quarter of a thousand that are left");
        walk.passed += 250;
        assert_eq!(walk.go_on(0.125, 0), 0);
        assert_eq!(walk.go_on(0.25, 1_500), usize::MAX);
    }
}
