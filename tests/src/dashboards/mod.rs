//! `cargo xtask dashboards`: every query of `dashboards/` against a real Prometheus that scrapes a
//! live fleet.
//!
//! ```text
//! leasehold demo --kill ◀─ scrapes ─ prometheus ◀─ asks each query until it answers ─ this
//! ```
//!
//! Each query of a dashboard must return a number at some time while the demo runs; the duration
//! of a crash's handover, for example, only after the kill. A rule or an annotation may return nothing, but
//! must be valid. The rules' unit tests run first.
//!
//! With `--grafana DIR` a real Grafana shows the dashboards with this Prometheus' data, and a real browser makes pictures
//! of them and finds the panels that show none: the variables have a value there, and not each.
//!
//! Needs `prometheus` and `promtool` (the Debian package `prometheus`).

mod pictures;
mod queries;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use loadtest::signals::unless_ended;
use serde_json::Value;

use crate::harness::process::ChildProcess;
use crate::harness::prometheus::{self, Prometheus, promtool};
use crate::harness::{scene, tools, wait};
use pictures::Grafana;
use queries::{Query, numbers, of_annotations, of_dashboard, of_rules};

const DASHBOARDS: &str = "dashboards";
const PICTURES: &str = "target/dashboards";
const RULES: &str = "dashboards/rules/leasehold.yaml";
const RULE_TESTS: &str = "dashboards/rules/leasehold_test.yaml";

/// Of the cluster that has most, on the replica that has most of it, half of the time, without those for each queue of
/// Amazon SQS. The first one runs all examples. At the start, and after a crash, keys wait, and have series too.
const SERIES_OF_A_CLUSTER: &str = r#"quantile_over_time(0.5, max(count by (cluster, instance)
    ({cluster=~".+", __name__!="leasehold_sqs_queue_messages"}))[10m:2s])"#;
/// Two series of a further large kind, or of a further shard, are no reason to fail.
const MOST_SERIES: f64 = 100.0;

/// The demo's replicas. All of them are scraped: the coordinator alone has the series of handovers.
const REPLICAS: usize = 3;
/// How long the demo may take to start its replicas.
const START_DEADLINE: Duration = Duration::from_secs(30);
/// How much longer than its `--for` the demo may take, to start and to end.
const MARGIN: Duration = Duration::from_secs(30);

/// Runs every query of the dashboards and the rules against a real Prometheus and a live demo.
#[derive(Debug, clap::Args)]
pub struct DashboardArgs {
    /// How long the demo runs; at least 36, because one of its replicas is killed and comes back.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,
    /// Use this `leasehold` instead of building one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Show the dashboards in this Grafana too, a folder with its `bin`, `conf` and `public`, and put pictures of them
    /// into `target/dashboards`. Take some more `--seconds` for lines of some length.
    #[arg(long, value_name = "DIR")]
    grafana: Option<PathBuf>,
}

/// Runs the queries.
pub fn run(args: &DashboardArgs) -> Result<()> {
    let root = xtask::root();
    prometheus::install()?;
    promtool(&["check", "rules", &path(&root, RULES)])?;
    promtool(&["test", "rules", &path(&root, RULE_TESTS)])?;
    println!("rules: valid, and their unit tests pass");

    let mut rules = of_rules(&fs::read_to_string(root.join(RULES))?)?;
    let (mut shown, mut dashboards) = (BTreeSet::new(), Vec::new());
    for file in fs::read_dir(root.join(DASHBOARDS))? {
        let file = file?.path();
        if file.extension().is_some_and(|kind| kind == "json") {
            let text = fs::read_to_string(&file)?;
            shown.extend(of_dashboard(&text).with_context(|| file.display().to_string())?);
            rules.extend(of_annotations(&text)?);
            dashboards.push(text);
        }
    }
    let shown: Vec<Query> = shown.into_iter().collect();
    let given = args.binary.as_ref().map(|given| Ok(fs::canonicalize(given)?));
    let binary = given.unwrap_or_else(tools::build_debug)?;
    let asked = ask_all(args, &binary, &shown, &rules, &dashboards);
    scene::one_thread()?.block_on(unless_ended(asked))
}

async fn ask_all(
    args: &DashboardArgs,
    binary: &Path,
    dashboard: &[Query],
    rules: &[Query],
    dashboards: &[String],
) -> Result<()> {
    let seconds = args.seconds;
    let dir = tempfile::Builder::new().prefix("leasehold-dashboards-").tempdir()?;
    let fleet = dir.path().join("demo");
    let mut command = Command::new(binary);
    command.args(["demo", "--kill", "--examples", "all", "--port", "0"]);
    command.args(["--replicas", &REPLICAS.to_string(), "--for", &format!("{seconds}s"), "--dir"]);
    let mut demo = ChildProcess::spawn("demo", command.arg(&fleet), dir.path())?;
    let targets = wait::until(START_DEADLINE, "the demo's replicas", async || {
        demo.check_alive()?;
        Ok(Some(replicas(&fleet)).filter(|replicas| replicas.len() == REPLICAS))
    })
    .await?;
    println!("demo: {REPLICAS} replicas for {seconds} s; one of them is killed midway");
    let rule_file = [xtask::root().join(RULES)];
    let mut prometheus = Prometheus::start(dir.path(), &targets, &rule_file)?;

    let mut silent = dashboard.to_vec();
    let deadline = Duration::from_secs(seconds) + MARGIN;
    let answered = wait::until(deadline, "every query to answer", async || {
        prometheus.check_alive()?;
        // Prometheus refuses connections until it has started.
        if prometheus.ask("up").is_ok() {
            let mut open = Vec::new();
            for query in silent.drain(..) {
                let answer = prometheus.ask(&query.expr).with_context(|| query.title.clone())?;
                if numbers(&answer)?.is_empty() {
                    open.push(query);
                }
            }
            silent = open;
        }
        // Nothing new comes once the demo has ended.
        Ok((silent.is_empty() || demo.check_alive().is_err()).then_some(()))
    })
    .await;
    if !silent.is_empty() {
        let list: Vec<_> = silent.iter().map(|q| format!("{}: {}", q.title, q.expr)).collect();
        println!("{}", demo.output());
        bail!("{} queries returned nothing:\n  {}", silent.len(), list.join("\n  "));
    }
    answered?;
    println!("dashboards: each of {} queries returned a number", dashboard.len());
    for rule in rules {
        prometheus.ask(&rule.expr).with_context(|| rule.title.clone())?;
    }
    println!("rules and annotations: each of {} expressions is valid", rules.len());
    let most = numbers(&prometheus.ask(SERIES_OF_A_CLUSTER)?)?;
    let most = most.first().copied().context("no series has a cluster")?;
    ensure!(most <= MOST_SERIES, "a cluster has {most} series, more than {MOST_SERIES}");
    println!("series: {most} of the cluster that has most, half of the time");
    if let Some(home) = &args.grafana {
        let root = xtask::root();
        let folder = root.join(DASHBOARDS);
        let grafana = Grafana::start(home, prometheus.url(), &folder, dir.path()).await?;
        grafana.pictures(dashboards, seconds, &root.join(PICTURES)).await?;
    }
    demo.terminate(MARGIN).await?;
    Ok(())
}

/// The addresses of the replicas' metrics, from their configuration files.
fn replicas(fleet: &Path) -> Vec<String> {
    let folders = fs::read_dir(fleet.join("replicas")).into_iter().flatten().flatten();
    let address = |folder: PathBuf| {
        let text = fs::read_to_string(folder.join("config.yaml")).ok()?;
        let config: Value = serde_saphyr::from_str(&text).ok()?;
        config["admin"]["bind"].as_str().map(str::to_owned)
    };
    folders.filter_map(|folder| address(folder.path())).collect()
}

fn path(root: &Path, below: &str) -> String {
    root.join(below).display().to_string()
}
