//! What each shard weighs: from what members tell of their shards' load to numbers that the planner
//! may trust.
//!
//! Every shard weighs [`BASE`], so that a fleet in which nothing happens is balanced by count; load
//! comes on top. What a member tells is bounded, not believed:
//! - Only the owner's word counts for a shard. What others still tell of it counts while the owner
//!   has told nothing, and is bounded by what a member carries in the middle of the fleet.
//! - All that one member tells together is at most [`MAX_OVER_MEDIAN`] times what the member in the
//!   middle of the fleet carries; claims beyond are scaled down.
//! - A shard that changes hands keeps its weight for [`MEMORY`], until its next owner has measured
//!   it. Halves of a shard that was split have half its load each until then, and a shard that was
//!   merged has the sum of its halves.
//! - Weights are rounded to four binary digits: what is left does not follow noise.

use std::collections::BTreeMap;
use std::time::Duration;

use model::{MemberId, Moment, Range, ShardId};

use crate::api::ShardLoad;

/// What a shard weighs besides its load: as much as ten milliseconds of work in each second.
pub const BASE: u32 = 100;
/// How long the last told load of a shard counts after its owner ceased to tell it.
pub const MEMORY: Duration = Duration::from_secs(60);
/// How much more than the member in the middle of the fleet one member may claim to carry.
pub const MAX_OVER_MEDIAN: u64 = 16;
/// The heaviest load of one shard: sums over any fleet stay far from the end of 64 bits.
const MAX_POINTS: u64 = 1 << 24;
/// Binary digits of a load that count.
const DIGITS: u32 = 4;

/// One shard and who owns it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned<'a> {
    /// The shard.
    pub shard: ShardId,
    /// Its owner.
    pub owner: Option<&'a MemberId>,
}

/// The loads of all shards, in points: the weight of a shard is [`BASE`] and its points.
pub type Points = BTreeMap<ShardId, u32>;

/// What is known of the shards' loads, from step to step.
#[derive(Clone, Debug, Default)]
pub struct Scales {
    known: BTreeMap<ShardId, Known>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    points: u64,
    /// Since when its owner tells nothing.
    silent: Option<Moment>,
}

impl Scales {
    /// The load of each shard, from what the members tell.
    pub fn weigh(
        &mut self,
        shards: &[Owned<'_>],
        told: &BTreeMap<&MemberId, &[ShardLoad]>,
        now: Moment,
    ) -> Points {
        let median = median_load(shards, told);
        let claims = Claims::collect(shards, told, median);
        for known in self.known.values_mut() {
            known.silent.get_or_insert(now);
        }
        for (shard, points) in claims.owners {
            self.known.insert(shard.clone(), Known { points, silent: None });
        }
        self.known.retain(|_, known| known.silent.is_none_or(|since| now < since + MEMORY));
        let points = shards.iter().map(|Owned { shard, .. }| {
            let points = self.known.get(shard).map(|known| known.points);
            let points = points.or_else(|| self.inherited(shard));
            let points = points.or_else(|| claims.others.get(shard).copied()).unwrap_or_default();
            (shard.clone(), rounded(points))
        });
        points.collect()
    }

    /// When the first of the remembered loads is forgotten.
    pub fn forgets(&self) -> Option<Moment> {
        self.known.values().filter_map(|known| known.silent).min().map(|since| since + MEMORY)
    }

    /// The load of a shard that was part of another, or is made of others, when that is known.
    fn inherited(&self, shard: &ShardId) -> Option<u64> {
        let of = |range: Range| self.known.get(&ShardId { range, ..shard.clone() });
        let mut range = shard.range;
        while let Some(parent) = range.parent() {
            if let Some(known) = of(parent) {
                return Some(known.points >> (shard.range.bits() - parent.bits()));
            }
            range = parent;
        }
        let [low, high] = shard.range.halves()?;
        Some(of(low)?.points + of(high)?.points)
    }
}

/// What members claim, bounded.
struct Claims<'a> {
    /// By the owners of the shards.
    owners: BTreeMap<&'a ShardId, u64>,
    /// By others: the highest of each shard.
    others: BTreeMap<&'a ShardId, u64>,
}

impl<'a> Claims<'a> {
    fn collect(
        shards: &'a [Owned<'a>],
        told: &BTreeMap<&MemberId, &'a [ShardLoad]>,
        median: u64,
    ) -> Self {
        let owner_of: BTreeMap<&ShardId, Option<&MemberId>> =
            shards.iter().map(|owned| (&owned.shard, owned.owner)).collect();
        let mut claims = Self { owners: BTreeMap::new(), others: BTreeMap::new() };
        for (member, loads) in told {
            let own = |load: &&ShardLoad| owner_of.get(&load.shard) == Some(&Some(*member));
            let total: u64 = loads.iter().filter(own).map(points).sum();
            let most = median.saturating_mul(MAX_OVER_MEDIAN).max(u64::from(BASE));
            for load in *loads {
                let claimed = points(load);
                if own(&load) {
                    let bounded = if total > most { claimed * most / total } else { claimed };
                    claims.owners.insert(&load.shard, bounded);
                } else {
                    let known = claims.others.entry(&load.shard).or_default();
                    *known = (*known).max(claimed.min(median));
                }
            }
        }
        claims
    }
}

/// What the member in the middle carries, by its own word.
fn median_load(shards: &[Owned<'_>], told: &BTreeMap<&MemberId, &[ShardLoad]>) -> u64 {
    let mut loads: BTreeMap<&MemberId, u64> = told.keys().map(|member| (*member, 0)).collect();
    let mut owners: BTreeMap<&ShardId, &MemberId> = BTreeMap::new();
    for Owned { shard, owner } in shards {
        if let Some(owner) = owner {
            *loads.entry(owner).or_default() += u64::from(BASE);
            owners.insert(shard, owner);
        }
    }
    for (member, told) in told {
        let own = told.iter().filter(|load| owners.get(&load.shard) == Some(member));
        *loads.entry(member).or_default() += own.map(points).sum::<u64>();
    }
    let mut loads: Vec<u64> = loads.into_values().collect();
    loads.sort_unstable();
    loads.get(loads.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

/// One number for all that a shard costs: a point is a tenth of a millisecond of work in each
/// second, or one event a second, or a mebibyte cached.
fn points(load: &ShardLoad) -> u64 {
    let busy = u64::from(load.busy).saturating_mul(10);
    busy.saturating_add(load.events / 1000).saturating_add(load.cached / 1024).min(MAX_POINTS)
}

/// The number with its first binary digits only.
fn rounded(points: u64) -> u32 {
    let points = u32::try_from(points.min(MAX_POINTS)).unwrap_or(u32::MAX);
    let excess = (u32::BITS - points.leading_zeros()).saturating_sub(DIGITS);
    let half = if excess == 0 { 0 } else { 1 << (excess - 1) };
    (points + half) >> excess << excess
}
