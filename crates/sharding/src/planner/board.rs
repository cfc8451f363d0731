//! The plan under construction: members, units, and what each member would carry.
//!
//! A unit is what moves at once: a shard, or all shards of a group of scope `Fleet`. A unit is *at* the
//! member that has it or will get it. Members and units are named by their indices.

use std::cell::OnceCell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use model::range::MAX_BITS;
use model::{GroupName, GroupScope, GroupTraits, MemberId, uid_hash};

use super::classes::Classes;
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
    index: HashMap<&'a MemberId, usize>,
}

pub(super) struct BoardMember<'a> {
    pub(super) id: &'a MemberId,
    pub(super) role: Role,
    pub(super) capacity: u32,
    pub(super) load: u64,
    /// The number of units in that load, and of their shards.
    pub(super) units: usize,
    shards: usize,
    /// The most shards that it may have.
    max_shards: Option<usize>,
    /// The part of the load that is moving here from another open member.
    pub(super) arriving: u64,
    /// Units in flight, from here and to here.
    pub(super) in_flight: usize,
    /// Which groups it can run, by their index.
    runs: Vec<bool>,
    /// How it stands with each class, by its index; `None` if it serves all and is wanted in all.
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
    /// Whether its member has more shards than it may have, and this is one of those to go.
    pub(super) is_surplus: bool,
    /// Whether it counts as arriving at its member.
    is_arriving: bool,
    group: usize,
    /// The index of its class, or those of the classes of its shards if they are many.
    class: usize,
    classes: Vec<usize>,
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
        let classes = Classes::of(&shards);
        let members: Vec<BoardMember<'a>> = members
            .iter()
            .map(|(id, member)| BoardMember::new(id, member, &known, &classes))
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
        board.units = board.wrap(shards, &classes, groups, &known);
        let shares = board.units.iter().map(|unit| (&unit.shards.first().id, unit.kinds));
        board.locality = Locality::of(shares);
        for unit in 0..board.units.len() {
            board.count(unit);
        }
        if !board.alike {
            board.find_unreached();
        }
        board.find_surplus();
        board
    }

    /// Makes units of shards.
    fn wrap(
        &self,
        shards: Vec<&'a PlanShard>,
        classes: &Classes<'a>,
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
        for (shard, class) in shards.into_iter().zip(classes.of_each()) {
            let group = known[&shard.id.group];
            let (scope, kinds) = traits[group];
            if scope == GroupScope::Fleet {
                bundles.entry(group).or_default().push((shard, class));
                continue;
            }
            units.push(Unit {
                weight: u64::from(shard.weight),
                state: self.state(shard, group, class),
                class,
                classes: Vec::new(),
                at: None,
                divisible: divisible(shard, scope),
                is_surplus: false,
                is_arriving: false,
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
        let (shards, classes): (Vec<&'a PlanShard>, Vec<usize>) = shards.into_iter().unzip();
        let parts = shards.iter().zip(&classes);
        let states: Vec<UnitState> =
            parts.map(|(shard, &class)| self.state(shard, group, class)).collect();
        let count = |wanted: UnitState| states.iter().filter(|&&state| state == wanted).count();
        let rank = |state: UnitState| match state {
            // Where people rule out one of its shards, none of them stays.
            UnitState::Unassigned(Reason::Policy) => (0, 0, state),
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
            is_surplus: false,
            is_arriving: false,
            group,
            class: 0,
            classes,
            kinds: 0,
            hash: OnceCell::new(),
            shards: Shards::Many(shards),
        }
    }

    fn state(&self, shard: &PlanShard, group: usize, class: usize) -> UnitState {
        let fits = |member: usize| self.members[member].runs[group];
        let lacks = |member: usize| self.members[member].fit(class) == Fit::Lacks;
        match &shard.placement {
            Placement::Unowned => UnitState::Unassigned(Reason::Unowned),
            Placement::Settled(owner) => match self.index.get(owner) {
                None => UnitState::Unknown,
                Some(&member) => match self.members[member].role {
                    Role::Leaving => UnitState::Unassigned(Reason::OwnerLeaves),
                    _ if !fits(member) => UnitState::Unassigned(Reason::OwnerLeaves),
                    Role::Suspect => UnitState::Held(member),
                    _ if shard.rules_out(owner) => UnitState::Unassigned(Reason::Policy),
                    Role::Cordoned => UnitState::Unassigned(Reason::Maintenance),
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

    /// Finds the units that must leave an owner because it does not serve them, or is not wanted to, and another
    /// member is better.
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
            if let Some(fit) = owner.and_then(|owner| self.is_better_elsewhere(unit, owner)) {
                let is_served = fit == Fit::Unwanted;
                let reason = if is_served { Reason::Policy } else { Reason::Unreached };
                self.units[unit].state = UnitState::Unassigned(reason);
            }
        }
    }

    /// How badly the owner of a unit stands with it, if another member would be better.
    fn is_better_elsewhere(&self, unit: usize, owner: usize) -> Option<Fit> {
        let fits = self.units[unit].classes().iter().map(|&class| self.members[owner].fit(class));
        let fit =
            fits.min().filter(|fit| !matches!(fit, Fit::Serves | Fit::Doubtful | Fit::Unknown))?;
        let stays = self.units[unit].rests();
        let open = || (0..self.members.len()).filter(|&member| self.is_open_to(member, unit));
        let is_better = |member| served(self.merit(member, unit)) > served(self.merit(owner, unit));
        (!stays && open().any(is_better)).then_some(fit)
    }

    /// Counts a unit at its member, or at the one it moves to, and in flight if it moves.
    fn count(&mut self, unit: usize) {
        let Unit { state, weight, .. } = self.units[unit];
        if let UnitState::Bound(member) | UnitState::Settled(member) | UnitState::Held(member) =
            state
        {
            self.add(unit, member);
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
            self.units[unit].is_arriving = true;
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
        self.take_away(unit);
        self.add(unit, member);
    }

    fn add(&mut self, unit: usize, to: usize) {
        let Unit { weight, at, shards, .. } = &mut self.units[unit];
        *at = Some(to);
        let member = &mut self.members[to];
        member.load += *weight;
        member.units += 1;
        member.shards += shards.count();
    }

    fn take_away(&mut self, unit: usize) {
        let Unit { weight, at, shards, is_arriving, .. } = &mut self.units[unit];
        let Some(before) = at.take() else { return };
        let member = &mut self.members[before];
        member.load -= *weight;
        member.arriving -= if std::mem::take(is_arriving) { *weight } else { 0 };
        member.units -= 1;
        member.shards -= shards.count();
    }

    /// Whether a member takes units, can run this one, and stands with all its classes at least as well as the
    /// member at which it is.
    pub(super) fn takes(&self, member: usize, unit: usize) -> bool {
        let at = self.units[unit].at;
        self.is_open_to(member, unit)
            && self.units[unit].classes().iter().all(|&class| {
                let fit = self.members[member].fit(class);
                let here = || at.map(|at| self.members[at].fit(class));
                fit == Fit::Serves || here().is_some_and(|here| (Fit::Fails..=fit).contains(&here))
            })
    }

    /// Whether a member takes units, can run this one, and has a place for it.
    pub(super) fn is_open_to(&self, member: usize, unit: usize) -> bool {
        let BoardMember { role, runs, shards, max_shards, .. } = &self.members[member];
        let Unit { group, at, shards: its, .. } = &self.units[unit];
        *role == Role::Open
            && runs[*group]
            && (*at == Some(member) || max_shards.is_none_or(|max| shards + its.count() <= max))
            && (self.alike || !self.is_ruled_out(member, unit))
    }

    /// Finds the units that members have beyond the number of shards that they may have: the lightest.
    fn find_surplus(&mut self) {
        for member in 0..self.members.len() {
            let BoardMember { max_shards: Some(max), shards, .. } = self.members[member] else {
                continue;
            };
            let mut surplus = shards.saturating_sub(max);
            if surplus == 0 {
                continue;
            }
            let settled = |unit: &usize| self.units[*unit].state == UnitState::Settled(member);
            let mut units: Vec<usize> = (0..self.units.len()).filter(settled).collect();
            units.sort_by_key(|&unit| (self.units[unit].weight, self.score(member, unit)));
            for unit in units {
                let count = self.units[unit].shards.count();
                if surplus == 0 {
                    break;
                }
                let other = |taker: usize| {
                    let fit = |member: usize, class: usize| self.members[member].fit(class);
                    let least = |class| fit(member, class).clamp(Fit::Fails, Fit::Unwanted);
                    let mut classes = self.units[unit].classes().iter();
                    taker != member
                        && self.is_open_to(taker, unit)
                        && classes.all(|&class| fit(taker, class) >= least(class))
                };
                if (0..self.members.len()).any(other) {
                    self.units[unit].state = UnitState::Unassigned(Reason::Policy);
                    self.units[unit].is_surplus = true;
                    surplus = surplus.saturating_sub(count);
                }
            }
        }
    }

    /// How much of a unit a member serves, to compare members.
    pub(super) fn merit(&self, member: usize, unit: usize) -> u64 {
        self.units[unit]
            .classes()
            .iter()
            .map(|&class| self.members[member].fit(class).merit())
            .sum()
    }

    /// Whether people rule out that a member has a unit.
    pub(super) fn is_ruled_out(&self, member: usize, unit: usize) -> bool {
        self.units[unit].shards.iter().any(|shard| shard.rules_out(self.members[member].id))
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

    /// How much of what a unit needs in its cluster a member has anyway.
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
        let parts = shards.iter().zip(self.units[unit].classes().iter().copied());
        let due = parts.filter(|(shard, _)| match &shard.placement {
            Placement::Unowned => target.is_some() && !elsewhere,
            Placement::Settled(owner) => Some(owner) != target,
            Placement::Moving { to, .. } => to.as_ref() != target,
        });
        due.map(|(shard, class)| Move {
            shard: shard.id.clone(),
            to: target.cloned(),
            reason: match self.state(shard, *group, class) {
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
        classes: &Classes<'_>,
    ) -> Self {
        Self {
            fits: classes.fits(id, member),
            id,
            role: member.role,
            capacity: member.capacity.clamp(1, 1000),
            load: 0,
            units: 0,
            shards: 0,
            max_shards: member.max_shards.map(|max| usize::try_from(max).unwrap_or(usize::MAX)),
            arriving: 0,
            in_flight: 0,
            runs: groups.keys().map(|group| member.groups.contains(*group)).collect(),
            hash: uid_hash(id.as_str()),
        }
    }
}

impl BoardMember<'_> {
    /// How it stands with the class of that index.
    fn fit(&self, class: usize) -> Fit {
        self.fits.as_ref().map_or(Fit::Serves, |fits| fits[class])
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

    /// The indices of the classes of its shards, in the order of the shards.
    fn classes(&self) -> &[usize] {
        match &self.shards {
            Shards::One(_) => std::slice::from_ref(&self.class),
            Shards::Many(_) => &self.classes,
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

    pub(super) fn count(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(shards) => shards.len(),
        }
    }

    pub(super) fn first(&self) -> &'a PlanShard {
        match self {
            Self::One(shard) => shard,
            Self::Many(shards) => shards[0],
        }
    }
}

impl PlanShard {
    fn rules_out(&self, member: &MemberId) -> bool {
        let preferences = self.preferences.as_ref();
        preferences.is_some_and(|preferences| preferences.get(member) == Some(&Fit::Lacks))
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
