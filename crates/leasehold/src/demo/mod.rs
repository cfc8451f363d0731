//! The demo: a whole fleet on one machine.

use std::process::ExitCode;

/// Arguments of `leasehold demo`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {}

/// Runs the demo.
///
/// # Errors
/// When the fleet cannot be started.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("the demo is not part of this build")
}
