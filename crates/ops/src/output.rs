//! The forms of answers, and of times in them.

use std::io::Write;

use clap::ValueEnum;
use jiff::Timestamp;
use serde::Serialize;

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For people, with more columns where there are more.
    Wide,
    /// For programs.
    Json,
    /// For programs and people.
    Yaml,
}

impl Output {
    /// Prints `value` in this form; `table` makes the text for people.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn print(
        self,
        value: &impl Serialize,
        table: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        let text = match self {
            Self::Table | Self::Wide => table(),
            Self::Json => serde_json::to_string_pretty(value)? + "\n",
            Self::Yaml => serde_saphyr::to_string(&serde_json::to_value(value)?)?,
        };
        print(&text)
    }
}

/// Prints text. That a reader has seen enough, as `head` has, is no error.
///
/// # Errors
/// If it cannot be written for another reason.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// How long ago, as far as two machines' clocks agree.
pub(crate) fn ago(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs_f64().max(0.0);
    match seconds {
        s if s < 100.0 => format!("{s:.1}s ago"),
        s if s < 6000.0 => format!("{:.0}m ago", s / 60.0),
        s => format!("{:.0}h ago", s / 3600.0),
    }
}
