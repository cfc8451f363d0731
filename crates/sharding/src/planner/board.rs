//! The plan in the making: members as seats, shards as parcels, and what each seat would carry.
//!
//! A parcel is what moves as one: a shard, or all shards of a group of scope `Fleet`. Where a
//! parcel is *at* is the seat that has it or is to have it.

use std::cell::OnceCell;
use std::cmp::Ordering;
use std::collections::BTreeMap;

use model::range::MAX_BITS;
use model::{GroupName, GroupScope, GroupTraits, MemberId, uid_hash};

use super::level::Level;
use super::locality::{Kinds, Locality, shared_kinds};
use super::{Limits, Move, Place, PlanMember, Reason, Role, Unit, mix};

pub(super) struct Board<'a> {
    pub(super) seats: Vec<Seat<'a>>,
    pub(super) parcels: Vec<Parcel<'a>>,
    pub(super) locality: Locality,
    pub(super) limits: &'a Limits,
    /// Parcels in flight, over all seats.
    pub(super) in_flight: usize,
    index: BTreeMap<&'a MemberId, usize>,
}

pub(super) struct Seat<'a> {
    pub(super) id: &'a MemberId,
    pub(super) role: Role,
    pub(super) capacity: u32,
    pub(super) load: u64,
    /// How many parcels that is.
    pub(super) parcels: usize,
    /// The part of the load that is on its way from another seat that takes parcels.
    pub(super) arriving: u64,
    /// Parcels in flight from here or to here.
    pub(super) in_flight: usize,
    /// Which groups can run here, by their index.
    runs: Vec<bool>,
    hash: u64,
}

/// What moves as one.
pub(super) struct Parcel<'a> {
    /// The shards, at least one.
    pub(super) units: Units<'a>,
    pub(super) weight: u64,
    pub(super) stance: Stance,
    pub(super) at: Option<usize>,
    pub(super) splittable: bool,
    group: usize,
    kinds: Kinds,
    /// Of its name; reckoned only where there is a tie.
    hash: OnceCell<u64>,
}

/// One shard, or those of a whole group. Most parcels are one shard, and need no allocation.
pub(super) enum Units<'a> {
    One(&'a Unit),
    Many(Vec<&'a Unit>),
}

/// How a shard stands with the member that has it. Of several shards in one parcel, the first in
/// this order speaks for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stance {
    /// On its way to that seat, which takes it.
    Bound(usize),
    /// At home on that seat.
    Settled(usize),
    /// On a seat that may neither lose nor get any.
    Held(usize),
    /// With a member that is unknown here: for the coordinator to judge.
    Unknown,
    /// It needs another place.
    Homeless(Reason),
}

impl<'a> Board<'a> {
    pub(super) fn new(
        members: &'a BTreeMap<MemberId, PlanMember>,
        groups: &'a BTreeMap<GroupName, GroupTraits>,
        units: &'a [Unit],
        limits: &'a Limits,
    ) -> Self {
        let known = known_groups(units);
        let seats: Vec<Seat<'a>> =
            members.iter().map(|(id, member)| Seat::new(id, member, &known)).collect();
        let index = seats.iter().enumerate().map(|(i, seat)| (seat.id, i)).collect();
        let mut board = Self {
            seats,
            parcels: Vec::new(),
            locality: Locality::default(),
            limits,
            in_flight: 0,
            index,
        };
        board.parcels = board.wrap(sorted(units), groups, &known);
        let shares = board.parcels.iter().map(|parcel| (&parcel.units.first().shard, parcel.kinds));
        board.locality = Locality::of(shares);
        for parcel in 0..board.parcels.len() {
            board.count(parcel);
        }
        board
    }

    /// Makes parcels of units.
    fn wrap(
        &self,
        units: Vec<&'a Unit>,
        groups: &BTreeMap<GroupName, GroupTraits>,
        known: &BTreeMap<&GroupName, usize>,
    ) -> Vec<Parcel<'a>> {
        let shared = shared_kinds(groups);
        let traits: Vec<(GroupScope, Kinds)> = known
            .keys()
            .map(|group| {
                let scope = groups.get(*group).map(|traits| traits.scope).unwrap_or_default();
                (scope, shared.get(*group).copied().unwrap_or_default())
            })
            .collect();
        let mut parcels: Vec<Parcel<'a>> = Vec::with_capacity(units.len());
        let mut bundles: BTreeMap<usize, Vec<&'a Unit>> = BTreeMap::new();
        for unit in units {
            let group = known[&unit.shard.group];
            let (scope, kinds) = traits[group];
            if scope == GroupScope::Fleet {
                bundles.entry(group).or_default().push(unit);
                continue;
            }
            parcels.push(Parcel {
                weight: u64::from(unit.weight),
                stance: self.stance(unit, group),
                at: None,
                splittable: scope == GroupScope::Object && unit.shard.range.bits() < MAX_BITS,
                group,
                kinds,
                hash: OnceCell::new(),
                units: Units::One(unit),
            });
        }
        parcels.extend(bundles.into_iter().map(|(group, units)| self.bundle(group, units)));
        parcels
    }

    /// The shards of a group that sits on one member.
    fn bundle(&self, group: usize, units: Vec<&'a Unit>) -> Parcel<'a> {
        let stances: Vec<Stance> = units.iter().map(|unit| self.stance(unit, group)).collect();
        let count = |wanted: Stance| stances.iter().filter(|&&stance| stance == wanted).count();
        let rank = |stance: Stance| match stance {
            // Where most are already, the fewest must move.
            Stance::Settled(_) => (1, usize::MAX - count(stance), stance),
            Stance::Bound(_) => (0, 0, stance),
            _ => (2, 0, stance),
        };
        Parcel {
            weight: units.iter().map(|unit| u64::from(unit.weight)).sum(),
            stance: stances.iter().copied().min_by_key(|&s| rank(s)).unwrap_or(Stance::Unknown),
            at: None,
            splittable: false,
            group,
            kinds: 0,
            hash: OnceCell::new(),
            units: Units::Many(units),
        }
    }

    fn stance(&self, unit: &Unit, group: usize) -> Stance {
        let fits = |seat: usize| self.seats[seat].runs[group];
        match &unit.place {
            Place::Unowned => Stance::Homeless(Reason::Unowned),
            Place::Settled(owner) => match self.index.get(owner) {
                None => Stance::Unknown,
                Some(&seat) => match self.seats[seat].role {
                    Role::Leaving => Stance::Homeless(Reason::OwnerLeaves),
                    _ if !fits(seat) => Stance::Homeless(Reason::OwnerLeaves),
                    Role::Emptying => Stance::Homeless(Reason::Maintenance),
                    Role::Frozen => Stance::Held(seat),
                    Role::Open => Stance::Settled(seat),
                },
            },
            Place::Moving { to, .. } => match to.as_ref().and_then(|to| self.index.get(to)) {
                Some(&seat) if self.seats[seat].role == Role::Open && fits(seat) => {
                    Stance::Bound(seat)
                }
                _ => Stance::Homeless(Reason::TargetLost),
            },
        }
    }

    /// Counts a parcel where it is, or where it is going, and in flight if it is.
    fn count(&mut self, parcel: usize) {
        let Parcel { stance, weight, .. } = self.parcels[parcel];
        if let Stance::Bound(seat) | Stance::Settled(seat) | Stance::Held(seat) = stance {
            self.parcels[parcel].at = Some(seat);
            self.seats[seat].load += weight;
            self.seats[seat].parcels += 1;
        }
        let moving = self.parcels[parcel].units.iter().find_map(|unit| match &unit.place {
            Place::Moving { from, to } => Some((from, to)),
            _ => None,
        });
        let Some((from, to)) = moving else { return };
        let from = self.index.get(from).copied();
        let to = to.as_ref().and_then(|to| self.index.get(to).copied());
        self.take_off(from, to);
        let open = |seat: Option<usize>| seat.filter(|&s| self.seats[s].role == Role::Open);
        if let (Some(from), Some(to)) = (open(from), open(to))
            && from != to
        {
            self.seats[to].arriving += weight;
        }
    }

    /// A member's seat, if it is known.
    pub(super) fn seat_of(&self, member: &MemberId) -> Option<usize> {
        self.index.get(member).copied()
    }

    /// Counts one more parcel in flight.
    pub(super) fn take_off(&mut self, from: Option<usize>, to: Option<usize>) {
        self.in_flight += 1;
        for seat in from.into_iter().chain(to.filter(|_| from != to)) {
            self.seats[seat].in_flight += 1;
        }
    }

    /// Puts a parcel on another seat.
    pub(super) fn put(&mut self, parcel: usize, seat: usize) {
        let weight = self.parcels[parcel].weight;
        if let Some(before) = self.parcels[parcel].at.replace(seat) {
            self.seats[before].load -= weight;
            self.seats[before].parcels -= 1;
        }
        self.seats[seat].load += weight;
        self.seats[seat].parcels += 1;
    }

    /// Whether a seat takes parcels and can run this one.
    pub(super) fn takes(&self, seat: usize, parcel: usize) -> bool {
        self.seats[seat].role == Role::Open && self.seats[seat].runs[self.parcels[parcel].group]
    }

    /// Whether one more move about this seat is within the bounds.
    pub(super) fn is_free(&self, seat: usize) -> bool {
        self.in_flight < self.limits.moves_in_fleet
            && self.seats[seat].in_flight < self.limits.moves_per_member
    }

    /// Compares two seats by the part of their capacity in use, each with `extra` added. Loads are
    /// sums of 32-bit weights and capacities at most 1000: the products fit.
    pub(super) fn compare(&self, a: usize, b: usize, extra: u64) -> Ordering {
        let (a, b) = (&self.seats[a], &self.seats[b]);
        let left = (a.load + extra) * u64::from(b.capacity);
        left.cmp(&((b.load + extra) * u64::from(a.capacity)))
    }

    /// Who wins a tie: see [`super::rendezvous`].
    pub(super) fn score(&self, seat: usize, parcel: usize) -> u64 {
        mix(self.seats[seat].hash ^ self.parcels[parcel].hash())
    }

    /// How many of the caches that a parcel needs are on a seat anyway.
    pub(super) fn shared(&self, parcel: usize, seat: usize) -> u32 {
        self.locality.shared(parcel, seat, |other| self.parcels[other].at)
    }

    /// The level over the seats that share the load, of the parcels they have and, if wanted, of
    /// those that nobody has. Without `split`, a shard counts as a whole even if it could be split.
    pub(super) fn level(&self, homeless: bool, split: bool) -> Level {
        let shares = |seat: usize| self.seats[seat].shares();
        let counted = self.parcels.iter().filter(|p| p.at.map_or(homeless, shares));
        let weights = counted.map(|p| (p.weight, !split || !p.splittable));
        let seats = self.seats.iter().filter(|seat| seat.shares());
        Level::of(weights, seats.map(|seat| seat.capacity))
    }

    /// What has to begin so that a parcel comes to a seat, or to nobody. `reason` is for those of
    /// its shards that have none of their own.
    pub(super) fn moves(&self, parcel: usize, to: Option<usize>, reason: Reason) -> Vec<Move> {
        let target = to.map(|seat| self.seats[seat].id);
        let Parcel { units, group, .. } = &self.parcels[parcel];
        // Nobody else may have a shard of the parcel when its next owner gets one.
        let elsewhere =
            units.iter().any(|unit| unit.place.owner().is_some_and(|o| Some(o) != target));
        let due = units.iter().filter(|unit| match &unit.place {
            Place::Unowned => target.is_some() && !elsewhere,
            Place::Settled(owner) => Some(owner) != target,
            Place::Moving { to, .. } => to.as_ref() != target,
        });
        due.map(|unit| Move {
            shard: unit.shard.clone(),
            to: target.cloned(),
            reason: match self.stance(unit, *group) {
                Stance::Homeless(reason) => reason,
                _ => reason,
            },
        })
        .collect()
    }
}

impl<'a> Seat<'a> {
    fn new(
        id: &'a MemberId,
        member: &'a PlanMember,
        groups: &BTreeMap<&'a GroupName, usize>,
    ) -> Self {
        Self {
            id,
            role: member.role,
            capacity: member.capacity.clamp(1, 1000),
            load: 0,
            parcels: 0,
            arriving: 0,
            in_flight: 0,
            runs: groups.keys().map(|group| member.groups.contains(*group)).collect(),
            hash: uid_hash(id.as_str()),
        }
    }
}

impl Seat<'_> {
    /// Whether it bears a share of the load. One that is late and has shards does: what the others
    /// carry must not seem too much or too little for as long as it is not heard of.
    pub(super) fn shares(&self) -> bool {
        match self.role {
            Role::Open => true,
            Role::Frozen => self.parcels > 0,
            Role::Emptying | Role::Leaving => false,
        }
    }
}

impl Parcel<'_> {
    fn hash(&self) -> u64 {
        *self.hash.get_or_init(|| match &self.units {
            Units::One(unit) => mix(uid_hash(&unit.shard.to_string())),
            Units::Many(units) => mix(uid_hash(units[0].shard.group.as_str())),
        })
    }
}

impl<'a> Units<'a> {
    pub(super) fn iter(&self) -> impl Iterator<Item = &'a Unit> + '_ {
        match self {
            Self::One(unit) => std::slice::from_ref(unit),
            Self::Many(units) => units,
        }
        .iter()
        .copied()
    }

    pub(super) fn first(&self) -> &'a Unit {
        match self {
            Self::One(unit) => unit,
            Self::Many(units) => units[0],
        }
    }
}

impl Place {
    /// The member that has the shard now.
    pub fn owner(&self) -> Option<&MemberId> {
        match self {
            Self::Unowned => None,
            Self::Settled(owner) | Self::Moving { from: owner, .. } => Some(owner),
        }
    }
}

/// The groups of all units, numbered in order of their names.
fn known_groups(units: &[Unit]) -> BTreeMap<&GroupName, usize> {
    let mut known: BTreeMap<&GroupName, usize> = BTreeMap::new();
    for unit in units {
        known.entry(&unit.shard.group).or_default();
    }
    for (number, (_, index)) in known.iter_mut().enumerate() {
        *index = number;
    }
    known
}

/// The units in order of their shards, in which a coordinator gives them anyway.
fn sorted(units: &[Unit]) -> Vec<&Unit> {
    let mut sorted: Vec<&Unit> = units.iter().collect();
    if !sorted.is_sorted_by_key(|unit| &unit.shard) {
        sorted.sort_by_key(|unit| &unit.shard);
    }
    sorted
}
