//! The system's clocks. Shell: the only place of the product that reads them.
#![expect(clippy::disallowed_methods, reason = "this is the shell that reads the wall clock")]

mod alarms;

use std::time::Duration;

use jiff::Timestamp;
use model::{Clock, Moment, Sleep};
use rustix::time::{ClockId, clock_gettime};

use self::alarms::Sleeper;

/// How often the clock is read where the kernel has no timer for us.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// `CLOCK_BOOTTIME` and the wall clock.
///
/// The origin of its moments is the machine's start, so moments of different processes on one
/// machine can be compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        boottime()
    }

    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }

    /// Uses a timer that the kernel counts on `CLOCK_BOOTTIME`.
    fn sleep_until(&self, moment: Moment) -> Sleep {
        match Sleeper::until(moment) {
            Ok(sleeper) => Box::pin(sleeper),
            // Perhaps no descriptor was free. Then a suspend is noticed this much later.
            Err(_) => Box::pin(async move {
                while boottime() < moment {
                    tokio::time::sleep(boottime().until(moment).min(LOOK_INTERVAL)).await;
                }
            }),
        }
    }
}

/// Now, on `CLOCK_BOOTTIME`.
fn boottime() -> Moment {
    let time = clock_gettime(ClockId::Boottime);
    // Neither is ever negative: the clock starts at zero when the machine does.
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Moment::from_origin(Duration::new(seconds, nanos))
}

/// A seed that differs between processes and starts.
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
