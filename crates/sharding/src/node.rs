//! One member as a whole, without IO: inputs in, writes and snapshots out.
//!
//! The shell passes in what the watches show, how writes ended, which drains the engine acknowledged and
//! which clusters exist. It asks for a [`step`](Node::step) after each batch, and at the time that the
//! last step named. The simulation drives the same type.
//!
//! ```text
//!   watches ─▶ world ─┬─▶ ownership ─▶ OwnedShards ─▶ engine
//!                     ├─▶ election ─▶ coordinator ─┐
//!   own Lease ◀─ member ◀┘                         ├─▶ outbox ─▶ writes ─▶ home cluster
//!   own Member ◀─ state, acknowledged drains ──────┘
//! ```

mod anew;
mod end;
mod handovers;
mod hash;
mod lead;
mod leave;
mod names;
mod office;
mod own;
mod plan;
mod policies;
mod reach;
mod sight;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use model::{
    ClusterName, DisputedNames, Epoch, GroupName, MemberId, Moment, OwnedShards, ShardId, Work,
};

use crate::api::{DownCluster, MemberSpec, MemberState, ObjectVersion};
use crate::config::Config;
use crate::coordinator::{Coordinator, Written};
use crate::cordon::Cordon;
use crate::death::Ended;
use crate::election::Election;
use crate::failing::{FailingClusters, REPORT_AFTER};
use crate::floor;
use crate::history::History;
use crate::identity::{Identities, Names};
use crate::lease::{self, COORDINATOR};
use crate::load::LoadReporter;
use crate::member::{Departure, Membership, Standing};
use crate::outbox::Outbox;
use crate::ownership::Tracker;
use crate::policy::{Policies, PolicyRecord};
use crate::problem;
use crate::protocol;
use crate::reach::Report;
use crate::record::{Kind, Object, Observation, Target, Write, WriteOutcome};
use crate::unusable::UnusableClusters;
use crate::world::{LeasesSeen, World};

use handovers::HandoverLog;
pub use handovers::{Handover, HandoverCause};
use plan::Planning;
pub use plan::{MadePlan, PlanTask};

/// The longest time between two steps. The sleep of a machine stops timers; the member must notice its
/// end soon.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A watch showed something.
    Observed(Observation),
    /// A write ended.
    Completed(Target, WriteOutcome),
    /// The configured clusters, and the reasons why some are down.
    Clusters(BTreeSet<ClusterName>, Vec<DownCluster>),
    /// What the names of further clusters may begin with, of sources that could not be read yet; an empty text if their
    /// names may be any.
    Open(BTreeSet<String>),
    /// Which clusters these are: those that told.
    Identified(Identities),
    /// The engine says that the shard has no running work any more.
    Acknowledged(ShardId, Epoch),
    /// The work done so far for every shard held.
    Measured(BTreeMap<ShardId, Work>),
    /// The clusters that fail at this moment, and how.
    Failing(BTreeMap<ClusterName, Arc<str>>),
    /// Containers that have ended, as home says.
    Ended(Vec<Ended>),
    /// What people want; `None` while it is not known, and then no coordinator plans.
    Policies(Option<Vec<PolicyRecord>>),
    /// Home refuses to list what people want, and counts as having nothing of it until it does.
    NoPolicies,
    /// A plan was made, in that time.
    Planned(Box<MadePlan>, Duration),
    /// The plan that is being made has panicked.
    PlanPanicked,
    /// The seconds since 1970, by the wall clock. Without them the floor of epochs is what home keeps.
    Wall(u64),
    /// Hand everything over and end.
    Leave,
}

/// The result of a step.
#[derive(Debug, Default)]
pub struct Output {
    /// Writes to send now; each must be answered by [`Input::Completed`].
    pub writes: Vec<Write>,
    /// When to step again if nothing happens.
    pub wake: Moment,
    /// Events worth a log line or a metric.
    pub notes: Vec<Note>,
    /// A plan to make, and to answer by [`Input::Planned`] or [`Input::PlanPanicked`].
    pub plan: Option<PlanTask>,
    /// Whether home must be read anew: every watch starts with a list, and nothing that a watch showed
    /// before may be passed in any more.
    pub reread: bool,
    /// Which Leases to watch. When it changes, the watch of Leases starts with a list, and nothing that the
    /// watch before it showed may be passed in any more.
    pub leases: LeasesSeen,
}

/// An event worth a log line or a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The member could not act any more, and joins again.
    Fenced {
        /// The incarnation that ended.
        was: MemberId,
        /// The next incarnation, which holds nothing yet. It never joins if the member was leaving.
        is: MemberId,
        /// Why the member could not act.
        cause: &'static str,
    },
    /// Home was restored, emptied or replaced: the member read it anew.
    HistoryChanged {
        /// What proves it.
        proof: &'static str,
    },
    /// The member began or ceased to coordinate.
    Coordinating(bool),
    /// As coordinator, the member took the Lease of a silent or dead member.
    Took(String),
    /// Home says that the process of a member has ended.
    Ended(MemberId),
    /// As coordinator, the member completed a handover.
    HandedOver(Handover),
    /// The member's Member reports a cluster as down that it did not report before.
    ClusterDown(DownCluster),
    /// It reports it as down no more.
    ClusterUp(ClusterName),
    /// A problem appeared that people must repair; see [`Node::problems`].
    Problem(String),
    /// A problem is repaired.
    Solved(String),
}

/// What the fence needs, as one snapshot.
#[derive(Clone, Debug)]
pub struct Published {
    /// The shards held.
    pub owned: Arc<OwnedShards>,
    /// Until when this member may act.
    pub valid_until: Moment,
    /// The live members as far as this one knows, itself included.
    pub members: NonZeroU32,
}

/// One member.
#[derive(Clone, Debug)]
pub struct Node {
    config: Config,
    groups: Vec<GroupName>,
    clusters: Option<BTreeSet<ClusterName>>,
    unusable: UnusableClusters,
    failing: FailingClusters,
    names: Names,
    /// What is wrong with names of clusters, as it was logged.
    refused: Vec<String>,
    disputed: Arc<DisputedNames>,
    reach: Report,
    /// Its own Member as it sent it last, and the version which that gave.
    sent: Option<(ObjectVersion, MemberSpec)>,
    world: World,
    history: History,
    /// Whether home must be read anew.
    reread: bool,
    /// Whether a list was older than what was known.
    is_behind: bool,
    /// The maps in versions of the protocol that it does not speak.
    unread: BTreeSet<ClusterName>,
    /// What people must repair, and the revision of the world it was found in.
    problems: (u64, Vec<String>),
    hindrance: Option<String>,
    /// What it noticed as coordinator.
    noticed: Vec<String>,
    policies: Option<Policies>,
    shown: Option<policies::ShownPolicies>,
    policy_changes: u64,
    membership: Membership,
    tracker: Tracker,
    election: Election,
    /// Who was in office when the coordinator's Lease said last that the namespace is ours.
    office: Option<office::Office>,
    /// Whether the namespace belongs to another installation.
    elsewhere: Option<office::Elsewhere>,
    coordinator: Coordinator,
    written: Written,
    /// The epoch floor that the coordinator's Lease should carry, if this is the coordinator.
    floor: Epoch,
    /// Whether its last plan keeps maps because they went with a mass of others, likewise.
    mass: bool,
    /// The seconds since 1970, as an epoch.
    wall: Epoch,
    /// The same when it last left the epoch floor low, because of a change of home's history.
    waited: Epoch,
    planning: Planning,
    /// From when this member watches the coordinator's Lease only.
    narrow_from: Option<Moment>,
    handovers: HandoverLog,
    outbox: Outbox,
    member_written: Moment,
    load: LoadReporter,
    leave_by: Option<Moment>,
    cordon: Cordon,
    departed: Option<Departure>,
    was_coordinating: bool,
    rng: fastrand::Rng,
    notes: Vec<Note>,
}

impl Node {
    /// A member that starts at `now`. The configuration must have been validated.
    pub fn new(config: Config, now: Moment) -> Self {
        let mut rng = fastrand::Rng::with_seed(config.seed);
        let membership = Membership::new(&config.identity, config.lease, rng.fork(), now);
        Self {
            groups: config.groups.iter().cloned().collect(),
            clusters: None,
            unusable: UnusableClusters::default(),
            failing: FailingClusters::reported_after(REPORT_AFTER),
            names: Names::default(),
            refused: Vec::new(),
            disputed: Arc::default(),
            reach: Report::default(),
            sent: None,
            world: World::of_process_in(config.container.clone())
                .speaking(config.speaks)
                .of_lease(config.lease.duration),
            history: History::default(),
            reread: false,
            is_behind: false,
            unread: BTreeSet::new(),
            problems: (0, Vec::new()),
            hindrance: None,
            noticed: Vec::new(),
            policies: Some(Policies::default()),
            shown: None,
            policy_changes: 0,
            tracker: Tracker::new(membership.id().clone(), config.drain_timeout),
            membership,
            election: Election::default(),
            office: None,
            elsewhere: None,
            coordinator: Coordinator::speaking(config.speaks),
            written: Written::default(),
            floor: Epoch::default(),
            mass: false,
            wall: Epoch::default(),
            waited: Epoch::default(),
            planning: Planning::default(),
            narrow_from: None,
            handovers: HandoverLog::default(),
            outbox: Outbox::default(),
            member_written: now,
            load: LoadReporter::default(),
            leave_by: None,
            cordon: Cordon::default(),
            departed: None,
            was_coordinating: false,
            rng,
            notes: Vec::new(),
            config,
        }
    }

    /// Takes in one input.
    pub fn handle(&mut self, input: Input, now: Moment) {
        match input {
            Input::Observed(event) => self.observe(event, now),
            Input::Completed(target, outcome) => self.complete(&target, outcome, now),
            Input::Clusters(clusters, down) => {
                self.unusable.configure(clusters, down);
                let told = self.names.own();
                let counted = self.unusable.follow(self.clusters.as_ref(), told, now);
                self.configured(counted);
            }
            Input::Open(beginnings) => self.reach.may_lack(beginnings),
            Input::Identified(identities) => {
                self.identified(identities);
                self.follow_unusable(now);
            }
            Input::Acknowledged(shard, epoch) => {
                self.tracker.acknowledge(&shard, epoch);
            }
            Input::Measured(work) => self.measured(&work, now),
            Input::Failing(failing) => {
                self.failing.observe(failing, now);
                self.follow_unusable(now);
            }
            Input::Ended(ended) => self.learn_of_ended(ended),
            Input::Policies(None) => self.await_policies(),
            Input::Policies(records) => self.see_policies(records, now),
            Input::NoPolicies => self.see_policies(None, now),
            Input::Planned(made, took) => self.planned(*made, took, now),
            Input::PlanPanicked => self.planning.panicked(now),
            Input::Wall(seconds) => self.wall = Epoch(seconds.min(floor::MAX_WALL)),
            Input::Leave => {
                let patience = self.config.drain_timeout + self.config.lease.duration;
                self.leave_by.get_or_insert(now + patience);
            }
        }
    }

    /// Draws the conclusions from all inputs since the last step, and makes its plan at once.
    pub fn step(&mut self, now: Moment) -> Output {
        self.step_with(now, usize::MAX, |task| Some(task.run()))
    }

    /// Draws the conclusions from all inputs since the last step, and makes its plan at once, by `make`, if it is about
    /// that many clusters at most.
    pub fn step_with(
        &mut self,
        now: Moment,
        clusters: usize,
        make: fn(PlanTask) -> Option<MadePlan>,
    ) -> Output {
        let mut output = self.turn(now);
        while let Some(task) = output.plan.take_if(|task| task.clusters() <= clusters) {
            let planned = |made| Input::Planned(Box::new(made), Duration::ZERO);
            self.handle(make(task).map_or(Input::PlanPanicked, planned), now);
            let mut next = self.turn(now);
            next.writes.splice(..0, output.writes);
            next.notes.splice(..0, output.notes);
            next.reread |= output.reread;
            output = next;
        }
        output
    }

    /// Draws the conclusions from all inputs since the last turn. Its plan is made elsewhere.
    pub fn turn(&mut self, now: Moment) -> Output {
        let mut wake = now + MAX_SLEEP;
        self.follow_policies(now);
        self.follow_office(now);
        self.follow_others(now);
        self.follow_cordon();
        self.fence(now);
        self.look_at_leases(now);
        self.follow_maps(now);
        self.find_problems();
        self.keep_lease(now);
        self.keep_member(now);
        let mut sooner = |at: Option<Moment>| wake = at.map_or(wake, |at| wake.min(at));
        let (plan, again) = self.coordinate(now);
        sooner(again);
        self.leave(now);
        sooner(self.outbox.next_retry(now));
        sooner(Some(self.membership.renew_at()).filter(|&at| at > now));
        sooner(Some(self.membership.valid_until()).filter(|&at| at > now));
        sooner(self.leave_by.filter(|&at| at > now));
        self.outbox.prune(now);
        let writes = self.outbox.take();
        writes.iter().for_each(|write| self.history.sends(write.target()));
        let reread = std::mem::take(&mut self.reread);
        let (notes, leases) = (std::mem::take(&mut self.notes), self.world.leases_seen());
        Output { writes, wake, notes, plan, reread, leases }
    }

    /// What the fence needs now.
    pub fn published(&self) -> Published {
        let members = u32::try_from(self.world.holders()).unwrap_or(u32::MAX);
        Published {
            owned: Arc::clone(self.tracker.owned()),
            valid_until: self.membership.valid_until(),
            // Before its own Lease is seen it is alone, as far as it knows.
            members: NonZeroU32::new(members).unwrap_or(NonZeroU32::MIN),
        }
    }

    /// How the member departed, once it has.
    pub fn departed(&self) -> Option<Departure> {
        self.departed
    }

    /// The name of the process.
    pub(crate) fn identity(&self) -> &str {
        &self.config.identity
    }

    /// This incarnation.
    pub fn id(&self) -> &MemberId {
        self.membership.id()
    }

    /// Whether it has its Lease.
    pub fn standing(&self) -> Standing {
        self.membership.standing()
    }

    /// Whether it wants shards.
    pub fn state(&self) -> MemberState {
        if self.leave_by.is_some() || (self.foreign().is_some() && self.owns_any()) {
            MemberState::Leaving
        } else if self.is_ready() {
            MemberState::Active
        } else {
            MemberState::Joining
        }
    }

    /// The home cluster as it sees it.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Counts changes of the home cluster as it sees it, and of what people want.
    pub(crate) fn revision(&self) -> u64 {
        self.world.revision() + self.policy_changes
    }

    /// Since when the first of all shards that are being handed over is.
    pub(crate) fn oldest_move(&self) -> Option<Timestamp> {
        self.world.oldest_move()
    }

    /// How many shards have no owner although they should have one, and how many because people have paused
    /// them.
    pub(crate) fn unowned_shards(&self) -> (u32, u32) {
        let count = |shards: usize| shards.try_into().unwrap_or(u32::MAX);
        let is_paused = |shard: &ShardId| {
            let policies = self.policies.as_ref().zip(self.world.maps().get(&shard.cluster));
            policies.is_some_and(|(policies, map)| policies.pause_in(map, &shard.into()).is_some())
        };
        let (paused, unowned): (Vec<ShardId>, Vec<ShardId>) =
            self.world.unowned_shards().partition(is_paused);
        (count(unowned.len()), count(paused.len()))
    }

    /// Whether it coordinates.
    pub fn is_coordinator(&self, now: Moment) -> bool {
        self.membership.is_valid(now)
            && !self.defers(now)
            && self.foreign().is_none()
            && self.election.leading_since(now).is_some()
    }

    /// The coordinator, as far as this member knows.
    pub fn coordinator(&self) -> Option<MemberId> {
        self.world.coordinator()
    }

    fn is_ready(&self) -> bool {
        self.world.is_synced() && self.clusters.is_some() && self.foreign().is_none()
    }

    fn follow_maps(&mut self, now: Moment) {
        if self.membership.standing() == Standing::Gone {
            return;
        }
        let mut changed = self.world.take_changed_maps();
        if let Some(own) = &self.clusters {
            self.reach.maps_changed(&changed, own, &self.world);
        }
        self.follow_names(&mut changed, now);
        for cluster in changed {
            self.follow_map(&cluster, now);
        }
    }

    /// Acts on a map, or on none of its shards if this member does not speak its version.
    fn follow_map(&mut self, cluster: &ClusterName, now: Moment) {
        let map = self.world.maps().get(cluster);
        if map.is_some_and(|map| !self.config.speaks.speaks(map.protocol)) {
            self.unread.insert(cluster.clone());
            self.tracker.withhold(cluster);
        } else {
            self.unread.remove(cluster);
            self.tracker.observe(cluster, map, now);
        }
    }

    /// Notes each problem once when it appears, and once when it is repaired.
    fn find_problems(&mut self) {
        if self.problems.0 != self.world.revision() {
            self.find_problems_again();
        }
    }

    /// The next step looks for problems, even if it sees the same world.
    fn look_for_problems(&mut self) {
        self.problems.0 = u64::MAX;
    }

    fn find_problems_again(&mut self) {
        let revision = self.world.revision();
        let Config { speaks, namespace, installation, .. } = &self.config;
        let refusal = protocol::refusal(&self.world, self.membership.id(), *speaks, namespace);
        let stranger = self
            .foreign()
            .map(|its| problem::of_another_installation(its, installation, namespace));
        let missed = self.policies.iter().flat_map(Policies::missed);
        let floor = problem::unreadable_floor(&self.world, namespace);
        let unreadable = problem::unreadable_maps(&self.world, namespace);
        let own = [stranger, refusal, self.unsaid(), self.planning.problem()];
        let own: Vec<String> = own.into_iter().flatten().collect();
        self.hindrance = own.first().cloned();
        let mut found: Vec<String> =
            own.into_iter().chain(missed).chain(floor).chain(unreadable).collect();
        found.extend(self.noticed.iter().cloned());
        let (_, known) = std::mem::replace(&mut self.problems, (revision, found.clone()));
        let new = found.iter().filter(|text| !known.contains(text)).cloned();
        self.notes.extend(new.map(Note::Problem));
        let old = known.into_iter().filter(|text| !found.contains(text));
        self.notes.extend(old.map(Note::Solved));
    }

    /// What people must repair: what hinders this member, pauses that home has forgotten, an epoch floor that cannot be
    /// read, and what it noticed as coordinator. Each with object, cause and fix.
    pub fn problems(&self) -> &[String] {
        &self.problems.1
    }

    /// Why this very member cannot do its part, while another may: a namespace of another installation, a version
    /// of the protocol that it does not speak, clusters that differ by more than it can say.
    pub fn hindrance(&self) -> Option<&String> {
        self.hindrance.as_ref()
    }

    fn complete(&mut self, target: &Target, outcome: WriteOutcome, now: Moment) {
        let jitter = 0.75 + 0.25 * self.rng.f64();
        let Some(ended) = self.outbox.complete(target, &outcome, jitter, now) else { return };
        if !self.is_of_home(&ended.write, &outcome, now) {
            return;
        }
        match &outcome {
            WriteOutcome::Done(Some(object)) | WriteOutcome::Conflict(Some(object)) => {
                self.history.saw(object);
                self.world.apply(object.clone(), now);
            }
            WriteOutcome::Done(None) => self.world.deleted_by(&ended.write),
            WriteOutcome::Conflict(None) => self.world.remove(target, None),
            WriteOutcome::Failed => {}
        }
        let done = matches!(outcome, WriteOutcome::Done(_));
        let own = lease::member_lease_name(self.membership.id());
        match target.kind {
            Kind::Lease if target.name == own => self.own_lease_written(&ended, &outcome, now),
            Kind::Lease if target.name == COORDINATOR => {
                self.coordinator_lease_written(&ended, &outcome);
            }
            Kind::Lease if done && self.is_taking(&ended.write) => {
                self.world.took(&target.name);
                self.notes.push(Note::Took(target.name.clone()));
            }
            Kind::Map => {
                if let Ok(cluster) = target.name.parse() {
                    let since = self.election.leading_since(now);
                    self.written.ended(&cluster, &ended, &outcome, since);
                    let handovers = self.handovers.completed(&cluster, done, now);
                    self.notes.extend(handovers.into_iter().map(Note::HandedOver));
                }
            }
            Kind::Member => self.member_written(&ended, &outcome),
            Kind::Lease => {}
        }
        if !self.is_own_object(target) {
            self.planning.again();
        }
    }

    /// Whether a write to a Lease is a takeover, not a late answer to a write of the last incarnation.
    fn is_taking(&self, write: &Write) -> bool {
        let me = self.membership.id().as_str();
        matches!(write, Write::Create(Object::Lease(lease)) | Write::Replace(Object::Lease(lease))
            if lease.holder.as_deref() == Some(me))
    }
}
