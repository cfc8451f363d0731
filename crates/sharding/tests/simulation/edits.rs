//! People edit Leases: holders, durations, installations. S1, S3 and S5 hold meanwhile, and every shard is owned afterwards.

use std::time::Duration;

use leasehold_sharding::{DEFAULT_INSTALLATION, LeaseTimings};

use crate::fleet::{Bug, Edit, Fault, Fleet, Network};
use crate::{assert_caught, for_each_seed};

/// Longer than others have.
const LONG: LeaseTimings = LeaseTimings {
    duration: Duration::from_secs(60),
    renew_interval: Duration::from_secs(15),
    margin: Duration::from_millis(500),
};

/// What somebody may write into a Lease.
const EDITS: [Edit; 8] = [
    Edit::Duration(0),
    Edit::Duration(1),
    Edit::Duration(60),
    Edit::Holder(None),
    Edit::Holder(Some("somebody")),
    Edit::Restore,
    Edit::Delete,
    Edit::Installation("oops"),
];

/// A member that does not see the edit acts on until its Lease is over, and nobody has its shards
/// before.
#[test]
fn an_edit_that_its_member_does_not_see_gives_nothing_away() {
    for edit in [Edit::Holder(None), Edit::Holder(Some("somebody")), Edit::Duration(1)] {
        for_each_seed("edit unseen", |seed| {
            let mut fleet = Fleet::new(seed, 12, Network::Calm);
            fleet.start_all(3);
            fleet.run_for(10_000);
            fleet.inject(Fault::Partition(0, 20_000));
            let pause = fleet.draw(0..2_000);
            fleet.run_for(pause);
            fleet.edit_lease(0, edit);
            // A silence, 2 % slow clocks, and some round trips.
            fleet.run_for(10_000);
            assert_eq!(fleet.oracle.owners(), [6, 6], "{edit:?}");
            fleet.run_for(20_000);
            assert_eq!(fleet.oracle.owners(), [4, 4, 4], "{edit:?}");
        });
    }
}

/// A fleet whose Leases are about to last longer: one member has the new setting already, and does not hear from home
/// when somebody deletes its Lease, or when home is emptied.
fn longer(seed: u64, bug: Bug) {
    let mut fleet = Fleet::new(seed, 12, Network::Calm);
    fleet.bug = bug;
    fleet.start_all(2);
    fleet.lease = LONG;
    fleet.start();
    fleet.run_for(30_000);
    assert_eq!(fleet.oracle.owners(), [4, 4, 4]);
    let pause = fleet.draw(0..15_000);
    fleet.run_for(pause);
    let is_led = !fleet.coordinates(2);
    fleet.inject(Fault::Partition(2, 80_000));
    match fleet.draw(0..2) {
        0 => fleet.edit_lease(2, Edit::Delete),
        _ => fleet.replace_home(1_000_000, 1_000),
    }
    fleet.run_for(70_000);
    // Else another must take office first, and waits from then on.
    assert!(!is_led || fleet.oracle.owners() == [6, 6], "{:?}", fleet.oracle.owners());
    fleet.run_for(100_000);
    assert_eq!(fleet.oracle.owners(), [4, 4, 4]);
}

#[test]
fn nobody_has_the_shards_of_a_member_whose_lease_is_gone_before_it_stops() {
    for_each_seed("longer", |seed| longer(seed, Bug::None));
}

#[test]
fn a_fleet_that_forgets_how_long_leases_last_is_caught() {
    assert_caught("S5", |seed| longer(seed, Bug::ForgetsDurations));
}

/// The next renewal puts the duration right.
#[test]
fn a_member_writes_its_own_duration() {
    for_each_seed("edited duration", |seed| {
        let mut fleet = Fleet::new(seed, 3, Network::Calm);
        fleet.start_all(2);
        fleet.run_for(5_000);
        fleet.edit_lease(1, Edit::Duration(i32::MAX as u64));
        fleet.run_for(3_000);
        assert_eq!(fleet.lease_seconds(1), Some(8));
    });
}

/// The coordinator writes the name of its installation back, and meanwhile the fleet goes on: also when the
/// coordinator dies before it does.
#[test]
fn a_member_writes_its_own_installation_and_nothing_moves() {
    for_each_seed("edited installation", |seed| {
        let mut fleet = Fleet::new(seed, 12, Network::Calm);
        fleet.start_all(3);
        fleet.run_for(10_000);
        let (moves, coordinator) = (fleet.oracle.moves(), coordinator(&fleet));
        fleet.edit_lease(0, Edit::Installation("oops"));
        assert_eq!(fleet.named_installation(), Some("oops"));
        fleet.run_for(2_500);
        assert_eq!(fleet.named_installation(), Some(DEFAULT_INSTALLATION));
        fleet.run_for(10_000);
        assert_eq!((fleet.oracle.moves(), fleet.oracle.owners()), (moves, vec![4, 4, 4]));
        assert!(fleet.coordinates(coordinator));
        fleet.edit_lease(0, Edit::Installation("oops"));
        fleet.inject(Fault::Crash(coordinator));
        fleet.run_for(12_000);
        assert_eq!(fleet.named_installation(), Some(DEFAULT_INSTALLATION));
        assert_eq!(fleet.oracle.owners(), [6, 6]);
    });
}

fn coordinator(fleet: &Fleet) -> usize {
    (0..3).find(|&replica| fleet.coordinates(replica)).expect("somebody coordinates")
}

#[test]
fn nobody_who_edits_leases_under_faults_breaks_a_rule() {
    for_each_seed("editor", |seed| {
        let mut fleet = Fleet::new(seed, 12, Network::Rough);
        fleet.start_all(4);
        fleet.run_for(5_000);
        for _ in 0..16 {
            fleet.inject_any();
            for _ in 0..fleet.draw(0..4) {
                let replica = fleet.draw(0..4) as usize;
                let edit = EDITS[fleet.draw(0..EDITS.len() as u64) as usize];
                fleet.edit_lease(replica, edit);
                let pause = fleet.draw(0..3_000);
                fleet.run_for(pause);
            }
        }
        fleet.heal();
        // If nobody is left who has seen what stood there, somebody repairs it.
        fleet.edit_lease(0, Edit::Installation(DEFAULT_INSTALLATION));
        // The longest duration that somebody wrote is believed of the dead.
        fleet.run_for(60_000 + 40_000);
        assert_eq!(fleet.oracle.owners().iter().sum::<usize>(), 12, "all owned");
    });
}
