//! `cargo xtask`: the project's own chores.

mod real;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "The project's own chores")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    Real(real::Args),
}

fn main() -> Result<()> {
    match Args::parse().task {
        Task::Real(args) => real::run(&args),
    }
}
