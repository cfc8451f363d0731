//! The oracles can fail: each bug planted in the engine is found, and within how many seeds.

use engine::planted::{Bug, plant};
use tests::soak::attempt;
use tests::world::plan::Plan;

/// Each bug, the rules that may catch it, and within how many seeds one does.
const BUGS: &[(Bug, &[&str], u64)] = &[
    (Bug::ForgetsDelayed, &["L2"], 100),
    (Bug::PurgeLosesKey, &["L2"], 20),
    (Bug::RelistDropsDeletes, &["L2"], 400),
    (Bug::FenceAtDispatchOnly, &["S1", "S5"], 400),
    (Bug::AcknowledgesEarly, &["S2"], 100),
    (Bug::RunsOnWithoutShard, &["S1", "S5"], 100),
    (Bug::ForgetsChangeOfRunning, &["L2"], 100),
];

#[test]
fn each_is_caught() {
    let mut missed = Vec::new();
    for (bug, rules, within) in BUGS {
        plant(Some(*bug));
        let caught = (0..*within).find_map(|seed| {
            let found = attempt(&Plan::of(seed));
            let first = found.into_iter().find(|violation| rules.contains(&violation.rule))?;
            Some((seed, first))
        });
        plant(None);
        match caught {
            Some((seed, first)) => println!("{bug:?}: within {} seeds, {first}", seed + 1),
            None => missed.push((bug, within)),
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
