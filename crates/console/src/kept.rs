//! What was read last, for all who look.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use model::{Clock, Moment};

/// How long at least what was read is shown.
const REST: Duration = Duration::from_secs(2);
/// How many times as long as it took to read, at least.
const SHARE: u32 = 5;

/// Reads at most one at a time, and rests after each.
pub(crate) struct Kept<T> {
    // Locked only to look or to begin, never across an await.
    last: Mutex<Option<(Moment, Reading<T>)>>,
}

/// What is read, and when that was done.
type Reading<T> = Shared<BoxFuture<'static, (Arc<T>, Moment)>>;

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
    ) -> Arc<T> {
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
            let rests = |ended: Moment| now < ended + REST.max(began.until(ended) * SHARE);
            if reading.peek().is_none_or(|(_, ended)| rests(*ended)) {
                return reading.clone();
            }
        }
        let (value, clock) = (read(), Arc::clone(clock));
        let reading = async move { (Arc::new(value.await), clock.now()) }.boxed().shared();
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
        assert_eq!(two.await, (Arc::new(1), Arc::new(1)));
        manual.advance(REST);
        let rests = kept.get(&clock, || panic!("a reading of a second rests for five")).await;
        assert_eq!(*rests, 1);
        manual.advance(Duration::from_secs(3));
        assert_eq!(*kept.get(&clock, || takes(0, 2)).await, 2);
        manual.advance(REST);
        assert_eq!(*kept.get(&clock, || takes(0, 3)).await, 3);
    }
}
