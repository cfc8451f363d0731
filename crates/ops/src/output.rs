//! The forms of answers, and of times in them.

use std::io::Write;
use std::time::Duration;

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

/// What a command goes on with that prints each change.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    /// Whether the last read failed.
    fails: bool,
}

impl Watching {
    /// What was read; `None` if that failed, which is said once, until it succeeds again.
    pub(crate) fn read<T>(&mut self, read: anyhow::Result<T>) -> Option<T> {
        match read {
            Ok(read) => {
                self.fails = false;
                Some(read)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.fails, true) {
                    eprintln!("leasehold: {}; it is tried again", model::error::chain(&*error));
                }
                None
            }
        }
    }

    /// Waits a while; false if nobody reads any more what is printed.
    pub(crate) async fn goes_on(&self, wait: Duration) -> bool {
        tokio::time::sleep(wait).await;
        !is_reader_gone(&std::io::stdout())
    }
}

/// Whether a pipe has no reader any more. One that is written to seldom would tell by an error much later.
#[cfg(unix)]
fn is_reader_gone(out: &impl std::os::fd::AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let mut polled = [PollFd::new(out, PollFlags::empty())];
    let asked = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    asked.is_ok() && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

#[cfg(not(unix))]
fn is_reader_gone<T>(_: &T) -> bool {
    false
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
