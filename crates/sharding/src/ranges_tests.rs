//! Splits and merges together with the moves that follow, in a loop without IO.

use model::MemberId;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::planner::{Limits, PlanMember, Role, plan};

/// A fleet whose drains end at once. Load lies evenly on uids.
struct Pool {
    members: BTreeMap<MemberId, PlanMember>,
    groups: BTreeMap<GroupName, GroupTraits>,
    units: Vec<Unit>,
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
        };
        let whole = |n: usize| Unit {
            shard: format!("c{n}/{GROUP}/0/1").parse().unwrap(),
            weight: BASE,
            place: Place::Unowned,
        };
        Self {
            members: (0..members)
                .map(|n| (format!("m-{n}").parse().unwrap(), member.clone()))
                .collect(),
            groups: BTreeMap::new(),
            units: (0..loads.len()).map(whole).collect(),
            loads: loads.to_vec(),
            measured: true,
            splits: 0,
            merges: 0,
        }
    }

    fn scope(&mut self, scope: GroupScope) {
        let traits = GroupTraits { scope, kinds: BTreeSet::new() };
        self.groups.insert(GROUP.parse().unwrap(), traits);
    }

    fn points(&self) -> Points {
        let load = |shard: &ShardId| {
            let cluster: usize = shard.cluster.as_str()[1..].parse().unwrap();
            self.loads[cluster] >> shard.range.bits()
        };
        self.units.iter().map(|unit| (unit.shard.clone(), load(&unit.shard))).collect()
    }

    /// One round; says whether anything changed.
    fn round(&mut self) -> bool {
        let points = self.points();
        for unit in &mut self.units {
            unit.weight = BASE + points[&unit.shard];
        }
        let proposal = plan(&self.members, &self.groups, &self.units, &Limits::default());
        let reshapes = decide(&Situation {
            units: &self.units,
            groups: &self.groups,
            points: &points,
            points_are_complete: self.measured,
            proposal: &proposal,
            under_way: 0,
        });
        for step in &proposal.moves {
            let unit = self.units.iter_mut().find(|unit| unit.shard == step.shard).unwrap();
            unit.place = step.to.clone().map_or(Place::Unowned, Place::Settled);
        }
        for reshape in &reshapes {
            self.apply(reshape);
        }
        !proposal.moves.is_empty() || !reshapes.is_empty()
    }

    fn apply(&mut self, reshape: &Reshape) {
        let parts = reshape.parts();
        let first = self.units.iter().position(|unit| unit.shard == parts[0]).unwrap();
        let place = self.units[first].place.clone();
        self.units.retain(|unit| !parts.contains(&unit.shard));
        let made = match reshape {
            Reshape::Split(shard) => halves(shard),
            Reshape::Merge(shard) => vec![shard.clone()],
        };
        match reshape {
            Reshape::Split(_) => self.splits += 1,
            Reshape::Merge(_) => self.merges += 1,
        }
        let unit = |shard| Unit { shard, weight: BASE, place: place.clone() };
        self.units.extend(made.into_iter().map(unit));
        self.units.sort_by(|a, b| a.shard.cmp(&b.shard));
    }

    fn settle(&mut self) {
        for _ in 0..2_000 {
            if !self.round() {
                return;
            }
        }
        panic!("it never settles");
    }

    /// The most that a member carries over what they carry in the mean, in load alone.
    fn imbalance(&self) -> f64 {
        let points = self.points();
        let mut loads: BTreeMap<&MemberId, u32> = self.members.keys().map(|id| (id, 0)).collect();
        for unit in &self.units {
            *loads.get_mut(unit.place.owner().unwrap()).unwrap() += points[&unit.shard];
        }
        let total: u32 = loads.values().sum();
        let most = *loads.values().max().unwrap();
        f64::from(most) * loads.len() as f64 / f64::from(total)
    }

    /// Every uid of every cluster is in exactly one shard.
    fn check_cover(&self) {
        for cluster in 0..self.loads.len() {
            let name = format!("c{cluster}");
            let its = self.units.iter().filter(|unit| unit.shard.cluster.as_str() == name);
            let ranges: Vec<Range> = its.map(|unit| unit.shard.range).collect();
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
        assert!(pool.units.len() <= others as usize + 24, "{} shards", pool.units.len());
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
        // Also by a coordinator that is new.
        pool.measured = false;
        pool.settle();
        assert_eq!(pool.units.len(), 3);
        pool.check_cover();
    }
}

#[test]
fn what_has_cooled_down_merges_once_that_is_known() {
    let mut pool = Pool::new(4, &[80_000, 1_000, 1_000, 1_000]);
    pool.settle();
    let split = pool.units.len();
    pool.loads[0] = 50;
    pool.measured = false;
    pool.settle();
    assert_eq!(pool.units.len(), split, "nobody may have told their load yet");
    pool.measured = true;
    pool.settle();
    let cold = pool.units.iter().filter(|unit| unit.shard.cluster.as_str() == "c0");
    assert_eq!(cold.count(), 1);
    pool.check_cover();
}

#[test]
fn a_map_that_is_full_splits_no_further() {
    let mut pool = Pool::new(2, &[1 << 20]);
    pool.units = (0..MAX_SPLIT_SHARDS)
        .map(|n| Unit {
            shard: format!("c0/{GROUP}/{n}/65536").parse().unwrap(),
            weight: 1,
            place: Place::Settled("m-0".parse().unwrap()),
        })
        .collect();
    pool.units[0].shard = format!("c0/{GROUP}/1/2").parse().unwrap();
    pool.units[1].shard = format!("c0/{GROUP}/3/8").parse().unwrap();
    let points = pool.points();
    let pressed = vec!["m-0".parse().unwrap()];
    let proposal = Proposal { share: 1_000, pressed, ..Proposal::default() };
    let decided = |units: &[Unit]| {
        decide(&Situation {
            units,
            groups: &pool.groups,
            points: &points,
            points_are_complete: false,
            proposal: &proposal,
            under_way: 0,
        })
    };
    assert_eq!(decided(&pool.units), []);
    let heaviest = Reshape::Split(pool.units[0].shard.clone());
    assert_eq!(decided(&pool.units[..MAX_SPLIT_SHARDS - 1]), [heaviest]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever the loads: as long as shards may be split, everybody ends within a tenth.
    #[test]
    fn what_may_be_split_is_balanced(
        members in 1..8usize, loads in vec(50_000..1_000_000u32, 1..16),
    ) {
        let mut pool = Pool::new(members, &loads);
        pool.settle();
        pool.check_cover();
        let imbalance = pool.imbalance();
        prop_assert!(imbalance <= 1.11, "{imbalance} in {} shards", pool.units.len());
    }

    /// A load that swings by a third may be split, or merged while it first does so; it is never
    /// merged again, and so never split again where it was merged.
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
            // It was much more once: now it may swing about the bound below which halves merge.
            pool.loads[0] = 2_000_000;
            pool.settle();
        }
        // The swing goes through the same loads in each period, its extremes among them.
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
