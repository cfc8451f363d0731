//! What the coordinator does, as a step from the observed world to writes.
//!
//! In this order: judge every member by its Lease; take the Leases that ran out; bring every
//! ShardMap up to date with what is final (gone owners, finished drains, clusters and groups that
//! came or went); plan moves for what remains; collect what the dead left behind.
//!
//! # Invariants
//! - **S4** A map is written only as a replacement of the version its plan was computed from, or as
//!   a creation where none is. While a write of a map is under way, planning goes on from what it
//!   would leave, and nothing is written to that map (the outbox holds one write per object).
//! - **S5** A shard is taken from a silent member only after that member's Lease was taken by
//!   compare-and-swap and the taken Lease was read back: from then on no renewal of it can succeed.
//!   A Lease that is missing is created in the coordinator's name first, which fails if it was
//!   merely not seen.
//! - The facts that free a shard (acknowledged drain, taken or released Lease) never become false
//!   again, so acting on an old view of *other* objects does no harm.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::{ClusterName, GroupName, MemberId, Moment};

use crate::api::{MAX_SHARDS, MemberState, PROTOCOL_VERSION, ShardPath};
use crate::config::LeaseTimings;
use crate::handover::{Entry, Facts};
use crate::lease::{self, LeaseRecord, LeaseState};
use crate::planner::{self, Place, PlanMember, Role, Unit};
#[cfg(feature = "planted")]
use crate::planted::{self, Planted};
use crate::record::{Kind, MapRecord, Object, Target, Write};
use crate::world::World;

/// How long a new coordinator waits for members that start together, when nobody owns anything.
pub const SETTLE: Duration = Duration::from_millis(400);
/// How long a cluster is missing from the configuration before its shards are drained: a
/// configuration that is being loaded or swapped must not stop a fleet.
pub const REMOVAL_GRACE: Duration = Duration::from_secs(5);
/// How long Leases and Members of the dead are kept, for people to see.
pub const DEAD_KEPT: Duration = Duration::from_secs(60);

/// What a step is computed from.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// The coordinator itself.
    pub me: &'a MemberId,
    /// The home cluster as it sees it.
    pub world: &'a World,
    /// The maps as the writes under way would leave them.
    pub pending: BTreeMap<&'a ClusterName, &'a MapRecord>,
    /// The configured clusters.
    pub clusters: &'a BTreeSet<ClusterName>,
    /// How liveness is told.
    pub timings: LeaseTimings,
    /// Since when it coordinates.
    pub since: Moment,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The writes, the most urgent first.
    pub writes: Vec<Write>,
    /// When to plan again even if nothing changes.
    pub wake: Option<Moment>,
}

/// What a coordinator remembers between steps: how long it waits for things that are missing.
#[derive(Clone, Debug, Default, Hash)]
pub struct Coordinator {
    missing_leases: BTreeMap<MemberId, Moment>,
    missing_clusters: BTreeMap<ClusterName, Moment>,
}

impl Coordinator {
    /// One step. Pure but for the two memories of absence, which start at `now`.
    pub fn step(&mut self, view: &View<'_>, now: Moment) -> Plan {
        let mut plan = Plan::default();
        let peers = Peers::judge(view, now);
        self.take_leases(view, &peers, now, &mut plan);
        self.write_maps(view, &peers, now, &mut plan);
        collect_dead(view, &peers, now, &mut plan);
        plan
    }

    /// Takes the Leases that ran out, and those that are missing for as long.
    fn take_leases(&mut self, view: &View<'_>, peers: &Peers, now: Moment, plan: &mut Plan) {
        for (member, state) in &peers.states {
            let Some(observed) = view.world.lease_of(member) else { continue };
            if *state == LeaseState::Expired {
                let taken = observed.record.taken_by(view.me, view.timings.duration);
                plan.writes.push(Write::Replace(Object::Lease(taken)));
            } else if state.is_alive() {
                let next = observed.late();
                let expires = observed.expires(view.timings.margin);
                plan.wake_at(if next > now { next } else { expires });
            }
        }
        self.missing_leases.retain(|member, _| peers.missing.contains(member));
        for member in &peers.missing {
            let due = now + view.timings.silence();
            let due = *self.missing_leases.entry(member.clone()).or_insert(due);
            if now < due {
                plan.wake_at(due);
                continue;
            }
            let name = lease::member_lease_name(member);
            let tombstone = LeaseRecord::new(name, view.me, view.timings.duration);
            plan.writes.push(Write::Create(Object::Lease(tombstone)));
        }
    }

    fn write_maps(&mut self, view: &View<'_>, peers: &Peers, now: Moment, plan: &mut Plan) {
        let unwanted = self.unwanted_clusters(view, now, plan);
        let mut drafts = drafts(view, &unwanted);
        for draft in drafts.values_mut() {
            draft.bring_up_to_date(peers);
        }
        let idle = |entry: &Entry| matches!(entry, Entry::Unowned { .. });
        let settled = view.since + SETTLE;
        if now < settled && drafts.values().all(|draft| draft.record.entries.values().all(idle)) {
            plan.wake_at(settled);
            return;
        }
        assign(&mut drafts, peers);
        plan.writes.extend(drafts.into_values().filter_map(Draft::into_write));
    }

    /// The clusters that have a map and have been missing from the configuration for long enough.
    fn unwanted_clusters(
        &mut self,
        view: &View<'_>,
        now: Moment,
        plan: &mut Plan,
    ) -> BTreeSet<ClusterName> {
        let missing = |cluster: &ClusterName| {
            view.world.maps().contains_key(cluster) && !view.clusters.contains(cluster)
        };
        self.missing_clusters.retain(|cluster, _| missing(cluster));
        for cluster in view.world.maps().keys().filter(|cluster| missing(cluster)) {
            self.missing_clusters.entry(cluster.clone()).or_insert(now);
        }
        let mut unwanted = BTreeSet::new();
        for (cluster, &since) in &self.missing_clusters {
            if now < since + REMOVAL_GRACE {
                plan.wake_at(since + REMOVAL_GRACE);
            } else {
                unwanted.insert(cluster.clone());
            }
        }
        unwanted
    }
}

impl Plan {
    fn wake_at(&mut self, at: Moment) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }
}

/// The members as the coordinator judges them.
struct Peers {
    states: BTreeMap<MemberId, LeaseState>,
    roles: BTreeMap<MemberId, PlanMember>,
    /// Named somewhere, but without a Lease that we see.
    missing: BTreeSet<MemberId>,
    acknowledged: BTreeSet<(MemberId, model::ShardId, model::Epoch)>,
    /// All groups that members who are not gone can run.
    groups: BTreeSet<GroupName>,
    /// Whether every live member has told its groups.
    groups_known: bool,
}

impl Peers {
    fn judge(view: &View<'_>, now: Moment) -> Self {
        let world = view.world;
        let states: BTreeMap<MemberId, LeaseState> = world
            .leases()
            .iter()
            .filter_map(|(name, lease)| {
                let member = lease::subject(name)?;
                let state = lease.state(&member, view.timings.margin, now);
                Some((member, state))
            })
            .collect();
        let owners = world.maps().values().flat_map(|map| map.entries.values());
        let missing = world
            .members()
            .keys()
            .chain(owners.filter_map(Entry::owner))
            .filter(|member| !states.contains_key(*member))
            .cloned()
            .collect();
        let mut peers = Self {
            roles: BTreeMap::new(),
            missing,
            acknowledged: BTreeSet::new(),
            groups: BTreeSet::new(),
            groups_known: states
                .iter()
                .all(|(member, state)| !state.is_alive() || world.members().contains_key(member)),
            states,
        };
        for (id, member) in world.members() {
            peers.add(id, &member.spec);
        }
        peers
    }

    fn add(&mut self, id: &MemberId, spec: &crate::api::MemberSpec) {
        for drain in &spec.acknowledged_drains {
            self.acknowledged.insert((id.clone(), drain.shard.clone(), drain.epoch));
        }
        let state = self.states.get(id).copied();
        if state.is_some_and(LeaseState::is_gone) {
            return;
        }
        self.groups.extend(spec.groups.iter().cloned());
        let speaks = spec.protocol_version == PROTOCOL_VERSION;
        let role = match (state, spec.state) {
            (Some(state), MemberState::Leaving) if state.is_alive() => Role::Leaving,
            (Some(LeaseState::Fresh), MemberState::Active) if speaks => Role::Open,
            _ => Role::Frozen,
        };
        self.roles.insert(
            id.clone(),
            PlanMember {
                role,
                capacity: spec.capacity.max(1),
                groups: spec.groups.iter().cloned().collect(),
            },
        );
    }

    fn facts(&self, cluster: &ClusterName, path: &ShardPath, entry: &Entry) -> Facts {
        let gone = |owner: &MemberId| self.states.get(owner).is_some_and(|state| state.is_gone());
        let acknowledged = |owner: &MemberId| {
            self.acknowledged.contains(&(owner.clone(), path.in_cluster(cluster), entry.epoch()))
        };
        let open = |target: &MemberId| {
            self.roles.get(target).is_some_and(|member| member.role == Role::Open)
        };
        Facts {
            owner_gone: entry.owner().is_some_and(gone),
            acknowledged: entry.owner().is_some_and(acknowledged),
            target_eligible: entry.target().is_some_and(open),
        }
    }
}

/// A map in the making, next to what it was made from.
struct Draft<'a> {
    base: Option<&'a MapRecord>,
    record: MapRecord,
    wanted: bool,
}

fn drafts<'a>(
    view: &View<'a>,
    unwanted: &BTreeSet<ClusterName>,
) -> BTreeMap<&'a ClusterName, Draft<'a>> {
    let world = view.world;
    let clusters: BTreeSet<&ClusterName> =
        view.clusters.iter().chain(world.maps().keys()).collect();
    clusters
        .into_iter()
        .map(|cluster| {
            let base = view.pending.get(cluster).copied().or_else(|| world.maps().get(cluster));
            let record = base.or_else(|| world.deleted_map(cluster)).cloned();
            let record = record.unwrap_or_else(|| MapRecord::new(cluster.clone()));
            (cluster, Draft { base, record, wanted: !unwanted.contains(cluster) })
        })
        .collect()
}

impl Draft<'_> {
    /// Everything that does not depend on a plan.
    fn bring_up_to_date(&mut self, peers: &Peers) {
        let cluster = self.record.cluster.clone();
        for (path, entry) in &mut self.record.entries {
            *entry = entry.settle(peers.facts(&cluster, path, entry));
        }
        if self.wanted {
            self.remove_lost_groups(peers);
            self.add_missing(&peers.groups);
        } else {
            for entry in self.record.entries.values_mut() {
                *entry = entry.drain(None);
            }
        }
    }

    /// Drains the shards of groups that nobody runs any more, and removes those that are drained.
    fn remove_lost_groups(&mut self, peers: &Peers) {
        if !peers.groups_known {
            return;
        }
        let floor = &mut self.record.epoch_floor;
        self.record.entries.retain(|path, entry| {
            if peers.groups.contains(&path.group) {
                return true;
            }
            *entry = entry.drain(None);
            let stays = entry.owner().is_some();
            if !stays {
                *floor = (*floor).max(entry.epoch());
            }
            stays
        });
    }

    fn add_missing(&mut self, groups: &BTreeSet<GroupName>) {
        let epoch = self.record.epoch_floor;
        for group in groups {
            let known = self.record.entries.keys().any(|path| path.group == *group);
            if !known && self.record.entries.len() < MAX_SHARDS {
                let path = ShardPath::whole(group.clone());
                self.record.entries.insert(path, Entry::Unowned { epoch });
            }
        }
    }

    /// The shards as the planner sees them; those of groups on their way out are not planned.
    fn units<'b>(&'b self, peers: &'b Peers) -> impl Iterator<Item = Unit> + 'b {
        let planned = |path: &ShardPath| peers.groups.contains(&path.group);
        let entries = self.record.entries.iter().filter(move |(path, _)| planned(path));
        entries.map(|(path, entry)| Unit {
            shard: path.in_cluster(&self.record.cluster),
            weight: 1,
            place: self.place(path, entry),
        })
    }

    fn place(&self, path: &ShardPath, entry: &Entry) -> Place {
        let before = self.base.and_then(|base| base.entries.get(path));
        match (entry, before) {
            (Entry::Unowned { .. }, _) => Place::Unowned,
            // It arrives with this very write: one step at a time.
            (Entry::Owned { owner, .. }, Some(Entry::Draining { owner: from, .. })) => {
                Place::Moving { from: from.clone(), to: Some(owner.clone()) }
            }
            (Entry::Owned { owner, .. }, _) => Place::Settled(owner.clone()),
            (Entry::Draining { owner, target, .. }, _) => {
                Place::Moving { from: owner.clone(), to: target.clone() }
            }
        }
    }

    /// The write that makes the map so, if it is not so already.
    fn into_write(self) -> Option<Write> {
        let nobodys = |map: &MapRecord| map.entries.values().all(|e| e.owner().is_none());
        if !self.wanted && self.base.is_some_and(nobodys) {
            // The entries go with the object, which is remembered with their epochs.
            let name = self.record.cluster.as_str().to_owned();
            return Some(Write::Delete(Target { kind: Kind::Map, name }, self.record.version));
        }
        match self.base {
            Some(base) if *base == self.record => None,
            #[cfg(feature = "planted")]
            Some(_) if planted::is(Planted::OverwriteMap) => {
                let version = crate::record::Version::default();
                Some(Write::Replace(Object::Map(MapRecord { version, ..self.record })))
            }
            Some(_) => Some(Write::Replace(Object::Map(self.record))),
            None if self.record.entries.is_empty() => None,
            None => Some(Write::Create(Object::Map(self.record))),
        }
    }
}

/// Plans over all wanted shards and puts the moves into the drafts.
fn assign(drafts: &mut BTreeMap<&ClusterName, Draft<'_>>, peers: &Peers) {
    let wanted = drafts.values().filter(|draft| draft.wanted);
    let units: Vec<Unit> = wanted.flat_map(|draft| draft.units(peers)).collect();
    for step in planner::plan(&peers.roles, &units) {
        let entry = drafts
            .get_mut(&step.shard.cluster)
            .and_then(|draft| draft.record.entries.get_mut(&ShardPath::from(&step.shard)));
        let Some(entry) = entry else { continue };
        *entry = match &step.to {
            Some(to) => entry.assign(to),
            None => entry.drain(None),
        };
    }
}

/// Deletes Members and then Leases of members that have been gone for a while and that no map
/// names.
fn collect_dead(view: &View<'_>, peers: &Peers, now: Moment, plan: &mut Plan) {
    let entries = || view.world.maps().values().flat_map(|map| map.entries.values());
    for (member, state) in &peers.states {
        let Some(observed) = view.world.lease_of(member).filter(|_| state.is_gone()) else {
            continue;
        };
        let due = observed.changed + DEAD_KEPT;
        if now < due {
            plan.wake_at(due);
            continue;
        }
        if entries().any(|e| e.owner() == Some(member) || e.target() == Some(member)) {
            continue;
        }
        plan.writes.push(match view.world.members().get(member) {
            Some(record) => {
                let target = Target { kind: Kind::Member, name: member.as_str().to_owned() };
                Write::Delete(target, record.version.clone())
            }
            None => {
                let target = Target { kind: Kind::Lease, name: observed.record.name.clone() };
                Write::Delete(target, observed.record.version.clone())
            }
        });
    }
}
#[cfg(test)]
#[path = "coordinator_tests.rs"]
mod tests;
