//! Names of clusters: one cluster with two names, names that differ between replicas, a name that comes to
//! stand for another cluster. The oracle knows which names are one cluster; the members know what the
//! clusters tell them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::fleet::{Fault, Fleet, LONGEST_RECONCILE_MS, Network};
use crate::policy::pause;
use crate::{for_each_seed, seeds};

/// `c0` and `c1` are one cluster.
const TWICE: [&str; 4] = ["c0=u0", "c1=u0", "c2=u2", "c3=u3"];

/// A fleet of three under faults, whose replicas have a cluster under two names.
fn twice(seed: u64, names: &[&str]) -> Fleet {
    let mut fleet = Fleet::new(seed, 0, Network::Rough);
    fleet.are_one(&["c0", "c1"]);
    fleet.name_clusters(None, names);
    fleet.start_all(3);
    fleet.suffer(12, 6_000);
    fleet.heal();
    fleet.run_for(40_000);
    fleet
}

#[test]
fn a_cluster_with_two_names_is_served_under_one() {
    for_each_seed("two names", |seed| {
        let fleet = twice(seed, &TWICE);
        assert_eq!(fleet.oracle.owners().iter().sum::<usize>(), 3, "each cluster once");
        assert_eq!((fleet.oracle.dispatches("c1"), fleet.server.maps()), (0, 3));
    });
}

/// The planted bug: members that pay no heed to identities, as those of earlier releases do.
#[test]
fn a_fleet_that_ignores_identities_is_caught() {
    let names = TWICE.map(|text| text.split_at(3).0);
    let fails = |seed| catch_unwind(AssertUnwindSafe(|| twice(seed, &names))).is_err();
    assert!(seeds().any(fails));
}

/// Each replica calls the cluster otherwise, and whoever coordinates knows only its own name. Nobody acts
/// under two of them at once, whatever the faults.
#[test]
fn replicas_that_differ_about_a_name_never_act_under_both() {
    for_each_seed("names differ", |seed| {
        let mut fleet = Fleet::new(seed, 0, Network::Calm);
        fleet.are_one(&["c0", "c1"]);
        fleet.name_clusters(None, &["c0=u0", "c2=u2"]);
        fleet.start_all(4);
        for replica in [1, 3] {
            fleet.name_clusters(Some(replica), &["c1=u0", "c2=u2"]);
        }
        fleet.suffer(12, 15_000);
        fleet.heal();
        fleet.name_clusters(None, &["c1=u0", "c2=u2"]);
        fleet.run_for(60_000);
        assert_eq!(fleet.oracle.owners().iter().sum::<usize>(), 2, "all owned");
        // A late word of a member may bring back the map of its former name, without owners, for as long as
        // a fleet keeps the map of a cluster that nobody was seen to remove.
        fleet.run_for(620_000);
        assert_eq!(fleet.server.maps(), 2);
    });
}

#[test]
fn a_renamed_cluster_goes_on_from_its_epochs_as_soon_as_its_work_has_ended() {
    for_each_seed("rename", |seed| {
        let mut fleet = Fleet::new(seed, 0, Network::Calm);
        fleet.are_one(&["c0", "c1"]);
        fleet.name_clusters(None, &["c0=u0", "c2=u2"]);
        fleet.start_all(3);
        fleet.run_for(5_000);
        fleet.name_clusters(None, &["c1=u0", "c2=u2"]);
        fleet.run_for(LONGEST_RECONCILE_MS + 1_000);
        assert_eq!(fleet.oracle.owners().iter().sum::<usize>(), 2, "owned again");
        assert_eq!(fleet.server.maps(), 2);
        assert!(fleet.oracle.dispatches("c1") > 0);
        assert_eq!(fleet.oracle.epoch("c1"), fleet.oracle.epoch("c0") + 1, "the next epoch");
    });
}

/// People have paused a cluster, and all replicas get another name for it.
fn renamed_while_paused(seed: u64, names: [&[&str]; 2]) -> Fleet {
    let mut fleet = Fleet::new(seed, 0, Network::Calm);
    fleet.are_one(&["c0", "c1"]);
    fleet.name_clusters(None, names[0]);
    fleet.start_all(3);
    fleet.run_for(5_000);
    fleet.set_policies(vec![pause("p", &["c0"])]);
    fleet.run_for(10_000);
    fleet.name_clusters(None, names[1]);
    fleet.run_for(5_000);
    // The next coordinator learns of it from the maps.
    let coordinator = (0..3).find(|&replica| fleet.coordinates(replica)).expect("one does");
    fleet.inject(Fault::Crash(coordinator));
    fleet.run_for(60_000);
    assert_eq!(fleet.oracle.dispatches("c1"), 0, "P1: a paused cluster is worked on");
    fleet
}

#[test]
fn a_renamed_cluster_stays_paused() {
    for_each_seed("rename paused", |seed| {
        let names: [&[&str]; 2] = [&["c0=u0", "c2=u2"], &["c1=u0", "c2=u2"]];
        let mut fleet = renamed_while_paused(seed, names);
        let coordinator = (0..3).find(|&replica| fleet.coordinates(replica)).expect("one does");
        let problem = fleet.problem(coordinator).expect("people must know");
        assert!(problem.contains("the FleetPolicy p pauses c0 and not c1"), "{problem}");
        // They pause the new name too: then the old map goes.
        fleet.set_policies(vec![pause("p", &["c0"]), pause("q", &["c1"])]);
        fleet.run_for(10_000);
        assert_eq!((fleet.oracle.dispatches("c1"), fleet.server.maps()), (0, 2));
        fleet.set_policies(Vec::new());
        fleet.run_for(10_000);
        assert!(fleet.oracle.dispatches("c1") > 0);
        assert!(fleet.oracle.epoch("c1") > fleet.oracle.epoch("c0"), "the next epoch");
    });
}

#[test]
fn a_fleet_that_does_not_know_a_renamed_cluster_is_caught_at_work_on_what_is_paused() {
    let names: [&[&str]; 2] = [&["c0=", "c2="], &["c1=", "c2="]];
    let fails =
        |seed| catch_unwind(AssertUnwindSafe(|| renamed_while_paused(seed, names))).is_err();
    assert!(seeds().any(fails));
}

#[test]
fn a_name_that_stands_for_another_cluster_is_drained_first() {
    for_each_seed("made anew", |seed| {
        let mut fleet = Fleet::new(seed, 0, Network::Calm);
        fleet.name_clusters(None, &["c0=u0", "c2=u2"]);
        fleet.start_all(3);
        fleet.run_for(5_000);
        let before = fleet.oracle.epoch("c0");
        // One after the other notices.
        for replica in 0..3 {
            fleet.name_clusters(Some(replica), &["c0=u9", "c2=u2"]);
            let pause = fleet.draw(0..10_000);
            fleet.run_for(pause);
        }
        fleet.run_for(LONGEST_RECONCILE_MS + 8_000);
        assert_eq!(fleet.oracle.owners().iter().sum::<usize>(), 2, "all owned");
        assert!(fleet.oracle.epoch("c0") > before);
    });
}
