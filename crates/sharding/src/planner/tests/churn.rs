//! Joins, leaves and silences in fleets whose shards have any weights.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::planner::level::Level;

/// A fleet whose moves are judged one by one, in the order in which they are planned.
struct Judged {
    members: BTreeMap<MemberId, PlanMember>,
    shards: Vec<PlanShard>,
}

/// A move, and the loads of both members just before it.
struct Step {
    step: Move,
    /// It came from a member that carried more than the bound, now or earlier in the same plan.
    relieves: bool,
    /// It came from a member that carried more than the bound now.
    is_needed: bool,
    /// It went to a member that carried less than half of its share, now or earlier in the plan.
    fills: bool,
}

impl Judged {
    /// A fleet of members with these capacities, and of shards with these weights, placed by `at`.
    fn new(capacities: &[u32], weights: &[u32], at: impl Fn(usize) -> Placement) -> Self {
        let mut members = open(capacities.len());
        for (member, &capacity) in members.values_mut().zip(capacities) {
            member.capacity = capacity;
        }
        let shards = weights.iter().enumerate().map(|(n, &weight)| shard(n, weight, at(n)));
        Self { shards: shards.collect(), members }
    }

    fn level(&self) -> Level {
        let counts = |id: &MemberId| self.members[id].role != Role::Leaving;
        let counted =
            self.shards.iter().filter(|shard| shard.placement.owner().is_some_and(counts));
        let weights: Vec<_> = counted.map(|shard| (u64::from(shard.weight), true)).collect();
        let open = self.members.values().filter(|member| member.role == Role::Open);
        Level::of(weights.into_iter(), open.map(|member| member.capacity))
    }

    fn load(&self, id: &MemberId) -> u64 {
        let its = self.shards.iter().filter(|shard| shard.placement.owner() == Some(id));
        its.map(|shard| u64::from(shard.weight)).sum()
    }

    fn exceeds(&self, id: &MemberId, permille: u32) -> bool {
        self.level().exceeded_by(self.load(id), self.members[id].capacity, permille)
    }

    /// Plans, and carries out each move at once.
    fn round(&mut self) -> Vec<Step> {
        let (mut relieved, mut filled) = (BTreeSet::new(), BTreeSet::new());
        let mut steps = Vec::new();
        for step in planned(&self.members, &self.shards) {
            let n = self.shards.iter().position(|shard| shard.id == step.shard).unwrap();
            let from = self.shards[n].placement.owner().cloned();
            let to = step.to.clone().unwrap();
            let is_needed = from.as_ref().is_some_and(|from| self.exceeds(from, 1100));
            relieved.extend(from.clone().filter(|_| is_needed));
            let relieves = from.is_some_and(|from| relieved.contains(&from));
            filled.extend(Some(to.clone()).filter(|to| !self.exceeds(to, 500)));
            let fills = filled.contains(&to);
            self.shards[n].placement = Placement::Settled(to);
            steps.push(Step { step, relieves, is_needed, fills });
        }
        steps
    }

    fn settle(&mut self) -> Vec<Step> {
        let mut all = Vec::new();
        // Each round but the last moves something, and no shard moves often.
        for _ in 0..self.shards.len() + 2 {
            let steps = self.round();
            if steps.is_empty() {
                return all;
            }
            all.extend(steps);
        }
        panic!("it never settles");
    }
}

fn capacities() -> impl Strategy<Value = Vec<u32>> {
    prop_oneof![(1..12usize).prop_map(|n| vec![100; n]), vec(50..200u32, 1..12)]
}

/// Weights that are all alike, or all different, or with a few far heavier than the rest.
fn weights() -> impl Strategy<Value = Vec<u32>> {
    let some_heavy = prop_oneof![9 => 90..400u32, 1 => 1_000..20_000u32];
    prop_oneof![vec(100..101u32, 0..80), vec(1..2_000u32, 0..80), vec(some_heavy, 0..120)]
}

proptest! {
    /// When a member joins, at most its part of the number of shards moves to it. Any other move relieves
    /// a member above the bound, or fills one with less than half of its share.
    #[test]
    fn a_join_moves_no_more_than_its_part_unless_the_bound_asks_for_it(
        capacities in capacities(), weights in weights(),
    ) {
        let mut fleet = Judged::new(&capacities, &weights, |_| Placement::Unowned);
        fleet.settle();
        let newcomer = id(capacities.len());
        fleet.members.insert(newcomer.clone(), member(Role::Open));
        let capacity: u32 = capacities.iter().sum::<u32>() + 100;
        let part = (weights.len() * 100).div_ceil(capacity as usize);
        let mut moved = 0;
        for Step { step, relieves, is_needed, fills } in fleet.settle() {
            prop_assert_eq!(step.reason, Reason::Balance);
            if step.to.as_ref() == Some(&newcomer) {
                moved += 1;
                prop_assert!(moved <= part || is_needed, "{moved} of {part}: {step:?}");
            } else {
                prop_assert!(relieves || fills, "{step:?}");
            }
        }
    }

    /// When a member leaves, its shards move once each. Any other move relieves a member above the bound,
    /// or fills one with less than half of its share.
    #[test]
    fn a_leave_moves_no_more_than_the_leavers_unless_the_bound_asks_for_it(
        capacities in capacities(), weights in weights(), who in any::<prop::sample::Index>(),
    ) {
        prop_assume!(capacities.len() > 1);
        let mut fleet = Judged::new(&capacities, &weights, |_| Placement::Unowned);
        fleet.settle();
        let leaver = id(who.index(capacities.len()));
        let its: BTreeSet<_> = fleet
            .shards
            .iter()
            .filter(|shard| shard.placement.owner() == Some(&leaver))
            .map(|shard| shard.id.clone())
            .collect();
        fleet.members.get_mut(&leaver).unwrap().role = Role::Leaving;
        let mut moved = BTreeSet::new();
        for Step { step, relieves, fills, .. } in fleet.settle() {
            if step.reason == Reason::OwnerLeaves {
                prop_assert!(moved.insert(step.shard), "it moves twice");
            } else {
                prop_assert_eq!(step.reason, Reason::Balance);
                prop_assert!(relieves || fills, "{step:?}");
            }
        }
        prop_assert_eq!(moved, its);
    }

    /// A plan is complete: planning again while its moves are under way adds nothing.
    #[test]
    fn a_plan_under_way_is_left_alone(
        capacities in capacities(), weights in weights(), places in vec(0..12usize, 120),
        newcomers in 0..3usize,
    ) {
        let members = capacities.len();
        let at = |n: usize| Placement::Settled(id(places[n] % members));
        let mut fleet = Judged::new(&capacities, &weights, at);
        fleet.members.extend((0..newcomers).map(|n| (id(members + n), member(Role::Open))));
        for step in planned(&fleet.members, &fleet.shards) {
            let shard = fleet.shards.iter_mut().find(|shard| shard.id == step.shard).unwrap();
            let from = shard.placement.owner().unwrap().clone();
            shard.placement = Placement::Moving { from, to: step.to };
        }
        prop_assert_eq!(planned(&fleet.members, &fleet.shards), []);
    }

    /// If a fleet needs no moves, it needs none when any of its members fall silent and return: the
    /// loads of silent members still count.
    #[test]
    fn silence_moves_nothing(
        numbers in vec(30..40usize, 3..9), silent in vec(any::<bool>(), 9),
    ) {
        let owners: Vec<usize> =
            numbers.iter().enumerate().flat_map(|(n, &number)| vec![n; number]).collect();
        let at = |n: usize| Placement::Settled(id(owners[n]));
        let mut fleet =
            Judged::new(&vec![100; numbers.len()], &vec![100; owners.len()], at);
        prop_assume!(planned(&fleet.members, &fleet.shards).is_empty());
        for (member, _) in fleet.members.values_mut().zip(silent).filter(|(_, silent)| *silent) {
            member.role = Role::Suspect;
        }
        prop_assert_eq!(planned(&fleet.members, &fleet.shards), []);
    }

    /// With any numbers, planning works and ends.
    #[test]
    fn absurd_numbers_do_no_harm(
        weights in vec(prop_oneof![Just(0), Just(1), Just(u32::MAX), any::<u32>()], 0..60),
        capacities in vec(prop_oneof![Just(0), Just(u32::MAX), any::<u32>()], 1..8),
        places in vec(0..12usize, 60),
    ) {
        let place = |n: usize| match places[n] % (capacities.len() + 1) {
            0 => Placement::Unowned,
            at => Placement::Settled(id(at - 1)),
        };
        let mut fleet = Judged::new(&capacities, &weights, place);
        fleet.settle();
        prop_assert!(fleet.shards.iter().all(|shard| shard.placement.owner().is_some()));
    }
}
