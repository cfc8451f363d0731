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
//!   that was split has half its load, and a merged shard has the sum of its halves.
//! - Points are rounded to four binary digits: the result does not follow noise.
//! - If neither the mean load of the members nor the heaviest shard reaches `NOISE`, loads weigh
//!   nothing: no shard moves for so little. From twice that on, loads count in full.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::{MemberId, Moment, Range, ShardId};

use crate::api::ShardLoad;

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
/// The binary digits of a load that count.
const DIGITS: u32 = 4;

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
    known: BTreeMap<ShardId, PeakLoad>,
}

#[derive(Clone, Copy, Debug, Hash)]
struct PeakLoad {
    /// The highest load in the window.
    peak: u64,
    /// When it was reported.
    since: Moment,
    /// The highest load reported after that, if the present one is lower.
    later: Option<u64>,
    /// Since when the owner reports nothing although it could.
    silent: Option<Moment>,
}

impl LoadHistory {
    /// The load of each shard, in the given order, from what the members report. In points, for
    /// [`weights`].
    pub(crate) fn weigh(
        &mut self,
        shards: &[OwnedShard<'_>],
        reported: &BTreeMap<&MemberId, &[ShardLoad]>,
        now: Moment,
    ) -> Vec<u32> {
        if self.known.is_empty() && reported.values().all(|loads| loads.is_empty()) {
            return vec![0; shards.len()];
        }
        let median = median_load(shards, reported);
        let bounded = Bounded::collect(shards, reported, median);
        let unable: BTreeSet<&ShardId> =
            shards.iter().filter(|owned| !owned.can_report).map(|owned| &owned.shard).collect();
        for (shard, known) in &mut self.known {
            known.silent = if unable.contains(shard) { None } else { known.silent.or(Some(now)) };
        }
        for (shard, points) in bounded.owners {
            let known = self.known.entry(shard.clone());
            known.or_insert_with(|| PeakLoad::new(points, now)).report(points, now);
        }
        self.known.retain(|_, known| known.silent.is_none_or(|since| now < since + MEMORY));
        let points = shards.iter().map(|OwnedShard { shard, .. }| {
            let points = self.known.get(shard).map(|known| known.peak);
            let points = points.or_else(|| self.inherited(shard));
            let points = points.or_else(|| bounded.others.get(shard).copied()).unwrap_or_default();
            rounded(points)
        });
        points.collect()
    }

    /// When it forgets the first of the loads or peaks that it knows.
    pub(crate) fn forgets(&self) -> Option<Moment> {
        self.known.values().filter_map(PeakLoad::forgets).min()
    }

    /// The load of a shard that was part of another or was merged from others, if theirs is known.
    fn inherited(&self, shard: &ShardId) -> Option<u64> {
        let of = |range: Range| self.known.get(&ShardId { range, ..shard.clone() });
        let mut range = shard.range;
        while let Some(parent) = range.parent() {
            if let Some(known) = of(parent) {
                return Some(known.peak >> (shard.range.bits() - parent.bits()));
            }
            range = parent;
        }
        let [low, high] = shard.range.halves()?;
        Some(of(low)?.peak + of(high)?.peak)
    }
}

impl PeakLoad {
    fn new(peak: u64, now: Moment) -> Self {
        Self { peak, since: now, later: None, silent: None }
    }

    /// The owner reports the load.
    fn report(&mut self, points: u64, now: Moment) {
        if points >= self.peak {
            *self = Self::new(points, now);
            return;
        }
        self.silent = None;
        let later = self.later.map_or(points, |later| later.max(points));
        self.later = Some(later);
        if now >= self.since + PEAK_WINDOW {
            let below = (points < later).then_some(points);
            *self = Self { later: below, ..Self::new(later, now) };
        }
    }

    fn forgets(&self) -> Option<Moment> {
        match self.silent {
            Some(since) => Some(since + MEMORY),
            None => self.later.map(|_| self.since + PEAK_WINDOW),
        }
    }
}

/// What each shard weighs, by its points, in a fleet of this many members: at least [`BASE`].
pub(crate) fn weights(points: &[u32], members: usize) -> Vec<u32> {
    let total: u64 = points.iter().map(|&points| u64::from(points)).sum();
    let heaviest = points.iter().copied().max().unwrap_or(0);
    let much = (total / members.max(1) as u64).max(heaviest.into());
    let counted = much.saturating_sub(NOISE).min(NOISE);
    let weigh = |&points: &u32| {
        let points = u64::from(points) * counted / NOISE;
        u32::try_from(points).unwrap_or(u32::MAX).saturating_add(BASE)
    };
    points.iter().map(weigh).collect()
}

/// Reported loads within their bounds.
struct Bounded<'a> {
    /// Those reported by the owners of the shards.
    owners: BTreeMap<&'a ShardId, u64>,
    /// Those reported by others: the highest of each shard.
    others: BTreeMap<&'a ShardId, u64>,
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
                if own(&load) {
                    bounded.owners.insert(&load.shard, bound(points(load), its));
                } else {
                    let known = bounded.others.entry(&load.shard).or_default();
                    *known = (*known).max(bound(points(load), all - its));
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

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn id(name: &str) -> MemberId {
        name.parse().unwrap()
    }

    fn at(s: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(s))
    }

    fn load(shard: &str, busy: u32) -> ShardLoad {
        ShardLoad { shard: shard.parse().unwrap(), busy, events: 0, cached: 0 }
    }

    /// Weighs shards, given as `shard owner` with `-` for none, by what members report.
    fn weigh(
        history: &mut LoadHistory,
        shards: &[&str],
        reported: &[(&str, &[ShardLoad])],
        s: u64,
    ) -> String {
        let owners: Vec<Option<MemberId>> =
            shards.iter().map(|text| text.split_once(' ').unwrap().1.parse().ok()).collect();
        let owned = shards.iter().zip(&owners).map(|(text, owner)| OwnedShard {
            shard: text.split_once(' ').unwrap().0.parse().unwrap(),
            owner: owner.as_ref(),
            can_report: owner
                .as_ref()
                .is_some_and(|owner| reported.iter().any(|t| t.0 == owner.as_str())),
        });
        let members: Vec<MemberId> = reported.iter().map(|(member, _)| id(member)).collect();
        let reported =
            members.iter().zip(reported).map(|(member, (_, loads))| (member, *loads)).collect();
        let points = history.weigh(&owned.collect::<Vec<_>>(), &reported, at(s));
        let texts: Vec<_> = points.iter().map(ToString::to_string).collect();
        texts.join(" ")
    }

    const TWO: [&str; 2] = ["c0/g/0/1 a", "c1/g/0/1 b"];

    #[test]
    fn without_reports_all_weigh_alike() {
        assert_eq!(weigh(&mut LoadHistory::default(), &TWO, &[("a", &[]), ("b", &[])], 0), "0 0");
    }

    #[test]
    fn work_events_and_cache_add_up() {
        let all = ShardLoad { events: 40_000, cached: 24 * 1024, ..load("c0/g/0/1", 20) };
        assert_eq!(weigh(&mut LoadHistory::default(), &TWO, &[("a", &[all])], 0), "256 0");
    }

    #[test]
    fn only_four_binary_digits_count() {
        for (points, expect) in
            [(0, 0), (15, 15), (16, 16), (17, 18), (100, 104), (1_000, 1_024), (1_100, 1_152)]
        {
            assert_eq!(rounded(points), expect, "{points}");
        }
    }

    #[test]
    fn a_shard_keeps_its_load_until_its_next_owner_has_measured() {
        let mut history = LoadHistory::default();
        let (from_a, from_b) = ([load("c0/g/0/1", 80)], [load("c0/g/0/1", 40)]);
        let moved = ["c0/g/0/1 b"];
        assert_eq!(weigh(&mut history, &["c0/g/0/1 a"], &[("a", &from_a)], 0), "832");
        assert_eq!(weigh(&mut history, &moved, &[("a", &[]), ("b", &[])], 100), "832");
        assert_eq!(history.forgets(), Some(at(100) + MEMORY));
        let mut anew = history.clone();
        assert_eq!(weigh(&mut history, &moved, &[("b", &[])], 219), "832");
        assert_eq!(weigh(&mut history, &moved, &[("b", &[])], 220), "0", "it seems idle");
        assert_eq!(weigh(&mut anew, &moved, &[("b", &from_b)], 130), "832", "the peak");
        assert_eq!(weigh(&mut anew, &moved, &[("b", &from_b)], 599), "832");
        assert_eq!(weigh(&mut anew, &moved, &[("b", &from_b)], 600), "416");
    }

    #[test]
    fn nothing_is_forgotten_while_nobody_is_alive_to_report_it() {
        let mut history = LoadHistory::default();
        let loads = [load("c0/g/0/1", 80)];
        assert_eq!(weigh(&mut history, &["c0/g/0/1 a"], &[("a", &loads)], 0), "832");
        // The home cluster is away for an hour; then all members join again.
        for s in [1, 1_800, 3_600] {
            assert_eq!(weigh(&mut history, &["c0/g/0/1 a"], &[], s), "832");
            assert_eq!(weigh(&mut history, &["c0/g/0/1 -"], &[], s), "832");
        }
        assert_eq!(weigh(&mut history, &["c0/g/0/1 b"], &[("b", &[])], 3_700), "832");
        assert_eq!(weigh(&mut history, &["c0/g/0/1 b"], &[("b", &[])], 3_820), "0");
    }

    #[test]
    fn a_new_coordinator_uses_reports_of_the_dead_in_proportion() {
        let (of_a, of_b) =
            ([load("c0/g/0/1", 600), load("c1/g/0/1", 200)], [load("c2/g/0/1", 800)]);
        let shards = ["c0/g/0/1 x", "c1/g/0/1 x", "c2/g/0/1 y"];
        let reported: [(&str, &[ShardLoad]); 4] =
            [("a", &of_a), ("b", &of_b), ("x", &[]), ("y", &[])];
        // No live member has reported anything: the median member carries its one shard.
        assert_eq!(weigh(&mut LoadHistory::default(), &shards, &reported, 0), "1152 416 1664");
    }

    #[test]
    fn small_loads_weigh_nothing_and_high_ones_count_in_full() {
        let check = |points: &[u32], expect: &[u32]| assert_eq!(weights(points, 2), expect);
        check(&[], &[]);
        check(&[0, 0], &[100, 100]);
        check(&[1_000, 900], &[100, 100]);
        check(&[1_500, 500], &[850, 350]);
        check(&[300_000, 1_000], &[300_100, 1_100]);
        check(&[u32::MAX, 0], &[u32::MAX, 100]);
        // One heavy shard of a thousand counts, and so do many light ones together.
        check(&[250; 16], &[350; 16]);
        check(&[100; 16], &[100; 16]);
    }

    #[test]
    fn a_load_that_swings_weighs_its_peak_until_that_is_long_past() {
        let mut history = LoadHistory::default();
        let weights: Vec<String> = (0..40)
            .map(|n| {
                // Sixty or thirty in turns for a while, then less.
                let busy = if n >= 20 { 20 } else { 60 / (1 + n % 2) };
                weigh(
                    &mut history,
                    &["c0/g/0/1 a"],
                    &[("a", &[load("c0/g/0/1", busy)])],
                    n as u64 * 60,
                )
            })
            .collect();
        // The last peak was at 18.
        assert!(weights[..28].iter().all(|weight| weight == "576"), "{weights:?}");
        assert!(weights[28..38].iter().all(|weight| weight == "288"), "{weights:?}");
        assert!(weights[38..].iter().all(|weight| weight == "208"), "{weights:?}");
    }

    #[test]
    fn halves_inherit_and_so_do_merged_shards() {
        let mut history = LoadHistory::default();
        let loads = [load("c0/g/0/1", 80)];
        weigh(&mut history, &["c0/g/0/1 a"], &[("a", &loads)], 0);
        let halves = ["c0/g/0/2 a", "c0/g/1/2 b"];
        assert_eq!(weigh(&mut history, &halves, &[("a", &[])], 1), "416 416");
        let quarters = ["c0/g/1/2 b", "c0/g/0/4 a", "c0/g/1/4 a"];
        assert_eq!(weigh(&mut history, &quarters, &[("a", &[])], 2), "416 208 208");
        let measured = [load("c0/g/0/4", 10), load("c0/g/1/4", 30)];
        weigh(&mut history, &quarters, &[("a", &measured)], 3);
        let merged = ["c0/g/0/2 a", "c0/g/1/2 b"];
        // The whole is long forgotten; the quarters were reported until now.
        assert_eq!(weigh(&mut history, &merged, &[("a", &[])], 200), "416 0");
    }

    #[test]
    fn reports_of_others_count_while_the_owner_is_silent_and_within_bounds() {
        let stale = [load("c0/g/0/1", 100_000)];
        let reported: [(&str, &[ShardLoad]); 3] = [("z", &stale), ("a", &[]), ("b", &[])];
        let shards = ["c0/g/0/1 a", "c1/g/0/1 a", "c2/g/0/1 b", "c3/g/0/1 b"];
        // The median member carries two shards: sixteen times that, and no more.
        assert_eq!(weigh(&mut LoadHistory::default(), &shards, &reported, 0), "3328 0 0 0");
        let owner: [(&str, &[ShardLoad]); 3] =
            [("z", &stale), ("a", &[load("c0/g/0/1", 5)]), ("b", &[])];
        assert_eq!(weigh(&mut LoadHistory::default(), &shards, &owner, 0), "52 0 0 0");
    }

    proptest! {
        /// Whatever one member reports counts for at most so much more than the others' loads.
        #[test]
        fn absurd_numbers_are_bounded(
            busy in vec(any::<u32>(), 4), events in any::<u64>(), cached in any::<u64>(),
        ) {
            let shards = ["c0/g/0/1 a", "c1/g/0/1 a", "c2/g/0/1 b", "c3/g/0/1 c"];
            let report = |(n, &busy): (usize, &u32)| {
                ShardLoad { events, cached, ..load(&format!("c{n}/g/0/1"), busy) }
            };
            let absurd: Vec<ShardLoad> = busy.iter().enumerate().map(report).collect();
            let honest = [load("c2/g/0/1", 10)];
            let reported: [(&str, &[ShardLoad]); 3] = [("a", &absurd), ("b", &honest), ("c", &[])];
            let points = weigh(&mut LoadHistory::default(), &shards, &reported, 0);
            let points: Vec<u64> = points.split(' ').map(|text| text.parse().unwrap()).collect();
            // The median member is b, with a hundred points and as much for its shard.
            prop_assert!(points[0] + points[1] <= 200 * MAX_OVER_MEDIAN * 17 / 16);
            prop_assert_eq!(points[2], 104);
            prop_assert!(points[3] <= 200 * MAX_OVER_MEDIAN * 17 / 16, "what a reports about c's shard");
        }

        /// Noise of a thirtieth about a rounded value changes nothing.
        #[test]
        fn small_noise_is_not_seen(points in 16..1_000_000u64, noise in -30..=30i64) {
            let centre = u64::from(rounded(points));
            let moved = centre.saturating_add_signed(centre as i64 * noise / 1000);
            prop_assert_eq!(u64::from(rounded(moved)), centre);
        }
    }
}
