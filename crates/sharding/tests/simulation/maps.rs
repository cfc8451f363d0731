//! People edit ShardMaps and put back earlier states of them, as backups of objects do. S1 and S3 hold, and everything is
//! owned again within the Lease's duration and 5 s.

use leasehold_sharding::api::ShardPath;
use leasehold_sharding::handover::Entry;
use leasehold_sharding::record::MapRecord;
use model::Epoch;

use crate::fleet::{Bug, Fault, Fleet, LONGEST_RECONCILE_MS, Network};
use crate::{assert_caught, for_each_seed};

/// Within how many milliseconds everything is owned: the Lease's duration and 5 s.
const BOUND_MS: u64 = 13_000;
const CLUSTERS: [&str; 6] = ["c0", "c1", "c2", "c3", "c4", "c5"];

/// Three members that share six clusters.
fn settled(seed: u64) -> Fleet {
    let mut fleet = Fleet::new(seed, 6, Network::Calm);
    fleet.start_all(3);
    fleet.run_for(10_000);
    fleet
}

/// Everything is owned in time, and worked on.
fn goes_on(mut fleet: Fleet) {
    let before = CLUSTERS.map(|cluster| fleet.oracle.dispatches(cluster));
    fleet.run_for(BOUND_MS);
    assert!(fleet.owners_live(), "by members that live: {:?}", fleet.placement());
    for (cluster, before) in CLUSTERS.into_iter().zip(before) {
        assert!(fleet.oracle.dispatches(cluster) > before, "{cluster} is served");
        let ranges = fleet.map(cluster).entries.keys().map(|path| path.range.bounds());
        assert_eq!(ranges.map(|(from, to)| to - from).sum::<u128>(), 1 << 64, "{cluster}");
    }
}

/// The same, and the maps before shards changed hands.
fn changed(seed: u64) -> (Fleet, [MapRecord; 6]) {
    let mut fleet = settled(seed);
    let saved = CLUSTERS.map(|cluster| fleet.map(cluster).clone());
    fleet.inject(Fault::Crash(0));
    fleet.run_for(15_000);
    fleet.start();
    fleet.run_for(25_000);
    (fleet, saved)
}

#[test]
fn shards_that_are_back_at_lower_epochs_are_noticed() {
    for_each_seed("maps restored", |seed| {
        let (mut fleet, saved) = changed(seed);
        let some = fleet.draw(1..7) as usize;
        for map in &saved[..some] {
            fleet.edit_map(map.cluster.as_str(), |now| now.entries.clone_from(&map.entries));
        }
        goes_on(fleet);
    });
}

/// Somebody breaks maps by editing them, and repairs them with earlier copies.
#[test]
fn maps_that_are_repaired_with_earlier_copies_are_noticed() {
    for_each_seed("maps repaired", |seed| {
        let (mut fleet, saved) = changed(seed);
        let some = fleet.draw(1..7) as usize;
        for map in &saved[..some] {
            fleet.rewrite_map(map.cluster.as_str(), 0);
        }
        let pause = fleet.draw(0..3_000);
        fleet.run_for(pause);
        for map in &saved[..some] {
            fleet.edit_map(map.cluster.as_str(), |now| {
                now.protocol = map.protocol;
                now.entries.clone_from(&map.entries);
            });
        }
        goes_on(fleet);
    });
}

#[test]
fn one_epoch_that_somebody_lowered_is_noticed() {
    for_each_seed("epoch lowered", |seed| {
        let mut fleet = settled(seed);
        fleet.inject(Fault::Crash(0));
        fleet.run_for(20_000);
        fleet.edit_map("c1", |map| {
            for entry in map.entries_mut().values_mut() {
                if let Entry::Owned { epoch, .. } = entry {
                    *epoch = Epoch(epoch.0 - 1);
                }
            }
        });
        goes_on(fleet);
    });
}

#[test]
fn a_part_that_lacks_is_added() {
    for half in [Some("0/2"), None] {
        for_each_seed("gap", |seed| {
            let mut fleet = settled(seed);
            fleet.edit_map("c1", |map| {
                let (path, entry) = map.entries_mut().pop_first().expect("it has a shard");
                if let Some(half) = half {
                    let range = half.parse().expect("a range");
                    map.entries_mut().insert(ShardPath { range, ..path }, entry);
                }
            });
            goes_on(fleet);
        });
    }
}

#[test]
fn a_map_that_nobody_can_read_stops_nobody_else() {
    for version in [0, 99] {
        for_each_seed("unreadable map", |seed| {
            let mut fleet = settled(seed);
            fleet.rewrite_map("c0", version);
            fleet.inject(Fault::Crash(1));
            fleet.run_for(BOUND_MS);
            for cluster in &CLUSTERS[1..] {
                let ids = fleet.ids();
                let live =
                    |entry: &Entry| entry.owner() != Some(&ids[1]) && entry.owner().is_some();
                assert!(
                    fleet.map(cluster).entries.values().all(live),
                    "{cluster} has a live owner"
                );
            }
            assert_eq!(fleet.map("c0").protocol, version, "nobody replaces it");
        });
    }
}

/// Somebody deletes maps. Some owners do not notice it, and the coordinator learns of it by a watch, by a list or by the
/// answer to a write.
fn deleted(seed: u64, bug: Bug) -> Fleet {
    let mut fleet = settled(seed);
    fleet.bug = bug;
    for cluster in CLUSTERS {
        for replica in 0..3 {
            match fleet.draw(0..3) {
                0 => fleet.inject(Fault::Freeze(replica, 3_000)),
                1 => fleet.inject(Fault::Partition(replica, 1_000)),
                _ => {}
            }
        }
        fleet.delete_map(cluster);
        let pause = fleet.draw(0..4_000);
        fleet.run_for(pause);
    }
    fleet.heal();
    fleet.run_for(5_000);
    fleet
}

#[test]
fn maps_that_somebody_deletes_are_made_anew_with_their_owners() {
    for_each_seed("maps deleted", |seed| goes_on(deleted(seed, Bug::None)));
}

#[test]
fn a_map_that_is_made_anew_with_other_owners_is_caught() {
    assert_caught("S1", |seed| drop(deleted(seed, Bug::ForgetsOwners)));
}

/// Shards move to a new member, and one member sees nothing of it. Then the coordinator dies, and somebody deletes all
/// maps. The member that has seen nothing reads home anew and takes office first. The new one hears of nothing for a while.
fn deleted_after_unseen_moves(seed: u64, bug: Bug) -> Fleet {
    let mut fleet = Fleet::new(seed, 12, Network::Calm);
    fleet.start_all(4);
    fleet.run_for(10_000);
    fleet.bug = bug;
    let coordinator = (0..4).find(|&replica| fleet.coordinates(replica)).expect("one does");
    let heir = (coordinator + 1) % 4;
    fleet.inject(Fault::Freeze(heir, LONGEST_RECONCILE_MS + 3_500));
    fleet.start();
    fleet.run_for(LONGEST_RECONCILE_MS + 1_500);
    for replica in (0..4).filter(|replica| ![coordinator, heir].contains(replica)) {
        fleet.inject(Fault::Freeze(replica, 3_500));
    }
    fleet.inject(Fault::Freeze(4, 8_000));
    fleet.inject(Fault::Kill(coordinator));
    (0..12).for_each(|cluster| fleet.delete_map(&format!("c{cluster}")));
    fleet.run_for(8_000);
    fleet
}

#[test]
fn maps_that_changed_unseen_and_are_gone_get_owners_after_one_silence() {
    for_each_seed("maps gone unseen", |seed| {
        let mut fleet = deleted_after_unseen_moves(seed, Bug::None);
        fleet.heal();
        fleet.run_for(25_000);
        assert_eq!(fleet.oracle.owners().iter().sum::<usize>(), 12);
        assert!(fleet.owners_live(), "by members that live: {:?}", fleet.placement());
    });
}

#[test]
fn a_coordinator_that_believes_what_it_saw_last_is_caught() {
    assert_caught("S3", |seed| drop(deleted_after_unseen_moves(seed, Bug::BelievesGaps)));
}

/// Somebody deletes all maps, and no owner hears of it for a while. The coordinator's process begins anew at that moment:
/// it coordinates at once, and never saw the maps.
fn deleted_before_the_coordinator_began(seed: u64, bug: Bug) -> Fleet {
    let mut fleet = settled(seed);
    fleet.bug = bug;
    let coordinator = (0..3).find(|&replica| fleet.coordinates(replica)).expect("one does");
    for replica in (0..3).filter(|replica| *replica != coordinator) {
        fleet.inject(Fault::Freeze(replica, 6_000));
    }
    CLUSTERS.iter().for_each(|cluster| fleet.delete_map(cluster));
    fleet.inject(Fault::Restart(coordinator));
    // A silence, 2 % slow clocks, and some round trips.
    fleet.run_for(10_000);
    fleet
}

#[test]
fn maps_that_a_coordinator_never_saw_get_owners_after_one_silence() {
    for_each_seed("maps unseen", |seed| {
        goes_on(deleted_before_the_coordinator_began(seed, Bug::None));
    });
}

#[test]
fn a_coordinator_that_takes_the_fleet_for_a_new_one_is_caught() {
    assert_caught("S1", |seed| {
        drop(deleted_before_the_coordinator_began(seed, Bug::ForgetsOffices));
    });
}
