//! The system's clocks. Shell: the only place of the product that reads them.
#![expect(clippy::disallowed_methods, reason = "this is the shell that reads the wall clock")]

use std::time::Duration;

use jiff::Timestamp;
use model::{Clock, Moment};
use rustix::time::{ClockId, clock_gettime};

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
}
