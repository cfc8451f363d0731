//! Load tests: many embedded clusters, manager processes as children, thousands of TDSets, and a
//! tracker that measures from outside how long changes take to converge.
//!
//! The manager is a black box: only its binary is run, and none of its code is linked.

mod attach;
mod climb;
mod curves;
mod diff;
mod durations;
mod faults;
mod fleet;
mod generate;
mod growth;
mod hosts;
mod html;
mod kubeconfigs;
mod latencies;
mod machine;
mod markdown;
mod oversee;
mod pods;
mod probe;
mod process;
mod progress;
mod relay;
mod replicas;
mod report;
mod results;
mod run;
mod sampler;
mod scenario;
mod schedule;
mod series;
mod servers;
mod settle;
mod sizing;
mod slo;
mod tables;
mod tdset;
mod track;
mod troubles;
mod vary;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::{Parser, Subcommand};
use loadtest::signals::unless_ended;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[derive(Parser)]
#[command(name = "loadtest", about = "Load tests for the Leasehold manager")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a scenario and write a report.
    Run {
        /// The scenario file.
        scenario: PathBuf,
        #[command(flatten)]
        common: Common,
    },
    /// Run a scenario on a fleet that runs: replicas in Pods, and clusters of a kubeconfig.
    Attach(attach::Args),
    /// Compare two reports.
    Diff {
        /// The report.json of the first run.
        before: PathBuf,
        /// That of the second.
        after: PathBuf,
        /// Fail if a measure is more than this many times what it was, or the second run failed.
        #[arg(long, value_name = "TIMES", value_parser = diff::bound)]
        fail_above: Option<f64>,
    },
    /// Make the tables of what a fleet costs and what further replicas are good for, one after another.
    Curves {
        /// Which: rates, sizing, capacity, memory, clusters, hot, kinds, soak, ten-thousand, or scenario files [default: all]
        tables: Vec<String>,
        #[command(flatten)]
        common: Common,
        /// This process is restricted to its core already.
        #[arg(long, hide = true)]
        pinned: bool,
    },
    /// Run the scenarios of a folder, and print what a replica should ask for in each.
    Sizing {
        /// The folder.
        #[arg(default_value = "loadtest/scenarios/sizing")]
        folder: PathBuf,
        #[command(flatten)]
        common: Common,
    },
    /// Run the API servers that a load test orders.
    #[command(hide = true)]
    Serve,
}

#[derive(clap::Args)]
struct Common {
    /// The manager's binary [default: built from this workspace]
    #[arg(long)]
    manager: Option<PathBuf>,
    /// Where configurations, logs and reports go.
    #[arg(long, default_value = "target/loadtest")]
    out: PathBuf,
    /// Seed of the generator, which decides which objects are changed when.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    raise_open_files();
    match start(Args::parse().command).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Raises the number of files that may be open as far as it may be: each cluster listens, and has connections.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // Where it is refused, the first port that cannot be bound says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

async fn start(command: Command) -> anyhow::Result<bool> {
    match command {
        Command::Run { scenario, common } => {
            let options = options(&scenario, &common)?;
            if let Some(why) = options.scenario.of_curves() {
                bail!("{}: {why}", scenario.display());
            }
            Ok(told(&unless_ended(run::run(&options)).await?, &options.out))
        }
        Command::Attach(args) => {
            let (report, out) = attach::run(args).await?;
            Ok(told(&report, &out))
        }
        Command::Serve => {
            hosts::serve(tokio::io::stdin(), tokio::io::stdout()).await.map(|()| true)
        }
        Command::Curves { pinned: false, .. } => Err(curves::rerun_on_one_core()),
        Command::Curves { tables, common, pinned: true } => {
            let out = std::path::absolute(&common.out)?;
            let tables = tables::chosen(&tables, &|file| options(file, &common))?;
            unless_ended(tables::run_all(&tables, &out)).await
        }
        Command::Diff { before, after, fail_above } => {
            let (before, after) = (diff::Recorded::read(&before)?, diff::Recorded::read(&after)?);
            let (table, worse) = diff::diff(&before, &after, fail_above);
            print!("{table}");
            worse.iter().for_each(|line| eprintln!("worse: {line}"));
            Ok(worse.is_empty())
        }
        Command::Sizing { folder, common } => {
            let out = std::path::absolute(&common.out)?;
            let all = sizing::load(&folder, &|file| options(file, &common))?;
            let found = unless_ended(sizing::run(&all, &out)).await?;
            print!("\n{}", found.tables);
            found.wrong.iter().for_each(|why| eprintln!("{why}"));
            Ok(found.wrong.is_empty())
        }
    }
}

/// Prints a report. Whether it succeeded.
fn told(report: &report::Report, out: &Path) -> bool {
    print!("{}", report.markdown());
    println!("\nreport, configurations and logs: {}", out.display());
    report.verdict().iter().for_each(|line| eprintln!("{line}"));
    report.succeeded()
}

fn options(scenario: &Path, common: &Common) -> anyhow::Result<run::Options> {
    let Common { manager, out, seed } = common;
    let scenario = scenario::Scenario::load(scenario)?;
    let (out, manager) = (std::path::absolute(out)?.join(&scenario.name), manager.clone());
    Ok(run::Options { scenario, manager, out, seed: *seed, cpu: process::Cpu::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::example;
    use crate::slo::Measure;

    async fn run(line: &[&str]) -> anyhow::Result<bool> {
        start(Args::try_parse_from([&["loadtest"][..], line].concat())?.command).await
    }

    #[test]
    fn a_run_above_a_limit_fails() {
        assert!(told(&example(&[(Measure::CalmP99Ms, 20.0)]), Path::new("/out")));
        assert!(!told(&example(&[(Measure::CalmP99Ms, 19.0)]), Path::new("/out")));
    }

    #[tokio::test]
    async fn reports_are_compared_by_their_files() {
        let dir = tempfile::tempdir().unwrap();
        let [good, bad, half] = ["good", "bad", "half"].map(|name| dir.path().join(name));
        let [good, bad, half] = [&good, &bad, &half].map(|path| path.to_str().unwrap());
        std::fs::write(good, example(&[]).json().unwrap()).unwrap();
        let failed = example(&[(Measure::CalmP99Ms, 19.0)]).json().unwrap();
        std::fs::write(bad, &failed).unwrap();
        std::fs::write(half, &failed[..failed.len() / 2]).unwrap();
        assert!(run(&["diff", good, good, "--fail-above", "1.2"]).await.unwrap());
        assert!(!run(&["diff", good, bad, "--fail-above", "1.2"]).await.unwrap());
        assert!(run(&["diff", good, bad]).await.unwrap());
        for wrong in [half, "/nowhere/report.json"] {
            let error = format!("{:#}", run(&["diff", good, wrong]).await.unwrap_err());
            assert!(error.contains(wrong), "{error}");
        }
        assert!(run(&["diff", good, good, "--fail-above", "nan"]).await.is_err());
    }

    #[tokio::test]
    async fn what_is_for_curves_is_not_run_as_something_else() {
        let capacity = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/curves/capacity.toml");
        let error = run(&["run", capacity]).await.unwrap_err().to_string();
        assert!(error.ends_with("run that, or remove the key"), "{error}");
        let error = run(&["curves", "--pinned", "soak", "hto"]).await.unwrap_err().to_string();
        assert!(error.starts_with("there is no table \"hto\""), "{error}");
    }
}
