//! The replicas of a run: those that live, those that faults ended, and what each did under load.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use futures::future::{join_all, try_join_all};
use kube::Client;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::fleet::{Fleet, MEASURED};
use crate::pods::{Pod, Pods};
use crate::probe::Probe;
use crate::process::{Binary, Process};
use crate::sampler::{Sample, sample};
use crate::scenario::Scenario;

/// How long a replica may take to be ready in a rolling update.
const READY_BOUND: Duration = Duration::from_secs(120);
/// How often it is asked.
const READY_LOOK: Duration = Duration::from_millis(100);
/// How long a Pod that was killed may stay away: a kubelet waits for up to five minutes before it starts a container
/// again that ended often.
const BACK_BOUND: Duration = Duration::from_secs(360);
/// How often is looked for it.
const BACK_LOOK: Duration = Duration::from_secs(1);

/// The replicas of a run. Of processes only those that it started are ever stopped or killed; Pods are killed,
/// and come back on their own.
pub struct Replicas<'a> {
    source: Source<'a>,
    /// The start of the run.
    pub started: Instant,
    /// Oldest first.
    live: Vec<Manager>,
    ended: Vec<Stretch>,
    ledger: Ledger,
    /// One of these is in the labels of each measured cluster's series.
    measured: Vec<String>,
    /// How many processes each identity had.
    lives: BTreeMap<String, u32>,
    probes: watch::Sender<Vec<Probe>>,
}

/// Where replicas come from.
enum Source<'a> {
    /// They are processes of the load test.
    Processes { binary: &'a Binary, scenario: &'a Scenario, fleet: &'a Fleet, dir: &'a Path },
    /// They run somewhere.
    Pods(Box<Pods>),
}

/// One replica that lives.
enum Manager {
    Process(Box<Process>),
    Pod(Box<Pod>),
}

/// What the figures of each count from, by its probe's name.
#[derive(Default)]
struct Ledger {
    /// When the load began, or it did.
    before: BTreeMap<String, Sample>,
    /// Errors that it had before the run.
    errors: BTreeMap<String, f64>,
}

impl Ledger {
    /// One that ran before the run did.
    fn met(&mut self, name: &str, now: Sample) {
        self.errors.insert(name.to_owned(), now.errors);
        self.begin(name, now);
    }

    /// The load begins, or it does.
    fn begin(&mut self, name: &str, now: Sample) {
        self.before.insert(name.to_owned(), now);
    }

    fn stretch(&self, name: &str, after: Sample) -> anyhow::Result<Stretch> {
        let before = self.before.get(name).cloned().unwrap_or_default();
        // The last list of Pods may be older than its restart.
        ensure!(
            after.usage.cpu >= before.usage.cpu,
            "{name} ended on its own and was started again: it has used {:?} of CPU time, and {:?} before",
            after.usage.cpu,
            before.usage.cpu
        );
        let errors = after.errors - self.errors.get(name).copied().unwrap_or_default();
        Ok(Stretch { name: name.to_owned(), before, after, errors })
    }
}

/// What one process did under load, between two samples.
pub struct Stretch {
    /// Its name.
    pub name: String,
    /// When the load began, or it did.
    pub before: Sample,
    /// When the load ended, or it did.
    pub after: Sample,
    /// Its errors in the whole run.
    pub errors: f64,
}

impl Stretch {
    /// Takes over what is not by time. Series of clusters that left it meanwhile are kept.
    fn settled(&mut self, last: Self) {
        let Self { after, errors, .. } = self;
        *errors = last.errors;
        after.queue.merge(&after.queue.until(&last.after.queue));
        after.reconcile.merge(&after.reconcile.until(&last.after.reconcile));
        after.usage.peak_resident_bytes = last.after.usage.peak_resident_bytes;
    }
}

/// What the series of measured clusters have in their labels. Some get other names, which begin alike, and of more than
/// a thousand clusters in a replica those beyond share the series of one.
fn of_measured() -> Vec<String> {
    vec![format!("cluster=\"{MEASURED}"), "cluster=\"other\"".to_owned()]
}

impl Manager {
    fn probe(&self) -> &Probe {
        match self {
            Self::Process(process) => &process.probe,
            Self::Pod(pod) => &pod.probe,
        }
    }
}

impl<'a> Replicas<'a> {
    /// Processes, of which none runs yet.
    pub fn processes(
        binary: &'a Binary,
        scenario: &'a Scenario,
        fleet: &'a Fleet,
        dir: &'a Path,
        started: Instant,
    ) -> Self {
        Self::of(Source::Processes { binary, scenario, fleet, dir }, of_measured(), started)
    }

    /// Pods, which run, and may have more clusters than these.
    pub fn pods(pods: Pods, clusters: &[(String, Client)], started: Instant) -> Self {
        let measured = clusters.iter().map(|(name, _)| format!("cluster=\"{name}\"")).collect();
        Self::of(Source::Pods(Box::new(pods)), measured, started)
    }

    fn of(source: Source<'a>, measured: Vec<String>, started: Instant) -> Self {
        Self {
            source,
            measured,
            started,
            live: Vec::new(),
            ended: Vec::new(),
            ledger: Ledger::default(),
            lives: BTreeMap::new(),
            probes: watch::Sender::new(Vec::new()),
        }
    }

    /// Starts so many, or counts what so many Pods do from now on.
    ///
    /// # Errors
    /// If a process cannot be started, or other than so many Pods run.
    pub async fn start_all(&mut self, replicas: u32) -> anyhow::Result<()> {
        let Source::Pods(pods) = &mut self.source else {
            return (0..replicas).try_for_each(|_| self.join());
        };
        for pod in pods.all(replicas)? {
            let before = sample(&pod.probe, self.started, &self.measured).await?;
            self.ledger.met(&pod.probe.name, before);
            self.live.push(Manager::Pod(Box::new(pod)));
        }
        self.publish();
        Ok(())
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
        let Source::Processes { binary, scenario, fleet, dir } = &self.source else {
            bail!("replicas that are Pods are not started by the load test")
        };
        let life = self.lives.entry(identity.to_owned()).or_default();
        *life += 1;
        let process = Process::start(binary, (identity, *life), scenario, fleet, dir)?;
        self.add(Manager::Process(Box::new(process)));
        Ok(())
    }

    /// Adds one that has just begun.
    fn add(&mut self, manager: Manager) {
        let before = Sample { at: self.started.elapsed(), ..Sample::default() };
        self.ledger.begin(&manager.probe().name, before);
        self.live.push(manager);
        self.publish();
    }

    fn publish(&self) {
        self.probes.send_replace(self.live.iter().map(|manager| manager.probe().clone()).collect());
    }

    /// Fails if one has ended on its own. Pods that were killed and are back live again.
    ///
    /// # Errors
    /// Names it, and how it ended.
    pub fn check(&mut self) -> anyhow::Result<()> {
        if let Source::Pods(pods) = &mut self.source {
            for pod in pods.check()? {
                self.add(Manager::Pod(Box::new(pod)));
            }
            return Ok(());
        }
        self.live.iter_mut().try_for_each(|manager| match manager {
            Manager::Process(process) => process.check(),
            Manager::Pod(_) => Ok(()),
        })
    }

    /// Waits until all Pods that were killed are back, which shows that something killed them. Processes stay away
    /// unless the scenario starts them again.
    ///
    /// # Errors
    /// If one is not back in time, or another has ended on its own.
    pub async fn all_back(&mut self) -> anyhow::Result<()> {
        let back = async {
            loop {
                self.check()?;
                if self.away().is_empty() {
                    return anyhow::Ok(());
                }
                tokio::time::sleep(BACK_LOOK).await;
            }
        };
        if let Ok(back) = tokio::time::timeout(BACK_BOUND, back).await {
            return back;
        }
        bail!(
            "{} was killed, and its container not started again within {BACK_BOUND:?}: the kill hit nothing, or the \
             container does not start; see kubectl describe pod",
            self.away().join(", ")
        )
    }

    /// The Pods that were killed and are not back.
    fn away(&self) -> Vec<String> {
        match &self.source {
            Source::Pods(pods) => pods.away(),
            Source::Processes { .. } => Vec::new(),
        }
    }

    /// Everything about each of those that live now.
    ///
    /// # Errors
    /// If one does not answer.
    pub async fn samples(&self) -> anyhow::Result<Vec<Sample>> {
        let probes = self.live.iter().map(Manager::probe);
        try_join_all(probes.map(|probe| sample(probe, self.started, &self.measured))).await
    }

    /// Counts what each does from now on. Returns what it did before.
    ///
    /// # Errors
    /// If one does not answer.
    pub async fn begin(&mut self) -> anyhow::Result<Vec<Stretch>> {
        let stretches = self.stretches().await?;
        self.ended.clear();
        for (manager, stretch) in self.live.iter().zip(&stretches) {
            self.ledger.begin(&manager.probe().name, stretch.after.clone());
        }
        Ok(stretches)
    }

    /// What each did since then: first those that live, then those that ended.
    ///
    /// # Errors
    /// If one does not answer, or is not the process that it was.
    pub async fn stretches(&mut self) -> anyhow::Result<Vec<Stretch>> {
        let samples = self.samples().await?;
        let live = self.live.iter().zip(samples);
        let live = live.map(|(manager, after)| self.ledger.stretch(&manager.probe().name, after));
        let mut all: Vec<Stretch> = live.collect::<anyhow::Result<_>>()?;
        all.append(&mut self.ended);
        Ok(all)
    }

    /// What the load left them to do is done: the waits, errors and memory of that are its own, too.
    ///
    /// # Errors
    /// If one does not answer, or is not the process that it was.
    pub async fn settled(&self, stretches: &mut [Stretch]) -> anyhow::Result<()> {
        for stretch in stretches {
            // Some have ended, and one that was killed may just begin again.
            let mut live = self.live.iter().map(Manager::probe);
            if let Some(probe) = live.find(|probe| probe.name == stretch.name) {
                let last = sample(probe, self.started, &self.measured).await?;
                stretch.settled(self.ledger.stretch(&probe.name, last)?);
            }
        }
        Ok(())
    }

    /// Kills one, by its place among those that live. Returns its identity.
    ///
    /// # Errors
    /// If there is none, or it cannot be killed.
    pub async fn kill(&mut self, place: u32) -> anyhow::Result<String> {
        match (self.take(place as usize).await?, &mut self.source) {
            (Manager::Process(process), _) => {
                let identity = process.identity.clone();
                process.kill().await?;
                Ok(identity)
            }
            (Manager::Pod(pod), Source::Pods(pods)) => pods.kill(&pod).await,
            (Manager::Pod(_), Source::Processes { .. }) => unreachable!("processes are no Pods"),
        }
    }

    /// Replaces each: the next starts and is ready before it gets SIGTERM.
    ///
    /// # Errors
    /// If a new one is not ready in time, or an old one does not stop cleanly.
    pub async fn replace_all(&mut self) -> anyhow::Result<()> {
        for _ in 0..self.live.len() {
            self.join()?;
            let new = self.live.last().context("no replica has just started")?.probe().clone();
            let ready = async {
                while !new.is_ready().await {
                    tokio::time::sleep(READY_LOOK).await;
                }
            };
            let ready = tokio::time::timeout(READY_BOUND, ready).await;
            ready.with_context(|| format!("{} is not ready; see its log", new.name))?;
            let Manager::Process(old) = self.take(0).await? else {
                unreachable!("join starts processes")
            };
            let name = old.probe.name.clone();
            ensure!(old.stop().await, "{name} did not stop cleanly on SIGTERM; see its log");
        }
        Ok(())
    }

    /// Takes one out of those that live, and keeps what it did.
    async fn take(&mut self, place: usize) -> anyhow::Result<Manager> {
        ensure!(place < self.live.len(), "there is no replica {place}: {} run", self.live.len());
        let probe = self.live[place].probe();
        let after = sample(probe, self.started, &self.measured).await?;
        self.ended.push(self.ledger.stretch(&probe.name, after)?);
        let manager = self.live.remove(place);
        self.publish();
        Ok(manager)
    }

    /// Ends what reads the probes.
    pub fn forget(&mut self) {
        self.probes = watch::Sender::new(Vec::new());
    }

    /// Stops all processes. True if each ended on its own with exit code 0.
    pub async fn stop(self) -> bool {
        let processes = self.live.into_iter().filter_map(|manager| match manager {
            Manager::Process(process) => Some(process.stop()),
            Manager::Pod(_) => None,
        });
        join_all(processes).await.into_iter().all(|clean| clean)
    }
}

#[cfg(test)]
mod tests {
    use loadtest::scrape::histogram;

    use super::*;
    use crate::sampler::waits;

    #[test]
    fn waits_of_clusters_without_series_of_their_own_count() {
        let line = |cluster| {
            format!(
                "leasehold_cluster_queue_seconds_bucket{{cluster=\"{cluster}\",le=\"+Inf\"}} 1\n"
            )
        };
        let page = ["cluster-001", "cluster-007-2", "other", "dead-001"].map(line).concat();
        assert_eq!(waits(&page, &of_measured()).count(), 3.0);
    }

    #[tokio::test]
    async fn a_kill_that_hits_nothing_fails_the_run() {
        let pods = crate::pods::tests::killed().await;
        let mut replicas = Replicas::pods(pods, &[], crate::run::now());
        tokio::time::pause();
        let error = replicas.all_back().await.unwrap_err().to_string();
        assert!(error.starts_with("a was killed, and its container not started again"), "{error}");
    }

    #[test]
    fn errors_count_from_the_beginning_of_the_run() {
        let sample = |errors| Sample { errors, ..Sample::default() };
        let mut ledger = Ledger::default();
        ledger.met("pod", sample(5000.0));
        ledger.begin("pod", sample(5002.0));
        ledger.begin("pod.2", sample(0.0));
        for (name, after, expect) in [("pod", 5003.0, 3.0), ("pod.2", 7.0, 7.0)] {
            let found = ledger.stretch(name, sample(after)).unwrap().errors;
            assert!((found - expect).abs() < f64::EPSILON, "{name}: {found}");
        }
    }

    #[test]
    fn what_the_load_left_counts_and_the_time_for_it_does_not() {
        let sample = |errors, waits: u32| {
            let cluster = if waits < 50 { "leaves" } else { "comes" };
            let line = |cluster, n| format!("q_bucket{{cluster=\"{cluster}\",le=\"+Inf\"}} {n}\n");
            let queue = histogram(&(line("stays", waits) + &line(cluster, 5)), "q");
            let mut sample =
                Sample { errors, reconciles: waits.into(), queue, ..Sample::default() };
            sample.usage.cpu = Duration::from_secs(waits.into());
            sample.usage.peak_resident_bytes = waits.into();
            sample
        };
        let ledger = Ledger::default();
        let mut stretch = ledger.stretch("a", sample(1.0, 10)).unwrap();
        stretch.settled(ledger.stretch("a", sample(4.0, 90)).unwrap());
        assert_eq!((stretch.errors, stretch.after.queue.count()), (4.0, 100.0));
        assert_eq!(stretch.after.usage.peak_resident_bytes, 90);
        let by_time = (stretch.after.reconciles, stretch.after.usage.cpu);
        assert_eq!(by_time, (10.0, Duration::from_secs(10)));
    }

    #[test]
    fn counters_that_go_back_are_those_of_another_process() {
        let sample = |seconds| {
            let mut sample = Sample { reconciles: 9.0, ..Sample::default() };
            sample.usage.cpu = Duration::from_secs(seconds);
            sample
        };
        let mut ledger = Ledger::default();
        ledger.begin("pod", sample(40));
        assert!(ledger.stretch("pod", sample(40)).is_ok());
        let error = ledger.stretch("pod", sample(3)).err().unwrap().to_string();
        assert!(error.starts_with("pod ended on its own and was started again: "), "{error}");
    }
}
