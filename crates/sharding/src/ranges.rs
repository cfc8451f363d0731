//! When a shard is split into ranges and when ranges are merged: pure.
//!
//! A shard splits when its member carries too much, no move of whole shards helps (the planner names
//! such members), and the divisible part of its load is worth a split. Two halves merge when their load
//! together is small and nothing much waited of their initial list lately ([`Points::waited`]): less than `MERGE_PERMILLE` of what one member should carry, or less than `SMALL`.
//! A divisible load is worth a split if it is more than `SPLIT_OVER_MERGE` times that. Halves also merge
//! when their group may not be divided by object at all.
//!
//! The divisible part is all but the load of the heaviest object: no split divides an object. What a
//! split moves is at most the divisible part, and often less, if much of it is in the half of that
//! object. Then that half is split again once its load is measured.
//!
//! # Laws (property tests below, and in `planner/tests/pipeline.rs`)
//! - While loads can be divided, every member ends within the planner's bound of its share.
//! - A shard whose load is of one object is never split.
//! - Constant loads cause a bounded number of moves, splits and merges, and then none, however the load
//!   is spread over objects: also if it is measured late and with an error of a third.
//! - A load that swings by a third around any value, or around any bound, does not cause splits and
//!   merges again and again: such a swing has a factor of two from its lowest to its peak, but a factor
//!   of four lies between the highest load that merges and the lowest that splits.
//! - Only a shard of scope `Object` is split, and only as far as its map has room.
//!
//! The measured load decides, never the weight that every shard has: halves of an idle shard would
//! weigh twice as much as the whole.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use model::range::MAX_BITS;
use model::{ClusterName, GroupName, GroupScope, GroupTraits, Range, ShardId};

use crate::api::{MAX_GROUPS, MAX_SHARDS, ShardPath};
use crate::handover::Entry;
use crate::planner::{Placement, PlanShard, Proposal};
use crate::weight::{BASE, Points};

/// Two halves merge if their load together is less than this part of a member's share, in thousandths.
const MERGE_PERMILLE: u64 = 12;
/// Two halves merge if their load together is less than this, whatever the share: more than twice the
/// weight of an idle shard, and more than members leave unreported for two shards.
const SMALL: u64 = 5 * BASE as u64 / 2;
/// How many times the load that still merges a shard must have to be split.
const SPLIT_OVER_MERGE: u64 = 4;
/// The most splits and merges under way at once.
const RANGE_CHANGES_IN_FLEET: usize = 8;
/// The most shards of a cluster after a split: leaves room for one shard of each group that members can
/// run.
const MAX_SPLIT_SHARDS: usize = MAX_SHARDS - MAX_GROUPS;

/// A split or a merge.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RangeChange {
    /// Of this shard into its halves.
    Split(ShardId),
    /// Of its halves into this shard.
    Merge(ShardId),
}

/// What a decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// All planned shards.
    pub shards: &'a [PlanShard],
    /// The groups, as far as they have details.
    pub groups: &'a BTreeMap<GroupName, GroupTraits>,
    /// The load of each shard, without the weight that every shard has.
    pub points: &'a [Points],
    /// Whether a shard without load is known to be idle; else its load may not be reported yet.
    pub points_are_complete: bool,
    /// The proposal of the planner.
    pub proposal: &'a Proposal,
    /// How many splits and merges are under way.
    pub under_way: usize,
}

/// The splits and merges to begin now.
pub fn decide(situation: &Situation<'_>) -> Vec<RangeChange> {
    let room = RANGE_CHANGES_IN_FLEET.saturating_sub(situation.under_way);
    let mut begun = situation.merges();
    begun.extend(situation.splits());
    begun.truncate(room);
    begun
}

impl RangeChange {
    /// The shard that is split, or that results from the merge.
    pub fn shard(&self) -> &ShardId {
        match self {
            Self::Split(shard) | Self::Merge(shard) => shard,
        }
    }

    /// The shards that are replaced.
    pub(crate) fn parts(&self) -> Vec<ShardId> {
        match self {
            Self::Split(shard) => vec![shard.clone()],
            Self::Merge(shard) => halves(shard),
        }
    }

    /// The entries that replace those of the parts, which are given in their order. `None` while a part
    /// has an owner.
    pub(crate) fn apply(&self, parts: &[(ShardPath, Entry)]) -> Option<Vec<(ShardPath, Entry)>> {
        match (self, parts) {
            (Self::Split(shard), [(_, whole)]) => {
                let half = whole.split()?;
                let halves = halves(shard);
                (!halves.is_empty()).then(|| {
                    halves.iter().map(|shard| (ShardPath::from(shard), half.clone())).collect()
                })
            }
            (Self::Merge(shard), [(_, low), (_, high)]) => {
                Some(vec![(ShardPath::from(shard), low.merge(high)?)])
            }
            _ => None,
        }
    }
}

/// Both halves of a shard; none if it is the smallest.
fn halves(shard: &ShardId) -> Vec<ShardId> {
    let ranges = shard.range.halves().into_iter().flatten();
    ranges.map(|range| ShardId { range, ..shard.clone() }).collect()
}

impl<'a> Situation<'a> {
    /// One split for each stuck member: of the shard from which splits can take most, if that is worth it.
    fn splits(&self) -> Vec<RangeChange> {
        let stuck = &self.proposal.stuck;
        if stuck.is_empty() {
            return Vec::new();
        }
        let mut sizes: BTreeMap<&ClusterName, usize> = BTreeMap::new();
        for shard in self.shards {
            *sizes.entry(&shard.id.cluster).or_default() += 1;
        }
        let mut splits = Vec::new();
        for member in stuck {
            let owned = self.loads().filter(|(shard, _)| {
                matches!(&shard.placement, Placement::Settled(o) if o == member)
                    && !self.proposal.confined.contains(&shard.id)
            });
            let divisible = owned.map(|(shard, load)| (shard, u64::from(load.divisible)));
            let worth_it = divisible.filter(|&(shard, divisible)| {
                divisible > SPLIT_OVER_MERGE * self.small_load()
                    && self.scope(shard) == GroupScope::Object
                    && shard.id.range.bits() < MAX_BITS
                    && sizes[&shard.id.cluster] < MAX_SPLIT_SHARDS
            });
            // The first of several alike, whatever the order in which they are given.
            let best = worth_it.max_by_key(|(shard, divisible)| (*divisible, Reverse(&shard.id)));
            if let Some((shard, _)) = best {
                *sizes.entry(&shard.id.cluster).or_default() += 1;
                splits.push(RangeChange::Split(shard.id.clone()));
            }
        }
        splits
    }

    /// The pairs of halves that are idle, or that may not be apart.
    fn merges(&self) -> Vec<RangeChange> {
        let moving: BTreeSet<&ShardId> = self.proposal.moves.iter().map(|m| &m.shard).collect();
        let halves = self.loads().filter(|(shard, _)| {
            shard.id.range != Range::WHOLE
                && matches!(shard.placement, Placement::Settled(_))
                && !moving.contains(&shard.id)
        });
        let halves: BTreeMap<&ShardId, (&PlanShard, Points)> =
            halves.map(|(shard, load)| (&shard.id, (shard, load))).collect();
        let pairs = halves.iter().filter_map(|(low, (shard, load))| {
            let parent = low.range.parent()?;
            let [_, high] = parent.halves().filter(|[first, _]| *first == low.range)?;
            let (_, other) = halves.get(&ShardId { range: high, ..(*low).clone() })?;
            self.should_merge(shard, [*load, *other])
                .then(|| RangeChange::Merge(ShardId { range: parent, ..(*low).clone() }))
        });
        pairs.collect()
    }

    /// Whether a half and its sibling, with these loads, should merge.
    fn should_merge(&self, half: &PlanShard, loads: [Points; 2]) -> bool {
        let load: u64 = loads.iter().map(|load| u64::from(load.all)).sum();
        let waited = loads.iter().any(|load| load.waited);
        let idle = self.points_are_complete && !waited && load < self.small_load();
        idle || self.scope(half) != GroupScope::Object
    }

    /// The load below which two halves merge.
    fn small_load(&self) -> u64 {
        (self.proposal.share * MERGE_PERMILLE / 1000).max(SMALL)
    }

    fn scope(&self, shard: &PlanShard) -> GroupScope {
        self.groups.get(&shard.id.group).map(|traits| traits.scope).unwrap_or_default()
    }

    fn loads(&self) -> impl Iterator<Item = (&'a PlanShard, Points)> + use<'a> {
        self.shards.iter().zip(self.points.iter().copied())
    }
}

#[cfg(test)]
#[path = "ranges_tests.rs"]
mod tests;
