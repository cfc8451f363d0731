//! What is said to the harness and heard from it.

use std::io::Write as _;
use std::str::FromStr;

use serde::Serialize;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin, stdin};

/// A line to the harness.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Line {
    /// The process has begun.
    Ready,
    /// Every object was reconciled for a trigger.
    Done {
        /// Which.
        trigger: u64,
        /// How many objects.
        count: usize,
        /// From the event of the trigger to the end of the last reconcile.
        seconds: f64,
    },
    /// A reconcile began.
    Started {
        /// `spec.touched` of its object.
        value: u64,
        /// When, by the wall clock.
        unix_nanos: i64,
    },
    /// How many objects are cached.
    Counted {
        /// All kinds together.
        objects: usize,
    },
    /// What the heap holds.
    Heap {
        /// By the allocator, after garbage was collected.
        bytes: usize,
        /// By the cache's own count, if it has one.
        cache_bytes: Option<usize>,
    },
}

/// A line from the harness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Say how many objects are cached.
    Count,
    /// Say what the heap holds.
    Heap,
    /// Send the patches of this trigger.
    Trigger(u64),
}

/// Says a line at once.
pub fn say(line: Line) {
    let text = serde_json::to_string(&line).expect("a line has no keys but strings");
    // When the harness is gone, the end of standard input tells.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// What is heard.
#[derive(Debug)]
pub struct Requests(Lines<BufReader<Stdin>>);

impl Requests {
    /// Says that the process has begun, and listens.
    pub fn listen() -> Self {
        say(Line::Ready);
        Self(BufReader::new(stdin()).lines())
    }

    /// The next one; `None` when it is time to end.
    ///
    /// # Errors
    /// If it is none that is known.
    pub async fn next(&mut self) -> anyhow::Result<Option<Request>> {
        self.0.next_line().await?.as_deref().map(str::parse).transpose()
    }
}

impl FromStr for Request {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("count", "") => Ok(Self::Count),
            ("heap", "") => Ok(Self::Heap),
            ("trigger", number) => Ok(Self::Trigger(number.parse()?)),
            _ => anyhow::bail!("the harness said {line:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read() {
        for (line, expect) in [
            ("count", Some(Request::Count)),
            ("heap", Some(Request::Heap)),
            ("trigger 7", Some(Request::Trigger(7))),
            ("trigger", None),
            ("count 1", None),
            ("", None),
        ] {
            assert_eq!(line.parse::<Request>().ok(), expect, "{line}");
        }
    }

    #[test]
    fn lines_carry_the_names_that_the_harness_reads() {
        for (line, expect) in [
            (Line::Ready, r#"{"event":"ready"}"#),
            (
                Line::Done { trigger: 2, count: 3, seconds: 0.5 },
                r#"{"event":"done","trigger":2,"count":3,"seconds":0.5}"#,
            ),
            (
                Line::Started { value: 1, unix_nanos: 9 },
                r#"{"event":"started","value":1,"unix_nanos":9}"#,
            ),
            (Line::Counted { objects: 4 }, r#"{"event":"counted","objects":4}"#),
            (
                Line::Heap { bytes: 5, cache_bytes: None },
                r#"{"event":"heap","bytes":5,"cache_bytes":null}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&line).unwrap(), expect);
        }
    }
}
