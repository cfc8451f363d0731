use std::time::Duration;

use model::{Epoch, Moment};
use proptest::prelude::*;

use super::*;
use crate::api::{MemberSpec, ObjectVersion};
use crate::handover::Entry;
use crate::lease::{self, COORDINATOR, LeaseRecord};
use crate::record::{MapRecord, MemberRecord, Object};

fn versions((oldest, newest): (u32, u32)) -> ProtocolVersions {
    ProtocolVersions { oldest, newest }
}

fn id(number: usize) -> MemberId {
    format!("m-{number}").parse().unwrap()
}

/// Members `m-0`, `m-1`, …, the first of which coordinates. The number beside a member is the version
/// of a map in which it owns a shard.
fn fleet(members: &[((u32, u32), Option<u32>)]) -> World {
    let mut world = World::default();
    let mut apply = |object| world.apply(object, Moment::default());
    apply(Object::Lease(LeaseRecord::new(COORDINATOR.into(), &id(0), Duration::from_secs(8))));
    for (number, &(speaks, owns)) in members.iter().enumerate() {
        let (id, speaks) = (id(number), versions(speaks));
        let name = lease::member_lease_name(&id);
        apply(Object::Lease(LeaseRecord::new(name, &id, Duration::from_secs(8))));
        if let Some(protocol) = owns {
            let mut map = MapRecord::new(format!("c{number}").parse().unwrap());
            let entry = Entry::Owned { owner: id.clone(), epoch: Epoch(1) };
            map.entries_mut().insert("g/0/1".parse().unwrap(), entry);
            map.protocol = protocol;
            apply(Object::Map(map));
        }
        let spec = MemberSpec {
            protocol_version: speaks.newest,
            oldest_protocol_version: speaks.reported_oldest(),
            ..MemberSpec::new("m", Vec::new())
        };
        apply(Object::Member(MemberRecord { id, version: ObjectVersion::default(), spec }));
    }
    world
}

fn used(members: &[((u32, u32), Option<u32>)]) -> u32 {
    in_use(&fleet(members), &id(0), versions(members[0].0))
}

#[test]
fn the_version_in_use_is_the_newest_that_all_speak() {
    for (members, expect) in [
        (vec![((1, 1), None)], 1),
        (vec![((1, 2), None)], 2),
        (vec![((1, 2), None), ((1, 1), None)], 1),
        (vec![((1, 2), None), ((1, 1), Some(1))], 1),
        (vec![((2, 3), None), ((1, 2), None), ((3, 4), None)], 2),
        // A member without a version in common with the coordinator has no say.
        (vec![((2, 2), None), ((1, 1), None)], 2),
        // Neither has a member that would shut out an owner of shards.
        (vec![((1, 2), None), ((1, 1), None), ((2, 2), Some(2))], 2),
    ] {
        assert_eq!(used(&members), expect, "{members:?}");
    }
}

#[test]
fn the_dead_have_no_say() {
    let mut world = fleet(&[((1, 2), None), ((1, 1), Some(1))]);
    let mut taken = world.lease_of(&id(1)).unwrap().record.clone();
    taken.holder = Some("m-0".into());
    taken.version.resource = "7".into();
    world.apply(Object::Lease(taken), Moment::default());
    assert_eq!(in_use(&world, &id(0), versions((1, 2))), 2);
}

#[test]
fn a_member_learns_why_it_cannot_take_part_and_what_to_do() {
    let refused = |members: &[_], me, speaks| {
        refusal(&fleet(members), &id(me), versions(speaks), "ns").unwrap_or_default()
    };
    let owner = ((1, 1), Some(1));
    assert_eq!(refused(&[owner, owner], 1, (1, 1)), "");
    assert_eq!(
        refused(&[((1, 1), None), ((2, 2), None)], 1, (2, 2)),
        "the fleet in namespace ns of the home cluster, coordinated by m-0, uses protocol version 1 and this member speaks protocol version 2: it gets no shards; fix: roll this replica back to the release of the others, or upgrade all by way of a release that speaks both versions"
    );
    assert_eq!(
        refused(&[((2, 3), Some(3)), ((2, 3), Some(3)), ((1, 2), None)], 2, (1, 2)),
        "shardmaps.leasehold.dev c0 in namespace ns of the home cluster (and 1 more) is written in protocol version 3 and this member speaks protocol versions 1 to 2: it acts on none of its shards, and coordinates the others only while no other member can; fix: upgrade this replica to the release of the others, or roll the others back"
    );
}

proptest! {
    /// Whatever releases join: the coordinator speaks the version in use, and so do all owners, if
    /// there is a version that all of them speak.
    #[test]
    fn the_version_in_use_is_spoken_by_the_coordinator_and_by_owners(
        owners in prop::collection::vec((0..3u32, 0..3u32), 1..4),
        strays in prop::collection::vec((1..9u32, 0..4u32), 0..4),
    ) {
        // All owners speak version 4, and the first of them coordinates.
        let owners = owners.iter().map(|(below, above)| ((4 - below, 4 + above), Some(4)));
        let strays = strays.iter().map(|(oldest, more)| ((*oldest, oldest + more), None));
        let members: Vec<_> = owners.chain(strays).collect();
        let version = used(&members);
        for (speaks, _) in members.iter().filter(|(_, owns)| owns.is_some()) {
            prop_assert!(versions(*speaks).speaks(version), "{version} is not of {speaks:?}");
        }
    }
}
