//! Who should own which shard: a pure function from members, groups and shards to moves.
//!
//! Sticky: a shard stays where it is unless its owner leaves, or carries too much and another member
//! can take the shard without carrying more. Loads are compared by *share*: what a member would carry
//! if all load were spread by capacity. The share of a member with one shard heavier than that is this
//! shard. Where several members are equally good, rendezvous hashing decides, so that all coordinators
//! decide alike.
//!
//! ```text
//!   shards ─▶ board ─▶ unassigned: of nobody, of leavers, with a lost target, not reached,  ─┐
//!               │                  of cordoned members                                         ├─▶ moves
//!               └────▶ balance: from members above their share to those below it ──────────────┘
//! ```
//!
//! # Laws (each a property test)
//! - When the (N + 1)th member joins, at most `ceil(K / (N + 1))` of K shards move to it, and none
//!   elsewhere. If shards differ in weight, other members may still carry too much after that; the next
//!   law but one covers further moves.
//! - When a member leaves, its shards move once each, and others only by the next law.
//! - Nothing else moves unless a member carries more than 1.1 times its share, or less than half of it.
//!   From a member with too much, shards move until it has at most 1.05 times its share, or at most 1.1
//!   times where all others have their number of shards already. Because of the gap between the two,
//!   loads that vary around the bound move nothing. To a member with too little, shards move until it
//!   has 0.95 times its share or its number of shards.
//! - While a member is silent, its load still counts, until it is gone: the share of the others stays
//!   the same. So nothing moves when members fall silent and return.
//! - **S7** A shard goes only to a member that has its cluster configured, and to one that does not reach
//!   the cluster only if no member does. It leaves an owner that lacks or does not reach its cluster for a
//!   member that serves it, unless it rests. Nothing else moves for that ([`Fit`]). While nobody serves
//!   it, it stays with those that could, and is balanced among them. So it is while its owner is one of which
//!   nobody knows whether it reaches the cluster.
//! - What people want ([`Preferences`]) is like reach: a shard never goes to a member that they rule out, nor
//!   stays there, even if no other can take it. It goes to one that they do not want only while no better one
//!   can take it, and leaves it as soon as one can. No member gets more shards than it may have, and of more
//!   than that it loses the lightest to members that have a place.
//! - A plan is complete: planning again while its moves are in flight adds nothing.
//! - A bound per member and one for the fleet limit the moves in flight that balance or that empty a
//!   cordoned member. Shards without an owner, those of a leaver and those that their owner does not
//!   reach do not wait, because their work is not done meanwhile.
//! - All shards of a group of scope `Fleet` go to one member. They go to the next one together, when no
//!   other member holds any of them.
//! - The plan does not depend on the order in which shards are given.
//!
//! Among members that stay within 1.05 times their share, a shard goes to one that already holds shards of the same
//! cluster and range, best of groups that watch the same kinds: that member has the connections and the cache already.

mod balance;
mod board;
mod classes;
mod level;
mod locality;
mod reach;
mod unassigned;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{GroupName, GroupTraits, MemberId, ShardId};

use board::Board;
pub use reach::{Fit, Preferences, Reach};

/// The bounds of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A member that carries more than this part of its share is overloaded. In thousandths.
    pub overload_permille: u32,
    /// Shards move from an overloaded member until it carries at most this part of its share.
    pub calm_permille: u32,
    /// A member that carries less than this part of its share is a newcomer and gets shards.
    pub idle_permille: u32,
    /// Balancing waits when a member has this many moves in flight, from it and to it.
    pub moves_per_member: usize,
    /// Balancing waits when the fleet has this many moves in flight.
    pub moves_in_fleet: usize,
}

/// A member as the planner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanMember {
    /// Whether it takes, keeps or loses shards.
    pub role: Role,
    /// How much it can carry, relative to other members; 1 to 1000.
    pub capacity: u32,
    /// The groups it can run.
    pub groups: BTreeSet<GroupName>,
    /// The clusters it could serve.
    pub reach: Reach,
    /// How many shards it has at most; `None` for any number.
    pub max_shards: Option<u32>,
}

/// Whether a member takes, keeps or loses shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Takes shards.
    Open,
    /// Keeps what it has and gets nothing: it missed renewals, or is still joining.
    Suspect,
    /// Gets nothing and loses what it has to others, a few at a time: people drain it for maintenance.
    Cordoned,
    /// Loses what it has at once: it is about to exit.
    Leaving,
}

/// A shard as the planner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanShard {
    /// The shard.
    pub id: ShardId,
    /// Its weight, at least 1. All are alike until load is measured.
    pub weight: u32,
    /// The part of its weight that splits could take from it: all but the load of its heaviest object
    /// and the weight that every shard has.
    pub divisible: u32,
    /// Where it is.
    pub placement: Placement,
    /// Whether it stays where it is for now: its cluster has just left an owner that did not reach it, or
    /// its owner has lacked the cluster for a moment only.
    pub rests: bool,
    /// If it has no owner: the member whose process had it last, under another id.
    pub before: Option<MemberId>,
    /// Where people want it; `None` if anywhere.
    pub preferences: Option<Arc<Preferences>>,
}

/// Where a shard is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// It has no owner.
    Unowned,
    /// A member owns it and does not drain it.
    Settled(MemberId),
    /// It is draining, for the next owner if one is named.
    Moving {
        /// The owner.
        from: MemberId,
        /// The next owner.
        to: Option<MemberId>,
    },
}

/// The moves to begin now, and the overload that no move can relieve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proposal {
    /// The moves to begin now, the most urgent first.
    pub moves: Vec<Move>,
    /// What a member of mean capacity would carry if all load that splits could divide were spread
    /// evenly.
    pub share: u64,
    /// The overloaded members that have nothing in flight and that no move would relieve, the heaviest
    /// first. Only a split can help them: see [`crate::ranges`]. A member is not overloaded by what no
    /// split could divide.
    pub stuck: Vec<MemberId>,
    /// The shards of these members that no other member could serve: to split them helps nobody.
    pub confined: BTreeSet<ShardId>,
}

/// A decision: this shard should go to that member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The shard.
    pub shard: ShardId,
    /// Its next owner; `None` if its owner leaves and no other member can take it.
    pub to: Option<MemberId>,
    /// Why.
    pub reason: Reason,
}

/// Why a shard moves, from the most urgent to the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// It has no owner.
    Unowned,
    /// Its owner leaves, or cannot run its group any more.
    OwnerLeaves,
    /// The member that should get it cannot take it any more.
    TargetLost,
    /// Its owner does not reach its cluster, or does not have it configured, and another member does.
    Unreached,
    /// People do not want it at its owner, or not so many shards there.
    Policy,
    /// Its owner is cordoned.
    Maintenance,
    /// The other shards of its group, of scope `Fleet`, are elsewhere.
    Together,
    /// Its owner carries more than its share, or another member much less.
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

impl Limits {
    /// The bounds in a fleet of so many shards and members: a two-hundredth of what a member has may be on the way
    /// at once, and in the fleet four times as many. With the usual bounds alone, a member that joins a large fleet
    /// would get its part in thousands of plans.
    pub fn of_fleet(shards: usize, members: usize) -> Self {
        let usual = Self::default();
        let part = shards / members.max(1) / 200;
        Self {
            moves_per_member: usual.moves_per_member.max(part),
            moves_in_fleet: usual.moves_in_fleet.max(4 * part),
            ..usual
        }
    }
}

/// What to move now. Groups that are not in `groups` may be divided by object and share no kinds.
pub fn plan(
    members: &BTreeMap<MemberId, PlanMember>,
    groups: &BTreeMap<GroupName, GroupTraits>,
    shards: &[PlanShard],
    limits: &Limits,
) -> Proposal {
    let mut board = Board::new(members, groups, shards, limits);
    let mut moves = unassigned::assign(&mut board);
    let balancing = balance::balance(&mut board);
    moves.extend(balancing.moves);
    let balance::Balancing { share, stuck, confined, .. } = balancing;
    Proposal { moves, share, stuck, confined }
}

/// The finaliser of SplitMix64. Names differ in their last bytes, which FNV-1a alone barely mixes into
/// the high bits.
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests;
