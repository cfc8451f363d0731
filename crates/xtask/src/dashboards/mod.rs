//! `cargo xtask dashboards`: every query of `dashboards/` against a real Prometheus that scrapes a
//! live fleet.
//!
//! ```text
//! leasehold demo --kill ◀─ scrapes ─ prometheus ◀─ asks each query until it answers ─ this
//! ```
//!
//! A query of the dashboard must return a number at some time while the demo lives: a handover's
//! duration, say, only after the kill. A rule may rightly return nothing, but must be understood.
//! The rules' own unit tests run first.
//!
//! Needs `prometheus` and `promtool` (Debian's package `prometheus`).

mod queries;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use self::queries::{Query, holds_a_number, of_dashboard, of_rules};
use crate::packages::{self, Package};
use crate::real::process::{Process, run as run_command};
use crate::real::wait;

const DASHBOARD: &str = "dashboards/leasehold-fleet.json";
const RULES: &str = "dashboards/rules/leasehold.yaml";
const RULE_TESTS: &str = "dashboards/rules/leasehold_test.yaml";

/// It brings promtool along.
const PACKAGES: &[Package] = &[("prometheus", "/usr/bin/prometheus")];

/// How long the demo may take to start its replicas.
const START_DEADLINE: Duration = Duration::from_secs(30);
/// Granted to the demo beyond its `--for`, to start and to end.
const MARGIN: Duration = Duration::from_secs(30);
const SCRAPE_INTERVAL: &str = "1s";

/// Runs every query of the dashboard and the rules against a real Prometheus and a live demo.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How long the demo lives; at least 36, for one of its replicas is killed and comes back.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,
    /// Use this `leasehold` instead of building one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// Runs the chore.
///
/// # Errors
/// When a tool is missing, a rule is wrong, or a query of the dashboard never returns a number.
pub fn run(args: &Args) -> Result<()> {
    let root = xtask::root();
    packages::install("a real Prometheus", PACKAGES)?;
    promtool(&["check", "rules", &path(&root, RULES)])?;
    promtool(&["test", "rules", &path(&root, RULE_TESTS)])?;
    println!("rules: checked, and their unit tests pass");

    let dashboard = of_dashboard(&fs::read_to_string(root.join(DASHBOARD))?)?;
    let rules = of_rules(&fs::read_to_string(root.join(RULES))?)?;
    let binary =
        args.binary.as_ref().map_or_else(|| build(&root), |given| Ok(fs::canonicalize(given)?))?;
    // One thread: a child dies with the thread that started it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(ask_all(&binary, args.seconds, &dashboard, &rules))
}

async fn ask_all(binary: &Path, seconds: u64, dashboard: &[Query], rules: &[Query]) -> Result<()> {
    let dir = tempfile::Builder::new().prefix("leasehold-dashboards-").tempdir()?;
    let fleet = dir.path().join("demo");
    let mut command = Command::new(binary);
    command.args(["demo", "--kill", "--examples", "all", "--port", "0"]);
    command.args(["--for", &format!("{seconds}s"), "--dir"]);
    let mut demo = Process::spawn("demo", command.arg(&fleet), dir.path())?;
    let targets = wait::until(START_DEADLINE, "the demo's replicas", async || {
        demo.check_alive()?;
        Ok(Some(replicas(&fleet)).filter(|replicas| replicas.len() > 1))
    })
    .await?;
    println!("demo: {} replicas, for {seconds} s, one of them killed midway", targets.len());
    let (url, mut prometheus) = prometheus(dir.path(), &targets)?;

    let mut silent = dashboard.to_vec();
    let deadline = Duration::from_secs(seconds) + MARGIN;
    let answered = wait::until(deadline, "every query to answer", async || {
        prometheus.check_alive()?;
        // Prometheus refuses connections until it has started.
        if ask(&url, "up").is_ok() {
            let mut open = Vec::new();
            for query in silent.drain(..) {
                if !holds_a_number(&ask(&url, &query.expr).with_context(|| query.title.clone())?)? {
                    open.push(query);
                }
            }
            silent = open;
        }
        // Once the demo has ended nothing new will come.
        Ok((silent.is_empty() || demo.check_alive().is_err()).then_some(()))
    })
    .await;
    if !silent.is_empty() {
        let list: Vec<_> = silent.iter().map(|q| format!("{}: {}", q.title, q.expr)).collect();
        println!("{}", demo.output());
        bail!("{} queries returned nothing:\n  {}", silent.len(), list.join("\n  "));
    }
    answered?;
    println!("dashboard: {} queries, each of which returned a number", dashboard.len());
    for rule in rules {
        ask(&url, &rule.expr).with_context(|| rule.title.clone())?;
    }
    println!("rules: {} expressions, each of which is understood", rules.len());
    demo.terminate(MARGIN).await?;
    Ok(())
}

/// The addresses of the replicas' metrics, as their configuration files say.
fn replicas(fleet: &Path) -> Vec<String> {
    let folders = fs::read_dir(fleet.join("replicas")).into_iter().flatten().flatten();
    let address = |folder: PathBuf| {
        let text = fs::read_to_string(folder.join("config.yaml")).ok()?;
        let config: Value = serde_saphyr::from_str(&text).ok()?;
        config["admin"]["bind"].as_str().map(str::to_owned)
    };
    folders.filter_map(|folder| address(folder.path())).collect()
}

/// Starts a Prometheus that scrapes `targets` and evaluates the rules.
fn prometheus(dir: &Path, targets: &[String]) -> Result<(String, Process)> {
    let config = json!({
        "global": {"scrape_interval": SCRAPE_INTERVAL, "evaluation_interval": SCRAPE_INTERVAL},
        "rule_files": [path(&xtask::root(), RULES)],
        "scrape_configs": [{"job_name": "leasehold", "static_configs": [{"targets": targets}]}],
    });
    let file = dir.join("prometheus.yaml");
    fs::write(&file, serde_saphyr::to_string(&config)?)?;
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut command = Command::new("prometheus");
    command
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
        .arg(format!("--web.listen-address={address}"));
    Ok((format!("http://{address}"), Process::spawn("prometheus", &command, dir)?))
}

/// Prometheus' JSON answer to a query, now.
fn ask(url: &str, expr: &str) -> Result<String> {
    promtool(&["query", "--format", "json", "instant", url, expr])
}

fn promtool(arguments: &[&str]) -> Result<String> {
    run_command(Command::new("promtool").args(arguments))
}

/// Builds the product; its path.
fn build(root: &Path) -> Result<PathBuf> {
    if !xtask::cargo().args(["build", "--package", "leasehold"]).status()?.success() {
        bail!("the product does not build");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), |dir| root.join(dir));
    Ok(target.join("debug/leasehold"))
}

fn path(root: &Path, below: &str) -> String {
    root.join(below).display().to_string()
}
