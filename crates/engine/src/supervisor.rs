//! The supervisor: the one task that decides what runs where. It follows ownership and clusters, takes
//! the next steps from [`Shards`], and carries them out.
//!
//! # Invariants
//! - S1, S2: a shard's keys enter the queue only under an assignment made from a holding, leave it only
//!   while the shard is open there under that assignment, and run only under a permit for it.
//! - A controller receives a shard's keys only after the informer of each of its kinds has listed and
//!   reported everything that the shard needs; a range gained later is listed first, too. This holds
//!   for optional kinds as well, unless the server says that they do not exist.
//! - What a shard needs stays cached until its last run has ended and its successors here have started:
//!   a split or merge lists nothing again that was held.
//! - A cluster that exceeds its budget counts as not engaged until its quarantine is over: its shards stop, and
//!   what is cached of it goes with them.
//! - What begins in a cluster uses its present engagement: what drains since an earlier one keeps that one's client
//!   and caches to itself, until its last run has ended.
//! - Everything of a lost shard is cancelled in the step that finds the loss. If it was lost with the member's Lease,
//!   its caches are kept for a while ([`crate::linger`]).

use crate::backlog::Backlog;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{
    Clock, ClusterName, ClusterSet, ControllerName, Epoch, GroupName, MemberId, Moment,
    OwnedShards, Ownership, Range, ShardId, single,
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::across::Across;
use crate::assigned::{Assigned, enqueue_all};
use crate::assignment::{Assignment, AssignmentQueue, ClusterContext};
use crate::drain::Drain;
use crate::engagements::Engagements;
use crate::handler::EventHandler;
use crate::informers::Informers;
use crate::linger::Lingering;
use crate::meter::{Meter, Slices};
use crate::outside::Outside;
use crate::resync::Resync;
use crate::shards::{Shards, Step};
use crate::single::{SingleSpec, Singles};
use crate::spec::ControllerSpec;
use crate::status::Board;
use crate::visitors::Visitors;
use informer::{Informer, Target};
use metrics::{ControllerMetrics, Metrics};
use queue::Priority;

/// How many reports of handlers may be outstanding; beyond it handlers wait.
const REPORTS: usize = 256;

/// Decides what runs where.
pub(crate) struct Supervisor {
    controllers: BTreeMap<ControllerName, Supervised>,
    groups: BTreeMap<GroupName, Vec<ControllerName>>,
    ownership: Arc<dyn Ownership>,
    clusters: watch::Receiver<Arc<ClusterSet>>,
    clock: Arc<dyn Clock>,
    informers: Informers,
    meter: Meter,
    metrics: Metrics,
    board: Arc<Board>,
    rng: fastrand::Rng,
    shards: Shards,
    engagements: Engagements,
    contexts: BTreeMap<(ControllerName, ClusterName), ContextState>,
    assignments: BTreeMap<(ShardId, ControllerName), Arc<Assignment>>,
    reports: mpsc::Sender<Synced>,
    reported: mpsc::Receiver<Synced>,
    /// Assignments that ended in this step. Their scopes are dropped after new ones are required, so
    /// that what both need stays cached.
    ended: Vec<Arc<Assignment>>,
    lingering: Lingering,
    /// Drains under way.
    drains: TaskTracker,
    singles: Singles,
    next_context: u64,
}

/// What the supervisor works with.
pub(crate) struct Parts {
    pub(crate) ownership: Arc<dyn Ownership>,
    pub(crate) clusters: watch::Receiver<Arc<ClusterSet>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) informers: Informers,
    pub(crate) meter: Meter,
    pub(crate) metrics: Metrics,
    pub(crate) board: Arc<Board>,
    pub(crate) engagements: Engagements,
    pub(crate) rng: fastrand::Rng,
    pub(crate) singles: Singles,
}

/// A controller that is supervised.
pub(crate) struct Supervised {
    spec: ControllerSpec,
    queue: Arc<AssignmentQueue>,
    metrics: ControllerMetrics,
    assigned: Arc<Assigned>,
    across: Option<Across>,
    outside: Arc<Outside>,
    /// The clusters gained in this step, for mappings across clusters.
    gained: BTreeSet<ClusterName>,
    /// The shards gained in this step in clusters whose caches the controller had already.
    joined: BTreeMap<ClusterName, Vec<Arc<Assignment>>>,
}

impl Supervised {
    pub(crate) fn new(
        spec: ControllerSpec,
        queue: &Arc<AssignmentQueue>,
        metrics: ControllerMetrics,
        assigned: &Arc<Assigned>,
    ) -> Self {
        let across = Across::of(&spec.sources, assigned, queue);
        let (queue, assigned) = (Arc::clone(queue), Arc::clone(assigned));
        let (outside, gained, joined) = (Arc::default(), BTreeSet::new(), BTreeMap::new());
        Self { spec, queue, metrics, assigned, across, outside, gained, joined }
    }

    /// Opens an assignment: the queue hands out its keys.
    fn open(&self, assignment: &Arc<Assignment>) {
        let opened = self.queue.open(&assignment.shard, assignment.epoch);
        if let Some(across) = self.across.clone().filter(|_| opened) {
            tokio::spawn(across.opened(Arc::clone(assignment)));
        }
    }

    /// Queues what is cached already of the shards gained: a member may gain thousands in one cluster, and its caches
    /// are read once.
    fn look_at_joined(&mut self) {
        for assignments in std::mem::take(&mut self.joined).into_values() {
            let queue = Arc::clone(&self.queue);
            tokio::spawn(enqueue_all(queue, assignments, Priority::Initial));
        }
    }

    /// Maps the cached objects for the clusters gained.
    fn look_across(&mut self) {
        let gained = std::mem::take(&mut self.gained);
        if let Some(across) = self.across.clone().filter(|_| !gained.is_empty()) {
            tokio::spawn(across.gained(gained));
        }
    }
}

/// A controller in a cluster as it is engaged now. What drains since an earlier engagement has its own context.
struct ContextState {
    id: u64,
    /// The number of the cluster's engagement.
    engagement: u64,
    context: Arc<ClusterContext>,
    /// For each source, the number of the last scope that is met.
    met: Vec<u64>,
}

impl ContextState {
    /// Whether everything in the scopes of an assignment is cached.
    fn is_met(&self, assignment: &Assignment) -> bool {
        self.met
            .iter()
            .zip(assignment.scopes.iter())
            .all(|(met, required)| *met >= required.number())
    }
}

/// A handler has queued everything that the scopes up to a number cover.
struct Synced {
    controller: ControllerName,
    cluster: ClusterName,
    context: u64,
    source: usize,
    met: u64,
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").field("shards", &self.shards).finish_non_exhaustive()
    }
}

impl Supervisor {
    pub(crate) fn new(
        controllers: impl Iterator<Item = (GroupName, Supervised)>,
        parts: Parts,
    ) -> Self {
        let Parts { ownership, clusters, clock, informers, meter, metrics, board, .. } = parts;
        let mut groups: BTreeMap<GroupName, Vec<ControllerName>> = BTreeMap::new();
        let mut by_name = BTreeMap::new();
        for (group, supervised) in controllers {
            let name = supervised.spec.name.clone();
            groups.entry(group).or_default().push(name.clone());
            by_name.insert(name, supervised);
        }
        let (reports, reported) = mpsc::channel(REPORTS);
        Self {
            controllers: by_name,
            groups,
            ownership,
            clusters,
            clock,
            informers,
            meter,
            metrics,
            board,
            rng: parts.rng,
            shards: Shards::default(),
            engagements: parts.engagements,
            contexts: BTreeMap::new(),
            assignments: BTreeMap::new(),
            reports,
            reported,
            ended: Vec::new(),
            lingering: Lingering::default(),
            drains: TaskTracker::new(),
            singles: parts.singles,
            next_context: 0,
        }
    }

    /// Follows ownership and clusters until `shutdown`, then stops everything.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        let mut owned = self.ownership.watch();
        loop {
            let holdings = Arc::clone(&owned.borrow_and_update());
            let clusters = Arc::clone(&self.clusters.borrow_and_update());
            self.follow(&holdings, &clusters);
            self.board.set_running(true);
            loop {
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return self.shut_down().await,
                    // Before the changes, which may come faster than they are followed.
                    Some(synced) = self.reported.recv() => self.synced(&synced),
                    Ok(()) = owned.changed() => break,
                    Ok(()) = self.clusters.changed() => break,
                    () = self.engagements.changed() => break,
                    () = self.lingering.over(&*self.clock) => break,
                }
            }
        }
    }

    /// Adds work that runs once in the fleet.
    pub(crate) fn add_single(&mut self, spec: SingleSpec) {
        self.singles.add(spec);
    }

    fn follow(&mut self, owned: &OwnedShards, clusters: &ClusterSet) {
        let usable = self.engagements.usable(clusters);
        let engaged = usable.iter().map(|c| (c.name.clone(), c.incarnation));
        // The fleet is always there.
        let incarnations = engaged.chain([(single::fleet_cluster(), 0)]).collect();
        let groups: BTreeSet<_> =
            self.groups.keys().chain(self.singles.groups()).cloned().collect();
        let steps = self.shards.plan(owned, &incarnations, &groups);
        // Stops come first and still belong to the clusters as they were.
        let (stops, others): (Vec<_>, Vec<_>) =
            steps.into_iter().partition(|step| matches!(step, Step::Stop { .. }));
        self.carry_out(stops);
        self.drop_unused_contexts();
        self.engagements.engage(&usable);
        self.singles.engage(self.engagements.clients());
        self.carry_out(others);
        self.linger(owned);
        for (name, controller) in &mut self.controllers {
            controller.look_at_joined();
            controller.look_across();
            let contexts = self.contexts.keys().filter(|(context, _)| context == name).count();
            let running = contexts * controller.spec.workers;
            controller.metrics.max_concurrent.set(i64::try_from(running).unwrap_or(i64::MAX));
        }
    }

    fn linger(&mut self, owned: &OwnedShards) {
        let now = self.clock.now();
        self.lingering.keep(std::mem::take(&mut self.ended), &owned.member, now);
        let engagements = &self.engagements;
        let is_engaged = |target: &Target| {
            engagements.get(&target.cluster).is_some_and(|e| e.number == target.engagement)
        };
        self.lingering.follow(!owned.holdings.is_empty(), is_engaged, now);
    }

    fn carry_out(&mut self, steps: Vec<Step>) {
        for step in steps {
            tracing::debug!(?step, "shard step");
            match step {
                Step::Start { shard, epoch, member } => self.start(&shard, epoch, &member),
                Step::Open { shard } => self.open(&shard),
                Step::Drain { shard, epoch, deadline } => self.drain(&shard, epoch, deadline),
                Step::Stop { shard } => self.stop(&shard),
            }
        }
    }

    fn start(&mut self, shard: &ShardId, epoch: Epoch, member: &MemberId) {
        if self.singles.start(shard, epoch, member) {
            return;
        }
        let (slices, meter) = self.meter.open(shard);
        for name in self.groups.get(&shard.group).cloned().unwrap_or_default() {
            let (context, begun) = match self.context(&name, &shard.cluster) {
                Some(context) => (context, false),
                None => match self.make_context(&name, &shard.cluster) {
                    Some(context) => (context, true),
                    None => continue,
                },
            };
            let scopes = context.require(&self.controllers[&name].spec.sources, shard.range);
            let assignment = Assignment {
                member: member.clone(),
                shard: shard.clone(),
                epoch,
                context,
                scopes,
                meter: Arc::clone(&meter),
                cancel: CancellationToken::new(),
                visitors: Visitors::default(),
            };
            let assignment = Arc::new(assignment);
            let Some(controller) = self.controllers.get_mut(&name) else { continue };
            controller.queue.warm(shard, epoch, Arc::clone(&assignment));
            if let Some(interval) = controller.spec.resync_every.filter(|_| begun) {
                let (cluster, context) = (shard.cluster.clone(), &assignment.context);
                let (stores, queue) = (context.primary().into(), Arc::clone(&controller.queue));
                let (clock, rng) = (Arc::clone(&self.clock), self.rng.fork());
                let resync = Resync { cluster, stores, queue, interval, clock, rng };
                resync.start(context.stop().clone());
            }
            controller.assigned.begin(&assignment);
            controller.gained.insert(shard.cluster.clone());
            if begun {
                // The handlers queue everything, now that the queue takes keys of the shard.
                self.start_handlers(&name, &shard.cluster, &slices);
            } else {
                let joined = controller.joined.entry(shard.cluster.clone()).or_default();
                joined.push(Arc::clone(&assignment));
            }
            self.assignments.insert((shard.clone(), name), assignment);
        }
    }

    /// The context of a controller in a cluster, unless it is of an earlier engagement.
    fn context(&self, name: &ControllerName, cluster: &ClusterName) -> Option<Arc<ClusterContext>> {
        let engaged = self.engagements.get(cluster)?;
        let state = self.contexts.get(&(name.clone(), cluster.clone()))?;
        (state.engagement == engaged.number).then(|| Arc::clone(&state.context))
    }

    /// Acquires the informers of a controller in a cluster.
    fn make_context(
        &mut self,
        name: &ControllerName,
        cluster: &ClusterName,
    ) -> Option<Arc<ClusterContext>> {
        let engaged = self.engagements.get(cluster)?;
        let sources = &self.controllers[name].spec.sources;
        let informers: Vec<Arc<Informer>> = sources
            .iter()
            .map(|source| {
                let target = Target {
                    cluster: cluster.clone(),
                    engagement: engaged.number,
                    kind: source.kind.clone(),
                    scope: source.scope.clone(),
                    form: source.form,
                };
                self.informers.acquire(target, &engaged.client, &engaged.account)
            })
            .collect();
        let (client, series) = (engaged.client.clone(), self.metrics.clusters.hold(cluster));
        let uid = Arc::clone(&engaged.uid);
        let context = ClusterContext::new(sources, informers, client, series, uid, &self.clock);
        let context = Arc::new(context);
        self.meter.presences().watch(name, cluster, &context.view);
        self.next_context += 1;
        let met = vec![0; sources.len()];
        let (id, engagement) = (self.next_context, engaged.number);
        let state = ContextState { id, engagement, context: Arc::clone(&context), met };
        let earlier = self.contexts.insert((name.clone(), cluster.clone()), state);
        if let Some(earlier) = earlier {
            // Nothing new comes to what still drains there.
            earlier.context.stop().cancel();
        }
        Some(context)
    }

    fn start_handlers(&self, name: &ControllerName, cluster: &ClusterName, slices: &Arc<Slices>) {
        let Some(state) = self.contexts.get(&(name.clone(), cluster.clone())) else { return };
        let states = state.context.informers.iter().map(|informer| informer.state());
        slices.read_from(states.map(|state| (state.target.clone(), state.store.clone())));
        let controller = &self.controllers[name];
        let Some(engaged) = self.engagements.get(cluster) else { return };
        let queue = Arc::clone(&controller.queue);
        let primary: Arc<[_]> = state.context.primary().into();
        let part = engaged.account.part();
        let (of, outside) = (Arc::clone(&primary), Arc::clone(&controller.outside));
        let backlog = Arc::new(Backlog::new(cluster.clone(), queue, of, outside, part));
        if let Some(across) = &controller.across {
            across.begin(cluster, &backlog);
        }
        let sources = controller.spec.sources.iter().zip(&state.context.informers);
        for (index, (source, informer)) in sources.enumerate() {
            let handler = EventHandler {
                cluster: cluster.clone(),
                informer: Arc::clone(informer),
                source: source.clone(),
                view: Arc::clone(&state.context.view),
                primary: Arc::clone(&primary),
                assigned: Arc::clone(&controller.assigned),
                queue: Arc::clone(&controller.queue),
                backlog: Arc::clone(&backlog),
                slices: Arc::clone(slices),
                clock: Arc::clone(&self.clock),
                latency: self.metrics.latency(&source.kind),
            };
            let (context, reports) = (state.id, self.reports.clone());
            let (controller, cluster) = (name.clone(), cluster.clone());
            let report = async move |met| {
                let (controller, cluster) = (controller.clone(), cluster.clone());
                let synced = Synced { controller, cluster, context, source: index, met };
                // Fails only if the supervisor is gone, and then nobody waits for it.
                drop(reports.send(synced).await);
            };
            let stop = state.context.stop().clone();
            // In boxes: a replica has thousands of handlers at rest, and what waits for the stop holds it twice.
            let run = Box::pin(Box::new(handler).run(report));
            tokio::spawn(stop.run_until_cancelled_owned(run));
        }
    }

    fn synced(&mut self, synced: &Synced) {
        let context = (synced.controller.clone(), synced.cluster.clone());
        let Some(state) = self.contexts.get_mut(&context) else { return };
        if state.id != synced.context {
            return;
        }
        state.met[synced.source] = synced.met;
        let controller = &self.controllers[&synced.controller];
        let mut groups = self.groups.iter().filter(|(_, names)| names.contains(&synced.controller));
        let Some((group, _)) = groups.next() else { return };
        // The first of the group in the cluster, in the order of names.
        let first =
            ShardId { cluster: synced.cluster.clone(), group: group.clone(), range: Range::WHOLE };
        let is_of_group =
            |shard: &ShardId| shard.cluster == synced.cluster && shard.group == *group;
        let from = self.assignments.range((first, synced.controller.clone())..);
        for ((shard, name), assignment) in from.take_while(|((shard, _), _)| is_of_group(shard)) {
            if *name == synced.controller
                && self.shards.is_active(shard)
                && state.is_met(assignment)
            {
                controller.open(assignment);
            }
        }
    }

    fn open(&self, shard: &ShardId) {
        self.singles.open(shard);
        for (name, assignment) in self.assignments_of(shard) {
            let context = self.contexts.get(&(name.clone(), shard.cluster.clone()));
            if context.is_some_and(|state| state.is_met(assignment)) {
                self.controllers[name].open(assignment);
            }
        }
    }

    fn assignments_of(
        &self,
        shard: &ShardId,
    ) -> impl Iterator<Item = (&ControllerName, &Arc<Assignment>)> {
        let controllers = self.controllers.keys();
        let of_shard = move |name| {
            Some((name, self.assignments.get(&(shard.clone(), ControllerName::clone(name)))?))
        };
        controllers.filter_map(of_shard)
    }

    /// Closes dispatch and purges at once; the waiting happens on a task of its own.
    fn drain(&self, shard: &ShardId, epoch: Epoch, deadline: Moment) {
        let queues: Vec<_> = self.controllers.values().map(|c| Arc::clone(&c.queue)).collect();
        for queue in &queues {
            queue.close(shard);
        }
        let assignments =
            self.assignments_of(shard).map(|(_, assignment)| Arc::clone(assignment)).collect();
        let drain = Drain {
            shard: shard.clone(),
            epoch,
            deadline,
            clock: Arc::clone(&self.clock),
            queues,
            assignments,
            single: self.singles.drain(shard),
            ownership: Arc::clone(&self.ownership),
        };
        self.drains.spawn(drain.run());
    }

    /// Cancels everything of a shard.
    fn stop(&mut self, shard: &ShardId) {
        self.meter.close(shard);
        self.singles.stop(shard);
        for (name, controller) in &self.controllers {
            controller.queue.close(shard);
            controller.assigned.end(shard);
            if let Some(assignment) = self.assignments.remove(&(shard.clone(), name.clone())) {
                assignment.cancel();
                self.ended.push(assignment);
            }
        }
    }

    /// Drops what only stopped shards needed: once for all of them, because a member may lose thousands at once.
    fn drop_unused_contexts(&mut self) {
        let used: BTreeSet<_> =
            self.assignments.values().map(|assignment| Arc::as_ptr(&assignment.context)).collect();
        self.contexts.retain(|_, state| {
            let stays = used.contains(&Arc::as_ptr(&state.context));
            if !stays {
                state.context.stop().cancel();
            }
            stays
        });
    }

    async fn shut_down(mut self) {
        self.board.set_running(false);
        for shard in
            self.assignments.keys().map(|(shard, _)| shard.clone()).collect::<BTreeSet<_>>()
        {
            self.stop(&shard);
        }
        self.drop_unused_contexts();
        self.ended.clear();
        self.singles.shut_down().await;
        self.drains.close();
        self.drains.wait().await;
    }
}

#[cfg(test)]
#[path = "supervisor_tests.rs"]
mod tests;
