//! Single situations.

use super::*;

#[test]
fn thirty_clusters_on_three_members_are_ten_each() {
    let (members, mut units) = (open(3), unowned(30));
    assert_eq!(settle(&members, &mut units).len(), 30);
    assert_eq!(loads(&members, &units), [10, 10, 10]);
}

#[test]
fn a_hundred_on_ten_are_within_a_tenth_of_the_mean() {
    let (members, mut units) = (open(10), unowned(100));
    settle(&members, &mut units);
    assert!(loads(&members, &units).into_iter().max().unwrap() <= 11);
}

#[test]
fn when_one_of_ten_leaves_only_its_ten_of_a_hundred_clusters_move() {
    let (mut members, mut units) = (open(10), unowned(100));
    settle(&members, &mut units);
    members.insert(id(3), member(Role::Leaving));
    let moves = settle(&members, &mut units);
    assert_eq!(moves.len(), 10);
    assert!(moves.iter().all(|step| step.reason == Reason::OwnerLeaves));
}

#[test]
fn a_newcomer_is_filled_to_its_share() {
    let (members, mut units) = (open(2), unowned(30));
    settle(&members, &mut units);
    let moves = settle(&open(3), &mut units);
    assert!(moves.len() <= 10 && moves.iter().all(|step| step.to == Some(id(2))));
    assert!(loads(&open(3), &units).iter().all(|load| (8..=11).contains(load)));
}

#[test]
fn a_leaver_without_heirs_lets_go() {
    let members = BTreeMap::from([(id(0), member(Role::Leaving))]);
    let mut units = [unit(0, 1, Place::Settled(id(0)))];
    let moves = planned(&members, &units);
    assert_eq!((moves.len(), &moves[0].to, moves[0].reason), (1, &None, Reason::OwnerLeaves));
    units[0].place = Place::Moving { from: id(0), to: None };
    assert_eq!(planned(&members, &units), [], "it lets go already");
}

#[test]
fn a_member_under_maintenance_without_heirs_goes_on() {
    let members = BTreeMap::from([(id(0), member(Role::Emptying))]);
    assert_eq!(planned(&members, &[unit(0, 1, Place::Settled(id(0)))]), []);
    assert_eq!(planned(&members, &[unit(0, 1, Place::Unowned)]), [], "nor does it get any");
}

#[test]
fn a_drain_whose_target_died_finds_another() {
    let mut members = open(2);
    members.insert(id(0), member(Role::Leaving));
    let lost = [unit(0, 1, Place::Moving { from: id(0), to: Some(id(7)) })];
    let moves = planned(&members, &lost);
    assert_eq!((&moves[0].to, moves[0].reason), (&Some(id(1)), Reason::TargetLost));
    members.insert(id(1), member(Role::Open));
    assert_eq!(
        planned(&members, &[unit(0, 1, Place::Moving { from: id(0), to: Some(id(1)) })]),
        []
    );
}

#[test]
fn a_drain_whose_target_died_ends_at_home_if_it_can() {
    let mut units = unowned(8);
    settle(&open(2), &mut units);
    let Place::Settled(owner) = units[0].place.clone() else { panic!("{:?}", units[0]) };
    units[0].place = Place::Moving { from: owner.clone(), to: Some(id(7)) };
    let moves = planned(&open(2), &units);
    assert_eq!((moves.len(), &moves[0].to), (1, &Some(owner)));
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
    let bound = Limits::default().moves_per_member;
    let mut units: Vec<Unit> = (0..100).map(|n| unit(n, 1, Place::Settled(id(0)))).collect();
    assert_eq!(planned(&members, &units).len(), bound);
    for unit in &mut units[..bound] {
        unit.place = Place::Moving { from: id(0), to: Some(id(1)) };
    }
    assert_eq!(planned(&members, &units), []);
}

#[test]
fn a_newcomer_is_filled_past_the_bound_that_began_it() {
    // 11, 11 and 8 of 30: within a tenth, and not even yet.
    let mut units: Vec<Unit> = (0..11).map(|n| unit(n, 1, Place::Settled(id(0)))).collect();
    units.extend((11..22).map(|n| unit(n, 1, Place::Settled(id(1)))));
    units.extend((22..30).map(|n| unit(n, 1, Place::Settled(id(2)))));
    assert_eq!(planned(&open(3), &units), [], "all have arrived");
    for unit in &mut units[26..] {
        unit.place = Place::Moving { from: id(0), to: Some(id(2)) };
    }
    assert_eq!(planned(&open(3), &units).len(), 2, "it had four before");
}

#[test]
fn what_one_shard_too_heavy_costs_does_not_hide_the_rest() {
    // The heavy one is nearly alone, and none of the others stays idle.
    let mut units = vec![unit(0, 600, Place::Settled(id(0)))];
    units.extend((1..41).map(|n| unit(n, 10, Place::Settled(id(n % 2)))));
    settle(&open(5), &mut units);
    let mut loads = loads(&open(5), &units);
    loads.sort_unstable();
    assert!(loads[..4].iter().all(|load| (50..=110).contains(load)), "{loads:?}");
    assert!(loads[4] <= 660, "{loads:?}");
}

#[test]
fn only_what_no_move_can_mend_is_pressed() {
    let pressed = |units: &[Unit]| plan(&open(2), &BTreeMap::new(), units, &Limits::default());
    let heavy = [unit(0, 900, Place::Settled(id(0))), unit(1, 100, Place::Settled(id(1)))];
    assert_eq!((pressed(&heavy).pressed, pressed(&heavy).share), (vec![id(0)], 500));
    let even = [unit(0, 500, Place::Settled(id(0))), unit(1, 500, Place::Settled(id(1)))];
    assert_eq!(pressed(&even).pressed, []);
    let movable: Vec<Unit> = (0..10).map(|n| unit(n, 100, Place::Settled(id(0)))).collect();
    assert_eq!(pressed(&movable).pressed, []);
    let whole = plan(&open(2), &scoped(GroupScope::Cluster), &heavy, &Limits::default());
    assert_eq!((whole.pressed, whole.share), (vec![id(0)], 100), "it cannot be split");
}

#[test]
fn a_group_of_the_fleet_waits_until_its_former_owner_is_done_everywhere() {
    let groups = scoped(GroupScope::Fleet);
    let moves = |units: &[Unit]| plan(&open(2), &groups, units, &Limits::default()).moves;
    let moving = |from| Place::Moving { from: id(from), to: Some(id(1)) };
    assert_eq!(moves(&[unit(0, 1, moving(0)), unit(1, 1, Place::Unowned)]), []);
    let free = [unit(0, 1, Place::Settled(id(1))), unit(1, 1, Place::Unowned)];
    assert_eq!((moves(&free)[0].to.clone(), moves(&free).len()), (Some(id(1)), 1));
    let apart = [0, 0, 1].map(|n| Place::Settled(id(n)));
    let apart: Vec<Unit> = apart.into_iter().enumerate().map(|(n, at)| unit(n, 1, at)).collect();
    let step = &moves(&apart)[0];
    assert_eq!(
        (&step.shard, &step.to, step.reason),
        (&apart[2].shard, &Some(id(0)), Reason::Together)
    );
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
