//! The oracles can fail: each planted bug is caught, and within how many seeds.
//!
//! `cargo test -p tests --test sim planted -- --nocapture` prints the table.

use std::thread;

use model::Purpose;
use tests::oracle::Violation;
use tests::soak::attempt;
use tests::world::plan::{Fault, Kind, Plan, SECOND_US};
use tests::world::planted::Planted;

/// The rules of which one must catch a bug, and within how many seeds from the first.
fn expected(bug: Planted) -> (&'static [&'static str], u64) {
    match bug {
        Planted::ForgetDelayed | Planted::PurgeLosesKey => (&["L2"], 10),
        Planted::ForgetChangeOfRunning => (&["L2"], 10),
        Planted::RelistDropsDeletes => (&["L2"], 30),
        Planted::AcknowledgeEarly => (&["S2"], 30),
        Planted::DivideObjects => (&["L3"], 2),
        Planted::FenceAtDispatchOnly | Planted::ForgetDeadline => (&["S1", "S5"], 10),
        Planted::RunOnWithoutShard => (&["S1", "S5"], 60),
    }
}

/// The plan of a seed; for a bug that shows only in certain troubles, one that is full of them.
fn plan(bug: Planted, seed: u64) -> Plan {
    let mut plan = Plan { bug: Some(bug), ..Plan::of(seed) };
    let fault = |from_s: u64, until_s: u64, kind| Fault {
        from_us: from_s * SECOND_US,
        until_us: until_s * SECOND_US,
        kind,
    };
    match bug {
        // After a gap in the watches.
        Planted::RelistDropsDeletes => {
            let cluster = plan.setup.workloads().start;
            let freeze = |replica| fault(15, 29, Kind::Freeze { replica, cluster, gap: true });
            plan.faults = (0..plan.setup.replicas).map(freeze).collect();
        }
        // When busy shards are handed over, again and again.
        Planted::AcknowledgeEarly => {
            let drain = |n: usize| {
                let (from_s, replica) = (10 + 4 * n as u64, n % plan.setup.replicas);
                fault(from_s, from_s + 4, Kind::Drain { replica })
            };
            plan.faults = (0..10).map(drain).collect();
        }
        // When a machine sleeps between a check and what it allows.
        Planted::FenceAtDispatchOnly | Planted::ForgetDeadline => {
            let replicas = 0..plan.setup.replicas;
            let from_s = |replica: usize| 8 + 7 * replica as u64;
            let after = Purpose::Write;
            let sleep = |replica| (from_s(replica), Kind::Stumble { replica, after, skip: 1 });
            plan.faults = replicas.map(sleep).map(|(at, kind)| fault(at, at + 6, kind)).collect();
        }
        // Where one object is busy.
        Planted::DivideObjects => plan = Plan { bug: Some(bug), ..Plan::hot(seed) },
        _ => {}
    }
    plan
}

/// The first seed that tells of a bug, and what it tells.
fn hunt(bug: Planted) -> Option<(u64, Violation)> {
    let (rules, within) = expected(bug);
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
            Some((seed, first)) => {
                println!("{:<22} {:<4} seed {seed}: {first}", format!("{bug:?}"), first.rule)
            }
            None => println!("{:<22} not caught", format!("{bug:?}")),
        }
    }
    assert!(caught.iter().all(|(_, caught)| caught.is_some()), "{caught:?}");
}
