//! When a shard is split into ranges and when ranges are merged: pure.
//!
//! A shard splits when a member carries too much and no move of whole shards helps (the planner
//! says which members are pressed so), if the shard's load is worth it. Two halves merge when their
//! load together is small: less than [`MERGE_PERMILLE`] of what one member should carry, or than
//! [`SMALL`]. A load is worth a split from [`SPLIT_OVER_MERGE`] times that on. Halves merge also when their group may not be divided by object at all.
//!
//! # Laws (property tests below)
//! - As long as shards may be split, every member ends within the planner's bound of its share.
//! - A load that swings by a third about any value, or about any bound, is never split and merged
//!   time and again: from the trough to the crest of such a swing is a factor of two, from the
//!   highest load that merges to the lowest that splits one of four.
//! - Only a shard of scope `Object` is split, and only as far as its map has room.
//!
//! What is measured decides, never the weight that a shard has merely for being there: halves of an
//! idle shard would weigh twice as much as the whole.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use model::range::MAX_BITS;
use model::{ClusterName, GroupName, GroupScope, GroupTraits, Range, ShardId};

use crate::api::{MAX_SHARDS, ShardPath};
use crate::handover::Entry;
use crate::planner::{Place, Proposal, Unit};
use crate::weight::BASE;

/// Two halves merge if their load together is less than this part of a member's share, in
/// thousandths.
pub const MERGE_PERMILLE: u64 = 12;
/// Two halves merge if their load together is less than this, whatever the share: more than twice
/// what a shard weighs for merely being there, and more than members leave untold of two.
pub const SMALL: u64 = 5 * BASE as u64 / 2;
/// How much more than what merges a shard's load must be for it to be split.
pub const SPLIT_OVER_MERGE: u64 = 4;
/// Splits and merges under way at once.
pub const RESHAPES_IN_FLEET: usize = 8;
/// The most shards of a cluster that splits may lead to: leaves room for one of each group that
/// members can run.
pub const MAX_SPLIT_SHARDS: usize = MAX_SHARDS - 64;

/// A change of ranges.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reshape {
    /// This shard into its halves.
    Split(ShardId),
    /// The halves of this shard into it.
    Merge(ShardId),
}

/// What is decided from.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// All shards that are planned.
    pub units: &'a [Unit],
    /// The groups that are not divided by object.
    pub groups: &'a BTreeMap<GroupName, GroupTraits>,
    /// The load of each of them, without what it weighs for being there.
    pub points: &'a [u32],
    /// Whether a shard without load is known to be idle: otherwise nobody may have told it yet.
    pub points_are_complete: bool,
    /// What the planner made of it.
    pub proposal: &'a Proposal,
    /// How many changes of ranges are under way.
    pub under_way: usize,
}

/// The changes to begin now.
pub fn decide(situation: &Situation<'_>) -> Vec<Reshape> {
    let room = RESHAPES_IN_FLEET.saturating_sub(situation.under_way);
    let mut begun = situation.merges();
    begun.extend(situation.splits());
    begun.truncate(room);
    begun
}

impl Reshape {
    /// The shard that is split, or that is made by merging.
    pub fn shard(&self) -> &ShardId {
        match self {
            Self::Split(shard) | Self::Merge(shard) => shard,
        }
    }

    /// The shards that give way.
    pub fn parts(&self) -> Vec<ShardId> {
        match self {
            Self::Split(shard) => vec![shard.clone()],
            Self::Merge(shard) => halves(shard),
        }
    }

    /// The entries that take the place of those of the parts, given in their order, once nobody
    /// holds any of these.
    pub fn apply(&self, parts: &[(ShardPath, Entry)]) -> Option<Vec<(ShardPath, Entry)>> {
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

/// Both halves of a shard; none of the smallest.
fn halves(shard: &ShardId) -> Vec<ShardId> {
    let ranges = shard.range.halves().into_iter().flatten();
    ranges.map(|range| ShardId { range, ..shard.clone() }).collect()
}

impl<'a> Situation<'a> {
    /// One split for each member under pressure: of its heaviest shard that is worth it.
    fn splits(&self) -> Vec<Reshape> {
        let pressed = &self.proposal.pressed;
        if pressed.is_empty() {
            return Vec::new();
        }
        let mut sizes: BTreeMap<&ClusterName, usize> = BTreeMap::new();
        for unit in self.units {
            *sizes.entry(&unit.shard.cluster).or_default() += 1;
        }
        let mut splits = Vec::new();
        for member in pressed {
            let owned = self
                .loads()
                .filter(|(unit, _)| matches!(&unit.place, Place::Settled(o) if o == member));
            let worth_it = owned.filter(|&(unit, load)| {
                load > SPLIT_OVER_MERGE * self.small_load()
                    && self.scope(unit) == GroupScope::Object
                    && unit.shard.range.bits() < MAX_BITS
                    && sizes[&unit.shard.cluster] < MAX_SPLIT_SHARDS
            });
            // The first of the heaviest, in whatever order they are given.
            let heaviest = worth_it.max_by_key(|(unit, load)| (*load, Reverse(&unit.shard)));
            if let Some((unit, _)) = heaviest {
                *sizes.entry(&unit.shard.cluster).or_default() += 1;
                splits.push(Reshape::Split(unit.shard.clone()));
            }
        }
        splits
    }

    /// The pairs of halves that are cold, or that should never have been parted.
    fn merges(&self) -> Vec<Reshape> {
        let moving: BTreeSet<&ShardId> = self.proposal.moves.iter().map(|m| &m.shard).collect();
        let halves = self.loads().filter(|(unit, _)| {
            unit.shard.range != Range::WHOLE
                && matches!(unit.place, Place::Settled(_))
                && !moving.contains(&unit.shard)
        });
        let halves: BTreeMap<&ShardId, (&Unit, u64)> =
            halves.map(|(unit, load)| (&unit.shard, (unit, load))).collect();
        let pairs = halves.iter().filter_map(|(low, (unit, load))| {
            let parent = low.range.parent()?;
            let [_, high] = parent.halves().filter(|[first, _]| *first == low.range)?;
            let (_, other) = halves.get(&ShardId { range: high, ..(*low).clone() })?;
            self.should_merge(unit, load + other)
                .then(|| Reshape::Merge(ShardId { range: parent, ..(*low).clone() }))
        });
        pairs.collect()
    }

    /// Whether a half and its sibling, with that much load together, should be one.
    fn should_merge(&self, half: &Unit, load: u64) -> bool {
        let cold = self.points_are_complete && load < self.small_load();
        cold || self.scope(half) != GroupScope::Object
    }

    /// The load below which halves are not worth being apart.
    fn small_load(&self) -> u64 {
        (self.proposal.share * MERGE_PERMILLE / 1000).max(SMALL)
    }

    fn scope(&self, unit: &Unit) -> GroupScope {
        self.groups.get(&unit.shard.group).map(|traits| traits.scope).unwrap_or_default()
    }

    fn loads(&self) -> impl Iterator<Item = (&'a Unit, u64)> + use<'a> {
        self.units.iter().zip(self.points.iter().map(|&points| u64::from(points)))
    }
}

#[cfg(test)]
#[path = "ranges_tests.rs"]
mod tests;
