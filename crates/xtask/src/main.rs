//! `cargo xtask`: the project's own chores. One file per sub-command.

mod bench;
mod chaos;
mod dashboards;
mod model;
mod packages;
mod real;
mod soak;

use anyhow::Result;
use clap::{Parser, Subcommand};
use xtask::codegen;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "The project's own chores")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    Bench(bench::Args),
    Chaos(chaos::Args),
    Codegen(codegen::Args),
    Dashboards(dashboards::Args),
    Model(model::Args),
    Real(real::Args),
    Soak(soak::Args),
}

fn main() -> Result<()> {
    match Args::parse().task {
        Task::Bench(args) => bench::run(&args),
        Task::Chaos(args) => chaos::run(&args),
        Task::Codegen(args) => codegen::run(&args),
        Task::Dashboards(args) => dashboards::run(&args),
        Task::Model(args) => model::run(&args),
        Task::Real(args) => real::run(&args),
        Task::Soak(args) => soak::run(&args),
    }
}
