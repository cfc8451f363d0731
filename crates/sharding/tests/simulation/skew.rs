//! Fleets whose members speak different versions of the protocol. The next version exists only as a
//! number here: it means the same as the first.

use leasehold_sharding::ProtocolVersions;
use leasehold_sharding::lease::COORDINATOR;

use crate::fleet::{Bug, Fault, Fleet, LONGEST_RECONCILE_MS, Network};
use crate::{assert_caught, for_each_seed};

const OLD: ProtocolVersions = ProtocolVersions { oldest: 1, newest: 1 };
const BOTH: ProtocolVersions = ProtocolVersions { oldest: 1, newest: 2 };
const NEW: ProtocolVersions = ProtocolVersions { oldest: 2, newest: 2 };

/// Three members that speak `to` replace three that speak `from`, one after the other.
fn roll(seed: u64, network: Network, from: ProtocolVersions, to: ProtocolVersions) -> Fleet {
    let mut fleet = Fleet::new(seed, 9, network);
    fleet.speaks = from;
    fleet.start_all(3);
    fleet.run_for(10_000);
    assert_eq!(fleet.server.protocols(), [from.newest]);
    fleet.speaks = to;
    for replica in 0..3 {
        fleet.start();
        fleet.run_for(3_000);
        fleet.inject(Fault::Leave(replica));
        fleet.run_for(LONGEST_RECONCILE_MS + 9_000);
        assert_eq!(fleet.oracle.owners().iter().sum::<usize>(), 9, "nothing is lost");
    }
    fleet.run_for(10_000);
    fleet
}

#[test]
fn a_rolling_update_to_the_next_version_loses_nothing() {
    for_each_seed("update", |seed| {
        let fleet = roll(seed, Network::Calm, OLD, BOTH);
        assert_eq!(fleet.server.protocols(), [2]);
        assert_eq!(fleet.oracle.owners(), [3, 3, 3]);
        assert!((0..3).all(|replica| fleet.has_departed(replica)));
    });
}

#[test]
fn a_rolling_update_loses_nothing_over_a_rough_network() {
    for_each_seed("rough update", |seed| {
        let mut fleet = roll(seed, Network::Rough, OLD, BOTH);
        fleet.run_for(20_000);
        assert_eq!((fleet.server.protocols(), fleet.oracle.owners()), (vec![2], vec![3, 3, 3]));
    });
}

#[test]
fn a_rolling_downgrade_brings_the_maps_back_first() {
    for_each_seed("downgrade", |seed| {
        let fleet = roll(seed, Network::Calm, BOTH, OLD);
        assert_eq!((fleet.server.protocols(), fleet.oracle.owners()), (vec![1], vec![3, 3, 3]));
        assert!((3..6).all(|replica| fleet.problem(replica).is_none()));
    });
}

#[test]
fn a_member_too_new_for_the_fleet_gets_nothing_and_says_why() {
    for_each_seed("too new", |seed| {
        let mut fleet = Fleet::new(seed, 6, Network::Calm);
        fleet.start_all(2);
        fleet.run_for(5_000);
        let moves = fleet.oracle.moves();
        fleet.speaks = NEW;
        fleet.start();
        // The former coordinators leave coordinating to no member that cannot read their maps.
        fleet.run_for(20_000);
        assert_eq!((fleet.oracle.owners(), fleet.oracle.moves()), (vec![3, 3], moves));
        assert_eq!(fleet.server.protocols(), [1]);
        let why = fleet.problem(2).expect("it says why");
        assert!(why.contains("written in protocol version 1"), "{why}");
        assert!(why.contains("speaks protocol version 2: it acts on none"), "{why}");
        assert!(fleet.problem(0).is_none());
        fleet.inject(Fault::Leave(2));
        fleet.run_for(2_000);
        assert!(fleet.has_departed(2), "it can go at once");
    });
}

#[test]
fn a_map_of_an_unknown_version_is_refused_and_nothing_of_it_is_acted_on() {
    for_each_seed("unknown", |seed| {
        let mut fleet = Fleet::new(seed, 6, Network::Calm);
        fleet.start_all(2);
        fleet.run_for(10_000);
        fleet.rewrite_map("c0", 2);
        fleet.run_for(1_000);
        let dispatched = fleet.oracle.dispatches("c0");
        fleet.run_for(20_000);
        assert_eq!(fleet.oracle.dispatches("c0"), dispatched, "nobody acts on it");
        assert_eq!(fleet.server.protocols(), [1, 2], "nobody replaces it");
        assert!((0..2).all(|replica| fleet.problem(replica).is_some()));
        assert!((0..2).any(|replica| fleet.coordinates(replica)), "the other maps go on");
        // A member that speaks both coordinates and puts the maps back into the old version.
        fleet.speaks = BOTH;
        fleet.start();
        fleet.run_for(20_000);
        assert_eq!((fleet.server.protocols(), fleet.oracle.owners()), (vec![1], vec![2, 2, 2]));
        assert!(fleet.oracle.dispatches("c0") > dispatched);
        assert!((0..3).all(|replica| fleet.problem(replica).is_none()));
    });
}

/// Members of both releases come and go under any faults.
#[test]
fn releases_mix_under_faults() {
    for_each_seed("mixed", |seed| {
        let mut fleet = Fleet::new(seed, 12, Network::Rough);
        for _ in 0..4 {
            fleet.draw_release(&[OLD, BOTH, NEW]);
            fleet.start();
        }
        fleet.run_for(5_000);
        for _ in 0..12 {
            fleet.draw_release(&[OLD, BOTH, NEW]);
            fleet.inject_any();
            let pause = fleet.draw(0..8_000);
            fleet.run_for(pause);
        }
        fleet.heal();
        // Some member must speak the version of the maps, and one that all others speak.
        fleet.speaks = BOTH;
        fleet.start();
        fleet.run_for(60_000);
        assert_eq!(fleet.oracle.owners().iter().sum::<usize>(), 12, "all owned");
        assert_eq!(fleet.server.protocols().len(), 1, "all in one version");
    });
}

#[test]
fn a_fleet_that_ignores_versions_is_caught() {
    assert_caught("does not speak the version of", |seed| {
        let mut fleet = Fleet::new(seed, 9, Network::Calm);
        fleet.bug = Bug::BelievesAllSpeak;
        fleet.speaks = OLD;
        fleet.start();
        fleet.run_for(5_000);
        fleet.speaks = BOTH;
        fleet.start_all(2);
        fleet.run_for(10_000);
        // Perhaps one that speaks both coordinates next.
        fleet.delete_lease(COORDINATOR);
        fleet.run_for(10_000);
    });
    assert_caught("who speaks protocol version 1 replaces", |seed| {
        let mut fleet = Fleet::new(seed, 6, Network::Calm);
        fleet.bug = Bug::ReadsAllVersions;
        fleet.start_all(2);
        fleet.run_for(10_000);
        fleet.rewrite_map("c0", 2);
        fleet.inject(Fault::Crash(0));
        fleet.inject(Fault::Crash(1));
        fleet.start();
        fleet.run_for(20_000);
    });
}
