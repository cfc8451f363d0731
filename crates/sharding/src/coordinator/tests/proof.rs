//! Members whose process has ended for certain.

use super::*;
use crate::api::MemberContainer;
use crate::death::Ended;

fn container(token: &str) -> MemberContainer {
    MemberContainer {
        pod_uid: "pod-1".into(),
        name: "leasehold".into(),
        boot_id: "boot".into(),
        token: token.into(),
        lock_id: None,
    }
}

/// `m-1` owns a shard and has just renewed its Lease.
fn scene() -> Scene {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
    scene.member("m-1", |spec| spec.container = Some(container("t1")));
    scene.map("east", "m-1@4");
    scene
}

#[test]
fn the_lease_of_a_dead_member_is_taken_first_and_its_shards_only_then() {
    let mut scene = scene();
    scene.check(&[]);
    scene.world.learn_of_ended(vec![Ended::of(&container("t1"))]);
    scene.check(&["update leasehold-member-m-1 v3: held by m-0"]);
    // A last renewal arrives late: the takeover is bound to the version that it has read.
    scene.renew("m-1");
    scene.check(&["update leasehold-member-m-1 v7: held by m-0"]);
    scene.lease("m-1", Some("m-0"));
    scene.check(&["update east v6: g/0/1 m-0@5"]);
}

#[test]
fn a_word_that_comes_before_the_member_counts_too() {
    let mut scene = Scene::new(&["m-0"], &["east"]);
    scene.world.learn_of_ended(vec![Ended::of(&container("t1"))]);
    scene.renew("m-1");
    scene.member("m-1", |spec| spec.container = Some(container("t1")));
    scene.map("east", "m-1@4");
    scene.check(&["update leasehold-member-m-1 v3: held by m-0"]);
}

#[test]
fn the_word_of_another_container_proves_nothing() {
    let mut scene = scene();
    let other = Ended { name: "sidecar".into(), ..Ended::of(&container("t1")) };
    scene.world.learn_of_ended(vec![Ended::of(&container("t0")), other]);
    scene.check(&[]);
    let mut nameless = Scene::new(&["m-0", "m-1"], &["east"]);
    nameless.map("east", "m-1@4");
    nameless.world.learn_of_ended(vec![Ended::of(&container("t1"))]);
    nameless.check(&[]);
}

/// What looks given back or taken may be an edit, which could be undone unseen.
#[test]
fn a_lease_that_is_not_the_dead_members_is_taken_without_a_wait_if_it_owns_shards() {
    for holder in [None, Some("m-7")] {
        let mut scene = scene();
        let (member, duration) = (id("m-1"), LeaseTimings::default().duration);
        let name = lease::member_lease_name(&member);
        let record = LeaseRecord::new(name, &member, duration);
        scene.apply(Object::Lease(LeaseRecord { holder: holder.map(str::to_owned), ..record }));
        scene.check(&[]);
        scene.world.learn_of_ended(vec![Ended::of(&container("t1"))]);
        scene.check(&["update leasehold-member-m-1 v7: held by m-0"]);
        scene.map("east", "m-0@5");
        scene.check(&[]);
    }
}
