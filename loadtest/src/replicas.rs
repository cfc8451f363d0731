//! The replicas of a run: those that live, those that faults ended, and what each did under load.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::future::{join_all, try_join_all};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::fleet::Fleet;
use crate::managers::{Binary, Manager, Probe};
use crate::sampler::{Sample, sample};
use crate::scenario::Scenario;

/// How long a replica may take to be ready in a rolling update.
const READY_BOUND: Duration = Duration::from_secs(120);
/// How often it is asked.
const READY_LOOK: Duration = Duration::from_millis(100);

/// The manager processes of a run. Only those that it started are ever stopped or killed.
pub struct Replicas<'a> {
    binary: &'a Binary,
    scenario: &'a Scenario,
    fleet: &'a Fleet,
    dir: &'a Path,
    /// The start of the run.
    pub started: Instant,
    /// Oldest first.
    live: Vec<Manager>,
    ended: Vec<Stretch>,
    /// What the figures of each process under load count from, by process id.
    before: BTreeMap<u32, Sample>,
    /// How many processes each identity had.
    lives: BTreeMap<String, u32>,
    probes: watch::Sender<Vec<Probe>>,
}

/// What one process did under load, between two samples.
pub struct Stretch {
    /// Its name.
    pub name: String,
    /// When the load began, or it did.
    pub before: Sample,
    /// When the load ended, or it did.
    pub after: Sample,
}

impl<'a> Replicas<'a> {
    /// No replica yet.
    pub fn new(
        binary: &'a Binary,
        scenario: &'a Scenario,
        fleet: &'a Fleet,
        dir: &'a Path,
        started: Instant,
    ) -> Self {
        Self {
            binary,
            scenario,
            fleet,
            dir,
            started,
            live: Vec::new(),
            ended: Vec::new(),
            before: BTreeMap::new(),
            lives: BTreeMap::new(),
            probes: watch::Sender::new(Vec::new()),
        }
    }

    /// The probes of those that live, as they come and go.
    pub fn probes(&self) -> watch::Receiver<Vec<Probe>> {
        self.probes.subscribe()
    }

    /// Starts one more.
    ///
    /// # Errors
    /// If its process cannot be started.
    pub fn join(&mut self) -> anyhow::Result<()> {
        self.start(&format!("replica-{}", self.lives.len()))
    }

    /// Starts a process of this identity.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(&mut self, identity: &str) -> anyhow::Result<()> {
        let life = self.lives.entry(identity.to_owned()).or_default();
        *life += 1;
        let Self { binary, scenario, fleet, dir, .. } = self;
        let manager = Manager::start(binary, (identity, *life), scenario, fleet, dir)?;
        let before = Sample { at: self.started.elapsed(), ..Sample::default() };
        self.before.insert(manager.probe.pid, before);
        self.live.push(manager);
        self.publish();
        Ok(())
    }

    fn publish(&self) {
        self.probes.send_replace(self.live.iter().map(|manager| manager.probe.clone()).collect());
    }

    /// Fails if one has ended on its own.
    ///
    /// # Errors
    /// Names it and its exit status.
    pub fn check(&mut self) -> anyhow::Result<()> {
        self.live.iter_mut().try_for_each(Manager::check)
    }

    /// Everything about each of those that live now.
    ///
    /// # Errors
    /// If one does not answer.
    pub async fn samples(&self) -> anyhow::Result<Vec<Sample>> {
        let started = self.started;
        try_join_all(self.live.iter().map(|manager| sample(&manager.probe, started))).await
    }

    /// Counts what each does from now on. Returns what it did before.
    ///
    /// # Errors
    /// If one does not answer.
    pub async fn begin(&mut self) -> anyhow::Result<Vec<Stretch>> {
        let stretches = self.stretches().await?;
        self.ended.clear();
        for (manager, stretch) in self.live.iter().zip(&stretches) {
            self.before.insert(manager.probe.pid, stretch.after.clone());
        }
        Ok(stretches)
    }

    /// What each did since then: first those that live, then those that ended.
    ///
    /// # Errors
    /// If one does not answer.
    pub async fn stretches(&mut self) -> anyhow::Result<Vec<Stretch>> {
        let samples = self.samples().await?;
        let live = self.live.iter().zip(samples);
        let mut all: Vec<Stretch> = live
            .map(|(manager, after)| Stretch {
                name: manager.probe.name.clone(),
                before: self.before.get(&manager.probe.pid).cloned().unwrap_or_default(),
                after,
            })
            .collect();
        all.append(&mut self.ended);
        Ok(all)
    }

    /// Kills one, by its place among those that live. Returns its identity.
    ///
    /// # Errors
    /// If there is none, or it cannot be killed.
    pub async fn kill(&mut self, place: u32) -> anyhow::Result<String> {
        let manager = self.take(place as usize).await?;
        let identity = manager.identity.clone();
        manager.kill().await?;
        Ok(identity)
    }

    /// Replaces each: the next starts and is ready before it gets SIGTERM.
    ///
    /// # Errors
    /// If a new one is not ready in time, or an old one does not stop cleanly.
    pub async fn replace_all(&mut self) -> anyhow::Result<()> {
        for _ in 0..self.live.len() {
            self.join()?;
            let new = self.live.last().context("no replica has just started")?.probe.clone();
            let ready = async {
                while !new.is_ready().await {
                    tokio::time::sleep(READY_LOOK).await;
                }
            };
            let ready = tokio::time::timeout(READY_BOUND, ready).await;
            ready.with_context(|| format!("{} is not ready; see its log", new.name))?;
            let old = self.take(0).await?;
            let name = old.probe.name.clone();
            ensure!(old.stop().await, "{name} did not stop cleanly on SIGTERM; see its log");
        }
        Ok(())
    }

    /// Takes one out of those that live, and keeps what it did.
    async fn take(&mut self, place: usize) -> anyhow::Result<Manager> {
        ensure!(place < self.live.len(), "there is no replica {place}: {} run", self.live.len());
        let probe = &self.live[place].probe;
        let after = sample(probe, self.started).await?;
        let before = self.before.remove(&probe.pid).unwrap_or_default();
        self.ended.push(Stretch { name: probe.name.clone(), before, after });
        let manager = self.live.remove(place);
        self.publish();
        Ok(manager)
    }

    /// Ends what reads the probes.
    pub fn forget(&mut self) {
        self.probes = watch::Sender::new(Vec::new());
    }

    /// Stops all. True if each ended on its own with exit code 0.
    pub async fn stop(self) -> bool {
        join_all(self.live.into_iter().map(Manager::stop)).await.into_iter().all(|clean| clean)
    }
}
