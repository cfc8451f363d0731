//! The planner's laws, and cases to read.

use proptest::prelude::*;

use super::*;

const GROUP: &str = "tdset";

fn id(n: usize) -> MemberId {
    format!("m-{n}").parse().unwrap()
}

fn member(role: Role) -> PlanMember {
    PlanMember { role, capacity: 100, groups: BTreeSet::from([GROUP.parse().unwrap()]) }
}

fn open(members: usize) -> BTreeMap<MemberId, PlanMember> {
    (0..members).map(|n| (id(n), member(Role::Open))).collect()
}

fn unowned(shards: usize) -> Vec<Unit> {
    (0..shards)
        .map(|n| Unit {
            shard: format!("c{n}/{GROUP}/0/1").parse().unwrap(),
            weight: 1,
            place: Place::Unowned,
        })
        .collect()
}

fn planned(members: &BTreeMap<MemberId, PlanMember>, units: &[Unit]) -> Vec<Move> {
    plan(members, &BTreeMap::new(), units, &Limits::default()).moves
}

/// Plans and lets every drain end, until nothing moves; gives all moves.
fn settle(members: &BTreeMap<MemberId, PlanMember>, units: &mut [Unit]) -> Vec<Move> {
    let mut all = Vec::new();
    loop {
        let moves = planned(members, units);
        if moves.is_empty() {
            return all;
        }
        assert!(all.len() <= units.len() * 4, "it never settles: {moves:?}");
        for step in &moves {
            let unit = units.iter_mut().find(|unit| unit.shard == step.shard).unwrap();
            unit.place = step.to.clone().map_or(Place::Unowned, Place::Settled);
        }
        all.extend(moves);
    }
}

fn loads(members: &BTreeMap<MemberId, PlanMember>, units: &[Unit]) -> Vec<usize> {
    let of = |id: &MemberId| {
        units.iter().filter(|unit| unit.place == Place::Settled(id.clone())).count()
    };
    members.keys().map(of).collect()
}

#[test]
fn thirty_clusters_on_three_members_are_ten_each() {
    let (members, mut units) = (open(3), unowned(30));
    assert_eq!(settle(&members, &mut units).len(), 30);
    assert_eq!(loads(&members, &units), [10, 10, 10]);
}

#[test]
fn a_leaver_without_heirs_lets_go() {
    let members = BTreeMap::from([(id(0), member(Role::Leaving))]);
    let mut units = unowned(1);
    units[0].place = Place::Settled(id(0));
    let moves = planned(&members, &units);
    assert_eq!((moves.len(), &moves[0].to, moves[0].reason), (1, &None, Reason::OwnerLeaves));
    units[0].place = Place::Moving { from: id(0), to: None };
    assert_eq!(planned(&members, &units), [], "it lets go already");
}

#[test]
fn a_drain_whose_target_died_finds_another() {
    let mut members = open(2);
    let mut units = unowned(1);
    units[0].place = Place::Moving { from: id(0), to: Some(id(7)) };
    members.insert(id(0), member(Role::Leaving));
    let moves = planned(&members, &units);
    assert_eq!((&moves[0].to, moves[0].reason), (&Some(id(1)), Reason::TargetLost));
    members.insert(id(1), member(Role::Open));
    units[0].place = Place::Moving { from: id(0), to: Some(id(1)) };
    assert_eq!(planned(&members, &units), []);
}

#[test]
fn a_silent_member_keeps_its_shards_and_gets_none() {
    let mut members = open(2);
    members.insert(id(0), member(Role::Frozen));
    let mut units = unowned(6);
    for unit in &mut units[..4] {
        unit.place = Place::Settled(id(0));
    }
    let moves = settle(&members, &mut units);
    assert_eq!((moves.len(), loads(&members, &units)), (2, vec![4, 2]));
}

#[test]
fn a_group_goes_only_where_it_can_run() {
    let mut members = open(2);
    members.get_mut(&id(0)).unwrap().groups.clear();
    let mut units = unowned(4);
    settle(&members, &mut units);
    assert_eq!(loads(&members, &units), [0, 4]);
}

#[test]
fn capacity_draws_load_in_proportion() {
    let mut members = open(2);
    members.get_mut(&id(0)).unwrap().capacity = 300;
    let mut units = unowned(40);
    settle(&members, &mut units);
    assert_eq!(loads(&members, &units), [30, 10]);
}

#[test]
fn balancing_is_bounded_in_flight() {
    let members = open(2);
    let mut units = unowned(100);
    for unit in &mut units {
        unit.place = Place::Settled(id(0));
    }
    assert_eq!(planned(&members, &units).len(), Limits::default().moves_per_member);
    for unit in &mut units[..Limits::default().moves_per_member] {
        unit.place = Place::Moving { from: id(0), to: Some(id(1)) };
    }
    assert_eq!(planned(&members, &units), []);
}

#[test]
fn scores_spread_evenly_over_names_that_differ_in_one_digit() {
    let members: Vec<_> = (0..10).map(id).collect();
    let mut wins = [0u32; 10];
    for unit in unowned(10_000) {
        let best = (0..10).max_by_key(|&n| rendezvous(&members[n], &unit.shard)).unwrap();
        wins[best] += 1;
    }
    assert!(wins.iter().all(|wins| (850..1150).contains(wins)), "{wins:?}");
}

#[test]
fn the_published_score_is_the_one_used() {
    let (members, units) = (open(5), unowned(1));
    let moves = planned(&members, &units);
    let best = members.keys().max_by_key(|id| rendezvous(id, &units[0].shard)).unwrap();
    assert_eq!(moves[0].to.as_ref(), Some(best));
}

proptest! {
    #[test]
    fn shards_of_one_weight_end_within_one(members in 1..12usize, shards in 0..80usize) {
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

    /// Any weights, any places: planning ends, and what it reaches it keeps.
    #[test]
    fn every_fleet_settles_and_stays(
        members in 1..8usize,
        shards in proptest::collection::vec((1..20u32, 0..9usize, 0..9usize, 0..3u8), 0..60),
    ) {
        let fleet = open(members);
        let mut units = unowned(shards.len());
        for (unit, (weight, a, b, place)) in units.iter_mut().zip(shards) {
            unit.weight = weight;
            unit.place = match place {
                0 => Place::Unowned,
                1 => Place::Settled(id(a % members)),
                _ => Place::Moving { from: id(a % members), to: Some(id(b)) },
            };
        }
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
}
