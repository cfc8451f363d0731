//! The report as Markdown.

use std::fmt::{Result, Write};

use crate::growth::Growth;
use crate::latencies::{Convergence, GREAT_LAG};
use crate::report::{Calm, Replica, Report, Start, Suffered};
use crate::sampler::Scraped;
use crate::scenario::{Scenario, Troubles};
use crate::slo::Measure;

/// The share of a load or of a flood that is enough of it.
const LEAST_MADE: f64 = 0.9;
/// The fewest changes whose 99th percentile is not that of the slowest.
const FEW: u64 = 100;
/// What is said of a manager that did not end on SIGTERM, in time and with exit code 0.
pub const UNCLEAN_STOP: &str = "a manager did not stop cleanly on SIGTERM; see the logs";

impl Report {
    /// The report as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        let parts =
            [Self::heading, Self::figures, Self::suffered, Self::growth, Self::costs, Self::start];
        let written = parts.iter().try_for_each(|write| write(self, &mut text));
        written.expect("writing to a String cannot fail");
        text
    }

    /// One line for each limit that was exceeded, and for what else is wrong with the run, with the scenario's name.
    pub fn verdict(&self) -> Vec<String> {
        let name = &self.scenario.name;
        self.wrong().iter().map(|why| format!("scenario {name}: {why}")).collect()
    }

    /// The same without the name, for who says it already.
    pub fn wrong(&self) -> Vec<String> {
        let exceeded = self.exceeded.iter().map(ToString::to_string);
        let unclean = self.unclean_stop.then(|| UNCLEAN_STOP.to_owned());
        exceeded
            .chain(self.unconverged())
            .chain(self.orphans())
            .chain(unclean)
            .chain(self.weak_load())
            .chain(self.without_latency())
            .chain(self.faults_without_changes())
            .chain(self.weak_flood())
            .collect()
    }

    /// What to say if changes never converged. The latencies are those of the others.
    fn unconverged(&self) -> Option<String> {
        let (number, examples) = (self.unconverged, self.unconverged_examples.join(", "));
        (number > 0)
            .then(|| format!("{number} changes never converged, such as those of {examples}"))
    }

    /// What to say if Deployments outlive their TDSets.
    fn orphans(&self) -> Option<String> {
        let number = self.orphans;
        (number > 0).then(|| format!("{number} Deployments of deleted TDSets were left behind"))
    }

    /// What a reader of the figures should know, although the run does not fail by it.
    pub fn remarks(&self) -> impl Iterator<Item = String> {
        let changes = self.convergence.changes;
        let few = (1..FEW).contains(&changes).then(|| {
            format!("Of {changes} changes p99 is that of the slowest: with {FEW} or more it would say something else.")
        });
        let broke = self.watch_broke.iter().map(|why| {
            format!("A watch of the load test's own broke, of {why}. It saw late what it missed: latencies are too long.")
        });
        self.late().into_iter().chain(few).chain(broke)
    }

    /// What to say if the generator fell behind.
    fn late(&self) -> Option<String> {
        let lag = self.figures.get(&Measure::GeneratorLagP99Ms)?;
        let p99 = self.figures.get(&Measure::ConvergedP99Ms)?;
        (*lag > GREAT_LAG * p99).then(|| {
            format!(
                "The generator was late: p99 {lag:.0} ms, beside {p99:.0} ms from change to converged. The machine was \
                 too small for this load, and the latencies say little about the managers."
            )
        })
    }

    /// What to say if no change was due, or too many when there was no object to change.
    fn weak_load(&self) -> Option<String> {
        let (made, impossible) = (self.changes.made(), self.changes.impossible);
        let due = made + impossible;
        if due == 0 {
            let load = &self.scenario.load;
            let asked = load.updates_per_second + load.creates_per_second + load.deletes_per_second;
            let said =
                "no change was due under this load: let it last longer, or give higher rates";
            return (asked > 0.0).then(|| said.to_owned());
        }
        ((made as f64) < LEAST_MADE * due as f64).then(|| {
            format!("{impossible} of {due} changes were due when there was no object to change: give more objects")
        })
    }

    /// What to say if too many changes have no latency: slow ones are deleted more often than fast ones.
    fn without_latency(&self) -> Option<String> {
        let (converged, deleted) = (self.convergence.changes, self.deleted);
        let all = converged + deleted;
        ((converged as f64) < LEAST_MADE * all as f64).then(|| {
            format!(
                "the objects of {deleted} of {all} changes were deleted before these converged, and the percentiles \
                 are those of the others: give more objects or fewer deletions"
            )
        })
    }

    /// What to say of faults through which no latency was measured.
    fn faults_without_changes(&self) -> impl Iterator<Item = String> {
        let without = self.faults.iter().filter(|fault| fault.convergence.changes == 0);
        without.map(|Suffered { what, .. }| {
            format!(
                "of the changes due through the fault `{what}` none converged: nothing says what it cost; make it \
                 earlier, or give higher rates"
            )
        })
    }

    /// What to say if flooded clusters had less to do than the scenario says: the machine could not make more.
    fn weak_flood(&self) -> Option<String> {
        let Troubles { flooded, flood_per_second, .. } = self.scenario.troubles.as_ref()?;
        let (made, asked) = (self.flood_per_second, f64::from(*flooded) * flood_per_second);
        (made < LEAST_MADE * asked).then(|| {
            format!("the flood made {made:.0} changes a second, and troubles says {asked:.0}: the machine is too small")
        })
    }

    fn heading(&self, out: &mut String) -> Result {
        let Scenario { name, fleet, objects, load, .. } = &self.scenario;
        let passed = if self.succeeded() { "passed" } else { "FAILED" };
        writeln!(out, "# Load test `{name}`: {passed}\n")?;
        let verdict = self.verdict();
        for line in &verdict {
            writeln!(out, "- {line}")?;
        }
        if !verdict.is_empty() {
            writeln!(out)?;
        }
        for remark in self.remarks() {
            writeln!(out, "{remark}\n")?;
        }
        writeln!(
            out,
            "{} TDSets over {} clusters, {} replicas, {:.0} s of load, seed {}.\n",
            objects.count,
            fleet.clusters,
            fleet.replicas,
            load.duration.as_secs_f64(),
            self.seed
        )?;
        writeln!(out, "{}.\n", self.machine.words())?;
        if let Some(Troubles { dead, flooded, from_start, .. }) = &self.scenario.troubles {
            let when = if *from_start { "from the start" } else { "while the load is made again" };
            writeln!(
                out,
                "Other clusters, {when}: {dead} that never answer, {flooded} that are flooded.\n"
            )?;
        }
        Ok(())
    }

    fn figures(&self, out: &mut String) -> Result {
        writeln!(out, "| measure | value | limit |\n|---|---|---|")?;
        for (measure, value) in &self.figures {
            let (_, title, _) = measure.words();
            let limit = self.scenario.slo.get(measure).map(|limit| measure.shown(*limit));
            let limit = limit.unwrap_or_default();
            writeln!(out, "| {title} | {} | {limit} |", measure.shown(*value))?;
        }
        let changes = &self.changes;
        writeln!(
            out,
            "| changes under load | {} creates, {} updates, {} deletes ({:.1}/s) | |",
            changes.creates, changes.updates, changes.deletes, self.changes_per_second
        )?;
        if self.scenario.troubles.as_ref().is_some_and(|troubles| troubles.flooded > 0) {
            writeln!(out, "| changes of flooded clusters | {:.0}/s | |", self.flood_per_second)?;
        }
        if changes.impossible > 0 {
            writeln!(out, "| changes due without an object | {} | |", changes.impossible)?;
        }
        writeln!(out, "| longest lag of the generator | {:.1} ms | |", changes.lag_max_ms)?;
        writeln!(out, "| change to converged | {} | |", words(self.convergence))?;
        if let Some(Calm { convergence, queue_p99_ms }) = &self.calm {
            let queue = queue_p99_ms.map_or("none".to_owned(), |ms| format!("{ms:.2} ms"));
            writeln!(out, "| before other clusters made trouble | {} | |", words(*convergence))?;
            writeln!(out, "| time in queue before that | p99 {queue} | |")?;
        }
        if self.deleted > 0 {
            writeln!(out, "| changes of objects deleted before | {} | |", self.deleted)?;
        }
        writeln!(out, "| changes never converged | {} | |", self.unconverged)?;
        writeln!(out, "| Deployments left behind | {} | |\n", self.orphans)
    }

    /// What faults cost, as a table; nothing without faults.
    pub fn suffered(&self, out: &mut String) -> Result {
        let Some(away) = self.away_from_faults else { return Ok(()) };
        writeln!(out, "| fault | at | changes then | p50 ms | p99 ms | max ms |")?;
        writeln!(out, "|---|---|---|---|---|---|")?;
        let row = |out: &mut String, what: &str, at: String, of: Convergence| {
            let Convergence { changes, p50_ms, p99_ms, max_ms } = of;
            writeln!(out, "| {what} | {at} | {changes} | {p50_ms} | {p99_ms} | {max_ms} |")
        };
        row(out, "none", "the rest of the load".to_owned(), away)?;
        for fault in &self.faults {
            row(out, &fault.what, fault.when(), fault.convergence)?;
        }
        writeln!(out)
    }

    fn costs(&self, out: &mut String) -> Result {
        writeln!(out, "| replica | shards | reconciles | cores | resident MiB | peak MiB |")?;
        writeln!(out, "|---|---|---|---|---|---|")?;
        for r in &self.replicas {
            writeln!(
                out,
                "| {} | {} | {} | {:.2} | {:.1} | {:.1} |",
                r.name, r.shards, r.reconciles, r.cores, r.resident_mib, r.peak_mib
            )?;
        }
        writeln!(
            out,
            "\n| replica's metrics | series | most of one cluster | page, KiB | compressed, KiB |"
        )?;
        writeln!(out, "|---|---|---|---|---|")?;
        for Replica { name, scraped, .. } in &self.replicas {
            let Scraped { series, most_of_a_cluster, bytes, compressed_bytes } = scraped;
            let page = bytes >> 10;
            let compressed = compressed_bytes.map_or("-".to_owned(), |n| (n >> 10).to_string());
            writeln!(out, "| {name} | {series} | {most_of_a_cluster} | {page} | {compressed} |")?;
        }
        writeln!(out)
    }

    fn growth(&self, out: &mut String) -> Result {
        if !self.growth.is_empty() {
            writeln!(out, "{}", growth(&self.growth))?;
        }
        Ok(())
    }

    fn start(&self, out: &mut String) -> Result {
        let heading = "replica, when the initial objects had converged";
        writeln!(out, "| {heading} | CPU s | resident MiB | peak MiB |\n|---|---|---|---|")?;
        for Start { name, cpu_seconds, resident_mib, peak_mib } in &self.start {
            writeln!(out, "| {name} | {cpu_seconds:.1} | {resident_mib:.1} | {peak_mib:.1} |")?;
        }
        Ok(())
    }
}

/// What grew under the load, as a table.
pub fn growth(all: &[Growth]) -> String {
    let mut text = "| replica | what | mean | trend for an hour |\n|---|---|---|---|\n".to_owned();
    for Growth { replica, what, mean, per_hour, error, .. } in all {
        let trend = match error.is_finite() {
            true => format!("{mean:.1} | {per_hour:+.2} ± {error:.2}"),
            false => "not measured | -".to_owned(),
        };
        writeln!(text, "| {replica} | {what} | {trend} |")
            .expect("writing to a String cannot fail");
    }
    text
}

fn words(Convergence { changes, p50_ms, p99_ms, max_ms }: Convergence) -> String {
    format!("{changes} changes: p50 {p50_ms} ms, p99 {p99_ms} ms, max {max_ms} ms")
}

#[cfg(test)]
mod tests {
    use crate::report::tests::example;
    use crate::slo::Measure;

    #[test]
    fn a_fault_through_which_nothing_was_measured_fails_the_run() {
        let mut report = example(&[]);
        report.faults[0].convergence = crate::latencies::Convergence::default();
        let said = "scenario basic: of the changes due through the fault `kill replica 2, back after 1s` \
                    none converged";
        assert!(report.verdict()[0].starts_with(said), "{:?}", report.verdict());
    }

    #[test]
    fn changes_without_a_latency_are_few_or_fail_the_run() {
        let mut report = example(&[]);
        for (deleted, succeeds) in [(3, true), (4, false)] {
            report.deleted = deleted;
            assert_eq!(report.succeeded(), succeeds, "{deleted}");
        }
        let said =
            "scenario basic: the objects of 4 of 34 changes were deleted before these converged";
        assert!(report.verdict()[0].starts_with(said), "{:?}", report.verdict());
    }

    #[test]
    fn a_generator_that_falls_behind_is_named() {
        let mut report = example(&[]);
        for (lag, late) in [(500.0, false), (501.0, true)] {
            report.figures.insert(Measure::GeneratorLagP99Ms, lag);
            assert_eq!(report.markdown().contains("The generator was late: p99 501 ms"), late);
        }
        assert!(report.succeeded());
        report.figures.remove(&Measure::ConvergedP99Ms);
        assert_eq!(report.late(), None);
    }

    #[test]
    fn a_percentile_of_few_changes_is_named() {
        let mut report = example(&[]);
        assert!(report.markdown().contains("Of 30 changes p99 is that of the slowest"));
        report.convergence.changes = 100;
        assert_eq!(report.remarks().count(), 0);
    }

    #[test]
    fn a_watch_of_its_own_that_broke_is_named() {
        let mut report = example(&[]);
        report.watch_broke = Some("cluster-001: gone".to_owned());
        let said = "A watch of the load test's own broke, of cluster-001: gone. ";
        assert!(report.markdown().contains(said) && report.succeeded(), "{}", report.markdown());
    }

    #[test]
    fn it_says_what_failed_and_what_faults_cost() {
        let text = example(&[(Measure::FaultP99Ms, 900.0)]).markdown();
        for line in [
            "# Load test `basic`: FAILED",
            "- scenario basic: slo.fault_p99_ms: change to converged after a fault, p99: limit 900 ms, \
             measured 2000 ms",
            "| change to converged after a fault, p99 | 2000 ms | 900 ms |",
            "| none | the rest of the load | 24 | 20 | 20 | 20 |",
            "| kill replica 2, back after 1s | 22.0 s to 23.0 s, and 5 s after | 6 | 2000 | 2000 | 2000 |",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}\nis not in\n{text}");
        }
    }
}
