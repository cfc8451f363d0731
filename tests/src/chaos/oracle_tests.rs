//! Histories whose judgement is known: `a` owns the shard from second 10 to 20, `b` from then on.

use super::*;
use crate::chaos::fixture::{at, dispatch, history, life};

const STORY: &str = "10 Owned a-x 1, 20 Owned b-x 2";

fn judged(dispatches: &[Dispatch], lives: Vec<Life>) -> (usize, Vec<String>) {
    let mut story = history(STORY);
    story.dispatches = dispatches.to_vec();
    story.lives = lives;
    let Judgement { overlaps, violations } = judge(&story);
    (overlaps.len(), violations.into_iter().map(|finding| finding.what).collect())
}

fn all_alive() -> Vec<Life> {
    vec![life("a", &[], 99), life("b", &[], 99)]
}

#[test]
fn owners_one_after_the_other_break_no_rule() {
    let dispatches =
        [dispatch("a-x", 1, 11, 19), dispatch("a-x", 1, 19, 20), dispatch("b-x", 2, 20, 30)];
    assert_eq!(judged(&dispatches, all_alive()), (0, vec![]));
}

#[test]
fn a_dispatch_outside_its_owners_time_is_found() {
    for (dispatch, expect) in [
        (dispatch("a-x", 1, 9, 12), "it began at 1970-01-01T00:00:09Z, before the ownership"),
        (dispatch("a-x", 1, 19, 21), "it ended at 1970-01-01T00:00:21Z, after the ownership"),
        (dispatch("a-x", 1, 25, 26), "it ended at 1970-01-01T00:00:26Z, after the ownership"),
        (dispatch("a-x", 2, 25, 26), "b-x owned it at that epoch"),
        (dispatch("b-x", 3, 25, 26), "nobody owned it at that epoch"),
    ] {
        let (_, violations) = judged(&[dispatch], all_alive());
        assert!(
            violations.len() == 1 && violations[0].contains(expect),
            "{expect}: {violations:?}"
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
        let (overlaps, _) = judged(&[dispatch("a-x", 1, 11, 22), second], all_alive());
        assert_eq!(overlaps, expect, "{why}");
    }
}

#[test]
fn an_open_dispatch_ends_with_its_process() {
    let open = Dispatch { until: None, ..dispatch("a-x", 1, 15, 0) };
    let dispatches = [open, dispatch("b-x", 2, 21, 22)];
    let killed = vec![life("a", &[], 16), life("b", &[], 99)];
    assert_eq!(judged(&dispatches, killed), (0, vec![]));
    let (overlaps, violations) = judged(&dispatches, all_alive());
    assert_eq!((overlaps, violations.len()), (1, 1), "it continues in a process that lives");
}

#[test]
fn a_reconcile_that_runs_on_after_its_process_wakes_is_a_violation() {
    let slept = vec![life("a", &[(15, 70)], 99), life("b", &[], 99)];
    let other = dispatch("b-x", 2, 69, 72);
    for (why, ours, expect) in [
        ("its code did not run again", dispatch("a-x", 1, 14, 15), (0, 0)),
        ("its code ran on", dispatch("a-x", 1, 14, 71), (1, 1)),
        ("it began after the waking", dispatch("a-x", 1, 70, 71), (1, 1)),
    ] {
        let (overlaps, violations) = judged(&[ours, other.clone()], slept.clone());
        assert_eq!((overlaps, violations.len()), expect, "{why}");
    }
    let open = Dispatch { until: None, ..dispatch("a-x", 1, 14, 0) };
    let killed = vec![life("a", &[(15, 99)], 99), life("b", &[], 99)];
    assert_eq!(judged(&[open, other], killed), (0, vec![]), "killed while it was stopped");
}

#[test]
fn bad_writes_and_bad_maps_are_violations() {
    let mut story = history("10 Owned a-x 2, 20 Owned b-x 1");
    story.bad_writes = vec![(at(12), "PATCH by nobody".to_owned())];
    let found = judge(&story).violations;
    assert_eq!(found.len(), 2);
    assert!(found[1].what.contains("b-x got it at epoch 1 after a-x at epoch 2"));
}
