//! Two installations in one namespace: replicas that do not share a configuration share no work.

use leasehold_sharding::DEFAULT_INSTALLATION;

use crate::fleet::{Edit, Fault, Fleet, Network};
use crate::{assert_caught, for_each_seed};

/// Three replicas of one installation, and then two of `second`, under faults.
fn beside(seed: u64, second: &'static str) -> Fleet {
    let mut fleet = Fleet::new(seed, 12, Network::Rough);
    fleet.start_all(3);
    fleet.run_for(10_000);
    fleet.installation = second;
    fleet.start_all(2);
    for _ in 0..12 {
        let (replica, ms) = (fleet.draw(0..5) as usize, fleet.draw(0..20_000));
        let faults =
            [Fault::Pause(replica, ms), Fault::Partition(replica, ms), Fault::Freeze(replica, ms)];
        let (fault, pause) = (fleet.draw(0..3) as usize, fleet.draw(0..6_000));
        fleet.inject(faults[fault]);
        fleet.run_for(pause);
    }
    fleet.heal();
    fleet.run_for(40_000);
    assert_eq!(fleet.oracle.owners(), [4, 4, 4], "the first three have all");
    for stranger in [3, 4] {
        let problem = fleet.problem(stranger).expect("it says why");
        assert!(problem.contains("belongs to the installation \"standalone\""), "{problem}");
        assert_eq!(fleet.hindrance(stranger), Some(problem));
    }
    fleet
}

#[test]
fn a_second_installation_takes_no_part_whatever_happens_to_the_first() {
    for_each_seed("second installation", |seed| {
        let mut fleet = beside(seed, "laptop");
        for replica in 0..3 {
            fleet.inject(Fault::Crash(replica));
        }
        fleet.run_for(700_000);
        assert!(!fleet.coordinates(3) && !fleet.coordinates(4));
        assert_eq!(fleet.server.maps(), 12, "no map is deleted");
        // Somebody decides that the first installation is gone for good.
        fleet.delete_lease("leasehold-coordinator");
        fleet.run_for(20_000);
        assert_eq!(fleet.oracle.owners(), [6, 6]);
        assert_eq!(fleet.problem(3), None);
    });
}

/// One command of a person, or an emptied home: whoever lives of the first writes the Lease anew.
#[test]
fn a_lease_that_is_gone_for_a_moment_gives_the_namespace_to_nobody_else() {
    for_each_seed("installation deleted", |seed| {
        let mut fleet = Fleet::new(seed, 12, Network::Rough);
        fleet.start_all(3);
        fleet.run_for(10_000);
        fleet.installation = "laptop";
        fleet.start_all(2);
        fleet.run_for(10_000);
        for _ in 0..4 {
            fleet.delete_lease("leasehold-coordinator");
            fleet.run_for(20_000);
            assert_eq!(fleet.named_installation(), Some(DEFAULT_INSTALLATION));
            assert_eq!(fleet.oracle.owners(), [4, 4, 4]);
        }
    });
}

/// The planted bug: a replica that takes itself for one of the fleet.
#[test]
fn a_replica_that_takes_itself_for_one_of_the_fleet_is_caught() {
    assert_caught("the first three have all", |seed| drop(beside(seed, DEFAULT_INSTALLATION)));
}

#[test]
fn of_two_installations_that_begin_at_once_one_gets_everything() {
    for_each_seed("two installations at once", |seed| {
        let mut fleet = Fleet::new(seed, 12, Network::Rough);
        for installation in ["red", "blue", "red", "blue"] {
            fleet.installation = installation;
            fleet.start();
        }
        fleet.run_for(60_000);
        assert_eq!(fleet.oracle.owners(), [6, 6]);
        let refused: Vec<bool> = (0..4).map(|n| fleet.problem(n).is_some()).collect();
        assert!(refused == [true, false, true, false] || refused == [false, true, false, true]);
    });
}

/// A namespace is given to another installation while nobody of the first is there: then nobody of the first
/// overwrites what people wrote.
#[test]
fn a_namespace_that_somebody_gave_to_another_installation_is_left_alone() {
    for_each_seed("given away", |seed| {
        let mut fleet = Fleet::new(seed, 12, Network::Calm);
        fleet.start_all(3);
        fleet.run_for(10_000);
        for replica in 0..3 {
            fleet.inject(Fault::Crash(replica));
        }
        fleet.edit_lease(0, Edit::Installation("other"));
        fleet.set_clusters(6);
        fleet.start_all(3);
        fleet.run_for(60_000);
        assert_eq!(fleet.named_installation(), Some("other"));
        assert!((3..6).all(|replica| !fleet.coordinates(replica)));
        assert!((3..6).all(|replica| fleet.problem(replica).is_some()));
        assert_eq!(fleet.server.maps(), 12, "what nobody may move stays");
        // Somebody repairs it.
        fleet.edit_lease(3, Edit::Installation(DEFAULT_INSTALLATION));
        fleet.run_for(700_000);
        assert_eq!((fleet.oracle.owners(), fleet.server.maps()), (vec![2, 2, 2], 6));
        assert!((3..6).all(|replica| fleet.problem(replica).is_none()));
    });
}
