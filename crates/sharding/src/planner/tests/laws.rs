//! What holds for any fleet.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Weights, and who has each shard.
fn shards(most: usize) -> impl Strategy<Value = Vec<(u32, usize)>> {
    vec((1..20u32, 0..64usize), 0..most)
}

fn settled(shards: &[(u32, usize)], members: usize) -> Vec<Unit> {
    let unit = |(n, &(weight, at)): (usize, &(u32, usize))| {
        unit(n, weight, Place::Settled(id(at % members)))
    };
    shards.iter().enumerate().map(unit).collect()
}

/// The share of each member as everybody would reckon it.
fn mean(units: &[Unit], members: usize) -> f64 {
    units.iter().map(|unit| f64::from(unit.weight)).sum::<f64>() / members as f64
}

fn heaviest(units: &[Unit], member: &MemberId) -> f64 {
    let its = units.iter().filter(|unit| unit.place == Place::Settled(member.clone()));
    its.map(|unit| f64::from(unit.weight)).fold(0.0, f64::max)
}

proptest! {
    #[test]
    fn shards_of_one_weight_start_within_one(members in 1..12usize, shards in 0..80usize) {
        let (members, mut units) = (open(members), unowned(shards));
        prop_assert_eq!(settle(&members, &mut units).len(), shards);
        let loads = loads(&members, &units);
        prop_assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1, "{loads:?}");
    }

    #[test]
    fn a_join_moves_its_share_and_only_onto_the_newcomer(
        members in 1..12usize, shards in 0..80usize,
    ) {
        let mut units = unowned(shards);
        settle(&open(members), &mut units);
        let moves = settle(&open(members + 1), &mut units);
        prop_assert!(moves.len() <= shards.div_ceil(members + 1), "{} moves", moves.len());
        prop_assert!(moves.iter().all(|step| step.to == Some(id(members))));
    }

    #[test]
    fn a_leave_moves_only_the_leavers(members in 2..12usize, shards in 0..80usize, who in 0..12usize) {
        let mut fleet = open(members);
        let mut units = unowned(shards);
        settle(&fleet, &mut units);
        let leaver = id(who % members);
        let mut its: Vec<_> = units
            .iter()
            .filter(|unit| unit.place == Place::Settled(leaver.clone()))
            .map(|unit| unit.shard.clone())
            .collect();
        fleet.insert(leaver, member(Role::Leaving));
        let mut moved: Vec<_> =
            settle(&fleet, &mut units).into_iter().map(|step| step.shard).collect();
        its.sort();
        moved.sort();
        prop_assert_eq!(moved, its);
    }

    /// Whatever the weights, and however they wander: nobody over the bound, nobody idle, nothing
    /// moves.
    #[test]
    fn within_the_bounds_nothing_moves(
        members in 1..8usize, shards in vec((8..20u32, 0..4u32), 30..80),
    ) {
        let fleet = open(members);
        let mut units: Vec<Unit> =
            shards.iter().enumerate().map(|(n, s)| unit(n, s.0 * 10, Place::Unowned)).collect();
        settle(&fleet, &mut units);
        for (unit, (_, wander)) in units.iter_mut().zip(&shards) {
            unit.weight += wander * 3;
        }
        let (loads, mean) = (loads(&fleet, &units), mean(&units, members));
        let within = |&load: &u32| (0.5 * mean..=1.1 * mean).contains(&f64::from(load));
        prop_assume!(loads.iter().all(within));
        prop_assert_eq!(planned(&fleet, &units), []);
    }

    /// Each balancing move takes from one who carries too much, or gives to one who carries too
    /// little, and never makes the taker the heavier of the two.
    #[test]
    fn balance_moves_no_more_than_it_must(members in 2..8usize, shards in shards(80)) {
        let (fleet, mut units) = (open(members), settled(&shards, members));
        let mean = mean(&units, members);
        prop_assume!(units.iter().all(|unit| f64::from(unit.weight) <= mean));
        for step in planned(&fleet, &units) {
            let loads: BTreeMap<_, _> = fleet.keys().zip(loads(&fleet, &units)).collect();
            let unit = units.iter_mut().find(|unit| unit.shard == step.shard).unwrap();
            let (from, to) = (unit.place.owner().unwrap().clone(), step.to.unwrap());
            let (giver, taker) = (f64::from(loads[&from]), f64::from(loads[&to]));
            prop_assert!(giver > 1.05 * mean || (taker < 0.95 * mean && giver > mean));
            prop_assert!(loads[&from] - unit.weight >= loads[&to] + unit.weight);
            unit.place = Place::Settled(to);
        }
    }

    /// Where it settles, nobody carries too much who could give a shard to another without making
    /// that one as heavy.
    #[test]
    fn it_settles_within_the_bounds_where_shards_allow(members in 1..8usize, shards in shards(60)) {
        let (fleet, mut units) = (open(members), settled(&shards, members));
        settle(&fleet, &mut units);
        let loads: BTreeMap<_, _> = fleet.keys().zip(loads(&fleet, &units)).collect();
        let (mean, lightest) = (mean(&units, members), *loads.values().min().unwrap());
        for (member, &load) in &loads {
            let share = mean.max(heaviest(&units, member));
            let lighter = |unit: &&Unit| load - unit.weight >= lightest + unit.weight;
            let its = units.iter().filter(|unit| unit.place == Place::Settled((*member).clone()));
            prop_assert!(
                f64::from(load) <= 1.1 * share || !its.into_iter().any(|unit| lighter(&unit)),
                "{member} carries {load} of {loads:?}"
            );
        }
    }

    /// Any weights, any places: planning ends, and what it reaches it keeps.
    #[test]
    fn every_fleet_settles_and_stays(
        members in 1..8usize,
        shards in vec((1..20u32, 0..9usize, 0..3u8), 0..60),
    ) {
        let fleet = open(members);
        let place = |(n, (weight, at, kind)): (usize, (u32, usize, u8))| match kind {
            0 => unit(n, weight, Place::Unowned),
            1 => unit(n, weight, Place::Settled(id(at % members))),
            _ => unit(n, weight, Place::Moving { from: id(at % members), to: Some(id(at)) }),
        };
        let mut units: Vec<Unit> = shards.into_iter().enumerate().map(place).collect();
        let first = planned(&fleet, &units);
        let lost = |unit: &&Unit| matches!(&unit.place, Place::Moving { to: Some(to), .. } if !fleet.contains_key(to));
        prop_assert!(units.iter().filter(lost).all(|u| first.iter().any(|s| s.shard == u.shard)));
        // Drains under way end first: their moves were begun by an earlier plan.
        for unit in &mut units {
            if let Place::Moving { to: Some(to), .. } = &unit.place {
                unit.place =
                    if fleet.contains_key(to) { Place::Settled(to.clone()) } else { Place::Unowned };
            }
        }
        settle(&fleet, &mut units);
        prop_assert!(units.iter().all(|unit| matches!(unit.place, Place::Settled(_))));
        prop_assert_eq!(planned(&fleet, &units), []);
    }

    #[test]
    fn the_order_of_units_means_nothing(
        members in 1..6usize,
        shards in shards(40),
        order in any::<prop::sample::Index>(),
    ) {
        let fleet = open(members);
        let mut units = settled(&shards, members);
        units.iter_mut().step_by(3).for_each(|unit| unit.place = Place::Unowned);
        let before = plan(&fleet, &BTreeMap::new(), &units, &Limits::default());
        if !units.is_empty() {
            let by = order.index(units.len());
            units.rotate_left(by);
            units.reverse();
        }
        prop_assert_eq!(plan(&fleet, &BTreeMap::new(), &units, &Limits::default()), before);
    }

    /// Balance and maintenance together, at every moment, with drains that end in any order.
    #[test]
    fn what_may_wait_is_bounded_in_flight(
        members in 2..8usize,
        shards in shards(120),
        ends in vec(any::<prop::sample::Index>(), 60),
    ) {
        let mut fleet = open(members);
        fleet.insert(id(0), member(Role::Emptying));
        let limits = Limits { moves_per_member: 3, moves_in_fleet: 5, ..Limits::default() };
        let mut units = settled(&shards, members);
        for end in ends {
            for step in plan(&fleet, &BTreeMap::new(), &units, &limits).moves {
                let unit = units.iter_mut().find(|unit| unit.shard == step.shard).unwrap();
                let from = unit.place.owner().unwrap().clone();
                prop_assert!(step.to != Some(id(0)), "it gets nothing");
                unit.place = Place::Moving { from, to: step.to };
            }
            let moving: Vec<usize> = (0..units.len())
                .filter(|&n| matches!(units[n].place, Place::Moving { .. }))
                .collect();
            prop_assert!(moving.len() <= limits.moves_in_fleet);
            for id in fleet.keys() {
                let about = moving.iter().filter(|&&n| matches!(&units[n].place,
                    Place::Moving { from, to } if from == id || to.as_ref() == Some(id)));
                prop_assert!(about.count() <= limits.moves_per_member);
            }
            if let Some(&n) = moving.get(end.index(moving.len().max(1))) {
                let Place::Moving { to: Some(to), .. } = units[n].place.clone() else { continue };
                units[n].place = Place::Settled(to);
            }
        }
    }

    #[test]
    fn a_member_under_maintenance_ends_empty(members in 2..8usize, shards in shards(80)) {
        let mut fleet = open(members);
        fleet.insert(id(0), member(Role::Emptying));
        let mut units = settled(&shards, members);
        settle(&fleet, &mut units);
        prop_assert_eq!(loads(&fleet, &units)[0], 0);
    }

    /// A group of the fleet sits on one member, whatever else there is, and comes to a next owner
    /// only when the one before has nothing left.
    #[test]
    fn a_group_of_the_fleet_moves_as_one(
        members in 1..6usize, shards in 1..30usize, places in vec(0..6usize, 30), leaves in 0..6usize,
    ) {
        let mut fleet = open(members);
        let groups = scoped(GroupScope::Fleet);
        let mut units: Vec<Unit> =
            (0..shards).map(|n| unit(n, 1, Place::Settled(id(places[n] % members)))).collect();
        settle_groups(&fleet, &groups, &mut units);
        prop_assert_eq!(loads(&fleet, &units).iter().filter(|&&load| load > 0).count(), 1);
        fleet.insert(id(leaves % members), member(Role::Leaving));
        settle_groups(&fleet, &groups, &mut units);
        let owners: BTreeSet<_> = units.iter().map(|unit| unit.place.owner().cloned()).collect();
        prop_assert_eq!(owners.len(), 1);
    }

    /// Two groups that watch the same kind of the same clusters: together as far as balance lets
    /// them.
    #[test]
    fn groups_that_share_kinds_sit_together(members in 1..5usize, clusters in 8..30usize) {
        let groups: Vec<GroupName> = ["one", "two"].map(|name| name.parse().unwrap()).into();
        let traits = GroupTraits { kinds: BTreeSet::from(["/Pod".to_owned()]), ..Default::default() };
        let traits: BTreeMap<_, _> = groups.iter().map(|g| (g.clone(), traits.clone())).collect();
        let mut fleet = open(members);
        fleet.values_mut().for_each(|member| member.groups.extend(groups.iter().cloned()));
        let shard = |n: usize| format!("c{}/{}/0/1", n / 2, groups[n % 2]).parse().unwrap();
        let mut units: Vec<Unit> = (0..clusters * 2)
            .map(|n| Unit { shard: shard(n), weight: 1, place: Place::Unowned })
            .collect();
        settle_groups(&fleet, &traits, &mut units);
        let apart = units.chunks(2).filter(|pair| pair[0].place != pair[1].place).count();
        prop_assert!(apart <= members, "{apart} of {clusters} pairs are apart");
        let most = loads(&fleet, &units).into_iter().max().unwrap();
        prop_assert!(f64::from(most) <= (1.1 * mean(&units, members)).max(mean(&units, members) + 1.0));
    }
}
