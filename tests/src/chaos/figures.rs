//! Whether the metrics of the replicas agree with the ShardMaps. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use loadtest::scrape;

use super::gap::Gap;
use super::history::Window;

/// A Lease this old has missed a renewal.
const OLD_LEASE: Duration = Duration::from_secs(3);
/// A replica that was not sampled for this long has ended.
const STALE: SignedDuration = SignedDuration::from_secs(1);
/// A coordinator counts a move when it has the answer to its write, which may come as late as this
/// after the ShardMap was committed.
const ANSWERED: SignedDuration = SignedDuration::from_secs(5);

/// What we read of one replica's `/metrics`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Shards of the fleet that nobody owns.
    pub unowned: f64,
    /// Writes that the fence refused.
    pub refused: f64,
    /// Shards it moved as coordinator.
    pub moves: f64,
    /// Handovers by reason: `drain`, `crash`, `leave`.
    pub handovers: BTreeMap<String, f64>,
    /// Seconds since its last renewal.
    pub lease_age: f64,
}

/// One reading of one replica.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// When it was read.
    pub at: Timestamp,
    /// The replica.
    pub identity: String,
    /// The metrics.
    pub figures: Figures,
}

/// How metrics must change in a round of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The reason why shards must change owners, if they must: a value of the label `reason`.
    pub reason: Option<&'static str>,
    /// Whether a sample must show a replica with an old Lease.
    pub old_lease: bool,
}

/// How the metrics changed in a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Writes that the fence refused.
    pub refused: f64,
    /// What was wrong, in sentences.
    pub untrue: Vec<String>,
}

/// Reads the figures from Prometheus' text format.
pub fn parse(text: &str) -> Figures {
    Figures {
        unowned: scrape::sum(text, "leasehold_shards_unowned"),
        refused: scrape::sum(text, "leasehold_fence_rejected_writes_total"),
        moves: scrape::sum(text, "leasehold_moves_total"),
        handovers: scrape::sums_by(text, "leasehold_handover_seconds_count", "reason"),
        lease_age: scrape::sum(text, "leasehold_member_lease_age_seconds"),
    }
}

/// Compares the samples of a window with the changes of owners in the ShardMaps.
///
/// The coordinator of the moment has the counters in its memory. If it dies, what was not sampled
/// is lost, and its successor does not know which drains had begun. So counters may be behind the
/// ShardMaps, but must never be ahead of them.
pub fn judge(samples: &[Sample], window: &Window, gaps: &[Gap], expected: Expected) -> Changes {
    let seen = Seen::within(samples, window);
    let mut untrue = Vec::new();
    let moves = seen.grown(|figures| figures.moves);
    // A move shortly before the window may have been counted in it.
    let counted = Window { from: window.from - ANSWERED, ..window.clone() };
    let changes = gaps.iter().filter(|gap| counted.contains(gap.until)).count();
    if moves > changes as f64 {
        untrue.push(format!("{moves} moves were counted, the ShardMaps show {changes}"));
    }
    let handovers = seen.grown(|figures| figures.handovers.values().sum());
    if (handovers - moves).abs() > f64::EPSILON {
        untrue.push(format!("{moves} moves were counted, and {handovers} handovers were timed"));
    }
    if let Some(reason) = expected.reason
        && seen.grown(|f| f.handovers.get(reason).copied().unwrap_or_default()) < 1.0
    {
        untrue.push(format!("no handover was counted under the reason {reason}"));
    }
    let oldest = seen.oldest_lease();
    if expected.old_lease && oldest < OLD_LEASE.as_secs_f64() {
        untrue.push(format!("a Lease was not renewed, and none was seen older than {oldest:.1} s"));
    }
    untrue.extend(seen.still_unowned());
    Changes { refused: seen.grown(|figures| figures.refused), untrue }
}

/// The samples of a window, by replica.
struct Seen<'a> {
    samples: BTreeMap<&'a str, Vec<&'a Sample>>,
    /// A replica whose last sample is older has ended.
    alive_since: Timestamp,
}

impl<'a> Seen<'a> {
    fn within(samples: &'a [Sample], window: &Window) -> Self {
        let mut by_identity: BTreeMap<&str, Vec<&Sample>> = BTreeMap::new();
        for sample in samples.iter().filter(|sample| window.contains(sample.at)) {
            by_identity.entry(&sample.identity).or_default().push(sample);
        }
        Self { samples: by_identity, alive_since: window.until - STALE }
    }

    /// By how much a counter grew, over all replicas. A replica that started within the window was
    /// first sampled soon after, when its counter was still near zero.
    fn grown(&self, figure: impl Fn(&Figures) -> f64) -> f64 {
        let grown = self.samples.values().filter_map(|all| {
            let (first, last) = (all.first()?, all.last()?);
            Some((figure(&last.figures) - figure(&first.figures)).max(0.0))
        });
        grown.sum()
    }

    fn oldest_lease(&self) -> f64 {
        self.samples.values().flatten().map(|s| s.figures.lease_age).fold(0.0, f64::max)
    }

    /// A sentence for each replica that still reports unowned shards at the end.
    fn still_unowned(&self) -> impl Iterator<Item = String> + '_ {
        let last = self.samples.values().filter_map(|all| all.last());
        let wrong = last.filter(|s| s.at >= self.alive_since && s.figures.unowned > 0.0);
        wrong.map(|sample| {
            format!("{} still reports {} unowned shards", sample.identity, sample.figures.unowned)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::fixture::at;

    const TEXT: &str = "\
# HELP leasehold_moves_total Shards.
leasehold_moves_total 3
leasehold_shards_unowned 1
leasehold_member_lease_age_seconds 0.7
leasehold_fence_rejected_writes_total 2
leasehold_handover_seconds_bucket{reason=\"crash\",le=\"1\"} 9
leasehold_handover_seconds_count{reason=\"crash\"} 2
leasehold_handover_seconds_count{reason=\"leave\"} 1
";

    #[test]
    fn figures_are_read_by_name_and_reason() {
        let figures = parse(TEXT);
        assert_eq!((figures.unowned, figures.refused, figures.moves), (1.0, 2.0, 3.0));
        assert!((figures.lease_age - 0.7).abs() < 1e-9);
        let handovers = [("crash".to_owned(), 2.0), ("leave".to_owned(), 1.0)];
        assert_eq!(figures.handovers, handovers.into());
    }

    fn samples(second: i64, unowned: f64, crashes: f64, age: f64) -> Sample {
        let figures = Figures {
            unowned,
            moves: crashes,
            handovers: [("crash".to_owned(), crashes)].into(),
            lease_age: age,
            ..Figures::default()
        };
        Sample { at: at(second), identity: "a".to_owned(), figures }
    }

    fn untrue(last: Sample, changes: i64, reason: &'static str) -> String {
        untrue_until(last, changes, 12, reason)
    }

    fn untrue_until(last: Sample, changes: i64, until: i64, reason: &'static str) -> String {
        let window = Window { fault: "kill", from: at(10), until: at(20) };
        let gap = |n| Gap {
            shard: format!("east/g{n}/0/1"),
            drained: false,
            from: at(until - 1),
            until: at(until),
            served: None,
        };
        let gaps: Vec<Gap> = (0..changes).map(gap).collect();
        let expected = Expected { reason: Some(reason), old_lease: true };
        judge(&[samples(10, 0.0, 5.0, 0.0), last], &window, &gaps, expected).untrue.join("; ")
    }

    #[test]
    fn metrics_that_are_right_pass() {
        assert_eq!(untrue(samples(20, 0.0, 7.0, 4.0), 2, "crash"), "");
    }

    #[test]
    fn a_move_may_be_counted_when_the_answer_comes_and_no_later() {
        for (until, expect) in [(10, ""), (5, ""), (4, "2 moves were counted")] {
            let found = untrue_until(samples(20, 0.0, 7.0, 4.0), 2, until, "crash");
            assert!(found.starts_with(expect) && found.is_empty() == expect.is_empty(), "{found}");
        }
    }

    #[test]
    fn metrics_that_are_wrong_are_found() {
        for (last, changes, reason, expect) in [
            (samples(20, 0.0, 7.0, 4.0), 1, "crash", "2 moves were counted, the ShardMaps show 1"),
            (
                samples(20, 0.0, 7.0, 4.0),
                2,
                "leave",
                "no handover was counted under the reason leave",
            ),
            (samples(20, 1.0, 7.0, 4.0), 2, "crash", "a still reports 1 unowned shards"),
            (samples(20, 0.0, 7.0, 1.0), 2, "crash", "none was seen older than 1.0 s"),
        ] {
            let found = untrue(last, changes, reason);
            assert!(found.contains(expect), "{expect}: {found}");
        }
    }
}
