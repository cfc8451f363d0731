//! What each shard weighs: from the loads that members report to numbers the planner may trust.
//!
//! ```text
//!   reports ─▶ bounded ─▶ the peak of ten minutes ─▶ points ─▶ levelled ─▶ above the noise ─▶ weights
//!              (Reports)  (LoadHistory)              (weigh)   (levelled)  (weights)
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
//! - What waits of the initial list of a shard adds to its load: the most that was reported, as long as anything is
//!   reported to wait of its group in its cluster. So a backlog is divided once, by how much there was of it, and not
//!   again and again by what is left. For `WAITED` after that no ranges merge there: a merged shard lists its objects
//!   anew, and what waits then would split it again.
//! - Points are rounded to four binary digits: the result does not follow noise.
//! - Where clusters are alike, so are their weights. A member reports a load anew only when it has moved by a fifth
//!   (`crate::load`), so of two equal loads one may be reported as half again the other. Errors have a side, too: a
//!   member that is short of processor time works longer on the same, and reports more of all its shards. A member
//!   with a few shards then seemed to carry too much, and lost one of them to another, which really had too much from
//!   then on. So if nine of ten loads are within a factor of one and a half of the median, each of these counts as
//!   their mean. Loads of parts are not among these: a cluster is divided because it is unlike others. What people
//!   say that a shard costs counts as they say.
//! - Of a member with more loads than it can report, the other shards share the sums that it reports by
//!   cluster, in equal parts.
//! - If neither the mean load of the members nor the heaviest shard reaches `NOISE`, loads weigh
//!   nothing: no shard moves for so little. From twice that on, loads count in full.

mod reports;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::{ClusterName, GroupName, MemberId, Moment, Range, ShardId};

pub(crate) use reports::Reported;
use reports::Reports;
pub use reports::loads_of;

/// What a shard weighs without load: as much as ten milliseconds of work per second.
pub const BASE: u32 = 100;
/// How long the last reported load of a shard counts after its owner stopped reporting it: more than a
/// next owner needs to measure and report it (see [`crate::load`]).
pub(crate) const MEMORY: Duration = Duration::from_secs(120);
/// How long the highest load of a shard counts: a load that swings within this time weighs its peak.
pub(crate) const PEAK_WINDOW: Duration = Duration::from_secs(600);
/// An initial list waits no more if nobody has reported that for so long: while a shard changes hands, nobody does.
const QUIET: Duration = Duration::from_secs(60);
/// How long ranges do not merge after much of an initial list waited: if the merged shard's own list takes as long again,
/// it is split again, so that must be rare.
pub(crate) const WAITED: Duration = Duration::from_secs(24 * 3_600);
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
    /// Whether much of an initial list waited lately, of this range or of another of its group in its cluster.
    pub waited: bool,
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
    /// Where an initial list waited lately, and when it did last.
    waited: BTreeMap<(ClusterName, GroupName), Moment>,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Known {
    load: Peak,
    heaviest: Peak,
    /// The most that waited, while anything does in its place.
    waiting: u64,
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
    waiting: u64,
}

impl LoadHistory {
    /// The load of each shard, from what the members report. In points, for [`weights`]. The shards are in
    /// the order of their ids.
    pub(crate) fn weigh(
        &mut self,
        shards: &[OwnedShard<'_>],
        reported: &BTreeMap<&MemberId, Reported<'_>>,
        now: Moment,
    ) -> Vec<Points> {
        debug_assert!(shards.is_sorted_by_key(|owned| &owned.shard));
        let mut points = vec![Points::default(); shards.len()];
        if self.known.is_empty()
            && self.waited.is_empty()
            && reported.values().all(Reported::is_empty)
        {
            return points;
        }
        let reports = Reports::of(shards, reported);
        // Before the reports: a shard that appears with a report replaces others too.
        let waits = self.follow_waiting(shards, &reports, now);
        let unknown = self.forget(shards, &waits, now);
        self.estimate(shards, &unknown, now);
        let mut new = Vec::new();
        self.each(shards, |shard, known| {
            let Some(shard) = shard else { return };
            let told = match (known, reports.by_owner(shard)) {
                (Some(known), told) => {
                    if let Some(told) = told {
                        known.report(told, now);
                    }
                    if !waits[shard] {
                        known.waiting = 0;
                    }
                    known.told()
                }
                (None, Some(told)) => {
                    new.push((shards[shard].shard.clone(), Known::new(told, now)));
                    told
                }
                (None, None) => reports.by_others(shard).unwrap_or_default(),
            };
            points[shard] = told.points();
        });
        self.known.extend(new);
        if !self.waited.is_empty() {
            for (points, OwnedShard { shard, .. }) in points.iter_mut().zip(shards) {
                points.waited = self.waited.contains_key(&place(shard));
            }
        }
        points
    }

    /// Follows where initial lists wait. Returns of which shards that holds now.
    fn follow_waiting(
        &mut self,
        shards: &[OwnedShard<'_>],
        reports: &Reports,
        now: Moment,
    ) -> Vec<bool> {
        for (i, OwnedShard { shard, .. }) in shards.iter().enumerate() {
            if reports.by_owner(i).is_some_and(|told| told.waiting > 0) {
                self.waited.insert(place(shard), now);
            }
        }
        self.waited.retain(|_, last| now < *last + WAITED);
        if self.waited.is_empty() {
            return vec![false; shards.len()];
        }
        let waits = |OwnedShard { shard, .. }: &OwnedShard<'_>| {
            self.waited.get(&place(shard)).is_some_and(|last| now < *last + QUIET)
        };
        shards.iter().map(waits).collect()
    }

    /// Visits all shards, by their index, with what is known of them, and what is known of others.
    fn each(
        &mut self,
        shards: &[OwnedShard<'_>],
        mut visit: impl FnMut(Option<usize>, Option<&mut Known>),
    ) {
        let mut known = self.known.iter_mut().peekable();
        for (i, OwnedShard { shard, .. }) in shards.iter().enumerate() {
            // Equality first: two that are equal mostly share their names.
            while let Some((_, other)) = known.next_if(|(id, _)| *id != shard && *id < shard) {
                visit(None, Some(other));
            }
            visit(Some(i), known.next_if(|(id, _)| *id == shard).map(|(_, known)| known));
        }
        known.for_each(|(_, other)| visit(None, Some(other)));
    }

    /// Forgets the loads that nobody has reported for too long, and returns which shards have none. While an initial
    /// list waits, nobody needs to.
    fn forget(&mut self, shards: &[OwnedShard<'_>], waits: &[bool], now: Moment) -> Vec<usize> {
        let (mut unknown, mut is_over) = (Vec::new(), false);
        let stays = |known: &Known| known.silent.is_none_or(|since| now < since + MEMORY);
        self.each(shards, |shard, known| {
            let must_report = |shard: usize| shards[shard].can_report && !waits[shard];
            let can_report = shard.is_none_or(must_report);
            let is_known = known.is_some_and(|known| {
                known.silent = known.silent.or(Some(now)).filter(|_| can_report);
                is_over |= !stays(known);
                stays(known)
            });
            if !is_known {
                unknown.extend(shard);
            }
        });
        if is_over {
            self.known.retain(|_, known| stays(known));
        }
        unknown
    }

    /// When it next forgets one of the loads or peaks that it knows, or where an initial list waited.
    pub(crate) fn forgets(&self, now: Moment) -> Option<Moment> {
        let waited = self.waited.values().flat_map(|last| [*last + QUIET, *last + WAITED]);
        let all = self.known.values().filter_map(Known::forgets).chain(waited);
        all.filter(|at| now < *at).min()
    }

    /// Estimates the loads of shards that were part of another or were merged from others, and forgets
    /// those.
    fn estimate(&mut self, shards: &[OwnedShard<'_>], unknown: &[usize], now: Moment) {
        let mut estimates = Vec::new();
        let mut used = BTreeSet::new();
        for OwnedShard { shard, can_report, .. } in unknown.iter().map(|&shard| &shards[shard]) {
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
                let part = |load: u64| load >> (shard.range.bits() - parent.bits());
                let (load, waiting) = (part(told.load), part(told.waiting));
                let heaviest = told.heaviest.min(load);
                return Some((Told { load, heaviest, waiting }, vec![whole]));
            }
            range = parent;
        }
        let halves: Vec<_> = shard.range.halves()?.into_iter().filter_map(of).collect();
        let sum = halves.iter().map(|(_, told)| *told).reduce(|low, high| Told {
            load: low.load + high.load,
            heaviest: low.heaviest.max(high.heaviest),
            waiting: low.waiting + high.waiting,
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
            waiting: told.waiting,
            is_estimate: false,
            silent: None,
        }
    }

    /// The owner reports the load.
    fn report(&mut self, told: Told, now: Moment) {
        if self.is_estimate {
            *self = Self::new(told, now);
        }
        (self.silent, self.waiting) = (None, self.waiting.max(told.waiting));
        self.load.report(told.load, now);
        self.heaviest.report(told.heaviest, now);
    }

    fn told(&self) -> Told {
        let heaviest = self.heaviest.peak.min(self.load.peak);
        Told { load: self.load.peak, heaviest, waiting: self.waiting }
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
    /// All of it.
    fn now(self) -> u64 {
        self.load.saturating_add(self.waiting).min(MAX_POINTS)
    }

    /// The rounded points. The divisible part is rounded by itself: it may be much smaller than the
    /// error of the whole.
    fn points(self) -> Points {
        let all = rounded(self.now());
        let divisible = rounded(self.now() - self.heaviest).min(all);
        Points { all, divisible, waited: false }
    }
}

impl Points {
    /// The load of a shard for which people say how many milliseconds of work in each second it counts.
    pub(crate) fn set(self, busy: u32) -> Self {
        let all = rounded(u64::from(busy) * POINTS_PER_MS);
        Self { all, divisible: self.divisible.min(all), ..self }
    }
}

/// What the ranges of a group in a cluster have in common.
fn place(ShardId { cluster, group, .. }: &ShardId) -> (ClusterName, GroupName) {
    (cluster.clone(), group.clone())
}

/// The loads as they count, of shards with these ranges, in the same order. If nine of ten may be equal, each of these
/// is their mean.
pub(crate) fn levelled(points: &[Points], ranges: impl Iterator<Item = Range>) -> Vec<Points> {
    let loads = points.iter().map(|points| points.all);
    let mut loads: Vec<u32> = loads.filter(|&load| load > 0).collect();
    loads.sort_unstable();
    let Some(&median) = loads.get(loads.len() / 2) else { return points.to_vec() };
    let may_be_median = |(points, range): (&Points, Range)| {
        let (load, median) = (u64::from(points.all), u64::from(median));
        range == Range::WHOLE && 2 * load <= 3 * median && 2 * median <= 3 * load
    };
    let alike: Vec<bool> = points.iter().zip(ranges).map(may_be_median).collect();
    let those = || points.iter().zip(&alike).filter(|(_, alike)| **alike);
    let count = those().count();
    if count * 10 < loads.len() * 9 {
        return points.to_vec();
    }
    let mean = those().map(|(points, _)| u64::from(points.all)).sum::<u64>() / count.max(1) as u64;
    let level = |(points, alike): (&Points, &bool)| {
        let all = u64::from(points.all).max(1);
        let part = |part: u32| u32::try_from(u64::from(part) * mean / all).unwrap_or(u32::MAX);
        match alike {
            true => Points { all: part(points.all), divisible: part(points.divisible), ..*points },
            false => *points,
        }
    };
    points.iter().zip(&alike).map(level).collect()
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
        ..*points
    };
    points.iter().map(weigh).collect()
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
