//! Stories with a known end: `a` owns the shard from second 10 to 20, `b` from then on.

use super::*;
use crate::chaos::fixture::{at, dispatch, history, life};

const STORY: &str = "10 Owned a-x 1, 20 Owned b-x 2";

fn judged(dispatches: &[Dispatch], lives: Vec<Life>) -> (usize, Vec<String>, Vec<Duration>) {
    let mut story = history(STORY);
    story.dispatches = dispatches.to_vec();
    story.lives = lives;
    let Judgement { overlaps, trespasses, woken } = judge(&story);
    let trespasses = trespasses.into_iter().map(|finding| finding.what).collect();
    (overlaps.len(), trespasses, woken.into_iter().map(|woken| woken.lasted).collect())
}

fn all_alive() -> Vec<Life> {
    vec![life("a", &[], 99), life("b", &[], 99)]
}

#[test]
fn owners_one_after_the_other_do_nothing_wrong() {
    let told = [dispatch("a-x", 1, 11, 19), dispatch("a-x", 1, 19, 20), dispatch("b-x", 2, 20, 30)];
    assert_eq!(judged(&told, all_alive()), (0, vec![], vec![]));
}

#[test]
fn a_dispatch_outside_its_owners_time_is_found() {
    for (told, expect) in [
        (dispatch("a-x", 1, 9, 12), "is before it owned it"),
        (dispatch("a-x", 1, 19, 21), "it went on until 1970-01-01T00:00:21Z"),
        (dispatch("a-x", 1, 25, 26), "it went on until 1970-01-01T00:00:26Z"),
        (dispatch("a-x", 2, 25, 26), "b-x owned it at that epoch"),
        (dispatch("b-x", 3, 25, 26), "nobody owned it at that epoch"),
    ] {
        let (_, trespasses, _) = judged(&[told], all_alive());
        assert!(
            trespasses.len() == 1 && trespasses[0].contains(expect),
            "{expect}: {trespasses:?}"
        );
    }
}

#[test]
fn a_key_dispatched_twice_at_once_is_found() {
    for (why, second, expect) in [
        ("after", dispatch("b-x", 2, 22, 25), 0),
        ("across", dispatch("b-x", 2, 21, 25), 1),
        ("inside", dispatch("b-x", 2, 20, 21), 1),
        ("by one member", dispatch("a-x", 1, 12, 13), 1),
    ] {
        let (overlaps, _, _) = judged(&[dispatch("a-x", 1, 11, 22), second], all_alive());
        assert_eq!(overlaps, expect, "{why}");
    }
}

#[test]
fn the_dead_do_nothing_and_an_open_dispatch_ends_with_them() {
    let open = Dispatch { until: None, ..dispatch("a-x", 1, 15, 0) };
    let told = [open, dispatch("b-x", 2, 21, 22)];
    let killed = vec![life("a", &[], 16), life("b", &[], 99)];
    assert_eq!(judged(&told, killed), (0, vec![], vec![]));
    let (overlaps, trespasses, _) = judged(&told, all_alive());
    assert_eq!((overlaps, trespasses.len()), (1, 1), "alive, it went on");
}

#[test]
fn a_reconcile_that_slept_is_told_apart_and_one_begun_after_waking_is_not_forgiven() {
    let slept = vec![life("a", &[(15, 70)], 99), life("b", &[], 99)];
    let others = dispatch("b-x", 2, 69, 72);
    let asleep = dispatch("a-x", 1, 14, 71);
    assert_eq!(
        judged(&[asleep, others.clone()], slept.clone()),
        (0, vec![], vec![Duration::from_secs(1)])
    );
    let (overlaps, trespasses, _) = judged(&[dispatch("a-x", 1, 70, 71), others], slept);
    assert_eq!((overlaps, trespasses.len()), (1, 1));
}

#[test]
fn what_the_audit_logs_found_is_a_trespass() {
    let mut story = history("10 Owned a-x 2, 20 Owned b-x 1");
    story.bad_writes = vec![(at(12), "PATCH by nobody".to_owned())];
    let found = judge(&story).trespasses;
    assert_eq!(found.len(), 2);
    assert!(found[1].what.contains("b-x got it at epoch 1 after a-x at epoch 2"));
}
