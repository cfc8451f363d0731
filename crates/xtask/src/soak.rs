//! `cargo xtask soak`: the simulation of whole fleets over many seeds, built for speed.

use anyhow::{Context, Result, ensure};

/// Simulates whole fleets under many seeds; prints what fails, made small.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Options of the simulation: `--seeds N`, `--from N`, `--minutes N`, or `--seed N` with
    /// `--history`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

pub fn run(args: &Args) -> Result<()> {
    let status = xtask::cargo()
        .args(["run", "--release", "--package", "tests", "--bin", "soak", "--"])
        .args(&args.options)
        .status()
        .context("start cargo")?;
    ensure!(status.success(), "the simulation failed, see above");
    Ok(())
}
