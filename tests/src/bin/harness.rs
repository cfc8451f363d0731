//! Runs the product against real components. `cargo xtask` builds and starts this program for its
//! commands `bench`, `chaos`, `dashboards`, `hostile` and `real`.

use anyhow::Result;
use clap::Parser;
use tests::{bench, chaos, dashboards, hostile, real};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    Bench(bench::BenchArgs),
    Chaos(chaos::ChaosArgs),
    Dashboards(dashboards::DashboardArgs),
    Hostile(hostile::HostileArgs),
    #[command(hide = true)]
    HostileReplica(hostile::ReplicaArgs),
    Real(real::RealArgs),
}

fn main() -> Result<()> {
    match Task::parse() {
        Task::Bench(args) => bench::run(&args),
        Task::Chaos(args) => chaos::run(&args),
        Task::Dashboards(args) => dashboards::run(&args),
        Task::Hostile(args) => hostile::run(&args),
        Task::HostileReplica(args) => hostile::run_replica(args),
        Task::Real(args) => real::run(&args),
    }
}
