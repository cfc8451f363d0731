//! Time slices of a worker on its thread: reconciles that never wait give way to other tasks, above all to those that read
//! what the servers send. Without that a change waits until everything of a shard that was gained is reconciled.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::time::Duration;

use model::{Clock, Moment};

/// How long one worker goes on without giving way. Those of all workers of a thread come before other tasks.
const SLICE: Duration = Duration::from_micros(250);

/// That of one worker.
pub(crate) struct TimeSlice<'a> {
    clock: &'a dyn Clock,
    began: Moment,
}

impl<'a> TimeSlice<'a> {
    pub(crate) fn new(clock: &'a dyn Clock) -> Self {
        Self { clock, began: clock.now() }
    }

    /// Runs something, in the next slice if this one was long enough.
    pub(crate) async fn run<T>(&mut self, mut work: Pin<&mut impl Future<Output = T>>) -> T {
        if self.clock.now().since(self.began) >= SLICE {
            tokio::task::yield_now().await;
            self.began = self.clock.now();
        }
        let mut waited = false;
        let result = poll_fn(|context| {
            let poll = work.as_mut().poll(context);
            waited |= poll.is_pending();
            poll
        });
        let result = result.await;
        if waited {
            self.began = self.clock.now();
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use jiff::Timestamp;
    use model::ManualClock;

    use super::*;

    #[tokio::test]
    async fn others_have_their_turns_between_reconciles_that_never_wait() {
        let turns = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&turns);
        let other = tokio::spawn(async move {
            loop {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
        let mut slice = TimeSlice::new(&clock);
        for _ in 0..100 {
            slice.run(pin!(async { clock.advance(SLICE / 2) })).await;
        }
        assert_eq!(turns.load(Ordering::Relaxed), 49);
        // One that waits has given way.
        for _ in 0..100 {
            let waits = async {
                tokio::task::yield_now().await;
                clock.advance(SLICE);
            };
            slice.run(pin!(waits)).await;
        }
        assert_eq!(turns.load(Ordering::Relaxed), 49 + 101);
        other.abort();
    }
}
