//! Groups of scope `Fleet` while a write may be under way that this coordinator does not know.

use super::single::fleet_wide;
use super::*;
use crate::floor::Floor;
use crate::outbox::InFlight;
use crate::record::WriteOutcome;

/// `g` is of scope `Fleet`, and these maps are there. `m-0` coordinates, after another or as the first one.
fn fleet(maps: &[(&str, &str)], is_successor: bool) -> Scene {
    let mut scene = Scene::new(&[], &["east", "west"]);
    for (member, state) in [("m-0", MemberState::Active), ("m-2", MemberState::Leaving)] {
        scene.renew(member);
        fleet_wide(&mut scene, member, state, &[]);
    }
    maps.iter().for_each(|(cluster, shard)| scene.map(cluster, shard));
    if is_successor {
        scene.coordinator.written.succeed();
    }
    scene
}

/// Home carries out a write, unless the object has changed since. Returns how that ended.
fn carry_out(scene: &mut Scene, write: &Write) -> WriteOutcome {
    let (Write::Create(object) | Write::Replace(object)) = write else {
        panic!("nothing goes");
    };
    let target = write.target();
    let held = scene.world.version_of(&target).cloned().unwrap_or_default();
    if held != *object.version() {
        return WriteOutcome::Conflict(None);
    }
    scene.apply(object.clone());
    let mut made = object.clone();
    made.set_version(scene.world.version_of(&target).unwrap().clone());
    WriteOutcome::Done(Some(made))
}

/// The same of a write of the coordinator, which learns how it ended.
fn carry_out_own(scene: &mut Scene, write: Write) {
    let outcome = carry_out(scene, &write);
    let cluster = write.target().name.parse().unwrap();
    let (ended, since) = (InFlight { write, sent: scene.now }, Some(scene.now));
    scene.coordinator.written.ended(&cluster, &ended, &outcome, since);
}

/// How many members have shards.
fn holders(scene: &Scene) -> usize {
    scene.world.owners().len()
}

/// The coordinator carries out what it plans. The coordinator before it gave `east` to `m-2`, and that write reaches home
/// when so many others have. Returns how many members had the group at most, and how many writes there were.
fn meet_an_old_write(is_successor: bool, after: usize) -> (usize, usize) {
    let mut scene = fleet(&[("east", "@4"), ("west", "@4")], is_successor);
    let mut given = scene.world.maps()[&"east".parse::<ClusterName>().unwrap()].clone();
    given.entries_mut().insert("g/0/1".parse().unwrap(), entry("m-2@5"));
    let mut old = Some(Write::Replace(Object::Map(given)));
    let (mut most, mut count) = (0, 0);
    for _ in 0..9 {
        for write in scene.plan().writes {
            if let Some(old) = old.take_if(|_| count == after) {
                carry_out(&mut scene, &old);
            }
            carry_out_own(&mut scene, write);
            count += 1;
            most = most.max(holders(&scene));
        }
    }
    (most, count)
}

#[test]
fn a_group_of_the_fleet_has_one_member_whenever_an_old_write_arrives() {
    for after in 0..6 {
        assert_eq!(meet_an_old_write(true, after).0, 1, "{after}");
    }
    assert_eq!(meet_an_old_write(true, usize::MAX), (1, 4), "each map is written once more");
    assert_eq!(meet_an_old_write(false, usize::MAX), (1, 2), "no write can be under way");
}

/// The planted bug: a coordinator that takes itself for the first one.
#[test]
fn a_coordinator_that_forgets_who_was_before_it_is_caught() {
    assert_eq!(meet_an_old_write(false, 0).0, 2);
}

#[test]
fn an_own_write_without_an_answer_is_made_void_first() {
    let mut scene = fleet(&[("east", "@4"), ("west", "@4")], false);
    let given = scene.plan().writes.remove(0);
    let ended = InFlight { write: given.clone(), sent: scene.now };
    let (cluster, failed) = ("east".parse().unwrap(), WriteOutcome::Failed);
    scene.coordinator.written.ended(&cluster, &ended, &failed, Some(scene.now));
    scene.check(&["update east v5: g/0/1 @4"]);
    let mut plan = scene.plan();
    let [told] = &plan.problems[..] else { panic!("{:?}", plan.problems) };
    assert!(told.starts_with("shardmaps.leasehold.dev east of the home cluster: "), "{told}");
    assert!(told.contains("so shards of group g get no next owner"), "{told}");
    carry_out_own(&mut scene, plan.writes.remove(0));
    assert_eq!(scene.plan().problems, [""; 0]);
    assert!(matches!(carry_out(&mut scene, &given), WriteOutcome::Conflict(_)));
    scene.check(&["update east v7: g/0/1 m-0@5", "update west v6: g/0/1 m-0@5"]);
}

/// As one with a finalizer, or where nobody may delete it.
#[test]
fn a_map_that_is_to_go_and_stays_holds_nothing_up() {
    let mut scene = fleet(&[("east", "@4"), ("west", "@4")], true);
    let west = "west".parse().unwrap();
    scene.clusters.remove(&west);
    scene.floor(Floor::Known(Epoch(4)));
    drop(scene.plan());
    scene.pass(LONG_GRACE);
    ["m-0", "m-2"].iter().for_each(|member| scene.renew(member));
    scene.check(&["update east v5: g/0/1 @4", "update west v6: g/0/1 @4"]);
    for write in scene.plan().writes {
        carry_out_own(&mut scene, write);
    }
    for _ in 0..2 {
        scene.check(&["update east v10: g/0/1 m-0@5", "delete west v11: "]);
        let write = scene.plan().writes.remove(1);
        let (ended, since) = (InFlight { write, sent: scene.now }, Some(scene.now));
        scene.coordinator.written.ended(&west, &ended, &WriteOutcome::Failed, since);
    }
}

#[test]
fn a_new_map_has_no_owner_before_the_others_are_written() {
    let mut scene = fleet(&[("east", "m-0@4")], true);
    scene.check(&["update east v5: g/0/1 m-0@4", "create west v: g/0/1 @0"]);
    for write in scene.plan().writes {
        carry_out_own(&mut scene, write);
    }
    scene.check(&["update west v7: g/0/1 m-0@1"]);
}

#[test]
fn nothing_more_is_written_without_a_handover_of_such_a_group() {
    let mut scene = fleet(&[("east", "m-0@4"), ("west", "m-0@4")], true);
    scene.check(&[]);
    // A group of another scope.
    let mut scene = Scene::new(&["m-0", "m-1"], &["east", "west"]);
    scene.coordinator.written.succeed();
    scene.map("east", "m-1@4");
    scene.map("west", "m-0@4");
    scene.lease("m-1", Some("m-0"));
    scene.check(&["update east v5: g/0/1 m-0@5"]);
}
