//! `cargo xtask model`: explores the protocol's model further than `cargo test` does, in release.
//!
//! The model is a test of the crate `sharding`; what it leaves out and what its numbers mean stands
//! there, in `crates/sharding/tests/model/main.rs`.

use anyhow::{Context, Result, ensure};

/// Explores the model of the sharding protocol, and prints how many states there are.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// How many disturbances: from a cold start, in a settled fleet, and when one member holds
    /// everything. Each more means tens of times the states.
    #[arg(long, default_value = "2,2,2", value_name = "COLD,SHARED,ALONE")]
    disturbances: String,
}

/// Runs the model's test with those bounds.
///
/// # Errors
/// Cargo cannot be run, or a rule is broken.
pub fn run(args: &Args) -> Result<()> {
    let status = xtask::cargo()
        .args(["test", "--release", "--package", "leasehold-sharding", "--test", "model", "--"])
        .args(["--nocapture", "every_rule_holds_in_every_state"])
        .env("LEASEHOLD_MODEL", &args.disturbances)
        .status()
        .context("run cargo test")?;
    ensure!(status.success(), "the model breaks a rule, or could not be explored");
    Ok(())
}
