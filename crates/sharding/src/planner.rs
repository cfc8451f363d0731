//! Who should own which shard: a pure function from members, groups and places to moves.
//!
//! Sticky: a shard stays where it is unless its owner leaves, or carries too much and another can
//! take the shard without carrying more. Loads are compared by *share*: what a member would carry
//! if all load were spread by capacity. A member that carries one shard heavier than that has this
//! shard for its share. Where several members are equally good, rendezvous hashing decides, so
//! that all coordinators decide alike.
//!
//! ```text
//!   units ─▶ board ─▶ homeless: nobody's, leavers', lost targets', drained ones' ─┐
//!              │                                                                  ├─▶ moves
//!              └────▶ balance: from those over their share to those under it ─────┘
//! ```
//!
//! # Laws (each a property test)
//! - A join moves at most `ceil(K / (N + 1))` of K shards onto the newcomer, the Nth and one, and
//!   none elsewhere. Of shards of unequal weight that may leave others with more than they should
//!   carry: what moves beyond that follows from the next law but one.
//! - A leave moves the leaver's shards, each once, and others only by the next law.
//! - Nothing else moves unless a member carries more than 1.1 times its share: then from that
//!   member, until it carries no more than 1.05 times its share, or, where all others have their
//!   number of shards already, no more than 1.1 times. The gap between the two keeps loads that
//!   wander about the bound from moving anything. Or unless a member carries less than half of its
//!   share: then to that member, until it has 0.95 times its share or its number of shards.
//! - What others carry does not seem more or less while a member is silent: it is counted until it
//!   is gone. So nothing moves when members fall silent and return.
//! - A plan is whole: planning again while its moves are in flight adds nothing.
//! - Moves that balance, and those that empty a member under maintenance, are bounded in flight,
//!   per member and in the fleet. Shards without an owner and those of a leaver do not wait: each
//!   moment there is one of work undone.
//! - The shards of a group of scope `Fleet` go to one member, and to a next one all together, when
//!   nobody else holds any of them.
//! - The plan does not depend on the order in which units are given.
//!
//! Among members that stay within 1.05 times their share, a shard goes where groups that watch the
//! same kinds of its cluster and range are already: there the cache exists.

mod balance;
mod board;
mod homeless;
mod level;
mod locality;

use std::collections::{BTreeMap, BTreeSet};

use model::{GroupName, GroupTraits, MemberId, ShardId, uid_hash};

use board::Board;

/// The bounds of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A member that carries more than this part of its share is relieved, in thousandths.
    pub overload_permille: u32,
    /// Relief goes on until nobody carries more than this part of its share.
    pub calm_permille: u32,
    /// A member that carries less than this part of its share is given more: a newcomer.
    pub idle_permille: u32,
    /// Moves in flight from or to one member, beyond which nothing moves to balance.
    pub moves_per_member: usize,
    /// Moves in flight in the fleet, beyond which nothing moves to balance.
    pub moves_in_fleet: usize,
}

/// A member, to the planner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanMember {
    /// Which part it takes.
    pub role: Role,
    /// How much it can carry, relative to the others; 1 to 1000.
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
    /// Gets nothing and loses what it has to others, a few at a time: it is drained for
    /// maintenance and lives on.
    Emptying,
    /// Is to lose what it has at once: it is about to exit.
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

/// What to begin now, and what no move can mend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proposal {
    /// The moves to begin now, in order of urgency.
    pub moves: Vec<Move>,
    /// What a member of mean capacity would carry if all shards that can be split were spread
    /// evenly.
    pub share: u64,
    /// The members that carry more than the bound although nothing is in flight about them and no
    /// move would help, the heaviest first: only a split can. See [`crate::ranges`].
    pub pressed: Vec<MemberId>,
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

/// Why a shard moves. The earlier, the more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Nobody has it.
    Unowned,
    /// Its owner leaves, or cannot run it any more.
    OwnerLeaves,
    /// The member it was on its way to cannot take it any more.
    TargetLost,
    /// Its owner is drained for maintenance.
    Maintenance,
    /// The other shards of its group, which is one for the fleet, are elsewhere.
    Together,
    /// Its owner carries more than its share, or another much less.
    Balance,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            overload_permille: 1100,
            calm_permille: 1050,
            idle_permille: 500,
            moves_per_member: 8,
            moves_in_fleet: 64,
        }
    }
}

/// What to move now. Groups that are not told of may be split by object and share no kinds.
pub fn plan(
    members: &BTreeMap<MemberId, PlanMember>,
    groups: &BTreeMap<GroupName, GroupTraits>,
    units: &[Unit],
    limits: &Limits,
) -> Proposal {
    let mut board = Board::new(members, groups, units, limits);
    let mut moves = homeless::place(&mut board);
    let balancing = balance::balance(&mut board);
    moves.extend(balancing.moves);
    Proposal { moves, share: balancing.share, pressed: balancing.pressed }
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

#[cfg(test)]
mod tests;
