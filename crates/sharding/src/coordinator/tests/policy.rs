//! What people want of a fleet: the coordinator does it through the maps.

use super::*;
use model::GroupScope;

use crate::api::{FleetPolicySpec, GroupDetail, ShardSelector};
use crate::policy::PolicyRecord;

pub(super) fn pause(clusters: &[&str]) -> Policies {
    pauses(&[("p", clusters)])
}

/// Policies, each with its name and the clusters that it pauses.
pub(super) fn pauses(policies: &[(&str, &[&str])]) -> Policies {
    let record = |&(name, clusters): &(&str, &[&str])| {
        let clusters = clusters.iter().map(|&name| name.to_owned()).collect();
        let shards = Some(ShardSelector { clusters, ..ShardSelector::default() });
        let spec = FleetPolicySpec { shards, pause: Some(true), ..FleetPolicySpec::default() };
        PolicyRecord::new(name, spec)
    };
    Policies::read(policies.iter().map(record).collect())
}

/// What becomes of the maps, without their versions.
fn bodies(scene: &mut Scene) -> Vec<String> {
    let writes = scene.writes();
    writes.iter().filter_map(|write| Some(write.split_once(": ")?.1.to_owned())).collect()
}

#[test]
fn a_paused_shard_drains_for_nobody_waits_and_gets_an_owner_again() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east", "west"]);
    scene.map("east", "m-0@4");
    scene.map("west", "m-1@4");
    scene.policies = pause(&["east"]);
    assert_eq!(bodies(&mut scene), ["g/0/1 m-0>@4"]);
    scene.map("east", "m-0>@4");
    assert_eq!(bodies(&mut scene), [""; 0], "it waits for the acknowledgement");
    scene.member("m-0", |spec| {
        let shard = "east/g/0/1".parse().unwrap();
        spec.acknowledged_drains.push(AcknowledgedDrain { shard, epoch: Epoch(4) });
    });
    assert_eq!(bodies(&mut scene), ["g/0/1 @4"]);
    scene.map("east", "@4");
    assert_eq!(bodies(&mut scene), [""; 0], "nobody gets it");
    scene.policies = Policies::default();
    assert_eq!(bodies(&mut scene), ["g/0/1 m-0@5"]);
}

#[test]
fn a_shard_that_moves_when_it_is_paused_reaches_nobody() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
    scene.map("east", "m-0>m-1@4");
    scene.policies = pause(&["east"]);
    scene.member("m-0", |spec| {
        let shard = "east/g/0/1".parse().unwrap();
        spec.acknowledged_drains.push(AcknowledgedDrain { shard, epoch: Epoch(4) });
    });
    assert_eq!(bodies(&mut scene), ["g/0/1 @4"]);
}

#[test]
fn a_policy_that_selects_nothing_is_told() {
    let mut scene = Scene::new(&["m-0"], &["east"]);
    scene.map("east", "m-0@4");
    scene.policies = pause(&["eats"]);
    let problems = scene.plan().problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("p selects no shard that there is"), "{problems:?}");
}

/// The planner does not see paused shards; the coordinator knows that one of them still drains.
#[test]
fn a_group_of_the_fleet_goes_to_nobody_else_while_a_paused_shard_of_it_drains() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east", "west"]);
    for member in ["m-0", "m-1"] {
        scene.member(member, |spec| {
            let (group, scope) = ("g".parse().unwrap(), GroupScope::Fleet);
            let (controllers, shared_kinds) = (Vec::new(), Vec::new());
            spec.group_details.push(GroupDetail { group, controllers, scope, shared_kinds });
            // Only the other one could take what is unowned.
            spec.drain = member == "m-0";
        });
    }
    scene.map("east", "m-0@4");
    scene.map("west", "@4");
    scene.policies = pause(&["east"]);
    assert_eq!(bodies(&mut scene), ["g/0/1 m-0>@4"], "west waits");
    scene.map("east", "m-0>@4");
    assert_eq!(bodies(&mut scene), [""; 0], "and goes on waiting");
    scene.map("east", "@4");
    assert_eq!(bodies(&mut scene), ["g/0/1 m-1@5"]);
}
