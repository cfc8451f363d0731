//! Single situations.

use super::*;

#[test]
fn thirty_clusters_on_three_members_are_ten_each() {
    let (members, mut shards) = (open(3), unowned(30));
    assert_eq!(settle(&members, &mut shards).len(), 30);
    assert_eq!(loads(&members, &shards), [10, 10, 10]);
}

#[test]
fn a_hundred_on_ten_are_within_a_tenth_of_the_mean() {
    let (members, mut shards) = (open(10), unowned(100));
    settle(&members, &mut shards);
    assert!(loads(&members, &shards).into_iter().max().unwrap() <= 11);
}

#[test]
fn when_one_of_ten_leaves_only_its_ten_of_a_hundred_clusters_move() {
    let (mut members, mut shards) = (open(10), unowned(100));
    settle(&members, &mut shards);
    members.insert(id(3), member(Role::Leaving));
    let moves = settle(&members, &mut shards);
    assert_eq!(moves.len(), 10);
    assert!(moves.iter().all(|step| step.reason == Reason::OwnerLeaves));
}

#[test]
fn a_newcomer_is_filled_to_its_share() {
    let (members, mut shards) = (open(2), unowned(30));
    settle(&members, &mut shards);
    let moves = settle(&open(3), &mut shards);
    assert!(moves.len() <= 10 && moves.iter().all(|step| step.to == Some(id(2))));
    assert!(loads(&open(3), &shards).iter().all(|load| (8..=11).contains(load)));
}

#[test]
fn a_leaver_without_a_next_owner_drains_its_shards() {
    let members = BTreeMap::from([(id(0), member(Role::Leaving))]);
    let mut shards = [shard(0, 1, Placement::Settled(id(0)))];
    let moves = planned(&members, &shards);
    assert_eq!((moves.len(), &moves[0].to, moves[0].reason), (1, &None, Reason::OwnerLeaves));
    shards[0].placement = Placement::Moving { from: id(0), to: None };
    assert_eq!(planned(&members, &shards), [], "it lets go already");
}

#[test]
fn a_cordoned_member_without_a_next_owner_keeps_its_shards() {
    let members = BTreeMap::from([(id(0), member(Role::Cordoned))]);
    assert_eq!(planned(&members, &[shard(0, 1, Placement::Settled(id(0)))]), []);
    assert_eq!(planned(&members, &[shard(0, 1, Placement::Unowned)]), [], "nor does it get any");
}

#[test]
fn a_drain_whose_target_died_finds_another() {
    let mut members = open(2);
    members.insert(id(0), member(Role::Leaving));
    let lost = [shard(0, 1, Placement::Moving { from: id(0), to: Some(id(7)) })];
    let moves = planned(&members, &lost);
    assert_eq!((&moves[0].to, moves[0].reason), (&Some(id(1)), Reason::TargetLost));
    members.insert(id(1), member(Role::Open));
    assert_eq!(
        planned(&members, &[shard(0, 1, Placement::Moving { from: id(0), to: Some(id(1)) })]),
        []
    );
}

#[test]
fn a_drain_whose_target_died_ends_at_its_owner_if_possible() {
    let mut shards = unowned(8);
    settle(&open(2), &mut shards);
    let Placement::Settled(owner) = shards[0].placement.clone() else { panic!("{:?}", shards[0]) };
    shards[0].placement = Placement::Moving { from: owner.clone(), to: Some(id(7)) };
    let moves = planned(&open(2), &shards);
    assert_eq!((moves.len(), &moves[0].to), (1, &Some(owner)));
}

#[test]
fn a_silent_member_keeps_its_shards_and_gets_none() {
    let mut members = open(2);
    members.insert(id(0), member(Role::Suspect));
    let mut shards = unowned(6);
    for shard in &mut shards[..4] {
        shard.placement = Placement::Settled(id(0));
    }
    let moves = settle(&members, &mut shards);
    assert_eq!((moves.len(), loads(&members, &shards)), (2, vec![4, 2]));
}

#[test]
fn a_group_goes_only_where_it_can_run() {
    let mut members = open(2);
    members.get_mut(&id(0)).unwrap().groups.clear();
    let mut shards = unowned(4);
    settle(&members, &mut shards);
    assert_eq!(loads(&members, &shards), [0, 4]);
}

#[test]
fn capacity_draws_load_in_proportion() {
    let mut members = open(2);
    members.get_mut(&id(0)).unwrap().capacity = 300;
    let mut shards = unowned(40);
    settle(&members, &mut shards);
    assert_eq!(loads(&members, &shards), [30, 10]);
}

#[test]
fn balancing_is_bounded_in_flight() {
    let members = open(2);
    let bound = Limits::default().moves_per_member;
    let mut shards: Vec<PlanShard> =
        (0..100).map(|n| shard(n, 1, Placement::Settled(id(0)))).collect();
    assert_eq!(planned(&members, &shards).len(), bound);
    for shard in &mut shards[..bound] {
        shard.placement = Placement::Moving { from: id(0), to: Some(id(1)) };
    }
    assert_eq!(planned(&members, &shards), []);
}

#[test]
fn a_newcomer_is_filled_past_the_bound_that_began_it() {
    // 11, 11 and 8 of 30: within a tenth, and not even yet.
    let mut shards: Vec<PlanShard> =
        (0..11).map(|n| shard(n, 1, Placement::Settled(id(0)))).collect();
    shards.extend((11..22).map(|n| shard(n, 1, Placement::Settled(id(1)))));
    shards.extend((22..30).map(|n| shard(n, 1, Placement::Settled(id(2)))));
    assert_eq!(planned(&open(3), &shards), [], "all have arrived");
    for shard in &mut shards[26..] {
        shard.placement = Placement::Moving { from: id(0), to: Some(id(2)) };
    }
    assert_eq!(planned(&open(3), &shards).len(), 2, "it had four before");
}

#[test]
fn what_one_shard_too_heavy_costs_does_not_hide_the_rest() {
    // The heavy shard is nearly alone, and no other member stays idle.
    let mut shards = vec![shard(0, 600, Placement::Settled(id(0)))];
    shards.extend((1..41).map(|n| shard(n, 10, Placement::Settled(id(n % 2)))));
    settle(&open(5), &mut shards);
    let mut loads = loads(&open(5), &shards);
    loads.sort_unstable();
    assert!(loads[..4].iter().all(|load| (50..=110).contains(load)), "{loads:?}");
    assert!(loads[4] <= 660, "{loads:?}");
}

#[test]
fn only_members_that_no_move_would_relieve_are_stuck() {
    let stuck = |shards: &[PlanShard]| plan(&open(2), &BTreeMap::new(), shards, &Limits::default());
    let heavy =
        [shard(0, 900, Placement::Settled(id(0))), shard(1, 100, Placement::Settled(id(1)))];
    assert_eq!((stuck(&heavy).stuck, stuck(&heavy).share), (vec![id(0)], 500));
    let even = [shard(0, 500, Placement::Settled(id(0))), shard(1, 500, Placement::Settled(id(1)))];
    assert_eq!(stuck(&even).stuck, []);
    let movable: Vec<PlanShard> =
        (0..10).map(|n| shard(n, 100, Placement::Settled(id(0)))).collect();
    assert_eq!(stuck(&movable).stuck, []);
    let whole = plan(&open(2), &scoped(GroupScope::Cluster), &heavy, &Limits::default());
    assert_eq!((whole.stuck, whole.share), (vec![], 100), "it cannot be split");
    let object = [PlanShard { divisible: 50, ..heavy[0].clone() }, heavy[1].clone()];
    assert_eq!(stuck(&object).stuck, [], "nearly all of it is one object");
    let objects = [PlanShard { divisible: 400, ..heavy[0].clone() }, heavy[1].clone()];
    assert_eq!(stuck(&objects).stuck, [id(0)]);
}

#[test]
fn a_group_of_scope_fleet_waits_until_its_former_owner_is_done_everywhere() {
    let groups = scoped(GroupScope::Fleet);
    let moves = |shards: &[PlanShard]| plan(&open(2), &groups, shards, &Limits::default()).moves;
    let moving = |from| Placement::Moving { from: id(from), to: Some(id(1)) };
    assert_eq!(moves(&[shard(0, 1, moving(0)), shard(1, 1, Placement::Unowned)]), []);
    let free = [shard(0, 1, Placement::Settled(id(1))), shard(1, 1, Placement::Unowned)];
    assert_eq!((moves(&free)[0].to.clone(), moves(&free).len()), (Some(id(1)), 1));
    let apart = [0, 0, 1].map(|n| Placement::Settled(id(n)));
    let apart: Vec<PlanShard> =
        apart.into_iter().enumerate().map(|(n, at)| shard(n, 1, at)).collect();
    let step = &moves(&apart)[0];
    assert_eq!(
        (&step.shard, &step.to, step.reason),
        (&apart[2].id, &Some(id(0)), Reason::Together)
    );
}

#[test]
fn scores_spread_evenly_over_names_that_differ_in_one_digit() {
    let members: Vec<_> = (0..10).map(id).collect();
    let mut wins = [0u32; 10];
    for shard in unowned(10_000) {
        let best = (0..10).max_by_key(|&n| rendezvous(&members[n], &shard.id)).unwrap();
        wins[best] += 1;
    }
    assert!(wins.iter().all(|wins| (850..1150).contains(wins)), "{wins:?}");
}

#[test]
fn the_rendezvous_score_is_the_one_used() {
    let (members, shards) = (open(5), unowned(1));
    let moves = planned(&members, &shards);
    let best = members.keys().max_by_key(|id| rendezvous(id, &shards[0].id)).unwrap();
    assert_eq!(moves[0].to.as_ref(), Some(best));
}

#[test]
fn what_comes_back_goes_to_the_process_that_had_it() {
    let members = open(3);
    let had = |n: usize| PlanShard {
        before: Some(id(n * 7 % 30 / 10)),
        ..shard(n, 1, Placement::Unowned)
    };
    let shards: Vec<PlanShard> = (0..30).map(had).collect();
    let moves = planned(&members, &shards);
    assert_eq!(moves.len(), 30);
    let before = |step: &Move| shards.iter().find(|shard| shard.id == step.shard).unwrap();
    assert!(moves.iter().all(|step| step.to == before(step).before));
    // Not beyond its share.
    let one = |n: usize| PlanShard { before: Some(id(0)), ..shard(n, 1, Placement::Unowned) };
    let mut shards: Vec<PlanShard> = (0..30).map(one).collect();
    settle(&members, &mut shards);
    assert!(loads(&members, &shards).into_iter().all(|load| (9..=11).contains(&load)));
}
