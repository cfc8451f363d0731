//! A process and the one before it in its container, against a home cluster that the test plays.

use std::collections::BTreeSet;
use std::time::Duration;

use model::{MemberId, Moment};

use super::*;
use crate::api::{MemberContainer, MemberSpec, ObjectVersion};
use crate::config::Config;
use crate::lease::{COORDINATOR, LeaseRecord, member_lease_name};
use crate::node::Input;
use crate::record::{Kind, MemberRecord, Object, Observation, Write, WriteOutcome};

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

/// A process in `own`, and a fleet in which `replica-0-old` in `other` coordinates.
fn node(own: Option<MemberContainer>, other: Option<MemberContainer>) -> Node {
    let groups = BTreeSet::from(["g".parse().unwrap()]);
    let config = Config { container: own, ..Config::new("replica-0", groups, 1) };
    let mut node = Node::new(config, at(60));
    let old: MemberId = "replica-0-old".parse().unwrap();
    let lease = |name: String, resource| {
        let mut record = LeaseRecord::new(name, &old, Duration::from_secs(8));
        record.version = ObjectVersion::numbered(resource);
        Object::Lease(record)
    };
    let mut spec = MemberSpec::new("replica-0", Vec::new());
    spec.container = other;
    let member = MemberRecord { id: old.clone(), version: ObjectVersion::numbered(3), spec };
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

/// The Leases that the process takes at once, and what its Member says of the instances before.
fn done(node: &mut Node) -> (Vec<String>, Vec<String>) {
    let (mut taken, mut said) = (Vec::new(), Vec::new());
    for resource in 100.. {
        let writes = node.step(at(60)).writes;
        if writes.is_empty() {
            break;
        }
        for write in writes {
            let target = write.target();
            let is_replaced = matches!(write, Write::Replace(_));
            let (Write::Create(mut object) | Write::Replace(mut object)) = write else {
                panic!("{target:?} is deleted");
            };
            match &object {
                Object::Lease(lease) if is_replaced => taken.push(lease.name.clone()),
                Object::Member(member) => said.clone_from(&member.spec.succeeds),
                _ => {}
            }
            object.set_version(ObjectVersion::numbered(resource));
            node.handle(Input::Completed(target, WriteOutcome::Done(Some(object))), at(60));
        }
    }
    (taken, said)
}

#[test]
fn a_process_says_whom_it_succeeds_and_coordinates_in_its_place() {
    let mut node = node(Some(container("t2", Some("9:1"))), Some(container("t1", Some("9:1"))));
    let (taken, said) = done(&mut node);
    assert_eq!(taken, [COORDINATOR, "leasehold-member-replica-0-old"]);
    assert_eq!(said, ["t1"]);
}

#[test]
fn in_doubt_a_process_says_and_takes_nothing() {
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
        assert_eq!(done(&mut node(own, other)), (vec![], vec![]), "{about}");
    }
}

#[test]
fn others_believe_the_successor() {
    let mut node = node(None, Some(container("t1", Some("9:1"))));
    let (old, next) = ("replica-0-old".parse().unwrap(), "replica-0-new".parse().unwrap());
    let mut spec = MemberSpec::new("replica-0", Vec::new());
    spec.container = Some(container("t2", Some("9:1")));
    let says = |tokens: &[&str], resource| {
        let succeeds = tokens.iter().map(|&token| token.to_owned()).collect();
        let spec = MemberSpec { succeeds, ..spec.clone() };
        let record = MemberRecord {
            id: MemberId::clone(&next),
            version: ObjectVersion::numbered(resource),
            spec,
        };
        Input::Observed(Observation::Applied(Object::Member(record)))
    };
    node.handle(says(&["t0", "t2"], 20), at(60));
    assert!(!node.world().is_dead(&old) && !node.world().is_dead(&next), "nobody ends itself");
    node.handle(says(&["t1"], 21), at(60));
    assert!(node.world().is_dead(&old) && !node.world().is_dead(&next));
    node.handle(says(&[], 22), at(60));
    assert!(node.world().is_dead(&old), "it is true for ever");
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
