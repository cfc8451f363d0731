//! Whether a loop still turns: it notes each turn, and whoever asks compares that with the present.
//!
//! The loop turns at least once a second whatever the home cluster does, because all its requests are
//! tasks of their own. So a silence of a Lease's duration means that it hangs: it waits for a lock, or
//! computes without end. The member has fenced itself by then.
//!
//! # Why a stopped machine is no hanging loop
//! The time is that of a clock that counts while the machine sleeps, and a process that is stopped stands
//! still on no clock. After either, the last turn is long past although nothing is wrong. So a turn that
//! is overdue is waited for: the loop's timer has come, and it turns as soon as it runs again. Whoever
//! asks does so from another thread, whose own run shows that the process has its processor back.

use std::time::Duration;

use model::{Clock, Moment};
use tokio::sync::watch;

/// How long an overdue turn is waited for. Less than a probe waits for its checks.
const GRACE: Duration = Duration::from_millis(500);

/// The turns of a loop, as others see them.
#[derive(Clone, Debug)]
pub(crate) struct Pulse {
    turned: watch::Receiver<Moment>,
    limit: Duration,
}

/// A loop that does not turn any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the loop that shares the work has not turned for {}s, although it should each second: a defect of the manager", .0.as_secs())]
pub struct Stalled(pub Duration);

impl Pulse {
    /// The loop's end and the others' of a pulse that beats at `now`. It is missed after `limit`.
    pub(crate) fn new(limit: Duration, now: Moment) -> (watch::Sender<Moment>, Self) {
        let (sender, turned) = watch::channel(now);
        (sender, Self { turned, limit })
    }

    /// Waits for a turn if one is overdue.
    pub(crate) async fn check(&self, clock: &dyn Clock) -> Result<(), Stalled> {
        let mut turned = self.turned.clone();
        let last = *turned.borrow_and_update();
        let silence = clock.now().since(last);
        if silence < self.limit {
            return Ok(());
        }
        match tokio::time::timeout(GRACE, turned.changed()).await {
            Ok(Ok(())) => Ok(()),
            // It did not turn, or never will.
            Ok(Err(_)) | Err(_) => Err(Stalled(silence)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;
    use model::ManualClock;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(8);

    fn pulse() -> (watch::Sender<Moment>, Pulse, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH));
        let (turned, pulse) = Pulse::new(LIMIT, clock.now());
        (turned, pulse, clock)
    }

    #[tokio::test]
    async fn a_loop_may_be_silent_for_less_than_the_limit() {
        let (turned, pulse, clock) = pulse();
        clock.advance(LIMIT - Duration::from_millis(1));
        assert_eq!(pulse.check(&*clock).await, Ok(()));
        turned.send_replace(clock.now());
        clock.advance(LIMIT - Duration::from_millis(1));
        assert_eq!(pulse.check(&*clock).await, Ok(()));
        clock.advance(Duration::from_millis(1));
        assert_eq!(pulse.check(&*clock).await, Err(Stalled(LIMIT)));
    }

    #[tokio::test]
    async fn an_overdue_turn_that_comes_at_last_counts() {
        let (turned, pulse, clock) = pulse();
        clock.advance(LIMIT * 100);
        let late = async {
            tokio::time::sleep(GRACE / 10).await;
            turned.send_replace(clock.now());
        };
        let (outcome, ()) = tokio::join!(pulse.check(&*clock), late);
        assert_eq!(outcome, Ok(()), "the machine slept");
    }

    #[tokio::test]
    async fn a_loop_that_is_gone_turns_no_more() {
        let (turned, pulse, clock) = pulse();
        drop(turned);
        clock.advance(LIMIT * 2);
        assert_eq!(pulse.check(&*clock).await, Err(Stalled(LIMIT * 2)));
    }
}
