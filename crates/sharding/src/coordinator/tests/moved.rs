//! Why shards come to where they are, as the maps say it.

use super::*;
use crate::api::{
    FleetPolicySpec, MemberPreference, MemberSelector, MoveCause, ShardLoad, ShardSelector,
};
use crate::policy::PolicyRecord;

/// Why the shards of the maps come to where they are that the next step writes. What it writes is there then.
fn causes(scene: &mut Scene) -> Vec<String> {
    let mut causes = Vec::new();
    for write in scene.plan().writes {
        let (Write::Create(object) | Write::Replace(object)) = write else { continue };
        if let Object::Map(map) = &object {
            let why = |(path, entry)| format!("{} {:?}", show(entry), map.moves.why(path).unwrap());
            causes.extend(map.entries.iter().map(why));
        }
        scene.apply(object);
    }
    causes
}

fn acknowledge(scene: &mut Scene, member: &str, shard: &str, epoch: u64) {
    scene.member(member, |spec| {
        let shard = shard.parse().unwrap();
        spec.acknowledged_drains = vec![AcknowledgedDrain { shard, epoch: Epoch(epoch) }];
    });
}

#[test]
fn the_cause_of_a_move_goes_on_from_its_drain_to_its_end() {
    let mut scene = Scene::new(&["m-0"], &["east", "west"]);
    assert_eq!(causes(&mut scene), ["m-0@1 Created", "m-0@1 Created"]);
    scene.renew("m-1");
    scene.member("m-1", |_| {});
    assert_eq!(causes(&mut scene), ["m-0>m-1@1 Balance"]);
    let moved =
        scene.world.maps().values().find(|map| map.entries.values().any(Entry::is_draining));
    let shard = format!("{}/g/0/1", moved.unwrap().cluster);
    acknowledge(&mut scene, "m-0", &shard, 1);
    assert_eq!(causes(&mut scene), ["m-1@2 Balance"]);
}

#[test]
fn who_died_and_who_left_is_told_apart() {
    for (holder, cause) in [(Some("m-0"), "OwnerDied"), (None, "OwnerLeft")] {
        for before in ["m-1@4", "m-1>m-0@4"] {
            let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
            scene.map("east", before);
            scene.lease("m-1", holder);
            assert_eq!(causes(&mut scene), [format!("m-0@5 {cause}")], "{before}");
        }
    }
    // Nobody can take it at first: the cause is the same when somebody can.
    let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
    scene.map("east", "m-1@4");
    scene.lease("m-1", Some("m-0"));
    scene.member("m-0", |spec| spec.state = MemberState::Joining);
    assert_eq!(causes(&mut scene), ["@4 OwnerDied"]);
    scene.member("m-0", |_| {});
    assert_eq!(causes(&mut scene), ["m-0@5 OwnerDied"]);
}

#[test]
fn what_is_split_paused_removed_or_drained_for_maintenance_says_so() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
    scene.map("east", "m-0@4");
    let mut of = |change: &dyn Fn(&mut Scene)| {
        change(&mut scene);
        let told = causes(&mut scene);
        scene = Scene::new(&["m-0", "m-1"], &["east"]);
        scene.map("east", "m-0@4");
        told
    };
    let clusters = vec!["east".to_owned()];
    let shards = Some(ShardSelector { clusters, ..ShardSelector::default() });
    let spec = FleetPolicySpec { shards, pause: Some(true), ..FleetPolicySpec::default() };
    let pause = Policies::read(vec![PolicyRecord::new("p", spec)]);
    assert_eq!(of(&|scene| scene.policies = pause.clone()), ["m-0>@4 Paused"]);
    let drained = |scene: &mut Scene| scene.member("m-0", |spec| spec.drain = true);
    assert_eq!(of(&drained), ["m-0>m-1@4 Maintenance"]);
    let leaving = |scene: &mut Scene| scene.member("m-0", |spec| spec.state = MemberState::Leaving);
    assert_eq!(of(&leaving), ["m-0>m-1@4 OwnerLeft"]);
    let other = |scene: &mut Scene| {
        for member in ["m-0", "m-1"] {
            scene.member(member, |spec| spec.groups = vec!["h".parse().unwrap()]);
        }
    };
    let lost = of(&other);
    assert_eq!(lost[0], "m-0>@4 Removed");
    assert!(lost[1].ends_with("@0 Created") || lost[1].ends_with("@1 Created"), "{lost:?}");
    let pressed = |scene: &mut Scene| {
        scene.member("m-0", |spec| {
            let shard = "east/g/0/1".parse().unwrap();
            let load = ShardLoad {
                shard,
                busy: 900,
                heaviest: Some(90),
                events: 0,
                cached: 0,
                waiting: 0,
            };
            spec.loads = vec![load].into();
        });
    };
    assert_eq!(of(&pressed), ["m-0>m-0@4 Split"]);
}

#[test]
fn what_goes_on_after_a_pause_or_a_policy_says_that_this_has_ended() {
    let clusters = vec!["east".to_owned()];
    let shards = Some(ShardSelector { clusters, ..ShardSelector::default() });
    let select = MemberSelector { names: vec!["nobody".to_owned()], zones: Vec::new() };
    let pause = FleetPolicySpec { pause: Some(true), ..FleetPolicySpec::default() };
    let pin = Some(MemberPreference { select, required: true });
    let pin = FleetPolicySpec { pin, ..FleetPolicySpec::default() };
    for (spec, began, ended) in [(pause, "Paused", "Resumed"), (pin, "Policy", "Lifted")] {
        let policies = |spec| {
            let spec = FleetPolicySpec { shards: shards.clone(), ..spec };
            Policies::read(vec![PolicyRecord::new("p", spec)])
        };
        for acknowledged in [true, false] {
            let mut scene = Scene::new(&["m-0"], &["east"]);
            scene.map("east", "m-0@4");
            scene.policies = policies(spec.clone());
            assert_eq!(causes(&mut scene), [format!("m-0>@4 {began}")]);
            if acknowledged {
                acknowledge(&mut scene, "m-0", "east/g/0/1", 4);
                assert_eq!(causes(&mut scene), [format!("@4 {began}")]);
            }
            scene.policies = Policies::default();
            if !acknowledged {
                assert_eq!(causes(&mut scene), [format!("m-0>m-0@4 {ended}")]);
                acknowledge(&mut scene, "m-0", "east/g/0/1", 4);
            }
            assert_eq!(causes(&mut scene), [format!("m-0@5 {ended}")]);
        }
    }
}

#[test]
fn parts_say_that_they_are_parts() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
    scene.member("m-0", |spec| {
        let shard = "east/g/0/1".parse().unwrap();
        let load =
            ShardLoad { shard, busy: 900, heaviest: Some(90), events: 0, cached: 0, waiting: 0 };
        spec.loads = vec![load].into();
    });
    scene.map("east", "m-0@4");
    assert_eq!(causes(&mut scene), ["m-0>m-0@4 Split"]);
    acknowledge(&mut scene, "m-0", "east/g/0/1", 4);
    assert_eq!(causes(&mut scene), ["m-0@5 Split", "m-0@5 Split"]);
    // Its shards are named no more by what has gone.
    let moves = &scene.world.maps().values().next().unwrap().moves;
    assert_eq!(moves.why(&"g/0/1".parse().unwrap()), None);
    assert_eq!(moves.why(&"g/1/2".parse().unwrap()), Some(MoveCause::Split));
}

#[test]
fn what_only_an_epoch_changes_keeps_its_cause_and_time() {
    let mut scene = Scene::new(&["m-0"], &["east"]);
    assert_eq!(causes(&mut scene), ["m-0@1 Created"]);
    let before = scene.world.maps().values().next().unwrap().moves.clone();
    scene.member("m-0", |spec| {
        spec.groups.push("h".parse().unwrap());
    });
    assert_eq!(causes(&mut scene), ["m-0@1 Created", "m-0@1 Created"]);
    let after = &scene.world.maps().values().next().unwrap().moves;
    let path = "g/0/1".parse().unwrap();
    assert_eq!(after.0.get(&path), before.0.get(&path));
}
