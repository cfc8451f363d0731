//! Members with different clusters, clusters that only some reach, and configurations that vanish (S7).

use std::collections::BTreeSet;

use leasehold_sharding::record::{Kind, Object};
use model::ClusterName;

use crate::fleet::{Bug, Fault, Fleet, LONGEST_RECONCILE_MS, Network, clusters};
use crate::{assert_caught, for_each_seed};

/// Until shards have left an owner that does not serve them: that must last for 10 s, and then a reconcile
/// may be under way.
const MOVED_MS: u64 = 10_000 + LONGEST_RECONCILE_MS + 2_000;
/// The same after a cluster began to fail, which is noticed within 5 s and reported after 10 s.
const LEFT_MS: u64 = 5_000 + 10_000 + 5_000 + MOVED_MS;

/// No cluster that some live member serves is without such an owner.
fn assert_served(fleet: &Fleet) {
    assert_eq!(fleet.unserved(), BTreeSet::new(), "S7");
}

fn owner(fleet: &Fleet, cluster: &str) -> Option<String> {
    let Some(Object::Map(map)) = fleet.server.get(Kind::Map, cluster) else { return None };
    map.entries.values().next()?.owner().map(ToString::to_string)
}

/// Of six clusters, the first replica has all configured, and the second three.
fn six(seed: u64, bug: Bug) -> Fleet {
    let mut fleet = Fleet::new(seed, 6, Network::Calm);
    fleet.bug = bug;
    fleet.start_all(2);
    fleet.configure(1, &clusters(0..3));
    fleet.run_for(15_000);
    fleet
}

/// As it was measured on real processes: two of the six were given to a member that could not serve them,
/// and it deleted three maps when the other one died.
#[test]
fn six_clusters_of_which_one_member_has_three_are_served_and_none_is_forgotten() {
    for_each_seed("six", |seed| {
        let mut fleet = six(seed, Bug::None);
        assert_served(&fleet);
        assert_eq!(fleet.oracle.owners(), [3, 3], "shared as evenly as it can be");
        fleet.inject(Fault::Crash(0));
        fleet.run_for(20_000);
        assert_served(&fleet);
        assert_eq!(fleet.server.maps(), 6, "its member may come back");
        assert_eq!(fleet.oracle.owners(), [3], "nobody has what it cannot serve");
        let told = fleet.problem(1).expect("people must know");
        assert!(told.contains("c3 (and 2 more)"), "{told}");
        fleet.start();
        fleet.run_for(15_000);
        assert_served(&fleet);
        assert_eq!(fleet.oracle.owners(), [3, 3]);
        assert!(fleet.problem(1).is_none());
    });
}

#[test]
fn work_leaves_a_member_that_does_not_reach_a_cluster_and_stays_where_nobody_does() {
    for_each_seed("cut off", |seed| {
        let mut fleet = Fleet::new(seed, 6, Network::Calm);
        fleet.start_all(3);
        fleet.run_for(10_000);
        let moves = fleet.oracle.moves();
        // Nobody reaches the first cluster, and only the last member the second.
        for replica in 0..3 {
            fleet.cut_from(replica, clusters(if replica < 2 { 0..2 } else { 0..1 }));
        }
        fleet.run_for(LEFT_MS);
        assert_served(&fleet);
        // One that fails, and then others in turn for balance.
        assert!(fleet.oracle.moves() <= moves + 3, "only what fails moves");
        let before = owner(&fleet, "c0");
        fleet.run_for(600_000);
        assert_served(&fleet);
        assert_eq!(owner(&fleet, "c0"), before, "it is as good there as anywhere");
    });
}

/// Only the owner notices that a cluster fails, as when it lacks a kind.
#[test]
fn a_cluster_that_fails_everywhere_does_not_go_round_the_fleet() {
    for_each_seed("round", |seed| {
        let mut fleet = Fleet::new(seed, 6, Network::Calm);
        fleet.probes = false;
        fleet.start_all(3);
        fleet.run_for(10_000);
        let before = fleet.oracle.epoch("c0");
        for replica in 0..3 {
            fleet.cut_from(replica, clusters(0..1));
        }
        fleet.run_for(3_600_000);
        // After 1, 2, 4, 8, 16 and 32 minutes.
        let moved = fleet.oracle.epoch("c0") - before;
        assert!((2..=7).contains(&moved), "{moved} moves in an hour");
    });
}

/// An emptied Secret: all replicas lose all clusters within a moment.
fn emptied(seed: u64, of: usize, bug: Bug) -> Fleet {
    let mut fleet = Fleet::new(seed, of, Network::Calm);
    fleet.bug = bug;
    fleet.start_all(2);
    fleet.run_for(10_000);
    for replica in 0..2 {
        fleet.configure(replica, &clusters(0..0));
    }
    fleet
}

#[test]
fn an_emptied_configuration_does_not_drain_the_fleet() {
    for_each_seed("emptied", |seed| {
        let of = if seed.is_multiple_of(2) { 24 } else { 3 };
        let mut fleet = emptied(seed, of, Bug::None);
        let moves = fleet.oracle.moves();
        fleet.run_for(540_000);
        assert_eq!((fleet.server.maps(), fleet.oracle.moves()), (of, moves), "all stays");
        let told = (0..2).find_map(|replica| fleet.problem(replica)).expect("people must know");
        assert!(told.contains(&format!("(and {} more)", of - 1)), "{told}");
        for replica in 0..2 {
            fleet.configure(replica, &clusters(0..of));
        }
        fleet.run_for(1_000);
        assert_served(&fleet);
        assert_eq!(fleet.oracle.moves(), moves, "they go on at once");
        assert!((0..2).all(|replica| fleet.problem(replica).is_none()));
        // If it was meant, the maps go in the end.
        for replica in 0..2 {
            fleet.configure(replica, &clusters(0..1));
        }
        fleet.run_for(640_000);
        assert_eq!(fleet.server.maps(), 1);
    });
}

#[test]
fn a_cluster_comes_and_goes_one_member_after_the_other() {
    for_each_seed("roll", |seed| {
        let mut fleet = Fleet::new(seed, 60, Network::Calm);
        fleet.start_all(3);
        fleet.run_for(15_000);
        for replica in 0..3 {
            fleet.configure(replica, &clusters(0..61));
            fleet.run_for(4_000);
            assert_served(&fleet);
        }
        for replica in 0..3 {
            assert_eq!(fleet.server.maps(), 61);
            fleet.configure(replica, &clusters(1..61));
            fleet.run_for(MOVED_MS);
            assert_served(&fleet);
        }
        fleet.run_for(5_000 + LONGEST_RECONCILE_MS + 2_000);
        assert_eq!(fleet.server.maps(), 60);
    });
}

fn subset(fleet: &mut Fleet, of: usize, part: u64) -> BTreeSet<ClusterName> {
    let chosen: Vec<usize> = (0..of).filter(|_| fleet.draw(0..10) < part).collect();
    clusters(chosen)
}

/// Members with any clusters, which they reach or not, come and go under any faults, some of the previous
/// release among them.
fn skewed(seed: u64, bug: Bug) {
    let mut fleet = Fleet::new(seed, 12, Network::Rough);
    fleet.bug = bug;
    fleet.start_all(4);
    fleet.run_for(5_000);
    for _ in 0..14 {
        fleet.inject_any();
        let replica = fleet.draw(0..4) as usize;
        if fleet.draw(0..2) == 0 {
            let configured = subset(&mut fleet, 12, 7);
            fleet.configure(replica, &configured);
        }
        let unreached = subset(&mut fleet, 12, 2);
        fleet.cut_from(replica, unreached);
        let pause = fleet.draw(0..12_000);
        fleet.run_for(pause);
    }
    fleet.heal();
    // A cluster that moved a few times rests for some minutes.
    fleet.run_for(600_000);
    assert_served(&fleet);
}

#[test]
fn what_some_member_serves_is_served_under_faults() {
    for_each_seed("skewed", |seed| skewed(seed, Bug::None));
}

/// Replicas are replaced by ones that cannot read the source of two of the eight clusters yet.
fn open(seed: u64, bug: Bug) -> Fleet {
    let mut fleet = Fleet::new(seed, 8, Network::Calm);
    fleet.bug = bug;
    fleet.start_all(3);
    fleet.run_for(15_000);
    for former in 0..3 {
        fleet.start();
        fleet.configure(former + 3, &clusters(0..6));
        fleet.leave_open(former + 3, true);
        let pause = fleet.draw(0..10_000);
        fleet.run_for(pause);
        fleet.inject(Fault::Leave(former));
        fleet.run_for(10_000);
    }
    fleet.run_for(700_000);
    fleet
}

#[test]
fn clusters_of_a_source_that_cannot_be_read_are_not_forgotten() {
    for_each_seed("open source", |seed| {
        let mut fleet = open(seed, Bug::None);
        assert_eq!(fleet.server.maps(), 8);
        assert_eq!(fleet.oracle.owners(), [2, 2, 2], "nobody gets what it may not have");
        for replica in 3..6 {
            fleet.configure(replica, &clusters(0..8));
            fleet.leave_open(replica, false);
        }
        fleet.run_for(20_000);
        assert_served(&fleet);
        assert_eq!(fleet.oracle.owners().iter().sum::<usize>(), 8);
    });
}

/// Each rule finds the bug that breaks it.
#[test]
fn each_planted_bug_is_caught() {
    assert_caught("S7", |seed| assert_served(&six(seed, Bug::IgnoresReports)));
    assert_caught("S7", |seed| {
        // A coordinator with three of six clusters, beside a member that has all.
        let mut fleet = Fleet::new(seed, 6, Network::Calm);
        fleet.start_all(3);
        fleet.run_for(40_000);
        let coordinator = (0..3).find(|&replica| fleet.coordinates(replica)).unwrap();
        fleet.bug = Bug::IgnoresReports;
        fleet.configure(coordinator, &clusters(0..3));
        fleet.inject(Fault::Partition(coordinator, 1));
        fleet.run_for(30_000);
    });
    assert_caught("S7", |seed| {
        let mut fleet = Fleet::new(seed, 6, Network::Calm);
        fleet.bug = Bug::HidesFailures;
        fleet.start_all(2);
        fleet.run_for(10_000);
        fleet.cut_from(0, clusters(0..6));
        fleet.run_for(LEFT_MS);
        assert_served(&fleet);
    });
    assert_caught("S7", |seed| {
        let fleet = open(seed, Bug::HidesOpenSources);
        assert_eq!(fleet.server.maps(), 8, "S7: clusters of an open source are forgotten");
    });
    assert_caught("S7", |seed| {
        let fleet = emptied(seed, 24, Bug::LosesInParts);
        assert_eq!(fleet.server.maps(), 24, "S7: an emptied configuration drains the fleet");
    });
}
