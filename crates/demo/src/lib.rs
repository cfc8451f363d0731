//! `leasehold demo`: a whole fleet on one machine, watched from outside.
//!
//! It owns the clusters it starts, the replicas it spawns, the objects it makes and what it shows of
//! them. It does not reach into the manager: replicas are child processes `leasehold run`, and all
//! that is shown is read through ordinary clients, `/metrics` and the journals.
//!
//! ```text
//!   args ─▶ layout, ports ─▶ world (API servers) ─▶ children (replicas)
//!                              │ watches              │ /metrics, journals
//!                              ▼                      ▼
//!   generate ── changes ──▶ session: track, handover ─▶ view ─▶ summary
//! ```
//!
//! | file | owns |
//! |---|---|
//! | `args` | the command line, and what happens when |
//! | `layout`, `ports` | the directory and the ports, and who may use them |
//! | `world`, `children` | API servers; replicas |
//! | `generate`, `examples` | objects and changes (pure); the examples of further controllers |
//! | `follow`, `scrape`, `sources` | watching clusters; reading metrics; the events of the loop |
//! | `track`, `handover`, `overlap` | what has converged; who holds what; the proof (pure) |
//! | `view`, `summary` | what is shown (pure) |
//! | `session` | the loop that ties them together, and its reports |
//!
//! [`standin`] and [`cloud`] stand in for services outside of Kubernetes, and for what runs in Pods. Tests use them
//! too.

#![deny(unreachable_pub)]
// It panics when the reader of a pipe has seen enough.
#![deny(clippy::print_stdout)]

mod args;
mod children;
pub mod cloud;
mod examples;
mod follow;
mod generate;
mod handover;
mod layout;
mod overlap;
mod ports;
mod scrape;
mod session;
mod sources;
pub mod standin;
mod summary;
mod track;
mod view;
mod world;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use model::Clock;

pub use crate::args::Args;

/// The exit code for arguments that contradict each other, as for those that do not parse.
const WRONG_ARGUMENTS: u8 = 2;

/// Runs the demo until its time is up or it is interrupted, and prints a summary.
///
/// Each replica is another process of this program, started as `leasehold run`. Replicas stamp their
/// journals on `CLOCK_BOOTTIME`, so `clock` must count on it too.
///
/// # Errors
/// When the fleet cannot be started.
pub fn run(args: Args, clock: Arc<dyn Clock>) -> anyhow::Result<ExitCode> {
    let started = clock.now();
    let timeline = match args.timeline() {
        Ok(timeline) => timeline,
        Err(contradiction) => {
            // That nobody reads it does not change what is wrong.
            let _ = writeln!(std::io::stderr(), "leasehold: {contradiction}");
            return Ok(ExitCode::from(WRONG_ARGUMENTS));
        }
    };
    let names = world::names(args.clusters);
    let layout = layout::Layout::claim(&args.dir)?;
    let ports = ports::Ports::find(args.port, &names, args.replicas)?;
    let executable = std::env::current_exe().context("find this program's own file")?;
    let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
    let fleet = session::Fleet { args, timeline, names, layout, ports, executable };
    let summary = runtime.block_on(session::run(fleet, clock, started))?;
    // That nobody reads it does not change how it went.
    let _ = writeln!(std::io::stdout(), "\n{summary}");
    Ok(if summary.failures().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
