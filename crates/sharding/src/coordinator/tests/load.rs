//! Loads, splits and merges, maintenance, and groups of scope `Fleet`.

use model::GroupScope;

use super::*;
use crate::api::{GroupDetail, ShardLoad};
use crate::weight::MEMORY;

fn loads(told: &[(&str, u32)]) -> Vec<ShardLoad> {
    let load = |&(shard, busy): &(&str, u32)| ShardLoad {
        shard: shard.parse().unwrap(),
        busy,
        heaviest: Some(busy / 10),
        events: 0,
        cached: 0,
        waiting: 0,
    };
    told.iter().map(load).collect()
}

fn acknowledged(shards: &[(&str, u64)]) -> Vec<AcknowledgedDrain> {
    let drain = |&(shard, epoch): &(&str, u64)| AcknowledgedDrain {
        shard: shard.parse().unwrap(),
        epoch: Epoch(epoch),
    };
    shards.iter().map(drain).collect()
}

fn scoped(scope: GroupScope) -> impl Fn(&mut MemberSpec) {
    move |spec| {
        let group = "g".parse().unwrap();
        let (controllers, shared_kinds) = (Vec::new(), Vec::new());
        spec.group_details = vec![GroupDetail { group, controllers, scope, shared_kinds }];
    }
}

/// A member with more than its share in one shard, and a member without shards.
fn pressed() -> Scene {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
    scene.member("m-0", |spec| spec.loads = loads(&[("east/g/0/1", 900)]).into());
    scene.map("east", "m-0@4");
    scene
}

#[test]
fn what_is_too_much_for_one_member_is_drained_and_then_split_in_one_write() {
    let mut scene = pressed();
    scene.check(&["update east v6: g/0/1 m-0>m-0@4"]);
    scene.map("east", "m-0>m-0@4");
    scene.check(&[]);
    scene.member("m-0", |spec| spec.acknowledged_drains = acknowledged(&[("east/g/0/1", 4)]));
    // Its owner keeps both halves, because it has the caches. One of them moves next.
    let split = ["update east v7: g/0/2 m-0@5, g/1/2 m-0@5"];
    scene.check(&split);
    scene.check(&split);
    scene.map_of("east", &[("g/0/2", "m-0@5"), ("g/1/2", "m-0@5")]);
    let moved = scene.writes();
    assert_eq!(moved.len(), 1);
    assert_eq!(moved[0].matches("m-0>m-1@5").count(), 1, "{moved:?}");
}

#[test]
fn a_split_of_a_dead_members_shard_gives_its_halves_to_others() {
    let mut scene = pressed();
    scene.writes();
    scene.map("east", "m-0>m-0@4");
    scene.lease("m-0", Some("m-1"));
    scene.check(&["update east v7: g/0/2 m-1@5, g/1/2 m-1@5"]);
}

#[test]
fn the_next_coordinator_merely_ends_the_drain_of_a_split() {
    let mut scene = pressed();
    scene.writes();
    scene.map("east", "m-0>m-0@4");
    scene.coordinator = Coordinator::default();
    scene.member("m-0", |spec| spec.acknowledged_drains = acknowledged(&[("east/g/0/1", 4)]));
    scene.check(&["update east v7: g/0/1 m-0@5"]);
}

#[test]
fn a_shard_that_may_not_be_split_is_not() {
    let mut scene = pressed();
    // The strictest scope counts, whichever member reports it.
    scene.member("m-1", scoped(GroupScope::Cluster));
    scene.check(&[]);
}

/// Two idle halves on two members, and a coordinator that has waited long enough to know this.
fn halves() -> Scene {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
    scene.map_of("east", &[("g/0/2", "m-0@5"), ("g/1/2", "m-1@8")]);
    scene.pass(MEMORY);
    scene.renew("m-0");
    scene.renew("m-1");
    scene
}

const MERGING: [(&str, &str); 2] = [("g/0/2", "m-0>m-0@5"), ("g/1/2", "m-1>m-0@8")];

#[test]
fn idle_halves_drain_and_merge_when_both_are_done() {
    let mut scene = halves();
    scene.check(&["update east v5: g/0/2 m-0>m-0@5, g/1/2 m-1>m-0@8"]);
    scene.map_of("east", &MERGING);
    let done = |shard| acknowledged(&[shard]);
    scene.member("m-0", |spec| spec.acknowledged_drains = done(("east/g/0/2", 5)));
    // Its owner does not get it again at the next epoch: it waits for the other half.
    scene.check(&[]);
    scene.member("m-1", |spec| spec.acknowledged_drains = done(("east/g/1/2", 8)));
    scene.check(&["update east v8: g/0/1 m-0@9"]);
}

#[test]
fn a_merge_whose_heir_leaves_goes_to_another() {
    let mut scene = halves();
    scene.writes();
    scene.map_of("east", &MERGING);
    scene.member("m-0", |spec| spec.state = MemberState::Leaving);
    let heirs = [("g/0/2", "m-0>m-1@5"), ("g/1/2", "m-1>m-1@8")];
    scene.check(&["update east v8: g/0/2 m-0>m-1@5, g/1/2 m-1>m-1@8"]);
    scene.map_of("east", &heirs);
    scene.member("m-0", |spec| {
        spec.state = MemberState::Leaving;
        spec.acknowledged_drains = acknowledged(&[("east/g/0/2", 5)]);
    });
    scene.member("m-1", |spec| spec.acknowledged_drains = acknowledged(&[("east/g/1/2", 8)]));
    scene.check(&["update east v10: g/0/1 m-1@9"]);
}

#[test]
fn a_new_coordinator_takes_nobody_for_idle_before_all_had_time_to_tell() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
    scene.map_of("east", &[("g/0/2", "m-0@5"), ("g/1/2", "m-1@8")]);
    let plan = scene.plan();
    assert_eq!(plan.writes, []);
    assert!(plan.wake.is_some(), "it looks again");
}

#[test]
fn load_counts_and_not_the_number_of_shards() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["a", "b", "c"]);
    scene.member("m-0", |spec| {
        scoped(GroupScope::Cluster)(spec);
        spec.loads = loads(&[("a/g/0/1", 400)]).into();
    });
    scene.map("a", "m-0@1");
    scene.map("b", "m-1@1");
    scene.check(&["create c v: g/0/1 m-1@1"]);
}

#[test]
fn a_member_under_maintenance_loses_what_it_has_and_gets_nothing() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east", "west"]);
    scene.member("m-1", |spec| spec.drain = true);
    scene.map("east", "m-1@4");
    scene.check(&["update east v6: g/0/1 m-1>m-0@4", "create west v: g/0/1 m-0@1"]);
}

#[test]
fn a_drain_towards_a_member_under_maintenance_turns_back() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
    scene.member("m-1", |spec| spec.drain = true);
    scene.map("east", "m-0>m-1@4");
    scene.check(&["update east v6: g/0/1 m-0>m-0@4"]);
}

#[test]
fn a_group_of_the_fleet_changes_hands_in_all_clusters_or_in_none() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east", "north", "west"]);
    let leaving = |drains: &'static [(&str, u64)]| {
        move |spec: &mut MemberSpec| {
            scoped(GroupScope::Fleet)(spec);
            spec.state = MemberState::Leaving;
            spec.acknowledged_drains = acknowledged(drains);
        }
    };
    scene.map("east", "m-1>m-0@4");
    scene.map("west", "m-1>m-0@7");
    scene.member("m-1", leaving(&[("east/g/0/1", 4)]));
    // Neither the free shard nor the one that never had an owner gets one.
    scene.check(&["update east v5: g/0/1 @4", "create north v: g/0/1 @0"]);
    scene.member("m-1", leaving(&[("east/g/0/1", 4), ("west/g/0/1", 7)]));
    scene.check(&[
        "update east v5: g/0/1 m-0@5",
        "create north v: g/0/1 @0",
        "update west v6: g/0/1 m-0@8",
    ]);
    scene.map("east", "m-0@5");
    scene.map("west", "m-0@8");
    scene.check(&["create north v: g/0/1 m-0@1"]);
}
