//! Joins, leaves and silences in fleets whose shards weigh what they like.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::planner::level::Level;

/// A fleet whose moves are judged one by one, in the order in which they are planned.
struct Judged {
    members: BTreeMap<MemberId, PlanMember>,
    units: Vec<Unit>,
}

/// A move and how its ends stood just before it.
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
    /// Of members with these capacities, and shards with these weights where `at` says.
    fn new(capacities: &[u32], weights: &[u32], at: impl Fn(usize) -> Place) -> Self {
        let mut members = open(capacities.len());
        for (member, &capacity) in members.values_mut().zip(capacities) {
            member.capacity = capacity;
        }
        let units = weights.iter().enumerate().map(|(n, &weight)| unit(n, weight, at(n)));
        Self { units: units.collect(), members }
    }

    fn level(&self) -> Level {
        let heard = |id: &MemberId| self.members[id].role != Role::Leaving;
        let counted = self.units.iter().filter(|unit| unit.place.owner().is_some_and(heard));
        let weights: Vec<_> = counted.map(|unit| (u64::from(unit.weight), true)).collect();
        let open = self.members.values().filter(|member| member.role == Role::Open);
        Level::of(weights.into_iter(), open.map(|member| member.capacity))
    }

    fn load(&self, id: &MemberId) -> u64 {
        let its = self.units.iter().filter(|unit| unit.place.owner() == Some(id));
        its.map(|unit| u64::from(unit.weight)).sum()
    }

    fn exceeds(&self, id: &MemberId, permille: u32) -> bool {
        self.level().exceeded_by(self.load(id), self.members[id].capacity, permille)
    }

    /// Plans, and carries each move out at once.
    fn round(&mut self) -> Vec<Step> {
        let (mut relieved, mut filled) = (BTreeSet::new(), BTreeSet::new());
        let mut steps = Vec::new();
        for step in planned(&self.members, &self.units) {
            let n = self.units.iter().position(|unit| unit.shard == step.shard).unwrap();
            let from = self.units[n].place.owner().cloned();
            let to = step.to.clone().unwrap();
            let is_needed = from.as_ref().is_some_and(|from| self.exceeds(from, 1100));
            relieved.extend(from.clone().filter(|_| is_needed));
            let relieves = from.is_some_and(|from| relieved.contains(&from));
            filled.extend(Some(to.clone()).filter(|to| !self.exceeds(to, 500)));
            let fills = filled.contains(&to);
            self.units[n].place = Place::Settled(to);
            steps.push(Step { step, relieves, is_needed, fills });
        }
        steps
    }

    fn settle(&mut self) -> Vec<Step> {
        let mut all = Vec::new();
        // Each round but the last moves something, and no shard moves often.
        for _ in 0..self.units.len() + 2 {
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

/// Of one size, of all sizes, and with a few that are far heavier than the rest.
fn weights() -> impl Strategy<Value = Vec<u32>> {
    let some_heavy = prop_oneof![9 => 90..400u32, 1 => 1_000..20_000u32];
    prop_oneof![vec(100..101u32, 0..80), vec(1..2_000u32, 0..80), vec(some_heavy, 0..120)]
}

proptest! {
    /// A join moves at most the newcomer's part of the number of shards, onto the newcomer. What
    /// moves beyond that, or elsewhere, relieves a member that carries more than the bound, or
    /// fills one that has less than half of its share.
    #[test]
    fn a_join_moves_no_more_than_its_part_unless_the_bound_asks_for_it(
        capacities in capacities(), weights in weights(),
    ) {
        let mut fleet = Judged::new(&capacities, &weights, |_| Place::Unowned);
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

    /// A leave moves the leaver's shards, each once, and others only to relieve a member that
    /// carries more than the bound or to fill one that has less than half of its share.
    #[test]
    fn a_leave_moves_no_more_than_the_leavers_unless_the_bound_asks_for_it(
        capacities in capacities(), weights in weights(), who in any::<prop::sample::Index>(),
    ) {
        prop_assume!(capacities.len() > 1);
        let mut fleet = Judged::new(&capacities, &weights, |_| Place::Unowned);
        fleet.settle();
        let leaver = id(who.index(capacities.len()));
        let its: BTreeSet<_> = fleet
            .units
            .iter()
            .filter(|unit| unit.place.owner() == Some(&leaver))
            .map(|unit| unit.shard.clone())
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

    /// A plan is whole: seen again while its moves are under way, there is nothing to add to it.
    #[test]
    fn a_plan_under_way_is_left_alone(
        capacities in capacities(), weights in weights(), places in vec(0..12usize, 120),
        newcomers in 0..3usize,
    ) {
        let members = capacities.len();
        let at = |n: usize| Place::Settled(id(places[n] % members));
        let mut fleet = Judged::new(&capacities, &weights, at);
        fleet.members.extend((0..newcomers).map(|n| (id(members + n), member(Role::Open))));
        for step in planned(&fleet.members, &fleet.units) {
            let unit = fleet.units.iter_mut().find(|unit| unit.shard == step.shard).unwrap();
            let from = unit.place.owner().unwrap().clone();
            unit.place = Place::Moving { from, to: step.to };
        }
        prop_assert_eq!(planned(&fleet.members, &fleet.units), []);
    }

    /// Where nothing is to be moved, nothing is when members fall silent and are heard of again,
    /// whoever and however many: nobody seems to carry too much because others are not counted.
    #[test]
    fn silence_moves_nothing(
        numbers in vec(30..40usize, 3..9), silent in vec(any::<bool>(), 9),
    ) {
        let owners: Vec<usize> =
            numbers.iter().enumerate().flat_map(|(n, &number)| vec![n; number]).collect();
        let at = |n: usize| Place::Settled(id(owners[n]));
        let mut fleet =
            Judged::new(&vec![100; numbers.len()], &vec![100; owners.len()], at);
        prop_assume!(planned(&fleet.members, &fleet.units).is_empty());
        for (member, _) in fleet.members.values_mut().zip(silent).filter(|(_, silent)| *silent) {
            member.role = Role::Frozen;
        }
        prop_assert_eq!(planned(&fleet.members, &fleet.units), []);
    }

    /// Whatever the numbers: it plans, and comes to an end.
    #[test]
    fn absurd_numbers_do_no_harm(
        weights in vec(prop_oneof![Just(0), Just(1), Just(u32::MAX), any::<u32>()], 0..60),
        capacities in vec(prop_oneof![Just(0), Just(u32::MAX), any::<u32>()], 1..8),
        places in vec(0..12usize, 60),
    ) {
        let place = |n: usize| match places[n] % (capacities.len() + 1) {
            0 => Place::Unowned,
            at => Place::Settled(id(at - 1)),
        };
        let mut fleet = Judged::new(&capacities, &weights, place);
        fleet.settle();
        prop_assert!(fleet.units.iter().all(|unit| unit.place.owner().is_some()));
    }
}
