//! Workloads against the servers that controllers run: Go programs of `tests/real/workloads` that write
//! from several clients, and check in the end that what was acknowledged is true.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::node::Node;
use super::process::ChildProcess;
use super::{Scene, wait};

/// Longer than a workload takes to read all once more and to check its history.
const VERDICT_DEADLINE: Duration = Duration::from_secs(180);
const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// What a workload says of itself, and of the servers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Empty while it runs; then `linearizable` or `sound` if all is well.
    pub verdict: String,
    /// What must not have happened.
    pub violations: Option<Vec<String>>,
    /// Writes that were acknowledged.
    pub acknowledged: u64,
    /// Operations that certainly had no effect.
    pub failed: u64,
    /// Writes that may have had an effect.
    pub unknown: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// The longest time without an acknowledged write, in milliseconds.
    pub longest_gap_ms: u64,
    /// The times of more than half a second without an acknowledged write, in milliseconds: the first
    /// thousand.
    pub gaps_ms: Option<Vec<u64>>,
    /// How many seconds had no acknowledged write.
    pub seconds_without: u64,
    /// The time since the first acknowledged write, in milliseconds.
    pub elapsed_ms: u64,
    /// What a server or the network said last when something failed.
    pub last_error: String,
}

/// A running workload.
#[derive(Debug)]
pub struct Workload {
    name: String,
    process: ChildProcess,
    report: PathBuf,
}

impl Workload {
    /// Starts `program` with `arguments` on the node, where it reaches Services and Pods.
    pub fn start(
        scene: &Scene,
        node: &Node,
        program: &str,
        name: &str,
        arguments: &[String],
    ) -> Result<Self> {
        let report = scene.dir().join(format!("{name}.json"));
        let mut command = node.launcher().command(&scene.tools().workload(program));
        command.arg("--report").arg(&report).args(arguments);
        let process = ChildProcess::spawn(name, &command, &scene.logs())?;
        Ok(Self { name: name.to_owned(), process, report })
    }

    /// What it says now.
    pub fn report(&mut self) -> Result<Report> {
        self.process.check_alive()?;
        self.read()
    }

    fn read(&self) -> Result<Report> {
        let Ok(text) = fs::read(&self.report) else { return Ok(Report::default()) };
        serde_json::from_slice(&text).with_context(|| format!("the report of {}", self.name))
    }

    /// Waits until `more` writes have been acknowledged from now on.
    pub async fn writes(&mut self, more: u64, deadline: Duration) -> Result<()> {
        let before = self.report()?.acknowledged;
        let what = format!("{} to have {more} more writes acknowledged", self.name);
        let outcome = wait::until(deadline, &what, async || {
            Ok((self.report()?.acknowledged >= before + more).then_some(()))
        });
        let outcome = outcome.await;
        outcome.with_context(|| format!("it says: {:?}", self.read().unwrap_or_default()))
    }

    /// Stops it, waits for its verdict, and prints what it counted.
    ///
    /// # Errors
    /// If the verdict is not `expected`, or does not come in time.
    pub async fn finish(mut self, expected: &str) -> Result<Report> {
        self.process.check_alive()?;
        // The one who entered the node ends at once, the workload a while later.
        let _ = self.process.terminate(STOP_DEADLINE).await?;
        let what = format!("the verdict of {}", self.name);
        let report = wait::until(VERDICT_DEADLINE, &what, async || {
            Ok(self.read().ok().filter(|report| !report.verdict.is_empty()))
        })
        .await?;
        let Report { verdict, acknowledged, failed, unknown, reads, .. } = &report;
        println!(
            "{}: {verdict}; {acknowledged} writes acknowledged, {unknown} unknown, {failed} failed, {reads} reads; \
             the longest gap between acknowledged writes was {} ms, and {} of {} s had none",
            self.name,
            report.longest_gap_ms,
            report.seconds_without,
            report.elapsed_ms / 1000,
        );
        let violations = report.violations.clone().unwrap_or_default();
        ensure!(violations.is_empty(), "{}: {}", self.name, violations.join("\n  "));
        if verdict != expected {
            bail!(
                "{} says {verdict}, not {expected}; the last error: {}",
                self.name,
                report.last_error
            );
        }
        ensure!(*acknowledged > 0, "{} had no write acknowledged", self.name);
        Ok(report)
    }
}
