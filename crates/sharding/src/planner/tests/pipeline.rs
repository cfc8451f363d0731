//! The path from reported loads to weights, moves, splits and merges: all of the coordinator's decisions
//! about load, in a loop without IO.

use std::time::Duration;

use model::Moment;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::api::ShardLoad;
use crate::ranges::{self, RangeChange, Situation};
use crate::weight::{LoadHistory, OwnedShard, PEAK_WINDOW, Reported, levelled, weights};

/// How often members report.
const ROUND: Duration = Duration::from_secs(10);

/// A fleet whose drains end at once and whose members report at once.
pub(super) struct Fleet {
    pub(super) members: BTreeMap<MemberId, PlanMember>,
    pub(super) shards: BTreeMap<ShardId, Option<MemberId>>,
    loads: LoadHistory,
    now: Moment,
}

/// What a round changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    pub(super) moves: usize,
    pub(super) splits: usize,
    pub(super) merges: usize,
}

impl Fleet {
    pub(super) fn new(members: usize, clusters: usize) -> Self {
        let shard = |n| (format!("c{n}/{GROUP}/0/1").parse().unwrap(), None);
        Self {
            members: open(members),
            shards: (0..clusters).map(shard).collect(),
            loads: LoadHistory::default(),
            now: Moment::from_origin(ROUND),
        }
    }

    /// One round, in which each owner reports the loads that `busy` gives for its shards.
    pub(super) fn round<L: Into<Option<ShardLoad>>>(
        &mut self,
        busy: impl Fn(&MemberId, &ShardId) -> L,
    ) -> Changes {
        self.now = self.now + ROUND;
        let mut reported: BTreeMap<&MemberId, Vec<ShardLoad>> = BTreeMap::new();
        for (shard, owner) in &self.shards {
            if let Some(owner) = owner {
                reported.entry(owner).or_default().extend(busy(owner, shard).into());
            }
        }
        let told = |shards| Reported { shards, ..Reported::default() };
        let reported = reported.iter().map(|(&member, loads)| (member, told(loads))).collect();
        let owned: Vec<OwnedShard<'_>> = self
            .shards
            .iter()
            .map(|(shard, owner)| OwnedShard {
                shard: shard.clone(),
                owner: owner.as_ref(),
                can_report: owner.is_some(),
            })
            .collect();
        let points = self.loads.weigh(&owned, &reported, self.now);
        let ranges = self.shards.keys().map(|shard| shard.range);
        let weighed = weights(&levelled(&points, ranges), self.members.len());
        let placement =
            |owner: &Option<MemberId>| owner.clone().map_or(Placement::Unowned, Placement::Settled);
        let shards: Vec<PlanShard> = self
            .shards
            .iter()
            .zip(weighed)
            .map(|((shard, owner), weight)| PlanShard {
                id: shard.clone(),
                weight: weight.all,
                divisible: weight.divisible,
                placement: placement(owner),
                rests: false,
                before: None,
                preferences: None,
            })
            .collect();
        let groups = BTreeMap::new();
        let proposal = plan(&self.members, &groups, &shards, &Limits::default());
        let range_changes = ranges::decide(&Situation {
            shards: &shards,
            groups: &groups,
            points: &points,
            points_are_complete: true,
            proposal: &proposal,
            under_way: 0,
        });
        let mut changes = Changes { moves: proposal.moves.len(), ..Changes::default() };
        for step in proposal.moves {
            self.shards.insert(step.shard, step.to);
        }
        for change in &range_changes {
            match change {
                RangeChange::Split(_) => changes.splits += 1,
                RangeChange::Merge(_) => changes.merges += 1,
            }
            self.change(change);
        }
        changes
    }

    fn change(&mut self, change: &RangeChange) {
        let owners: Vec<_> =
            change.parts().iter().map(|part| self.shards.remove(part).unwrap()).collect();
        let made = match change {
            RangeChange::Split(shard) => shard.range.halves().unwrap().to_vec(),
            RangeChange::Merge(shard) => vec![shard.range],
        };
        for range in made {
            let shard = ShardId { range, ..change.shard().clone() };
            self.shards.insert(shard, owners[0].clone());
        }
    }

    /// What all rounds together change.
    pub(super) fn run<L: Into<Option<ShardLoad>>>(
        &mut self,
        rounds: usize,
        busy: impl Fn(usize, &MemberId, &ShardId) -> L,
    ) -> Changes {
        let mut all = Changes::default();
        for n in 0..rounds {
            let Changes { moves, splits, merges } =
                self.round(|member, shard| busy(n, member, shard));
            all.moves += moves;
            all.splits += splits;
            all.merges += merges;
        }
        all
    }
}

/// The part of a cluster's load that a range of it has.
fn part(shard: &ShardId, clusters: &[u32]) -> ShardLoad {
    let cluster: usize = shard.cluster.as_str()[1..].parse().unwrap();
    let busy = clusters[cluster] >> shard.range.bits();
    ShardLoad { shard: shard.clone(), busy, heaviest: Some(0), events: 0, cached: 0, waiting: 0 }
}

/// Rounds after which a fleet of a few members has settled, whatever its loads.
pub(super) const SETTLED: usize = 60;

#[test]
fn small_loads_move_nothing() {
    // Sixteen shards, each a few hundredths of a worker, with another load each time.
    let mut fleet = Fleet::new(3, 16);
    fleet.run(2, |_, _, shard| part(shard, &[0; 16]));
    let changes = fleet.run(100, |n, _, shard| {
        let small: Vec<u32> = (0..16).map(|c| 10 + (n as u32 * 7 + c * 13) % 25).collect();
        part(shard, &small)
    });
    assert_eq!(changes, Changes::default());
}

/// All clusters have the same load. The reports of one member's shards are as much too high as they may be, but for one
/// of them; those of all others are as much too low.
#[test]
fn equal_clusters_stay_where_they_are_whatever_the_error_of_their_reports() {
    let mut fleet = Fleet::new(5, 30);
    fleet.run(2, |_, _, shard| part(shard, &[0; 30]));
    let light = fleet.shards.iter().find(|(_, owner)| **owner == Some(id(0)));
    let light = light.map(|(shard, _)| shard.clone());
    let changes = fleet.run(SETTLED, |_, member, shard| {
        let is_high = *member == id(0) && Some(shard) != light.as_ref();
        // Both are what a member may report of 500: that has moved from neither by more than a fifth.
        part(shard, &[if is_high { 620 } else { 420 }; 30])
    });
    assert_eq!(changes, Changes::default());
}

#[test]
fn one_hot_cluster_in_an_idle_fleet_is_still_divided() {
    let mut clusters = [0; 40];
    clusters[7] = 6_000;
    let mut fleet = Fleet::new(20, 40);
    let changes = fleet.run(SETTLED, |_, _, shard| part(shard, &clusters));
    assert!(changes.splits >= 8, "{changes:?}");
}

#[test]
fn after_an_outage_of_the_home_cluster_weights_are_what_they_were() {
    let clusters: Vec<u32> = (1..31).map(|n| 10_000 / n).collect();
    let mut fleet = Fleet::new(3, 30);
    fleet.run(SETTLED, |_, _, shard| part(shard, &clusters));
    // All members join again under other names, long after every load could have been forgotten.
    for _ in 0..100 {
        fleet.now = fleet.now + ROUND;
        let shards: Vec<OwnedShard<'_>> = fleet
            .shards
            .keys()
            .map(|shard| OwnedShard { shard: shard.clone(), owner: None, can_report: false })
            .collect();
        fleet.loads.weigh(&shards, &BTreeMap::new(), fleet.now);
    }
    fleet.shards.values_mut().for_each(|owner| *owner = None);
    fleet.members = (10..13).map(|n| (id(n), member(Role::Open))).collect();
    let given = fleet.round(|_, shard| part(shard, &clusters));
    let after = fleet.run(SETTLED, |_, _, shard| part(shard, &clusters));
    assert_eq!((given.moves, after), (30, Changes::default()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Loads swing by a third, each with its own period and about any value, across any bounds. Once
    /// every peak was seen, no shard moves, splits or merges.
    #[test]
    fn swings_by_a_third_change_nothing(
        members in 2..7usize,
        clusters in vec((0..4_000u32, 2..40usize, any::<bool>()), 2..20),
    ) {
        let mut fleet = Fleet::new(members, clusters.len());
        let busy = |n: usize| -> Vec<u32> {
            let swing = |&(middle, period, swings): &(u32, usize, bool)| {
                let peak = middle / 3 * 4;
                let at = if swings { n % period } else { 0 };
                peak - peak / 2 * at as u32 / (period as u32 - 1)
            };
            clusters.iter().map(swing).collect()
        };
        // A split that is due may wait until several peaks meet.
        let seen = 12 * SETTLED;
        fleet.run(seen, |n, _, shard| part(shard, &busy(n)));
        let changes = fleet.run(6 * SETTLED, |n, _, shard| part(shard, &busy(n + seen)));
        prop_assert_eq!(changes, Changes::default());
    }

    /// With any loads, all shards are split and assigned within this many rounds, and stay.
    #[test]
    fn every_fleet_settles(
        members in 1..9usize, before in vec(0..20_000u32, 1..24), after in vec(0..20_000u32, 24),
    ) {
        let mut fleet = Fleet::new(members, before.len());
        fleet.run(SETTLED, |_, _, shard| part(shard, &before));
        prop_assert_eq!(fleet.run(10, |_, _, shard| part(shard, &before)), Changes::default());
        // Then all loads change. A load that fell counts until its peak is past.
        fleet.run(2 * SETTLED + PEAK_WINDOW.as_secs() as usize / 10, |_, _, shard| part(shard, &after));
        prop_assert_eq!(fleet.run(10, |_, _, shard| part(shard, &after)), Changes::default());
    }

    /// One member reports absurd numbers that change all the time. The moves and splits they cause are
    /// bounded, and when the member reports real loads again, the fleet settles as usual.
    #[test]
    fn absurd_numbers_are_bounded(
        members in 3..7usize,
        clusters in vec(500..1_000u32, 12..24),
        lies in vec((any::<u32>(), any::<u64>(), any::<u64>()), 1..8),
    ) {
        let mut fleet = Fleet::new(members, clusters.len());
        fleet.run(SETTLED, |_, _, shard| part(shard, &clusters));
        let changes = fleet.run(360, |n, member, shard| {
            let (busy, events, cached) = lies[n % lies.len()];
            let shard = ShardLoad { busy, events, cached, ..part(shard, &clusters) };
            if *member == id(0) { shard } else { part(&shard.shard, &clusters) }
        });
        let most = 40 * clusters.len();
        prop_assert!(changes.moves <= most && changes.splits <= most, "{changes:?}");
        fleet.run(4 * SETTLED, |_, _, shard| part(shard, &clusters));
        prop_assert_eq!(fleet.run(10, |_, _, shard| part(shard, &clusters)), Changes::default());
    }
}
