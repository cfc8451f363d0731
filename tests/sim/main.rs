//! The simulation: whole fleets under seeds.

use tests::world::plan::Plan;
use tests::world::{self, Outcome};

fn text(outcome: &Outcome) -> String {
    outcome.records.iter().map(|record| format!("{record}\n")).collect()
}

#[test]
fn a_seed_replays_to_the_same_history() {
    for seed in 0..4 {
        let begun = std::time::Instant::now();
        let first = text(&world::run(Plan::of(seed)));
        eprintln!("{seed}: {} lines in {:?}", first.lines().count(), begun.elapsed());
        let second = text(&world::run(Plan::of(seed)));
        std::fs::write("/tmp/sim-a.txt", &first).unwrap();
        std::fs::write("/tmp/sim-b.txt", &second).unwrap();
        assert_eq!(first, second, "seed {seed}");
    }
}
