//! How large a replica should be: the table of the chart's README, from runs in which one replica carries
//! everything.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::process::Cpu;
use crate::report::Report;
use crate::run::{self, Options};
use crate::scenario::{self, Scenario};

/// What is asked for beyond what was used, as a factor.
const HEADROOM: f64 = 1.25;
/// Requests are multiples of these: MiB of memory, thousandths of a core.
const MEMORY_STEP: f64 = 32.0;
const CPU_STEP: f64 = 50.0;

/// Runs every scenario of a folder, in the order of their file names, and prints the table.
///
/// # Errors
/// If a run cannot be made, or fails.
pub async fn run(
    folder: &Path,
    manager: Option<PathBuf>,
    out: &Path,
    seed: u64,
) -> anyhow::Result<String> {
    let files = scenario::files(folder)?;
    let all: Vec<Scenario> =
        files.iter().map(|file| Scenario::load(file)).collect::<Result<_, _>>()?;
    scenario::are_distinct(&all)?;
    for (scenario, file) in all.iter().zip(&files) {
        let alone = scenario.fleet.replicas == 1 && scenario.of_curves().is_none();
        ensure!(
            alone,
            "{}: sizing is of one replica: set fleet.replicas to 1, without [curve] and [vary]",
            file.display()
        );
    }
    let mut table = heading();
    for scenario in all {
        let out = out.join(&scenario.name);
        let manager = manager.clone();
        let options = Options { scenario, manager, out, seed, cpu: Cpu::default() };
        let report = run::run(&options).await?;
        let wrong = report.verdict().join("; ");
        ensure!(wrong.is_empty(), "{wrong}; see {}", options.out.display());
        table.push_str(&row(&report)?);
    }
    Ok(table)
}

fn heading() -> String {
    "| clusters | TDSets | changes/s | cores under load | CPU s to start | peak MiB | requests |\n\
     |---|---|---|---|---|---|---|\n"
        .to_owned()
}

fn row(report: &Report) -> anyhow::Result<String> {
    let (fleet, objects) = (&report.scenario.fleet, &report.scenario.objects);
    let (replica, start) = (report.replicas.first(), report.start.first());
    let (replica, start) = replica.zip(start).context("no replica was measured")?;
    let mut row = String::new();
    writeln!(
        row,
        "| {} | {} | {:.0} | {:.2} | {:.1} | {:.0} | `{{cpu: {}m, memory: {}Mi}}` |",
        fleet.clusters,
        objects.count,
        report.changes_per_second,
        replica.cores,
        start.cpu_seconds,
        replica.peak_mib,
        rounded(replica.cores * 1000.0, CPU_STEP),
        rounded(replica.peak_mib, MEMORY_STEP),
    )?;
    Ok(row)
}

/// What to ask for where this much is used.
fn rounded(used: f64, step: f64) -> f64 {
    (used * HEADROOM / step).ceil().max(1.0) * step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn wrong_scenarios_are_refused_before_any_is_run() {
        let basic = include_str!("../scenarios/basic.toml");
        let one = basic.replace("replicas = 3 ", "replicas = 1 ");
        let three = basic.replace("\"basic\"", "\"three\"");
        for (second, expect) in [
            (one.as_str(), "two scenarios have the name basic"),
            (three.as_str(), "sizing is of one replica"),
            ("name = 3", "parse scenario"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("1.toml"), &one).unwrap();
            std::fs::write(dir.path().join("2.toml"), second).unwrap();
            let none = Some(dir.path().join("no-manager"));
            let error = run(dir.path(), none, dir.path(), 1).await.unwrap_err();
            assert!(format!("{error:#}").contains(expect), "{error:#}");
        }
    }

    #[test]
    fn requests_are_above_what_is_used() {
        let asked = [(0.0, 32.0), (25.6, 32.0), (26.0, 64.0), (410.0, 544.0)];
        for (used, expect) in asked {
            assert!((rounded(used, MEMORY_STEP) - expect).abs() < f64::EPSILON, "{used}");
        }
    }
}
