//! Runs the simulation over many seeds, or replays one. `cargo xtask soak` builds and starts it.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tests::soak::{attempt, minimised, soak};
use tests::world;
use tests::world::plan::Plan;

#[derive(Debug, Parser)]
#[command(name = "soak", about = "Simulates whole fleets from many seeds")]
struct Args {
    /// How many seeds to run.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Stop after this many minutes.
    #[arg(long)]
    minutes: Option<u64>,
    /// Replay only this seed.
    #[arg(long, conflicts_with_all = ["seeds", "from", "minutes"])]
    seed: Option<u64>,
    /// With `--seed`: print what happened, with all faults.
    #[arg(long, requires = "seed")]
    history: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let seeds = args.from..args.from.saturating_add(args.seeds);
    let failed = match args.seed {
        Some(seed) => replay(seed, args.history),
        None => {
            let limit = args.minutes.map(|minutes| Duration::from_secs(60 * minutes));
            let report = soak(seeds, limit);
            println!("{report}");
            !report.failures.is_empty()
        }
    };
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs one seed. Returns whether it fails.
fn replay(seed: u64, whole: bool) -> bool {
    let plan = Plan::of(seed);
    print!("{plan}");
    if whole {
        print!("{}", world::run(plan.clone()));
    }
    let violations = attempt(&plan);
    let failed = !violations.is_empty();
    if failed {
        print!("{}", minimised(plan, violations));
    } else {
        println!("it holds");
    }
    failed
}
