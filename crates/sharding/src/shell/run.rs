//! The loop that drives a [`Node`]: it collects inputs, asks for the next step, publishes the result and
//! sends the writes. No other task touches the node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use model::{
    Clock, ClusterSet, DisputedNames, Epoch, Living, Moment, OwnedShards, ShardId, Workload,
};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, info, warn};

use super::events::{Events, Told};
use super::write::{Done, Writer};
use super::{Message, definitions, home, pods};
use crate::api::DownCluster;
use crate::config::LeaseTimings;
use crate::lease;
use crate::member::{self, Departure, Standing};
use crate::metrics::Metrics;
use crate::node::{Input, Node, Note, PlanTask, Published};
use crate::policy::PolicyRecord;
use crate::problem::{Change, OpenProblems, Operation};
use crate::record::{Kind, Target, Write};
use crate::world::LeasesSeen;

/// The most messages of the watches that wait for the loop.
const MESSAGES: usize = 1024;
/// The most messages taken in before the next step.
const BATCH: usize = 1024;
/// How often the work done for each shard is measured.
const MEASURE_INTERVAL: Duration = Duration::from_secs(5);
/// How often it says who lives.
const SAY_LIVING: Duration = Duration::from_secs(5);
/// How often it turns while it waits for the home cluster's definitions; later the node says when.
const TURN_INTERVAL: Duration = Duration::from_secs(1);
/// A plan about more clusters is made on another thread: the loop renews the Lease meanwhile.
const SMALL_PLAN: usize = 64;
/// How long a write may take, except renewals of the own Lease.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// What the loop publishes for the handle after each step.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) published: Published,
    pub(crate) renewed: Option<Moment>,
    pub(crate) state: crate::api::MemberState,
    pub(crate) synced: bool,
    pub(crate) coordinator: Option<model::MemberId>,
    pub(crate) is_coordinator: bool,
    pub(crate) unowned: u32,
    pub(crate) unserved: Arc<BTreeSet<ShardId>>,
    pub(crate) problems: Arc<BTreeMap<Operation, String>>,
    /// Why the member cannot do its part.
    pub(crate) hindrance: Option<String>,
    /// What people must repair in the home cluster.
    pub(crate) found: Vec<String>,
    /// What is wrong with names of clusters.
    pub(crate) refused: Vec<String>,
}

/// The present watches of home. What a watch with another number shows is of the past.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// How often home was read anew.
    rereads: u64,
    /// How often Leases were.
    lease_reads: u64,
    leases: LeasesSeen,
}

/// The result of a step.
struct Stepped {
    wake: Moment,
    /// Whether to start the watches anew.
    reread: bool,
    /// Which Leases to watch.
    leases: LeasesSeen,
}

/// Drains that the engine has finished, for the loop. The set has one entry for each shard and epoch, so
/// the shards held bound it.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged {
    drains: Mutex<BTreeSet<(ShardId, Epoch)>>,
    arrived: Notify,
}

/// The state of the loop.
pub(crate) struct Loop {
    pub(crate) node: Node,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) writer: Writer,
    pub(crate) lease: LeaseTimings,
    pub(crate) metrics: Metrics,
    pub(crate) clusters: watch::Receiver<Arc<ClusterSet>>,
    pub(crate) workload: Arc<dyn Workload>,
    pub(crate) measure_at: Moment,
    pub(crate) acknowledged: Arc<Acknowledged>,
    pub(crate) leave: watch::Receiver<bool>,
    pub(crate) owned: watch::Sender<Arc<OwnedShards>>,
    pub(crate) snapshot: watch::Sender<Arc<Snapshot>>,
    pub(crate) departed: watch::Sender<Option<Departure>>,
    pub(crate) disputed: watch::Sender<Arc<DisputedNames>>,
    /// And when it is said again.
    pub(crate) living: (watch::Sender<Arc<Living>>, Moment),
    /// Notes each turn, for those who watch over the loop.
    pub(crate) turned: watch::Sender<Moment>,
    pub(crate) rng: fastrand::Rng,
    pub(crate) problems: OpenProblems,
    pub(crate) unowned: (u64, u32),
    /// When it last renewed its Lease, under whatever id; its start, before it has.
    pub(crate) renewed: Moment,
    pub(crate) unserved: Arc<BTreeSet<ShardId>>,
    /// What the watches show of policies, also the watches before.
    pub(crate) policies: Option<Vec<PolicyRecord>>,
    /// Events of the fleet; `None` before the definitions are there.
    pub(crate) events: Option<Events>,
    pub(crate) reading: Reading,
}

impl Snapshot {
    pub(crate) fn of(
        node: &Node,
        problems: Arc<BTreeMap<Operation, String>>,
        unowned: u32,
        unserved: Arc<BTreeSet<ShardId>>,
        now: Moment,
    ) -> Self {
        Self {
            published: node.published(),
            renewed: match node.standing() {
                Standing::Holding { renewed, .. } => Some(renewed),
                Standing::Joining | Standing::Gone => None,
            },
            state: node.state(),
            synced: node.world().is_synced(),
            coordinator: node.coordinator(),
            is_coordinator: node.is_coordinator(now),
            unowned,
            unserved,
            problems,
            hindrance: node.hindrance().cloned(),
            found: node.problems().to_vec(),
            refused: node.refused().to_vec(),
        }
    }
}

impl Acknowledged {
    pub(crate) fn add(&self, shard: &ShardId, epoch: Epoch) {
        self.drains.lock().unwrap_or_else(PoisonError::into_inner).insert((shard.clone(), epoch));
        self.arrived.notify_one();
    }

    fn take(&self) -> BTreeSet<(ShardId, Epoch)> {
        std::mem::take(&mut *self.drains.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Loop {
    /// Runs until the member has departed. Stops at once, wherever it is, when `stop` is cancelled.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut checks = JoinSet::new();
        let (sender, mut messages) = mpsc::channel(MESSAGES);
        let Writer { client, namespace, .. } = self.writer.clone();
        let clock = Arc::clone(&self.clock);
        checks.spawn(definitions::watch(client.clone(), namespace.clone(), sender.clone()));
        let mut leave = self.leave.clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            // Nothing is held and nothing is written yet.
            () = async { drop(leave.wait_for(|leave| *leave).await) } => {
                self.departed.send_replace(Some(Departure::HandedOver));
                return;
            }
            Some(ended) = checks.join_next() => return watch_ended(ended),
            () = self.definitions(&mut messages) => {}
        }
        self.node.handle(Input::Policies(None), self.clock.now());
        let mut watches = self.watch_home(&sender);
        let mut leases = self.watch_leases(&sender);
        let (events, writing) =
            Events::spawn(client.clone(), namespace.clone(), self.node.identity().to_owned());
        self.events = Some(events);
        // It ends with this loop, whatever it is doing.
        let _events = AbortOnDropHandle::new(tokio::spawn(writing));
        let mut writes: JoinSet<Done> = JoinSet::new();
        let mut plans: JoinSet<Input> = JoinSet::new();
        self.take_clusters();
        let mut clusters_open = true;
        let rng = self.rng.fork();
        let mut pods =
            Some(pods::spawn(&client, namespace.clone(), sender.clone(), Arc::clone(&clock), rng));
        loop {
            let Stepped { wake, reread, leases: wanted } = self.step(&mut writes, &mut plans);
            if let Some(follow) = pods.take_if(|_| self.node.names_containers()) {
                checks.spawn(follow);
            }
            if reread {
                self.reading.rereads += 1;
                watches = self.watch_home(&sender);
            }
            if reread || self.reading.leases != wanted {
                self.reading.lease_reads += 1;
                self.reading.leases = wanted;
                leases = self.watch_leases(&sender);
            }
            if self.node.departed().is_some() {
                break;
            }
            let sleep = self.clock.sleep_until(wake);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some(ended) = watches.join_next() => return watch_ended(ended),
                Some(ended) = leases.join_next() => return watch_ended(ended),
                Some(ended) = checks.join_next() => return watch_ended(ended),
                Some(done) = writes.join_next() => self.written(done),
                Some(plan) = plans.join_next() => {
                    if let Some(plan) = ended(plan) {
                        self.node.handle(plan, self.clock.now());
                    }
                }
                Some(message) = messages.recv() => {
                    self.receive(message);
                    for _ in 1..BATCH {
                        let Ok(message) = messages.try_recv() else { break };
                        self.receive(message);
                    }
                }
                () = self.acknowledged.arrived.notified() => {}
                changed = self.clusters.changed(), if clusters_open => {
                    clusters_open = changed.is_ok();
                    self.take_clusters();
                }
                // The handle outlives this loop unless `stop` is cancelled.
                _ = self.leave.changed() => {}
                () = sleep => {}
            }
            self.take_requests();
            self.measure();
        }
        // A write still under way (the deletion of the Member at most) ends with this task.
        let departed = self.node.departed();
        info!(?departed, "member departed");
        self.departed.send_replace(departed);
    }

    /// Waits until the home cluster's definitions keep what this member is going to write.
    async fn definitions(&mut self, messages: &mut mpsc::Receiver<Message>) {
        loop {
            let now = self.clock.now();
            self.turned.send_replace(now);
            let message = tokio::select! {
                biased;
                Some(message) = messages.recv() => message,
                () = self.clock.sleep_until(now + TURN_INTERVAL) => continue,
            };
            let known = matches!(message, Message::Definitions(_, None));
            self.receive(message);
            self.publish(self.clock.now());
            if known {
                return;
            }
        }
    }

    /// Watches home from a list on. The policies that were shown hold until it shows others.
    fn watch_home(&mut self, sender: &mpsc::Sender<Message>) -> JoinSet<()> {
        let (number, known) = (self.reading.rereads, self.policies.clone());
        self.home(sender).start(number, known)
    }

    /// Watches Leases from a list on.
    fn watch_leases(&mut self, sender: &mpsc::Sender<Message>) -> JoinSet<()> {
        let Reading { lease_reads, leases, .. } = self.reading;
        self.home(sender).start_leases(leases, lease_reads)
    }

    fn home<'a>(&'a mut self, messages: &'a mpsc::Sender<Message>) -> home::Watches<'a> {
        let Writer { client, namespace, .. } = &self.writer;
        home::Watches { client, namespace, messages, clock: &self.clock, rng: &mut self.rng }
    }

    fn take_clusters(&mut self) {
        let set = Arc::clone(&self.clusters.borrow_and_update());
        self.node.handle(Input::Open(set.open.clone()), self.clock.now());
        let names = set.clusters.keys().cloned().collect();
        self.node.handle(Input::Clusters(names, DownCluster::all_of(&set)), self.clock.now());
        self.node.handle(Input::Identified(set.identities()), self.clock.now());
    }

    fn take_requests(&mut self) {
        let now = self.clock.now();
        for (shard, epoch) in self.acknowledged.take() {
            self.node.handle(Input::Acknowledged(shard, epoch), now);
        }
        if *self.leave.borrow_and_update() {
            self.node.handle(Input::Leave, now);
        }
    }

    /// Measures the work now and then. It needs no timer, because steps are frequent.
    fn measure(&mut self) {
        let now = self.clock.now();
        if now >= self.measure_at {
            self.measure_at = now + MEASURE_INTERVAL;
            self.node.handle(Input::Measured(self.workload.measure()), now);
            self.node.handle(Input::Failing(self.workload.failing()), now);
            self.unserved = Arc::new(self.node.unserved());
            self.metrics.set_unserved(self.unserved.len());
            self.metrics.set_oldest_move(self.node.oldest_move(), self.clock.wall());
        }
    }

    fn receive(&mut self, message: Message) {
        match message {
            // The watches of before may have seen a history that home has no more, or other Leases.
            Message::Home(number, event) => {
                let Reading { rereads, lease_reads, .. } = self.reading;
                let present = if event.kind() == Kind::Lease { lease_reads } else { rereads };
                if number == present {
                    self.node.handle(Input::Observed(*event), self.clock.now());
                }
            }
            Message::Ended(ended) => self.node.handle(Input::Ended(ended), self.clock.now()),
            Message::Policies(number, records) => {
                if number == self.reading.rereads {
                    self.policies = Some(records.clone().unwrap_or_default());
                    let input = records.map_or(Input::NoPolicies, |all| Input::Policies(Some(all)));
                    self.node.handle(input, self.clock.now());
                }
            }
            Message::Problem(operation, text) | Message::Definitions(operation, text) => {
                self.note_problem(&operation, None, text);
            }
        }
    }

    fn written(&mut self, done: Result<Done, JoinError>) {
        let Some(Done { target, outcome, operation, problem }) = ended(done) else { return };
        let object = self.object(&target);
        self.note_problem(&operation, Some(object), problem);
        self.node.handle(Input::Completed(target, outcome), self.clock.now());
    }

    /// One step of the node. Publishes its result, sends its writes and has its plan made.
    fn step(&mut self, writes: &mut JoinSet<Done>, plans: &mut JoinSet<Input>) -> Stepped {
        let now = self.clock.now();
        self.turned.send_replace(now);
        for (operation, change) in self.problems.expire(now) {
            log_problem(&operation, change);
        }
        let wall = self.clock.wall().as_second().try_into().unwrap_or_default();
        self.node.handle(Input::Wall(wall), now);
        let output = self.node.step_with(now, SMALL_PLAN, PlanTask::run_caught);
        self.publish(now);
        for note in &output.notes {
            self.log(note);
            self.tell(note);
        }
        let own = lease::member_lease_name(self.node.id());
        for write in output.writes {
            let deadline = self.deadline(&write, &own);
            writes.spawn(self.writer.clone().run(write, deadline, self.clock.wall()));
        }
        if let Some(task) = output.plan {
            let clock = Arc::clone(&self.clock);
            plans.spawn_blocking(move || {
                let planned = |made| Input::Planned(Box::new(made), clock.now().since(now));
                task.run_caught().map_or(Input::PlanPanicked, planned)
            });
        }
        Stepped { wake: output.wake, reread: output.reread, leases: output.leases }
    }

    /// A renewal ends before the next one is due.
    fn deadline(&self, write: &Write, own: &str) -> Duration {
        let Target { kind, name } = write.target();
        let lease = kind == Kind::Lease && (name == own || name == lease::COORDINATOR);
        if lease { self.lease.renewal_deadline() } else { WRITE_TIMEOUT }
    }

    /// Publishes for the fence first, then for those who wait for a change.
    fn publish(&mut self, now: Moment) {
        let revision = self.node.revision();
        if self.unowned.0 != revision {
            let (unowned, paused) = self.node.unowned_shards();
            self.unowned = (revision, unowned);
            self.metrics.set_paused(paused);
        }
        let (problems, unserved) = (Arc::clone(self.problems.shown()), Arc::clone(&self.unserved));
        let snapshot = Snapshot::of(&self.node, problems, self.unowned.1, unserved, now);
        let Snapshot { published, renewed, .. } = snapshot.clone();
        self.metrics.set_owned(&published.owned);
        self.metrics.set_unowned(snapshot.unowned);
        self.metrics.set_coordinator(snapshot.is_coordinator);
        // It goes on rising while the member is fenced: that is when somebody must see it.
        self.renewed = renewed.unwrap_or(self.renewed);
        self.metrics.set_lease_age(now.since(self.renewed).as_secs_f64());
        self.snapshot.send_replace(Arc::new(snapshot));
        self.disputed.send_if_modified(|known| {
            let changed = !Arc::ptr_eq(known, self.node.disputed());
            known.clone_from(self.node.disputed());
            changed
        });
        if now >= self.living.1 {
            self.living.1 = now + SAY_LIVING;
            self.living.0.send_replace(Arc::new(self.node.living(now)));
        }
        self.owned.send_if_modified(|owned| {
            let changed = !Arc::ptr_eq(owned, &published.owned);
            *owned = published.owned;
            changed
        });
    }

    fn tell(&mut self, note: &Note) {
        let told = Told::of(note, self.node.id());
        let (Some(events), Some(told)) = (&mut self.events, told) else { return };
        let uid = self.node.world().uid_of(told.regarding()).to_owned();
        events.tell(told, uid, self.clock.wall());
    }

    fn log(&self, note: &Note) {
        let member = self.node.id();
        match note {
            Note::Fenced { was, is, cause } => {
                warn!(member = %was, next = %is, cause, "member fenced itself: it may not act any more");
            }
            Note::HistoryChanged { proof } => {
                warn!(
                    %member,
                    proof,
                    "the home cluster was restored, emptied or replaced: it is read anew, and every shard is \
                     given anew after one silence"
                );
                self.metrics.history_changed();
            }
            Note::Coordinating(true) => info!(%member, "member coordinates"),
            Note::Coordinating(false) => info!(%member, "member no longer coordinates"),
            Note::Took(lease) => {
                warn!(%member, lease, "took the Lease of a silent or dead member; its shards go to others");
            }
            Note::Ended(dead) => {
                warn!(%member, %dead, "the process of a member has ended: nobody waits for its Lease");
            }
            // Whoever found it logs it.
            Note::ClusterDown(_) | Note::ClusterUp(_) => {}
            Note::Problem(text) => warn!(%member, "{text}"),
            Note::Solved(text) => info!(%member, was = text, "problem solved"),
            Note::HandedOver(handover) => {
                info!("{handover}");
                self.metrics.handed_over(handover);
            }
        }
    }

    /// The object of a write, by the name under which its failures are kept. All Leases and Members that this replica
    /// ever had are one: it does not write to those of its former ids again.
    fn object(&self, Target { kind, name }: &Target) -> String {
        let member = match kind {
            Kind::Lease => lease::subject(name),
            Kind::Member => name.parse().ok(),
            Kind::Map => None,
        };
        let own = member::identity_of(self.node.id());
        let is_own = member.is_some_and(|member| member::identity_of(&member) == own);
        if is_own { own.to_owned() } else { name.clone() }
    }

    /// Logs once when an operation begins to fail, and once when it works again.
    fn note_problem(
        &mut self,
        operation: &Operation,
        object: Option<String>,
        text: Option<String>,
    ) {
        let change = self.problems.note(operation, object, text, self.clock.now());
        change.into_iter().for_each(|change| log_problem(operation, change));
    }
}

fn log_problem(operation: &Operation, change: Change) {
    match change {
        Change::Fails(text) => warn!("{text}"),
        Change::Works => {
            info!(verb = operation.verb, resource = operation.resource, "works again");
        }
    }
}

/// The result of a task, if it ended by itself. Its panic goes on here.
fn ended<T>(task: Result<T, JoinError>) -> Option<T> {
    match task {
        Ok(result) => Some(result),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // No code cancels a single write, plan or watch.
        Err(_) => None,
    }
}

/// A watch goes on as long as the loop that it tells. Without it the loop would renew its Lease and see
/// nothing, so a panic goes on in the loop, and any other end is the loop's as well.
fn watch_ended(task: Result<(), JoinError>) {
    ended(task);
    error!("a watch of the home cluster ended by itself");
}
