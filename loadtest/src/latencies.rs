//! Latencies of changes: their figures, and those of each second. Pure.

use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The longest latency that is recorded as such, in milliseconds: ten minutes.
pub const MAX_LATENCY_MS: u32 = 600_000;
/// Above which part of the latencies the generator's own lag is a good part of what they say.
pub const GREAT_LAG: f64 = 0.25;

/// Latencies of some changes, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Convergence {
    /// How many changes converged.
    pub changes: u64,
    /// Median.
    pub p50_ms: u32,
    /// 99th percentile.
    pub p99_ms: u32,
    /// The slowest.
    pub max_ms: u32,
}

/// The changes that were due in one second, and what converged in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tallied {
    /// Changes that were due in it and were made.
    pub made: u32,
    /// Changes that converged in it, whenever they were due.
    pub converged: u32,
    /// Changes that were due in it, and whose object was deleted before they converged.
    pub deleted: u32,
    /// The latencies of those that were due in it.
    pub latencies_ms: Vec<u32>,
}

/// What each second of a run brought, by seconds since it began.
#[derive(Clone, Debug, Default)]
pub struct Seconds(Vec<Tallied>);

impl Convergence {
    /// The figures of latencies.
    pub fn of(mut latencies_ms: Vec<u32>) -> Self {
        latencies_ms.sort_unstable();
        let at = |quantile: f64| {
            let rank = (quantile * latencies_ms.len() as f64).ceil() as usize;
            latencies_ms.get(rank.max(1) - 1).copied().unwrap_or_default()
        };
        Self {
            changes: latencies_ms.len() as u64,
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            max_ms: at(1.0),
        }
    }
}

impl Seconds {
    fn at(&mut self, at: Duration) -> &mut Tallied {
        let second = at.as_secs() as usize;
        if self.0.len() <= second {
            self.0.resize_with(second + 1, Tallied::default);
        }
        &mut self.0[second]
    }

    /// Counts a change that was due then.
    pub fn made(&mut self, due: Duration) {
        self.at(due).made += 1;
    }

    /// Counts a change that converged. One that the watch showed before it was due took no time.
    pub fn converged(&mut self, due: Duration, seen: Duration) {
        let ms = seen.saturating_sub(due).as_millis();
        let ms = u32::try_from(ms).unwrap_or(MAX_LATENCY_MS).clamp(1, MAX_LATENCY_MS);
        self.at(due).latencies_ms.push(ms);
        self.at(seen).converged += 1;
    }

    /// Counts a change that was due then, and whose object was deleted before it converged.
    pub fn lost(&mut self, due: Duration) {
        self.at(due).deleted += 1;
    }

    /// How many changes that were due in the seconds that pass have no latency, because their object was deleted.
    pub fn deleted(&self, pass: impl Fn(u64) -> bool) -> u64 {
        let seconds = self.0.iter().zip(0..).filter(|(_, second)| pass(*second));
        seconds.map(|(tallied, _)| u64::from(tallied.deleted)).sum()
    }

    /// Each second, from the first.
    pub fn iter(&self) -> impl Iterator<Item = &Tallied> {
        self.0.iter()
    }

    /// The latencies of the changes that were due in the seconds that pass.
    pub fn due(&self, pass: impl Fn(u64) -> bool) -> Convergence {
        let seconds = self.0.iter().zip(0..).filter(|(_, second)| pass(*second));
        Convergence::of(seconds.flat_map(|(tallied, _)| &tallied.latencies_ms).copied().collect())
    }
}

/// The whole seconds that a span of time touches.
pub fn whole(span: &Range<Duration>) -> Range<u64> {
    span.start.as_secs()..span.end.as_secs() + u64::from(span.end.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn figures_are_those_of_changes_that_happened() {
        assert_eq!(Convergence::of(Vec::new()), Convergence::default());
        let one = Convergence { changes: 1, p50_ms: 7, p99_ms: 7, max_ms: 7 };
        assert_eq!(Convergence::of(vec![7]), one);
        let many = Convergence { changes: 200, p50_ms: 100, p99_ms: 198, max_ms: 200 };
        assert_eq!(Convergence::of((1..=200).rev().collect()), many);
    }

    #[test]
    fn a_change_counts_in_the_second_in_which_it_was_due() {
        let mut seconds = Seconds::default();
        seconds.made(ms(900));
        seconds.converged(ms(900), ms(2_400));
        let all: Vec<_> = seconds.iter().map(|s| (s.made, s.converged)).collect();
        assert_eq!(all, [(1, 0), (0, 0), (0, 1)]);
        assert_eq!(seconds.due(|second| second == 0).p99_ms, 1_500);
        assert_eq!(seconds.due(|second| second > 0).changes, 0);
    }

    #[test]
    fn latencies_have_bounds() {
        let mut seconds = Seconds::default();
        seconds.converged(ms(10), ms(5));
        seconds.converged(ms(10), ms(u64::from(MAX_LATENCY_MS) + 11));
        assert_eq!(seconds.iter().next().unwrap().latencies_ms, [1, MAX_LATENCY_MS]);
    }

    #[test]
    fn spans_are_taken_by_the_seconds_that_they_touch() {
        assert_eq!(whole(&(ms(1_999)..ms(3_001))), 1..4);
        assert_eq!(whole(&(ms(1_000)..ms(3_000))), 1..3);
    }
}
