//! `cargo xtask chaos`: kills, stops, cuts off and replaces real replicas over real API servers
//! under load, and reads every audit log to see what the replicas did meanwhile.
//!
//! ```text
//! faults ─▶ fleet: home, clusters ◀─ proxies ─ replicas ◀─ sampler (metrics)
//!             │ audit logs                     │ journals
//!             └──────────▶ history ◀───────────┘
//!                            ├─▶ oracle, gap ─▶ rows of the report
//!                            └─▶ figures, agreement: were metrics and `leasehold status` right?
//! ```
//!
//! | file | what it does |
//! |---|---|
//! | `fleet`, `replica` | clusters, replicas, and a proxy between each two |
//! | `sampler` | reads every replica's metrics all the time |
//! | `faults` | one function for each fault |
//! | `rounds` | faults under load, again and again, and what is measured meanwhile |
//! | `comparison` | the events that were measured of multicluster-runtime |
//! | `evidence`, `journal`, `history` | read what a run left behind into plain values |
//! | `oracle`, `gap`, `figures`, `agreement` | pure: what the evidence shows |
//! | `report` | pure: the table |
//!
//! Safety decides the exit code: a key dispatched twice at once, a write or a dispatch by a member
//! that did not own the shard, a change that never took effect, a metric that was wrong. Durations
//! are only printed.

mod agreement;
mod comparison;
mod evidence;
mod faults;
mod figures;
#[cfg(test)]
mod fixture;
mod fleet;
mod gap;
mod history;
mod journal;
mod oracle;
mod replica;
mod report;
mod rounds;
mod sampler;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::runtime::Builder;

use crate::harness::scene;
use crate::harness::table::Format;
use crate::harness::tools::{Need, Tools};
use faults::{FAULTS, NamedFault};

/// The name of the comparison among the faults.
const COMPARISON: &str = "comparison";

/// Harms a real fleet and shows that it keeps its promises.
#[derive(Debug, clap::Args)]
pub struct ChaosArgs {
    /// Print the faults and run none.
    #[arg(long)]
    list: bool,
    /// Run only this fault; may be given several times. Default: every fault, and the comparison.
    #[arg(long, value_name = "FAULT")]
    only: Vec<String>,
    /// How often to run each fault.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How many replicas there are; the faults need three.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(3..=20))]
    members: u8,
    /// For how many seconds SIGSTOP stops a replica.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    stop_for: u64,
    /// The form of the table.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// Use this `leasehold` instead of building one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// Lists or runs the faults.
///
/// # Errors
/// If something is missing, a promise was broken, or the fleet did not recover.
pub fn run(args: &ChaosArgs) -> Result<()> {
    if args.list {
        FAULTS.iter().for_each(|fault| println!("{:14}{}", fault.name, fault.about));
        println!("{COMPARISON:14}the events that were measured of multicluster-runtime");
        return Ok(());
    }
    let names = FAULTS.iter().map(|fault| fault.name).chain([COMPARISON]);
    let chosen = scene::choose("fault", names, &args.only)?;
    let tools = Tools::new(args.binary.as_deref())?;
    let mut needs = vec![Need::Kube, Need::Leasehold];
    needs.extend(chosen.contains(&COMPARISON).then_some(Need::Slow));
    tools.prepare(&needs)?;
    // The future runs on this thread, with which the children die (see `harness::process`). Links,
    // load and sampling have threads of their own, so that nothing here delays them.
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run_all(args, &tools, &chosen))
}

async fn run_all(args: &ChaosArgs, tools: &Tools, chosen: &[&str]) -> Result<()> {
    let stop_for = Duration::from_secs(args.stop_for);
    let faults: Vec<&NamedFault> = FAULTS.iter().filter(|f| chosen.contains(&f.name)).collect();
    let mut outcomes = Vec::new();
    if !faults.is_empty() {
        let plan = rounds::Schedule {
            faults: &faults,
            rounds: args.rounds,
            members: args.members.into(),
            stop_for,
            format: args.output,
        };
        let part = async |scene: &_| kept(rounds::run(scene, &plan).await?);
        outcomes.push(scene::run(tools, "chaos", part).await?);
    }
    if chosen.contains(&COMPARISON) {
        let part = async |scene: &_| kept(comparison::run(scene, stop_for, args.output).await?);
        outcomes.push(scene::run(tools, COMPARISON, part).await?);
    }
    outcomes.into_iter().collect()
}

fn kept(promises: bool) -> Result<()> {
    ensure!(promises, "a promise was broken; see above");
    Ok(())
}
