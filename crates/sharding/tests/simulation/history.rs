//! Home is restored, emptied and replaced. The members learn of it, and go on after one silence; no epoch
//! returns, and no two members act at once. The oracles remember what home forgot.

use crate::fleet::{Bug, Fault, Fleet, Network};
use crate::{assert_caught, for_each_seed};

/// Within how many milliseconds after home's return everything is owned: the Lease's duration and 5 s.
const BOUND_MS: u64 = 13_000;

/// Three members that shared six clusters for a minute.
fn settled(seed: u64, network: Network) -> Fleet {
    let mut fleet = Fleet::new(seed, 6, network);
    fleet.start_all(3);
    fleet.run_for(20_000);
    // Shards change hands, so that a backup has other owners than home.
    fleet.inject(Fault::Crash(0));
    fleet.run_for(15_000);
    fleet.start();
    fleet.run_for(25_000);
    fleet
}

/// After home's return, everything is owned again in time, by members that live.
fn returns(mut fleet: Fleet, away_ms: u64) {
    let before = fleet.oracle.dispatches("c0");
    fleet.run_for(away_ms + BOUND_MS);
    assert_eq!(fleet.oracle.owners(), [2, 2, 2], "all owned");
    assert!(fleet.owners_live(), "by members that live");
    assert!(fleet.oracle.dispatches("c0") > before);
}

#[test]
fn a_restored_home_is_served_again_in_time() {
    for_each_seed("restore", |seed| {
        let mut fleet = settled(seed, Network::Calm);
        let end = fleet.server.end() as u64;
        let (lost, away_ms) = (fleet.draw(0..end) as usize, fleet.draw(0..20_000));
        fleet.restore_home(lost, away_ms);
        returns(fleet, away_ms);
    });
}

#[test]
fn an_emptied_home_is_served_again_in_time() {
    for_each_seed("empty", |seed| {
        let mut fleet = settled(seed, Network::Calm);
        let away_ms = fleet.draw(0..20_000);
        fleet.replace_home(0, away_ms);
        returns(fleet, away_ms);
    });
}

/// A home of another history, whose versions are higher than all that was seen.
#[test]
fn a_replaced_home_is_served_again_in_time() {
    for_each_seed("replace", |seed| {
        let mut fleet = settled(seed, Network::Calm);
        let away_ms = fleet.draw(0..20_000);
        fleet.replace_home(1_000_000, away_ms);
        returns(fleet, away_ms);
    });
}

/// Home is emptied, or its last writes are lost, while nobody runs: nobody who starts later knows of it.
fn forgotten(seed: u64, bug: Bug) {
    let mut fleet = settled(seed, Network::Calm);
    fleet.bug = bug;
    let end = fleet.server.end() as u64;
    for replica in 0..fleet.replicas() {
        fleet.inject(Fault::Crash(replica));
    }
    match fleet.draw(0..3) {
        0 => fleet.replace_home(0, 1_000),
        _ => {
            let lost = fleet.draw(0..end) as usize;
            fleet.restore_home(lost, 1_000);
        }
    }
    fleet.run_for(2_000);
    fleet.start_all(3);
    fleet.run_for(BOUND_MS);
    assert_eq!(fleet.oracle.owners(), [2, 2, 2], "all owned");
}

#[test]
fn a_home_that_forgets_while_nobody_runs_sees_no_epoch_again() {
    for_each_seed("forgotten", |seed| forgotten(seed, Bug::None));
}

/// What a random scenario does to home.
fn strike(fleet: &mut Fleet) {
    let away_ms = fleet.draw(2_000..20_000);
    let end = fleet.server.end() as u64;
    match fleet.draw(0..4) {
        0 => fleet.replace_home(0, away_ms),
        1 => fleet.replace_home(1_000_000, away_ms),
        _ => {
            let lost = fleet.draw(0..end + 1) as usize;
            fleet.restore_home(lost, away_ms);
        }
    }
    // Some watches hang: only the answers to writes tell those members.
    for replica in 0..fleet.replicas() {
        if fleet.draw(0..2) == 0 {
            let more_ms = fleet.draw(0..15_000);
            fleet.inject(Fault::Freeze(replica, away_ms + more_ms));
        }
    }
    // A process that starts before the others have written to home again cannot know of the change.
    fleet.run_for(away_ms + 3_000);
}

/// Whatever happens to home and to the members, S1, S3 and S5 hold; once it is over, everything is owned.
fn storm(seed: u64, bug: Bug) {
    let mut fleet = Fleet::new(seed, 12, Network::Rough);
    fleet.bug = bug;
    fleet.start_all(4);
    fleet.run_for(10_000);
    for round in 0..9 {
        if round % 3 == 2 {
            strike(&mut fleet);
        } else {
            fleet.inject_any();
        }
        let pause = fleet.draw(0..8_000);
        fleet.run_for(pause);
    }
    fleet.heal();
    fleet.run_for(40_000);
    assert_eq!(fleet.oracle.owners().iter().sum::<usize>(), 12, "all owned");
    assert!(fleet.owners_live(), "by members that live");
}

#[test]
fn homes_history_changes_under_faults() {
    for_each_seed("history", |seed| storm(seed, Bug::None));
}

#[test]
fn each_bug_of_those_who_miss_a_change_is_caught() {
    assert_caught("S1", |seed| storm(seed, Bug::HoldOn));
    assert_caught("S3", |seed| storm(seed, Bug::ForgetEpochs));
    assert_caught("S3", |seed| forgotten(seed, Bug::ForgetTime));
}
