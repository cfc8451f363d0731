//! The report: the scenario and what was measured, as JSON and Markdown.

use std::fmt::Write;
use std::time::Duration;

use hdrhistogram::Histogram as Latencies;
use serde::Serialize;

use crate::generate::Changes;
use crate::scenario::{Scenario, Troubles};
use loadtest::scrape::Histogram;
use loadtest::usage::Usage;

/// Latencies of one phase, in milliseconds.
#[derive(Debug, Serialize)]
pub struct Convergence {
    /// How many changes converged.
    pub changes: u64,
    /// Median.
    pub p50_ms: u64,
    /// 99th percentile.
    pub p99_ms: u64,
    /// The slowest.
    pub max_ms: u64,
}

/// What was measured before other clusters made trouble.
#[derive(Debug, Serialize)]
pub struct Calm {
    /// Time from change to convergence, measured from outside.
    pub convergence: Convergence,
    /// Time in queue, as in [`Report`].
    pub queue_p99_seconds: Option<f64>,
}

/// What the initial objects cost one replica.
#[derive(Debug, Serialize)]
pub struct Start {
    /// Its identity.
    pub name: String,
    /// CPU time used so far, in seconds.
    pub cpu_seconds: f64,
    /// Resident memory, in MiB.
    pub resident_mib: f64,
    /// Most resident memory so far, in MiB.
    pub peak_mib: f64,
}

/// What the load cost one replica.
#[derive(Debug, Serialize)]
pub struct Replica {
    /// Its identity.
    pub name: String,
    /// Reconciles during the load.
    pub reconciles: f64,
    /// Shards held at the end.
    pub shards: f64,
    /// Cores used during the load; 1.0 is one core.
    pub cores: f64,
    /// Resident memory at the end, in MiB.
    pub resident_mib: f64,
    /// Most resident memory of the run, in MiB.
    pub peak_mib: f64,
    /// Its metrics at the end.
    pub scraped: Scraped,
}

/// What one page of metrics costs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Scraped {
    /// Its series.
    pub series: usize,
    /// Those of the cluster that has most.
    pub most_of_a_cluster: usize,
    /// Its length.
    pub bytes: usize,
    /// Its length as it travels, compressed with gzip.
    pub compressed_bytes: usize,
}

/// Everything measured in one run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The scenario.
    pub scenario: Scenario,
    /// The generator's seed.
    pub seed: u64,
    /// From the start of the managers until all initial objects converged, in seconds.
    pub initial_seconds: f64,
    /// What that cost each replica.
    pub start: Vec<Start>,
    /// Changes made under load.
    pub changes: Changes,
    /// Changes per second that were actually made under load.
    pub changes_per_second: f64,
    /// What the same load measured before other clusters made trouble, if they did.
    pub calm: Option<Calm>,
    /// Time from change to convergence under load, measured from outside.
    pub convergence: Convergence,
    /// Time in queue of the measured clusters' keys under load, 99th percentile, in seconds; as
    /// exact as the buckets.
    pub queue_p99_seconds: Option<f64>,
    /// Time in reconcile under load, 99th percentile, in seconds; as exact as the buckets.
    pub reconcile_p99_seconds: Option<f64>,
    /// Reconciles that ended in an error, in all replicas and the whole run.
    pub reconcile_errors: f64,
    /// Changes that never converged.
    pub unconverged: usize,
    /// Some of their objects.
    pub unconverged_examples: Vec<String>,
    /// Deployments of deleted TDSets that were not deleted.
    pub orphans: usize,
    /// The replicas.
    pub replicas: Vec<Replica>,
}

/// One replica's figures at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// From `/proc`.
    pub usage: Usage,
    /// Its metrics.
    pub scraped: Scraped,
    /// Reconciles so far.
    pub reconciles: f64,
    /// Errors so far.
    pub errors: f64,
    /// Shards held.
    pub shards: f64,
    /// Time in queue so far, of the measured clusters.
    pub queue: Histogram,
    /// Time in reconcile so far.
    pub reconcile: Histogram,
}

impl Convergence {
    /// The figures of recorded latencies.
    pub fn of(latencies: &Latencies<u64>) -> Self {
        Self {
            changes: latencies.len(),
            p50_ms: latencies.value_at_quantile(0.5),
            p99_ms: latencies.value_at_quantile(0.99),
            max_ms: latencies.max(),
        }
    }
}

impl Start {
    /// The figures of one replica.
    pub fn of(name: &str, sample: &Sample) -> Self {
        Self {
            name: name.to_owned(),
            cpu_seconds: sample.usage.cpu.as_secs_f64(),
            resident_mib: mib(sample.usage.resident_bytes),
            peak_mib: mib(sample.usage.peak_resident_bytes),
        }
    }
}

impl Replica {
    /// The figures of one replica between two samples `load` apart.
    pub fn between(name: &str, before: &Sample, after: &Sample, load: Duration) -> Self {
        let cpu = after.usage.cpu.as_secs_f64() - before.usage.cpu.as_secs_f64();
        Self {
            name: name.to_owned(),
            reconciles: after.reconciles - before.reconciles,
            shards: after.shards,
            cores: cpu / load.as_secs_f64(),
            resident_mib: mib(after.usage.resident_bytes),
            peak_mib: mib(after.usage.peak_resident_bytes),
            scraped: after.scraped,
        }
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

impl Report {
    /// Whether every change converged and no Deployment was left behind.
    pub fn succeeded(&self) -> bool {
        self.unconverged == 0 && self.orphans == 0
    }

    /// The report as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        self.write_markdown(&mut text).expect("writing to a String cannot fail");
        text
    }

    fn write_markdown(&self, out: &mut String) -> std::fmt::Result {
        let Scenario { name, fleet, objects, load, .. } = &self.scenario;
        writeln!(
            out,
            "# Load test `{name}`: {}\n",
            if self.succeeded() { "passed" } else { "FAILED" }
        )?;
        writeln!(
            out,
            "{} TDSets over {} clusters, {} replicas, {:.0} s of load, seed {}.\n",
            objects.count,
            fleet.clusters,
            fleet.replicas,
            load.duration.as_secs_f64(),
            self.seed
        )?;
        if let Some(Troubles { dead, flooded, from_start, .. }) = &self.scenario.troubles {
            let when = if *from_start { "from the start" } else { "while the load is made again" };
            writeln!(
                out,
                "Other clusters, {when}: {dead} that never answer, {flooded} that are flooded.\n"
            )?;
        }
        let seconds = |value: Option<f64>| value.map_or("none".into(), |v| format!("{v:.3} s"));
        let millis = |v: Option<f64>| v.map_or("none".into(), |v| format!("{:.2} ms", v * 1e3));
        let Convergence { changes, p50_ms, p99_ms, max_ms } = self.convergence;
        writeln!(out, "| measure | value |\n|---|---|")?;
        writeln!(out, "| all initial objects converged after | {:.1} s |", self.initial_seconds)?;
        writeln!(
            out,
            "| changes under load | {} creates, {} updates, {} deletes ({:.1}/s) |",
            self.changes.creates,
            self.changes.updates,
            self.changes.deletes,
            self.changes_per_second
        )?;
        writeln!(
            out,
            "| change to converged, {changes} changes | p50 {p50_ms} ms, p99 {p99_ms} ms, max {max_ms} ms |"
        )?;
        writeln!(
            out,
            "| time in queue, measured clusters | p99 {} |",
            millis(self.queue_p99_seconds)
        )?;
        if let Some(calm) = &self.calm {
            let Convergence { changes, p50_ms, p99_ms, max_ms } = calm.convergence;
            writeln!(
                out,
                "| before other clusters made trouble, {changes} changes | p50 {p50_ms} ms, p99 {p99_ms} ms, max {max_ms} ms |"
            )?;
            let queue = millis(calm.queue_p99_seconds);
            writeln!(out, "| time in queue before that | p99 {queue} |")?;
        }
        writeln!(out, "| time in reconcile | p99 {} |", seconds(self.reconcile_p99_seconds))?;
        writeln!(out, "| reconciles that ended in an error | {} |", self.reconcile_errors)?;
        writeln!(out, "| changes never converged | {} |", self.unconverged)?;
        writeln!(out, "| Deployments left behind | {} |\n", self.orphans)?;
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
            let (page, compressed) = (bytes >> 10, compressed_bytes >> 10);
            writeln!(out, "| {name} | {series} | {most_of_a_cluster} | {page} | {compressed} |")?;
        }
        writeln!(
            out,
            "\n| replica, when the initial objects had converged | CPU s | resident MiB | peak MiB |"
        )?;
        writeln!(out, "|---|---|---|---|")?;
        for s in &self.start {
            let Start { name, cpu_seconds, resident_mib, peak_mib } = s;
            writeln!(out, "| {name} | {cpu_seconds:.1} | {resident_mib:.1} | {peak_mib:.1} |")?;
        }
        Ok(())
    }
}
