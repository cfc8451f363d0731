//! One run from start to report, with its clock.
#![expect(
    clippy::disallowed_methods,
    reason = "a load test measures real time, and has a random name"
)]

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::faults::Fault;
use crate::fleet::Fleet;
use crate::generate::{Changes, Generator};
use crate::html;
use crate::machine::Machine;
use crate::oversee::Overseer;
use crate::process::{Binary, Cpu};
use crate::progress;
use crate::replicas::{Replicas, Stretch};
use crate::report::{Loaded, Measurements, Phase, Report, Start};
use crate::results;
use crate::sampler;
use crate::scenario::{Load, Scenario};
use crate::settle::{self, Tracking};
use crate::troubles::Troublemakers;

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
    /// Where the managers run.
    pub cpu: Cpu,
}

/// A run under way.
pub struct Run<'a, 'b> {
    /// What runs.
    pub scenario: &'a Scenario,
    clusters: &'a [(String, Client)],
    own: Option<(&'a Fleet, &'a [CustomResourceDefinition])>,
    started: Instant,
    /// The tracker.
    pub tracking: Tracking,
    /// What makes the changes.
    pub generator: Generator,
    /// The managers.
    pub replicas: &'a mut Replicas<'b>,
    troublemakers: Option<(Troublemakers, f64)>,
    phases: Vec<Phase>,
}

/// The present, from which the times of a run count.
pub fn now() -> Instant {
    Instant::now()
}

/// The random name of a run.
pub fn name() -> Arc<str> {
    format!("{:016x}", fastrand::u64(..)).into()
}

/// Runs a scenario, writes its report to `out`, and returns it.
///
/// # Errors
/// If the set-up fails, or a manager ends on its own.
pub async fn run(options: &Options) -> anyhow::Result<Report> {
    let Options { scenario, out, .. } = options;
    let mut binary = Binary::find(options.manager.clone()).await?;
    let _held = results::begin(out)?;
    binary.cpu = options.cpu;
    let crds = binary.crds().await?;
    let machine = Machine::here(binary.version().await?, options.cpu)?;
    println!("starting {} clusters", scenario.fleet.clusters);
    let fleet = Fleet::start(scenario, out, &crds).await?;
    let mut replicas = Replicas::processes(&binary, scenario, &fleet, out, now());
    let mut run =
        Run::new(scenario, &fleet.clusters, Some((&fleet, &crds)), options.seed, &mut replicas);
    let measured = run.measure().await;
    run.stop().await;
    let clean = replicas.stop().await;
    fleet.stop().await;
    let mut report = Report::of(options.scenario.clone(), options.seed, machine, measured?);
    report.unclean_stop = !clean;
    write(&report, out)?;
    Ok(report)
}

impl<'a, 'b> Run<'a, 'b> {
    /// A run over these clusters, with managers that are not started yet. `own` are the clusters' servers,
    /// if the load test has started them, and what is installed in one more.
    pub fn new(
        scenario: &'a Scenario,
        clusters: &'a [(String, Client)],
        own: Option<(&'a Fleet, &'a [CustomResourceDefinition])>,
        seed: u64,
        replicas: &'a mut Replicas<'b>,
    ) -> Self {
        let started = replicas.started;
        let tracking = Tracking::start(clusters, started);
        let messages = tracking.messages.clone();
        let generator = Generator::new(scenario, clusters, messages, started, seed);
        let (troublemakers, phases) = (None, Vec::new());
        Self {
            scenario,
            clusters,
            own,
            started,
            tracking,
            generator,
            replicas,
            troublemakers,
            phases,
        }
    }

    /// Makes all that the scenario says, and measures it.
    ///
    /// # Errors
    /// If something cannot be made, or a manager ends on its own.
    pub async fn measure(&mut self) -> anyhow::Result<Measurements> {
        let scenario = self.scenario;
        let sampler = sampler::every_second(self.replicas.probes(), self.started);
        let sampler = tokio::spawn(sampler);
        let (initial_seconds, start) = self.start_up().await?;
        let calm = self.calm().await?;
        self.replicas.begin().await?;
        let loaded = self.load("load", &scenario.load, &scenario.faults).await?;
        let mut stretches = self.replicas.stretches().await?;
        self.phase("settle");
        self.replicas.all_back().await?;
        let within = scenario.limits.settle;
        let last = self.tracking.settle(self.replicas, within, "last changes").await?;
        self.replicas.settled(&mut stretches).await?;
        let orphans = settle::orphans(self.clusters, within).await?;
        self.replicas.forget();
        let samples = sampler.await.context("the sampler has stopped")?;
        Ok(Measurements {
            initial_seconds,
            start,
            calm,
            loaded,
            stretches,
            last,
            orphans,
            phases: std::mem::take(&mut self.phases),
            samples,
        })
    }

    /// Stops what is not a manager.
    pub async fn stop(self) {
        self.tracking.stop().await;
        if let Some((troublemakers, _)) = self.troublemakers {
            troublemakers.stop().await;
        }
    }

    fn phase(&mut self, name: &'static str) {
        self.phases.push(Phase { name, from_seconds: self.started.elapsed().as_secs_f64() });
    }

    /// Starts the managers and has all initial objects reconciled. Returns how many seconds that took,
    /// and what it cost each.
    ///
    /// # Errors
    /// If a manager cannot be started, or the objects do not converge in time.
    pub async fn start_up(&mut self) -> anyhow::Result<(f64, Vec<Start>)> {
        let scenario = self.scenario;
        if scenario.troubles.as_ref().is_some_and(|troubles| troubles.from_start) {
            self.make_trouble().await?;
        }
        if scenario.objects.existing {
            self.phase("create");
            self.generator.populate(scenario).await?;
        }
        self.phase("start");
        let began = self.started.elapsed();
        self.replicas.start_all(scenario.fleet.replicas).await?;
        if !scenario.objects.existing {
            self.generator.populate(scenario).await?;
        }
        let within = scenario.limits.settle;
        let initial = self.tracking.settle(self.replicas, within, "initial objects").await?;
        let broke = initial.broke.iter();
        let broke = broke.map(|why| format!("; a watch of the load test's own broke, of {why}"));
        ensure!(
            initial.pending == 0,
            "the initial objects did not converge within {within:?}: {} left, such as {}{}",
            initial.pending,
            initial.examples.join(", "),
            broke.collect::<String>()
        );
        let took = (self.started.elapsed() - began).as_secs_f64();
        self.trouble_held().await?;
        let stretches = self.replicas.begin().await?;
        Ok((took, stretches.iter().map(Start::of).collect()))
    }

    async fn make_trouble(&mut self) -> anyhow::Result<()> {
        let Some(troubles) = &self.scenario.troubles else { return Ok(()) };
        let (fleet, crds) = self.own.context("other clusters are not made in this fleet")?;
        let joined = Troublemakers::join(fleet, self.scenario, troubles, crds).await?;
        self.troublemakers = Some((joined, troubles.flood_per_second));
        Ok(())
    }

    /// Waits until the managers hold the clusters that make trouble, too: the others suffer from these alone.
    async fn trouble_held(&self) -> anyhow::Result<()> {
        let Some((joined, _)) = &self.troublemakers else { return Ok(()) };
        let shards = self.clusters.len() + joined.len();
        settle::held(self.replicas, shards, self.scenario.limits.settle).await
    }

    /// Makes the load once before other clusters make trouble, if they begin only then.
    async fn calm(&mut self) -> anyhow::Result<Option<(Range<Duration>, Vec<Stretch>)>> {
        let scenario = self.scenario;
        if scenario.troubles.as_ref().is_none_or(|troubles| troubles.from_start) {
            return Ok(None);
        }
        let Loaded { span, .. } = self.load("calm load", &scenario.load, &[]).await?;
        let within = scenario.limits.settle;
        self.tracking.settle(self.replicas, within, "changes in calm").await?;
        let stretches = self.replicas.begin().await?;
        self.phase("trouble");
        self.make_trouble().await?;
        self.trouble_held().await?;
        Ok(Some((span, stretches)))
    }

    /// Makes the load, with faults inside it. It begins with a second, so that the seconds before are
    /// told from those in it.
    ///
    /// # Errors
    /// If a change or a fault cannot be made, or a manager ends on its own.
    pub async fn load(
        &mut self,
        name: &'static str,
        load: &Load,
        faults: &[Fault],
    ) -> anyhow::Result<Loaded> {
        let began = Duration::from_secs(self.started.elapsed().as_secs() + 1);
        self.phases.push(Phase { name, from_seconds: began.as_secs_f64() });
        let bar = progress::bar(load.duration.as_millis() as u64, name);
        let (started, pending) = (self.started, self.tracking.pending.clone());
        let progress = || {
            bar.set_position(started.elapsed().saturating_sub(began).as_millis() as u64);
            bar.set_message(format!("{name}, {} pending", *pending.borrow()));
        };
        let (done_out, done) = watch::channel(false);
        let generator = &mut self.generator;
        let generate = async {
            let changes: anyhow::Result<Changes> = generator.load(load, began).await;
            done_out.send_replace(true);
            changes
        };
        let (replicas, fleet) = (&mut *self.replicas, self.own.map(|(fleet, _)| fleet));
        let mut overseer = Overseer { replicas, fleet, started, progress: &progress };
        let overseen = overseer.oversee((faults, load.duration), began, done);
        let troublemakers = &mut self.troublemakers;
        let answered_before = troublemakers.as_ref().map_or(0, |(joined, _)| joined.answered);
        let flood = async {
            match troublemakers.as_mut() {
                Some((joined, per_second)) => joined.flood(*per_second, started + began).await,
                None => std::future::pending().await,
            }
        };
        let loaded = async { tokio::try_join!(generate, overseen) };
        let (changes, faults) = tokio::select! {
            loaded = loaded => loaded?,
            failed = flood => {
                failed?;
                unreachable!("a flood does not end on its own")
            }
        };
        bar.finish_and_clear();
        let ended = self.started.elapsed();
        let flood = self.troublemakers.as_ref().map(|(joined, _)| joined.answered);
        let flooded = flood.unwrap_or_default() - answered_before;
        Ok(Loaded { span: began..ended, changes, faults, flooded })
    }
}

/// Writes a report in all its forms.
///
/// # Errors
/// If a file cannot be written.
pub fn write(report: &Report, out: &Path) -> anyhow::Result<()> {
    let plots = html::plots(report)?;
    let page = html::page(report, &plots);
    results::write(out, "report.json", report.json()?)?;
    results::write(out, "report.md", report.markdown())?;
    results::write(out, "report.html", page)?;
    let mut plots = plots.iter();
    plots.try_for_each(|plot| results::write(out, &format!("{}.svg", plot.name), &plot.svg))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn trouble_from_the_start_that_reaches_nobody_fails_the_run() {
        let text = include_str!("../scenarios/thousand.toml");
        let mut scenario: Scenario = toml::from_str(text).unwrap();
        scenario.troubles.as_mut().unwrap().dead = 1;
        (scenario.fleet.clusters, scenario.fleet.replicas) = (1, 0);
        (scenario.objects.count, scenario.limits.settle) = (0, Duration::ZERO);
        let dir = tempfile::tempdir().unwrap();
        // No process of it is started.
        let binary = Binary::find(Some("Cargo.toml".into())).await.unwrap();
        let crds: Vec<CustomResourceDefinition> = Vec::new();
        let fleet = Fleet::start(&scenario, dir.path(), &crds).await.unwrap();
        let mut replicas = Replicas::processes(&binary, &scenario, &fleet, dir.path(), now());
        let own = Some((&fleet, &crds[..]));
        let mut run = Run::new(&scenario, &fleet.clusters, own, 1, &mut replicas);
        let error = run.start_up().await.unwrap_err().to_string();
        assert!(error.ends_with(" of 2 shards after 0ns"), "{error}");
        run.stop().await;
        assert!(replicas.stop().await);
        fleet.stop().await;
    }
}
