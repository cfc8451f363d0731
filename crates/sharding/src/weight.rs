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
/// How long the last told load of a shard counts after its owner ceased to tell it: more than a
/// next owner needs to measure it and tell (see [`crate::load`]).
pub const MEMORY: Duration = Duration::from_secs(120);
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
#[derive(Clone, Debug, Default, Hash)]
pub struct Scales {
    known: BTreeMap<ShardId, Known>,
}

#[derive(Clone, Copy, Debug, Hash)]
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

/// What the member in the middle carries, of those that have shards, by its own word.
fn median_load(shards: &[Owned<'_>], told: &BTreeMap<&MemberId, &[ShardLoad]>) -> u64 {
    let mut loads: BTreeMap<&MemberId, u64> = BTreeMap::new();
    let mut owners: BTreeMap<&ShardId, &MemberId> = BTreeMap::new();
    for Owned { shard, owner } in shards {
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
        });
        let members: Vec<MemberId> = told.iter().map(|(member, _)| id(member)).collect();
        let told = members.iter().zip(told).map(|(member, (_, loads))| (member, *loads)).collect();
        let points = scales.weigh(&owned.collect::<Vec<_>>(), &told, at(s));
        let texts: Vec<_> = points.values().map(ToString::to_string).collect();
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
        assert_eq!(weigh(&mut scales, &moved, &[("a", &[]), ("b", &from_b)], 130), "416");
        assert_eq!(weigh(&mut scales, &moved, &[("b", &[])], 500), "416");
        assert_eq!(weigh(&mut scales, &moved, &[("b", &[])], 620), "0", "idle, it seems");
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
        // Two shards are what the member in the middle carries.
        assert_eq!(weigh(&mut Scales::default(), &shards, &told, 0), "208 0 0 0");
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
            prop_assert!(points[3] <= 208, "what a says of c's shard");
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
