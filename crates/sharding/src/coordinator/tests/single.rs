//! Work in no cluster: one shard in a map that stands for the fleet.

use model::GroupScope;

use super::*;
use crate::api::GroupDetail;

const FLEET: &str = model::single::FLEET;

/// A member that can run a controller and single work.
fn with_single(spec: &mut MemberSpec) {
    spec.groups.push("single.report".parse().unwrap());
}

#[test]
fn single_work_has_one_shard_and_controllers_have_theirs() {
    let mut scene = Scene::new(&["m-0"], &["east"]);
    scene.member("m-0", with_single);
    scene.check(&[
        "create east v: g/0/1 m-0@1",
        &format!("create {FLEET} v: single.report/0/1 m-0@1"),
    ]);
}

#[test]
fn it_needs_no_cluster_and_no_coordinator_that_can_run_it() {
    let mut scene = Scene::new(&["m-0", "m-1"], &[]);
    scene.member("m-1", with_single);
    scene.check(&[&format!("create {FLEET} v: single.report/0/1 m-1@1")]);
}

#[test]
fn it_is_drained_and_handed_over_as_any_shard() {
    let mut scene = Scene::new(&["m-0", "m-1"], &[]);
    scene.member("m-0", with_single);
    scene.map_of(FLEET, &[("single.report/0/1", "m-1@4")]);
    scene.member("m-1", |spec| {
        with_single(spec);
        spec.state = MemberState::Leaving;
    });
    scene.check(&[&format!("update {FLEET} v6: single.report/0/1 m-1>m-0@4")]);
    scene.map_of(FLEET, &[("single.report/0/1", "m-1>m-0@4")]);
    scene.check(&[]);
    scene.member("m-1", |spec| {
        with_single(spec);
        spec.state = MemberState::Leaving;
        let shard = format!("{FLEET}/single.report/0/1").parse().unwrap();
        spec.acknowledged_drains = vec![AcknowledgedDrain { shard, epoch: Epoch(4) }];
    });
    scene.check(&[&format!("update {FLEET} v8: single.report/0/1 m-0@5")]);
}

#[test]
fn a_map_of_a_cluster_that_nobody_can_read_does_not_stop_it() {
    let unreadable = || {
        let mut scene = Scene::new(&["m-0", "m-1"], &[]);
        scene.member("m-0", with_single);
        let record = MapRecord::new("east".parse().unwrap());
        scene.apply(Object::Map(MapRecord { protocol: 0, ..record }));
        scene
    };
    let mut scene = unreadable();
    scene.map_of(FLEET, &[("single.report/0/1", "m-1@4")]);
    scene.lease("m-1", Some("m-0"));
    scene.check(&[&format!("update {FLEET} v7: single.report/0/1 m-0@5")]);

    let mut scene = unreadable();
    scene.map_of(FLEET, &[("single.report/0/1", "m-1>m-0@4")]);
    scene.member("m-1", |spec| {
        with_single(spec);
        spec.state = MemberState::Leaving;
        let shard = format!("{FLEET}/single.report/0/1").parse().unwrap();
        spec.acknowledged_drains = vec![AcknowledgedDrain { shard, epoch: Epoch(4) }];
    });
    scene.check(&[&format!("update {FLEET} v7: single.report/0/1 m-0@5")]);
}

/// A scene in which `g` is of scope `Fleet` and `m-1` has it, until somebody edits `west` so that nobody can read it.
fn unreadable_west() -> Scene {
    let mut scene = Scene::new(&[], &["east", "west"]);
    for member in ["m-0", "m-1"] {
        scene.renew(member);
        fleet_wide(&mut scene, member, MemberState::Active, &[]);
    }
    scene.map("east", "m-1@4");
    scene.map("west", "m-1@4");
    let record = MapRecord::new("west".parse().unwrap());
    scene.apply(Object::Map(MapRecord { protocol: 0, ..record }));
    scene.check(&[]);
    scene
}

/// A member of a fleet in which `g` is of scope `Fleet`.
pub(super) fn fleet_wide(
    scene: &mut Scene,
    member: &str,
    state: MemberState,
    acknowledged: &[&str],
) {
    scene.member(member, |spec| {
        let (group, scope) = ("g".parse().unwrap(), GroupScope::Fleet);
        let (controllers, shared_kinds) = (Vec::new(), Vec::new());
        spec.group_details.push(GroupDetail { group, controllers, scope, shared_kinds });
        spec.state = state;
        let drain =
            |shard: &&str| AcknowledgedDrain { shard: shard.parse().unwrap(), epoch: Epoch(4) };
        spec.acknowledged_drains = acknowledged.iter().map(drain).collect();
    });
}

#[test]
fn a_map_that_nobody_can_read_any_more_stops_no_group_of_the_fleet() {
    // Its owner dies.
    let mut scene = unreadable_west();
    scene.pass(LeaseTimings::default().silence());
    scene.renew("m-0");
    scene.check(&["update leasehold-member-m-1 v3: held by m-0"]);
    scene.lease("m-1", Some("m-0"));
    scene.check(&["update east v5: g/0/1 m-0@5"]);
    scene.map("east", "m-0@5");
    // The proof stays as long as the map may name the dead.
    scene.pass(DEAD_KEPT);
    scene.renew("m-0");
    scene.check(&[]);

    // Its owner leaves. Until it is gone, it might act in west.
    let mut scene = unreadable_west();
    fleet_wide(&mut scene, "m-1", MemberState::Leaving, &[]);
    scene.check(&["update east v5: g/0/1 m-1>m-0@4"]);
    scene.map("east", "m-1>m-0@4");
    fleet_wide(&mut scene, "m-1", MemberState::Leaving, &["east/g/0/1"]);
    scene.check(&["update east v9: g/0/1 @4"]);
    scene.map("east", "@4");
    scene.check(&[]);
    scene.lease("m-1", None);
    scene.check(&["update east v11: g/0/1 m-0@5"]);
}

/// Not all drains of a large group may have room in a Member at once. What is settled makes room, and nobody gets a part
/// of the group before all of it is free.
#[test]
fn a_group_of_the_fleet_is_freed_part_by_part_and_then_goes_to_one_member() {
    let mut scene = Scene::new(&[], &["east", "west"]);
    for member in ["m-0", "m-1"] {
        scene.renew(member);
        fleet_wide(&mut scene, member, MemberState::Active, &[]);
    }
    scene.map("east", "m-1>m-0@4");
    scene.map("west", "m-1>m-0@4");
    fleet_wide(&mut scene, "m-1", MemberState::Leaving, &["east/g/0/1"]);
    scene.check(&["update east v5: g/0/1 @4"]);
    scene.map("east", "@4");
    scene.check(&[]);
    fleet_wide(&mut scene, "m-1", MemberState::Leaving, &["west/g/0/1"]);
    scene.check(&["update west v6: g/0/1 m-0@5"]);
    scene.map("west", "m-0@5");
    scene.check(&["update east v8: g/0/1 m-0@5"]);
}

#[test]
fn a_group_of_the_fleet_stays_where_a_map_binds_it_that_nobody_can_read() {
    let mut scene = unreadable_west();
    scene.member("m-1", |spec| spec.drain = true);
    fleet_wide(&mut scene, "m-0", MemberState::Active, &[]);
    scene.check(&[]);
}

#[test]
fn shards_that_an_older_release_put_elsewhere_are_drained_and_go() {
    let mut scene = Scene::new(&["m-0"], &["east"]);
    scene.member("m-0", with_single);
    scene.map_of(FLEET, &[("g/0/1", "m-0@2"), ("single.report/0/1", "m-0@2")]);
    scene.map_of("east", &[("g/0/1", "m-0@1"), ("single.report/0/1", "m-0@1")]);
    scene.check(&[
        "update east v5: g/0/1 m-0@1, single.report/0/1 m-0>@1",
        &format!("update {FLEET} v4: g/0/1 m-0>@2, single.report/0/1 m-0@2"),
    ]);
    scene.map_of(FLEET, &[("g/0/1", "@2"), ("single.report/0/1", "m-0@2")]);
    scene.map_of("east", &[("g/0/1", "m-0@1"), ("single.report/0/1", "@1")]);
    scene.check(&[
        "update east v7: g/0/1 m-0@1",
        &format!("update {FLEET} v6: single.report/0/1 m-0@2"),
    ]);
}

#[test]
fn its_map_goes_when_nobody_can_run_any() {
    let mut scene = Scene::new(&["m-0"], &[]);
    scene.map_of(FLEET, &[("single.report/0/1", "m-0@4")]);
    // The group is lost at once, the map after a while.
    scene.check(&[&format!("update {FLEET} v3: single.report/0/1 m-0>@4")]);
    scene.pass(REMOVAL_GRACE);
    scene.renew("m-0");
    scene.map_of(FLEET, &[("single.report/0/1", "@4")]);
    assert_eq!(scene.plan().floor, Epoch(4), "its epochs are to outlive it");
}
