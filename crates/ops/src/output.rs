//! The forms of answers, and of times in them.

use std::fmt::Display;
use std::io::Write;
use std::time::Duration;

use clap::ValueEnum;
use clock::SystemClock;
use jiff::Timestamp;
use model::Clock;
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
        print(&self.text(value, table)?)
    }

    /// The same, as one of several answers that follow each other.
    pub(crate) fn print_next(
        self,
        value: &impl Serialize,
        table: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        print(&self.next(value, table)?)
    }

    fn text(
        self,
        value: &impl Serialize,
        table: impl FnOnce() -> String,
    ) -> anyhow::Result<String> {
        Ok(match self {
            Self::Table | Self::Wide => table(),
            Self::Json => serde_json::to_string_pretty(value)? + "\n",
            Self::Yaml => serde_saphyr::to_string(&serde_json::to_value(value)?)?,
        })
    }

    /// In YAML, a line begins each document.
    fn next(
        self,
        value: &impl Serialize,
        table: impl FnOnce() -> String,
    ) -> anyhow::Result<String> {
        let text = self.text(value, table)?;
        Ok(if self == Self::Yaml { format!("---\n{text}") } else { text })
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

/// How a verb that writes does it, and how it tells of that.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct WriteForm {
    /// Have the API server judge what would be written, and write nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The form of the answer: words, or what the API server answers.
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
}

impl WriteForm {
    /// Tells what was done: in words, or by what the API server answered.
    pub(crate) fn print(self, answered: &impl Serialize, words: &str) -> anyhow::Result<()> {
        let note = if self.dry_run { " (dry run: nothing is written)" } else { "" };
        self.output.print_next(answered, || format!("{words}{note}\n"))
    }

    /// Tells how it goes on: beside an answer for programs, not in it.
    pub(crate) fn progress(self, words: &str) -> anyhow::Result<()> {
        if matches!(self.output, Output::Table | Output::Wide) {
            return print(&format!("{words}\n"));
        }
        warn(words);
        Ok(())
    }
}

/// Tells of something beside the answer, on standard error. That nobody can read it there does not end the command.
pub fn warn(line: impl Display) {
    warn_to(&mut std::io::stderr(), line);
}

fn warn_to(out: &mut impl Write, line: impl Display) {
    let _ = writeln!(out, "leasehold: {line}");
}

/// How often a rest looks whether somebody still reads.
const LOOK_FOR_READER: Duration = Duration::from_millis(500);
/// After a look that took some time, the next begins after so many times that time.
const SHARE: u32 = 5;
/// The longest such rest.
const MAX_REST: Duration = Duration::from_secs(30);

/// Looks again and again, and rests in proportion to what a look took: a large fleet costs home much.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// How long the last look took.
    took: Duration,
}

impl Pace {
    /// What comes of a look.
    pub async fn look<T>(&mut self, look: impl Future<Output = T>) -> T {
        let began = SystemClock.now();
        let seen = look.await;
        self.took = began.until(SystemClock.now());
        seen
    }

    /// How long nobody looks now: at least `least`.
    pub fn rest(self, least: Duration) -> Duration {
        least.max((self.took * SHARE).min(MAX_REST))
    }
}

/// What a command goes on with that prints each change.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    /// Whether the last look failed.
    fails: bool,
    pace: Pace,
}

impl Watching {
    /// What was read; `None` if that failed, which is said once, until it succeeds again.
    pub(crate) async fn look<T>(
        &mut self,
        look: impl Future<Output = anyhow::Result<T>>,
    ) -> Option<T> {
        match self.pace.look(look).await {
            Ok(read) => {
                self.fails = false;
                Some(read)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.fails, true) {
                    warn(format_args!("{}; it is tried again", model::error::chain(&*error)));
                }
                None
            }
        }
    }

    /// Waits a while, after a long look longer; false if nobody reads any more what is printed.
    pub(crate) async fn goes_on(&self, least: Duration) -> bool {
        let reader_leaves = async {
            while !is_reader_gone(&std::io::stdout()) {
                tokio::time::sleep(LOOK_FOR_READER).await;
            }
        };
        let rested = tokio::time::timeout(self.pace.rest(least), reader_leaves).await.is_err();
        rested && !is_reader_gone(&std::io::stdout())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_follow_each_other_are_documents_of_one_stream() {
        let one = |output: Output| output.text(&[1], || "one\n".to_owned()).unwrap();
        let next = |output: Output| output.next(&[1], || "one\n".to_owned()).unwrap();
        assert_eq!(next(Output::Yaml), format!("---\n{}", one(Output::Yaml)));
        for output in [Output::Json, Output::Table, Output::Wide] {
            assert_eq!(next(output), one(output));
        }
    }

    #[test]
    fn a_warning_that_cannot_be_written_ends_nothing() {
        let mut text = Vec::new();
        warn_to(&mut text, "a part is left out");
        assert_eq!(text, b"leasehold: a part is left out\n");
        // As a full disk: it takes nothing.
        let mut full: &mut [u8] = &mut [];
        warn_to(&mut full, "a part is left out");
    }

    #[test]
    fn whoever_takes_long_to_look_rests_longer() {
        let ms = Duration::from_millis;
        let rest = |took| Pace { took }.rest(ms(500));
        assert_eq!(rest(ms(20)), ms(500));
        assert_eq!(rest(ms(2000)), ms(10_000));
        assert_eq!(rest(ms(60_000)), MAX_REST);
    }
}
