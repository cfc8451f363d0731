//! The demo's loop: one task that owns everything it knows, fed by watches, scrapes and timers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures::StreamExt;
use kube::{Api, ResourceExt};
use model::{Clock, ClusterName, MemberId, Moment};
use sharding::api::ShardMap;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::args::{Args, Timeline};
use super::children::{Children, micros};
use super::follow::{self, Delivered, follow};
use super::generate::{self, Kind, Planned, resource};
use super::handover::{Holdings, is_of};
use super::layout::Layout;
use super::ports::Ports;
use super::scrape::{Figures, Scraper};
use super::summary::{Kill, Summary};
use super::track::{Seen, Tracker};
use super::view::{ReplicaView, Screen, Snapshot, clock_time};
use super::world::{Clients, HOME_NAMESPACE, World};

/// What watches, scrapes and requests have to tell, on its way to the loop.
const EVENTS: usize = 4096;

/// The most changes under way at once; beyond it a change is left out.
const CHANGES_AT_ONCE: usize = 64;

/// How often the loop looks at its timeline and its children, and a terminal is redrawn.
const HEARTBEAT: Duration = Duration::from_millis(250);

/// How often replicas are scraped and the coordinator is read.
const SCRAPE: Duration = Duration::from_secs(1);

/// How often a line is printed where nothing can be redrawn.
const LINE: Duration = Duration::from_secs(2);

/// How long past `--for` the last changes may take to converge.
const SETTLE: Duration = Duration::from_secs(15);

/// How many objects that did not converge are named.
const LAGGING: usize = 5;

/// All that a demo is started with.
#[derive(Debug)]
pub struct Fleet {
    /// The command line.
    pub args: Args,
    /// What happens when.
    pub timeline: Timeline,
    /// The workload clusters.
    pub names: Vec<ClusterName>,
    /// The directory.
    pub layout: Layout,
    /// The ports.
    pub ports: Ports,
    /// This program, to start replicas with.
    pub executable: PathBuf,
}

/// What the loop is told.
enum Event {
    Seen(Seen),
    Map(Box<ShardMap>),
    Applied,
    ApplyFailed(String),
    ChangeFailed(String),
    Coordinator(Option<MemberId>),
    Figures(usize, Option<Figures>),
}

/// What the loop knows.
struct Session {
    clock: Arc<dyn Clock>,
    started: Moment,
    timeline: Timeline,
    children: Children,
    clients: Clients,
    tracker: Tracker,
    holdings: Holdings,
    rng: Rng,
    coordinator: Option<MemberId>,
    figures: Vec<Scraped>,
    scraper: Scraper,
    applied: usize,
    failed_requests: u64,
    settled_told: bool,
    kill: Option<Killed>,
    requests: JoinSet<()>,
    events: mpsc::Sender<Event>,
    screen: Screen,
}

/// A replica's figures, now and at the scrape before.
#[derive(Clone, Copy, Default)]
struct Scraped {
    last: Option<(Moment, Figures)>,
    rate: Option<f64>,
}

struct Killed {
    index: usize,
    at: Moment,
    restarted: bool,
    whole_told: bool,
}

/// How the loop ended.
enum Ending {
    Complete,
    Interrupted,
    Failed(String),
}

/// Starts the fleet, runs it, and stops it again.
///
/// # Errors
/// When the fleet cannot be started.
pub async fn run(
    fleet: Fleet,
    clock: Arc<dyn Clock>,
    started: Moment,
) -> anyhow::Result<Summary> {
    let mut interrupts = Interrupts::new()?;
    let mut screen = Screen::stdout();
    if fleet.layout.cleared {
        screen.say(&format!("Cleared what an earlier demo left in {}.", fleet.args.dir.display()));
    }
    screen.say(&welcome(&fleet));
    let world = World::start(&fleet.names, &fleet.ports).await?;
    world.write_kubeconfigs(&fleet.names, &fleet.layout)?;
    let clients = world.clients(&fleet.names).await?;
    clients.prepare().await?;
    let mut children = Children::new(
        fleet.executable.clone(),
        &fleet.layout,
        &fleet.ports.replicas,
        clock.clone(),
    );
    children.start_all()?;

    let mut rng = Rng::with_seed(fleet.args.seed);
    let planned = generate::objects(fleet.args.objects, &fleet.names, &mut rng);
    let (events, mut told) = mpsc::channel(EVENTS);
    let mut watches = watch(&clients, &fleet.names, &events);
    watches.spawn(apply(clients.clone(), planned.clone(), events.clone()));
    let mut session = Session {
        figures: vec![Scraped::default(); children.replicas().len()],
        tracker: Tracker::new(&planned),
        timeline: fleet.timeline,
        holdings: Holdings::default(),
        scraper: Scraper::new(),
        coordinator: None,
        applied: 0,
        failed_requests: 0,
        settled_told: false,
        kill: None,
        requests: JoinSet::new(),
        clock,
        started,
        children,
        clients,
        rng,
        events,
        screen,
    };
    let ending = session.turn(&mut told, &mut interrupts, fleet.args.changes).await;
    session.tracker.judge_all(session.clock.now(), session.clock.wall());
    let mut summary = session.summary(&fleet, ending);
    session.screen.say("Stopping the replicas: each hands over its shards and exits.");
    summary.stubborn = session.children.stop().await;
    // Nothing listens to these any more; ending them lets the servers go.
    watches.shutdown().await;
    session.requests.shutdown().await;
    session.prove(&mut summary);
    drop(session);
    world.stop().await;
    Ok(summary)
}

/// Applies the objects and tells how that goes.
async fn apply(clients: Clients, planned: Vec<Planned>, events: mpsc::Sender<Event>) {
    let mut applied = std::pin::pin!(clients.apply_all(planned));
    while let Some(result) = applied.next().await {
        let event = match result {
            Ok(()) => Event::Applied,
            Err(error) => Event::ApplyFailed(model::error::chain(&error)),
        };
        // A loop that has ended does not want to know.
        let _ = events.send(event).await;
    }
}

/// Watches every cluster.
fn watch(clients: &Clients, names: &[ClusterName], events: &mpsc::Sender<Event>) -> JoinSet<()> {
    let mut watches = JoinSet::new();
    let maps = Api::<ShardMap>::namespaced(clients.home.clone(), HOME_NAMESPACE);
    let read = |delivered| match delivered {
        Delivered::Present(map) => Some(Event::Map(Box::new(map))),
        Delivered::Deleted(_) => None,
    };
    watches.spawn(follow(maps, read, events.clone()));
    for name in names {
        for kind in [Kind::TdSet, Kind::ConfigMonitor] {
            let read = follow::object(name.clone(), kind);
            if let Some(api) = clients.all(name, &kind.resource()) {
                watches.spawn(follow(api, move |d| read(d).map(Event::Seen), events.clone()));
            }
        }
        let read = follow::deployment(name.clone());
        if let Some(api) = clients.all(name, &resource("apps", "v1", "Deployment")) {
            watches.spawn(follow(api, move |d| read(d).map(Event::Seen), events.clone()));
        }
    }
    watches
}

impl Session {
    /// Goes on until the time is up, somebody interrupts, or something fails.
    async fn turn(
        &mut self,
        told: &mut mpsc::Receiver<Event>,
        interrupts: &mut Interrupts,
        changes_per_second: u32,
    ) -> Ending {
        let mut heartbeat = ticks(HEARTBEAT);
        let mut scrape = ticks(SCRAPE);
        let mut show = ticks(if self.screen.is_live() { HEARTBEAT } else { LINE });
        let mut change = ticks(Duration::from_secs(1) / changes_per_second.max(1));
        loop {
            let next = tokio::select! {
                event = told.recv() => match event {
                    Some(event) => self.hear(event),
                    None => Ok(()),
                },
                _ = heartbeat.tick() => {
                    if self.is_over() {
                        return Ending::Complete;
                    }
                    self.follow_timeline().await
                }
                _ = scrape.tick() => {
                    self.scrape();
                    self.tracker.judge_all(self.clock.now(), self.clock.wall());
                    Ok(())
                }
                _ = show.tick() => {
                    let snapshot = self.snapshot();
                    self.screen.show(&snapshot);
                    Ok(())
                }
                _ = change.tick(), if changes_per_second > 0 && self.may_change() => {
                    self.change();
                    Ok(())
                }
                () = interrupts.next() => return Ending::Interrupted,
            };
            if let Err(failure) = next {
                return Ending::Failed(failure);
            }
        }
    }

    fn hear(&mut self, event: Event) -> Result<(), String> {
        let now = self.clock.now();
        match event {
            Event::Seen(seen) => self.tracker.apply(seen, now, self.clock.wall()),
            Event::Map(map) => {
                if let Ok(cluster) = map.name_any().parse() {
                    self.holdings.apply(&cluster, &map, now);
                }
            }
            Event::Applied => self.applied += 1,
            Event::ApplyFailed(failure) => return Err(failure),
            Event::ChangeFailed(failure) => {
                self.failed_requests += 1;
                self.news(&failure);
            }
            Event::Coordinator(coordinator) => self.coordinator = coordinator,
            Event::Figures(index, figures) => self.figures[index].update(figures, now),
        }
        Ok(())
    }

    /// Whether the time is up and every object has converged, or waiting for that has no end.
    fn is_over(&self) -> bool {
        let Some(end) = self.timeline.end else { return false };
        let elapsed = self.elapsed();
        let converged = self.tracker.converged() == self.tracker.total();
        let whole = self.holdings.unowned() == 0;
        elapsed >= end && (converged && whole || elapsed >= end + SETTLE)
    }

    async fn follow_timeline(&mut self) -> Result<(), String> {
        self.children.check().map_err(|error| model::error::chain(&error))?;
        self.tell_settled();
        let elapsed = self.elapsed();
        let due = |at: Option<Duration>| at.is_some_and(|at| elapsed >= at);
        match &mut self.kill {
            None if due(self.timeline.kill) => self.kill_one().await?,
            Some(killed) if !killed.restarted && due(self.timeline.restart) => {
                killed.restarted = true;
                let index = killed.index;
                let started = self.children.start(index);
                started.map_err(|error| model::error::chain(&error))?;
                self.news(&format!("replica-{index} was started again."));
            }
            _ => {}
        }
        self.tell_whole_again();
        Ok(())
    }

    fn tell_settled(&mut self) {
        if let Some(at) = self.tracker.settled_at()
            && !self.settled_told
        {
            self.settled_told = true;
            let (total, took) = (self.tracker.total(), at.since(self.started).as_secs_f64());
            self.news(&format!("all {total} objects have converged for the first time, {took:.1} s after the start."));
        }
    }

    fn tell_whole_again(&mut self) {
        let whole = self.holdings.whole_again();
        let (Some(killed), Some(at)) = (&mut self.kill, whole) else { return };
        if std::mem::replace(&mut killed.whole_told, true) {
            return;
        }
        let took = at.since(killed.at).as_secs_f64();
        self.tracker.undisturbed_again(at);
        self.news(&format!("the others have taken its shards over, after {took:.1} s."));
    }

    /// Kills the replica that holds most; of several, the coordinator.
    async fn kill_one(&mut self) -> Result<(), String> {
        let coordinator = self.coordinator.clone();
        let weight = |index: &usize| {
            let name = self.children.replicas()[*index].name();
            (self.holdings.count(name), is_of(coordinator.as_ref(), name))
        };
        let index = (0..self.children.replicas().len()).max_by_key(weight).unwrap_or(0);
        let name = self.children.replicas()[index].name().to_owned();
        let held = self.holdings.of(&name).join(" ");
        let killed = self.children.kill(index).await;
        let at = killed.map_err(|error| model::error::chain(&error))?;
        let clusters = self.holdings.killed(&name, at);
        self.tracker.disturbed(clusters, at);
        self.kill = Some(Killed { index, at, restarted: false, whole_told: false });
        let role = if is_of(coordinator.as_ref(), &name) { ", the coordinator," } else { "" };
        self.news(&format!("{name}{role} was killed (SIGKILL). It held {held}"));
        Ok(())
    }

    /// Changes begin when every object was applied and end before the demo does.
    fn may_change(&self) -> bool {
        self.applied == self.tracker.total()
            && self.timeline.quiet.is_none_or(|quiet| self.elapsed() < quiet)
    }

    fn change(&mut self) {
        while self.requests.try_join_next().is_some() {}
        if self.requests.len() >= CHANGES_AT_ONCE {
            return;
        }
        let Some((target, want, number)) = self.tracker.pick(&mut self.rng) else { return };
        let change = generate::change(&target, &want, number, &mut self.rng);
        self.tracker.sent(&change, self.clock.now());
        let (clients, events) = (self.clients.clone(), self.events.clone());
        self.requests.spawn(async move {
            if let Err(error) = clients.change(&change).await {
                let _ = events.send(Event::ChangeFailed(model::error::chain(&error))).await;
            }
        });
    }

    /// Asks the running replicas for their figures and the home cluster for the coordinator.
    fn scrape(&mut self) {
        for (index, replica) in self.children.replicas().iter().enumerate() {
            if !replica.is_running() {
                self.figures[index] = Scraped::default();
                continue;
            }
            let (scraper, events) = (self.scraper.clone(), self.events.clone());
            let address = replica.admin();
            self.requests.spawn(async move {
                let figures = scraper.figures(address).await.ok();
                let _ = events.send(Event::Figures(index, figures)).await;
            });
        }
        let (home, events) = (self.clients.home.clone(), self.events.clone());
        self.requests.spawn(async move {
            if let Ok(fleet) = sharding::fleet::read(home, HOME_NAMESPACE).await {
                let _ = events.send(Event::Coordinator(fleet.coordinator)).await;
            }
        });
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            elapsed: self.elapsed(),
            end: self.timeline.end,
            replicas: (0..self.figures.len()).map(|index| self.replica(index)).collect(),
            shards: self.holdings.len(),
            unowned: self.holdings.unowned(),
            objects: self.tracker.total(),
            applied: self.applied,
            converged: self.tracker.converged(),
            changes: self.tracker.changes(),
            latency: self.tracker.latency().0,
        }
    }

    fn replica(&self, index: usize) -> ReplicaView {
        let replica = &self.children.replicas()[index];
        let scraped = self.figures[index];
        let killed = self.kill.as_ref().filter(|killed| killed.index == index);
        let state = match (killed, scraped.last) {
            (Some(killed), _) if !replica.is_running() => {
                format!("killed {} s ago", self.clock.now().since(killed.at).as_secs())
            }
            (_, Some(_)) => "running".to_owned(),
            (_, None) => "starting".to_owned(),
        };
        ReplicaView {
            name: replica.name().to_owned(),
            state,
            coordinator: is_of(self.coordinator.as_ref(), replica.name()),
            shards: self.holdings.of(replica.name()),
            rate: scraped.rate,
            // Depths are whole numbers, far below what a float holds exactly.
            queued: scraped.last.map(|(_, figures)| figures.queued as u64),
        }
    }

    fn summary(&self, fleet: &Fleet, ending: Ending) -> Summary {
        let (latency, undisturbed) = self.tracker.latency();
        let complete = matches!(ending, Ending::Complete);
        Summary {
            ran: self.elapsed(),
            clusters: fleet.names.len(),
            replicas: self.children.replicas().len(),
            objects: self.tracker.total(),
            converged: self.tracker.converged(),
            lagging: if complete {
                self.tracker.lagging(LAGGING, self.clock.wall())
            } else {
                Vec::new()
            },
            settled: self.tracker.settled_at().map(|at| at.since(self.started)),
            changes: self.tracker.changes(),
            failed_requests: self.failed_requests,
            latency,
            undisturbed,
            complete,
            kill: self.kill.as_ref().map(|killed| self.takeover(killed)),
            failure: match ending {
                Ending::Failed(failure) => Some(failure),
                Ending::Complete | Ending::Interrupted => None,
            },
            ..Summary::default()
        }
    }

    fn takeover(&self, killed: &Killed) -> Kill {
        let named = |(shard, gap): (String, Option<(Duration, MemberId)>)| {
            (shard, gap.map(|(gap, owner)| (gap, owner.to_string())))
        };
        Kill {
            replica: self.children.replicas()[killed.index].name().to_owned(),
            gaps: self.holdings.gaps().into_iter().map(named).collect(),
            restarted: killed.restarted,
        }
    }

    /// Reads the journals, once every replica has ended.
    fn prove(&self, summary: &mut Summary) {
        let journals = self.children.evidence();
        let first = journals.as_ref().ok().and_then(|verdict| verdict.first_end_us);
        summary.first_reconcile = first
            .and_then(|at| at.checked_sub(micros(self.started)))
            .map(Duration::from_micros);
        summary.journals = Some(journals);
    }

    fn news(&mut self, text: &str) {
        let time = clock_time(self.elapsed());
        self.screen.say(&format!("{time:>5}  {text}"));
    }

    fn elapsed(&self) -> Duration {
        self.clock.now().since(self.started)
    }
}

impl Scraped {
    fn update(&mut self, figures: Option<Figures>, now: Moment) {
        let Some(figures) = figures else {
            *self = Self::default();
            return;
        };
        self.rate = self.last.and_then(|(then, before)| {
            let seconds = now.since(then).as_secs_f64();
            (seconds > 0.0).then(|| (figures.reconciles - before.reconciles).max(0.0) / seconds)
        });
        self.last = Some((now, figures));
    }
}

/// Ctrl-C and SIGTERM.
struct Interrupts {
    int: Signal,
    term: Signal,
}

impl Interrupts {
    fn new() -> std::io::Result<Self> {
        Ok(Self { int: signal(SignalKind::interrupt())?, term: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
        }
    }
}

fn ticks(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

/// What a newcomer needs to look around, before anything starts.
fn welcome(fleet: &Fleet) -> String {
    let names: Vec<_> = fleet.names.iter().map(ToString::to_string).collect();
    let kubeconfig = fleet.layout.kubeconfig();
    let kubectl = format!("kubectl --kubeconfig {}", kubeconfig.display());
    let mut text = format!(
        "{} replicas of Leasehold share {} clusters ({}); {} objects. Everything runs on this machine.\n\n",
        fleet.args.replicas,
        names.len(),
        names.join(", "),
        fleet.args.objects
    );
    let mut row = |label: &str, value: String| text.push_str(&format!("  {label:<12}{value}\n"));
    row("kubeconfig", format!("{}, a context for each cluster and for home", kubeconfig.display()));
    row("objects", format!("{kubectl} --context {} get tdsets -A", names[0]));
    row("shards", format!("{kubectl} --context home get shardmaps,members -n {HOME_NAMESPACE}"));
    for (index, address) in fleet.ports.replicas.iter().enumerate() {
        row(
            &format!("replica-{index}"),
            format!("http://{address}/ for metrics, probes and debug views"),
        );
    }
    row("logs", format!("{}/replicas/replica-0/log", fleet.args.dir.display()));
    row("stop", "Ctrl-C".to_owned());
    text
}
