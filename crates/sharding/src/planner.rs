//! Who should own which shard: a pure function from members and places to moves.
//!
//! Sticky: a shard stays where it is unless its owner leaves or two members' loads differ by more
//! than the shard to be moved, that is, unless the move makes the heaviest lighter without making
//! another as heavy. Where several members are equally good, rendezvous hashing decides, so that
//! all coordinators decide alike. Loads are weights relative to a member's capacity; as long as
//! nobody measures load, every shard weighs one.
//!
//! # Laws (each a property test below)
//! - A join moves at most `ceil(K / (N + 1))` shards, and only onto the newcomer.
//! - A leave moves only the leaver's shards.
//! - Of shards of one weight, equal members end within one of each other.
//! - A fleet that is in balance does not move.
//! - Moves that balance are bounded in flight, per member. Shards without an owner and those of a
//!   leaver do not wait: each moment there is one of work undone.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use model::{GroupName, MemberId, ShardId, uid_hash};

/// Balancing moves that may be in flight from or to one member.
pub const MOVES_IN_FLIGHT: usize = 8;

/// A member, to the planner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanMember {
    /// Which part it takes.
    pub role: Role,
    /// How much it can carry, relative to the others; at least 1.
    pub capacity: u32,
    /// The groups it can run.
    pub groups: BTreeSet<GroupName>,
}

/// The part a member takes in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Takes shards.
    Open,
    /// Keeps what it has and gets nothing: its Lease is late, it is joining.
    Frozen,
    /// Is to lose what it has.
    Leaving,
}

/// A shard, to the planner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The shard.
    pub shard: ShardId,
    /// Its load, at least 1. All alike until load is measured.
    pub weight: u32,
    /// Where it is.
    pub place: Place,
}

/// Where a shard is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nobody has it.
    Unowned,
    /// A member has it and keeps it for now.
    Settled(MemberId),
    /// It is draining, for a next owner if there is one.
    Moving {
        /// From.
        from: MemberId,
        /// To.
        to: Option<MemberId>,
    },
}

/// A decision: this shard should go to that member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The shard.
    pub shard: ShardId,
    /// Its next owner; nobody if its owner leaves and no other can take it.
    pub to: Option<MemberId>,
    /// Why.
    pub reason: Reason,
}

/// Why a shard moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Nobody has it.
    Unowned,
    /// Its owner leaves.
    OwnerLeaves,
    /// The member it was on its way to cannot take it any more.
    TargetLost,
    /// Its owner carries more than another.
    Balance,
}

/// The moves to begin now, in order of urgency.
pub fn plan(members: &BTreeMap<MemberId, PlanMember>, units: &[Unit]) -> Vec<Move> {
    let mut board = Board::new(members, units);
    let mut moves = board.place_homeless(units);
    moves.extend(board.balance(units));
    moves
}

/// The score of a shard on a member: the highest wins a tie.
///
/// FNV-1a alone barely mixes its last bytes into the high bits, and names here differ in their last
/// bytes; the finaliser (that of SplitMix64) makes up for it.
pub fn rendezvous(member: &MemberId, shard: &ShardId) -> u64 {
    mix(uid_hash(member.as_str()) ^ mix(uid_hash(&shard.to_string())))
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The plan in the making: members by index, and what each would carry.
struct Board<'a> {
    seats: Vec<Seat<'a>>,
    index: BTreeMap<&'a MemberId, usize>,
    /// Per unit: the seat it is on, or is on its way to.
    at: Vec<Option<usize>>,
    /// Per unit: the hash of its name.
    hash: Vec<u64>,
}

struct Seat<'a> {
    id: &'a MemberId,
    member: &'a PlanMember,
    hash: u64,
    load: u64,
    in_flight: usize,
    /// Units settled here, as far as balancing may move them.
    settled: BTreeSet<usize>,
}

impl<'a> Board<'a> {
    fn new(members: &'a BTreeMap<MemberId, PlanMember>, units: &'a [Unit]) -> Self {
        let seats: Vec<Seat<'a>> = members
            .iter()
            .map(|(id, member)| Seat {
                id,
                member,
                hash: uid_hash(id.as_str()),
                load: 0,
                in_flight: 0,
                settled: BTreeSet::new(),
            })
            .collect();
        let index = seats.iter().enumerate().map(|(i, seat)| (seat.id, i)).collect();
        let hash = units.iter().map(|unit| mix(uid_hash(&unit.shard.to_string()))).collect();
        let mut board = Self { seats, index, at: vec![None; units.len()], hash };
        for (i, unit) in units.iter().enumerate() {
            board.seat(i, unit);
        }
        board
    }

    /// Counts a unit where it is, or where it is going.
    fn seat(&mut self, i: usize, unit: &Unit) {
        let (from, holder) = match &unit.place {
            Place::Unowned => (None, None),
            Place::Settled(owner) => (None, self.index.get(owner).copied()),
            Place::Moving { from, to } => (
                self.index.get(from).copied(),
                to.as_ref().and_then(|to| self.index.get(to).copied()),
            ),
        };
        for moving in from.into_iter().chain(holder.filter(|_| from.is_some())) {
            self.seats[moving].in_flight += 1;
        }
        let Some(holder) = holder else { return };
        self.at[i] = Some(holder);
        self.seats[holder].load += u64::from(unit.weight);
        if matches!(unit.place, Place::Settled(_)) {
            self.seats[holder].settled.insert(i);
        }
    }

    /// Finds places for the units that have none or must leave the one they have, heavy ones first.
    fn place_homeless(&mut self, units: &[Unit]) -> Vec<Move> {
        let mut homeless: Vec<(usize, Reason)> = units
            .iter()
            .enumerate()
            .filter_map(|(i, unit)| Some((i, self.homeless(i, unit)?)))
            .collect();
        homeless.sort_by_key(|&(i, reason)| {
            (reason, std::cmp::Reverse(units[i].weight), &units[i].shard)
        });
        for &(i, _) in &homeless {
            self.lift(i, &units[i]);
        }
        homeless.into_iter().filter_map(|(i, reason)| self.rehome(i, &units[i], reason)).collect()
    }

    /// Why a unit needs another place, if it does.
    fn homeless(&self, i: usize, unit: &Unit) -> Option<Reason> {
        let fits = |seat: usize| self.seats[seat].member.groups.contains(&unit.shard.group);
        let role = |seat: usize| self.seats[seat].member.role;
        match (&unit.place, self.at[i]) {
            (Place::Unowned, _) => Some(Reason::Unowned),
            (Place::Settled(_), Some(seat)) if role(seat) == Role::Leaving || !fits(seat) => {
                Some(Reason::OwnerLeaves)
            }
            // The owner of a settled unit that is unknown here is for the coordinator to judge.
            (Place::Settled(_), _) => None,
            (Place::Moving { .. }, Some(seat)) if role(seat) == Role::Open && fits(seat) => None,
            (Place::Moving { .. }, _) => Some(Reason::TargetLost),
        }
    }

    fn lift(&mut self, i: usize, unit: &Unit) {
        if let Some(seat) = self.at[i].take() {
            self.seats[seat].load -= u64::from(unit.weight);
            self.seats[seat].settled.remove(&i);
        }
    }

    fn rehome(&mut self, i: usize, unit: &Unit, reason: Reason) -> Option<Move> {
        let to = self.lightest(i, unit);
        if let Some(seat) = to {
            self.at[i] = Some(seat);
            self.seats[seat].load += u64::from(unit.weight);
        }
        let to = to.map(|seat| self.seats[seat].id.clone());
        let nothing_changes = match &unit.place {
            Place::Unowned => to.is_none(),
            Place::Settled(_) => false,
            Place::Moving { to: before, .. } => *before == to,
        };
        (!nothing_changes).then(|| Move { shard: unit.shard.clone(), to, reason })
    }

    /// The open seat that would carry least with the unit added.
    fn lightest(&self, i: usize, unit: &Unit) -> Option<usize> {
        (0..self.seats.len())
            .filter(|&s| {
                let member = self.seats[s].member;
                member.role == Role::Open && member.groups.contains(&unit.shard.group)
            })
            .min_by(|&a, &b| {
                self.compare(a, b, u64::from(unit.weight))
                    .then_with(|| self.score(b, i).cmp(&self.score(a, i)))
            })
    }

    /// Compares two seats by the share of their capacity in use, each with `extra` added.
    fn compare(&self, a: usize, b: usize, extra: u64) -> Ordering {
        let share = |of: usize, by: usize| {
            u128::from(self.seats[of].load + extra) * u128::from(self.seats[by].member.capacity)
        };
        share(a, b).cmp(&share(b, a))
    }

    fn score(&self, seat: usize, unit: usize) -> u64 {
        mix(self.seats[seat].hash ^ self.hash[unit])
    }

    /// Moves units from the heaviest to the lightest as long as that makes the pair more even.
    fn balance(&mut self, units: &[Unit]) -> Vec<Move> {
        let mut moves = Vec::new();
        while let Some((i, from, to)) = self.best_exchange(units) {
            self.lift(i, &units[i]);
            self.at[i] = Some(to);
            self.seats[to].load += u64::from(units[i].weight);
            self.seats[from].in_flight += 1;
            self.seats[to].in_flight += 1;
            moves.push(Move {
                shard: units[i].shard.clone(),
                to: Some(self.seats[to].id.clone()),
                reason: Reason::Balance,
            });
        }
        moves
    }

    /// The next unit to move, from where, to where. Looks at the lightest receiver first and at its
    /// donors from the heaviest down.
    fn best_exchange(&self, units: &[Unit]) -> Option<(usize, usize, usize)> {
        let mut open: Vec<usize> =
            (0..self.seats.len()).filter(|&s| self.seats[s].member.role == Role::Open).collect();
        open.sort_by(|&a, &b| self.compare(a, b, 0).then(a.cmp(&b)));
        let free = |&s: &usize| self.seats[s].in_flight < MOVES_IN_FLIGHT;
        for to in open.iter().copied().filter(free) {
            for from in open.iter().rev().copied().filter(free) {
                if self.compare(from, to, 0) != Ordering::Greater {
                    break;
                }
                if let Some(unit) = self.best_unit(units, from, to) {
                    return Some((unit, from, to));
                }
            }
        }
        None
    }

    /// The unit of `from` that `to` may take without becoming the heavier of the two: the heaviest
    /// such, then the one that scores highest there.
    fn best_unit(&self, units: &[Unit], from: usize, to: usize) -> Option<usize> {
        let (giver, taker) = (&self.seats[from], &self.seats[to]);
        let evens_out = |weight: u64| {
            let kept = u128::from(giver.load - weight) * u128::from(taker.member.capacity);
            let taken = u128::from(taker.load + weight) * u128::from(giver.member.capacity);
            kept >= taken
        };
        giver
            .settled
            .iter()
            .copied()
            .filter(|&i| taker.member.groups.contains(&units[i].shard.group))
            .filter(|&i| evens_out(u64::from(units[i].weight)))
            .max_by_key(|&i| (units[i].weight, self.score(to, i)))
    }
}

#[cfg(test)]
#[path = "planner_tests.rs"]
mod tests;
