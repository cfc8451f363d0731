//! One member as a whole, without IO: inputs in, writes and snapshots out.
//!
//! The shell feeds what the watches tell, how writes ended, what the engine acknowledged and which
//! clusters there are; it asks for a [`step`](Node::step) after each batch and when the time comes
//! that the last step named. Simulation drives the same type.
//!
//! ```text
//!   watches ─▶ world ─┬─▶ ownership ─▶ OwnedShards ─▶ engine
//!                     ├─▶ election ─▶ coordinator ─┐
//!   own Lease ◀─ member ◀┘                         ├─▶ outbox ─▶ writes ─▶ home cluster
//!   own Member ◀─ state, acknowledged drains ──────┘
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use model::{ClusterName, Epoch, GroupName, MemberId, Moment, OwnedShards, ShardId};

use crate::api::{DownCluster, MemberSpec, MemberState, PROTOCOL_VERSION};
use crate::config::Config;
use crate::coordinator::{Coordinator, View};
use crate::election::{self, Election};
use crate::handle::Departure;
use crate::handover::Entry;
use crate::lease::{self, COORDINATOR, LeaseRecord, LeaseState};
use crate::ledger::{Handover, Ledger};
use crate::member::{Membership, Standing};
use crate::outbox::{Flight, Outbox};
use crate::ownership::Tracker;
use crate::record::{Event, Kind, MemberRecord, Object, Outcome, Target, Write};
use crate::world::World;

/// Leases and counters are looked at no less often, so that a sleep of the machine, which stops
/// timers, is noticed soon after it ends.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// Something happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A watch told something.
    Event(Event),
    /// A write ended.
    Completed(Target, Outcome),
    /// The configured clusters, and what is told of those that are down.
    Clusters(BTreeSet<ClusterName>, Vec<DownCluster>),
    /// The engine says that nothing of the shard runs any more.
    Acknowledged(ShardId, Epoch),
    /// Hand everything over and end.
    Leave,
}

/// What follows.
#[derive(Debug, Default)]
pub struct Output {
    /// Writes to send now; each must be answered by [`Input::Completed`].
    pub writes: Vec<Write>,
    /// When to step again if nothing happens.
    pub wake: Moment,
    /// What is worth telling.
    pub notes: Vec<Note>,
}

/// Something worth a log line or a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The member could not act any more and joins anew.
    Fenced {
        /// The incarnation that ended.
        was: MemberId,
        /// The next, which holds nothing yet; it never joins if the member was leaving.
        is: MemberId,
        /// What told so.
        cause: &'static str,
    },
    /// The member began or ceased to coordinate.
    Coordinating(bool),
    /// As coordinator, took the Lease of a silent member.
    Took(String),
    /// As coordinator, completed a handover.
    HandedOver(Handover),
}

/// What the fence needs, as one snapshot.
#[derive(Clone, Debug)]
pub struct Published {
    /// The shards held.
    pub owned: Arc<OwnedShards>,
    /// Until when this member may act.
    pub valid_until: Moment,
}

/// One member.
#[derive(Debug)]
pub struct Node {
    config: Config,
    groups: Vec<GroupName>,
    clusters: Option<BTreeSet<ClusterName>>,
    down_clusters: Vec<DownCluster>,
    world: World,
    membership: Membership,
    tracker: Tracker,
    election: Election,
    coordinator: Coordinator,
    planned: Option<Planned>,
    ledger: Ledger,
    outbox: Outbox,
    member_written: Moment,
    leave_by: Option<Moment>,
    departed: Option<Departure>,
    was_coordinating: bool,
    rng: fastrand::Rng,
    notes: Vec<Note>,
}

/// What the last plan was computed from, as far as it must be computed anew when that changes.
#[derive(Debug, PartialEq, Eq)]
struct Planned {
    revision: u64,
    states: Vec<(MemberId, LeaseState)>,
    wake: Option<Moment>,
}

impl Node {
    /// A member that starts at `now`. The configuration must have been validated.
    pub fn new(config: Config, now: Moment) -> Self {
        let mut rng = fastrand::Rng::with_seed(config.seed);
        let membership = Membership::new(&config.identity, config.lease, rng.fork(), now);
        Self {
            groups: config.groups.iter().cloned().collect(),
            clusters: None,
            down_clusters: Vec::new(),
            world: World::default(),
            tracker: Tracker::new(membership.id().clone(), config.drain_timeout),
            membership,
            election: Election::default(),
            coordinator: Coordinator::default(),
            planned: None,
            ledger: Ledger::default(),
            outbox: Outbox::default(),
            member_written: now,
            leave_by: None,
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
            Input::Event(event) => self.world.observe(event, now),
            Input::Completed(target, outcome) => self.complete(&target, outcome, now),
            Input::Clusters(clusters, down) => {
                self.clusters = Some(clusters);
                self.down_clusters = down;
                self.planned = None;
            }
            Input::Acknowledged(shard, epoch) => {
                self.tracker.acknowledge(&shard, epoch);
            }
            Input::Leave => {
                let patience = self.config.drain_timeout + self.config.lease.duration;
                self.leave_by.get_or_insert(now + patience);
            }
        }
    }

    /// Draws the conclusions of all inputs since the last step.
    pub fn step(&mut self, now: Moment) -> Output {
        let mut wake = now + MAX_SLEEP;
        self.fence(now);
        self.follow_maps(now);
        self.keep_lease(now);
        self.keep_member(now);
        let mut sooner = |at: Option<Moment>| wake = at.map_or(wake, |at| wake.min(at));
        sooner(self.coordinate(now));
        self.leave(now);
        sooner(self.outbox.next_retry(now));
        sooner(Some(self.membership.renew_at()).filter(|&at| at > now));
        sooner(Some(self.membership.valid_until()).filter(|&at| at > now));
        sooner(self.leave_by.filter(|&at| at > now));
        self.outbox.prune(now);
        let writes = self.outbox.take();
        Output { writes, wake, notes: std::mem::take(&mut self.notes) }
    }

    /// What the fence needs now.
    pub fn published(&self) -> Published {
        Published {
            owned: Arc::clone(self.tracker.owned()),
            valid_until: self.membership.valid_until(),
        }
    }

    /// How the member went, once it has.
    pub fn departed(&self) -> Option<Departure> {
        self.departed
    }

    /// This incarnation.
    pub fn id(&self) -> &MemberId {
        self.membership.id()
    }

    /// Where it stands with its Lease.
    pub fn standing(&self) -> Standing {
        self.membership.standing()
    }

    /// What it asks for.
    pub fn state(&self) -> MemberState {
        if self.leave_by.is_some() {
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

    /// Whether it coordinates.
    pub fn is_coordinator(&self, now: Moment) -> bool {
        self.membership.is_valid(now) && self.election.leading_since(now).is_some()
    }

    /// Who coordinates, as far as it knows.
    pub fn coordinator(&self) -> Option<MemberId> {
        self.world.leases().get(COORDINATOR)?.record.holder.as_ref()?.parse().ok()
    }

    fn is_ready(&self) -> bool {
        self.world.is_synced() && self.clusters.is_some()
    }

    // --- own Lease ---

    /// Ends this incarnation if it may not act any more.
    fn fence(&mut self, now: Moment) {
        let Standing::Holding { .. } = self.membership.standing() else { return };
        let was = self.membership.id().clone();
        let cause = if self.membership.fence_if_expired(now) {
            "its Lease could not be renewed in time"
        } else {
            match self.world.lease_of(&was).map(|lease| &lease.record.holder) {
                Some(Some(holder)) if holder == was.as_str() => return,
                Some(_) => "its Lease was taken",
                None => "its Lease was deleted",
            }
        };
        self.start_over(&was, cause, now);
    }

    fn start_over(&mut self, was: &MemberId, cause: &'static str, now: Moment) {
        if self.leave_by.is_some() {
            self.membership.end();
            self.departed = Some(Departure::Abandoned);
        } else if self.membership.id() == was {
            self.membership.rejoin(now);
        }
        let is = self.membership.id().clone();
        self.tracker.restart(is.clone());
        for (cluster, map) in self.world.maps() {
            self.tracker.observe(cluster, Some(map), now);
        }
        self.election.lost();
        self.notes.push(Note::Fenced { was: was.clone(), is, cause });
    }

    fn keep_lease(&mut self, now: Moment) {
        if now < self.membership.renew_at() {
            return;
        }
        let id = self.membership.id();
        match self.membership.standing() {
            Standing::Gone => {}
            Standing::Joining if self.leave_by.is_some() => {}
            Standing::Joining => {
                let name = lease::member_lease_name(id);
                let record = LeaseRecord::new(name, id, self.config.lease.duration);
                self.outbox.offer_urgent(Write::Create(Object::Lease(record)), now);
            }
            Standing::Holding { .. } => {
                if let Some(held) = self.world.lease_of(id) {
                    let renewal = Write::Replace(Object::Lease(held.record.clone()));
                    self.outbox.offer_urgent(renewal, now);
                }
            }
        }
    }

    fn own_lease_written(&mut self, flight: &Flight, outcome: &Outcome, now: Moment) {
        let id = self.membership.id().clone();
        match (self.membership.standing(), outcome) {
            // The giving back; the world knows how it went.
            (Standing::Gone, _) => {}
            (_, Outcome::Done(_)) => self.membership.renewed(flight.sent),
            (_, Outcome::Failed) => self.membership.renewal_failed(now),
            (Standing::Joining, Outcome::Conflict(_)) => {
                // Somebody has that name, maybe ourselves in a write whose answer was lost.
                self.start_over(&id, "its Lease exists already", now);
            }
            (Standing::Holding { .. }, Outcome::Conflict(Some(Object::Lease(held))))
                if held.holder.as_deref() == Some(id.as_str()) =>
            {
                self.membership.renew_now(now);
            }
            (Standing::Holding { .. }, Outcome::Conflict(_)) => self.fence(now),
        }
    }

    // --- own Member ---

    fn keep_member(&mut self, now: Moment) {
        if !self.membership.is_valid(now) {
            return;
        }
        let id = self.membership.id();
        let spec = self.member_spec();
        let Some(held) = self.world.members().get(id) else {
            if self.leave_by.is_none() {
                let record = MemberRecord { id: id.clone(), version: Default::default(), spec };
                self.write_member(Write::Create(Object::Member(record)), now);
            }
            return;
        };
        let only_count = MemberSpec { shards: spec.shards, ..held.spec.clone() } == spec;
        let soon = now < self.member_written + self.config.lease.renew_interval;
        if held.spec == spec || (only_count && soon) {
            return;
        }
        let record = MemberRecord { spec, ..held.clone() };
        self.write_member(Write::Replace(Object::Member(record)), now);
    }

    fn write_member(&mut self, write: Write, now: Moment) {
        if self.outbox.offer(write, now) {
            self.member_written = now;
        }
    }

    fn member_spec(&self) -> MemberSpec {
        MemberSpec {
            identity: self.config.identity.clone(),
            state: self.state(),
            capacity: self.config.capacity,
            protocol_version: PROTOCOL_VERSION,
            groups: self.groups.clone(),
            shards: self.tracker.owned().holdings.len().try_into().unwrap_or(u32::MAX),
            acknowledged_drains: self.tracker.acknowledged(),
            down_clusters: self.down_clusters.clone(),
        }
    }

    // --- ownership ---

    fn follow_maps(&mut self, now: Moment) {
        if self.membership.standing() == Standing::Gone {
            return;
        }
        for cluster in self.world.take_changed_maps() {
            self.tracker.observe(&cluster, self.world.maps().get(&cluster), now);
        }
    }

    // --- coordination ---

    /// Takes part in the election and, if elected, coordinates. Says when to look again.
    fn coordinate(&mut self, now: Moment) -> Option<Moment> {
        let wake = if self.may_coordinate(now) { self.stand_for_election(now) } else { None };
        let coordinating = self.is_coordinator(now);
        if self.was_coordinating != coordinating {
            self.was_coordinating = coordinating;
            self.notes.push(Note::Coordinating(coordinating));
            self.coordinator = Coordinator::default();
            self.ledger = Ledger::default();
            self.planned = None;
        }
        let planned = if coordinating { self.plan(now) } else { None };
        [wake, planned].into_iter().flatten().min()
    }

    /// A leaving member goes on coordinating while it has shards of its own to give away, and
    /// begins only if nobody else is there to do it.
    fn may_coordinate(&self, now: Moment) -> bool {
        if !self.membership.is_valid(now) || !self.is_ready() {
            return false;
        }
        self.leave_by.is_none()
            || (self.owns_any() && (self.is_coordinator(now) || !self.sees_another(now)))
    }

    fn owns_any(&self) -> bool {
        let me = self.membership.id();
        self.world
            .maps()
            .values()
            .any(|map| map.entries.values().any(|entry| entry.owner() == Some(me)))
    }

    fn sees_another(&self, now: Moment) -> bool {
        self.world.members().iter().any(|(id, member)| {
            let state = |lease: &lease::ObservedLease| lease.state(id, self.margin(), now);
            id != self.membership.id()
                && member.spec.state == MemberState::Active
                && self.world.lease_of(id).is_some_and(|lease| state(lease).is_alive())
        })
    }

    fn margin(&self) -> Duration {
        self.config.lease.margin
    }

    fn stand_for_election(&mut self, now: Moment) -> Option<Moment> {
        let observed = self.world.leases().get(COORDINATOR);
        let me = self.membership.id();
        if observed.is_some_and(|lease| lease.record.holder.as_deref() != Some(me.as_str())) {
            self.election.lost();
        }
        match self.election.step(me, observed, self.config.lease, now) {
            election::Step::Wait(until) => Some(until),
            election::Step::Write(write) => {
                self.outbox.offer(write, now);
                None
            }
        }
    }

    fn coordinator_lease_written(&mut self, flight: &Flight, outcome: &Outcome) {
        let me = self.membership.id().as_str();
        let mine = |object: &Object| matches!(object, Object::Lease(lease) if lease.holder.as_deref() == Some(me));
        match (outcome, &flight.write) {
            (Outcome::Done(_), Write::Create(wanted) | Write::Replace(wanted)) if mine(wanted) => {
                self.election.won(flight.sent, self.config.lease);
            }
            (Outcome::Failed, _) => {}
            (Outcome::Conflict(Some(found)), _) if mine(found) => {}
            _ => self.election.lost(),
        }
    }

    /// Plans if anything changed since the last plan, and offers the writes.
    fn plan(&mut self, now: Moment) -> Option<Moment> {
        if self.outbox.is_busy() {
            return None;
        }
        let states = self.lease_states(now);
        let revision = self.world.revision();
        if let Some(last) = &self.planned
            && last.revision == revision
            && last.states == states
            && last.wake.is_none_or(|wake| now < wake)
        {
            return last.wake;
        }
        let (since, clusters) = (self.election.leading_since(now)?, self.clusters.as_ref()?);
        let pending = self.outbox.pending(Kind::Map).filter_map(|object| match object {
            Object::Map(map) => Some((&map.cluster, map)),
            _ => None,
        });
        let view = View {
            me: self.membership.id(),
            world: &self.world,
            pending: pending.collect(),
            clusters,
            timings: self.config.lease,
            since,
        };
        let plan = self.coordinator.step(&view, now);
        let mut held_back = false;
        for write in plan.writes {
            held_back |= !self.send(write, now);
        }
        // A write held back by a pause is planned anew when the pause ends; one held back by
        // another in flight, when that one completes.
        let retry = self.outbox.next_retry(now).filter(|_| held_back);
        let wake = [plan.wake, retry].into_iter().flatten().min();
        self.planned = Some(Planned { revision, states, wake });
        wake
    }

    fn send(&mut self, write: Write, now: Moment) -> bool {
        let sent = self.outbox.offer(write.clone(), now);
        if sent && let Write::Replace(Object::Map(map)) = &write {
            self.ledger.sent(self.world.maps().get(&map.cluster), map, &self.world, now);
        }
        sent
    }

    fn lease_states(&self, now: Moment) -> Vec<(MemberId, LeaseState)> {
        self.world
            .leases()
            .iter()
            .filter_map(|(name, lease)| {
                let member = lease::subject(name)?;
                let state = lease.state(&member, self.margin(), now);
                Some((member, state))
            })
            .collect()
    }

    // --- writes ---

    fn complete(&mut self, target: &Target, outcome: Outcome, now: Moment) {
        let jitter = 0.75 + 0.25 * self.rng.f64();
        let Some(flight) = self.outbox.complete(target, &outcome, jitter, now) else { return };
        match &outcome {
            Outcome::Done(Some(object)) | Outcome::Conflict(Some(object)) => {
                self.world.apply(object.clone(), now);
            }
            Outcome::Done(None) | Outcome::Conflict(None) => self.world.remove(target, None),
            Outcome::Failed => {}
        }
        let done = matches!(outcome, Outcome::Done(_));
        let own = lease::member_lease_name(self.membership.id());
        match target.kind {
            Kind::Lease if target.name == own => self.own_lease_written(&flight, &outcome, now),
            Kind::Lease if target.name == COORDINATOR => {
                self.coordinator_lease_written(&flight, &outcome);
            }
            Kind::Lease if done && self.is_taking(&flight.write) => {
                self.notes.push(Note::Took(target.name.clone()));
            }
            Kind::Map => {
                if let Ok(cluster) = target.name.parse() {
                    let handovers = self.ledger.completed(&cluster, done, now);
                    self.notes.extend(handovers.into_iter().map(Note::HandedOver));
                }
            }
            Kind::Lease | Kind::Member => {}
        }
        if target.kind == Kind::Map || target.name != own {
            self.planned = None;
        }
    }

    /// Whether a write to another's Lease is a takeover, not a late answer to our own last one.
    fn is_taking(&self, write: &Write) -> bool {
        let me = self.membership.id().as_str();
        matches!(write, Write::Create(Object::Lease(lease)) | Write::Replace(Object::Lease(lease))
            if lease.holder.as_deref() == Some(me))
    }

    // --- leaving ---

    /// Goes through the stages of leaving, each when the one before is done: all shards are with
    /// others; the coordinator's Lease is given back; our own is; our Member is deleted.
    fn leave(&mut self, now: Moment) {
        let Some(leave_by) = self.leave_by else { return };
        if self.departed.is_some() {
            return;
        }
        if now >= leave_by {
            self.give_up();
            return;
        }
        match self.membership.standing() {
            Standing::Joining => {
                let name = lease::member_lease_name(self.membership.id());
                if !self.outbox.is_in_flight(&Target { kind: Kind::Lease, name }) {
                    self.membership.end();
                    self.departed = Some(Departure::HandedOver);
                }
            }
            Standing::Holding { .. } if self.world.is_synced() && self.is_free() => {
                if self.coordinator().as_ref() == Some(self.membership.id()) {
                    self.release(COORDINATOR, now);
                } else if self.release(&lease::member_lease_name(self.membership.id()), now) {
                    // Before the release is sent: from here on we act for nothing.
                    self.membership.end();
                    self.tracker.restart(self.membership.id().clone());
                }
            }
            Standing::Holding { .. } => {}
            Standing::Gone => self.clean_up(now),
        }
    }

    /// Whether nothing is ours any more, by the maps and by what we hold.
    fn is_free(&self) -> bool {
        let warming = |held: &model::Holding| held.hold == model::Hold::Warming;
        !self.owns_any() && self.tracker.owned().holdings.values().all(warming)
    }

    fn release(&mut self, name: &str, now: Moment) -> bool {
        let Some(held) = self.world.leases().get(name) else { return false };
        let write = Write::Replace(Object::Lease(held.record.released()));
        self.outbox.offer(write, now)
    }

    /// After the own Lease was given back: repeat that if it failed, then delete the Member.
    fn clean_up(&mut self, now: Moment) {
        let id = self.membership.id().clone();
        let name = lease::member_lease_name(&id);
        if self.outbox.is_in_flight(&Target { kind: Kind::Lease, name: name.clone() }) {
            return;
        }
        let held = self.world.lease_of(&id).map(|lease| lease.record.holder.as_deref());
        if held == Some(Some(id.as_str())) {
            self.release(&name, now);
            return;
        }
        match self.world.members().get(&id) {
            Some(member) => {
                let target = Target { kind: Kind::Member, name: id.as_str().to_owned() };
                self.outbox.offer(Write::Delete(target, member.version.clone()), now);
            }
            None => self.departed = Some(Departure::HandedOver),
        }
    }

    fn give_up(&mut self) {
        // If the Lease was given back, what is left undone is cosmetic.
        let handed_over = self.membership.standing() == Standing::Gone;
        self.membership.end();
        self.tracker.restart(self.membership.id().clone());
        self.departed =
            Some(if handed_over { Departure::HandedOver } else { Departure::Abandoned });
    }
}

/// How many shards nobody holds, over all maps.
pub fn unowned(world: &World) -> u32 {
    let none = |entry: &&Entry| matches!(entry, Entry::Unowned { .. });
    let count: usize =
        world.maps().values().map(|map| map.entries.values().filter(none).count()).sum();
    count.try_into().unwrap_or(u32::MAX)
}
