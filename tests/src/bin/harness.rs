//! Runs the product against real components. `cargo xtask` builds and starts this program for its
//! commands `bench`, `chaos`, `dashboards`, `hostile` and `real`.

use std::alloc::System;

use anyhow::Result;
use cap::Cap;
use clap::Parser;
use tests::{bench, chaos, dashboards, hostile, real};

/// Counts what is allocated, for `hostile`.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    Bench(bench::BenchArgs),
    Chaos(chaos::ChaosArgs),
    Dashboards(dashboards::DashboardArgs),
    Hostile(hostile::HostileArgs),
    Real(real::RealArgs),
}

fn main() -> Result<()> {
    match Task::parse() {
        Task::Bench(args) => bench::run(&args),
        Task::Chaos(args) => chaos::run(&args),
        Task::Dashboards(args) => dashboards::run(&args),
        Task::Hostile(args) => hostile::run(&args, || ALLOCATOR.allocated()),
        Task::Real(args) => real::run(&args),
    }
}
