//! Names of clusters: one cluster with two names, names that differ between replicas, a name that comes to
//! stand for another cluster. The oracle knows which names are one cluster; the members know what the
//! clusters tell them.

use crate::fleet::{Bug, Fault, Fleet, LONGEST_RECONCILE_MS, Network};
use crate::policy::pause;
use crate::{assert_caught, for_each_seed};

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
    assert_caught("S1, S8", |seed| drop(twice(seed, &names)));
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

/// A cluster is renamed while a replica cannot read another source of clusters, so that it may have the old name for all
/// that is known. Or it does have it.
fn renamed_beside_an_open_source(seed: u64, has_it: bool) {
    let mut fleet = Fleet::new(seed, 0, Network::Calm);
    fleet.are_one(&["c0", "c1"]);
    fleet.name_clusters(None, &["c0=u0", "c2=u2"]);
    fleet.start_all(3);
    let open = fleet.draw(0..3) as usize;
    fleet.leave_open(open, true);
    fleet.run_for(5_000);
    fleet.name_clusters(None, &["c1=u0", "c2=u2"]);
    if has_it {
        fleet.name_clusters(Some(open), &["c0=u0", "c1=u0", "c2=u2"]);
    }
    fleet.run_for(5_000 + LONGEST_RECONCILE_MS + 2_000);
    assert_eq!(fleet.oracle.owners().iter().sum::<usize>(), 2, "owned again");
    assert!(fleet.oracle.dispatches("c1") > 0, "S7: served under the new name");
}

#[test]
fn a_renamed_cluster_is_served_beside_a_source_that_cannot_be_read() {
    for_each_seed("beside an open source", |seed| renamed_beside_an_open_source(seed, false));
}

/// The planted bug: who may have the old name counts as having it.
#[test]
fn a_doubt_that_counts_as_a_claim_is_caught() {
    assert_caught("S7", |seed| renamed_beside_an_open_source(seed, true));
}

/// People have paused a cluster, and all replicas get another name for it. Its server is silent for that long under the
/// new name, and then tells which cluster it is, or not.
fn renamed_while_paused(seed: u64, silent_ms: u64, tells: bool, bug: Bug) -> Fleet {
    let mut fleet = Fleet::new(seed, 0, Network::Calm);
    fleet.bug = bug;
    fleet.are_one(&["c0", "c1"]);
    fleet.name_clusters(None, if tells { &["c0=u0", "c2=u2"] } else { &["c0=", "c2="] });
    fleet.start_all(3);
    fleet.run_for(5_000);
    fleet.set_policies(vec![pause("p", &["c0"])]);
    fleet.run_for(10_000);
    if silent_ms > 0 {
        fleet.name_clusters(None, &["c1=?", "c2=u2"]);
        fleet.run_for(silent_ms);
        if bug == Bug::ForgetsRemovedPauses {
            fleet.delete_map("c0");
            fleet.run_for(1_000);
        }
    }
    fleet.name_clusters(None, if tells { &["c1=u0", "c2=u2"] } else { &["c1=", "c2="] });
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
        // At once, before and after it counts as configured, and long after.
        let silent_ms = [0, 8_000, 30_000, 900_000][seed as usize % 4];
        let mut fleet = renamed_while_paused(seed, silent_ms, true, Bug::None);
        assert_eq!(fleet.server.maps(), 2, "the old name is gone");
        let coordinator = (0..3).find(|&replica| fleet.coordinates(replica)).expect("one does");
        let problem = fleet.problem(coordinator).expect("people must know");
        assert!(problem.contains("c1 is the cluster c0 under a new name"), "{problem}");
        // They pause the new name too.
        fleet.set_policies(vec![pause("p", &["c0"]), pause("q", &["c1"])]);
        fleet.run_for(10_000);
        assert_eq!((fleet.oracle.dispatches("c1"), fleet.server.maps()), (0, 2));
        fleet.set_policies(Vec::new());
        fleet.run_for(10_000);
        assert!(fleet.oracle.dispatches("c1") > 0);
        assert!(fleet.oracle.epoch("c1") > fleet.oracle.epoch("c0"), "the next epoch");
    });
}

/// The planted bugs: members that do not know which cluster it is, a coordinator that deletes the map of a paused
/// cluster at once, and one that does not write down the names by which it is paused.
#[test]
fn a_fleet_that_loses_a_pause_with_a_name_is_caught() {
    assert_caught("P1", |seed| drop(renamed_while_paused(seed, 0, false, Bug::None)));
    assert_caught("P1", |seed| {
        drop(renamed_while_paused(seed, 8_000, true, Bug::ForgetsRemovedPauses));
    });
    assert_caught("P1", |seed| {
        drop(renamed_while_paused(seed, 0, true, Bug::ForgetsFormerNames));
    });
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
