//! One run from start to report, with its clock, children and progress bar.
#![expect(clippy::disallowed_methods, reason = "a load test measures real time")]

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use indicatif::{ProgressBar, ProgressStyle};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::ListParams;
use loadtest::scrape::{self, Histogram};
use loadtest::usage;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::fleet::{Fleet, MEASURED};
use crate::generate::Generator;
use crate::managers::{Binary, Manager};
use crate::report::{Calm, Convergence, Replica, Report, Sample, Scraped, Start};
use crate::scenario::Scenario;
use crate::tdset;
use crate::track::{Measured, Message, Tracker, watch_cluster};
use crate::troubles::Troublemakers;

/// The most messages that wait for the tracker.
const MESSAGES_BOUND: usize = 4096;
/// How often progress is redrawn and children are checked.
const LOOK: Duration = Duration::from_millis(250);

/// What to run, and where the results go.
pub struct Options {
    /// The scenario.
    pub scenario: Scenario,
    /// The manager's binary, if not this workspace's.
    pub manager: Option<PathBuf>,
    /// Where configurations, logs and reports go.
    pub out: PathBuf,
    /// The generator's seed.
    pub seed: u64,
}

/// The tracker's task and its watches.
struct Tracking {
    messages: mpsc::Sender<Message>,
    pending: watch::Receiver<usize>,
    tasks: JoinSet<()>,
}

impl Tracking {
    fn start(fleet: &Fleet, started: Instant) -> Self {
        let (messages, mut incoming) = mpsc::channel(MESSAGES_BOUND);
        let (pending_out, pending) = watch::channel(0);
        let mut tasks = JoinSet::new();
        for (name, server) in &fleet.clusters {
            let api = tdset::all(server.client());
            tasks.spawn(watch_cluster(name.clone(), api, started, messages.clone()));
        }
        tasks.spawn(async move {
            let mut tracker = Tracker::default();
            while let Some(message) = incoming.recv().await {
                tracker.handle(message);
                let now = tracker.pending();
                pending_out.send_if_modified(|seen| std::mem::replace(seen, now) != now);
            }
        });
        Self { messages, pending, tasks }
    }

    /// What was measured since the last call, including everything that was sent before this one.
    async fn measured(&self) -> anyhow::Result<Measured> {
        let (reply, answer) = oneshot::channel();
        self.messages.send(Message::Measure(reply)).await.context("the tracker has stopped")?;
        answer.await.context("the tracker has stopped")
    }
}

/// Runs a scenario, writes its report to `out`, and returns it.
///
/// # Errors
/// If the set-up fails, or a manager ends on its own.
pub async fn run(options: &Options) -> anyhow::Result<Report> {
    let Options { scenario, out, .. } = options;
    std::fs::create_dir_all(out).with_context(|| format!("create {}", out.display()))?;
    let binary = Binary::find(options.manager.clone()).await?;
    let crds = binary.crds().await?;
    println!("starting {} clusters", scenario.fleet.clusters);
    let fleet = Fleet::start(scenario, out, &crds).await?;
    let mut managers = Vec::new();
    let measured = measure(options, &fleet, &binary, &crds, &mut managers).await;
    let stops = managers.into_iter().map(Manager::stop);
    let clean = futures::future::join_all(stops).await.into_iter().all(|clean| clean);
    fleet.stop().await;
    let report = measured?;
    ensure!(clean, "a manager did not stop cleanly on SIGTERM; see the logs in {}", out.display());
    write(&report, out)?;
    Ok(report)
}

async fn measure(
    options: &Options,
    fleet: &Fleet,
    binary: &Binary,
    crds: &[CustomResourceDefinition],
    managers: &mut Vec<Manager>,
) -> anyhow::Result<Report> {
    let Options { scenario, seed, out, .. } = options;
    let started = Instant::now();
    let mut tracking = Tracking::start(fleet, started);
    let mut generator = Generator::new(scenario, fleet, tracking.messages.clone(), started, *seed);
    let mut troublemakers = None;
    if let Some(troubles) = scenario.troubles.as_ref().filter(|troubles| troubles.from_start) {
        let joined = Troublemakers::join(fleet, scenario, troubles, crds).await?;
        troublemakers = Some((joined, troubles.flood_per_second));
    }
    if scenario.objects.existing {
        generator.populate(scenario).await?;
    }
    let started = Instant::now();
    for n in 0..scenario.fleet.replicas {
        managers.push(Manager::start(binary, n, scenario, fleet, out)?);
    }
    if !scenario.objects.existing {
        generator.populate(scenario).await?;
    }
    let initial = settle(&mut tracking, managers, scenario, "initial objects").await?;
    ensure!(
        initial.pending == 0,
        "the initial objects did not converge within {:?}: {} left, such as {}",
        scenario.limits.settle,
        initial.pending,
        initial.examples.join(", ")
    );
    let initial_seconds = started.elapsed().as_secs_f64();
    let samples = try_join_all(managers.iter().map(sample)).await?;
    let start = managers.iter().zip(&samples).map(|(m, sample)| Start::of(&m.name, sample));
    let start = start.collect();

    let mut calm = None;
    if let Some(troubles) = scenario.troubles.as_ref().filter(|troubles| !troubles.from_start) {
        let before = try_join_all(managers.iter().map(sample)).await?;
        under_load(&mut generator, &tracking, managers, scenario).await?;
        let after = try_join_all(managers.iter().map(sample)).await?;
        let measured = settle(&mut tracking, managers, scenario, "changes in calm").await?;
        calm = Some(Calm {
            convergence: Convergence::of(&measured.latencies_ms),
            queue_p99_seconds: p99(&before, &after, |sample| &sample.queue),
        });
        let joined = Troublemakers::join(fleet, scenario, troubles, crds).await?;
        held(managers, scenario, fleet.clusters.len() + joined.len()).await?;
        troublemakers = Some((joined, troubles.flood_per_second));
    }

    let before = try_join_all(managers.iter().map(sample)).await?;
    let began = Instant::now();
    let changes = {
        let load = under_load(&mut generator, &tracking, managers, scenario);
        match &mut troublemakers {
            None => load.await?,
            Some((troublemakers, per_second)) => tokio::select! {
                changes = load => changes?,
                failed = troublemakers.flood(*per_second, began) => {
                    failed?;
                    unreachable!("a flood does not end on its own")
                }
            },
        }
    };
    let load = began.elapsed();
    let after = try_join_all(managers.iter().map(sample)).await?;
    let last = settle(&mut tracking, managers, scenario, "last changes").await?;
    let orphans = no_orphans(fleet, scenario).await?;
    tracking.tasks.shutdown().await;
    if let Some((troublemakers, _)) = troublemakers {
        troublemakers.stop().await;
    }

    let rows = managers.iter().zip(before.iter().zip(&after));
    let made = changes.creates + changes.updates + changes.deletes;
    Ok(Report {
        scenario: scenario.clone(),
        seed: *seed,
        initial_seconds,
        start,
        changes,
        changes_per_second: made as f64 / load.as_secs_f64(),
        calm,
        convergence: Convergence::of(&last.latencies_ms),
        queue_p99_seconds: p99(&before, &after, |sample| &sample.queue),
        reconcile_p99_seconds: p99(&before, &after, |sample| &sample.reconcile),
        reconcile_errors: after.iter().map(|sample| sample.errors).sum(),
        unconverged: last.pending,
        unconverged_examples: last.examples,
        orphans,
        replicas: rows.map(|(m, (b, a))| Replica::between(&m.name, b, a, load)).collect(),
    })
}

/// The 99th percentile of the observations between two samples of every manager.
fn p99(before: &[Sample], after: &[Sample], pick: fn(&Sample) -> &Histogram) -> Option<f64> {
    let mut all = Histogram::default();
    for (before, after) in before.iter().zip(after) {
        all.merge(&pick(before).until(pick(after)));
    }
    all.quantile(0.99)
}

/// Waits until the managers hold this many shards.
async fn held(managers: &mut [Manager], scenario: &Scenario, shards: usize) -> anyhow::Result<()> {
    let deadline = Instant::now() + scenario.limits.settle;
    loop {
        let samples = try_join_all(managers.iter().map(sample)).await?;
        let held: f64 = samples.iter().map(|sample| sample.shards).sum();
        if held >= shards as f64 {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "the managers hold {held} of {shards} shards");
        tokio::time::sleep(LOOK).await;
    }
}

async fn under_load(
    generator: &mut Generator,
    tracking: &Tracking,
    managers: &mut [Manager],
    scenario: &Scenario,
) -> anyhow::Result<crate::generate::Changes> {
    let bar = bar(scenario.load.duration.as_millis() as u64, "load");
    let began = Instant::now();
    let load = generator.load(&scenario.load);
    let mut load = std::pin::pin!(load);
    loop {
        tokio::select! {
            changes = &mut load => {
                bar.finish_and_clear();
                return changes;
            }
            () = tokio::time::sleep(LOOK) => {
                bar.set_position(began.elapsed().as_millis() as u64);
                bar.set_message(format!("load, {} pending", *tracking.pending.borrow()));
                managers.iter_mut().try_for_each(Manager::check)?;
            }
        }
    }
}

/// Waits until nothing is pending, or as long as the scenario allows.
async fn settle(
    tracking: &mut Tracking,
    managers: &mut [Manager],
    scenario: &Scenario,
    what: &str,
) -> anyhow::Result<Measured> {
    let deadline = Instant::now() + scenario.limits.settle;
    let mut measured = tracking.measured().await?;
    let bar = bar(measured.pending as u64, what);
    while measured.pending > 0 && Instant::now() < deadline {
        // The next change or the next look, whichever is first.
        let _ = tokio::time::timeout(LOOK, tracking.pending.changed()).await;
        managers.iter_mut().try_for_each(Manager::check)?;
        let left = *tracking.pending.borrow_and_update();
        bar.set_position(bar.length().unwrap_or_default().saturating_sub(left as u64));
        if left == 0 {
            measured.absorb(tracking.measured().await?)?;
        }
    }
    measured.absorb(tracking.measured().await?)?;
    bar.finish_and_clear();
    Ok(measured)
}

fn bar(length: u64, what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:32} [{bar:40}] {percent:>3}% {elapsed}")
        .expect("the template is constant and valid")
        .progress_chars("=> ");
    ProgressBar::new(length).with_style(style).with_message(what.to_owned())
}

async fn sample(manager: &Manager) -> anyhow::Result<Sample> {
    let text = manager.metrics().await?;
    let (series, most_of_a_cluster) = scrape::series(&text, "cluster");
    let scraped = Scraped {
        series,
        most_of_a_cluster,
        bytes: text.len(),
        compressed_bytes: manager.compressed_bytes().await?,
    };
    let usage =
        usage::of(manager.pid).with_context(|| format!("{} is gone; see its log", manager.name))?;
    Ok(Sample {
        usage,
        scraped,
        reconciles: scrape::sum(&text, "controller_runtime_reconcile_total"),
        errors: scrape::sum(&text, "controller_runtime_reconcile_errors_total"),
        shards: scrape::sum(&text, "leasehold_shards_owned"),
        queue: scrape::histogram_where(&text, "leasehold_cluster_queue_seconds", |labels| {
            labels.contains(&format!("cluster=\"{MEASURED}"))
        }),
        reconcile: scrape::histogram(&text, "controller_runtime_reconcile_time_seconds"),
    })
}

/// Waits until the garbage collectors have handled the last deletions, or as long as the scenario
/// allows. Returns how many Deployments are left behind then.
async fn no_orphans(fleet: &Fleet, scenario: &Scenario) -> anyhow::Result<usize> {
    let deadline = Instant::now() + scenario.limits.settle;
    loop {
        let left = orphans(fleet).await?;
        if left == 0 || Instant::now() >= deadline {
            return Ok(left);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Deployments whose TDSet is gone.
async fn orphans(fleet: &Fleet) -> anyhow::Result<usize> {
    let all = ListParams::default();
    let mut orphans = 0;
    for (name, server) in &fleet.clusters {
        let deployments: Api<Deployment> = Api::all(server.client());
        let deployments = deployments.list(&all).await;
        let deployments = deployments.with_context(|| format!("list Deployments of {name}"))?;
        let tdsets = tdset::all(server.client()).list(&all).await;
        let tdsets = tdsets.with_context(|| format!("list TDSets of {name}"))?;
        let alive: HashSet<_> =
            tdsets.items.iter().filter_map(|object| object.metadata.uid.as_deref()).collect();
        let is_owned = |deployment: &&Deployment| {
            let owners = deployment.metadata.owner_references.as_deref().unwrap_or_default();
            owners.iter().any(|owner| alive.contains(owner.uid.as_str()))
        };
        orphans += deployments.items.iter().filter(|d| !is_owned(d)).count();
    }
    Ok(orphans)
}

fn write(report: &Report, out: &Path) -> anyhow::Result<()> {
    let json = serde_json::to_vec_pretty(report).context("write the report as JSON")?;
    for (name, content) in [("report.json", json), ("report.md", report.markdown().into_bytes())] {
        let file = out.join(name);
        std::fs::write(&file, content).with_context(|| format!("write {}", file.display()))?;
    }
    Ok(())
}
