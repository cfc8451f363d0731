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

use anyhow::{Context, Result, ensure};
use clap::Parser;

pub use self::mode::{Expected, Mode};
pub use self::pulse::Spread;
pub use self::replica::{ReplicaArgs, run_replica};
pub use self::server::Hostile;
pub use self::stage::{Plan, Row, perform, weigh};
use crate::harness::quantiles::median;
use crate::harness::table::{Format, Table};

/// The most that resident memory may grow through one hostile cluster, in bytes.
pub const MAX_GROWTH_BYTES: u64 = 64 << 20;
/// What caches may keep of each cluster, in bytes. What reconciles decode comes on top; all clusters together have 64
/// MiB for that.
const MAX_CACHE_BYTES: usize = 16 << 20;

/// How many times as long the changes of the healthy cluster may take beside a hostile one, p99 to p99.
const MAX_RATIO: f64 = 1.2;
/// With fewer changes before, nothing is said about how long they take meanwhile.
const MIN_CHANGES: usize = 500;
/// About so many are reconciled in a second. Calm lasts about as long as what follows: in a longer window there is more of
/// what comes seldom.
const CHANGES_PER_SECOND: usize = 35;
/// So many must be reconciled meanwhile: less than a tenth of those of a healthy cluster.
const MIN_MEANWHILE: usize = 100;

/// Runs a replica beside a cluster that misbehaves, one way after the other, and prints what came of it. Where the
/// healthy cluster's changes take too long, the way is taken again with a new replica: one p99 is made by a handful of
/// changes, and the machine's other work may have made those. The medians of all rounds count.
#[derive(Debug, Parser)]
pub struct HostileArgs {
    /// Only these ways. With `behaves`, nothing is wrong: its ratio is the noise of the others'.
    #[arg(long = "mode", value_enum)]
    modes: Vec<Mode>,
    /// How long each is watched, in seconds.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// How often each is taken at least.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    min_rounds: u8,
    /// How often each is taken at most.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..))]
    max_rounds: u8,
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
        changes: MIN_CHANGES.max(usize::try_from(args.seconds)? * CHANGES_PER_SECOND),
        max_cache_bytes: MAX_CACHE_BYTES,
    };
    let mut rows = Vec::new();
    for (number, mode) in modes.iter().enumerate() {
        let take = |round: u8| {
            eprintln!("{mode} ({} of {}), round {round}", number + 1, modes.len());
            let row = runtime.block_on(perform(&[*mode], &plan))?.pop();
            row.context("a run of one mode has a row")
        };
        let mut row = take(1)?;
        for round in 2..=args.max_rounds.max(args.min_rounds) {
            if round > args.min_rounds && row.slower().is_none() {
                break;
            }
            row = row.and(take(round)?);
        }
        rows.push(row);
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
        "rounds",
        "unready",
        "reported",
        "recovery",
    ];
    let cells = |row: &Row| {
        let seconds = |time: Option<Duration>| {
            time.map_or_else(|| "never".to_owned(), |time| format!("{:.1} s", time.as_secs_f64()))
        };
        let milliseconds =
            |p99: Option<f64>| p99.map_or_else(|| "-".to_owned(), |p99| format!("{p99:.1} ms"));
        let [calm, meanwhile] = row.p99s();
        vec![
            row.mode.to_string(),
            format!("+{:.1} MiB", row.growth_bytes as f64 / f64::from(1 << 20)),
            format!("{:.1}", row.requests_per_second),
            seconds(row.healthy_after),
            milliseconds(calm),
            milliseconds(meanwhile),
            row.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            row.rounds.len().to_string(),
            format!("{}/{}", row.unready, row.asked),
            row.reported.clone().unwrap_or_else(|| "-".to_owned()),
            seconds(row.recovered_after),
        ]
    };
    Table { heading: heading.map(str::to_owned).to_vec(), rows: rows.iter().map(cells).collect() }
}

impl Row {
    /// This and one more round of the same mode: the worst of both, and all that changes took.
    fn and(mut self, other: Self) -> Self {
        self.rounds.extend(other.rounds);
        Self {
            mode: self.mode,
            growth_bytes: self.growth_bytes.max(other.growth_bytes),
            requests_per_second: self.requests_per_second.max(other.requests_per_second),
            healthy_after: self.healthy_after.zip(other.healthy_after).map(|(a, b)| a.max(b)),
            rounds: self.rounds,
            unready: self.unready + other.unready,
            asked: self.asked + other.asked,
            // Each must be right: the first that is wrong shows.
            reported: match self.mode.misses(self.reported.as_deref()) {
                Some(_) => self.reported,
                None => other.reported,
            },
            recovered_after: self.recovered_after.zip(other.recovered_after).map(|(a, b)| a.max(b)),
        }
    }

    /// What the changes of the healthy cluster took while all clusters behaved, and meanwhile: the median of the p99 of
    /// each round, in milliseconds.
    fn p99s(&self) -> [Option<f64>; 2] {
        [0, 1].map(|when| {
            let of = |round: &[Option<Spread>; 2]| Some(round[when]?.p99.as_secs_f64() * 1e3);
            median(&self.rounds.iter().filter_map(of).collect::<Vec<_>>())
        })
    }

    /// How much longer they took.
    fn ratio(&self) -> Option<f64> {
        let [calm, meanwhile] = self.p99s();
        Some(meanwhile? / calm?)
    }

    /// How the changes of the healthy cluster take too long, if enough was measured before.
    fn slower(&self) -> Option<String> {
        let changes = |when: usize| {
            self.rounds.iter().map(move |round| round[when].map_or(0, |spread| spread.changes))
        };
        if changes(0).any(|changes| changes < MIN_CHANGES) {
            return None;
        }
        if changes(1).any(|changes| changes < MIN_MEANWHILE) {
            return Some("hardly a change of the healthy cluster is reconciled".to_owned());
        }
        let [_, p99] = self.p99s();
        let (ratio, p99) = (self.ratio()?, p99?);
        (ratio > MAX_RATIO).then(|| {
            format!(
                "the healthy cluster's changes take {p99:.1} ms, {ratio:.2} times as long as before"
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
        if let Some(missed) = self.mode.misses(self.reported.as_deref()) {
            wrong(&missed);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(p99s: &[[u64; 2]], unready: usize) -> Row {
        let spread = |p99| Some(Spread { changes: MIN_CHANGES, p99: Duration::from_millis(p99) });
        let one = |[calm, meanwhile]: &[u64; 2]| Row {
            mode: Mode::WatchGone,
            growth_bytes: *meanwhile,
            requests_per_second: 1.0,
            healthy_after: Some(Duration::from_millis(*meanwhile)),
            rounds: vec![[spread(*calm), spread(*meanwhile)]],
            unready,
            asked: 10,
            reported: None,
            recovered_after: Some(Duration::ZERO),
        };
        p99s.iter().map(one).reduce(Row::and).expect("a round")
    }

    #[test]
    fn the_medians_of_rounds_are_compared() {
        for (p99s, expect) in [
            (&[[10, 20]][..], [10.0, 20.0]),
            (&[[10, 20], [10, 10]], [10.0, 15.0]),
            (&[[10, 90], [10, 11], [90, 10]], [10.0, 11.0]),
        ] {
            assert_eq!(row(p99s, 0).p99s(), expect.map(Some), "{p99s:?}");
        }
        assert!(row(&[[10, 20], [10, 20], [90, 10]], 0).slower().is_some());
        assert!(row(&[[10, 90], [10, 11], [90, 10]], 0).slower().is_none());
    }

    #[test]
    fn the_worst_round_is_seen() {
        let row = row(&[[10, 10], [10, 30], [10, 10]], 1);
        assert_eq!((row.growth_bytes, row.unready, row.asked), (30, 3, 30));
        assert_eq!(row.healthy_after, Some(Duration::from_millis(30)));
        let never = Row { healthy_after: None, recovered_after: None, ..row.clone() };
        let faults = row.and(never).faults(29).join("; ");
        for part in ["memory", "does not converge", "unready 6 times of 60", "not served"] {
            assert!(faults.contains(part), "{faults}");
        }
    }
}
