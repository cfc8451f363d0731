//! A token bucket: a number of requests a second on average, and a burst after a rest.
//!
//! Kept as one moment, that at which the bucket will be full again (the generic cell rate
//! algorithm of ATM, ITU-T I.371, which is a token bucket without its rounding): exact, and nothing
//! has to refill it. The bucket takes `now` as an argument, its rate may change, and tokens can be
//! given back; rate limiters on the registry read a clock themselves and cannot do the latter two.
//!
//! # Invariants
//! - A user that takes tokens only when [`Bucket::ready_at`] has come takes at most `burst` tokens in
//!   any stretch of time, and one more for each `interval` of it.
//! - There are never more than `burst` tokens, however long nothing was taken.

use std::time::Duration;

use crate::Moment;

/// How fast tokens come, and how many there are after a rest.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// What one token takes to come back.
    pub interval: Duration,
    /// At least 1.
    pub burst: u32,
}

impl Rate {
    /// So many tokens a second; both figures are at least 1.
    pub fn per_second(tokens: u32, burst: u32) -> Self {
        let nanos = 1_000_000_000_u64.div_ceil(u64::from(tokens.max(1)));
        Self { interval: Duration::from_nanos(nanos), burst: burst.max(1) }
    }
}

/// A token bucket.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    rate: Rate,
    full_at: Moment,
}

impl Bucket {
    /// A full one.
    pub fn new(rate: Rate) -> Self {
        Self { rate, full_at: Moment::default() }
    }

    /// Tokens come at another rate from now on.
    pub fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
    }

    /// When there is a token: now, or later.
    pub fn ready_at(&self, now: Moment) -> Moment {
        let slack = self.rate.interval.saturating_mul(self.rate.burst - 1);
        if now.until(self.full_at) > slack { self.full_at - slack } else { now }
    }

    /// Takes tokens, also those that are not there yet.
    pub fn take(&mut self, tokens: u32, now: Moment) {
        self.full_at = self.full_at.max(now) + self.rate.interval.saturating_mul(tokens);
    }

    /// Gives tokens back that were taken and not used.
    pub fn give_back(&mut self, tokens: u32) {
        self.full_at = self.full_at - self.rate.interval.saturating_mul(tokens);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bucket(tokens_per_second: u32, burst: u32) -> Bucket {
        Bucket::new(Rate::per_second(tokens_per_second, burst))
    }

    fn take(bucket: &mut Bucket, now: Moment) -> Result<(), Moment> {
        let ready = bucket.ready_at(now);
        if ready > now {
            return Err(ready);
        }
        bucket.take(1, now);
        Ok(())
    }

    fn at(micros: u64) -> Moment {
        Moment::from_origin(Duration::from_micros(micros))
    }

    #[test]
    fn a_burst_then_the_rate() {
        let mut bucket = bucket(10, 3);
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
            assert_eq!(take(&mut bucket, at(micros)), expect, "{micros}");
        }
    }

    proptest! {
        #[test]
        fn no_stretch_of_time_has_more_than_burst_and_rate(
            rate in 1..2000_u32,
            burst in 1..50_u32,
            gaps in prop::collection::vec(prop_oneof![Just(0_u64), 0..3000_u64, 0..2_000_000_u64], 1..200),
        ) {
            let mut bucket = bucket(rate, burst);
            let (mut now, mut taken) = (1_u64, Vec::new());
            for gap in gaps {
                now += gap;
                match take(&mut bucket, at(now)) {
                    Ok(()) => taken.push(now),
                    // What it promises holds, and not a moment earlier.
                    Err(when) => {
                        prop_assert!(when > at(now));
                        prop_assert!(take(&mut bucket.clone(), when - Duration::from_nanos(1)).is_err());
                        prop_assert!(take(&mut bucket.clone(), when).is_ok());
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
