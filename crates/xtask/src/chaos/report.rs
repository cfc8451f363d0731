//! What a run comes to: a table by fault, as text, Markdown or JSON. Pure.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

/// The form of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Columns, for people.
    Text,
    /// For a document.
    Markdown,
    /// For programs.
    Json,
}

/// All rounds of one fault.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// The fault's name.
    pub fault: String,
    /// Rounds.
    pub rounds: usize,
    /// How long shards were nobody's, one for each change of owners.
    pub unowned: Vec<Duration>,
    /// How long it took from the end of the fault until all changes had taken effect, one a round.
    pub converged: Vec<Duration>,
    /// Keys dispatched twice at once.
    pub overlaps: usize,
    /// Dispatches and writes by others than the owner.
    pub trespasses: usize,
    /// Writes that the fence refused.
    pub refused: u64,
    /// Changes that never took effect.
    pub lost: usize,
    /// Metrics and answers of `leasehold status` that were not true.
    pub lies: usize,
}

/// A table: a heading and rows, every cell as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The columns.
    pub heading: Vec<String>,
    /// The rows, each as long as the heading.
    pub rows: Vec<Vec<String>>,
}

impl Row {
    /// Whether something happened that must never happen.
    pub fn is_bad(&self) -> bool {
        self.overlaps + self.trespasses + self.lost + self.lies > 0
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
            self.overlaps.to_string(),
            self.trespasses.to_string(),
            self.refused.to_string(),
            self.lost.to_string(),
            time(&self.converged, 50),
            time(&self.converged, 100),
            self.lies.to_string(),
        ]
    }

    fn json(&self) -> Value {
        let time = |times: &[Duration], p| percentile(times, p).map(|time| time.as_secs_f64());
        let times = |all: &[Duration]| json!({"count": all.len(), "p50": time(all, 50), "p99": time(all, 99), "max": time(all, 100)});
        json!({
            "fault": self.fault,
            "rounds": self.rounds,
            "unownedSeconds": times(&self.unowned),
            "convergedSeconds": times(&self.converged),
            "doublyDispatched": self.overlaps,
            "trespasses": self.trespasses,
            "refusedWrites": self.refused,
            "lostUpdates": self.lost,
            "untrueMetrics": self.lies,
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
        "doubly dispatched",
        "trespasses",
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

impl Table {
    /// As text or Markdown; what is asked for as JSON is shown by [`json`].
    pub fn render(&self, format: Format) -> String {
        let lines = || std::iter::once(&self.heading).chain(&self.rows);
        let width = |n: usize| lines().map(|cells| cells[n].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.heading.len()).map(width).collect();
        let mut text = String::new();
        for (index, cells) in lines().enumerate() {
            let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            let padded: Vec<String> = padded.collect();
            let line = match format {
                Format::Markdown => format!("| {} |", padded.join(" | ")),
                Format::Text | Format::Json => padded.join("  ").trim_end().to_owned(),
            };
            writeln!(text, "{line}").expect("writing to a string never fails");
            if index == 0 && format == Format::Markdown {
                let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
                writeln!(text, "|-{}-|", rule.join("-|-")).expect("as above");
            }
        }
        text
    }
}

/// The smallest of the values that is no less than `percent` of all of them.
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

    fn row() -> Row {
        let millis = |all: &[u64]| all.iter().copied().map(Duration::from_millis).collect();
        Row {
            fault: "kill".to_owned(),
            rounds: 2,
            unowned: millis(&[7_000, 8_040, 250]),
            converged: millis(&[100, 9_000]),
            refused: 4,
            ..Row::default()
        }
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<Duration> = (1..=50).map(Duration::from_secs).collect();
        for (percent, expect) in [(50, 25), (99, 50), (100, 50), (1, 1)] {
            assert_eq!(percentile(&values, percent), Some(Duration::from_secs(expect)));
        }
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn every_form_says_the_same() {
        let table = table(&[row()]);
        let text = table.render(Format::Text);
        let words = [
            "kill", "2", "3", "7.0 s", "8.0 s", "8.0 s", "0", "0", "4", "0", "0.100 s", "9.0 s",
            "0",
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
    fn a_row_is_bad_for_each_thing_that_must_not_be() {
        assert!(!row().is_bad());
        for bad in [
            Row { overlaps: 1, ..row() },
            Row { trespasses: 1, ..row() },
            Row { lost: 1, ..row() },
            Row { lies: 1, ..row() },
        ] {
            assert!(bad.is_bad());
        }
    }
}
