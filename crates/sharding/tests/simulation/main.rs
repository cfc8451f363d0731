//! Several members against one store, in virtual time, under one seed, which decides every delay, loss,
//! crash, pause, partition and drift. Drives the production [`leasehold_sharding::node::Node`].
//!
//! The oracles judge what the store accepts and what the members dispatch, never what a member says
//! about itself: see `oracle.rs`.
//!
//! `LEASEHOLD_SIM_SEED=n` replays one seed; `LEASEHOLD_SIM_SEEDS=n` runs that many.

mod edits;
mod fleet;
mod floor;
mod history;
mod installation;
mod maps;
mod names;
mod oracle;
mod policy;
mod reach;
mod server;
mod sight;
mod skew;

use fleet::{Fault, Fleet, Network};

/// Seeds of an ordinary run.
const SEEDS: u64 = 20;

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    match number("LEASEHOLD_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("LEASEHOLD_SIM_SEEDS").unwrap_or(SEEDS),
    }
}

/// Runs `scenario` under each seed. A failure names the seed that replays it.
fn for_each_seed(name: &str, scenario: impl Fn(u64) + std::panic::RefUnwindSafe) {
    for seed in seeds() {
        if let Err(panic) = std::panic::catch_unwind(|| scenario(seed)) {
            eprintln!("{name} failed: replay with LEASEHOLD_SIM_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// Asserts that `rule` finds the bug that is planted in `scenario`, under some seed.
fn assert_caught(rule: &str, scenario: impl Fn(u64) + std::panic::RefUnwindSafe) {
    let found = (0..60).find_map(|seed| {
        let panic = std::panic::catch_unwind(|| scenario(seed)).err()?;
        let plain = || panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = panic.downcast_ref::<String>().cloned().or_else(plain)?;
        text.contains(rule).then_some((seed, text))
    });
    let (seed, text) = found.unwrap_or_else(|| panic!("{rule} does not find it"));
    println!("seed {seed}: {}", text.lines().next().unwrap_or_default());
}

#[test]
fn three_that_start_together_share_evenly_within_a_second() {
    for_each_seed("start", |seed| {
        let mut fleet = Fleet::new(seed, 30, Network::Calm);
        fleet.start_all(3);
        fleet.run_for(1_000);
        assert_eq!(fleet.oracle.owners(), [10, 10, 10]);
        assert_eq!(fleet.oracle.moves(), 30, "no shuffle");
    });
}

#[test]
fn a_crash_costs_the_lease_and_the_margin() {
    for_each_seed("crash", |seed| {
        let mut fleet = Fleet::new(seed, 30, Network::Calm);
        fleet.start_all(3);
        fleet.run_for(10_000);
        fleet.inject(Fault::Crash(0));
        // 8 s and 500 ms, 2 % slow clocks, and some round trips.
        fleet.run_for(9_000);
        assert_eq!(fleet.oracle.owners(), [15, 15]);
        assert_eq!(fleet.oracle.moves(), 40, "only the dead one's shards moved");
    });
}

/// What a crash costs when home says that the container has ended, whoever coordinates.
#[test]
fn a_killed_container_costs_no_silence() {
    for_each_seed("kill", |seed| {
        let mut fleet = Fleet::new(seed, 30, Network::Calm);
        fleet.start_all(3);
        fleet.run_for(10_000);
        fleet.inject(Fault::Kill(seed as usize % 3));
        // The kubelet notices within 1.3 s; the rest are round trips.
        fleet.run_for(1_500);
        assert_eq!(fleet.oracle.owners(), [15, 15]);
        assert_eq!(fleet.oracle.moves(), 40, "only the dead one's shards moved");
    });
}

/// The next process of a container takes its predecessor's Lease, whether a kubelet says anything or not.
#[test]
fn a_restarted_container_costs_no_silence() {
    for_each_seed("kill and restart", |seed| {
        let mut fleet = Fleet::new(seed, 30, Network::Calm);
        fleet.start_all(3);
        fleet.run_for(10_000);
        fleet.inject(Fault::Restart(seed as usize % 3));
        fleet.run_for(500);
        assert_eq!(fleet.oracle.owners().iter().sum::<usize>(), 30, "all owned");
        assert_eq!(fleet.owned_by_the_dead(), 0);
    });
}

#[test]
fn a_single_replica_that_restarts_goes_on_at_once() {
    for_each_seed("restart alone", |seed| {
        let mut fleet = Fleet::new(seed, 9, Network::Calm);
        fleet.start();
        fleet.run_for(5_000);
        fleet.inject(Fault::Restart(0));
        fleet.run_for(500);
        assert_eq!((fleet.oracle.owners(), fleet.owned_by_the_dead()), (vec![9], 0));
    });
}

#[test]
fn a_leaver_hands_over_as_fast_as_its_work_ends() {
    for_each_seed("leave", |seed| {
        let mut fleet = Fleet::new(seed, 30, Network::Calm);
        fleet.start_all(3);
        fleet.run_for(10_000);
        fleet.inject(Fault::Leave(0));
        fleet.run_for(fleet::LONGEST_RECONCILE_MS + 1_000);
        assert_eq!(fleet.oracle.owners(), [15, 15]);
        assert_eq!(fleet.oracle.moves(), 40, "only the leaver's shards moved");
        assert!(fleet.has_departed(0));
    });
}

#[test]
fn a_newcomer_gets_its_share_and_nothing_else_moves() {
    for_each_seed("join", |seed| {
        let mut fleet = Fleet::new(seed, 30, Network::Calm);
        fleet.start_all(2);
        fleet.run_for(10_000);
        fleet.start();
        fleet.run_for(15_000);
        assert_eq!(fleet.oracle.owners(), [10, 10, 10]);
        assert_eq!(fleet.oracle.moves(), 40, "only the newcomer's share moved");
    });
}

/// Home is away until every Lease has run out. Each process comes back under another id, and gets
/// what it had, unless it comes back later than others.
#[test]
fn after_a_brown_out_processes_have_most_of_what_they_had() {
    for_each_seed("brown-out", |seed| {
        let mut fleet = Fleet::new(seed, 30, Network::Calm);
        fleet.start_all(3);
        fleet.run_for(10_000);
        let (before, ids) = (fleet.placement(), fleet.ids());
        (0..3).for_each(|replica| fleet.inject(Fault::Partition(replica, 20_000)));
        fleet.run_for(60_000);
        assert!(fleet.ids().iter().all(|id| !ids.contains(id)), "all have fenced themselves");
        let after = fleet.placement();
        let same = before.iter().filter(|(shard, replica)| after[*shard] == **replica).count();
        assert!(same >= 20, "{same} of 30, by chance it would be 10");
    });
}

#[test]
fn all_leave_and_come_back_without_repeating_an_epoch() {
    for_each_seed("restart", |seed| {
        let mut fleet = Fleet::new(seed, 9, Network::Calm);
        fleet.start_all(3);
        fleet.run_for(5_000);
        for replica in 0..3 {
            fleet.inject(Fault::Leave(replica));
        }
        fleet.run_for(fleet::LONGEST_RECONCILE_MS + 10_000);
        assert!((0..3).all(|replica| fleet.has_departed(replica)));
        fleet.start();
        fleet.run_for(12_000);
        assert_eq!(fleet.oracle.owners(), [9]);
    });
}

/// Under any faults, S1, S3 and S5 hold. Once the faults cease, every shard is owned and the owners are
/// balanced (L1).
#[test]
fn chaos() {
    for_each_seed("chaos", |seed| {
        let mut fleet = Fleet::new(seed, 12, Network::Rough);
        fleet.start_all(4);
        fleet.run_for(5_000);
        fleet.suffer(12, 6_000);
        fleet.heal();
        // A Lease runs out and is taken, drains end, and balance returns eight moves at a time.
        fleet.run_for(40_000);
        let owners = fleet.oracle.owners();
        let (least, most) = (owners.iter().min(), owners.iter().max());
        assert_eq!(owners.iter().sum::<usize>(), 12, "all owned");
        assert!(most.unwrap() - least.unwrap() <= 1, "even: {owners:?}");
        assert_eq!(owners.len(), fleet.alive().min(12));
    });
}

/// A cluster with most of the work is split, and merged again when it is idle, under any faults. S1 and
/// S3 hold for every uid, whatever shard it lies in.
#[test]
fn ranges_split_and_merge_under_faults() {
    for_each_seed("ranges", |seed| {
        let mut fleet = Fleet::new(seed, 5, Network::Rough);
        fleet.start_all(3);
        for cluster in 1..5 {
            fleet.heat(cluster, 20);
        }
        fleet.heat(0, 2_000);
        fleet.run_for(60_000);
        fleet.suffer(12, 12_000);
        let (splits, _) = fleet.oracle.range_changes();
        assert!(splits > 0, "the hot cluster is split");
        fleet.heat(0, 0);
        fleet.heal();
        // Its peak and its last reports are forgotten by then, also by a new coordinator.
        fleet.run_for(1_060_000);
        let (splits, merges) = fleet.oracle.range_changes();
        assert_eq!(splits, merges, "all that was split is whole again");
        assert_eq!(fleet.oracle.owners().iter().sum::<usize>(), 5, "all owned");
    });
}

#[test]
fn a_seed_replays_to_the_same_history() {
    let history = |seed| {
        let mut fleet = Fleet::new(seed, 8, Network::Rough);
        fleet.start_all(3);
        for _ in 0..6 {
            fleet.inject_any();
            fleet.run_for(2_000);
        }
        fleet.server.history()
    };
    assert_eq!(history(7), history(7));
    assert_ne!(history(7), history(8));
}
