//! The simulation: whole fleets under seeds.

#[cfg(test)]
mod planted;

use tests::oracle;
use tests::world::plan::Plan;
use tests::world::{self, Outcome};

fn text(outcome: &Outcome) -> String {
    outcome.records.iter().map(|record| format!("{record}\n")).collect()
}

#[test]
fn a_seed_replays_to_the_same_history() {
    for seed in 0..4 {
        let first = text(&world::run(Plan::of(seed)));
        let second = text(&world::run(Plan::of(seed)));
        assert_eq!(first, second, "seed {seed}");
    }
}

#[test]
fn probe() {
    let from: u64 = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let n: u64 = std::env::var("N").ok().and_then(|s| s.parse().ok()).unwrap_or(20);
    let begun = std::time::Instant::now();
    for seed in from..from + n {
        let outcome = world::run(Plan::of(seed));
        let found = oracle::check(&outcome);
        if !found.is_empty() {
            println!("{}", outcome.plan);
            for v in found.iter().take(4) {
                println!("  !! {v}");
            }
            std::fs::write(format!("/tmp/seed-{seed}.txt"), text(&outcome)).unwrap();
        }
    }
    println!("{n} seeds in {:?}", begun.elapsed());
}
