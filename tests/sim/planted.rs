//! The oracles can fail: each bug planted in the engine is caught, and within how many seeds.
//!
//! `cargo test -p tests --test sim planted -- --nocapture` prints the table.

use std::thread;

use engine::planted::{Planted, plant};
use tests::oracle::Violation;
use tests::soak::attempt;
use tests::world::plan::Plan;

/// The rules of which one must catch a bug, and within how many seeds from the first.
fn expected(bug: Planted) -> (&'static [&'static str], u64) {
    match bug {
        Planted::ForgetDelayed | Planted::PurgeLosesKey => (&["L2"], 10),
        Planted::ForgetChangeOfRunning => (&["L2"], 10),
        Planted::RelistDropsDeletes => (&["L2"], 200),
        Planted::AcknowledgeEarly => (&["S2"], 100),
        Planted::FenceAtDispatchOnly | Planted::RunOnWithoutShard => (&["S1", "S5"], 60),
    }
}

/// The first seed that tells of a bug, and what it tells.
fn hunt(bug: Planted) -> Option<(u64, Violation)> {
    let (rules, within) = expected(bug);
    plant(Some(bug));
    (0..within).find_map(|seed| {
        let found = attempt(&Plan::of(seed)).into_iter();
        Some((seed, found.into_iter().find(|violation| rules.contains(&violation.rule))?))
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
