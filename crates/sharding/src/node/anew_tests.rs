//! What a member makes of a change of home's history that came before it, against a home that accepts every write.

use std::collections::BTreeSet;
use std::time::Duration;

use model::MemberId;

use super::*;
use crate::api::{HomeHistory, MemberSpec, ObjectVersion};
use crate::config::{Config, LeaseTimings};
use crate::floor::Floor;
use crate::handover::Entry;
use crate::lease::LeaseRecord;
use crate::member::Departure;
use crate::node::Input;
use crate::record::{Kind, MapRecord, MemberRecord, Object};

/// The time of day, and the highest epoch of which the one before knew.
const WALL: u64 = 1_000;
const KNOWN: u64 = 7;

/// One that says of a change.
fn other() -> MemberRecord {
    let mut spec = MemberSpec::new("other", Vec::new());
    spec.history = Some(HomeHistory { changes: 1, floor: Epoch(KNOWN) });
    MemberRecord { id: "other-1".parse().unwrap(), version: ObjectVersion::numbered(3), spec }
}

/// A process that begins where another one says of a change. Nobody holds the coordinator's Lease, which has that
/// floor if it is there, and a shard has no owner.
fn newcomer(floor: Option<u64>, now: Moment) -> Node {
    let groups = BTreeSet::from(["g".parse().unwrap()]);
    let mut node = Node::new(Config::new("replica-0", groups, 1), now);
    let id: MemberId = "other-1".parse().unwrap();
    let lease = floor.map(|floor| {
        let record = LeaseRecord::new(COORDINATOR.to_owned(), &id, Duration::from_secs(8));
        let (floor, version) = (Floor::Known(Epoch(floor)), ObjectVersion::numbered(2));
        Object::Lease(LeaseRecord { holder: None, transitions: 1, floor, version, ..record })
    });
    let mut map = MapRecord::new("east".parse().unwrap());
    map.version = ObjectVersion::numbered(4);
    map.entries_mut().insert("g/0/1".parse().unwrap(), Entry::Unowned { epoch: Epoch(5) });
    for (kind, objects) in [
        (Kind::Lease, lease.into_iter().collect()),
        (Kind::Member, vec![Object::Member(other())]),
        (Kind::Map, vec![Object::Map(map)]),
    ] {
        node.handle(Input::Observed(Observation::Listed(kind, "9".into(), objects)), now);
    }
    node.handle(Input::Clusters(BTreeSet::from(["east".parse().unwrap()]), Vec::new()), now);
    node.handle(Input::Wall(WALL), now);
    node
}

/// Home accepts all that a node writes now. Returns what that was.
fn settle(node: &mut Node, version: &mut u64, now: Moment) -> Vec<Write> {
    let mut written = Vec::new();
    loop {
        let writes = node.step(now).writes;
        if writes.is_empty() {
            return written;
        }
        for write in writes {
            *version += 1;
            let made = match write.clone() {
                Write::Create(mut object) | Write::Replace(mut object) => {
                    object.set_version(ObjectVersion::numbered(*version));
                    Some(object)
                }
                Write::Delete(..) => None,
            };
            let done = WriteOutcome::Done(made);
            node.handle(Input::Completed(write.target(), done), now);
            written.push(write);
        }
    }
}

/// After which time it writes the map, and the floors that it writes before. Whoever told it of the change soon goes.
fn first_map(floor: Option<u64>) -> (Duration, Vec<Epoch>) {
    let begun = Moment::from_origin(Duration::from_secs(60));
    let (mut node, mut floors, mut version) = (newcomer(floor, begun), Vec::new(), 9);
    for after in (0..200).map(|tenths| Duration::from_millis(100 * tenths)) {
        let now = begun + after;
        if after == Duration::from_secs(1) {
            let gone = Observation::Deleted(Object::Member(other()));
            node.handle(Input::Observed(gone), now);
        }
        for write in settle(&mut node, &mut version, now) {
            match write {
                Write::Create(Object::Map(_)) | Write::Replace(Object::Map(_)) => {
                    return (after, floors);
                }
                Write::Create(Object::Lease(lease)) | Write::Replace(Object::Lease(lease))
                    if lease.name == COORDINATOR =>
                {
                    floors.extend(lease.floor.known());
                }
                _ => {}
            }
        }
    }
    panic!("it gives the shard an owner");
}

/// Whoever learned of the change and waited may be gone, as when it was killed a moment later. What home has forgotten
/// may have an owner that has not noticed yet.
#[test]
fn who_comes_after_a_change_waits_one_silence_unless_somebody_has() {
    let silence = LeaseTimings::default().silence();
    for low in [None, Some(KNOWN - 1)] {
        let (after, mut floors) = first_map(low);
        assert!(after >= silence, "{low:?}: after {after:?}");
        assert_eq!(floors.pop(), Some(Epoch(WALL)), "{low:?}: before it names an owner");
        let kept = Epoch(low.unwrap_or_default());
        assert!(floors.iter().all(|floor| *floor == kept), "{low:?}: {floors:?}");
        assert!(!floors.is_empty(), "{low:?}: it holds the office meanwhile");
    }
    let (after, floors) = first_map(Some(KNOWN));
    assert!(after < silence, "somebody has waited: after {after:?}");
    assert_eq!(floors, [Epoch(WALL)]);
}

/// It has no shards, so it renews the coordinator's Lease no more, and raises the floor when it gives that back.
#[test]
fn who_leaves_while_it_waits_is_done_after_one_silence() {
    let begun = Moment::from_origin(Duration::from_secs(60));
    let (mut node, mut version) = (newcomer(None, begun), 9);
    for now in (0..200).map(|tenths| begun + Duration::from_millis(100 * tenths)) {
        if now == begun + Duration::from_secs(1) {
            assert_eq!(node.coordinator().as_ref(), Some(node.id()));
            node.handle(Input::Leave, now);
        }
        settle(&mut node, &mut version, now);
    }
    assert_eq!((node.departed(), node.durable()), (Some(Departure::HandedOver), Epoch(KNOWN)));
}
