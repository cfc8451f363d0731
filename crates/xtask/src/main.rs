//! `cargo xtask`: the project's chores.

mod drive;

use std::convert::Infallible;

use anyhow::Result;
use clap::{Parser, Subcommand};
use drive::{Forwarded, Model};
use xtask::codegen;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "The project's chores")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Measures our engine beside controller-runtime and kube-rs.
    Bench(Forwarded),
    /// Harms a real fleet and shows that it keeps its promises.
    Chaos(Forwarded),
    Codegen(codegen::Args),
    /// Runs every query of the dashboard and the rules against a real Prometheus and a live demo.
    Dashboards(Forwarded),
    /// Runs a replica beside a cluster that misbehaves, one way after the other.
    Hostile(Forwarded),
    /// Explores the model of the sharding protocol further than `cargo test` does, and prints how
    /// many states there are.
    Model(Model),
    /// Runs the product against a real Kubernetes.
    Real(Forwarded),
    /// Simulates whole fleets from many seeds; prints what fails, with as few faults as possible.
    Soak(Forwarded),
}

fn main() -> Result<()> {
    let started: Result<Infallible> = match Args::parse().task {
        Task::Codegen(args) => return codegen::run(&args),
        Task::Bench(args) => drive::harness("bench", &args),
        Task::Chaos(args) => drive::harness("chaos", &args),
        Task::Dashboards(args) => drive::harness("dashboards", &args),
        Task::Hostile(args) => drive::harness("hostile", &args),
        Task::Real(args) => drive::harness("real", &args),
        Task::Model(args) => drive::model(&args),
        Task::Soak(args) => drive::soak(&args),
    };
    started.map(|never| match never {})
}
