//! How long a key that failed waits before it is tried again.

use std::time::Duration;

use model::doubled;

/// The shortest delay: without any, a key that runs again and again would never let the CPU rest.
pub(super) const SHORTEST: Duration = Duration::from_millis(1);
/// The longest delay that can be asked for.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
/// How many lengths a delay can have by its jitter. Enough to keep keys apart; few enough that keys
/// which fail one after the other enter the queue's index of delayed keys in a few places and not
/// all over it, which with a million keys takes four times as long.
const STEPS: u64 = 16;
/// What a jitter of 1 is kept as.
const WHOLE: u32 = 1 << 10;

/// Exponential backoff for each key: the delay doubles with each failure in a row, up to a maximum.
/// Each delay is then lengthened by a random part of itself, so that many keys that fail at the same
/// time, because the same thing they all need is down, do not all come back at the same time.
///
/// The default begins at 5 ms and doubles up to 1,000 s, as client-go's does, and lengthens each
/// delay by up to half of it.
///
/// ```
/// use std::time::Duration;
/// use leasehold_queue::RateLimiter;
///
/// let limiter = RateLimiter::exponential(Duration::from_secs(1), Duration::from_secs(60));
/// let mut rng = fastrand::Rng::with_seed(7);
/// let third = limiter.delay(3, &mut rng);
/// assert!((4.0..6.0).contains(&third.as_secs_f64()));
/// assert_eq!(limiter.with_jitter(0.0).delay(3, &mut rng), Duration::from_secs(4));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimiter {
    first: Duration,
    max: Duration,
    /// In parts of [`WHOLE`].
    jitter: u32,
}

impl RateLimiter {
    /// The default's delay after the first failure.
    pub const FIRST_DELAY: Duration = Duration::from_millis(5);
    /// The default's longest delay, before jitter.
    pub const MAX_DELAY: Duration = Duration::from_secs(1000);
    /// The default's jitter, as a fraction of each delay.
    pub const JITTER: f64 = 0.5;

    /// Delays that begin at `first`, which is at least a millisecond, and double with each failure
    /// up to `max`, which is at least `first` and at most a year. The jitter is the default's.
    pub fn exponential(first: Duration, max: Duration) -> Self {
        let first = first.clamp(SHORTEST, LONGEST);
        Self { first, max: max.clamp(first, LONGEST), jitter: 0 }.with_jitter(Self::JITTER)
    }

    /// Lengthens each delay by a random part of it, up to this fraction: from 0, which is no jitter,
    /// to 1, which at most doubles it. The maximum applies before the jitter.
    #[must_use]
    pub fn with_jitter(mut self, fraction: f64) -> Self {
        // Of no number the cast makes 0.
        self.jitter = (fraction.clamp(0.0, 1.0) * f64::from(WHOLE)) as u32;
        self
    }

    /// The delay after `failures` failures in a row. Draws the jitter from `rng`.
    pub fn delay(&self, failures: u32, rng: &mut fastrand::Rng) -> Duration {
        let delay = doubled(self.first, failures.saturating_sub(1), self.max);
        let step = u64::from(self.jitter) * rng.u64(..STEPS);
        // A year has fewer than 2^45 microseconds, so the product stays below 2^60.
        let micros = u64::try_from(delay.as_micros()).expect("a delay is at most a year");
        delay + Duration::from_micros(micros * step / (u64::from(WHOLE) * STEPS))
    }
}

impl Default for RateLimiter {
    fn default() -> Self {
        Self::exponential(Self::FIRST_DELAY, Self::MAX_DELAY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rng() -> fastrand::Rng {
        fastrand::Rng::with_seed(3)
    }

    #[test]
    fn the_delay_doubles_up_to_its_maximum() {
        let limiter = RateLimiter::default().with_jitter(0.0);
        for (failures, millis) in [(0, 5), (1, 5), (2, 10), (3, 20), (8, 640), (18, 655_360)] {
            let delay = limiter.delay(failures, &mut rng());
            assert_eq!(delay, Duration::from_millis(millis), "{failures}");
        }
        assert_eq!(limiter.delay(19, &mut rng()), RateLimiter::MAX_DELAY);
        assert_eq!(limiter.delay(u32::MAX, &mut rng()), RateLimiter::MAX_DELAY);
    }

    #[test]
    fn jitter_spreads_keys_that_fail_together_over_half_their_delay() {
        let (limiter, mut rng) = (RateLimiter::default(), rng());
        let delays: Vec<_> = (0..1000).map(|_| limiter.delay(8, &mut rng).as_millis()).collect();
        let (first, last) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
        assert!(*first >= 640 && *last < 960, "{first} to {last}");
        for tenth in 0..10 {
            let (from, until) = (640 + 32 * tenth, 640 + 32 * (tenth + 1));
            let share = delays.iter().filter(|delay| (from..until).contains(*delay)).count();
            assert!((60..140).contains(&share), "{share} of 1000 from {from} to {until}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_brought_into_bounds() {
        let limiter = RateLimiter::exponential(Duration::ZERO, Duration::ZERO);
        assert_eq!(limiter.with_jitter(-1.0).delay(9, &mut rng()), SHORTEST);
        assert_eq!(limiter.with_jitter(f64::NAN).delay(9, &mut rng()), SHORTEST);
        let limiter = RateLimiter::exponential(Duration::MAX, Duration::MAX).with_jitter(9.0);
        assert!((LONGEST..2 * LONGEST).contains(&limiter.delay(u32::MAX, &mut rng())));
    }
}
