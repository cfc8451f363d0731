//! The registry: one task that owns the set of clusters and publishes it.
//!
//! ```text
//!             new source            client made, server known
//!  (absent) ────────────▶ Connecting ──────────────────▶ Engaged ─┐ new kubeconfig: Engaged with
//!      ▲                    │     ▲                        │  ▲   │ the old client until the new
//!      │                    ▼     │ retried, backing off   │  └───┘ one is made
//!      └── source gone ──── Down ─┘ ◀── unusable kubeconfig┘
//! ```
//!
//! A server is known when it has said which cluster it is, or that it does not tell, and when no other
//! fleet that does the same has its mark there (`marks`).

mod disputes;
mod identify;
mod marks;
mod publication;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ::marks::{Looked, Marker, Own};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use model::{
    Clock, Cluster, ClusterLabels, ClusterName, ClusterSet, ClusterState, DisputedNames, Moment,
    SourceBudget, TaskEnd, VitalTask, Wire, doubled,
};
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::budget::granted;
use crate::connect::{Connector, Life};
use crate::entry::{CALM, CONNECTING, Entry, Serving};
use crate::error::Unusable;
use crate::identity::Told;
use crate::merge::{Merged, NO_RIGHT, merge};
use crate::probe::{MAX_PROBES, PROBE_INTERVAL, Probed, Wanted, probe};
use crate::provider::{Access, ClusterProvider, Fingerprint, Snapshot, Source};
use crate::role::Role;
use crate::status::Status;
use crate::turns::Turns;
use crate::up::ClustersUp;
use publication::Publication;

/// How long the first publication waits for providers that do not answer. Those that it leaves out it says to be open,
/// so that nobody takes their clusters for removed.
const FIRST_ANSWERS: Duration = Duration::from_secs(60);
/// The first wait before making a client again after a failure; doubles each time.
pub const RETRY_MIN: Duration = Duration::from_secs(5);
/// The longest wait before making a client again.
const RETRY_MAX: Duration = Duration::from_secs(60);
/// The most clusters of a provider at whose marks it looks at once before they are engaged.
const MAX_LOOKS: usize = 256;
/// The most sources that went of which it is remembered how often they changed.
const MAX_GONE: usize = 20_000;
/// The reason of a cluster for which no client can be made because of a defect.
const PANICKED: &str = "making its client panicked, a defect of the manager: see the log";

/// Whether the registry probes API servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Probing {
    /// Every ten seconds, for metrics and status; and asks which clusters they are.
    #[default]
    On,
    /// Never: an engaged cluster counts as up, and nobody knows which it is.
    Off,
}

/// Starts the registry's task.
#[derive(Debug)]
pub struct Registry;

/// A read handle on the registry.
#[derive(Clone, Debug)]
pub struct Clusters {
    set: watch::Receiver<Arc<ClusterSet>>,
    status: watch::Receiver<Arc<Status>>,
    task: VitalTask,
}

impl Registry {
    /// Starts engaging the clusters of `providers`. Of duplicates, the one that has the name keeps it; else the
    /// first provider's wins, unless the name is `disputed`: then another is tried. With a `marker`, clusters
    /// are marked as this fleet's, and those of another that does the same are refused.
    ///
    /// # Errors
    /// When `metrics` already holds a series of this name.
    pub fn spawn(
        providers: Vec<Box<dyn ClusterProvider>>,
        probing: Probing,
        marker: Option<Marker>,
        disputed: watch::Receiver<Arc<DisputedNames>>,
        shutdown: CancellationToken,
        (metrics, labels): (&prometheus::Registry, Arc<ClusterLabels>),
        clock: Arc<dyn Clock>,
    ) -> Result<Clusters, prometheus::Error> {
        let (set_sender, set) = watch::channel(Arc::default());
        let (status_sender, status) = watch::channel(Arc::default());
        metrics.register(Box::new(ClustersUp::new(status.clone(), labels)?))?;
        let connector = Connector::new(Role::Workload, Arc::clone(&clock));
        connector.register(metrics)?;
        let provided = providers.iter().map(|provider| Provided {
            label: provider.label(),
            beginning: provider.prefix().map_or_else(String::new, |prefix| prefix.beginning()),
            budget: provider.budget(),
            probes: Turns::new(MAX_PROBES),
            looks: Arc::new(Semaphore::new(MAX_LOOKS)),
            connector: connector.apart(),
            latest: None,
        });
        let mut task = Task {
            marker: marker.filter(|_| probing == Probing::On),
            disputed,
            own: None,
            clock,
            providers: provided.collect(),
            overdue: false,
            entries: BTreeMap::new(),
            gone: BTreeMap::new(),
            problems: Vec::new(),
            incarnations: 0,
            publication: Publication::Incomplete,
            rest: None,
            sent: false,
            probing,
            work: JoinSet::new(),
            set: set_sender,
            status: status_sender,
        };
        task.take_fleet();
        let task = VitalTask::spawn(task.run(providers, shutdown));
        Ok(Clusters { set, status, task })
    }
}

impl Clusters {
    /// The clusters, now and at each change.
    pub fn watch(&self) -> watch::Receiver<Arc<ClusterSet>> {
        self.set.clone()
    }

    /// The status of each cluster, for people. It is never older than a set that was seen before.
    pub fn status(&self) -> Arc<Status> {
        Arc::clone(&self.status.borrow())
    }

    /// The status of each cluster, now and at each change.
    pub fn watch_status(&self) -> watch::Receiver<Arc<Status>> {
        self.status.clone()
    }

    /// Waits for the first publication, when every provider has answered, or a minute has passed.
    ///
    /// # Errors
    /// If the registry ended before: that there are no clusters is not known then.
    pub async fn ready(&mut self) -> Result<(), TaskEnd> {
        if self.set.changed().await.is_err() {
            return Err(self.ended().await);
        }
        self.set.mark_changed();
        Ok(())
    }

    /// Waits until each cluster has a client or a reason why not.
    ///
    /// # Errors
    /// If the registry ended before.
    pub async fn settled(&mut self) -> Result<(), TaskEnd> {
        self.ready().await?;
        let connecting = |state: &ClusterState| matches!(state, ClusterState::Down(reason) if **reason == *CONNECTING);
        if self.set.wait_for(|set| !set.clusters.values().any(connecting)).await.is_err() {
            return Err(self.ended().await);
        }
        Ok(())
    }

    /// Waits until the registry has ended: it returns after its shutdown, else that is a defect.
    pub async fn ended(&self) -> TaskEnd {
        self.task.ended().await
    }

    /// How the registry has ended, if it has.
    pub fn end(&self) -> Option<TaskEnd> {
        self.task.end()
    }
}

/// The report of a cluster's own task.
enum Report {
    /// A step has been taken to engage it with this source.
    Step { name: ClusterName, of: Fingerprint, step: Step },
    /// It has been probed.
    Probed { name: ClusterName, incarnation: u64, number: u32, probed: Probed },
    /// Clients that are not ready yet are waited for no more.
    FirstWaitOver,
    /// It may publish again.
    RestOver,
    /// The providers that have not answered yet are waited for no more.
    AnswersOverdue,
}

/// A step towards the engagement of a cluster.
enum Step {
    /// Its client was made, or not.
    Made { attempt: u32, made: Result<(Wire, Life), Arc<Unusable>> },
    /// Its server was asked which cluster it is.
    Asked { wire: Wire, attempt: u32, answer: Told },
    /// Its server has been left alone, which said again and again that it is another cluster.
    LeftAlone { wire: Wire },
    /// Its marks were looked at.
    Looked { wire: Wire, looked: Looked },
}

/// What the registry keeps for each provider. One that is slow takes no turn and no client of another's clusters.
struct Provided {
    /// What it reads, for people.
    label: String,
    /// What the names of its clusters begin with.
    beginning: String,
    /// The budget of its clusters, if it has one of its own.
    budget: Option<SourceBudget>,
    probes: Turns,
    /// For looks at marks before a cluster is engaged: probes of silent clusters do not delay them.
    looks: Arc<Semaphore>,
    connector: Connector,
    /// `None` until it has answered.
    latest: Option<Snapshot>,
}

struct Task {
    /// In the order of the configuration: [`Entry::place`] is an index.
    providers: Vec<Provided>,
    /// Whether those that have not answered are waited for no more.
    overdue: bool,
    entries: BTreeMap<ClusterName, Entry>,
    /// The sources that went lately, by origin: when each changed last, and how often in a row. Not by name: whoever
    /// writes a Secret may give its cluster another one each time.
    gone: BTreeMap<Arc<str>, (Moment, u32)>,
    problems: Vec<Arc<str>>,
    /// Counts engagements of all clusters. So a name that goes and returns gets a higher number, although
    /// nothing remembers it meanwhile.
    incarnations: u64,
    publication: Publication,
    /// Whether there is news, while it rests after a publication.
    rest: Option<bool>,
    /// Whether the set was ever sent: an empty set is sent once too.
    sent: bool,
    probing: Probing,
    marker: Option<Marker>,
    disputed: watch::Receiver<Arc<DisputedNames>>,
    /// Which fleet this is; `None` until home says so, and where nothing is marked.
    own: Option<Arc<Own>>,
    clock: Arc<dyn Clock>,
    work: JoinSet<Report>,
    set: watch::Sender<Arc<ClusterSet>>,
    status: watch::Sender<Arc<Status>>,
}

impl Task {
    async fn run(mut self, providers: Vec<Box<dyn ClusterProvider>>, shutdown: CancellationToken) {
        let mut snapshots = stream::select_all(providers.into_iter().enumerate().map(follow));
        self.work.spawn(async {
            tokio::time::sleep(FIRST_ANSWERS).await;
            Report::AnswersOverdue
        });
        self.publish();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                Some((place, snapshot)) = snapshots.next() => self.take(place, snapshot),
                Some(done) = self.work.join_next() => self.done_all(done),
                () = marks::renamed(&mut self.marker) => self.take_fleet(),
                () = disputes::changed(&mut self.disputed) => self.heed_disputes(),
            }
        }
    }

    fn take(&mut self, place: usize, snapshot: Snapshot) {
        self.providers[place].latest = Some(snapshot);
        self.merge();
    }

    /// Joins what the providers know and acts on the differences.
    fn merge(&mut self) {
        // Before the first publication nobody works on a cluster.
        let entry = |source: &Source| self.entries.get(&source.name).filter(|_| self.sent);
        let right =
            |source: &Source| entry(source).map_or(NO_RIGHT, |entry| entry.right_of(source));
        let snapshots = self.providers.iter().map(|provider| &provider.latest);
        let Merged { sources, mut problems } = merge(snapshots, right);
        problems.extend(self.unanswered());
        let mut budgets = Vec::new();
        for (place, source) in sources.values() {
            let of_source = self.providers[*place].budget;
            let (budget, problem) = granted(&source.asked, &source.origin, of_source);
            budgets.push(budget);
            problems.extend(problem);
        }
        let known: BTreeSet<_> = self.problems.iter().collect();
        for problem in problems.iter().filter(|problem| !known.contains(problem)) {
            warn!("{problem}");
        }
        self.problems = problems;
        let now = self.clock.now();
        self.gone.retain(|_, (last, _)| now <= *last + CALM);
        self.entries.retain(|name, entry| {
            let keep = sources.contains_key(name);
            if !keep {
                info!(cluster = %name, origin = %entry.source.origin, "cluster disengaged: its kubeconfig is gone");
                entry.stop();
                if self.gone.len() < MAX_GONE {
                    self.gone.insert(Arc::clone(&entry.source.origin), entry.change(now));
                }
            }
            keep
        });
        for ((name, (place, source)), budget) in sources.into_iter().zip(budgets) {
            self.update(&name, source, place);
            if let Some(entry) = self.entries.get_mut(&name) {
                entry.keep(budget);
            }
        }
        self.publish();
    }

    /// The providers that should have answered by now.
    fn unanswered(&self) -> Vec<Arc<str>> {
        let open =
            self.providers.iter().filter(|provider| self.overdue && provider.latest.is_none());
        let text = |Provided { label, .. }: &Provided| {
            format!(
                "{label} cannot be read since the start, so this process does not know the clusters there, and \
                 works on the others; fix: see its log"
            )
        };
        open.map(|provider| text(provider).into()).collect()
    }

    fn update(&mut self, name: &ClusterName, source: Source, place: usize) {
        let attempt = if let Some(entry) = self.entries.get_mut(name) {
            entry.place = place;
            if entry.source.fingerprint == source.fingerprint {
                entry.source.origin = source.origin;
                return;
            }
            entry.stop_making();
            if !self.sent {
                // Nobody has worked on what it was engaged with, and nobody is to begin with it.
                (entry.engaged, entry.serving) = (None, Serving::Connecting);
            }
            entry.replace(source.clone(), self.clock.now())
        } else {
            let mut entry = Entry::new(source.clone(), place);
            entry.changed = self.gone.remove(&source.origin);
            let attempt = entry.attempt();
            self.entries.insert(name.clone(), entry);
            attempt
        };
        match &source.access {
            Ok(_) => self.make(name, attempt),
            Err(error) => self.down(name, error.reason().into()),
        }
    }

    /// Makes the client in a task of its own, after a wait that grows with each attempt.
    fn make(&mut self, name: &ClusterName, attempt: u32) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let connector = &self.providers[entry.place].connector;
        let connector = if attempt == 0 { connector.clone() } else { connector.again() };
        let (name, source) = (name.clone(), entry.source.clone());
        entry.making = Some(self.work.spawn(async move {
            if attempt > 0 {
                tokio::time::sleep(doubled(RETRY_MIN, attempt - 1, RETRY_MAX)).await;
            }
            let made = match &source.access {
                Ok(access) => connector.wire(&source.origin, access).await,
                Err(error) => Err(Arc::clone(error)),
            };
            Report::Step { name, of: source.fingerprint, step: Step::Made { attempt, made } }
        }));
    }

    /// Takes in what is done by now, and publishes it once, if it is news: of ten thousand clusters, thousands may not
    /// answer, and say so again and again.
    fn done_all(&mut self, first: Result<Report, JoinError>) {
        let (mut next, mut is_news) = (Some(first), false);
        while let Some(done) = next {
            is_news |= match done {
                Ok(report) => self.report(report),
                Err(stopped) if stopped.is_cancelled() => false,
                Err(panicked) => self.panicked(&panicked),
            };
            next = self.work.try_join_next();
        }
        if is_news {
            self.publish();
        }
    }

    /// A defect that one cluster brings to light is that cluster's trouble alone: it is down, and tried
    /// again after the longest wait. Returns whether there is something to be published.
    fn panicked(&mut self, panicked: &JoinError) -> bool {
        error!("a task that served a cluster panicked: {panicked}");
        let is_it = |task: &Option<AbortHandle>| {
            task.as_ref().is_some_and(|task| task.id() == panicked.id())
        };
        let of = |(name, entry): (&ClusterName, &Entry)| {
            let making = is_it(&entry.making);
            (making || is_it(&entry.probing)).then(|| (name.clone(), making))
        };
        let Some((name, making)) = self.entries.iter().find_map(of) else { return false };
        if making {
            self.down(&name, PANICKED.into());
            self.make(&name, u32::MAX);
        } else if let Some(Serving::Engaged(cluster)) = self.entries.get(&name).map(|e| &e.serving)
        {
            let cluster = cluster.clone();
            self.probe(cluster, PROBE_INTERVAL);
        }
        !self.is_published(&name)
    }

    /// Takes in a report. Returns whether there is something to be published.
    fn report(&mut self, report: Report) -> bool {
        let name = match report {
            Report::FirstWaitOver => {
                return std::mem::replace(&mut self.publication, Publication::Due)
                    != Publication::Due;
            }
            Report::RestOver => return self.rest.take() == Some(true),
            Report::AnswersOverdue => {
                self.overdue = true;
                self.merge();
                return false;
            }
            Report::Step { name, of, step } => {
                let entry = self.entries.get(&name);
                // If the source changed meanwhile, another task makes its client.
                if entry.is_none_or(|entry| entry.source.fingerprint != of) {
                    return false;
                }
                self.step(name.clone(), step);
                name
            }
            Report::Probed { name, incarnation, number, probed } => {
                self.probed(&name, (incarnation, number), probed);
                name
            }
        };
        !self.is_published(&name)
    }

    /// Goes on after a step.
    fn step(&mut self, name: ClusterName, step: Step) {
        match step {
            Step::Made { made: Ok((wire, life)), .. } => self.identify(name, wire, life),
            Step::Made { made: Err(error), attempt } => {
                self.down(&name, error.reason().into());
                self.make(&name, attempt.saturating_add(1));
            }
            Step::Asked { wire, attempt, answer } => self.asked(name, wire, attempt, answer),
            Step::LeftAlone { wire } => self.ask(name, wire, 0),
            Step::Looked { wire, looked } => self.looked(&name, wire, looked),
        }
    }

    fn engage(&mut self, name: &ClusterName, wire: Wire) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        self.incarnations += 1;
        let cluster = Cluster {
            name: name.clone(),
            wire,
            incarnation: self.incarnations,
            destination: entry.destination.map_or(0, Fingerprint::number),
            budget: entry.budget,
            identity: entry.identity(),
        };
        info!(cluster = %name, origin = %entry.source.origin, incarnation = self.incarnations, "cluster engaged");
        if entry.source.access.as_ref().is_ok_and(Access::is_insecure) {
            warn!(cluster = %name, "its kubeconfig has insecure-skip-tls-verify: anybody on the network path to the server can read and change everything, including credentials");
        }
        entry.engage(cluster.clone());
        let told = std::mem::take(&mut entry.just_told);
        self.probe(cluster, if told { PROBE_INTERVAL } else { Duration::ZERO });
    }

    fn down(&mut self, name: &ClusterName, reason: Arc<str>) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        entry.stop();
        entry.finding = None;
        if matches!(&entry.serving, Serving::Down(old) if *old == reason) {
            return;
        }
        match (entry.is_news(self.clock.now()), &entry.serving) {
            (true, _) => warn!(cluster = %name, "cluster down: {reason}"),
            (false, Serving::Down(_)) => return,
            (false, _) => {}
        }
        entry.serving = Serving::Down(reason);
    }

    fn probe(&mut self, cluster: Cluster, delay: Duration) {
        if self.probing == Probing::Off {
            return;
        }
        let (name, incarnation) = (cluster.name.clone(), cluster.incarnation);
        let Some(entry) = self.entries.get_mut(&name) else { return };
        let (turns, for_task) = (self.providers[entry.place].probes.clone(), name.clone());
        let is_prompt = entry.is_prompt && matches!(entry.finding, Some(Ok(())));
        let identity = entry.asks_identity();
        let number = entry.probes;
        let marks = self.own.clone().filter(|_| entry.asks_marks());
        let marks = marks.map(|own| (own, entry.sightings.clone()));
        let clock = Arc::clone(&self.clock);
        let wanted = Wanted { is_prompt, identity, marks };
        let handle = self.work.spawn(async move {
            let probed = probe(cluster, turns, clock, delay, wanted).await;
            Report::Probed { name: for_task, incarnation, number, probed }
        });
        entry.probing = Some(handle);
    }

    /// A probe has ended: the one of that number, in that incarnation. Another may have taken its place.
    fn probed(&mut self, name: &ClusterName, of: (u64, u32), probed: Probed) {
        let Probed { finding, answer, looked, is_prompt } = probed;
        let Some(entry) = self.entries.get_mut(name) else { return };
        let Serving::Engaged(cluster) = &entry.serving else { return };
        if (cluster.incarnation, entry.probes) != of {
            return;
        }
        let mut cluster = cluster.clone();
        match (entry.probed(&finding, self.clock.now()), finding) {
            (true, Ok(())) => info!(cluster = %name, "cluster answers again"),
            (true, Err(reason)) => warn!(cluster = %name, "cluster engaged but {reason}"),
            (false, _) => {}
        }
        entry.is_prompt = is_prompt;
        if let Some(wait) = answer.and_then(|answer| self.learn_again(name, &mut cluster, answer)) {
            return self.told(name.clone(), cluster.wire, wait);
        }
        if looked.is_some_and(|looked| self.looked_again(name, &cluster, looked)) {
            return;
        }
        self.probe(cluster, PROBE_INTERVAL);
    }
}

/// A provider's snapshots, each with the provider's position in the configuration.
fn follow(
    (place, provider): (usize, Box<dyn ClusterProvider>),
) -> BoxStream<'static, (usize, Snapshot)> {
    stream::unfold(provider, move |mut provider| async move {
        let snapshot = provider.next().await;
        Some(((place, snapshot), provider))
    })
    .boxed()
}
