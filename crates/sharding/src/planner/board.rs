//! The plan under construction: members, units, and what each member would carry.
//!
//! A unit is what moves at once: a shard, or all shards of a group of scope `Fleet`. A unit is *at* the
//! member that has it or will get it. Members and units are named by their indices.

use std::cell::OnceCell;
use std::cmp::Ordering;
use std::collections::BTreeMap;

use model::range::MAX_BITS;
use model::{ClusterName, GroupName, GroupScope, GroupTraits, MemberId, uid_hash};

use super::level::Level;
use super::locality::{Kinds, Locality, shared_kinds};
use super::reach::{Fit, served};
use super::{Limits, Move, Placement, PlanMember, PlanShard, Reason, Role, mix};

pub(super) struct Board<'a> {
    pub(super) members: Vec<BoardMember<'a>>,
    pub(super) units: Vec<Unit<'a>>,
    pub(super) locality: Locality,
    pub(super) limits: &'a Limits,
    /// Units in flight, over all members.
    pub(super) in_flight: usize,
    /// Whether every member serves every cluster, as in most fleets.
    pub(super) alike: bool,
    index: BTreeMap<&'a MemberId, usize>,
}

pub(super) struct BoardMember<'a> {
    pub(super) id: &'a MemberId,
    pub(super) role: Role,
    pub(super) capacity: u32,
    pub(super) load: u64,
    /// The number of units in that load.
    pub(super) units: usize,
    /// The part of the load that is moving here from another open member.
    pub(super) arriving: u64,
    /// Units in flight, from here and to here.
    pub(super) in_flight: usize,
    /// Which groups it can run, by their index.
    runs: Vec<bool>,
    /// How it stands with each cluster, by its index; `None` if it serves all.
    fits: Option<Vec<Fit>>,
    hash: u64,
}

/// What moves at once.
pub(super) struct Unit<'a> {
    /// The shards, at least one.
    pub(super) shards: Shards<'a>,
    pub(super) weight: u64,
    pub(super) state: UnitState,
    pub(super) at: Option<usize>,
    /// The part of the weight that splits could take from it.
    pub(super) divisible: u64,
    group: usize,
    /// The index of its cluster, or those of the clusters of its shards if they are many.
    cluster: usize,
    clusters: Vec<usize>,
    kinds: Kinds,
    /// The hash of its name, computed only where there is a tie.
    hash: OnceCell<u64>,
}

/// One shard, or those of a whole group. Most units are one shard and need no allocation.
pub(super) enum Shards<'a> {
    One(&'a PlanShard),
    Many(Vec<&'a PlanShard>),
}

/// How a unit stands with the member that has it. If its shards differ, the first state in this order
/// counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum UnitState {
    /// Moving to that member, which takes it.
    Bound(usize),
    /// Settled at that member.
    Settled(usize),
    /// At a suspect member, which neither loses nor gets units.
    Held(usize),
    /// At a member that the plan does not know. The coordinator handles it.
    Unknown,
    /// It needs an owner.
    Unassigned(Reason),
}

impl<'a> Board<'a> {
    pub(super) fn new(
        members: &'a BTreeMap<MemberId, PlanMember>,
        groups: &'a BTreeMap<GroupName, GroupTraits>,
        shards: &'a [PlanShard],
        limits: &'a Limits,
    ) -> Self {
        let known = known_groups(shards);
        let shards = sorted(shards);
        let mut clusters: Vec<&ClusterName> =
            shards.iter().map(|shard| &shard.id.cluster).collect();
        clusters.dedup();
        let members: Vec<BoardMember<'a>> = members
            .iter()
            .map(|(id, member)| BoardMember::new(id, member, &known, &clusters))
            .collect();
        let index = members.iter().enumerate().map(|(i, member)| (member.id, i)).collect();
        let mut board = Self {
            alike: members.iter().all(|member| member.fits.is_none()),
            members,
            units: Vec::new(),
            locality: Locality::default(),
            limits,
            in_flight: 0,
            index,
        };
        board.units = board.wrap(shards, groups, &known);
        if !board.alike {
            board.find_unreached();
        }
        let shares = board.units.iter().map(|unit| (&unit.shards.first().id, unit.kinds));
        board.locality = Locality::of(shares);
        for unit in 0..board.units.len() {
            board.count(unit);
        }
        board
    }

    /// Makes units of shards.
    fn wrap(
        &self,
        shards: Vec<&'a PlanShard>,
        groups: &BTreeMap<GroupName, GroupTraits>,
        known: &BTreeMap<&GroupName, usize>,
    ) -> Vec<Unit<'a>> {
        let shared = shared_kinds(groups);
        let traits: Vec<(GroupScope, Kinds)> = known
            .keys()
            .map(|group| {
                let scope = groups.get(*group).map(|traits| traits.scope).unwrap_or_default();
                (scope, shared.get(*group).copied().unwrap_or_default())
            })
            .collect();
        let mut units: Vec<Unit<'a>> = Vec::with_capacity(shards.len());
        let mut bundles: BTreeMap<usize, Vec<(&'a PlanShard, usize)>> = BTreeMap::new();
        let (mut cluster, mut last) = (0, shards.first().map(|shard| &shard.id.cluster));
        for shard in shards {
            if last != Some(&shard.id.cluster) {
                (cluster, last) = (cluster + 1, Some(&shard.id.cluster));
            }
            let group = known[&shard.id.group];
            let (scope, kinds) = traits[group];
            if scope == GroupScope::Fleet {
                bundles.entry(group).or_default().push((shard, cluster));
                continue;
            }
            units.push(Unit {
                weight: u64::from(shard.weight),
                state: self.state(shard, group, cluster),
                cluster,
                clusters: Vec::new(),
                at: None,
                divisible: divisible(shard, scope),
                group,
                kinds,
                hash: OnceCell::new(),
                shards: Shards::One(shard),
            });
        }
        units.extend(bundles.into_iter().map(|(group, shards)| self.bundle(group, shards)));
        units
    }

    /// Makes one unit of the shards of a group of scope `Fleet`.
    fn bundle(&self, group: usize, shards: Vec<(&'a PlanShard, usize)>) -> Unit<'a> {
        let (shards, clusters): (Vec<&'a PlanShard>, Vec<usize>) = shards.into_iter().unzip();
        let parts = shards.iter().zip(&clusters);
        let states: Vec<UnitState> =
            parts.map(|(shard, &cluster)| self.state(shard, group, cluster)).collect();
        let count = |wanted: UnitState| states.iter().filter(|&&state| state == wanted).count();
        let rank = |state: UnitState| match state {
            // The fewest must move to where most are already.
            UnitState::Settled(_) => (1, usize::MAX - count(state), state),
            UnitState::Bound(_) => (0, 0, state),
            _ => (2, 0, state),
        };
        Unit {
            weight: shards.iter().map(|shard| u64::from(shard.weight)).sum(),
            state: states.iter().copied().min_by_key(|&s| rank(s)).unwrap_or(UnitState::Unknown),
            at: None,
            divisible: 0,
            group,
            cluster: 0,
            clusters,
            kinds: 0,
            hash: OnceCell::new(),
            shards: Shards::Many(shards),
        }
    }

    fn state(&self, shard: &PlanShard, group: usize, cluster: usize) -> UnitState {
        let fits = |member: usize| self.members[member].runs[group];
        let lacks = |member: usize| self.members[member].fit(cluster) == Fit::Lacks;
        match &shard.placement {
            Placement::Unowned => UnitState::Unassigned(Reason::Unowned),
            Placement::Settled(owner) => match self.index.get(owner) {
                None => UnitState::Unknown,
                Some(&member) => match self.members[member].role {
                    Role::Leaving => UnitState::Unassigned(Reason::OwnerLeaves),
                    _ if !fits(member) => UnitState::Unassigned(Reason::OwnerLeaves),
                    Role::Cordoned => UnitState::Unassigned(Reason::Maintenance),
                    Role::Suspect => UnitState::Held(member),
                    Role::Open => UnitState::Settled(member),
                },
            },
            Placement::Moving { from, to } => match to.as_ref().and_then(|to| self.index.get(to)) {
                Some(&member)
                    if self.members[member].role == Role::Open
                        && fits(member)
                        && (to.as_ref() == Some(from) || !lacks(member)) =>
                {
                    UnitState::Bound(member)
                }
                _ => UnitState::Unassigned(Reason::TargetLost),
            },
        }
    }

    /// Finds the units that must leave an owner because it does not serve them, and another member does.
    fn find_unreached(&mut self) {
        for unit in 0..self.units.len() {
            let owner = match self.units[unit].state {
                UnitState::Settled(member) => Some(member),
                UnitState::Unassigned(Reason::Maintenance) => self.units[unit]
                    .shards
                    .iter()
                    .find_map(|shard| self.index_of(shard.placement.owner()?)),
                _ => None,
            };
            if owner.is_some_and(|owner| self.is_unreached(unit, owner)) {
                self.units[unit].state = UnitState::Unassigned(Reason::Unreached);
            }
        }
    }

    fn is_unreached(&self, unit: usize, owner: usize) -> bool {
        let fits = self.units[unit].clusters().iter().map(|&c| self.members[owner].fit(c));
        let is_off = matches!(fits.min(), Some(Fit::Lacks | Fit::Fails));
        let is_off = is_off && !self.units[unit].rests();
        let open = || (0..self.members.len()).filter(|&member| self.is_open_to(member, unit));
        is_off && open().any(|m| served(self.merit(m, unit)) > served(self.merit(owner, unit)))
    }

    /// Counts a unit at its member, or at the one it moves to, and in flight if it moves.
    fn count(&mut self, unit: usize) {
        let Unit { state, weight, .. } = self.units[unit];
        if let UnitState::Bound(member) | UnitState::Settled(member) | UnitState::Held(member) =
            state
        {
            self.units[unit].at = Some(member);
            self.members[member].load += weight;
            self.members[member].units += 1;
        }
        let moving = self.units[unit].shards.iter().find_map(|shard| match &shard.placement {
            Placement::Moving { from, to } => Some((from, to)),
            _ => None,
        });
        let Some((from, to)) = moving else { return };
        let from = self.index.get(from).copied();
        let to = to.as_ref().and_then(|to| self.index.get(to).copied());
        self.start_move(from, to);
        // One that waits for another member arrives nowhere yet.
        let to = to.filter(|_| self.units[unit].at == to);
        let open = |member: Option<usize>| member.filter(|&m| self.members[m].role == Role::Open);
        if let (Some(from), Some(to)) = (open(from), open(to))
            && from != to
        {
            self.members[to].arriving += weight;
        }
    }

    /// The index of a member, if the plan knows it.
    pub(super) fn index_of(&self, member: &MemberId) -> Option<usize> {
        self.index.get(member).copied()
    }

    /// Counts one more unit in flight.
    pub(super) fn start_move(&mut self, from: Option<usize>, to: Option<usize>) {
        self.in_flight += 1;
        for member in from.into_iter().chain(to.filter(|_| from != to)) {
            self.members[member].in_flight += 1;
        }
    }

    /// Puts a unit at another member.
    pub(super) fn put(&mut self, unit: usize, member: usize) {
        let weight = self.units[unit].weight;
        if let Some(before) = self.units[unit].at.replace(member) {
            self.members[before].load -= weight;
            self.members[before].units -= 1;
        }
        self.members[member].load += weight;
        self.members[member].units += 1;
    }

    /// Whether a member takes units, can run this one, and serves all its clusters but those that the
    /// member at which it is fails to reach too.
    pub(super) fn takes(&self, member: usize, unit: usize) -> bool {
        let at = self.units[unit].at;
        let fails = |member: usize, cluster| self.members[member].fit(cluster) == Fit::Fails;
        self.is_open_to(member, unit)
            && self.units[unit].clusters().iter().all(|&cluster| {
                self.members[member].fit(cluster) == Fit::Serves
                    || fails(member, cluster) && at.is_some_and(|at| fails(at, cluster))
            })
    }

    /// Whether a member takes units and can run this one.
    pub(super) fn is_open_to(&self, member: usize, unit: usize) -> bool {
        self.members[member].role == Role::Open && self.members[member].runs[self.units[unit].group]
    }

    /// How much of a unit a member serves, to compare members.
    pub(super) fn merit(&self, member: usize, unit: usize) -> u64 {
        self.units[unit].clusters().iter().map(|&c| self.members[member].fit(c).merit()).sum()
    }

    /// Whether one more move from or to this member is within the bounds.
    pub(super) fn is_free(&self, member: usize) -> bool {
        self.in_flight < self.limits.moves_in_fleet
            && self.members[member].in_flight < self.limits.moves_per_member
    }

    /// Compares two members by the part of their capacity in use, with `extra` added to each. Loads are
    /// sums of 32-bit weights and capacities are at most 1000, so the products fit.
    pub(super) fn compare(&self, a: usize, b: usize, extra: u64) -> Ordering {
        let (a, b) = (&self.members[a], &self.members[b]);
        let left = (a.load + extra) * u64::from(b.capacity);
        left.cmp(&((b.load + extra) * u64::from(a.capacity)))
    }

    /// The score of a unit at a member: the highest wins a tie.
    pub(super) fn score(&self, member: usize, unit: usize) -> u64 {
        mix(self.members[member].hash ^ self.units[unit].hash())
    }

    /// How many of the caches that a unit needs a member has anyway.
    pub(super) fn shared(&self, unit: usize, member: usize) -> u32 {
        self.locality.shared(unit, member, |other| self.units[other].at)
    }

    /// The level over the members that share the load. Counts their units and, with `unassigned`, those
    /// of nobody. With `split`, what splits could take from a shard counts by itself.
    pub(super) fn level(&self, unassigned: bool, split: bool) -> Level {
        let shares = |member: usize| self.members[member].shares();
        let counted = self.units.iter().filter(|unit| unit.at.map_or(unassigned, shares));
        let weights = counted.flat_map(|unit| {
            let divisible = if split { unit.divisible } else { 0 };
            [(unit.weight - divisible, true), (divisible, false)]
        });
        let members = self.members.iter().filter(|member| member.shares());
        Level::of(weights, members.map(|member| member.capacity))
    }

    /// The moves that must begin for a unit to get to a member, or to nobody. `reason` is for shards that
    /// have no reason of their own.
    pub(super) fn moves(&self, unit: usize, to: Option<usize>, reason: Reason) -> Vec<Move> {
        let target = to.map(|member| self.members[member].id);
        let Unit { shards, group, .. } = &self.units[unit];
        // No other member may have a shard of the unit when its next owner gets one.
        let elsewhere =
            shards.iter().any(|shard| shard.placement.owner().is_some_and(|o| Some(o) != target));
        let parts = shards.iter().zip(self.units[unit].clusters().iter().copied());
        let due = parts.filter(|(shard, _)| match &shard.placement {
            Placement::Unowned => target.is_some() && !elsewhere,
            Placement::Settled(owner) => Some(owner) != target,
            Placement::Moving { to, .. } => to.as_ref() != target,
        });
        due.map(|(shard, cluster)| Move {
            shard: shard.id.clone(),
            to: target.cloned(),
            reason: match self.state(shard, *group, cluster) {
                UnitState::Unassigned(own) if reason != Reason::Unreached => own,
                _ => reason,
            },
        })
        .collect()
    }
}

impl<'a> BoardMember<'a> {
    fn new(
        id: &'a MemberId,
        member: &'a PlanMember,
        groups: &BTreeMap<&'a GroupName, usize>,
        clusters: &[&ClusterName],
    ) -> Self {
        Self {
            fits: member.reach.of_all(clusters),
            id,
            role: member.role,
            capacity: member.capacity.clamp(1, 1000),
            load: 0,
            units: 0,
            arriving: 0,
            in_flight: 0,
            runs: groups.keys().map(|group| member.groups.contains(*group)).collect(),
            hash: uid_hash(id.as_str()),
        }
    }
}

impl BoardMember<'_> {
    /// How it stands with the cluster of that index.
    fn fit(&self, cluster: usize) -> Fit {
        self.fits.as_ref().map_or(Fit::Serves, |fits| fits[cluster])
    }

    /// Whether it bears a share of the load. A suspect member with units does: while it is silent, the
    /// share of the others must stay the same.
    pub(super) fn shares(&self) -> bool {
        match self.role {
            Role::Open => true,
            Role::Suspect => self.units > 0,
            Role::Cordoned | Role::Leaving => false,
        }
    }
}

impl Unit<'_> {
    /// Whether a shard of it rests.
    pub(super) fn rests(&self) -> bool {
        self.shards.iter().any(|shard| shard.rests)
    }

    /// The indices of the clusters of its shards, in the order of the shards.
    fn clusters(&self) -> &[usize] {
        match &self.shards {
            Shards::One(_) => std::slice::from_ref(&self.cluster),
            Shards::Many(_) => &self.clusters,
        }
    }

    fn hash(&self) -> u64 {
        *self.hash.get_or_init(|| match &self.shards {
            Shards::One(shard) => mix(uid_hash(&shard.id.to_string())),
            Shards::Many(shards) => mix(uid_hash(shards[0].id.group.as_str())),
        })
    }
}

impl<'a> Shards<'a> {
    pub(super) fn iter(&self) -> impl Iterator<Item = &'a PlanShard> + '_ {
        match self {
            Self::One(shard) => std::slice::from_ref(shard),
            Self::Many(shards) => shards,
        }
        .iter()
        .copied()
    }

    pub(super) fn first(&self) -> &'a PlanShard {
        match self {
            Self::One(shard) => shard,
            Self::Many(shards) => shards[0],
        }
    }
}

impl Placement {
    /// The member that has the shard now.
    pub fn owner(&self) -> Option<&MemberId> {
        match self {
            Self::Unowned => None,
            Self::Settled(owner) | Self::Moving { from: owner, .. } => Some(owner),
        }
    }
}

/// The groups of all shards, numbered in the order of their names.
fn known_groups(shards: &[PlanShard]) -> BTreeMap<&GroupName, usize> {
    let mut known: BTreeMap<&GroupName, usize> = BTreeMap::new();
    for shard in shards {
        known.entry(&shard.id.group).or_default();
    }
    for (number, (_, index)) in known.iter_mut().enumerate() {
        *index = number;
    }
    known
}

/// The part of a shard's weight that splits could take from it.
fn divisible(shard: &PlanShard, scope: GroupScope) -> u64 {
    let may_split = scope == GroupScope::Object && shard.id.range.bits() < MAX_BITS;
    if may_split { shard.divisible.min(shard.weight).into() } else { 0 }
}

/// The shards in order of their ids. The coordinator gives them in this order anyway.
fn sorted(shards: &[PlanShard]) -> Vec<&PlanShard> {
    let mut sorted: Vec<&PlanShard> = shards.iter().collect();
    if !sorted.is_sorted_by_key(|shard| &shard.id) {
        sorted.sort_by_key(|shard| &shard.id);
    }
    sorted
}
