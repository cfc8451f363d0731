//! `cargo xtask real`: the product against real Kubernetes components, as a black box.
//!
//! Each check is a file of `checks`: what is done, and what must hold. `conformance` compares the
//! embedded API server with a real one.

mod checks;
mod conformance;

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::harness::scene;
use crate::harness::tools::{Need, Tools};
use crate::harness::wait::Stopwatch;
use checks::{CHECKS, Check};

/// Runs the product against a real Kubernetes.
#[derive(Debug, clap::Args)]
pub struct RealArgs {
    /// Print the checks and what each of them shows, and run none.
    #[arg(long)]
    list: bool,
    /// Run only this check; may be given several times.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Use this `leasehold` instead of building one. `node` needs a static one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Build and install what the checks need, and run none.
    #[arg(long)]
    build_only: bool,
}

/// Lists or runs the checks.
pub fn run(args: &RealArgs) -> Result<()> {
    if args.list {
        CHECKS.iter().for_each(|check| println!("{:18}{}", check.name, check.about));
        return Ok(());
    }
    let names = scene::choose("check", CHECKS.iter().map(|check| check.name), &args.only)?;
    let chosen: Vec<&Check> = CHECKS.iter().filter(|check| names.contains(&check.name)).collect();
    let tools = Tools::new(args.binary.as_deref())?;
    let needs: BTreeSet<Need> = chosen.iter().flat_map(|check| check.needs).copied().collect();
    tools.prepare(&needs.into_iter().collect::<Vec<_>>())?;
    if args.build_only {
        return Ok(());
    }
    scene::one_thread()?.block_on(run_all(&tools, &chosen))
}

async fn run_all(tools: &Tools, checks: &[&Check]) -> Result<()> {
    let all = Stopwatch::start();
    let mut failed = Vec::new();
    for Check { name, about, run, .. } in checks {
        println!("\n== {name}: {about}");
        let watch = Stopwatch::start();
        match scene::run(tools, name, async |scene| run(scene).await).await? {
            Ok(()) => println!("ok: {name} in {watch}"),
            Err(error) => {
                println!("FAILED: {name} after {watch}: {error:#}");
                failed.push(*name);
            }
        }
    }
    if !failed.is_empty() {
        let names = failed.join(", ");
        bail!("failed: {names} ({} of {} checks, {all})", failed.len(), checks.len());
    }
    println!("all {} checks passed in {all}", checks.len());
    Ok(())
}
