//! Two reports side by side. Pure, but for reading them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::report::FORMAT;
use crate::slo::{Figures, Measure};

/// What is said of a file that is something else, or not all there.
const NO_REPORT: &str = "it is not a whole report.json; write it anew with `loadtest run`";

/// What may differ where a bound counts: builds are what one compares, and a kernel counts memory anew at each boot.
const FREE: [&str; 2] = ["machine.leasehold", "machine.memory_mib"];

/// What two reports are compared by.
#[derive(Debug, Deserialize)]
pub struct Recorded {
    scenario: Map<String, Value>,
    seed: u64,
    machine: Map<String, Value>,
    figures: Figures,
    /// Why it failed. Its figures are of what converged alone.
    verdict: Vec<String>,
}

/// What reports of every version have.
#[derive(Deserialize)]
struct Versioned {
    format: u32,
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
        // The format first: another one may lack what is read here.
        let Versioned { format } = serde_json::from_str(text).context(NO_REPORT)?;
        ensure!(
            format == FORMAT,
            "its format is {format}, this load test reads {FORMAT}: compare reports that one load test wrote"
        );
        serde_json::from_str(text).context(NO_REPORT)
    }

    /// What it ran and on what, by keys. Limits are no part of that.
    fn ran(&self) -> BTreeMap<String, String> {
        let mut ran = BTreeMap::from([("seed".to_owned(), self.seed.to_string())]);
        let machine = self.machine.iter().map(|(k, v)| (format!("machine.{k}"), v.to_string()));
        ran.extend(machine);
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
/// line for each difference of their loads and machines, for each reason why the second failed, and for each measure
/// that is more than `fail_above` times what it was.
pub fn diff(before: &Recorded, after: &Recorded, fail_above: Option<f64>) -> (String, Vec<String>) {
    let mut text = String::new();
    let (a, b) = (before.ran(), after.ran());
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let mut other = Vec::new();
    for key in keys.into_iter().filter(|key| a.get(*key) != b.get(*key)) {
        let [a, b] = [&a, &b].map(|of| of.get(key).map_or("none", String::as_str));
        text.push_str(&format!("The {key} differs: {a} | {b}\n\n"));
        if !FREE.contains(&key.as_str()) {
            other.push(format!("{key} differs: figures of other loads or machines have no bound"));
        }
    }
    for (run, of) in [("A", before), ("B", after)] {
        of.verdict.iter().for_each(|why| text.push_str(&format!("{run} failed: {why}\n\n")));
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
    let failed = other.into_iter().chain(after.verdict.iter().cloned());
    let failed = failed.filter(|_| fail_above.is_some());
    (text, failed.chain(worse).collect())
}

/// A bound on the command line: how many times what it was a measure may be.
///
/// # Errors
/// If no measure could be above it, or each is.
pub fn bound(text: &str) -> Result<f64, String> {
    let bound: f64 =
        text.parse().map_err(|_| "it is not a number; write it like 1.2".to_owned())?;
    if !(bound.is_finite() && bound > 0.0) {
        return Err("it must be more than 0 and finite; write it like 1.2".to_owned());
    }
    Ok(bound)
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
        failed.unconverged_examples = vec!["a".to_owned()];
        let b = Recorded::parse(&failed.json().unwrap()).unwrap();
        let (text, worse) = diff(&a, &b, Some(1.2));
        let expect = [
            "scenario basic: slo.calm_p99_ms: change to converged away from faults, p99: limit 19 ms, measured 20 ms",
            "scenario basic: 900 changes never converged, such as those of a",
            "scenario basic: 2 Deployments of deleted TDSets were left behind",
        ];
        assert_eq!(worse, expect);
        assert!(text.starts_with(&format!("B failed: {}\n\n", expect[0])), "{text}");
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
        assert_eq!(named, expect);
        let said =
            |key: &str| format!("{key} differs: figures of other loads or machines have no bound");
        assert_eq!(worse, expect.map(said));
        assert!(diff(&a, &b, None).1.is_empty());
        assert!(text.contains("The objects.count differs: 3000 | 50000\n"), "{text}");
    }

    #[test]
    fn figures_of_other_machines_have_no_bound_and_those_of_other_builds_do() {
        let (a, mut b) = (recorded(&[]), recorded(&[]));
        b.machine["leasehold"] = "leasehold <1>".into();
        let (text, worse) = diff(&a, &b, Some(1.2));
        let expect = "The machine.leasehold differs: \"leasehold <0>\" | \"leasehold <1>\"\n\n";
        assert!(text.starts_with(expect) && worse.is_empty(), "{text}{worse:?}");
        b.machine["cores"] = 64.into();
        b.machine["servers_built"] = "debug".into();
        let (text, worse) = diff(&a, &b, Some(1.2));
        assert!(text.starts_with("The machine.cores differs: 0 | 64\n\n"), "{text}");
        let [cores, servers] = &worse[..] else { panic!("{worse:?}") };
        assert!(cores.starts_with("machine.cores differs: "), "{cores}");
        assert!(servers.starts_with("machine.servers_built differs: "), "{servers}");
        // As `curves` runs a scenario, and `run` does.
        let mut pinned = recorded(&[]);
        pinned.machine["replicas_cores"] = "1".into();
        let (_, worse) = diff(&a, &pinned, Some(1.2));
        let [cores] = &worse[..] else { panic!("{worse:?}") };
        assert!(cores.starts_with("machine.replicas_cores differs: "), "{cores}");
    }

    #[test]
    fn other_formats_and_what_is_no_whole_report_are_refused() {
        let whole = example(&[]).json().unwrap();
        let refused = |text: &str| Recorded::parse(text).unwrap_err().to_string();
        let mut report: Value = serde_json::from_str(&whole).unwrap();
        report["format"] = 3.into();
        let expect =
            "its format is 3, this load test reads 2: compare reports that one load test wrote";
        assert_eq!(refused(&report.to_string()), expect);
        // Whatever else is not there, or is another thing, in it.
        assert_eq!(refused(r#"{"format": 3, "figures": []}"#), expect);
        let half = &whole[..whole.len() / 2];
        for text in ["", "{}", "[]", r#"{"format": 2}"#, r#"{"format": -1}"#, half] {
            assert_eq!(refused(text), NO_REPORT, "{text}");
        }
    }

    #[test]
    fn a_bound_is_a_number_that_measures_can_exceed() {
        assert_eq!(bound("1.2"), Ok(1.2));
        for text in ["nan", "inf", "0", "-1.2", "1,2", ""] {
            assert!(bound(text).is_err_and(|why| why.ends_with("write it like 1.2")), "{text}");
        }
    }
}
