//! What each shard weighs: from the loads that members report to numbers the planner may trust.
//!
//! ```text
//!   reports ─▶ bounded ─▶ the peak of the last ten minutes ─▶ points ─▶ above the noise ─▶ weights
//!              (Bounded)  (LoadHistory)                       (weigh)   (weights)
//! ```
//!
//! Every shard weighs [`BASE`], so that an idle fleet is balanced by count. Its load comes on top.
//! Reports are bounded, because a member may be wrong:
//! - Only the owner's report of a shard counts. Reports of others count while the owner has made none.
//! - All that one member reports about its own shards counts for at most `MAX_OVER_MEDIAN` times the
//!   load of the median member, and so does all that it reports about other shards. Higher reports are
//!   scaled down, so that they keep their proportions.
//! - A shard weighs its highest load in the last `PEAK_WINDOW`, so that a load that swings faster than
//!   that moves nothing.
//! - A shard that changes hands keeps its weight for `MEMORY`, until its next owner has measured it.
//!   Time in which no owner is alive to measure it does not count. Until then, each half of a shard
//!   that was split has half its load, and a merged shard has the sum of its halves. That is estimated
//!   when the shard appears, and what it was estimated from is forgotten: two memories of the same
//!   objects could tell of a busy whole and of idle halves at once.
//! - The heaviest object counts like the load: the highest value in the last `PEAK_WINDOW`. What is not
//!   reported may be of one object, and each half of a shard may have the heaviest object of the whole.
//! - Points are rounded to four binary digits: the result does not follow noise.
//! - Of a member with more loads than it can report, the other shards share the sums that it reports by
//!   cluster, in equal parts (`weight::spread`).
//! - If neither the mean load of the members nor the heaviest shard reaches `NOISE`, loads weigh
//!   nothing: no shard moves for so little. From twice that on, loads count in full.

mod spread;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::{MemberId, Moment, Range, ShardId};

use crate::api::ShardLoad;

pub(crate) use spread::{Reported, spread};

/// What a shard weighs without load: as much as ten milliseconds of work per second.
pub const BASE: u32 = 100;
/// How long the last reported load of a shard counts after its owner stopped reporting it: more than a
/// next owner needs to measure and report it (see [`crate::load`]).
pub(crate) const MEMORY: Duration = Duration::from_secs(120);
/// How long the highest load of a shard counts: a load that swings within this time weighs its peak.
pub(crate) const PEAK_WINDOW: Duration = Duration::from_secs(600);
/// Loads up to this many points are not worth a move: 100 milliseconds of work per second.
const NOISE: u64 = 1_000;
/// How much more than the median member one member may report.
const MAX_OVER_MEDIAN: u64 = 16;
/// The highest load of one shard. Sums over any fleet stay far below 2^64.
const MAX_POINTS: u64 = 1 << 24;
/// What a millisecond of work in each second counts.
const POINTS_PER_MS: u64 = 10;
/// The binary digits of a load that count.
const DIGITS: u32 = 4;

/// A load, or a weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Points {
    /// All of it.
    pub all: u32,
    /// The part that splits could take from the shard.
    pub divisible: u32,
}

/// A shard and its present owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnedShard<'a> {
    pub(crate) shard: ShardId,
    pub(crate) owner: Option<&'a MemberId>,
    /// Whether the owner could report the load of the shard by now: its Lease is fresh.
    pub(crate) can_report: bool,
}

/// What is known about the loads of shards, from step to step.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct LoadHistory {
    known: BTreeMap<ShardId, Known>,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Known {
    load: Peak,
    heaviest: Peak,
    /// Whether it follows from the loads of other ranges, and no owner has measured it.
    is_estimate: bool,
    /// Since when the owner reports nothing although it could.
    silent: Option<Moment>,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Peak {
    /// The highest value in the window.
    peak: u64,
    /// When it was reported.
    since: Moment,
    /// The highest value reported after that, if the present one is lower.
    later: Option<u64>,
}

/// The load of a shard and that of its heaviest object, in points.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    load: u64,
    heaviest: u64,
}

impl LoadHistory {
    /// The load of each shard, in the given order, from what the members report. In points, for
    /// [`weights`].
    pub(crate) fn weigh(
        &mut self,
        shards: &[OwnedShard<'_>],
        reported: &BTreeMap<&MemberId, &[ShardLoad]>,
        now: Moment,
    ) -> Vec<Points> {
        if self.known.is_empty() && reported.values().all(|loads| loads.is_empty()) {
            return vec![Points::default(); shards.len()];
        }
        let median = median_load(shards, reported);
        let bounded = Bounded::collect(shards, reported, median);
        let unable: BTreeSet<&ShardId> =
            shards.iter().filter(|owned| !owned.can_report).map(|owned| &owned.shard).collect();
        for (shard, known) in &mut self.known {
            known.silent = if unable.contains(shard) { None } else { known.silent.or(Some(now)) };
        }
        self.known.retain(|_, known| known.silent.is_none_or(|since| now < since + MEMORY));
        // Before the reports: a shard that appears with a report replaces others too.
        self.estimate(shards, now);
        for (shard, told) in bounded.owners {
            let known = self.known.entry(shard.clone());
            known.or_insert_with(|| Known::new(told, now)).report(told, now);
        }
        let points = shards.iter().map(|OwnedShard { shard, .. }| {
            let told = self.known.get(shard).map(Known::told);
            told.or_else(|| bounded.others.get(shard).copied()).unwrap_or_default().points()
        });
        points.collect()
    }

    /// When it forgets the first of the loads or peaks that it knows.
    pub(crate) fn forgets(&self) -> Option<Moment> {
        self.known.values().filter_map(Known::forgets).min()
    }

    /// Estimates the loads of shards that were part of another or were merged from others, and forgets
    /// those.
    fn estimate(&mut self, shards: &[OwnedShard<'_>], now: Moment) {
        let unknown = shards.iter().filter(|owned| !self.known.contains_key(&owned.shard));
        let mut estimates = Vec::new();
        let mut used = BTreeSet::new();
        for OwnedShard { shard, can_report, .. } in unknown {
            let Some((told, from)) = self.inherited(shard) else { continue };
            let silent = can_report.then_some(now);
            let estimate = Known { is_estimate: true, silent, ..Known::new(told, now) };
            estimates.push((shard.clone(), estimate));
            used.extend(from);
        }
        if estimates.is_empty() {
            return;
        }
        for OwnedShard { shard, .. } in shards {
            used.remove(shard);
        }
        self.known.retain(|shard, _| !used.contains(shard));
        self.known.extend(estimates);
    }

    /// The load of a shard that was part of another or was merged from others, if theirs is known, and
    /// which those are.
    fn inherited(&self, shard: &ShardId) -> Option<(Told, Vec<ShardId>)> {
        let of = |range: Range| {
            let (id, known) = self.known.get_key_value(&ShardId { range, ..shard.clone() })?;
            Some((id.clone(), known.told()))
        };
        let mut range = shard.range;
        while let Some(parent) = range.parent() {
            if let Some((whole, told)) = of(parent) {
                let load = told.load >> (shard.range.bits() - parent.bits());
                let heaviest = told.heaviest.min(load);
                return Some((Told { load, heaviest }, vec![whole]));
            }
            range = parent;
        }
        let halves: Vec<_> = shard.range.halves()?.into_iter().filter_map(of).collect();
        let sum = halves.iter().map(|(_, told)| *told).reduce(|low, high| Told {
            load: low.load + high.load,
            heaviest: low.heaviest.max(high.heaviest),
        })?;
        Some((sum, halves.into_iter().map(|(half, _)| half).collect()))
    }
}

impl Known {
    fn new(told: Told, now: Moment) -> Self {
        let peak = |peak| Peak { peak, since: now, later: None };
        Self {
            load: peak(told.load),
            heaviest: peak(told.heaviest),
            is_estimate: false,
            silent: None,
        }
    }

    /// The owner reports the load.
    fn report(&mut self, told: Told, now: Moment) {
        if self.is_estimate {
            *self = Self::new(told, now);
        }
        self.silent = None;
        self.load.report(told.load, now);
        self.heaviest.report(told.heaviest, now);
    }

    fn told(&self) -> Told {
        Told { load: self.load.peak, heaviest: self.heaviest.peak.min(self.load.peak) }
    }

    fn forgets(&self) -> Option<Moment> {
        match self.silent {
            Some(since) => Some(since + MEMORY),
            None => [self.load, self.heaviest].iter().filter_map(Peak::forgets).min(),
        }
    }
}

impl Peak {
    fn report(&mut self, points: u64, now: Moment) {
        if points >= self.peak {
            *self = Self { peak: points, since: now, later: None };
            return;
        }
        let later = self.later.map_or(points, |later| later.max(points));
        self.later = Some(later);
        if now >= self.since + PEAK_WINDOW {
            let below = (points < later).then_some(points);
            *self = Self { peak: later, since: now, later: below };
        }
    }

    fn forgets(&self) -> Option<Moment> {
        self.later.map(|_| self.since + PEAK_WINDOW)
    }
}

impl Told {
    /// What a member reports. A load of which it does not know the heaviest object may be of one.
    fn of(load: &ShardLoad) -> Self {
        let all = points(load);
        let heaviest = load.heaviest.map_or(all, |heaviest| u64::from(heaviest) * 10);
        Self { load: all, heaviest: heaviest.min(all) }
    }

    /// The rounded points. The divisible part is rounded by itself: it may be much smaller than the
    /// error of the whole.
    fn points(self) -> Points {
        let all = rounded(self.load);
        Points { all, divisible: rounded(self.load - self.heaviest).min(all) }
    }
}

impl Points {
    /// The load of a shard for which people say how many milliseconds of work in each second it counts.
    pub(crate) fn set(self, busy: u32) -> Self {
        let all = rounded(u64::from(busy) * POINTS_PER_MS);
        Self { all, divisible: self.divisible.min(all) }
    }
}

/// What each shard weighs, by its points, in a fleet of this many members: at least [`BASE`].
pub(crate) fn weights(points: &[Points], members: usize) -> Vec<Points> {
    let total: u64 = points.iter().map(|points| u64::from(points.all)).sum();
    let heaviest = points.iter().map(|points| points.all).max().unwrap_or(0);
    let much = (total / members.max(1) as u64).max(heaviest.into());
    let counted = much.saturating_sub(NOISE).min(NOISE);
    let scaled =
        |points: u32| u32::try_from(u64::from(points) * counted / NOISE).unwrap_or(u32::MAX);
    let weigh = |points: &Points| Points {
        all: scaled(points.all).saturating_add(BASE),
        divisible: scaled(points.divisible),
    };
    points.iter().map(weigh).collect()
}

/// Reported loads within their bounds.
struct Bounded<'a> {
    /// Those reported by the owners of the shards.
    owners: BTreeMap<&'a ShardId, Told>,
    /// Those reported by others: the highest of each shard.
    others: BTreeMap<&'a ShardId, Told>,
}

impl<'a> Bounded<'a> {
    fn collect(
        shards: &'a [OwnedShard<'a>],
        reported: &BTreeMap<&MemberId, &'a [ShardLoad]>,
        median: u64,
    ) -> Self {
        let owner_of: BTreeMap<&ShardId, Option<&MemberId>> =
            shards.iter().map(|owned| (&owned.shard, owned.owner)).collect();
        let mut bounded = Self { owners: BTreeMap::new(), others: BTreeMap::new() };
        for (member, loads) in reported {
            let own = |load: &&ShardLoad| owner_of.get(&load.shard) == Some(&Some(*member));
            let all: u64 = loads.iter().map(points).sum();
            let its: u64 = loads.iter().filter(own).map(points).sum();
            let most = median.saturating_mul(MAX_OVER_MEDIAN).max(u64::from(BASE));
            let bound = |load: u64, total: u64| load * most.min(total) / total.max(1);
            for load in *loads {
                let is_own = own(&load);
                let total = if is_own { its } else { all - its };
                let Told { load: points, heaviest } = Told::of(load);
                let told = Told { load: bound(points, total), heaviest: bound(heaviest, total) };
                if is_own {
                    bounded.owners.insert(&load.shard, told);
                    continue;
                }
                let known = bounded.others.entry(&load.shard).or_default();
                if known.load < told.load {
                    *known = told;
                }
            }
        }
        bounded
    }
}

/// The load of the median member among those that have shards, by their own reports.
fn median_load(shards: &[OwnedShard<'_>], reported: &BTreeMap<&MemberId, &[ShardLoad]>) -> u64 {
    let mut loads: BTreeMap<&MemberId, u64> = BTreeMap::new();
    let mut owners: BTreeMap<&ShardId, &MemberId> = BTreeMap::new();
    for OwnedShard { shard, owner, .. } in shards {
        if let Some(owner) = owner {
            *loads.entry(owner).or_default() += u64::from(BASE);
            owners.insert(shard, owner);
        }
    }
    for (member, reported) in reported {
        let own = reported.iter().filter(|load| owners.get(&load.shard) == Some(member));
        if let Some(load) = loads.get_mut(member) {
            *load += own.map(points).sum::<u64>();
        }
    }
    let mut loads: Vec<u64> = loads.into_values().collect();
    loads.sort_unstable();
    loads.get(loads.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

/// The load of a shard as one number: a point is a tenth of a millisecond of work per second, or one
/// event per second, or a cached mebibyte.
fn points(load: &ShardLoad) -> u64 {
    let busy = u64::from(load.busy).saturating_mul(POINTS_PER_MS);
    busy.saturating_add(load.events / 1000).saturating_add(load.cached / 1024).min(MAX_POINTS)
}

/// The number with its first binary digits only.
fn rounded(points: u64) -> u32 {
    let points = u32::try_from(points.min(MAX_POINTS)).unwrap_or(u32::MAX);
    let excess = (u32::BITS - points.leading_zeros()).saturating_sub(DIGITS);
    let half = if excess == 0 { 0 } else { 1 << (excess - 1) };
    (points + half) >> excess << excess
}

#[cfg(test)]
#[path = "weight_tests.rs"]
mod tests;
