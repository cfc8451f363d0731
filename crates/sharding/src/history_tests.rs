//! What proves that home's history changed, and what does not.

use std::time::Duration;

use super::*;
use crate::api::{MemberSpec, ObjectVersion};
use crate::floor::Floor;
use crate::lease::{LeaseRecord, member_lease_name};
use crate::record::MemberRecord;

const OWN: &str = "leasehold-member-m-1";

fn at(s: u64) -> Moment {
    Moment::from_origin(Duration::from_secs(s))
}

fn record(name: &str, uid: &str, version: u64) -> LeaseRecord {
    let me = "m-1".parse().unwrap();
    let mut record = LeaseRecord::new(name.to_owned(), &me, Duration::from_secs(8));
    record.version = ObjectVersion { uid: uid.into(), resource: version.to_string() };
    record
}

fn lease(name: &str, version: u64) -> Object {
    Object::Lease(record(name, "u", version))
}

fn member(changes: u64, floor: u64) -> Object {
    let history = (changes > 0).then_some(HomeHistory { changes, floor: Epoch(floor) });
    let spec = MemberSpec { history, ..MemberSpec::new("m", Vec::new()) };
    let version = ObjectVersion::default();
    Object::Member(MemberRecord { id: "m-2".parse().unwrap(), version, spec })
}

#[test]
fn the_answer_to_an_own_write_proves_that_versions_went_back_and_a_newer_one_does_not() {
    assert_eq!(member_lease_name(&"m-1".parse().unwrap()), OWN);
    let mut history = History::default();
    history.saw(&lease("other", 50));
    // Another kind, whose versions are its own.
    history.saw(&member(0, 0));
    let delete = || Write::Delete(lease("x", 50).target(), lease("x", 50).version().clone());
    for (write, outcome, is_proof) in [
        (Write::Replace(lease("x", 50)), WriteOutcome::Conflict(Some(lease("x", 49))), true),
        (Write::Replace(lease("x", 50)), WriteOutcome::Conflict(Some(lease("x", 51))), false),
        (Write::Replace(lease("x", 50)), WriteOutcome::Conflict(Some(lease("x", 50))), false),
        (Write::Replace(lease("x", 50)), WriteOutcome::Conflict(None), false),
        (Write::Replace(lease("x", 50)), WriteOutcome::Failed, false),
        (delete(), WriteOutcome::Conflict(Some(lease("x", 7))), true),
        (delete(), WriteOutcome::Conflict(Some(lease("x", 70))), false),
        (Write::Create(lease(OWN, 0)), WriteOutcome::Done(Some(lease(OWN, 7))), true),
        (Write::Create(lease(OWN, 0)), WriteOutcome::Done(Some(lease(OWN, 60))), false),
        (Write::Replace(lease(OWN, 5)), WriteOutcome::Done(Some(lease(OWN, 7))), true),
        (Write::Replace(lease(OWN, 5)), WriteOutcome::Done(Some(lease(OWN, 60))), false),
        (
            Write::Create(lease(COORDINATOR, 0)),
            WriteOutcome::Done(Some(lease(COORDINATOR, 3))),
            true,
        ),
        // Its name may have been used before, so its version says nothing.
        (Write::Create(lease("x", 0)), WriteOutcome::Conflict(Some(lease("x", 7))), false),
    ] {
        let mut history = history.clone();
        history.sends(write.target());
        // Seen only after it was sent.
        history.saw(&lease("other", 90));
        let proof = history.refuted_by(&write, &outcome);
        assert_eq!(proof.is_some(), is_proof, "{write:?}: {outcome:?}");
    }
}

#[test]
fn a_home_without_any_lease_that_it_had_is_another_one() {
    let list = |leases: &[(&str, &str)], version: u64| {
        let leases = leases.iter().map(|(name, uid)| Object::Lease(record(name, uid, 5)));
        Observation::Listed(Kind::Lease, version.to_string(), leases.collect())
    };
    for (then, version, is_proof) in [
        (&[(COORDINATOR, "c"), (OWN, "u")][..], 20, false),
        // Somebody deleted the own Lease, or the coordinator's.
        (&[(COORDINATOR, "c")], 20, false),
        (&[(OWN, "u")], 20, false),
        (&[(COORDINATOR, "d"), (OWN, "u")], 20, false),
        (&[], 20, true),
        (&[(COORDINATOR, "d"), ("other", "o")], 20, true),
        // It was read before the own Lease was written.
        (&[], 9, false),
    ] {
        let mut history = History::default();
        assert_eq!(history.observe(&list(&[(COORDINATOR, "c")], 9)), None);
        let own = Object::Lease(record(OWN, "u", 10));
        assert_eq!(history.observe(&Observation::Applied(own)), None);
        // What the member writes there shows nothing.
        history.saw(&Object::Lease(record("other", "o", 5)));
        let proof = history.observe(&list(then, version));
        assert_eq!(proof.is_some(), is_proof, "{then:?}");
    }
    // A fleet that begins has no coordinator yet.
    let mut history = History::default();
    history.observe(&list(&[(OWN, "u")], 9));
    assert_eq!(history.observe(&list(&[], 20)), None);
}

#[test]
fn what_others_know_is_followed_once() {
    let mut history = History::default();
    history.saw(&member(3, 40));
    assert!(!history.is_told(false), "home is not read yet");
    assert!(!history.is_told(true), "what a newcomer reads first is where it begins");
    history.saw(&member(3, 60));
    history.saw(&member(2, 90));
    assert!(!history.is_told(true));
    history.saw(&member(4, 70));
    assert!(history.is_told(true));
    history.change(at(1));
    let said = |changes, floor| Some(HomeHistory { changes, floor: Epoch(floor) });
    assert_eq!(history.said(), said(4, 90), "the same change, and the highest epoch of all");
    assert!(!history.is_told(true));
    history.saw(&member(0, 0));
    history.change(at(2));
    assert_eq!(history.said(), said(5, 90), "the next change, by its own proof");
}

/// Whatever number somebody writes into a Member, the next change is told to all, also to members that began later.
#[test]
fn no_number_of_a_change_is_the_last_one() {
    let begun = |changes| {
        let mut history = History::default();
        history.saw(&member(changes, 0));
        assert!(!history.is_told(true), "where it begins");
        history
    };
    let said = |history: &History| history.said().map_or(0, |said| said.changes);
    for before in [[0, 0, 0], [0, 5, 5]] {
        for edited in [1, 5, 6, 1_000, LAST_CHANGE / 2, LAST_CHANGE - 1, LAST_CHANGE] {
            let mut members = before.map(begun);
            // All see the edit, and what the others make of it.
            for _ in 0..2 {
                let numbers: Vec<u64> = members.iter().map(said).chain([edited]).collect();
                for history in &mut members {
                    numbers.iter().for_each(|number| history.saw(&member(*number, 0)));
                    if history.is_told(true) {
                        history.change(at(1));
                    }
                }
            }
            let known = said(&members[0]);
            for history in &mut members {
                assert_eq!(said(history), known, "{edited}: all go on from one number");
                assert!(!history.is_told(true), "{edited}: and rest");
            }
            // One of them has a proof of the next change.
            members[2].change(at(2));
            let next = members[2].said().unwrap();
            assert!(next.is_credible() && next.changes != known, "{edited}: {next:?}");
            for history in &mut members[..2] {
                history.saw(&member(next.changes, 0));
                assert!(history.is_told(true), "{edited}");
            }
        }
    }
}

#[test]
fn a_coordinator_waits_one_silence_also_if_it_came_later() {
    let timings = LeaseTimings { margin: Duration::ZERO, ..LeaseTimings::default() };
    let timings = (timings, timings.silence());
    let (low, high) = (Epoch(0), Epoch(7));
    let mut noticed = History::default();
    assert_eq!(noticed.waits(low, low, timings, at(1)), None, "nothing happened");
    noticed.change(at(2));
    assert_eq!(noticed.waits(high, low, timings, at(3)), Some(at(10)));
    assert_eq!(noticed.waits(high, high, timings, at(9)), Some(at(10)));
    assert_eq!(noticed.waits(high, high, timings, at(10)), None);
    let mut newcomer = History::default();
    assert_eq!(newcomer.waits(high, low, timings, at(3)), Some(at(11)));
    assert_eq!(newcomer.waits(high, high, timings, at(10)), Some(at(11)));
    let mut later = History::default();
    assert_eq!(later.waits(high, high, timings, at(3)), None, "all waited");
}

#[test]
fn who_was_without_home_listens_for_two_intervals_first() {
    let timings = LeaseTimings::default();
    let timings = (timings, timings.silence());
    let mut history = History::default();
    history.answers(at(1));
    assert_eq!(history.waits(Epoch(0), Epoch(0), timings, at(1)), None);
    history.away();
    history.answers(at(3));
    history.answers(at(5));
    assert_eq!(history.waits(Epoch(0), Epoch(0), timings, at(6)), Some(at(7)));
    assert_eq!(history.waits(Epoch(0), Epoch(0), timings, at(7)), None);
}

#[test]
fn the_floor_of_the_coordinators_lease_counts_as_an_epoch() {
    let mut history = History::default();
    let mut told = record(COORDINATOR, "c", 5);
    told.floor = Floor::Known(Epoch(8));
    history.saw(&Object::Lease(told));
    history.change(at(1));
    assert_eq!(history.said().map(|said| said.floor), Some(Epoch(8)));
}
