//! The forms of answers, and of times in them.

use clap::ValueEnum;
use jiff::Timestamp;

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// How long ago, as far as two machines' clocks agree.
pub(super) fn ago(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs_f64().max(0.0);
    match seconds {
        s if s < 100.0 => format!("{s:.1}s ago"),
        s if s < 6000.0 => format!("{:.0}m ago", s / 60.0),
        s => format!("{:.0}h ago", s / 3600.0),
    }
}
