//! Splits and merges together with the moves that follow, in a loop without IO.

use model::MemberId;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::planner::{Limits, PlanMember, Reach, Role, plan};

/// A fleet whose drains end at once, and whose load is even over uids.
struct Pool {
    members: BTreeMap<MemberId, PlanMember>,
    groups: BTreeMap<GroupName, GroupTraits>,
    shards: Vec<PlanShard>,
    /// Per cluster: the load of all its objects.
    loads: Vec<u32>,
    measured: bool,
    splits: usize,
    merges: usize,
}

const GROUP: &str = "tdset";

impl Pool {
    fn new(members: usize, loads: &[u32]) -> Self {
        let member = PlanMember {
            role: Role::Open,
            capacity: 100,
            groups: BTreeSet::from([GROUP.parse().unwrap()]),
            reach: Reach::default(),
            max_shards: None,
        };
        let whole = |n: usize| PlanShard {
            id: format!("c{n}/{GROUP}/0/1").parse().unwrap(),
            weight: BASE,
            divisible: 0,
            placement: Placement::Unowned,
            rests: false,
            before: None,
            preferences: None,
        };
        Self {
            members: (0..members)
                .map(|n| (format!("m-{n}").parse().unwrap(), member.clone()))
                .collect(),
            groups: BTreeMap::new(),
            shards: (0..loads.len()).map(whole).collect(),
            loads: loads.to_vec(),
            measured: true,
            splits: 0,
            merges: 0,
        }
    }

    fn scope(&mut self, scope: GroupScope) {
        let traits = GroupTraits { scope, ..GroupTraits::default() };
        self.groups.insert(GROUP.parse().unwrap(), traits);
    }

    fn points(&self) -> Vec<Points> {
        let load = |shard: &ShardId| {
            let cluster: usize = shard.cluster.as_str()[1..].parse().unwrap();
            self.loads[cluster] >> shard.range.bits()
        };
        let even = |all| Points { all, divisible: all, waited: false };
        self.shards.iter().map(|shard| even(load(&shard.id))).collect()
    }

    /// One round. Returns whether anything changed.
    fn round(&mut self) -> bool {
        let points = self.points();
        for (shard, points) in self.shards.iter_mut().zip(&points) {
            (shard.weight, shard.divisible) = (BASE + points.all, points.divisible);
        }
        let proposal = plan(&self.members, &self.groups, &self.shards, &Limits::default());
        let range_changes = decide(&Situation {
            shards: &self.shards,
            groups: &self.groups,
            points: &points,
            points_are_complete: self.measured,
            proposal: &proposal,
            under_way: 0,
        });
        for step in &proposal.moves {
            let shard = self.shards.iter_mut().find(|shard| shard.id == step.shard).unwrap();
            shard.placement = step.to.clone().map_or(Placement::Unowned, Placement::Settled);
        }
        for change in &range_changes {
            self.apply(change);
        }
        !proposal.moves.is_empty() || !range_changes.is_empty()
    }

    fn apply(&mut self, change: &RangeChange) {
        let parts = change.parts();
        let first = self.shards.iter().position(|shard| shard.id == parts[0]).unwrap();
        let place = self.shards[first].placement.clone();
        self.shards.retain(|shard| !parts.contains(&shard.id));
        let made = match change {
            RangeChange::Split(shard) => halves(shard),
            RangeChange::Merge(shard) => vec![shard.clone()],
        };
        match change {
            RangeChange::Split(_) => self.splits += 1,
            RangeChange::Merge(_) => self.merges += 1,
        }
        let shard = |id| PlanShard {
            id,
            weight: BASE,
            divisible: 0,
            placement: place.clone(),
            rests: false,
            before: None,
            preferences: None,
        };
        self.shards.extend(made.into_iter().map(shard));
        self.shards.sort_by(|a, b| a.id.cmp(&b.id));
    }

    fn settle(&mut self) {
        for _ in 0..2_000 {
            if !self.round() {
                return;
            }
        }
        panic!("it never settles");
    }

    /// The highest load of a member divided by the mean load.
    fn imbalance(&self) -> f64 {
        let mut loads: BTreeMap<&MemberId, u32> = self.members.keys().map(|id| (id, 0)).collect();
        for (shard, points) in self.shards.iter().zip(self.points()) {
            *loads.get_mut(shard.placement.owner().unwrap()).unwrap() += points.all;
        }
        let total: u32 = loads.values().sum();
        let most = *loads.values().max().unwrap();
        f64::from(most) * loads.len() as f64 / f64::from(total)
    }

    /// Every uid of every cluster is in exactly one shard.
    fn check_cover(&self) {
        for cluster in 0..self.loads.len() {
            let name = format!("c{cluster}");
            let its = self.shards.iter().filter(|shard| shard.id.cluster.as_str() == name);
            let ranges: Vec<Range> = its.map(|shard| shard.id.range).collect();
            let sum: u64 = ranges.iter().map(|range| 1 << (MAX_BITS - range.bits())).sum();
            assert_eq!(sum, 1 << MAX_BITS, "{ranges:?}");
            for (n, range) in ranges.iter().enumerate() {
                assert!(ranges[n + 1..].iter().all(|other| !range.overlaps(*other)), "{ranges:?}");
            }
        }
    }
}

#[test]
fn a_cluster_with_most_of_all_objects_is_spread_over_five_members() {
    for others in [3, 9, 99] {
        let mut loads = vec![40_000 / others; others as usize];
        loads.push(60_000);
        let mut pool = Pool::new(5, &loads);
        pool.settle();
        pool.check_cover();
        let imbalance = pool.imbalance();
        assert!(imbalance <= 1.15, "{imbalance} with {others} others");
        assert!(pool.shards.len() <= others as usize + 24, "{} shards", pool.shards.len());
    }
}

#[test]
fn an_idle_fleet_is_never_split() {
    let mut pool = Pool::new(3, &[0; 4]);
    pool.settle();
    assert_eq!(pool.splits, 0);
}

#[test]
fn what_may_not_be_split_is_not_and_what_was_is_put_together() {
    for scope in [GroupScope::Cluster, GroupScope::Fleet] {
        let mut pool = Pool::new(3, &[60_000, 1_000, 1_000]);
        pool.scope(scope);
        pool.settle();
        assert_eq!(pool.splits, 0);
        pool.scope(GroupScope::Object);
        pool.settle();
        assert!(pool.splits > 0 && pool.merges == 0);
        pool.scope(scope);
        // Also with a new coordinator.
        pool.measured = false;
        pool.settle();
        assert_eq!(pool.shards.len(), 3);
        pool.check_cover();
    }
}

#[test]
fn what_has_cooled_down_merges_once_that_is_known() {
    let mut pool = Pool::new(4, &[80_000, 1_000, 1_000, 1_000]);
    pool.settle();
    let split = pool.shards.len();
    pool.loads[0] = 50;
    pool.measured = false;
    pool.settle();
    assert_eq!(pool.shards.len(), split, "their load may not be reported yet");
    pool.measured = true;
    pool.settle();
    let cold = pool.shards.iter().filter(|shard| shard.id.cluster.as_str() == "c0");
    assert_eq!(cold.count(), 1);
    pool.check_cover();
}

#[test]
fn a_map_that_is_full_splits_no_further() {
    let mut pool = Pool::new(2, &[1 << 20]);
    pool.shards = (0..MAX_SPLIT_SHARDS)
        .map(|n| PlanShard {
            id: format!("c0/{GROUP}/{n}/65536").parse().unwrap(),
            weight: 1,
            divisible: 1,
            placement: Placement::Settled("m-0".parse().unwrap()),
            rests: false,
            before: None,
            preferences: None,
        })
        .collect();
    pool.shards[0].id = format!("c0/{GROUP}/1/2").parse().unwrap();
    pool.shards[1].id = format!("c0/{GROUP}/3/8").parse().unwrap();
    let points = pool.points();
    let stuck = vec!["m-0".parse().unwrap()];
    let proposal = Proposal { share: 1_000, stuck, ..Proposal::default() };
    let decided = |shards: &[PlanShard]| {
        decide(&Situation {
            shards,
            groups: &pool.groups,
            points: &points[..shards.len()],
            points_are_complete: false,
            proposal: &proposal,
            under_way: 0,
        })
    };
    assert_eq!(decided(&pool.shards), []);
    let heaviest = RangeChange::Split(pool.shards[0].id.clone());
    assert_eq!(decided(&pool.shards[..MAX_SPLIT_SHARDS - 1]), [heaviest]);
}

/// A stuck member has these shards, each with its load and the divisible part of it.
fn split_of(shards: &[(u32, u32)]) -> Option<usize> {
    let owner: MemberId = "m-0".parse().unwrap();
    let shard = |n: usize| PlanShard {
        id: format!("c{n}/{GROUP}/0/1").parse().unwrap(),
        weight: BASE,
        divisible: 0,
        placement: Placement::Settled(owner.clone()),
        rests: false,
        before: None,
        preferences: None,
    };
    let plan: Vec<PlanShard> = (0..shards.len()).map(shard).collect();
    let points = |&(all, divisible): &(u32, u32)| Points { all, divisible, waited: false };
    let proposal = Proposal { share: 100_000, stuck: vec![owner.clone()], ..Proposal::default() };
    let begun = decide(&Situation {
        shards: &plan,
        groups: &BTreeMap::new(),
        points: &shards.iter().map(points).collect::<Vec<_>>(),
        points_are_complete: true,
        proposal: &proposal,
        under_way: 0,
    });
    assert!(begun.len() <= 1, "{begun:?}");
    begun.first().map(|change| plan.iter().position(|shard| shard.id == *change.shard()).unwrap())
}

#[test]
fn what_splits_could_move_decides_and_not_the_load() {
    // Worth a split is more than four times 12 thousandths of the share.
    assert_eq!(split_of(&[(500_000, 4_800)]), None);
    assert_eq!(split_of(&[(500_000, 4_801)]), Some(0));
    assert_eq!(split_of(&[(500_000, 10_000), (20_000, 20_000)]), Some(1));
    assert_eq!(split_of(&[(500_000, 0), (4_000, 4_000)]), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// With any loads: while shards can be split, every member ends within a tenth of the mean.
    #[test]
    fn what_may_be_split_is_balanced(
        members in 1..8usize, loads in vec(50_000..1_000_000u32, 1..16),
    ) {
        let mut pool = Pool::new(members, &loads);
        pool.settle();
        pool.check_cover();
        let imbalance = pool.imbalance();
        prop_assert!(imbalance <= 1.11, "{imbalance} in {} shards", pool.shards.len());
    }

    /// A load that swings by a third may cause splits and merges in its first period. After that nothing
    /// merges again, and nothing that merged splits again.
    #[test]
    fn a_swing_by_a_third_never_flaps(
        members in 2..7usize,
        loads in vec(0..30_000u32, 1..12),
        middle in 1_000..300_000u32,
        steps in vec(0..=100u32, 2..8),
        cooled in any::<bool>(),
    ) {
        let mut pool = Pool::new(members, &loads);
        if cooled {
            // The load was much higher before: now it may swing about the bound below which halves merge.
            pool.loads[0] = 2_000_000;
            pool.settle();
        }
        // Each period of the swing has the same loads, including its extremes.
        let swing: Vec<u32> = [0, 100].into_iter().chain(steps).collect();
        let mut merges = Vec::new();
        for _ in 0..6 {
            for &part in &swing {
                pool.loads[0] = middle / 3 * 2 + middle / 300 * 2 * part;
                pool.settle();
            }
            merges.push(pool.merges);
        }
        prop_assert!(cooled || pool.merges == 0, "{merges:?}");
        prop_assert_eq!(merges[0], merges[5], "{:?}", merges);
        pool.check_cover();
    }
}
