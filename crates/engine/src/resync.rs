//! Periodic resync: reconciles every object of a shard again, about once in an interval.
//!
//! A task for each assignment walks the caches of the primary kind, in the order of keys, at a pace
//! that passes each object once in an interval. There is no timer for each key, nothing is listed,
//! and each step queues a small part of the objects.
//!
//! All objects of a shard are reconciled when it is gained, so walks begin when the shard opens. The
//! first begins at a random object, and each takes up to a tenth more or less than the interval, so
//! neither the objects of one shard nor the shards of many clusters are reconciled at the same time.

use std::sync::Arc;
use std::time::Duration;

use model::Clock;
use tracing::Span;

use crate::assignment::{Assignment, AssignmentQueue};
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

/// The resync of one assignment.
pub(crate) struct Resync {
    pub(crate) queue: Arc<AssignmentQueue>,
    pub(crate) assignment: Arc<Assignment>,
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
    /// Objects passed.
    passed: usize,
    /// The store that the next object is in, and the key of the last one passed there.
    store: usize,
    after: Option<LocalKey>,
}

impl Resync {
    /// Runs until the assignment ends.
    pub(crate) fn start(self) {
        let cancel = self.assignment.cancel.clone();
        // In a box: what waits for the end holds it twice.
        tokio::spawn(cancel.run_until_cancelled_owned(Box::pin(self.run())));
    }

    async fn run(mut self) {
        let mut walk = None;
        let mut last = self.clock.now();
        loop {
            self.clock.sleep_until(last + step(self.interval, self.total())).await;
            let now = self.clock.now();
            let took = now.since(std::mem::replace(&mut last, now));
            let Assignment { shard, epoch, .. } = &*self.assignment;
            walk = match walk.take() {
                _ if !self.queue.is_open(shard, *epoch) => None,
                Some(walk) => Some(self.go_on(walk, took).await),
                None => Some(self.begin().await),
            };
        }
    }

    /// Begins the first walk, somewhere in the middle.
    async fn begin(&mut self) -> Walk {
        let mut walk = self.next_walk();
        walk.progress = self.rng.f64();
        self.pass(&mut walk, false).await;
        walk
    }

    /// Queues the objects that are due after some more time.
    async fn go_on(&mut self, mut walk: Walk, took: Duration) -> Walk {
        walk.progress += took.as_secs_f64() / walk.length.as_secs_f64();
        let goes_on = self.pass(&mut walk, true).await;
        if goes_on { walk } else { self.next_walk() }
    }

    fn next_walk(&mut self) -> Walk {
        let length = self.interval.mul_f64(1.0 - JITTER + 2.0 * JITTER * self.rng.f64());
        Walk { length, progress: 0.0, passed: 0, store: 0, after: None }
    }

    /// Passes the objects that are due, and queues them or not. Returns false at the end of the walk.
    async fn pass(&self, walk: &mut Walk, queued: bool) -> bool {
        loop {
            let left = walk.due(self.total()).saturating_sub(walk.passed);
            if left == 0 {
                return true;
            }
            let Some(store) = self.stores().get(walk.store) else { return false };
            let next = store.after(walk.after.as_ref(), left.min(AT_ONCE));
            match next.last() {
                Some(last) => walk.after = Some(last.header.key.clone()),
                None => (walk.store, walk.after) = (walk.store + 1, None),
            }
            walk.passed += next.len();
            if queued {
                let keys = self.assignment.keys(&next);
                self.queue.add(&keys, Priority::Resync, &Span::none()).await;
            }
            tokio::task::yield_now().await;
        }
    }

    fn stores(&self) -> &[Store] {
        self.assignment.context.primary()
    }

    /// The objects of the primary kind, those of other shards included.
    fn total(&self) -> usize {
        self.stores().iter().map(Store::len).sum()
    }
}

impl Walk {
    /// How many of `total` objects it should have passed by now.
    fn due(&self, total: usize) -> usize {
        if self.progress < 1.0 { (total as f64 * self.progress) as usize } else { usize::MAX }
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
}
