//! Laws that hold for any fleet.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Weights and owners of shards.
fn drawn(most: usize) -> impl Strategy<Value = Vec<(u32, usize)>> {
    vec((1..20u32, 0..64usize), 0..most)
}

fn settled(drawn: &[(u32, usize)], members: usize) -> Vec<PlanShard> {
    let shard = |(n, &(weight, at)): (usize, &(u32, usize))| {
        shard(n, weight, Placement::Settled(id(at % members)))
    };
    drawn.iter().enumerate().map(shard).collect()
}

/// The mean load of the members.
fn mean(shards: &[PlanShard], members: usize) -> f64 {
    shards.iter().map(|shard| f64::from(shard.weight)).sum::<f64>() / members as f64
}

fn heaviest(shards: &[PlanShard], member: &MemberId) -> f64 {
    let its = shards.iter().filter(|shard| shard.placement == Placement::Settled(member.clone()));
    its.map(|shard| f64::from(shard.weight)).fold(0.0, f64::max)
}

proptest! {
    #[test]
    fn shards_of_one_weight_start_within_one(members in 1..12usize, count in 0..80usize) {
        let (members, mut shards) = (open(members), unowned(count));
        prop_assert_eq!(settle(&members, &mut shards).len(), count);
        let loads = loads(&members, &shards);
        prop_assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1, "{loads:?}");
    }

    #[test]
    fn a_join_moves_its_share_and_only_onto_the_newcomer(
        members in 1..12usize, count in 0..80usize,
    ) {
        let mut shards = unowned(count);
        settle(&open(members), &mut shards);
        let moves = settle(&open(members + 1), &mut shards);
        prop_assert!(moves.len() <= count.div_ceil(members + 1), "{} moves", moves.len());
        prop_assert!(moves.iter().all(|step| step.to == Some(id(members))));
    }

    #[test]
    fn a_leave_moves_only_the_leavers(members in 2..12usize, count in 0..80usize, who in 0..12usize) {
        let mut fleet = open(members);
        let mut shards = unowned(count);
        settle(&fleet, &mut shards);
        let leaver = id(who % members);
        let mut its: Vec<_> = shards
            .iter()
            .filter(|shard| shard.placement == Placement::Settled(leaver.clone()))
            .map(|shard| shard.id.clone())
            .collect();
        fleet.insert(leaver, member(Role::Leaving));
        let mut moved: Vec<_> =
            settle(&fleet, &mut shards).into_iter().map(|step| step.shard).collect();
        its.sort();
        moved.sort();
        prop_assert_eq!(moved, its);
    }

    /// With any weights, however they wander: while no member is above the bound or idle, nothing moves.
    #[test]
    fn within_the_bounds_nothing_moves(
        members in 1..8usize, drawn in vec((8..20u32, 0..4u32), 30..80),
    ) {
        let fleet = open(members);
        let mut shards: Vec<PlanShard> =
            drawn.iter().enumerate().map(|(n, s)| shard(n, s.0 * 10, Placement::Unowned)).collect();
        settle(&fleet, &mut shards);
        for (shard, (_, wander)) in shards.iter_mut().zip(&drawn) {
            shard.weight += wander * 3;
        }
        let (loads, mean) = (loads(&fleet, &shards), mean(&shards, members));
        let within = |&load: &u32| (0.5 * mean..=1.1 * mean).contains(&f64::from(load));
        prop_assume!(loads.iter().all(within));
        prop_assert_eq!(planned(&fleet, &shards), []);
    }

    /// Each balancing move takes from a member with too much or gives to one with too little, and never
    /// makes the taker the heavier of the two.
    #[test]
    fn balance_moves_no_more_than_it_must(members in 2..8usize, drawn in drawn(80)) {
        let (fleet, mut shards) = (open(members), settled(&drawn, members));
        let mean = mean(&shards, members);
        prop_assume!(shards.iter().all(|shard| f64::from(shard.weight) <= mean));
        for step in planned(&fleet, &shards) {
            let loads: BTreeMap<_, _> = fleet.keys().zip(loads(&fleet, &shards)).collect();
            let shard = shards.iter_mut().find(|shard| shard.id == step.shard).unwrap();
            let (from, to) = (shard.placement.owner().unwrap().clone(), step.to.unwrap());
            let (giver, taker) = (f64::from(loads[&from]), f64::from(loads[&to]));
            prop_assert!(giver > 1.05 * mean || (taker < 0.95 * mean && giver > mean));
            prop_assert!(loads[&from] - shard.weight >= loads[&to] + shard.weight);
            shard.placement = Placement::Settled(to);
        }
    }

    /// In a settled fleet, no overloaded member could give a shard to another without making that one
    /// as heavy.
    #[test]
    fn it_settles_within_the_bounds_where_shards_allow(members in 1..8usize, drawn in drawn(60)) {
        let (fleet, mut shards) = (open(members), settled(&drawn, members));
        settle(&fleet, &mut shards);
        let loads: BTreeMap<_, _> = fleet.keys().zip(loads(&fleet, &shards)).collect();
        let (mean, lightest) = (mean(&shards, members), *loads.values().min().unwrap());
        for (member, &load) in &loads {
            let share = mean.max(heaviest(&shards, member));
            let lighter = |shard: &&PlanShard| load - shard.weight >= lightest + shard.weight;
            let its = shards.iter().filter(|shard| shard.placement == Placement::Settled((*member).clone()));
            prop_assert!(
                f64::from(load) <= 1.1 * share || !its.into_iter().any(|shard| lighter(&shard)),
                "{member} carries {load} of {loads:?}"
            );
        }
    }

    /// With any weights and placements, planning ends and its result is stable.
    #[test]
    fn every_fleet_settles_and_stays(
        members in 1..8usize,
        drawn in vec((1..20u32, 0..9usize, 0..3u8), 0..60),
    ) {
        let fleet = open(members);
        let place = |(n, (weight, at, kind)): (usize, (u32, usize, u8))| match kind {
            0 => shard(n, weight, Placement::Unowned),
            1 => shard(n, weight, Placement::Settled(id(at % members))),
            _ => shard(n, weight, Placement::Moving { from: id(at % members), to: Some(id(at)) }),
        };
        let mut shards: Vec<PlanShard> = drawn.into_iter().enumerate().map(place).collect();
        let first = planned(&fleet, &shards);
        let lost = |shard: &&PlanShard| matches!(&shard.placement, Placement::Moving { to: Some(to), .. } if !fleet.contains_key(to));
        prop_assert!(shards.iter().filter(lost).all(|u| first.iter().any(|s| s.shard == u.id)));
        // Drains under way end first, because an earlier plan began their moves.
        for shard in &mut shards {
            if let Placement::Moving { to: Some(to), .. } = &shard.placement {
                shard.placement =
                    if fleet.contains_key(to) { Placement::Settled(to.clone()) } else { Placement::Unowned };
            }
        }
        settle(&fleet, &mut shards);
        prop_assert!(shards.iter().all(|shard| matches!(shard.placement, Placement::Settled(_))));
        prop_assert_eq!(planned(&fleet, &shards), []);
    }

    #[test]
    fn the_order_of_shards_does_not_matter(
        members in 1..6usize,
        drawn in drawn(40),
        order in any::<prop::sample::Index>(),
    ) {
        let fleet = open(members);
        let mut shards = settled(&drawn, members);
        shards.iter_mut().step_by(3).for_each(|shard| shard.placement = Placement::Unowned);
        let before = plan(&fleet, &BTreeMap::new(), &shards, &Limits::default());
        if !shards.is_empty() {
            let by = order.index(shards.len());
            shards.rotate_left(by);
            shards.reverse();
        }
        prop_assert_eq!(plan(&fleet, &BTreeMap::new(), &shards, &Limits::default()), before);
    }

    /// Moves for balance and maintenance are bounded together at every moment, with drains that end in
    /// any order.
    #[test]
    fn what_may_wait_is_bounded_in_flight(
        members in 2..8usize,
        drawn in drawn(120),
        ends in vec(any::<prop::sample::Index>(), 60),
    ) {
        let mut fleet = open(members);
        fleet.insert(id(0), member(Role::Cordoned));
        let limits = Limits { moves_per_member: 3, moves_in_fleet: 5, ..Limits::default() };
        let mut shards = settled(&drawn, members);
        for end in ends {
            for step in plan(&fleet, &BTreeMap::new(), &shards, &limits).moves {
                let shard = shards.iter_mut().find(|shard| shard.id == step.shard).unwrap();
                let from = shard.placement.owner().unwrap().clone();
                prop_assert!(step.to != Some(id(0)), "it gets nothing");
                shard.placement = Placement::Moving { from, to: step.to };
            }
            let moving: Vec<usize> = (0..shards.len())
                .filter(|&n| matches!(shards[n].placement, Placement::Moving { .. }))
                .collect();
            prop_assert!(moving.len() <= limits.moves_in_fleet);
            for id in fleet.keys() {
                let about = moving.iter().filter(|&&n| matches!(&shards[n].placement,
                    Placement::Moving { from, to } if from == id || to.as_ref() == Some(id)));
                prop_assert!(about.count() <= limits.moves_per_member);
            }
            if let Some(&n) = moving.get(end.index(moving.len().max(1))) {
                let Placement::Moving { to: Some(to), .. } = shards[n].placement.clone() else { continue };
                shards[n].placement = Placement::Settled(to);
            }
        }
    }

    #[test]
    fn a_member_under_maintenance_ends_empty(members in 2..8usize, drawn in drawn(80)) {
        let mut fleet = open(members);
        fleet.insert(id(0), member(Role::Cordoned));
        let mut shards = settled(&drawn, members);
        settle(&fleet, &mut shards);
        prop_assert_eq!(loads(&fleet, &shards)[0], 0);
    }

    /// A group of scope `Fleet` sits on one member, whatever else there is. Its next owner gets it only
    /// when the one before has nothing left.
    #[test]
    fn a_group_of_scope_fleet_moves_as_one(
        members in 1..6usize, count in 1..30usize, places in vec(0..6usize, 30), leaves in 0..6usize,
    ) {
        let mut fleet = open(members);
        let groups = scoped(GroupScope::Fleet);
        let mut shards: Vec<PlanShard> =
            (0..count).map(|n| shard(n, 1, Placement::Settled(id(places[n] % members)))).collect();
        settle_groups(&fleet, &groups, &mut shards);
        prop_assert_eq!(loads(&fleet, &shards).iter().filter(|&&load| load > 0).count(), 1);
        fleet.insert(id(leaves % members), member(Role::Leaving));
        settle_groups(&fleet, &groups, &mut shards);
        let owners: BTreeSet<_> = shards.iter().map(|shard| shard.placement.owner().cloned()).collect();
        prop_assert_eq!(owners.len(), 1);
    }

    /// Two groups of the same cluster sit together, as far as balance allows, whether they share kinds or only the
    /// connections; when a member takes the place of another, too.
    #[test]
    fn groups_of_a_cluster_sit_together(members in 1..5usize, clusters in 8..30usize, kinds in 0..2usize) {
        let groups: Vec<GroupName> = ["one", "two"].map(|name| name.parse().unwrap()).into();
        let kinds = ["/Pod".to_owned()].into_iter().take(kinds).collect();
        let traits = GroupTraits { kinds, ..Default::default() };
        let traits: BTreeMap<_, _> = groups.iter().map(|g| (g.clone(), traits.clone())).collect();
        let mut fleet = open(members);
        fleet.values_mut().for_each(|member| member.groups.extend(groups.iter().cloned()));
        let shard = |n: usize| format!("c{}/{}/0/1", n / 2, groups[n % 2]).parse().unwrap();
        let mut shards: Vec<PlanShard> = (0..clusters * 2)
            .map(|n| PlanShard {
                id: shard(n),
                weight: 1,
                divisible: 0,
                placement: Placement::Unowned,
                rests: false,
                before: None,
                preferences: None,
            })
            .collect();
        settle_groups(&fleet, &traits, &mut shards);
        let apart = |shards: &[PlanShard]| {
            shards.chunks(2).filter(|pair| pair[0].placement != pair[1].placement).count()
        };
        prop_assert!(apart(&shards) <= members, "{} of {clusters} pairs are apart", apart(&shards));
        let mut fewer = fleet.clone();
        fewer.insert(id(members), PlanMember { groups: groups.iter().cloned().collect(), ..member(Role::Open) });
        fewer.insert(id(0), PlanMember { role: Role::Leaving, ..fewer[&id(0)].clone() });
        let mut later = shards.clone();
        settle_groups(&fewer, &traits, &mut later);
        prop_assert!(apart(&later) <= 2 * members, "{} of {clusters} pairs are apart later", apart(&later));
        let most = loads(&fleet, &shards).into_iter().max().unwrap();
        prop_assert!(f64::from(most) <= (1.1 * mean(&shards, members)).max(mean(&shards, members) + 1.0));
    }
}
