//! The simulation of whole fleets from seeds. `cargo xtask soak --seeds N` runs more.
//!
//! - `planted`: oracles find the bugs that are planted

#[cfg(test)]
mod planted;

#[cfg(test)]
mod seeds {
    use tests::oracle;
    use tests::soak::{attempt, soak};
    use tests::world;
    use tests::world::plan::Plan;
    use tests::world::planted::Planted;

    /// How many seeds every test run simulates.
    const SEEDS: u64 = 100;

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

    /// One busy object, which no split divides, is left where it is.
    #[test]
    fn a_world_with_one_busy_object_holds() {
        for seed in 0..8 {
            let outcome = world::run(Plan::hot(seed));
            assert_eq!(oracle::check(&outcome), [], "seed {seed}");
            let handovers = oracle::handovers(&outcome);
            println!("seed {seed}: {handovers} handovers");
            assert!(handovers <= 1, "seed {seed}: {handovers}");
        }
        let bug = Some(Planted::DivideObjects);
        let divided = oracle::handovers(&world::run(Plan { bug, ..Plan::hot(0) }));
        println!("seed 0, if its load is taken for divisible: {divided} handovers");
        assert!(divided > 20, "{divided}");
    }

    /// A shard that moved because its owner died is split when its load is known: long after all faults.
    #[test]
    fn shards_may_split_for_a_load_that_is_known_late() {
        assert_eq!(attempt(&Plan::of(67_667)), []);
    }

    #[test]
    fn every_seed_holds() {
        let report = soak(0..SEEDS, None);
        println!("{report}");
        assert!(report.failures.is_empty(), "{report}");
        assert_eq!(report.seeds, SEEDS);
    }
}
