//! What each shard weighs: from what members tell of their shards' load to numbers that the planner
//! may trust.
//!
//! ```text
//!   told ─▶ bounded ─▶ the crest of the last while ─▶ points ─▶ above the noise ─▶ weights
//!          (Claims)    (Scales)                       (weigh)   (weights)
//! ```
//!
//! Every shard weighs [`BASE`], so that a fleet in which nothing happens is balanced by count; load
//! comes on top. What a member tells is bounded, not believed:
//! - Only the owner's word counts for a shard. What others still tell of it counts while the owner
//!   has told nothing.
//! - All that one member tells of its own shards is at most [`MAX_OVER_MEDIAN`] times what the
//!   member in the middle of the fleet carries, and so is all that it tells of others'. Claims
//!   beyond are scaled down, so that they keep their proportions.
//! - A shard weighs the most that was told of it in the last [`CREST`], so that a load that swings
//!   faster than that moves nothing.
//! - A shard that changes hands keeps its weight for [`MEMORY`], until its next owner has measured
//!   it; the time in which nobody lives to measure it does not count. Halves of a shard that was
//!   split have half its load each until then, and a shard that was merged has the sum of its
//!   halves.
//! - Points are rounded to four binary digits: what is left does not follow noise.
//! - Where neither a member's part of all load nor the heaviest shard comes to [`NOISE`], loads weigh
//!   nothing: no shard moves for the sake of crumbs. From twice that on they weigh in full.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::{MemberId, Moment, Range, ShardId};

use crate::api::ShardLoad;

/// What a shard weighs besides its load: as much as ten milliseconds of work in each second.
pub const BASE: u32 = 100;
/// How long the last told load of a shard counts after its owner ceased to tell it: more than a
/// next owner needs to measure it and tell (see [`crate::load`]).
pub const MEMORY: Duration = Duration::from_secs(120);
/// How long the highest load told of a shard counts: a load that swings within this time weighs as
/// much as at its crest.
pub const CREST: Duration = Duration::from_secs(600);
/// What is not worth a move, in points: as much as 100 milliseconds of work in each second.
pub const NOISE: u64 = 1_000;
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
    /// Whether the owner could tell by now what the shard costs: it lives and is heard of.
    pub heard: bool,
}

/// What is known of the shards' loads, from step to step.
#[derive(Clone, Debug, Default, Hash)]
pub struct Scales {
    known: BTreeMap<ShardId, Known>,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Known {
    /// The most that was told in the last while.
    crest: u64,
    /// When that was.
    since: Moment,
    /// The most that was told after that, if what is told now is less.
    later: Option<u64>,
    /// Since when its owner tells nothing although it could.
    silent: Option<Moment>,
}

impl Scales {
    /// The load of each shard, in the order given, from what the members tell: in points, for
    /// [`weights`].
    pub fn weigh(
        &mut self,
        shards: &[Owned<'_>],
        told: &BTreeMap<&MemberId, &[ShardLoad]>,
        now: Moment,
    ) -> Vec<u32> {
        if self.known.is_empty() && told.values().all(|loads| loads.is_empty()) {
            return vec![0; shards.len()];
        }
        let median = median_load(shards, told);
        let claims = Claims::collect(shards, told, median);
        let unheard: BTreeSet<&ShardId> =
            shards.iter().filter(|owned| !owned.heard).map(|owned| &owned.shard).collect();
        for (shard, known) in &mut self.known {
            known.silent = if unheard.contains(shard) { None } else { known.silent.or(Some(now)) };
        }
        for (shard, points) in claims.owners {
            let known = self.known.entry(shard.clone());
            known.or_insert_with(|| Known::new(points, now)).tell(points, now);
        }
        self.known.retain(|_, known| known.silent.is_none_or(|since| now < since + MEMORY));
        let points = shards.iter().map(|Owned { shard, .. }| {
            let points = self.known.get(shard).map(|known| known.crest);
            let points = points.or_else(|| self.inherited(shard));
            let points = points.or_else(|| claims.others.get(shard).copied()).unwrap_or_default();
            rounded(points)
        });
        points.collect()
    }

    /// When the first of the remembered loads or crests is forgotten.
    pub fn forgets(&self) -> Option<Moment> {
        self.known.values().filter_map(Known::forgets).min()
    }

    /// The load of a shard that was part of another, or is made of others, when that is known.
    fn inherited(&self, shard: &ShardId) -> Option<u64> {
        let of = |range: Range| self.known.get(&ShardId { range, ..shard.clone() });
        let mut range = shard.range;
        while let Some(parent) = range.parent() {
            if let Some(known) = of(parent) {
                return Some(known.crest >> (shard.range.bits() - parent.bits()));
            }
            range = parent;
        }
        let [low, high] = shard.range.halves()?;
        Some(of(low)?.crest + of(high)?.crest)
    }
}

impl Known {
    fn new(crest: u64, now: Moment) -> Self {
        Self { crest, since: now, later: None, silent: None }
    }

    /// Its owner tells the load.
    fn tell(&mut self, points: u64, now: Moment) {
        if points >= self.crest {
            *self = Self::new(points, now);
            return;
        }
        self.silent = None;
        let later = self.later.map_or(points, |later| later.max(points));
        self.later = Some(later);
        if now >= self.since + CREST {
            let below = (points < later).then_some(points);
            *self = Self { later: below, ..Self::new(later, now) };
        }
    }

    fn forgets(&self) -> Option<Moment> {
        match self.silent {
            Some(since) => Some(since + MEMORY),
            None => self.later.map(|_| self.since + CREST),
        }
    }
}

/// What each shard weighs, by its points, in a fleet of so many members: at least [`BASE`].
pub fn weights(points: &[u32], members: usize) -> Vec<u32> {
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
            let all: u64 = loads.iter().map(points).sum();
            let its: u64 = loads.iter().filter(own).map(points).sum();
            let most = median.saturating_mul(MAX_OVER_MEDIAN).max(u64::from(BASE));
            let bounded = |claim: u64, total: u64| claim * most.min(total) / total.max(1);
            for load in *loads {
                if own(&load) {
                    claims.owners.insert(&load.shard, bounded(points(load), its));
                } else {
                    let known = claims.others.entry(&load.shard).or_default();
                    *known = (*known).max(bounded(points(load), all - its));
                }
            }
        }
        claims
    }
}

/// What the member in the middle carries, of those that have shards, by its own word.
fn median_load(shards: &[Owned<'_>], told: &BTreeMap<&MemberId, &[ShardLoad]>) -> u64 {
    let mut loads: BTreeMap<&MemberId, u64> = BTreeMap::new();
    let mut owners: BTreeMap<&ShardId, &MemberId> = BTreeMap::new();
    for Owned { shard, owner, .. } in shards {
        if let Some(owner) = owner {
            *loads.entry(owner).or_default() += u64::from(BASE);
            owners.insert(shard, owner);
        }
    }
    for (member, told) in told {
        let own = told.iter().filter(|load| owners.get(&load.shard) == Some(member));
        if let Some(load) = loads.get_mut(member) {
            *load += own.map(points).sum::<u64>();
        }
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

    /// Weighs shards, given as `shard owner` with `-` for nobody, by what members tell.
    fn weigh(
        scales: &mut Scales,
        shards: &[&str],
        told: &[(&str, &[ShardLoad])],
        s: u64,
    ) -> String {
        let owners: Vec<Option<MemberId>> =
            shards.iter().map(|text| text.split_once(' ').unwrap().1.parse().ok()).collect();
        let owned = shards.iter().zip(&owners).map(|(text, owner)| Owned {
            shard: text.split_once(' ').unwrap().0.parse().unwrap(),
            owner: owner.as_ref(),
            heard: owner.as_ref().is_some_and(|owner| told.iter().any(|t| t.0 == owner.as_str())),
        });
        let members: Vec<MemberId> = told.iter().map(|(member, _)| id(member)).collect();
        let told = members.iter().zip(told).map(|(member, (_, loads))| (member, *loads)).collect();
        let points = scales.weigh(&owned.collect::<Vec<_>>(), &told, at(s));
        let texts: Vec<_> = points.iter().map(ToString::to_string).collect();
        texts.join(" ")
    }

    const TWO: [&str; 2] = ["c0/g/0/1 a", "c1/g/0/1 b"];

    #[test]
    fn until_something_is_told_all_weigh_alike() {
        assert_eq!(weigh(&mut Scales::default(), &TWO, &[("a", &[]), ("b", &[])], 0), "0 0");
    }

    #[test]
    fn work_events_and_cache_add_up() {
        let all = ShardLoad { events: 40_000, cached: 24 * 1024, ..load("c0/g/0/1", 20) };
        assert_eq!(weigh(&mut Scales::default(), &TWO, &[("a", &[all])], 0), "256 0");
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
        let mut scales = Scales::default();
        let (from_a, from_b) = ([load("c0/g/0/1", 80)], [load("c0/g/0/1", 40)]);
        let moved = ["c0/g/0/1 b"];
        assert_eq!(weigh(&mut scales, &["c0/g/0/1 a"], &[("a", &from_a)], 0), "832");
        assert_eq!(weigh(&mut scales, &moved, &[("a", &[]), ("b", &[])], 100), "832");
        assert_eq!(scales.forgets(), Some(at(100) + MEMORY));
        let mut anew = scales.clone();
        assert_eq!(weigh(&mut scales, &moved, &[("b", &[])], 219), "832");
        assert_eq!(weigh(&mut scales, &moved, &[("b", &[])], 220), "0", "idle, it seems");
        assert_eq!(weigh(&mut anew, &moved, &[("b", &from_b)], 130), "832", "the crest");
        assert_eq!(weigh(&mut anew, &moved, &[("b", &from_b)], 599), "832");
        assert_eq!(weigh(&mut anew, &moved, &[("b", &from_b)], 600), "416");
    }

    #[test]
    fn nothing_is_forgotten_while_nobody_lives_to_tell_it() {
        let mut scales = Scales::default();
        let loads = [load("c0/g/0/1", 80)];
        assert_eq!(weigh(&mut scales, &["c0/g/0/1 a"], &[("a", &loads)], 0), "832");
        // The home cluster is away for an hour; then everybody begins anew.
        for s in [1, 1_800, 3_600] {
            assert_eq!(weigh(&mut scales, &["c0/g/0/1 a"], &[], s), "832");
            assert_eq!(weigh(&mut scales, &["c0/g/0/1 -"], &[], s), "832");
        }
        assert_eq!(weigh(&mut scales, &["c0/g/0/1 b"], &[("b", &[])], 3_700), "832");
        assert_eq!(weigh(&mut scales, &["c0/g/0/1 b"], &[("b", &[])], 3_820), "0");
    }

    #[test]
    fn a_new_coordinator_takes_the_word_of_the_dead_in_proportion() {
        let (of_a, of_b) =
            ([load("c0/g/0/1", 600), load("c1/g/0/1", 200)], [load("c2/g/0/1", 800)]);
        let shards = ["c0/g/0/1 x", "c1/g/0/1 x", "c2/g/0/1 y"];
        let told: [(&str, &[ShardLoad]); 4] = [("a", &of_a), ("b", &of_b), ("x", &[]), ("y", &[])];
        // Nobody alive has told anything: what a member in the middle carries is its one shard.
        assert_eq!(weigh(&mut Scales::default(), &shards, &told, 0), "1152 416 1664");
    }

    #[test]
    fn crumbs_weigh_nothing_and_much_weighs_what_it_is() {
        let check = |points: &[u32], expect: &[u32]| assert_eq!(weights(points, 2), expect);
        check(&[], &[]);
        check(&[0, 0], &[100, 100]);
        check(&[1_000, 900], &[100, 100]);
        check(&[1_500, 500], &[850, 350]);
        check(&[300_000, 1_000], &[300_100, 1_100]);
        check(&[u32::MAX, 0], &[u32::MAX, 100]);
        // One shard of a thousand is no crumb if it is heavy, and many light ones come to much.
        check(&[250; 16], &[350; 16]);
        check(&[100; 16], &[100; 16]);
    }

    #[test]
    fn a_load_that_swings_weighs_its_crest_until_that_is_long_past() {
        let mut scales = Scales::default();
        let weights: Vec<String> = (0..40)
            .map(|n| {
                // Sixty or thirty in turns for a while, then less.
                let busy = if n >= 20 { 20 } else { 60 / (1 + n % 2) };
                weigh(
                    &mut scales,
                    &["c0/g/0/1 a"],
                    &[("a", &[load("c0/g/0/1", busy)])],
                    n as u64 * 60,
                )
            })
            .collect();
        // The last crest was at 18.
        assert!(weights[..28].iter().all(|weight| weight == "576"), "{weights:?}");
        assert!(weights[28..38].iter().all(|weight| weight == "288"), "{weights:?}");
        assert!(weights[38..].iter().all(|weight| weight == "208"), "{weights:?}");
    }

    #[test]
    fn halves_inherit_and_so_does_what_is_made_of_them() {
        let mut scales = Scales::default();
        let loads = [load("c0/g/0/1", 80)];
        weigh(&mut scales, &["c0/g/0/1 a"], &[("a", &loads)], 0);
        let halves = ["c0/g/0/2 a", "c0/g/1/2 b"];
        assert_eq!(weigh(&mut scales, &halves, &[("a", &[])], 1), "416 416");
        let quarters = ["c0/g/1/2 b", "c0/g/0/4 a", "c0/g/1/4 a"];
        assert_eq!(weigh(&mut scales, &quarters, &[("a", &[])], 2), "416 208 208");
        let measured = [load("c0/g/0/4", 10), load("c0/g/1/4", 30)];
        weigh(&mut scales, &quarters, &[("a", &measured)], 3);
        let merged = ["c0/g/0/2 a", "c0/g/1/2 b"];
        // The whole is long forgotten, the quarters were told until now.
        assert_eq!(weigh(&mut scales, &merged, &[("a", &[])], 200), "416 0");
    }

    #[test]
    fn the_word_of_others_counts_while_the_owner_is_silent_and_within_bounds() {
        let stale = [load("c0/g/0/1", 100_000)];
        let told: [(&str, &[ShardLoad]); 3] = [("z", &stale), ("a", &[]), ("b", &[])];
        let shards = ["c0/g/0/1 a", "c1/g/0/1 a", "c2/g/0/1 b", "c3/g/0/1 b"];
        // Two shards are what the member in the middle carries: sixteen times that, and no more.
        assert_eq!(weigh(&mut Scales::default(), &shards, &told, 0), "3328 0 0 0");
        let owner: [(&str, &[ShardLoad]); 3] =
            [("z", &stale), ("a", &[load("c0/g/0/1", 5)]), ("b", &[])];
        assert_eq!(weigh(&mut Scales::default(), &shards, &owner, 0), "52 0 0 0");
    }

    proptest! {
        /// Whatever one member tells: it is taken for at most so much more than the others.
        #[test]
        fn absurd_numbers_are_bounded(
            busy in vec(any::<u32>(), 4), events in any::<u64>(), cached in any::<u64>(),
        ) {
            let shards = ["c0/g/0/1 a", "c1/g/0/1 a", "c2/g/0/1 b", "c3/g/0/1 c"];
            let claim = |(n, &busy): (usize, &u32)| {
                ShardLoad { events, cached, ..load(&format!("c{n}/g/0/1"), busy) }
            };
            let absurd: Vec<ShardLoad> = busy.iter().enumerate().map(claim).collect();
            let honest = [load("c2/g/0/1", 10)];
            let told: [(&str, &[ShardLoad]); 3] = [("a", &absurd), ("b", &honest), ("c", &[])];
            let points = weigh(&mut Scales::default(), &shards, &told, 0);
            let points: Vec<u64> = points.split(' ').map(|text| text.parse().unwrap()).collect();
            // In the middle is b, with a hundred points and as much for its shard.
            prop_assert!(points[0] + points[1] <= 200 * MAX_OVER_MEDIAN * 17 / 16);
            prop_assert_eq!(points[2], 104);
            prop_assert!(points[3] <= 200 * MAX_OVER_MEDIAN * 17 / 16, "what a says of c's shard");
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
