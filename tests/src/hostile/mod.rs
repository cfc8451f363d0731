//! What one replica makes of clusters that misbehave, beside one that does not.
//!
//! ```text
//!   home ◀── replica ──▶ healthy (embedded)
//!               └──────▶ hostile ──▶ embedded: one for each mode, which behaves, turns, and behaves again
//! ```
//!
//! - `mode`: the ways to misbehave, and what a replica makes of each
//! - `answers`: the bodies of each
//! - `server`: the server that sends them
//! - `stage`: the replica, and what it does meanwhile
//!
//! `cargo xtask hostile` runs each mode by itself and prints a table; `tests/hostile` runs all of them at once.

mod answers;
mod mode;
mod server;
mod stage;

use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Parser;
use model::Budget;

pub use self::mode::{Expected, Mode};
pub use self::server::Hostile;
pub use self::stage::{Memory, Plan, Row, perform};
use crate::harness::table::{Format, Table};

/// The most that memory may grow through one hostile cluster, in bytes, with a budget of 16 MiB for those that
/// fill it. What reconciles decode comes on top; all clusters together have 64 MiB for that.
const MAX_GROWTH_BYTES: usize = 64 << 20;

/// Runs a replica beside a cluster that misbehaves, one way after the other, and prints what came of it.
#[derive(Debug, Parser)]
pub struct HostileArgs {
    /// Only these ways.
    #[arg(long = "mode", value_enum)]
    modes: Vec<Mode>,
    /// How long each is watched, in seconds.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// The form of the table.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Runs the modes, each by itself, and prints a table.
///
/// # Errors
/// If a replica cannot be started, or does something else than is expected of it.
pub fn run(args: &HostileArgs, memory: Memory) -> Result<()> {
    let modes = if args.modes.is_empty() { Mode::ALL.to_vec() } else { args.modes.clone() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut rows = Vec::new();
    for mode in modes {
        let budget = Budget { max_cache_bytes: 16 << 20, ..Budget::default() };
        let plan = Plan { observe: Duration::from_secs(args.seconds), budget };
        rows.extend(runtime.block_on(perform(&[mode], plan, memory))?);
    }
    println!("{}", table(&rows).render(args.format));
    let wrong: Vec<String> = rows.iter().flat_map(|row| row.faults(MAX_GROWTH_BYTES)).collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The rows, for people.
fn table(rows: &[Row]) -> Table {
    let heading =
        ["mode", "memory", "requests/s", "healthy cluster", "unready", "reported", "recovery"];
    let cells = |row: &Row| {
        let seconds = |time: Option<Duration>| {
            time.map_or_else(|| "never".to_owned(), |time| format!("{:.1} s", time.as_secs_f64()))
        };
        vec![
            row.mode.to_string(),
            format!("+{:.1} MiB", row.growth_bytes as f64 / f64::from(1 << 20)),
            format!("{:.1}", row.requests_per_second),
            seconds(row.healthy_after),
            format!("{}/{}", row.unready, row.asked),
            row.reported.clone().unwrap_or_else(|| "-".to_owned()),
            seconds(row.recovered_after),
        ]
    };
    Table { heading: heading.map(str::to_owned).to_vec(), rows: rows.iter().map(cells).collect() }
}

impl Row {
    /// What is wrong with it, each with its mode.
    pub fn faults(&self, max_growth_bytes: usize) -> Vec<String> {
        let mut faults = Vec::new();
        let mut wrong = |what: &dyn fmt::Display| faults.push(format!("{}: {what}", self.mode));
        if self.growth_bytes > max_growth_bytes {
            wrong(&format_args!("memory grows by {} bytes", self.growth_bytes));
        }
        if self.healthy_after.is_none() {
            wrong(&"the healthy cluster does not converge");
        }
        if self.unready > 0 {
            wrong(&format_args!("unready {} times of {}", self.unready, self.asked));
        }
        if self.recovered_after.is_none() {
            wrong(&"the cluster is not served when it behaves again");
        }
        match (self.mode.expected(), &self.reported) {
            (Expected::Reported(part), None) => {
                wrong(&format_args!("it is not reported, with {part:?} in the reason"));
            }
            (Expected::Reported(part), Some(reason)) if !reason.contains(part) => {
                wrong(&format_args!("reported without {part:?} in the reason: {reason}"));
            }
            (Expected::Served, Some(reason)) => wrong(&format_args!("reported: {reason}")),
            _ => {}
        }
        if self.requests_per_second > MAX_REQUESTS_PER_SECOND {
            wrong(&format_args!("{:.1} requests a second", self.requests_per_second));
        }
        faults
    }
}

/// The most requests that a cluster gets a second while it misbehaves. An endless list is read at full speed
/// until its budget is spent, so the mean counts.
const MAX_REQUESTS_PER_SECOND: f64 = 50.0;
