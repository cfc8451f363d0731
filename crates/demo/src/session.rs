//! The demo's loop: one task that owns everything it knows, fed by watches, scrapes and timers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use fastrand::Rng;
use kube::ResourceExt;
use model::{Clock, ClusterName, MemberId, Moment};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::args::{Args, SHORTEST_GAP, Timeline};
use crate::children::Children;
use crate::examples::{self, Progress};
use crate::generate;
use crate::handover::{Holdings, is_of};
use crate::layout::Layout;
use crate::ports::Ports;
use crate::scrape::{Figures, scrape};
use crate::sources::{Event, apply, watch};
use crate::standin::StandIns;
use crate::summary::Summary;
use crate::track::Tracker;
use crate::view::{Screen, clock_time};
use crate::world::{Clients, HOME_NAMESPACE, World};

mod report;

/// Events of watches, scrapes and requests that wait for the loop.
const EVENTS: usize = 4096;

/// The most changes in flight; beyond it a change is skipped.
const CHANGES_AT_ONCE: usize = 64;

/// How often the loop checks its timeline and its children, and a terminal is redrawn.
const HEARTBEAT: Duration = Duration::from_millis(250);

/// How often replicas are scraped and the coordinator is read.
const SCRAPE: Duration = Duration::from_secs(1);

/// How often a line is printed where the output is not a terminal.
const LINE: Duration = Duration::from_secs(2);

/// How long past `--for` the last changes may take to converge.
const SETTLE: Duration = Duration::from_secs(15);

/// What a demo is started with.
#[derive(Debug)]
pub(crate) struct Fleet {
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

/// What the loop knows.
pub(super) struct Session {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) started: Moment,
    pub(super) timeline: Timeline,
    pub(super) children: Children,
    clients: Clients,
    pub(super) tracker: Tracker,
    pub(super) holdings: Holdings,
    rng: Rng,
    pub(super) coordinator: Option<MemberId>,
    pub(super) figures: Vec<Scraped>,
    pub(super) applied: usize,
    pub(super) examples: Progress,
    pub(super) failed_requests: u64,
    settled_reported: bool,
    pub(super) kills: Vec<Killed>,
    requests: JoinSet<()>,
    events: mpsc::Sender<Event>,
    screen: Screen,
}

/// A replica's figures, now and at the scrape before.
#[derive(Clone, Copy, Default)]
pub(super) struct Scraped {
    pub(super) last: Option<(Moment, Figures)>,
    pub(super) rate: Option<f64>,
}

/// A replica that was killed, by the demo or by whoever watches it.
pub(super) struct Killed {
    pub(super) index: usize,
    /// How it ended.
    pub(super) how: String,
    pub(super) at: Moment,
    /// When it is started again.
    restart: Duration,
    pub(super) restarted: bool,
    whole_reported: bool,
}

/// How the loop ended.
pub(super) enum Ending {
    Complete,
    Interrupted,
    Failed(String),
}

/// Starts the fleet, runs it, and stops it again.
///
/// # Errors
/// When the fleet cannot be started.
pub(crate) async fn run(
    fleet: Fleet,
    clock: Arc<dyn Clock>,
    started: Moment,
) -> anyhow::Result<Summary> {
    let mut interrupts = Interrupts::new()?;
    let mut screen = Screen::stdout();
    if fleet.layout.cleared {
        screen.say(&format!("Removed what an earlier demo left in {}.", fleet.args.dir.display()));
    }
    screen.say(&report::welcome(&fleet));
    let world = World::start(&fleet.names, &fleet.ports).await?;
    world.write_kubeconfigs(&fleet.names, &fleet.layout)?;
    let clients = world.clients(&fleet.names).await?;
    clients.prepare().await?;
    let further = fleet.args.examples.further();
    let shown = &fleet.names[0];
    let standins = StandIns::start(&clock).await.context("start the stand-ins")?;
    for manifest in further.iter().flat_map(|example| example.manifests(&standins)) {
        clients.create(shown, manifest).await?;
    }
    let mut children = Children::new(
        fleet.executable.clone(),
        &fleet.layout,
        &fleet.ports.replicas,
        further.iter().map(|example| (example.controller, example.settings(&standins))),
        &standins.environment(),
        clock.clone(),
    );
    children.start_all()?;

    let mut rng = Rng::with_seed(fleet.args.seed);
    let planned = generate::objects(fleet.args.objects, &fleet.names, &mut rng);
    let (events, mut received) = mpsc::channel(EVENTS);
    let mut watches = watch(&clients, &fleet.names, &events);
    examples::watch(&clients, shown, &further, &events, &mut watches);
    watches.spawn(apply(clients.clone(), planned.clone(), events.clone()));
    let mut session = Session {
        figures: vec![Scraped::default(); children.replicas().len()],
        tracker: Tracker::new(&planned),
        timeline: fleet.timeline,
        holdings: Holdings::default(),
        coordinator: None,
        applied: 0,
        examples: Progress::of(&further),
        failed_requests: 0,
        settled_reported: false,
        kills: Vec::new(),
        requests: JoinSet::new(),
        clock,
        started,
        children,
        clients,
        rng,
        events,
        screen,
    };
    let ending = session.work(&mut received, &mut interrupts, fleet.args.changes).await;
    session.tracker.check_all(session.clock.now(), session.clock.wall());
    let mut summary = session.summary(&fleet, ending);
    session.screen.say("Stopping the replicas: each hands over its shards and exits.");
    summary.stubborn = session.children.stop().await;
    // The servers can stop only when these have ended.
    watches.shutdown().await;
    session.requests.shutdown().await;
    session.prove(&mut summary);
    drop(session);
    world.stop().await;
    Ok(summary)
}

impl Session {
    /// Runs until the time is up, an interrupt, or a failure.
    async fn work(
        &mut self,
        received: &mut mpsc::Receiver<Event>,
        interrupts: &mut Interrupts,
        changes_per_second: u32,
    ) -> Ending {
        let mut heartbeat = ticks(HEARTBEAT);
        let mut scrape = ticks(SCRAPE);
        let mut show = ticks(if self.screen.is_live() { HEARTBEAT } else { LINE });
        let mut change = ticks(Duration::from_secs(1) / changes_per_second.max(1));
        loop {
            let next = tokio::select! {
                event = received.recv() => match event {
                    Some(event) => self.handle(event),
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
                    self.tracker.check_all(self.clock.now(), self.clock.wall());
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

    fn handle(&mut self, event: Event) -> Result<(), String> {
        let now = self.clock.now();
        match event {
            Event::Seen(seen) => self.tracker.apply(seen, now, self.clock.wall()),
            Event::Map(map) => {
                if let Ok(cluster) = map.name_any().parse() {
                    self.holdings.apply(&cluster, &map, now);
                }
            }
            Event::Example(controller, shown) => {
                if self.examples.note(controller, shown.clone()) {
                    self.news(&format!("{controller}: {shown}."));
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

    /// Whether the time is up and every object has converged, or took too long.
    fn is_over(&self) -> bool {
        let Some(end) = self.timeline.end else { return false };
        let elapsed = self.elapsed();
        let converged =
            self.tracker.converged() == self.tracker.total() && self.examples.is_complete();
        let whole = self.holdings.unowned() == 0;
        elapsed >= end && (converged && whole || elapsed >= end + SETTLE)
    }

    async fn follow_timeline(&mut self) -> Result<(), String> {
        let ended = self.children.ended().map_err(|error| model::error::chain(&error))?;
        self.report_settled();
        let elapsed = self.elapsed();
        for (index, status) in ended {
            let restart = elapsed + SHORTEST_GAP;
            self.was_killed(index, self.clock.now(), status.to_string(), restart);
        }
        if self.timeline.kill.is_some_and(|at| elapsed >= at) {
            self.timeline.kill = None;
            self.kill_one(self.timeline.restart.unwrap_or(elapsed + SHORTEST_GAP)).await?;
        }
        let due = |killed: &&mut Killed| !killed.restarted && elapsed >= killed.restart;
        let due = self.kills.iter_mut().filter(due).map(|killed| {
            killed.restarted = true;
            killed.index
        });
        for index in due.collect::<Vec<_>>() {
            let started = self.children.start(index);
            started.map_err(|error| model::error::chain(&error))?;
            self.news(&format!("replica-{index} was started again."));
        }
        self.report_whole_again();
        Ok(())
    }

    fn report_settled(&mut self) {
        if let Some(at) = self.tracker.settled_at()
            && !self.settled_reported
        {
            self.settled_reported = true;
            let (total, took) = (self.tracker.total(), at.since(self.started).as_secs_f64());
            self.news(&format!(
                "each of {total} objects has converged, the last one {took:.1} s after the start."
            ));
        }
    }

    fn report_whole_again(&mut self) {
        let Some(at) = self.holdings.whole_again() else { return };
        let new = |killed: &&mut Killed| !killed.whole_reported && killed.at <= at;
        let new = self.kills.iter_mut().filter(new).map(|killed| {
            killed.whole_reported = true;
            killed.at
        });
        let Some(killed_at) = new.min() else { return };
        let took = at.since(killed_at).as_secs_f64();
        self.tracker.undisturbed_again(at);
        self.news(&format!("the others have taken its shards over, after {took:.1} s."));
    }

    /// Kills the replica that has worked most, among those that run and have shards.
    async fn kill_one(&mut self, restart: Duration) -> Result<(), String> {
        let weight = |index: &usize| {
            let replica = &self.children.replicas()[*index];
            let holds = replica.is_running() && self.holdings.count(replica.name()) > 0;
            let worked = self.figures[*index].last.map_or(0.0, |(_, figures)| figures.reconciles);
            // Counts of reconciles are whole numbers, far below what a float holds exactly.
            (holds, worked as u64)
        };
        let index = (0..self.children.replicas().len()).max_by_key(weight).unwrap_or(0);
        let killed = self.children.kill(index).await;
        let at = killed.map_err(|error| model::error::chain(&error))?;
        self.was_killed(index, at, "SIGKILL".to_owned(), restart);
        Ok(())
    }

    /// Notes that a replica was killed, and when it will be started again.
    fn was_killed(&mut self, index: usize, at: Moment, how: String, restart: Duration) {
        let name = self.children.replicas()[index].name().to_owned();
        let held = match self.holdings.of(&name).as_slice() {
            [] => "no shard".to_owned(),
            held => held.join(", "),
        };
        let clusters = self.holdings.killed(&name, at);
        self.tracker.disturbed(clusters, at);
        let coordinates = is_of(self.coordinator.as_ref(), &name);
        let role = if coordinates { ", the coordinator," } else { "" };
        self.news(&format!("{name}{role} was killed ({how}); it held {held}."));
        let (restarted, whole_reported) = (false, false);
        self.kills.push(Killed { index, how, at, restart, restarted, whole_reported });
    }

    /// Changes begin when every object is applied and end before the demo does.
    fn may_change(&self) -> bool {
        self.applied == self.tracker.total()
            && self.timeline.quiet.is_none_or(|quiet| self.elapsed() < quiet)
    }

    fn change(&mut self) {
        self.forget_ended_requests();
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

    fn forget_ended_requests(&mut self) {
        while self.requests.try_join_next().is_some() {}
    }

    /// Asks the running replicas for their figures and the home cluster for the coordinator.
    fn scrape(&mut self) {
        // A demo without changes scrapes too.
        self.forget_ended_requests();
        for (index, replica) in self.children.replicas().iter().enumerate() {
            if !replica.is_running() {
                self.figures[index] = Scraped::default();
                continue;
            }
            let events = self.events.clone();
            let address = replica.admin();
            self.requests.spawn(async move {
                let figures = scrape(address).await.ok();
                let _ = events.send(Event::Figures(index, figures)).await;
            });
        }
        let (home, events) = (self.clients.home.clone(), self.events.clone());
        self.requests.spawn(async move {
            if let Ok(fleet) = fleet::read(home, HOME_NAMESPACE).await {
                let _ = events.send(Event::Coordinator(fleet.coordinator)).await;
            }
        });
    }

    fn news(&mut self, text: &str) {
        let time = clock_time(self.elapsed());
        self.screen.say(&format!("{time:>5}  {text}"));
    }

    pub(super) fn elapsed(&self) -> Duration {
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
