//! Large fleets, in which few members watch all Leases.

use leasehold_sharding::world::LeasesSeen;

use crate::fleet::{Fault, Fleet, Network};
use crate::for_each_seed;

const MEMBERS: usize = 12;
/// The coordinator, or its heirs, of that many.
const WATCHFUL: std::ops::RangeInclusive<usize> = 7..=8;

fn settled(seed: u64, network: Network) -> Fleet {
    let mut fleet = Fleet::new(seed, 36, network);
    fleet.start_all(MEMBERS);
    fleet.run_for(40_000);
    fleet
}

fn watchful(fleet: &Fleet) -> Vec<usize> {
    (0..fleet.replicas()).filter(|&one| fleet.leases_seen(one) == LeasesSeen::All).collect()
}

#[test]
fn few_watch_all_leases_and_the_work_goes_on() {
    for_each_seed("sight", |seed| {
        let mut fleet = settled(seed, Network::Calm);
        assert!(WATCHFUL.contains(&watchful(&fleet).len()), "{:?}", watchful(&fleet));
        assert_eq!(fleet.oracle.owners(), [3; MEMBERS]);
        // A member that nobody but these watches crashes.
        let watchful = watchful(&fleet);
        let other = (0..MEMBERS).find(|one| !watchful.contains(one)).expect("most do not");
        fleet.inject(Fault::Crash(other));
        fleet.run_for(9_000);
        assert_eq!(fleet.oracle.owners().iter().sum::<usize>(), 36);
        assert_eq!(fleet.owned_by_the_dead(), 0);
    });
}

#[test]
fn an_heir_follows_the_coordinator_in_the_usual_time() {
    for_each_seed("heir", |seed| {
        let mut fleet = settled(seed, Network::Calm);
        let coordinator = (0..MEMBERS).find(|&one| fleet.coordinates(one)).expect("one does");
        fleet.inject(Fault::Crash(coordinator));
        fleet.run_for(10_000);
        assert_eq!(fleet.owned_by_the_dead(), 0);
    });
}

/// The coordinator's Lease runs out, all others begin to watch, one takes office, and a silence later it takes
/// the Leases of the dead.
#[test]
fn a_fleet_without_heirs_finds_a_coordinator_and_takes_from_nobody_who_lives() {
    for_each_seed("no heir", |seed| {
        let mut fleet = settled(seed, Network::Calm);
        let dead = watchful(&fleet);
        dead.iter().for_each(|&one| fleet.inject(Fault::Crash(one)));
        fleet.run_for(25_000);
        assert_eq!(fleet.owned_by_the_dead(), 0);
        assert!(fleet.owners_live());
        assert_eq!(fleet.oracle.moves(), 36 + 3 * dead.len(), "only shards of the dead moved");
    });
}

#[test]
fn large_fleets_under_faults() {
    for_each_seed("large", |seed| {
        let mut fleet = settled(seed, Network::Rough);
        fleet.suffer(8, 15_000);
        fleet.heal();
        fleet.run_for(60_000);
        assert_eq!(fleet.oracle.owners().iter().sum::<usize>(), 36, "all are owned");
        assert!(fleet.owners_live());
    });
}
