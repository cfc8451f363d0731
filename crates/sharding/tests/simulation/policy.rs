//! What people want is done under faults: what is paused stays so, through crashes and new coordinators, and
//! what is pinned is where it is wanted.

use leasehold_sharding::api::{FleetPolicySpec, MemberPreference, MemberSelector, ShardSelector};
use leasehold_sharding::policy::PolicyRecord;

use crate::fleet::{Bug, Fault, Fleet, Network};
use crate::{assert_caught, for_each_seed};

/// Half of the clusters are paused.
const PAUSED: [&str; 6] = ["c0", "c1", "c2", "c3", "c4", "c5"];

fn of(clusters: &[&str]) -> Option<ShardSelector> {
    let clusters = clusters.iter().map(|&name| name.to_owned()).collect();
    Some(ShardSelector { clusters, ..ShardSelector::default() })
}

/// A policy that pauses clusters.
pub fn pause(name: &str, clusters: &[&str]) -> PolicyRecord {
    let shards = of(clusters);
    PolicyRecord::new(
        name,
        FleetPolicySpec { shards, pause: Some(true), ..FleetPolicySpec::default() },
    )
}

fn paused_clusters() -> PolicyRecord {
    pause("p", &PAUSED)
}

fn dispatches(fleet: &Fleet) -> usize {
    PAUSED.iter().map(|cluster| fleet.oracle.dispatches(cluster)).sum()
}

/// A fleet whose clusters are paused, through faults and through the end of all its replicas.
fn paused(seed: u64, bug: Bug) -> Fleet {
    let mut fleet = Fleet::new(seed, 12, Network::Rough);
    fleet.bug = bug;
    fleet.start_all(3);
    fleet.run_for(5_000);
    fleet.set_policies(vec![paused_clusters()]);
    fleet.suffer(6, 6_000);
    fleet.heal();
    fleet.run_for(40_000);
    let before = dispatches(&fleet);
    fleet.suffer(6, 6_000);
    for replica in 0..fleet.replicas() {
        fleet.inject(Fault::Crash(replica));
    }
    fleet.start_all(3);
    fleet.run_for(30_000);
    assert_eq!(dispatches(&fleet), before, "P1: nobody works on what is paused");
    assert_eq!(fleet.oracle.owners().iter().sum::<usize>(), 6, "the others are owned");
    fleet
}

#[test]
fn what_people_want_is_done_under_faults() {
    for_each_seed("paused", |seed| {
        let mut fleet = paused(seed, Bug::None);
        let before = dispatches(&fleet);
        fleet.set_policies(Vec::new());
        fleet.run_for(10_000);
        assert_eq!(fleet.oracle.owners(), [4, 4, 4], "all are owned again");
        assert!(dispatches(&fleet) > before);
    });
}

/// The planted bug: a coordinator that plans before it has read the policies.
#[test]
fn a_coordinator_that_forgets_pauses_is_caught() {
    assert_caught("P1", |seed| drop(paused(seed, Bug::ForgetsPauses)));
}

/// The coming and going of home's word about policies: it refuses to list them when home is read anew, and to
/// replicas that begin.
fn refused(seed: u64, bug: Bug) {
    let (mut fleet, before) = calm(seed, bug);
    fleet.refuse_policies(40_000);
    (0..fleet.replicas()).for_each(|replica| fleet.reread(replica));
    fleet.run_for(50_000);
    fleet.refuse_policies(8_000);
    (0..fleet.replicas()).for_each(|replica| fleet.inject(Fault::Crash(replica)));
    fleet.start_all(3);
    fleet.run_for(60_000);
    assert_eq!(dispatches(&fleet), before, "P1: nobody works on what is paused");
    assert_eq!(fleet.oracle.owners().iter().sum::<usize>(), 6, "the others are owned");
}

/// Three members, of whose clusters half are paused; and what was done for these before.
fn calm(seed: u64, bug: Bug) -> (Fleet, usize) {
    let mut fleet = Fleet::new(seed, 12, Network::Calm);
    fleet.bug = bug;
    fleet.start_all(3);
    fleet.run_for(5_000);
    fleet.set_policies(vec![paused_clusters()]);
    fleet.run_for(20_000);
    let before = dispatches(&fleet);
    (fleet, before)
}

#[test]
fn what_is_paused_stays_so_while_home_refuses_to_list_policies() {
    for_each_seed("refused", |seed| refused(seed, Bug::None));
}

#[test]
fn a_fleet_that_believes_one_refusal_is_caught() {
    assert_caught("P1", |seed| refused(seed, Bug::BelievesRefusals));
}

/// Home is restored from before the pause or from before more was paused, or emptied: nobody has taken it back.
fn lost(seed: u64, bug: Bug) {
    let (mut fleet, before) = calm(seed, bug);
    let earlier = vec![pause("p", &PAUSED[..2])];
    match fleet.draw(0..3) {
        0 => {
            fleet.lose_policies(Vec::new());
            fleet.replace_home(1_000_000, 1_000);
        }
        1 => {
            fleet.lose_policies(Vec::new());
            fleet.restore_home(30, 1_000);
        }
        _ => {
            fleet.lose_policies(earlier);
            fleet.restore_home(30, 1_000);
        }
    }
    fleet.run_for(40_000);
    assert_eq!(dispatches(&fleet), before, "P1: nobody works on what is paused");
    assert_eq!(fleet.oracle.owners().iter().sum::<usize>(), 6, "the others are owned");
    for replica in 0..3 {
        let problem = fleet.problem(replica).expect("people must know, whoever coordinates");
        assert!(problem.contains("p was lost when the home cluster was restored"), "{problem}");
    }
    fleet.set_policies(vec![paused_clusters()]);
    fleet.run_for(1_000);
    fleet.set_policies(Vec::new());
    fleet.run_for(10_000);
    assert_eq!(fleet.oracle.owners(), [4, 4, 4], "all are owned again");
}

#[test]
fn a_pause_that_home_forgets_holds_until_it_is_written_again() {
    for_each_seed("lost", |seed| lost(seed, Bug::None));
}

#[test]
fn a_fleet_that_forgets_pauses_with_home_is_caught() {
    assert_caught("P1", |seed| lost(seed, Bug::ForgetsLostPauses));
    assert_caught("P1", |seed| lost(seed, Bug::BelievesLists));
}

#[test]
fn pinned_shards_go_to_their_member_and_back_to_it() {
    for_each_seed("pinned", |seed| {
        let mut fleet = Fleet::new(seed, 12, Network::Calm);
        fleet.start_all(3);
        fleet.run_for(5_000);
        let select =
            MemberSelector { names: vec!["replica-1".into()], ..MemberSelector::default() };
        let pin = |required| {
            let pin = Some(MemberPreference { select: select.clone(), required });
            vec![PolicyRecord::new(
                "p",
                FleetPolicySpec { shards: of(&PAUSED), pin, ..FleetPolicySpec::default() },
            )]
        };
        fleet.set_policies(pin(false));
        fleet.run_for(20_000);
        let owners = fleet.oracle.owners();
        assert_eq!((owners[1], owners.iter().sum::<usize>()), (6, 12), "{owners:?}");
        fleet.inject(Fault::Kill(1));
        fleet.run_for(5_000);
        assert_eq!(fleet.oracle.owners().iter().sum::<usize>(), 12, "elsewhere while it is away");
        fleet.set_policies(pin(true));
        fleet.run_for(20_000);
        let left = fleet.oracle.owners().iter().sum::<usize>();
        assert_eq!(left, 6, "nowhere else, if that is required");
    });
}

/// A policy left over from a removed cluster, or with a word that is no name, is the coordinator's to tell. It
/// hinders no replica, so rollouts go on.
#[test]
fn a_policy_that_selects_nothing_hinders_no_replica() {
    for_each_seed("left over", |seed| {
        let mut fleet = Fleet::new(seed, 12, Network::Calm);
        fleet.start_all(3);
        fleet.run_for(5_000);
        fleet.set_policies(vec![pause("gone", &["c99"]), pause("p", &["c0", "C1"])]);
        fleet.run_for(10_000);
        let coordinator = (0..3).find(|&replica| fleet.coordinates(replica)).expect("one does");
        assert!(fleet.problem(coordinator).is_some(), "people must know");
        assert!((0..3).all(|replica| fleet.hindrance(replica).is_none()));
        assert_eq!(fleet.oracle.owners().iter().sum::<usize>(), 11, "c0 is paused");
    });
}
