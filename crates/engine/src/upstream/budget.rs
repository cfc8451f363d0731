//! The token budget of one cluster: so many requests a second on average, so many at once after a
//! rest.
//!
//! Kept as one moment, that at which the bucket will be full again (the generic cell rate
//! algorithm of ATM, ITU-T I.371, which is a token bucket without its rounding): exact, and nothing
//! has to refill it.
//!
//! # Invariants
//! - In any stretch of time at most `burst` requests and `rate` more for each second of it.
//! - There are never more than `burst` tokens, however long nothing was taken.

use std::time::Duration;

use model::Moment;

/// See the file's text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// What one token takes to come back.
    interval: Duration,
    /// All tokens but one: how far from full the bucket may be for one to be left.
    slack: Duration,
    full_at: Moment,
}

impl Budget {
    /// A full one. Both figures are at least 1.
    pub(crate) fn new(requests_per_second: u32, burst: u32) -> Self {
        let nanos = 1_000_000_000_u64.div_ceil(u64::from(requests_per_second.max(1)));
        let interval = Duration::from_nanos(nanos);
        let slack = interval.saturating_mul(burst.max(1) - 1);
        Self { interval, slack, full_at: Moment::default() }
    }

    /// Takes one token. Without one: when there will be one.
    pub(crate) fn take(&mut self, now: Moment) -> Result<(), Moment> {
        if now.until(self.full_at) > self.slack {
            return Err(self.full_at - self.slack);
        }
        self.full_at = self.full_at.max(now) + self.interval;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(micros: u64) -> Moment {
        Moment::from_origin(Duration::from_micros(micros))
    }

    #[test]
    fn a_burst_then_the_rate() {
        let mut budget = Budget::new(10, 3);
        for (micros, expect) in [
            (0, Ok(())),
            (0, Ok(())),
            (0, Ok(())),
            (0, Err(at(100_000))),
            (99_999, Err(at(100_000))),
            (100_000, Ok(())),
            (150_000, Err(at(200_000))),
            // A long rest fills it, and no more than that.
            (9_000_000, Ok(())),
            (9_000_000, Ok(())),
            (9_000_000, Ok(())),
            (9_000_000, Err(at(9_100_000))),
        ] {
            assert_eq!(budget.take(at(micros)), expect, "{micros}");
        }
    }

    proptest! {
        #[test]
        fn no_stretch_of_time_has_more_than_burst_and_rate(
            rate in 1..2000_u32,
            burst in 1..50_u32,
            gaps in prop::collection::vec(prop_oneof![Just(0_u64), 0..3000_u64, 0..2_000_000_u64], 1..200),
        ) {
            let mut budget = Budget::new(rate, burst);
            let (mut now, mut taken) = (1_u64, Vec::new());
            for gap in gaps {
                now += gap;
                match budget.take(at(now)) {
                    Ok(()) => taken.push(now),
                    // What it promises holds, and not a moment earlier.
                    Err(when) => {
                        prop_assert!(when > at(now));
                        prop_assert!(budget.take(when - Duration::from_nanos(1)).is_err());
                        prop_assert!(Budget::take(&mut budget.clone(), when).is_ok());
                    }
                }
            }
            for (from, begin) in taken.iter().enumerate() {
                for (to, end) in taken.iter().enumerate().skip(from) {
                    let seconds = (end - begin) as f64 / 1e6;
                    let most = f64::from(burst) + f64::from(rate) * seconds;
                    prop_assert!((to - from + 1) as f64 <= most + 1e-6, "{begin} to {end}");
                }
            }
        }
    }
}
