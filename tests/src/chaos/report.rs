//! The results of a run by fault, as a table or as JSON. Pure.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::table::Table;

/// All rounds of one fault.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// The fault's name.
    pub fault: String,
    /// Rounds.
    pub rounds: usize,
    /// How long a shard had no owner, for each change of owners.
    pub unowned: Vec<Duration>,
    /// How long nobody dispatched for a shard, for each change of owners after a crash that home saw.
    pub unserved: Vec<Duration>,
    /// How long it took from the end of the fault until all changes had taken effect, for each
    /// round.
    pub converged: Vec<Duration>,
    /// Keys that were dispatched twice at once.
    pub overlaps: usize,
    /// Dispatches and writes by members that did not own the shard.
    pub violations: usize,
    /// Writes that the fence refused.
    pub refused: u64,
    /// Changes that never took effect.
    pub lost: usize,
    /// Metrics and answers of `leasehold status` that were not true.
    pub untrue: usize,
}

/// How long nobody may dispatch for a shard after a crash: the Lease's duration and 5 s.
const MAX_UNSERVED: Duration = Duration::from_secs(13);

impl Row {
    /// Whether something happened that must never happen.
    pub fn is_bad(&self) -> bool {
        let late = self.unserved.iter().any(|time| *time > MAX_UNSERVED);
        late || self.overlaps + self.violations + self.lost + self.untrue > 0
    }

    fn cells(&self) -> Vec<String> {
        let time = |times: &[Duration], p| percentile(times, p).map_or("-".to_owned(), seconds);
        vec![
            self.fault.clone(),
            self.rounds.to_string(),
            self.unowned.len().to_string(),
            time(&self.unowned, 50),
            time(&self.unowned, 99),
            time(&self.unowned, 100),
            time(&self.unserved, 100),
            self.overlaps.to_string(),
            self.violations.to_string(),
            self.refused.to_string(),
            self.lost.to_string(),
            time(&self.converged, 50),
            time(&self.converged, 100),
            self.untrue.to_string(),
        ]
    }

    fn json(&self) -> Value {
        let time = |times: &[Duration], p| percentile(times, p).map(|time| time.as_secs_f64());
        let times = |all: &[Duration]| json!({"count": all.len(), "p50": time(all, 50), "p99": time(all, 99), "max": time(all, 100)});
        json!({
            "fault": self.fault,
            "rounds": self.rounds,
            "unownedSeconds": times(&self.unowned),
            "unservedSeconds": times(&self.unserved),
            "convergedSeconds": times(&self.converged),
            "doublyDispatched": self.overlaps,
            "violations": self.violations,
            "refusedWrites": self.refused,
            "lostUpdates": self.lost,
            "untrueMetrics": self.untrue,
        })
    }
}

/// The table of all faults.
pub fn table(rows: &[Row]) -> Table {
    let heading = [
        "fault",
        "rounds",
        "moves",
        "unowned p50",
        "p99",
        "max",
        "unserved max",
        "doubly dispatched",
        "violations",
        "refused by fence",
        "lost updates",
        "converged p50",
        "max",
        "untrue metrics",
    ];
    Table {
        heading: heading.map(str::to_owned).to_vec(),
        rows: rows.iter().map(Row::cells).collect(),
    }
}

/// The rows for programs.
pub fn json(rows: &[Row]) -> Value {
    rows.iter().map(Row::json).collect()
}

/// The smallest value that is no smaller than `percent` percent of all of them.
pub fn percentile(values: &[Duration], percent: usize) -> Option<Duration> {
    let mut sorted = values.to_vec();
    sorted.sort();
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// As `0.123 s`, or `12.3 s`.
pub fn seconds(time: Duration) -> String {
    match time.as_secs_f64() {
        short if short < 1.0 => format!("{short:.3} s"),
        long => format!("{long:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::table::Format;

    fn row() -> Row {
        let millis = |all: &[u64]| all.iter().copied().map(Duration::from_millis).collect();
        Row {
            fault: "kill".to_owned(),
            rounds: 2,
            unowned: millis(&[7_000, 8_040, 250]),
            unserved: millis(&[7_100, 8_900]),
            converged: millis(&[100, 9_000]),
            refused: 4,
            ..Row::default()
        }
    }

    #[test]
    fn percentiles_are_measured_values() {
        let values: Vec<Duration> = (1..=50).map(Duration::from_secs).collect();
        for (percent, expect) in [(50, 25), (99, 50), (100, 50), (1, 1)] {
            assert_eq!(percentile(&values, percent), Some(Duration::from_secs(expect)));
        }
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn every_form_shows_the_same() {
        let table = table(&[row()]);
        let text = table.render(Format::Text);
        let words = [
            "kill", "2", "3", "7.0 s", "8.0 s", "8.0 s", "8.9 s", "0", "0", "4", "0", "0.100 s",
            "9.0 s", "0",
        ];
        let line = text.lines().nth(1).unwrap();
        assert_eq!(
            line.split("  ").map(str::trim).filter(|w| !w.is_empty()).collect::<Vec<_>>(),
            words
        );
        let markdown = table.render(Format::Markdown);
        assert_eq!(markdown.lines().count(), 3);
        assert!(markdown.lines().all(|line| line.starts_with('|') && line.ends_with('|')));
        assert_eq!(json(&[row()])[0]["unownedSeconds"]["max"], 8.04);
    }

    #[test]
    fn a_row_is_bad_for_each_thing_that_must_not_happen() {
        assert!(!row().is_bad());
        for bad in [
            Row { unserved: vec![Duration::from_secs(14)], ..row() },
            Row { overlaps: 1, ..row() },
            Row { violations: 1, ..row() },
            Row { lost: 1, ..row() },
            Row { untrue: 1, ..row() },
        ] {
            assert!(bad.is_bad());
        }
    }
}
