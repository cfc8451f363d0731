//! A process and the one before it in its container, against a home cluster that the test plays.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::api::{MemberContainer, MemberSpec, ObjectVersion};
use crate::config::Config;
use crate::lease::{COORDINATOR, LeaseRecord, member_lease_name};
use crate::node::Input;
use crate::record::{Kind, MemberRecord, Observation, WriteOutcome};

fn container(token: &str, lock: Option<&str>) -> MemberContainer {
    MemberContainer {
        pod_uid: "pod-1".into(),
        name: "leasehold".into(),
        boot_id: "boot".into(),
        token: token.into(),
        lock_id: lock.map(str::to_owned),
    }
}

fn at(s: u64) -> Moment {
    Moment::from_origin(Duration::from_secs(s))
}

fn version(resource: u64) -> ObjectVersion {
    ObjectVersion { uid: "u".into(), resource: resource.to_string() }
}

/// A process in `own`, and a fleet in which `replica-0-old` in `other` coordinates.
fn node(own: Option<MemberContainer>, other: Option<MemberContainer>) -> Node {
    let groups = BTreeSet::from(["g".parse().unwrap()]);
    let config = Config { container: own, ..Config::new("replica-0", groups, 1) };
    let mut node = Node::new(config, at(60));
    let old: MemberId = "replica-0-old".parse().unwrap();
    let lease = |name: String, resource| {
        let mut record = LeaseRecord::new(name, &old, Duration::from_secs(8));
        record.version = version(resource);
        Object::Lease(record)
    };
    let mut spec = MemberSpec::new("replica-0", Vec::new());
    spec.container = other;
    let member = MemberRecord { id: old.clone(), version: version(3), spec };
    for (kind, objects) in [
        (Kind::Lease, vec![lease(member_lease_name(&old), 1), lease(COORDINATOR.to_owned(), 2)]),
        (Kind::Member, vec![Object::Member(member)]),
        (Kind::Map, Vec::new()),
    ] {
        node.handle(Input::Observed(Observation::Listed(kind, "9".into(), objects)), at(60));
    }
    node.handle(Input::Clusters(BTreeSet::new(), Vec::new()), at(60));
    node
}

/// The Leases that the process takes at once, with the versions that it replaces.
fn taken(node: &mut Node) -> Vec<(String, String)> {
    let mut taken = Vec::new();
    loop {
        let writes = node.step(at(60)).writes;
        if writes.is_empty() {
            return taken;
        }
        for write in writes {
            let target = write.target();
            let (Write::Create(mut object) | Write::Replace(mut object)) = write.clone() else {
                panic!("{write:?}");
            };
            if let Write::Replace(Object::Lease(lease)) = &write
                && lease.holder.as_deref() == Some(node.id().as_str())
            {
                taken.push((lease.name.clone(), lease.version.resource.clone()));
            }
            object.set_version(version(100 + taken.len() as u64));
            node.handle(Input::Completed(target, WriteOutcome::Done(Some(object))), at(60));
        }
    }
}

#[test]
fn a_process_takes_over_from_the_one_before_in_its_container() {
    let mut node = node(Some(container("t2", Some("9:1"))), Some(container("t1", Some("9:1"))));
    let expect = [("leasehold-member-replica-0-old", "1"), (COORDINATOR, "2")];
    let expect = expect.map(|(name, version)| (name.to_owned(), version.to_owned()));
    assert_eq!(taken(&mut node), expect, "and it coordinates in its place");
}

#[test]
fn in_doubt_a_process_takes_nothing() {
    let mine = || Some(container("t2", Some("9:1")));
    for (own, other) in [
        (mine(), Some(container("t1", None))),
        (mine(), Some(container("t1", Some("9:2")))),
        (mine(), Some(container("t2", Some("9:1")))),
        (mine(), None),
        (Some(container("t2", None)), Some(container("t1", Some("9:1")))),
        (None, Some(container("t1", Some("9:1")))),
    ] {
        let about = format!("{own:?} {other:?}");
        assert_eq!(taken(&mut node(own, other)), [], "{about}");
    }
}

#[test]
fn the_word_of_home_is_noted_once_for_each_member() {
    let mut node = node(None, Some(container("t1", None)));
    let ended = || Input::Ended(vec![Ended::of(&container("t1", None))]);
    node.handle(ended(), at(60));
    let notes = node.step(at(60)).notes;
    assert!(notes.contains(&Note::Ended("replica-0-old".parse().unwrap())), "{notes:?}");
    node.handle(ended(), at(60));
    let notes = node.step(at(60)).notes;
    assert!(!notes.iter().any(|note| matches!(note, Note::Ended(_))), "{notes:?}");
}
