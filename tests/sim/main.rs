//! The simulation of whole fleets from seeds. `cargo xtask soak --seeds N` runs more.
//!
//! - `planted`: oracles find the bugs that are planted

#[cfg(test)]
mod planted;

#[cfg(test)]
mod seeds {
    use tests::soak::{attempt, soak};
    use tests::world;
    use tests::world::plan::Plan;

    /// How many seeds every test run simulates.
    const SEEDS: u64 = 500;

    #[test]
    fn a_seed_replays_to_the_same_history() {
        for seed in 0..4 {
            let first = world::run(Plan::of(seed)).to_string();
            assert!(first.lines().count() > 500, "seed {seed}: next to nothing happened");
            assert_eq!(first, world::run(Plan::of(seed)).to_string(), "seed {seed}");
        }
    }

    #[test]
    fn a_world_without_faults_holds() {
        for seed in 0..4 {
            assert_eq!(attempt(&Plan::of(seed).calm()), [], "seed {seed}");
        }
    }

    #[test]
    fn every_seed_holds() {
        let report = soak(0..SEEDS, None);
        println!("{report}");
        assert!(report.failures.is_empty(), "{report}");
        assert_eq!(report.seeds, SEEDS);
    }
}
