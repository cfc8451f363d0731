//! Lives of clusters.

use serde_json::json;

use super::world::World;
use crate::api::MemberPhase;
use crate::objects::Start;
use crate::step::{Step, Why};

fn spec(size: i32) -> serde_json::Value {
    json!({"version": "3.6.5", "size": size})
}

fn starts(world: &World) -> Vec<String> {
    let start = |step: &Step| match step {
        Step::CreatePod { member, start: Start::Found, .. } => Some(format!("found {member}")),
        Step::CreatePod { member, start: Start::Join(_), .. } => Some(format!("join {member}")),
        Step::CreatePod { member, start: Start::Resume, .. } => Some(format!("resume {member}")),
        Step::DeletePod { member, why } => Some(format!("delete {member} {why:?}")),
        _ => None,
    };
    world.steps.iter().filter_map(start).collect()
}

#[test]
fn a_cluster_is_founded_once_and_grows_by_learners() {
    for size in [1, 3, 5] {
        let mut world = World::new(spec(size));
        world.settle();
        let status = world.status();
        assert_eq!(status.ready.as_deref(), Some(&*format!("{size}/{size}")));
        assert_eq!(
            (status.phase.as_deref(), status.cluster_id.as_deref()),
            (Some("Running"), Some("ab"))
        );
        assert_eq!(status.version.as_deref(), Some("3.6.5"));
        assert_eq!(world.etcd.voters().len(), usize::try_from(size).unwrap());
        let expect: Vec<_> = (0..size)
            .map(|n| if n == 0 { "found db-0".into() } else { format!("join db-{n}") })
            .collect();
        assert_eq!(starts(&world), expect);
        for (type_, expect) in [
            ("Available", "True"),
            ("Progressing", "False"),
            ("Degraded", "False"),
            ("SpecValid", "True"),
        ] {
            assert_eq!(world.condition(type_).0, expect, "{type_}");
        }
        let steps = world.steps.len();
        assert!((0..20).all(|_| world.round() == Step::Rest), "{:#?}", &world.steps[steps..]);
    }
}

#[test]
fn growing_and_shrinking_keep_every_write_and_never_reuse_a_name() {
    let mut world = World::settled(spec(3));
    world.set("size", json!(5));
    world.settle();
    assert_eq!(world.names(), ["db-0", "db-1", "db-2", "db-3", "db-4"]);
    // The leader leaves last, after another leads.
    world.etcd.leader = *world.etcd.voters().last().unwrap();
    world.set("size", json!(1));
    world.settle();
    assert_eq!(world.names().len(), 1);
    assert_eq!((world.pods.len(), world.volumes.len()), (1, 1));
    world.set("size", json!(3));
    world.settle();
    assert_eq!(world.names()[1..], ["db-5", "db-6"]);
}

#[test]
fn a_leader_that_leaves_hands_over_first() {
    let mut world = World::settled(spec(3));
    for name in ["db-0", "db-1"] {
        let mut status = world.status();
        status.members.iter_mut().find(|member| member.name == name).unwrap().phase =
            MemberPhase::Leaving;
        world.etcd.leader = world.etcd.processes[name].member;
        world.cluster.status = Some(status);
        world.settle();
        assert!(!world.names().contains(&name.to_owned()));
    }
    let moves = world.etcd.log.iter().filter(|entry| entry.starts_with("lead")).count();
    assert_eq!(moves, 2, "{:?}", world.etcd.log);
}

#[test]
fn a_lost_pod_comes_back_on_its_own_volume() {
    let mut world = World::settled(spec(3));
    world.lose_pod("db-1");
    world.settle();
    assert_eq!(starts(&world), ["resume db-1"]);
    assert!(world.etcd.log.is_empty(), "no member changes: {:?}", world.etcd.log);
}

#[test]
fn a_lost_volume_is_replaced_after_a_while_and_not_before() {
    let mut world = World::settled(spec(3));
    world.lose_volume("db-1");
    for _ in 0..59 {
        world.round();
    }
    assert!(world.etcd.log.is_empty(), "{:?}", world.etcd.log);
    assert_eq!(world.condition("Available").0, "True");
    assert_eq!(world.condition("Degraded").1, "MemberUnhealthy");
    world.settle();
    assert_eq!(world.names(), ["db-0", "db-2", "db-3"]);
    assert_eq!(starts(&world), ["join db-3"], "db-1 never starts again");
}

#[test]
fn a_dead_node_is_replaced_though_its_pod_never_ends() {
    let mut world = World::settled(spec(3));
    world.dead.insert("db-2".into());
    world.etcd.stop("db-2");
    world.run(|step| matches!(step, Step::Promote { .. }));
    world.run(|step| matches!(step, Step::Wait(_) | Step::Rest));
    assert_eq!(world.etcd.voters().len(), 3, "the Pod that does not end blocks nothing");
    assert!(world.pods["db-2"].metadata.deletion_timestamp.is_some());
    world.dead.clear();
    world.settle();
    assert_eq!(world.names(), ["db-0", "db-1", "db-3"]);
}

#[test]
fn without_a_majority_nothing_is_forced() {
    let mut world = World::settled(spec(3));
    world.lose_volume("db-0");
    world.lose_volume("db-1");
    world.pass(std::time::Duration::from_secs(3_600));
    world.sticks("QuorumLost");
    for _ in 0..100 {
        world.round();
    }
    assert!(world.etcd.log.is_empty() && starts(&world).is_empty());
    let (available, reason, message) = world.condition("Available");
    assert_eq!((&*available, &*reason), ("False", "QuorumLost"));
    assert!(message.contains("db-0, db-1") && message.contains("restoreFrom"), "{message}");
}

#[test]
fn a_majority_that_comes_back_goes_on() {
    let mut world = World::settled(spec(3));
    for name in ["db-0", "db-1", "db-2"] {
        world.dead.insert(name.into());
    }
    world.sticks("QuorumLost");
    world.pass(std::time::Duration::from_secs(86_400));
    world.round();
    world.dead.clear();
    world.settle();
    assert_eq!(world.names(), ["db-0", "db-1", "db-2"], "nobody was replaced meanwhile");
    assert_eq!(world.condition("Available").0, "True");
}

#[test]
fn a_single_member_that_lost_its_volume_is_not_founded_again() {
    let mut world = World::settled(spec(1));
    world.lose_volume("db-0");
    world.sticks("QuorumLost");
    for _ in 0..200 {
        world.round();
    }
    assert!(world.volumes.is_empty() && world.pods.is_empty());
}

#[test]
fn an_emptied_volume_brings_no_voter_back() {
    let mut world = World::settled(spec(3));
    world.lose_pod("db-1");
    let uid = world.volumes["db-1"].metadata.uid.clone().unwrap();
    world.etcd.disks.remove(&uid);
    world.settle();
    assert_eq!(world.names(), ["db-0", "db-2", "db-3"]);
}

#[test]
fn upgrades_take_the_leader_last_and_one_minor_at_a_time() {
    let mut world = World::settled(json!({"version": "3.5.26", "size": 3}));
    let leader = world.status().leader.unwrap();
    world.set("version", json!("3.7.0"));
    for _ in 0..10 {
        world.round();
    }
    assert!(starts(&world).is_empty());
    assert_eq!(world.condition("SpecValid").1, "MinorSkipped");
    world.set("version", json!("3.6.5"));
    world.settle();
    let deleted: Vec<_> =
        starts(&world).into_iter().filter(|step| step.starts_with("delete")).collect();
    assert_eq!(deleted.len(), 3);
    assert_eq!(deleted[2], format!("delete {leader} {:?}", Why::Outdated));
    assert_eq!(world.etcd.log.len(), 1, "one handover: {:?}", world.etcd.log);
    assert_eq!(world.status().version.as_deref(), Some("3.6.5"));
    world.set("version", json!("3.5.26"));
    world.round();
    world.round();
    assert_eq!(world.condition("SpecValid").1, "DowngradeRefused");
    assert!(world.etcd.processes.values().all(|process| process.version == "3.6.5"));
}

#[test]
fn data_that_3_6_may_not_read_is_repaired_by_a_patch_first() {
    let mut world = World::settled(json!({"version": "3.5.15", "size": 3}));
    world.set("version", json!("3.6.5"));
    for _ in 0..10 {
        world.round();
    }
    assert!(starts(&world).is_empty());
    let (valid, reason, message) = world.condition("SpecValid");
    assert_eq!((&*valid, &*reason), ("False", "PatchFirst"));
    assert!(message.contains("set spec.version to 3.5.26"), "{message}");
    for version in ["3.5.26", "3.6.5"] {
        world.set("version", json!(version));
        world.settle();
        assert_eq!(world.status().version.as_deref(), Some(version));
        assert_eq!(world.condition("SpecValid").1, "Accepted");
    }
}

#[test]
fn a_version_that_does_not_start_stops_at_one_member_and_can_be_corrected() {
    for correction in ["3.6.7", "3.6.5"] {
        let mut world = World::settled(spec(3));
        world.broken.insert("3.6.6".into());
        world.set("version", json!("3.6.6"));
        for _ in 0..200 {
            world.round();
            assert!(world.etcd.has_quorum());
        }
        assert_eq!(world.etcd.processes.len(), 2);
        assert_eq!(world.names(), ["db-0", "db-1", "db-2"], "nobody is replaced for that");
        let (degraded, reason, message) = world.condition("Degraded");
        assert_eq!((&*degraded, &*reason), ("True", "RolloutFailed"), "{message}");
        assert!(
            message.contains("CrashLoopBackOff") && message.contains("spec.version"),
            "{message}"
        );
        world.set("version", json!(correction));
        world.settle();
        assert!(world.etcd.processes.values().all(|process| process.version == correction));
        assert_eq!(world.names(), ["db-0", "db-1", "db-2"]);
        assert!(!world.etcd.log.iter().any(|entry| entry.starts_with("remove")));
    }
}

#[test]
fn a_member_that_is_lost_in_a_rollout_is_replaced_once_its_volume_is_gone() {
    let mut world = World::settled(spec(3));
    world.broken.insert("3.6.6".into());
    world.set("version", json!("3.6.6"));
    world.sticks("RolloutFailed");
    let lost =
        world.pods.keys().find(|pod| !world.etcd.processes.contains_key(*pod)).unwrap().clone();
    world.broken.clear();
    world.lose_volume(&lost);
    world.settle();
    assert!(!world.names().contains(&lost) && world.names().len() == 3);
}

#[test]
fn a_cluster_that_grows_with_what_does_not_start_takes_one_number() {
    let mut world = World::settled(spec(3));
    world.broken.insert("3.6.6".into());
    world.set("version", json!("3.6.6"));
    world.set("size", json!(5));
    for _ in 0..400 {
        world.round();
    }
    assert_eq!(world.names(), ["db-0", "db-1", "db-2", "db-3"]);
    assert_eq!(world.condition("Degraded").1, "RolloutFailed");
    world.set("version", json!("3.6.7"));
    world.settle();
    assert_eq!(world.names(), ["db-0", "db-1", "db-2", "db-3", "db-4"]);
}

#[test]
fn a_mistake_in_the_spec_stops_no_care() {
    for (field, value, reason) in [
        ("size", json!(4), "InvalidSize"),
        ("version", json!("3.x"), "InvalidVersion"),
        ("replaceAfter", json!("5"), "InvalidDuration"),
        ("extraArgs", json!(["--name=other"]), "InvalidArguments"),
        ("resources", json!({"limits": "x"}), "InvalidPod"),
    ] {
        let mut world = World::settled(spec(3));
        world.set(field, value);
        world.settle();
        assert!(starts(&world).is_empty(), "{field}: nothing changes: {:?}", starts(&world));
        assert_eq!(world.condition("SpecValid").1, reason);
        assert_eq!(world.condition("Progressing").1, reason);
        assert_eq!(world.condition("Available").0, "True");
        world.lose_pod("db-1");
        world.settle();
        assert_eq!(starts(&world), ["resume db-1"], "{field}");
        world.lose_volume("db-2");
        world.settle();
        assert_eq!(world.names(), ["db-0", "db-1", "db-3"], "{field}");
        assert!(world.etcd.processes.values().all(|process| process.version == "3.6.5"));
        world.cluster.spec = World::new(spec(3)).cluster.spec;
        world.settle();
        assert_eq!(world.condition("SpecValid").1, "Accepted");
    }
}

#[test]
fn other_changes_roll_too() {
    let mut world = World::settled(spec(3));
    world.set("resources", json!({"requests": {"cpu": "1"}}));
    world.settle();
    assert_eq!(world.steps.iter().filter(|step| matches!(step, Step::DeletePod { .. })).count(), 3);
}

#[test]
fn members_that_cannot_be_dialled_but_serve_are_not_replaced() {
    let mut world = World::settled(spec(3));
    world.unreachable.insert("db-1".into());
    for _ in 0..200 {
        world.round();
    }
    assert!(world.etcd.log.is_empty() && starts(&world).is_empty());
    assert_eq!(world.condition("Available").0, "True");
}

#[test]
fn unused_space_is_given_back_one_by_one_the_leader_last() {
    let mut world = World::settled(spec(3));
    for size in world.etcd.sizes.values_mut() {
        *size = (500 << 20, 100 << 20);
    }
    let leader = world.status().leader.unwrap();
    world.run(|step| matches!(step, Step::Defragment(_)));
    let first = world.now;
    world.run(|step| matches!(step, Step::Defragment(_)));
    assert!(world.now.duration_since(first).as_secs() >= 3_600, "an hour apart");
    world.run(|step| matches!(step, Step::Defragment(_)));
    assert_eq!(world.steps.last(), Some(&Step::Defragment(leader)));
    assert!(world.etcd.log.iter().any(|entry| entry.starts_with("lead")));
}

#[test]
fn the_alarm_of_a_full_database_ends_when_there_is_room() {
    let mut world = World::settled(spec(3));
    let full = world.etcd.voters()[1];
    world.etcd.alarms.insert(full);
    for size in world.etcd.sizes.values_mut() {
        *size = ((1 << 30) + 1, (1 << 30) + 1);
    }
    for _ in 0..5 {
        world.round();
    }
    assert!(world.etcd.log.is_empty(), "nothing helps before a compaction: {:?}", world.etcd.log);
    let (_, reason, message) = world.condition("Degraded");
    assert!(reason == "NoSpace" && message.contains("etcdctl compact"), "{reason}: {message}");
    for size in world.etcd.sizes.values_mut() {
        size.1 = 1 << 20;
    }
    for _ in 0..60 {
        world.round();
    }
    assert!(world.etcd.alarms.is_empty());
    assert_eq!(world.etcd.log.iter().filter(|entry| entry.starts_with("defragment")).count(), 3);
}

#[test]
fn a_member_of_others_is_named_and_left_alone() {
    let mut world = World::settled(spec(3));
    let body = json!({"peerURLs": ["https://elsewhere:2380"], "isLearner": true});
    world.etcd.post("db-0", "/v3/cluster/member/add", &body).unwrap().unwrap();
    world.set("size", json!(5));
    world.sticks("UnknownMember");
    assert!(world.condition("Degraded").2.contains("etcdctl member remove"));
    assert_eq!(world.etcd.members.len(), 4);
}

#[test]
fn a_status_that_was_lost_is_read_from_the_members() {
    let mut world = World::settled(spec(3));
    world.cluster.status = None;
    world.settle();
    assert_eq!(world.names(), ["db-0", "db-1", "db-2"]);
    assert!(starts(&world).is_empty() && world.etcd.log.is_empty());
    assert_eq!(world.status().next_member, 3);
    for name in ["db-0", "db-1", "db-2"] {
        world.lose_pod(name);
    }
    world.cluster.status = None;
    world.sticks("StatusLost");
    assert!(world.pods.is_empty(), "nothing is founded beside volumes with data");
}

/// Every life, with a crash at each of its effects, once before and once after it was done.
#[test]
fn a_crash_at_every_effect_changes_no_end() {
    type Life = fn(&mut World);
    let lives: [(&str, Life); 6] = [
        ("create", |world| world.settle()),
        ("grow", |world| {
            world.settle();
            world.set("size", json!(5));
            world.settle();
        }),
        ("shrink", |world| {
            world.settle();
            world.etcd.leader = *world.etcd.voters().last().unwrap();
            world.set("size", json!(1));
            world.settle();
        }),
        ("replace", |world| {
            world.settle();
            world.lose_volume("db-0");
            world.settle();
        }),
        ("upgrade", |world| {
            world.settle();
            world.set("version", json!("3.7.1"));
            world.settle();
        }),
        ("defragment", |world| {
            world.settle();
            world.etcd.sizes.values_mut().for_each(|size| *size = (500 << 20, 100 << 20));
            world.run(|step| matches!(step, Step::Defragment(_)));
        }),
    ];
    for (name, life) in lives {
        let mut calm = World::new(spec(3));
        life(&mut calm);
        for after in 0..calm.effects() {
            for is_taken in [false, true] {
                let mut world = World::new(spec(3));
                world.crash = Some((after, is_taken));
                life(&mut world);
                let (voters, names) = (world.etcd.voters().len(), world.names());
                assert_eq!(
                    voters,
                    calm.etcd.voters().len(),
                    "{name}, {after}, {is_taken}: {names:?}"
                );
                assert_eq!(names.len(), voters, "{name}, {after}, {is_taken}: {names:?}");
                assert_eq!(
                    (world.pods.len(), world.volumes.len()),
                    (voters, voters),
                    "{name}, {after}"
                );
                assert!(
                    world
                        .etcd
                        .processes
                        .values()
                        .all(|process| { process.version == world.cluster.spec.version })
                );
            }
        }
    }
}
