//! What the replicas' metrics said, and whether it was true. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::gap::Gap;
use super::history::Window;

/// A Lease this old has missed a renewal.
const OLD_LEASE: Duration = Duration::from_secs(3);
/// A replica that was not sampled for so long is not there any more.
const STALE: SignedDuration = SignedDuration::from_secs(1);
/// A coordinator counts a move when it has heard that its write succeeded: up to its patience with
/// the write after the ShardMap tells of it.
const ANSWERED: SignedDuration = SignedDuration::from_secs(5);

/// What is read of one replica's `/metrics`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Shards of the fleet that nobody owns.
    pub unowned: f64,
    /// Writes that the fence refused.
    pub refused: f64,
    /// Shards it moved as coordinator.
    pub moves: f64,
    /// The same by reason: `drain`, `crash`, `leave`.
    pub handovers: BTreeMap<String, f64>,
    /// Seconds since its last renewal.
    pub lease_age: f64,
}

/// One reading of one replica.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// When.
    pub at: Timestamp,
    /// Of whom.
    pub identity: String,
    /// What it said.
    pub figures: Figures,
}

/// How metrics must move in a round of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Why shards change owners, if any must: a value of the label `reason`.
    pub reason: Option<&'static str>,
    /// Whether some replica must be seen with a Lease that grows old.
    pub old_lease: bool,
}

/// How the metrics moved in a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Movement {
    /// Writes that the fence refused.
    pub refused: f64,
    /// What the metrics should have said and did not; a sentence each.
    pub lies: Vec<String>,
}

/// Reads the figures out of Prometheus' text format.
pub fn parse(text: &str) -> Figures {
    let mut figures = Figures::default();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let Ok(value) = value.parse::<f64>() else { continue };
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        match name {
            "leasehold_shards_unowned" => figures.unowned = value,
            "leasehold_fence_rejected_writes_total" => figures.refused += value,
            "leasehold_moves_total" => figures.moves += value,
            "leasehold_member_lease_age_seconds" => figures.lease_age = value,
            "leasehold_handover_seconds_count" => {
                let reason = labels.split('"').nth(1).unwrap_or_default();
                *figures.handovers.entry(reason.to_owned()).or_default() += value;
            }
            _ => {}
        }
    }
    figures
}

/// Holds what was sampled in a window against the changes of owners that the ShardMaps tell of.
///
/// Counters live in the memory of the coordinator of the moment. One that dies takes what was not
/// sampled yet with it, and one that takes over does not know of drains that had begun: so counters
/// may stay behind the ShardMaps, and must never be ahead of them.
pub fn judge(samples: &[Sample], window: &Window, gaps: &[Gap], expected: Expected) -> Movement {
    let seen = Seen::within(samples, window);
    let mut lies = Vec::new();
    let moves = seen.grown(|figures| figures.moves);
    // Those of just before the window may have been counted in it.
    let heard_of = Window { from: window.from - ANSWERED, ..window.clone() };
    let changes = gaps.iter().filter(|gap| heard_of.contains(gap.until)).count();
    if moves > changes as f64 {
        lies.push(format!("{moves} moves were counted, the ShardMaps tell of {changes}"));
    }
    let handovers = seen.grown(|figures| figures.handovers.values().sum());
    if (handovers - moves).abs() > f64::EPSILON {
        lies.push(format!("{moves} moves were counted, and {handovers} handovers were timed"));
    }
    if let Some(reason) = expected.reason
        && seen.grown(|f| f.handovers.get(reason).copied().unwrap_or_default()) < 1.0
    {
        lies.push(format!("no handover was counted under the reason {reason}"));
    }
    let oldest = seen.oldest_lease();
    if expected.old_lease && oldest < OLD_LEASE.as_secs_f64() {
        lies.push(format!("a Lease was not renewed, and none was seen older than {oldest:.1} s"));
    }
    lies.extend(seen.still_unowned());
    Movement { refused: seen.grown(|figures| figures.refused), lies }
}

/// The samples of a window, by replica.
struct Seen<'a> {
    samples: BTreeMap<&'a str, Vec<&'a Sample>>,
    /// Replicas not sampled since have ended.
    late: Timestamp,
}

impl<'a> Seen<'a> {
    fn within(samples: &'a [Sample], window: &Window) -> Self {
        let mut by_identity: BTreeMap<&str, Vec<&Sample>> = BTreeMap::new();
        for sample in samples.iter().filter(|sample| window.contains(sample.at)) {
            by_identity.entry(&sample.identity).or_default().push(sample);
        }
        Self { samples: by_identity, late: window.until - STALE }
    }

    /// By how much a counter grew, over all replicas. One that started within the window began at
    /// zero, and its first sample is soon after.
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

    /// Who still tells of unowned shards at the end; a sentence each.
    fn still_unowned(&self) -> impl Iterator<Item = String> + '_ {
        let last = self.samples.values().filter_map(|all| all.last());
        let wrong = last.filter(|s| s.at >= self.late && s.figures.unowned > 0.0);
        wrong.map(|sample| {
            format!("{} still tells of {} unowned shards", sample.identity, sample.figures.unowned)
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

    fn lies(last: Sample, changes: i64, reason: &'static str) -> String {
        lies_of(last, changes, 12, reason)
    }

    fn lies_of(last: Sample, changes: i64, until: i64, reason: &'static str) -> String {
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
        judge(&[samples(10, 0.0, 5.0, 0.0), last], &window, &gaps, expected).lies.join("; ")
    }

    #[test]
    fn metrics_that_tell_the_truth_pass() {
        assert_eq!(lies(samples(20, 0.0, 7.0, 4.0), 2, "crash"), "");
    }

    #[test]
    fn a_move_may_be_counted_when_the_answer_comes_and_no_later() {
        for (until, expect) in [(10, ""), (5, ""), (4, "2 moves were counted")] {
            let found = lies_of(samples(20, 0.0, 7.0, 4.0), 2, until, "crash");
            assert!(found.starts_with(expect) && found.is_empty() == expect.is_empty(), "{found}");
        }
    }

    #[test]
    fn metrics_that_do_not_move_as_they_should_are_found() {
        for (last, changes, reason, expect) in [
            (
                samples(20, 0.0, 7.0, 4.0),
                1,
                "crash",
                "2 moves were counted, the ShardMaps tell of 1",
            ),
            (
                samples(20, 0.0, 7.0, 4.0),
                2,
                "leave",
                "no handover was counted under the reason leave",
            ),
            (samples(20, 1.0, 7.0, 4.0), 2, "crash", "a still tells of 1 unowned shards"),
            (samples(20, 0.0, 7.0, 1.0), 2, "crash", "none was seen older than 1.0 s"),
        ] {
            let found = lies(last, changes, reason);
            assert!(found.contains(expect), "{expect}: {found}");
        }
    }
}
