//! The oracles can fail: each bug planted in the engine is caught, and within how many seeds.
//!
//! `cargo test -p tests --test sim planted -- --nocapture` prints the table.

use std::thread;

use engine::planted::{Planted, plant};
use tests::oracle::Violation;
use tests::soak::attempt;
use tests::world::plan::{Fault, Kind, Plan, SECOND_US};

/// The rules of which one must catch a bug, and within how many seeds from the first.
fn expected(bug: Planted) -> (&'static [&'static str], u64) {
    match bug {
        Planted::ForgetDelayed | Planted::PurgeLosesKey => (&["L2"], 10),
        Planted::ForgetChangeOfRunning => (&["L2"], 10),
        Planted::RelistDropsDeletes => (&["L2"], 30),
        Planted::AcknowledgeEarly => (&["S2"], 100),
        Planted::FenceAtDispatchOnly | Planted::RunOnWithoutShard => (&["S1", "S5"], 60),
    }
}

/// The plan of a seed; where a bug shows only after a gap in the watches, with a gap for everybody.
fn plan(bug: Planted, seed: u64) -> Plan {
    let mut plan = Plan::of(seed);
    if bug == Planted::RelistDropsDeletes {
        let cluster = plan.setup.workloads().start;
        plan.faults = (0..plan.setup.replicas)
            .map(|replica| Fault {
                from_us: 15 * SECOND_US,
                until_us: 29 * SECOND_US,
                kind: Kind::Freeze { replica, cluster, gap: true },
            })
            .collect();
    }
    plan
}

/// The first seed that tells of a bug, and what it tells.
fn hunt(bug: Planted) -> Option<(u64, Violation)> {
    let (rules, within) = expected(bug);
    plant(Some(bug));
    (0..within).find_map(|seed| {
        let mut found = attempt(&plan(bug, seed)).into_iter();
        Some((seed, found.find(|violation| rules.contains(&violation.rule))?))
    })
}

#[test]
fn every_bug_is_caught() {
    let hunts = Planted::ALL.map(|bug| (bug, thread::spawn(move || hunt(bug))));
    let caught = hunts.map(|(bug, hunt)| (bug, hunt.join().expect("a hunt does not panic")));
    for (bug, caught) in &caught {
        match caught {
            Some((seed, first)) => println!("{bug:?}: within {} seeds, {first}", seed + 1),
            None => println!("{bug:?}: not caught"),
        }
    }
    assert!(caught.iter().all(|(_, caught)| caught.is_some()), "{caught:?}");
}
