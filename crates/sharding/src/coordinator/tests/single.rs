//! Work in no cluster: one shard in a map that stands for the fleet.

use super::*;

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
