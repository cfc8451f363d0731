//! The protocol with the harness, as lines.

use std::io::Write as _;
use std::str::FromStr;

use serde::Serialize;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin, stdin};

/// A line to the harness.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Line {
    /// The process has started.
    Ready,
    /// Every object was reconciled for a trigger.
    Done {
        /// The trigger.
        trigger: u64,
        /// How many objects there are.
        count: usize,
        /// The time from the trigger's event to the end of the last reconcile.
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
    /// How large the heap is.
    Heap {
        /// By the allocator's count, after a garbage collection.
        bytes: usize,
        /// By the cache's own count, if it has one.
        cache_bytes: Option<usize>,
    },
    /// How fast a queue is.
    Queue {
        /// How many keys passed through it.
        keys: usize,
        /// Keys added, taken and finished a second.
        per_second: f64,
    },
}

/// A line from the harness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Report how many objects are cached.
    Count,
    /// Report how large the heap is.
    Heap,
    /// Send the patches of this trigger.
    Trigger(u64),
}

/// Writes a line at once.
pub fn say(line: Line) {
    let text = serde_json::to_string(&line).expect("a line has no keys but strings");
    // If the harness is gone, standard input ends too, and we with it.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// The requests of the harness.
#[derive(Debug)]
pub struct Requests(Lines<BufReader<Stdin>>);

impl Requests {
    /// Reports that the process has started, and reads requests.
    pub fn listen() -> Self {
        say(Line::Ready);
        Self(BufReader::new(stdin()).lines())
    }

    /// The next request; `None` when it is time to end.
    ///
    /// # Errors
    /// If it is not known.
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
            _ => anyhow::bail!("unknown request {line:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_parsed() {
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
    fn lines_have_the_names_that_the_harness_reads() {
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
            (
                Line::Queue { keys: 6, per_second: 7.5 },
                r#"{"event":"queue","keys":6,"per_second":7.5}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&line).unwrap(), expect);
        }
    }
}
