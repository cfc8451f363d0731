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
//! - `http2`: the frames of one that speaks HTTP/2
//! - `strangers`: kubeconfigs of clusters that nobody can reach
//! - `stage`: all of them together, and what the replica does meanwhile
//! - `replica`: the replica's process
//! - `pulse`: how long changes of the healthy cluster take
//!
//! `cargo xtask hostile` runs each mode by itself and prints a table; `tests/hostile` runs most of them at once, and looks
//! how much memory each takes by itself.

mod answers;
mod http2;
mod mode;
mod pulse;
mod replica;
mod server;
mod stage;
mod strangers;

use std::env;
use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Parser;

pub use self::mode::{Expected, Mode};
pub use self::pulse::Spread;
pub use self::replica::{ReplicaArgs, run_replica};
pub use self::server::Hostile;
pub use self::stage::{Plan, Row, perform, weigh};
use crate::harness::table::{Format, Table};

/// The most that resident memory may grow through one hostile cluster, in bytes.
pub const MAX_GROWTH_BYTES: u64 = 64 << 20;
/// What caches may keep of each cluster, in bytes. What reconciles decode comes on top; all clusters together have 64
/// MiB for that.
const MAX_CACHE_BYTES: usize = 16 << 20;

/// How many times as long the changes of the healthy cluster may take beside a hostile one, p99 to p99.
const MAX_RATIO: f64 = 1.2;
/// Less than this is no difference: the machine's scheduler makes it.
const MIN_DIFFERENCE: Duration = Duration::from_millis(5);
/// With fewer changes before, nothing is said about how long they take meanwhile.
const MIN_CHANGES: usize = 500;
/// So many must be reconciled meanwhile: less than a tenth of those of a healthy cluster.
const MIN_MEANWHILE: usize = 100;

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
pub fn run(args: &HostileArgs) -> Result<()> {
    let modes = if args.modes.is_empty() { Mode::ALL.to_vec() } else { args.modes.clone() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let plan = Plan {
        harness: env::current_exe()?,
        observe: Duration::from_secs(args.seconds),
        changes: MIN_CHANGES,
        max_cache_bytes: MAX_CACHE_BYTES,
    };
    let mut rows = Vec::new();
    for (number, mode) in modes.iter().enumerate() {
        eprintln!("{mode} ({} of {})", number + 1, modes.len());
        rows.extend(runtime.block_on(perform(&[*mode], &plan))?);
    }
    println!("{}", table(&rows).render(args.format));
    let wrong: Vec<String> = rows.iter().flat_map(|row| row.faults(MAX_GROWTH_BYTES)).collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The rows, for people.
fn table(rows: &[Row]) -> Table {
    let heading = [
        "mode",
        "memory",
        "requests/s",
        "healthy cluster",
        "its p99 before",
        "its p99",
        "ratio",
        "unready",
        "reported",
        "recovery",
    ];
    let cells = |row: &Row| {
        let seconds = |time: Option<Duration>| {
            time.map_or_else(|| "never".to_owned(), |time| format!("{:.1} s", time.as_secs_f64()))
        };
        let milliseconds = |spread: Option<Spread>| {
            let text = |spread: Spread| format!("{:.1} ms", spread.p99.as_secs_f64() * 1e3);
            spread.map_or_else(|| "-".to_owned(), text)
        };
        vec![
            row.mode.to_string(),
            format!("+{:.1} MiB", row.growth_bytes as f64 / f64::from(1 << 20)),
            format!("{:.1}", row.requests_per_second),
            seconds(row.healthy_after),
            milliseconds(row.calm),
            milliseconds(row.meanwhile),
            row.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            format!("{}/{}", row.unready, row.asked),
            row.reported.clone().unwrap_or_else(|| "-".to_owned()),
            seconds(row.recovered_after),
        ]
    };
    Table { heading: heading.map(str::to_owned).to_vec(), rows: rows.iter().map(cells).collect() }
}

impl Row {
    /// How much longer changes of the healthy cluster took, p99 to p99.
    fn ratio(&self) -> Option<f64> {
        let (calm, meanwhile) = self.calm.zip(self.meanwhile)?;
        Some(meanwhile.p99.as_secs_f64() / calm.p99.as_secs_f64())
    }

    /// How the changes of the healthy cluster take too long, if enough was measured before.
    fn slower(&self) -> Option<String> {
        let calm = self.calm.filter(|calm| calm.changes >= MIN_CHANGES)?;
        let Some(meanwhile) = self.meanwhile.filter(|spread| spread.changes >= MIN_MEANWHILE)
        else {
            return Some("hardly a change of the healthy cluster is reconciled".to_owned());
        };
        let (p99, ratio) = (meanwhile.p99, self.ratio()?);
        let is_slower = ratio > MAX_RATIO && p99 > calm.p99 + MIN_DIFFERENCE;
        is_slower.then(|| {
            format!(
                "the healthy cluster's changes take {p99:?}, {ratio:.2} times as long as before"
            )
        })
    }

    /// What is wrong with it, each with its mode.
    pub fn faults(&self, max_growth_bytes: u64) -> Vec<String> {
        let mut faults = Vec::new();
        let mut wrong = |what: &dyn fmt::Display| faults.push(format!("{}: {what}", self.mode));
        if self.growth_bytes > max_growth_bytes {
            wrong(&format_args!("memory grows by {} bytes", self.growth_bytes));
        }
        if self.healthy_after.is_none() {
            wrong(&"the healthy cluster does not converge");
        }
        if let Some(slower) = self.slower() {
            wrong(&slower);
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
