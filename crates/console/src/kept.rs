//! What was read last, for all who look.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use jiff::Timestamp;
use model::{Clock, Moment};

/// How long at least what was read is shown.
const REST: Duration = Duration::from_secs(2);
/// How many times as long as it took to read, at least, and the longest such rest: a machine may sleep while it reads.
const SHARE: u32 = 5;
const MAX_REST: Duration = Duration::from_secs(30);

/// What was read, and since when it is so.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReadAt<T> {
    pub(crate) value: T,
    /// When its reading began, by the wall clock.
    pub(crate) at: Timestamp,
}

/// Reads at most one at a time, and rests after each. A reading goes on to its end, whoever still waits for it.
pub(crate) struct Kept<T> {
    // Locked only to look or to begin, never across an await.
    last: Mutex<Option<(Moment, Reading<T>)>>,
}

/// What is read, and when that was done.
type Reading<T> = Shared<BoxFuture<'static, (Arc<ReadAt<T>>, Moment)>>;

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { last: Mutex::default() }
    }
}

impl<T: Send + Sync + 'static> Kept<T> {
    /// What was read last, or what `read` gives if that is too old.
    pub(crate) async fn get(
        &self,
        clock: &Arc<dyn Clock>,
        read: impl FnOnce() -> BoxFuture<'static, T>,
    ) -> Arc<ReadAt<T>> {
        self.reading(clock, read).await.0
    }

    fn reading(
        &self,
        clock: &Arc<dyn Clock>,
        read: impl FnOnce() -> BoxFuture<'static, T>,
    ) -> Reading<T> {
        let now = clock.now();
        let mut last = self.last.lock().expect("no holder of this lock panics");
        if let Some((began, reading)) = &*last {
            let rest = |ended| REST.max((began.until(ended) * SHARE).min(MAX_REST));
            let rests = |ended: Moment| now < ended + rest(ended);
            // Whoever waited for it may have left, so that nobody has seen its end.
            if reading.clone().now_or_never().is_none_or(|(_, ended)| rests(ended)) {
                return reading.clone();
            }
        }
        let (value, at, clock) = (read(), clock.wall(), Arc::clone(clock));
        let reading =
            tokio::spawn(async move { (Arc::new(ReadAt { value: value.await, at }), clock.now()) });
        let reading = reading.map(|read| read.expect("no reading panics")).boxed().shared();
        *last = Some((now, reading.clone()));
        reading
    }
}

#[cfg(test)]
mod tests {
    use model::ManualClock;

    use super::*;

    #[tokio::test]
    async fn many_readers_share_one_reading_and_then_it_rests() {
        let manual = Arc::new(ManualClock::new(jiff::Timestamp::UNIX_EPOCH));
        let clock: Arc<dyn Clock> = Arc::clone(&manual) as _;
        let kept = Kept::<u32>::default();
        let takes = |seconds: u64, value: u32| {
            let manual = Arc::clone(&manual);
            async move {
                manual.advance(Duration::from_secs(seconds));
                value
            }
            .boxed()
        };
        let two = async {
            let first = kept.get(&clock, || takes(1, 1));
            let second = kept.get(&clock, || panic!("it is being read"));
            futures::join!(first, second)
        };
        let (first, second) = two.await;
        assert_eq!((first.value, first.at), (1, jiff::Timestamp::UNIX_EPOCH));
        assert!(Arc::ptr_eq(&first, &second));
        manual.advance(REST);
        let rests = kept.get(&clock, || panic!("a reading of a second rests for five")).await;
        assert_eq!(rests.value, 1);
        manual.advance(Duration::from_secs(3));
        assert_eq!(kept.get(&clock, || takes(0, 2)).await.value, 2);
        manual.advance(REST);
        assert_eq!(kept.get(&clock, || takes(6 * 3600, 3)).await.value, 3);
        manual.advance(MAX_REST);
        let next = kept.get(&clock, || takes(0, 4)).await;
        assert_eq!(next.value, 4, "the machine slept while it read");
        assert!(next.at.as_second() > 6 * 3600);
    }

    #[tokio::test]
    async fn a_reading_ends_although_its_reader_has_left() {
        let manual = Arc::new(ManualClock::new(jiff::Timestamp::UNIX_EPOCH));
        let clock: Arc<dyn Clock> = Arc::clone(&manual) as _;
        let kept = Kept::<u32>::default();
        let (done, waits) = futures::channel::oneshot::channel();
        let mut first = Box::pin(kept.get(&clock, || waits.map(Result::unwrap).boxed()));
        assert!(futures::poll!(&mut first).is_pending());
        drop(first);
        done.send(1).unwrap();
        tokio::task::yield_now().await;
        manual.advance(Duration::from_secs(6 * 3600));
        assert_eq!(kept.get(&clock, || async { 2 }.boxed()).await.value, 2);
    }
}
