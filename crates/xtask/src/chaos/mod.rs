//! `cargo xtask chaos`: real replicas over real API servers are killed, stopped, cut off and
//! replaced under load, and every API server's audit log is read to see what they did meanwhile.
//!
//! ```text
//! faults ─▶ field: home, clusters ◀─ links ─ replicas ◀─ sampler (metrics)
//!             │ audit logs                     │ journals
//!             └──────────▶ history ◀───────────┘
//!                            ├─▶ oracle, gap ─▶ rows of the report
//!                            └─▶ figures, truth: what metrics and `leasehold status` said of it
//! ```
//!
//! | file | what it does |
//! |---|---|
//! | `field`, `replica`, `link` | where it takes place: clusters, replicas, a proxy between each two |
//! | `sampler` | reads every replica's metrics all the time |
//! | `faults` | the harm, one function each |
//! | `rounds` | a fault under load, again and again, and what is measured on the way |
//! | `comparison` | the same events as were measured of multicluster-runtime |
//! | `evidence`, `journal`, `history` | what is left behind, read into plain values |
//! | `oracle`, `gap`, `figures`, `truth` | pure: what the evidence comes to |
//! | `report` | pure: the table |
//!
//! Safety decides over the exit code: a key dispatched twice at once, a write or a dispatch by
//! others than the owner, a change that never took effect, a metric that lied. Times are printed.

mod comparison;
mod evidence;
mod faults;
mod field;
mod figures;
#[cfg(test)]
mod fixture;
mod gap;
mod history;
mod journal;
mod oracle;
mod replica;
pub mod report;
mod rounds;
mod sampler;
mod truth;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use tokio::signal::unix::{SignalKind, signal};

use crate::real::tools::{Need, Tools};
use crate::real::{Scene, keep_logs};
use faults::{FAULTS, Fault};
use report::Format;

/// The name of the comparison among the faults.
const COMPARISON: &str = "comparison";

/// Does harm to a real fleet and shows that it keeps its promises.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print the faults and run none.
    #[arg(long)]
    list: bool,
    /// Do only this one; may be given several times. Default: every fault, and the comparison.
    #[arg(long, value_name = "FAULT")]
    only: Vec<String>,
    /// How often each fault is done.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How many replicas there are; the faults need three.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(3..=20))]
    members: u8,
    /// How many seconds a replica is stopped with SIGSTOP.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    stop_for: u64,
    /// The form of the table.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// Use this `leasehold` instead of building one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// Lists or does the faults.
///
/// # Errors
/// If something is missing, a promise was broken, or the fleet did not recover.
pub fn run(args: &Args) -> Result<()> {
    if args.list {
        FAULTS.iter().for_each(|fault| println!("{:14}{}", fault.name, fault.about));
        println!("{COMPARISON:14}the events that were measured of multicluster-runtime");
        return Ok(());
    }
    let (chosen, compares) = choose(&args.only)?;
    let tools = Tools::new(args.binary.as_deref())?;
    let mut needs = vec![Need::Kube, Need::Leasehold];
    needs.extend(compares.then_some(Need::Slow));
    tools.prepare(&needs)?;
    // The future runs on this thread, with which the children die (see `real::process`); links, load
    // and sampling have threads of their own, so that nothing done here delays them.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run_all(args, &tools, &chosen, compares))
}

/// The faults, and whether the comparison is among the names.
fn choose(only: &[String]) -> Result<(Vec<&'static Fault>, bool)> {
    let known: Vec<&str> = FAULTS.iter().map(|fault| fault.name).chain([COMPARISON]).collect();
    if let Some(name) = only.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("there is no fault {name:?}; there are {}", known.join(", "));
    }
    let chosen = |name: &str| only.is_empty() || only.iter().any(|chosen| chosen == name);
    Ok((FAULTS.iter().filter(|fault| chosen(fault.name)).collect(), chosen(COMPARISON)))
}

async fn run_all(
    args: &Args,
    tools: &Tools,
    chosen: &[&'static Fault],
    compares: bool,
) -> Result<()> {
    let mut well = true;
    let stop_for = Duration::from_secs(args.stop_for);
    if !chosen.is_empty() {
        let plan = rounds::Plan {
            faults: chosen,
            rounds: args.rounds,
            members: args.members.into(),
            stop_for,
            format: args.output,
        };
        well &= guarded(tools, "chaos", async |scene| rounds::run(scene, &plan).await).await?;
    }
    if compares {
        let outcome = async |scene: &Scene| comparison::run(scene, stop_for, args.output).await;
        well &= guarded(tools, COMPARISON, outcome).await?;
    }
    ensure!(well, "a promise was broken; see above");
    Ok(())
}

/// Runs a part in a scene of its own, keeps its logs if it fails, and takes everything down when
/// interrupted.
async fn guarded(
    tools: &Tools,
    name: &str,
    part: impl AsyncFnOnce(&Scene) -> Result<bool>,
) -> Result<bool> {
    let scene = Scene::new(tools)?;
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let outcome = tokio::select! {
        outcome = part(&scene) => outcome,
        _ = interrupt.recv() => bail!("interrupted; everything was taken down"),
        _ = terminate.recv() => bail!("terminated; everything was taken down"),
    };
    if !matches!(outcome, Ok(true)) {
        eprintln!("the logs of {name}: {}", keep_logs(&scene, name)?.display());
    }
    outcome
}
