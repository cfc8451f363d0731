//! The report as Markdown.

use std::fmt::{Result, Write};

use crate::growth::Growth;
use crate::latencies::Convergence;
use crate::report::{Calm, Replica, Report, Start};
use crate::sampler::Scraped;
use crate::scenario::{Scenario, Troubles};

/// The share of a load or of a flood that is enough of it.
const LEAST_MADE: f64 = 0.9;
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

    /// One line for each limit that was exceeded, and for what else is wrong with the run.
    pub fn verdict(&self) -> Vec<String> {
        let name = &self.scenario.name;
        let exceeded = self.exceeded.iter().map(ToString::to_string);
        let unclean = self.unclean_stop.then(|| UNCLEAN_STOP.to_owned());
        exceeded
            .chain(self.unconverged())
            .chain(self.orphans())
            .chain(unclean)
            .chain(self.weak_load())
            .chain(self.weak_flood())
            .map(|why| format!("scenario {name}: {why}"))
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

    /// What to say if too many changes were due when there was no object to change.
    fn weak_load(&self) -> Option<String> {
        let (made, impossible) = (self.changes.made(), self.changes.impossible);
        let due = made + impossible;
        ((made as f64) < LEAST_MADE * due as f64).then(|| {
            format!("{impossible} of {due} changes were due when there was no object to change: give more objects")
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
        writeln!(out, "| changes never converged | {} | |", self.unconverged)?;
        writeln!(out, "| Deployments left behind | {} | |\n", self.orphans)
    }

    fn suffered(&self, out: &mut String) -> Result {
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
        writeln!(text, "| {replica} | {what} | {mean:.1} | {per_hour:+.2} ± {error:.2} |")
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
