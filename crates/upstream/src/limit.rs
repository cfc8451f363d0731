//! How many requests may be under way to one cluster at once: less when it is overloaded, one more
//! for each round that goes well.
//!
//! Additive increase, multiplicative decrease (Chiu and Jain, 1989), with two more rules
//! of TCP (RFC 5681): all bad news of one round, that is of requests sent before the last
//! decrease, counts once; and a limit that was not reached does not grow. Rising latency is judged as
//! `Gradient2Limit` of Netflix' concurrency-limits does, by a short average against a long one; it
//! lowers the limit a little where a refusal halves it.
//!
//! # Invariants
//! - The limit is at least 1 and at most `max`.
//! - Two decreases are at least one round apart.

use std::time::Duration;

use model::Moment;

/// The limit before anything is known of a cluster.
const FIRST_LIMIT: f64 = 16.0;
/// A refusal multiplies the limit by this.
const AFTER_REFUSAL: f64 = 0.5;
/// Risen latency multiplies the limit by this.
const AFTER_SLOWNESS: f64 = 0.9;
/// Latency that is no sign of overload, however fast the server was before.
const QUICK: Duration = Duration::from_millis(100);
/// How many times its long average the latency may be.
const TOLERANCE: f64 = 2.0;
/// Answers over which the short average is taken.
const SHORT: f64 = 10.0;
/// Answers over which the long average is taken.
const LONG: f64 = 600.0;
/// How fast the long average follows when a slow time is over.
const RECOVERY: f64 = 0.95;

/// How many requests may be under way at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    limit: f64,
    max: f64,
    lowered: Option<Moment>,
    latency: Latency,
}

/// Averages of how long answers took, in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Latency {
    samples: f64,
    short: f64,
    long: f64,
    fastest: Option<Duration>,
}

impl Limit {
    /// A limit that never exceeds `max`, which is at least 1.
    pub(crate) fn new(max: u32) -> Self {
        let max = f64::from(max.max(1));
        Self { limit: FIRST_LIMIT.min(max), max, lowered: None, latency: Latency::default() }
    }

    /// How many may be under way.
    pub(crate) fn current(&self) -> usize {
        // At least 1 and at most a u32, so nothing is lost but the fraction.
        self.limit as usize
    }

    /// The fastest answer.
    pub(crate) fn fastest(&self) -> Option<Duration> {
        self.latency.fastest
    }

    /// A request was answered, while `in_flight` were under way, itself included. `took` is given
    /// where it says something about the server's load.
    pub(crate) fn answered(
        &mut self,
        sent: Moment,
        took: Option<Duration>,
        in_flight: usize,
        now: Moment,
    ) {
        if took.is_some_and(|took| self.latency.observe(took)) {
            return self.lower(AFTER_SLOWNESS, sent, now);
        }
        if in_flight.saturating_mul(2) >= self.current() {
            self.limit = (self.limit + 1.0 / self.limit).min(self.max);
        }
    }

    /// A request that was sent at `sent` was refused because the server lacks capacity.
    pub(crate) fn refused(&mut self, sent: Moment, now: Moment) {
        self.lower(AFTER_REFUSAL, sent, now);
    }

    /// Starts over with one request at a time.
    pub(crate) fn collapse(&mut self, now: Moment) {
        self.limit = 1.0;
        self.lowered = Some(now);
    }

    fn lower(&mut self, left: f64, sent: Moment, now: Moment) {
        if self.lowered.is_none_or(|lowered| sent >= lowered) {
            self.limit = (self.limit * left).max(1.0);
            self.lowered = Some(now);
        }
    }
}

impl Latency {
    /// Takes in how long an answer took. Returns whether the server has become slow.
    fn observe(&mut self, took: Duration) -> bool {
        self.fastest = Some(self.fastest.map_or(took, |fastest| took.min(fastest)));
        let took = took.as_secs_f64();
        self.samples = (self.samples + 1.0).min(LONG);
        self.short += (took - self.short) / self.samples.min(SHORT);
        self.long += (took - self.long) / self.samples;
        if self.long > self.short * TOLERANCE {
            self.long *= RECOVERY;
        }
        self.short > QUICK.as_secs_f64() && self.short > self.long * TOLERANCE
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_origin(Duration::from_millis(millis))
    }

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Answers requests that keep the limit used, one after the other, each taking this long.
    fn run(limit: &mut Limit, count: usize, took: Duration, mut now: Moment) -> Moment {
        for _ in 0..count {
            let sent = now;
            now = now + took;
            limit.answered(sent, Some(took), limit.current(), now);
        }
        now
    }

    #[test]
    fn refusals_of_one_round_halve_it_once() {
        let mut limit = Limit::new(100);
        for (sent, now, expect) in
            [(0, 10, 8), (0, 11, 8), (9, 12, 8), (10, 20, 4), (20, 30, 2), (30, 40, 1), (40, 50, 1)]
        {
            limit.refused(at(sent), at(now));
            assert_eq!(limit.current(), expect, "sent {sent}, refused {now}");
        }
    }

    #[test]
    fn it_grows_by_one_a_round_and_only_where_it_is_used() {
        let mut limit = Limit::new(100);
        limit.collapse(at(0));
        run(&mut limit, 1, ms(1), at(0));
        assert_eq!(limit.current(), 2);
        run(&mut limit, 3, ms(1), at(10));
        assert_eq!(limit.current(), 3);
        for _ in 0..1000 {
            limit.answered(at(20), None, 1, at(21));
        }
        assert_eq!(limit.current(), 3, "one at a time does not need more");
        limit.answered(at(20), None, 2, at(21));
        assert!(limit.limit > 3.0);
    }

    #[test]
    fn a_server_that_becomes_slow_gets_less_and_more_again_when_it_recovers() {
        let mut limit = Limit::new(40);
        let now = run(&mut limit, 2000, ms(20), at(0));
        assert_eq!(limit.current(), 40);
        let now = run(&mut limit, 60, ms(400), now);
        assert!(limit.current() < 10, "{limit:?}");
        run(&mut limit, 2000, ms(20), now);
        assert_eq!(limit.current(), 40);
    }

    #[test]
    fn neither_quick_answers_nor_a_server_that_was_always_slow_are_overload() {
        let mut limit = Limit::new(40);
        let now = run(&mut limit, 1000, ms(1), at(0));
        run(&mut limit, 1000, QUICK, now);
        assert_eq!(limit.current(), 40, "a hundred times as slow, and quick enough");
        let mut limit = Limit::new(40);
        run(&mut limit, 1000, ms(900), at(0));
        assert_eq!(limit.current(), 40);
    }

    proptest! {
        #[test]
        fn it_stays_within_its_bounds_and_recovers(
            max in 1..200_u32,
            steps in prop::collection::vec((0..4_u8, 0..5000_u64, 0..300_usize), 0..200),
        ) {
            let mut limit = Limit::new(max);
            let mut now = at(0);
            for (what, millis, in_flight) in steps {
                let sent = now;
                now = now + ms(millis);
                match what {
                    0 => limit.refused(sent, now),
                    1 => limit.collapse(now),
                    2 => limit.answered(sent, None, in_flight, now),
                    _ => limit.answered(sent, Some(ms(millis)), in_flight, now),
                }
                prop_assert!((1..=max as usize).contains(&limit.current()));
            }
            // A round for each step up, of as many answers as the limit is high; before that, the
            // averages forget what was.
            run(&mut limit, 100 + (max * max) as usize, ms(10), now);
            prop_assert_eq!(limit.current(), max as usize);
        }
    }
}
