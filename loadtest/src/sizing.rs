//! How large a replica should be: the table of the chart's README, from runs in which one replica carries
//! everything.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, ensure};

use crate::machine::Machine;
use crate::report::Report;
use crate::results::{self, Outcome};
use crate::run::{self, Options};
use crate::scenario;

/// What is asked for beyond what was used, as a factor.
const HEADROOM: f64 = 1.25;
/// Requests are multiples of these: MiB of memory, thousandths of a core.
const MEMORY_STEP: f64 = 32.0;
const CPU_STEP: f64 = 50.0;

/// The scenarios of a folder, in the order of their file names.
///
/// # Errors
/// If one is wrong, or not of one replica.
pub fn load(
    folder: &Path,
    options: &dyn Fn(&Path) -> anyhow::Result<Options>,
) -> anyhow::Result<Vec<Options>> {
    let files = scenario::files(folder)?;
    let all: Vec<Options> =
        files.iter().map(|file| options(file)).collect::<anyhow::Result<_>>()?;
    scenario::are_distinct(all.iter().map(|options| &options.scenario))?;
    for (Options { scenario, .. }, file) in all.iter().zip(&files) {
        let alone = scenario.fleet.replicas == 1 && scenario.of_curves().is_none();
        ensure!(
            alone,
            "{}: sizing is of one replica: set fleet.replicas to 1, without [curve] and [vary]",
            file.display()
        );
    }
    Ok(all)
}

/// Runs every scenario, and writes the table below `out` after each. One that fails does not hinder the others.
///
/// # Errors
/// If the table cannot be written.
pub async fn run(all: &[Options], out: &Path) -> anyhow::Result<Outcome> {
    let folder = out.join("sizing");
    let _held = results::begin(&folder)?;
    let mut found = Outcome::default();
    for options in all {
        match measured(options).await {
            Ok((machine, row)) => {
                if found.tables.is_empty() {
                    found.tables = heading(&machine);
                }
                found.tables.push_str(&row);
                results::write(&folder, "sizing.md", &found.tables)?;
            }
            Err(error) => found.wrong.push(format!("{}: {error:#}", options.scenario.name)),
        }
    }
    Ok(found)
}

/// The machine, and the row of one scenario.
async fn measured(options: &Options) -> anyhow::Result<(Machine, String)> {
    judged(run::run(options).await?, &options.out)
}

fn judged(report: Report, out: &Path) -> anyhow::Result<(Machine, String)> {
    let wrong = report.wrong().join("; ");
    ensure!(wrong.is_empty(), "{wrong}; see {}", out.display());
    let row = row(&report)?;
    Ok((report.machine, row))
}

fn heading(machine: &Machine) -> String {
    format!(
        "# Sizing\n\n{}.\n\n| clusters | TDSets | changes/s | cores under load | CPU s to start | peak MiB | \
         requests |\n|---|---|---|---|---|---|---|\n",
        machine.words()
    )
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
    use crate::process::Cpu;
    use crate::report::tests::example;
    use crate::scenario::Scenario;
    use crate::slo::Measure;

    /// The scenarios of a folder, for a manager that does not exist.
    fn loaded(dir: &Path) -> anyhow::Result<Vec<Options>> {
        load(dir, &|file| {
            let scenario = Scenario::load(file)?;
            let (manager, out) = (Some(dir.join("no-manager")), dir.join(&scenario.name));
            Ok(Options { scenario, manager, out, seed: 1, cpu: Cpu::default() })
        })
    }

    fn one() -> String {
        include_str!("../scenarios/basic.toml").replace("replicas = 3 ", "replicas = 1 ")
    }

    #[test]
    fn wrong_scenarios_are_refused_before_any_is_run() {
        let basic = include_str!("../scenarios/basic.toml");
        let (one, three) = (one(), basic.replace("\"basic\"", "\"three\""));
        for (second, expect) in [
            (one.as_str(), "two scenarios have the name basic"),
            (three.as_str(), "sizing is of one replica"),
            ("name = 3", "parse scenario"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("1.toml"), &one).unwrap();
            std::fs::write(dir.path().join("2.toml"), second).unwrap();
            let error = loaded(dir.path()).err().unwrap();
            assert!(format!("{error:#}").contains(expect), "{error:#}");
        }
    }

    #[tokio::test]
    async fn one_that_fails_does_not_hinder_the_others() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("1.toml"), one()).unwrap();
        let two = one().replace("\"basic\"", "\"two\"");
        std::fs::write(dir.path().join("2.toml"), two).unwrap();
        let wrong = run(&loaded(dir.path()).unwrap(), dir.path()).await.unwrap().wrong;
        let [first, second] = &wrong[..] else { panic!("{wrong:?}") };
        assert!(first.starts_with("basic: ") && second.starts_with("two: "), "{wrong:?}");
    }

    #[test]
    fn what_is_wrong_is_said_without_the_name_that_stands_before_it() {
        let report = example(&[(Measure::CalmP99Ms, 19.0)]);
        let error = judged(report, Path::new("/out")).unwrap_err().to_string();
        assert!(error.starts_with("slo.calm_p99_ms: ") && error.ends_with("; see /out"), "{error}");
    }

    #[test]
    fn requests_are_above_what_is_used() {
        let asked = [(0.0, 32.0), (25.6, 32.0), (26.0, 64.0), (410.0, 544.0)];
        for (used, expect) in asked {
            assert!((rounded(used, MEMORY_STEP) - expect).abs() < f64::EPSILON, "{used}");
        }
    }
}
