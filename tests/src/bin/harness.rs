//! Runs the product against real components. `cargo xtask` builds and starts this program for its
//! commands `bench`, `chaos`, `dashboards` and `real`.

use anyhow::Result;
use clap::Parser;
use tests::{bench, chaos, dashboards, real};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    Bench(bench::BenchArgs),
    Chaos(chaos::ChaosArgs),
    Dashboards(dashboards::DashboardArgs),
    Real(real::RealArgs),
}

fn main() -> Result<()> {
    match Task::parse() {
        Task::Bench(args) => bench::run(&args),
        Task::Chaos(args) => chaos::run(&args),
        Task::Dashboards(args) => dashboards::run(&args),
        Task::Real(args) => real::run(&args),
    }
}
