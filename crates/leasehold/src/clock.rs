//! The system's clocks. Shell: the only place of the product that reads them.
#![expect(clippy::disallowed_methods, reason = "this is the shell that reads the wall clock")]

use std::os::fd::OwnedFd;
use std::time::Duration;

use jiff::Timestamp;
use model::{Clock, Moment, Sleep};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// How often the clock is looked at where the kernel has no timer for us.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// `CLOCK_BOOTTIME` and the wall clock.
///
/// The origin of its moments is the machine's start, so moments of different processes on one
/// machine can be compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        let time = clock_gettime(ClockId::Boottime);
        // Neither is ever negative: the clock starts at zero when the machine does.
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
        Moment::from_origin(Duration::new(seconds, nanos))
    }

    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }

    /// By a timer that the kernel counts on `CLOCK_BOOTTIME`.
    fn sleep_until(&self, moment: Moment) -> Sleep {
        match alarm(moment) {
            Ok(alarm) => Box::pin(async move {
                // An error would end the sleep early: who sleeps looks at the clock again.
                let _ = alarm.readable().await;
            }),
            // No descriptor is free, say: then a suspend is noticed this much late.
            Err(_) => Box::pin(tokio::time::sleep(self.now().until(moment).min(LOOK_INTERVAL))),
        }
    }
}

/// What becomes readable at that moment.
#[expect(
    deprecated,
    reason = "its successor is unsafe for the sake of types whose descriptor may change; this one owns it"
)]
fn alarm(moment: Moment) -> std::io::Result<AsyncFd<OwnedFd>> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
    // Zero would disarm it.
    let at = moment.since_origin().max(Duration::from_nanos(1));
    let it_value = Timespec::try_from(at).map_err(std::io::Error::other)?;
    let it_interval = Timespec::default();
    let value = Itimerspec { it_interval, it_value };
    timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &value)?;
    AsyncFd::with_interest(timer, Interest::READABLE)
}

/// A seed that differs from process to process and from start to start.
pub fn seed() -> u64 {
    fastrand::u64(..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_goes_back() {
        let first = SystemClock.now();
        assert!(first > Moment::default());
        assert!(SystemClock.now() >= first);
    }

    #[tokio::test]
    async fn it_sleeps_until_the_moment_and_not_shorter() {
        for wait in [Duration::ZERO, Duration::from_millis(20)] {
            let moment = SystemClock.now() + wait;
            SystemClock.sleep_until(moment).await;
            assert!(SystemClock.now() >= moment);
        }
        SystemClock.sleep_until(Moment::default()).await;
    }
}
