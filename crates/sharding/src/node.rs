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

mod decisive;
mod lead;
mod leave;
mod own;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use model::{ClusterName, Epoch, GroupName, MemberId, Moment, OwnedShards, ShardId, Work};

use crate::api::{DownCluster, MemberState};
use crate::config::Config;
use crate::coordinator::Coordinator;
use crate::drain::DrainWish;
use crate::election::Election;
use crate::floor;
use crate::handle::Departure;
use crate::handover::Entry;
use crate::lease::{self, COORDINATOR};
use crate::ledger::{Handover, Ledger};
use crate::load::Load;
use crate::member::{Membership, Standing};
use crate::outbox::Outbox;
use crate::ownership::Tracker;
use crate::protocol;
use crate::record::{Event, Kind, Object, Outcome, Target, Write};
use crate::trouble::Trouble;
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
    /// The work done so far for every shard held.
    Measured(BTreeMap<ShardId, Work>),
    /// The clusters that fail at this moment, and how.
    Failing(BTreeMap<ClusterName, Arc<str>>),
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
    /// Something begins to be wrong that people must put right, as [`Node::problems`] tells.
    Problem(String),
    /// It was put right.
    Solved(String),
}

/// What the fence needs, as one snapshot.
#[derive(Clone, Debug)]
pub struct Published {
    /// The shards held.
    pub owned: Arc<OwnedShards>,
    /// Until when this member may act.
    pub valid_until: Moment,
    /// Members that are alive as far as is known here, itself included.
    pub members: NonZeroU32,
}

/// One member.
#[derive(Clone, Debug)]
pub struct Node {
    config: Config,
    groups: Vec<GroupName>,
    clusters: Option<BTreeSet<ClusterName>>,
    down_clusters: Vec<DownCluster>,
    trouble: Trouble,
    world: World,
    /// The maps of versions of the protocol that it does not speak.
    unread: BTreeSet<ClusterName>,
    /// What people must put right, and of which revision of the world that is true.
    problems: (u64, Vec<String>),
    membership: Membership,
    tracker: Tracker,
    election: Election,
    coordinator: Coordinator,
    /// The epoch floor that it wants its Lease to carry, as coordinator.
    floor: Epoch,
    planned: Option<lead::Planned>,
    ledger: Ledger,
    outbox: Outbox,
    member_written: Moment,
    load: Load,
    leave_by: Option<Moment>,
    drain: DrainWish,
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
            down_clusters: Vec::new(),
            trouble: Trouble::default(),
            world: World::default(),
            unread: BTreeSet::new(),
            problems: (0, Vec::new()),
            tracker: Tracker::new(membership.id().clone(), config.drain_timeout),
            membership,
            election: Election::default(),
            coordinator: Coordinator::speaking(config.speaks),
            floor: Epoch::default(),
            planned: None,
            ledger: Ledger::default(),
            outbox: Outbox::default(),
            member_written: now,
            load: Load::default(),
            leave_by: None,
            drain: DrainWish::default(),
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
            Input::Measured(work) => self.measured(&work, now),
            Input::Failing(failing) => self.trouble.look(failing, now),
            Input::Leave => {
                let patience = self.config.drain_timeout + self.config.lease.duration;
                self.leave_by.get_or_insert(now + patience);
            }
        }
    }

    /// Draws the conclusions of all inputs since the last step.
    pub fn step(&mut self, now: Moment) -> Output {
        let mut wake = now + MAX_SLEEP;
        self.heed_drain();
        self.fence(now);
        self.follow_maps(now);
        self.find_problems();
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
        let members = u32::try_from(self.world.holders()).unwrap_or(u32::MAX);
        Published {
            owned: Arc::clone(self.tracker.owned()),
            valid_until: self.membership.valid_until(),
            // Before its own Lease is seen it is alone, as far as it knows.
            members: NonZeroU32::new(members).unwrap_or(NonZeroU32::MIN),
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
        self.membership.is_valid(now)
            && self.unread.is_empty()
            && self.election.leading_since(now).is_some()
    }

    /// Who coordinates, as far as it knows.
    pub fn coordinator(&self) -> Option<MemberId> {
        self.world.coordinator()
    }

    fn is_ready(&self) -> bool {
        self.world.is_synced() && self.clusters.is_some()
    }

    fn follow_maps(&mut self, now: Moment) {
        if self.membership.standing() == Standing::Gone {
            return;
        }
        for cluster in self.world.take_changed_maps() {
            self.follow_map(&cluster, now);
        }
    }

    /// Acts on a map, or on none of its shards if it is of a version that we do not speak.
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

    /// Says once what begins to be wrong, and once that it was put right.
    fn find_problems(&mut self) {
        let revision = self.world.revision();
        if self.problems.0 == revision {
            return;
        }
        let Config { speaks, namespace, .. } = &self.config;
        let refusal = protocol::refusal(&self.world, self.membership.id(), *speaks, namespace);
        let floor = floor::problem(&self.world, namespace);
        let found: Vec<String> = [refusal, floor].into_iter().flatten().collect();
        let (_, known) = std::mem::replace(&mut self.problems, (revision, found.clone()));
        let new = found.iter().filter(|text| !known.contains(text)).cloned();
        self.notes.extend(new.map(Note::Problem));
        let old = known.into_iter().filter(|text| !found.contains(text));
        self.notes.extend(old.map(Note::Solved));
    }

    /// What people must put right: a version of the protocol that this member does not speak, an
    /// epoch floor that cannot be read. With object, cause and fix.
    pub fn problems(&self) -> &[String] {
        &self.problems.1
    }

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
}

/// How many shards nobody holds, over all maps.
pub fn unowned(world: &World) -> u32 {
    let none = |entry: &&Entry| matches!(entry, Entry::Unowned { .. });
    let count: usize =
        world.maps().values().map(|map| map.entries.values().filter(none).count()).sum();
    count.try_into().unwrap_or(u32::MAX)
}
