//! Two reports side by side. Pure, but for reading them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::machine::Machine;
use crate::report::FORMAT;
use crate::slo::{Figures, Measure};

/// What two reports are compared by.
#[derive(Debug, Deserialize)]
pub struct Recorded {
    format: u32,
    scenario: Map<String, Value>,
    seed: u64,
    machine: Machine,
    figures: Figures,
    unconverged: usize,
    orphans: usize,
    verdict: Vec<String>,
}

/// One measure of two runs.
#[derive(Debug, PartialEq)]
struct Row {
    measure: Measure,
    before: Option<f64>,
    after: Option<f64>,
}

impl Recorded {
    /// Reads a `report.json`.
    ///
    /// # Errors
    /// If it cannot be read, or was written by another version of the load test.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
        Self::parse(&text).with_context(|| format!("read the report {}", file.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let recorded: Self = serde_json::from_str(text).context(
            "it is not a report.json of this load test; write it anew with `loadtest run`",
        )?;
        let found = recorded.format;
        ensure!(found == FORMAT, "its format is {found}, this load test reads {FORMAT}");
        Ok(recorded)
    }

    /// Why it failed. Its figures are of what converged alone.
    fn failures(&self) -> Vec<String> {
        let counts = [
            (self.unconverged, "changes never converged"),
            (self.orphans, "Deployments were left behind"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let counts = counts.map(|(count, what)| format!("{count} {what}"));
        counts.chain(self.verdict.iter().cloned()).collect()
    }

    /// What it ran, by keys. Limits are no part of that.
    fn ran(&self) -> BTreeMap<String, String> {
        let mut ran = BTreeMap::from([
            ("machine".to_owned(), self.machine.words()),
            ("seed".to_owned(), self.seed.to_string()),
        ]);
        for (key, value) in self.scenario.iter().filter(|(key, _)| *key != "slo") {
            match value {
                Value::Object(of) => {
                    ran.extend(of.iter().map(|(k, v)| (format!("{key}.{k}"), v.to_string())));
                }
                other => drop(ran.insert(key.clone(), other.to_string())),
            }
        }
        ran
    }
}

/// A table of both, with what differs between their runs and why they failed above it; and, if there is a bound, a
/// line for each measure that is more than `fail_above` times what it was, and for each reason why the second failed.
pub fn diff(before: &Recorded, after: &Recorded, fail_above: Option<f64>) -> (String, Vec<String>) {
    let mut text = String::new();
    let (a, b) = (before.ran(), after.ran());
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    for key in keys.into_iter().filter(|key| a.get(*key) != b.get(*key)) {
        let [a, b] = [&a, &b].map(|of| of.get(key).map_or("none", String::as_str));
        text.push_str(&format!("The {key} differs: {a} | {b}\n\n"));
    }
    for (run, failures) in [("A", before.failures()), ("B", after.failures())] {
        failures.iter().for_each(|why| text.push_str(&format!("{run} failed: {why}\n\n")));
    }
    let rows = rows(&before.figures, &after.figures);
    text.push_str("| measure | A | B | B/A |\n|---|---|---|---|\n");
    for row in &rows {
        let (_, title, _) = row.measure.words();
        let shown = |value: Option<f64>| value.map_or("none".to_owned(), |v| row.measure.shown(v));
        let ratio = row.ratio().map_or(String::new(), |ratio| format!("{ratio:.2}"));
        writeln!(text, "| {title} | {} | {} | {ratio} |", shown(row.before), shown(row.after))
            .expect("writing to a String cannot fail");
    }
    let worse = rows.iter().filter_map(|row| row.worse_than(fail_above?));
    let failed = after.failures().into_iter().filter(|_| fail_above.is_some());
    (text, failed.chain(worse).collect())
}

fn rows(before: &Figures, after: &Figures) -> Vec<Row> {
    let measures: BTreeSet<Measure> = before.keys().chain(after.keys()).copied().collect();
    let row = |measure: Measure| Row {
        measure,
        before: before.get(&measure).copied(),
        after: after.get(&measure).copied(),
    };
    measures.into_iter().map(row).collect()
}

impl Row {
    /// How many times what it was. Nothing is the same as nothing, and something endlessly more.
    fn ratio(&self) -> Option<f64> {
        let (before, after) = self.before.zip(self.after)?;
        Some(if after == before { 1.0 } else { after / before })
    }

    /// What to say if it is more than `bound` times what it was, or was measured and no longer is.
    fn worse_than(&self, bound: f64) -> Option<String> {
        let (key, title, _) = self.measure.words();
        let before = self.measure.shown(self.before?);
        match (self.after, self.ratio()) {
            (Some(after), Some(ratio)) if ratio > bound => {
                let after = self.measure.shown(after);
                Some(format!(
                    "{key}: {title}: {before} -> {after}, {ratio:.2} times, allowed {bound}"
                ))
            }
            (None, _) => Some(format!("{key}: {title}: {before} -> not measured")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::example;

    fn recorded(figures: &[(Measure, f64)]) -> Recorded {
        let mut report = example(&[]);
        report.figures = figures.iter().copied().collect();
        Recorded::parse(&report.json().unwrap()).unwrap()
    }

    #[test]
    fn ratios_of_what_both_have() {
        let a = recorded(&[(Measure::ConvergedP99Ms, 100.0), (Measure::Series, 900.0)]);
        let b = recorded(&[(Measure::ConvergedP99Ms, 125.0), (Measure::PeakRssMib, 50.5)]);
        let (text, worse) = diff(&a, &b, None);
        let expect = "| measure | A | B | B/A |\n|---|---|---|---|\n\
                      | change to converged, p99 | 100 ms | 125 ms | 1.25 |\n\
                      | peak memory of a replica | none | 50.50 MiB |  |\n\
                      | series of a replica | 900 | none |  |\n";
        assert_eq!((text.as_str(), worse.len()), (expect, 0));
    }

    #[test]
    fn what_got_worse_beyond_the_bound() {
        let a = recorded(&[(Measure::ConvergedP99Ms, 100.0), (Measure::ReconcileErrors, 0.0)]);
        let check = |figures: &[(Measure, f64)], bound, expect: &[&str]| {
            assert_eq!(diff(&a, &recorded(figures), Some(bound)).1, expect);
        };
        let same = (Measure::ReconcileErrors, 0.0);
        check(&[(Measure::ConvergedP99Ms, 120.0), same], 1.2, &[]);
        check(
            &[(Measure::ConvergedP99Ms, 121.0), same],
            1.2,
            &[
                "converged_p99_ms: change to converged, p99: 100 ms -> 121 ms, 1.21 times, allowed 1.2",
            ],
        );
        check(
            &[(Measure::ReconcileErrors, 1.0)],
            9.0,
            &[
                "converged_p99_ms: change to converged, p99: 100 ms -> not measured",
                "reconcile_errors: reconciles that ended in an error: 0 -> 1, inf times, allowed 9",
            ],
        );
    }

    #[test]
    fn a_run_that_failed_is_worse_whatever_its_figures() {
        let a = recorded(&[]);
        let mut failed = example(&[(Measure::CalmP99Ms, 19.0)]);
        failed.figures = Figures::new();
        (failed.unconverged, failed.orphans) = (900, 2);
        let b = Recorded::parse(&failed.json().unwrap()).unwrap();
        let (text, worse) = diff(&a, &b, Some(1.2));
        let limit = "scenario basic: slo.calm_p99_ms: change to converged away from faults, p99: limit 19 ms, measured 20 ms";
        let expect = ["900 changes never converged", "2 Deployments were left behind", limit];
        assert_eq!(worse, expect);
        assert!(text.starts_with("B failed: 900 changes never converged\n\n"), "{text}");
        assert!(diff(&a, &b, None).1.is_empty() && diff(&b, &a, Some(1.2)).1.is_empty());
    }

    #[test]
    fn what_differs_between_the_loads_is_named() {
        let a = recorded(&[]);
        let mut other = example(&[(Measure::CalmP99Ms, 30.0)]);
        other.figures = Figures::new();
        other.scenario.objects.count = 50_000;
        other.scenario.load.updates_per_second = 4.0;
        other.scenario.faults.clear();
        other.seed = 2;
        let b = Recorded::parse(&other.json().unwrap()).unwrap();
        let (text, worse) = diff(&a, &b, Some(1.2));
        let named: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("The ")?.split(' ').next()).collect();
        let expect = ["faults", "load.updates_per_second", "objects.count", "seed"];
        assert_eq!((named.as_slice(), worse.len()), (expect.as_slice(), 0));
        assert!(text.contains("The objects.count differs: 3000 | 50000\n"), "{text}");
    }

    #[test]
    fn different_machines_are_named_and_other_formats_refused() {
        let (a, mut b) = (recorded(&[]), recorded(&[]));
        b.machine.cores = 64;
        assert!(diff(&a, &b, None).0.starts_with("The machine differs: leasehold <0>; "));
        let mut report: Value = serde_json::from_str(&example(&[]).json().unwrap()).unwrap();
        report["format"] = 2.into();
        let error = Recorded::parse(&report.to_string()).unwrap_err().to_string();
        assert_eq!(error, "its format is 2, this load test reads 1");
        assert!(Recorded::parse("{}").is_err());
    }
}
