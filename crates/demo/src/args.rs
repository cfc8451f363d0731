//! The demo's command line, and the timeline that follows from it.

use std::path::PathBuf;
use std::time::Duration;

use clap::value_parser;

use crate::examples::{EXAMPLES, Example};

/// A killed replica's shards are taken over 8.5 s after its last renewal; this leaves time to see it.
pub(crate) const SHORTEST_GAP: Duration = Duration::from_secs(12);

/// With `--kill` and no `--for`: when the replica is killed, and how long it stays away.
const KILL_AFTER: Duration = Duration::from_secs(20);

/// Changes stop this long before the end, so that the last of them can converge.
const QUIET: Duration = Duration::from_secs(5);

/// The shortest `--for`: long enough for the fleet to form.
const SHORTEST_RUN: Duration = Duration::from_secs(10);

/// Start a fleet on this machine and watch replicas share the work of several clusters.
///
/// Everything runs here: an API server for the home cluster and each workload cluster, and the
/// replicas as child processes. Nothing else is needed, and nothing is left behind. End a replica
/// yourself if you like: it is started again.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Where kubeconfigs, configuration, logs and journals go.
    #[arg(long, value_name = "DIR", default_value = ".leasehold/demo")]
    pub dir: PathBuf,
    /// Workload clusters.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u16).range(1..=40))]
    pub clusters: u16,
    /// Replicas of the manager.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u16).range(1..=20))]
    pub replicas: u16,
    /// Objects in all: TDSets and ConfigMonitors, the two examples among them.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = value_parser!(u32).range(2..=50_000))]
    pub objects: u32,
    /// Changes made to them per second while the demo runs.
    #[arg(long, value_name = "RATE", default_value_t = 10, value_parser = value_parser!(u32).range(0..=500))]
    pub changes: u32,
    /// End by itself after this long, with a summary: 40s, 2m.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub limit: Option<Duration>,
    /// Kill one replica midway (SIGKILL) and restart it later.
    #[arg(long)]
    pub kill: bool,
    /// First port: the home cluster's, then one for each workload cluster; the replicas' metrics
    /// and probes begin 100 above. 0 takes any free ports.
    #[arg(long, value_name = "PORT", default_value_t = 7400, value_parser = value_parser!(u16).range(..=65_000))]
    pub port: u16,
    /// Which examples run: `core` are those of TDSet and ConfigMonitor; `all` adds those of the other
    /// built-in controllers, in the first cluster.
    #[arg(long, value_enum, default_value_t = Examples::Core)]
    pub examples: Examples,
    /// Seed of the generated objects and changes.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Which built-in controllers show their examples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Examples {
    /// TDSet and ConfigMonitor.
    Core,
    /// Those of every controller.
    All,
}

impl Examples {
    /// Those beside TDSet's and ConfigMonitor's, of the controllers that this program has.
    pub(crate) fn further(self) -> Vec<Example> {
        let has = |example: &&Example| controllers::get(example.controller).is_some();
        match self {
            Self::Core => Vec::new(),
            Self::All => EXAMPLES.iter().filter(has).copied().collect(),
        }
    }
}

/// The times of events, counted from the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// When a replica is killed.
    pub kill: Option<Duration>,
    /// When it is started again.
    pub restart: Option<Duration>,
    /// When no more changes are made.
    pub quiet: Option<Duration>,
    /// When the demo ends by itself.
    pub end: Option<Duration>,
}

/// Arguments that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// No replica could take over.
    #[error("--kill with --replicas {0}: no other replica could take over; use at least 2")]
    NobodyLeft(u16),
    /// The takeover would not be over in time.
    #[error(
        "--kill with --for {given:?}: a dead replica's shards are taken over after about 9 s, and it is restarted after that; use at least {least:?}"
    )]
    TooShortToKill {
        /// What was asked for.
        given: Duration,
        /// What is needed.
        least: Duration,
    },
    /// The fleet would not even form.
    #[error("--for {given:?} is too short to see anything; use at least {SHORTEST_RUN:?}")]
    TooShort {
        /// What was asked for.
        given: Duration,
    },
}

impl Args {
    /// The timeline.
    ///
    /// # Errors
    /// Arguments that contradict each other, with what to use instead.
    pub fn timeline(&self) -> Result<Timeline, Contradiction> {
        if self.kill && self.replicas < 2 {
            return Err(Contradiction::NobodyLeft(self.replicas));
        }
        let Some(limit) = self.limit else {
            let kill = self.kill.then_some(KILL_AFTER);
            let restart = kill.map(|at| at + KILL_AFTER);
            return Ok(Timeline { kill, restart, ..Timeline::default() });
        };
        if limit < SHORTEST_RUN {
            return Err(Contradiction::TooShort { given: limit });
        }
        // The replica is away for the middle third.
        let away = limit / 3;
        if self.kill && away < SHORTEST_GAP {
            return Err(Contradiction::TooShortToKill { given: limit, least: SHORTEST_GAP * 3 });
        }
        let kill = self.kill.then_some(away);
        Ok(Timeline {
            kill,
            restart: kill.map(|at| at + away),
            quiet: Some(limit - QUIET),
            end: Some(limit),
        })
    }
}

/// Reads `40s`, `2m`, `1m30s`.
fn duration(text: &str) -> Result<Duration, String> {
    let parsed: jiff::SignedDuration =
        text.parse().map_err(|_| "write it like 40s, 2m or 1m30s".to_owned())?;
    Duration::try_from(parsed).map_err(|_| "it must not be negative".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Args, String> {
        Command::try_parse_from(format!("demo {line}").split_whitespace())
            .map(|command| command.args)
            .map_err(|error| error.to_string())
    }

    fn timeline(line: &str) -> String {
        let seconds = |at: Option<Duration>| at.map_or("-".to_owned(), |at| format!("{at:.1?}"));
        match parse(line).unwrap().timeline() {
            Ok(Timeline { kill, restart, quiet, end }) => {
                [kill, restart, quiet, end].map(seconds).join(" ")
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_happens_when() {
        for (line, expect) in [
            ("", "- - - -"),
            ("--kill", "20.0s 40.0s - -"),
            ("--for 40s", "- - 35.0s 40.0s"),
            ("--for 42s --kill", "14.0s 28.0s 37.0s 42.0s"),
            ("--for 1m30s --kill", "30.0s 60.0s 85.0s 90.0s"),
            ("--for 3s", "--for 3s is too short to see anything; use at least 10s"),
            (
                "--for 20s --kill",
                "--kill with --for 20s: a dead replica's shards are taken over after about 9 s, and it is restarted after that; use at least 36s",
            ),
            (
                "--kill --replicas 1",
                "--kill with --replicas 1: no other replica could take over; use at least 2",
            ),
        ] {
            assert_eq!(timeline(line), expect, "{line}");
        }
    }

    #[test]
    fn a_wrong_argument_says_how_to_write_it() {
        for (line, expect) in [
            ("--for fast", "write it like 40s, 2m or 1m30s"),
            ("--for=-4s", "it must not be negative"),
            ("--clusters 0", "0 is not in 1..=40"),
            ("--objects 1", "1 is not in 2..=50000"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(expect), "{line}: {error}");
        }
    }
}
