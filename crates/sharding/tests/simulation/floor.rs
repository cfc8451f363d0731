//! Clusters that leave the configuration and return: their maps are deleted, but their epochs go on. The
//! oracle of S3 remembers every epoch.

use crate::fleet::{Bug, Fault, Fleet, LONGEST_RECONCILE_MS, Network};
use crate::for_each_seed;

/// Two members that shared `from` clusters. Only the first `to` of these remain.
fn shrunk(seed: u64, from: usize, to: usize) -> Fleet {
    let mut fleet = Fleet::new(seed, from, Network::Calm);
    // The floor is what deletions leave, and not the time of day.
    fleet.bug = Bug::ForgetTime;
    fleet.start_all(2);
    fleet.run_for(5_000);
    assert_eq!(fleet.server.floor(), 0);
    fleet.set_clusters(to);
    fleet.run_for(5_000 + LONGEST_RECONCILE_MS + 2_000);
    assert_eq!(fleet.server.maps(), to);
    fleet
}

#[test]
fn a_removed_cluster_drains_and_its_map_goes() {
    for_each_seed("removal", |seed| {
        let mut fleet = shrunk(seed, 6, 4);
        assert!(fleet.server.floor() > 0, "what they reached is kept");
        fleet.set_clusters(6);
        fleet.run_for(5_000);
        assert_eq!(fleet.oracle.owners().iter().sum::<usize>(), 6);
    });
}

#[test]
fn a_cluster_returns_to_a_fleet_that_never_knew_it_and_goes_on_from_its_epochs() {
    for_each_seed("return", |seed| {
        let mut fleet = shrunk(seed, 3, 2);
        let floor = fleet.server.floor();
        // All members that saw the deletion are replaced, the last after a while without any member.
        fleet.start();
        fleet.run_for(5_000);
        for replica in 0..2 {
            fleet.inject(Fault::Crash(replica));
        }
        fleet.run_for(12_000);
        fleet.inject(Fault::Leave(2));
        fleet.run_for(LONGEST_RECONCILE_MS + 2_000);
        assert!(fleet.has_departed(2));
        fleet.start();
        fleet.run_for(3_000);
        fleet.set_clusters(3);
        // Until it has been there for one silence, somebody may act by maps that it never saw.
        fleet.run_for(7_000);
        assert_eq!(fleet.oracle.owners(), [3]);
        assert_eq!(fleet.server.floor(), floor, "it has only been carried on");
        assert!(fleet.oracle.epoch("c2") > floor);
    });
}

#[test]
fn a_coordinators_lease_made_anew_carries_what_others_have_seen() {
    for_each_seed("lease anew", |seed| {
        let mut fleet = shrunk(seed, 3, 2);
        let floor = fleet.server.floor();
        fleet.delete_lease(leasehold_sharding::lease::COORDINATOR);
        fleet.run_for(5_000);
        assert_eq!(fleet.server.floor(), floor);
    });
}

/// Clusters and members come and go under faults.
#[test]
fn clusters_come_and_go_under_faults() {
    for_each_seed("come and go", |seed| {
        let mut fleet = Fleet::new(seed, 6, Network::Rough);
        fleet.start_all(4);
        fleet.run_for(5_000);
        for _ in 0..16 {
            fleet.inject_any();
            if fleet.draw(0..2) == 0 {
                let clusters = fleet.draw(1..7) as usize;
                fleet.set_clusters(clusters);
            }
            let pause = fleet.draw(0..15_000);
            fleet.run_for(pause);
        }
        fleet.heal();
        fleet.set_clusters(6);
        fleet.run_for(40_000);
        assert_eq!(fleet.oracle.owners().iter().sum::<usize>(), 6, "all owned");
    });
}
