//! The peers, and the lines that they write. Pure.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::harness::tools::Tools;

/// The frameworks on which the same small controller is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// Ours.
    Leasehold,
    /// The framework in Go.
    ControllerRuntime,
    /// The other framework in Rust.
    KubeRs,
    /// None: a loop that sends the patches, over an HTTP/1.1 connection for each concurrent
    /// request.
    Bare,
    /// The same loop over a single HTTP/2 connection, as ours has: the least that ours can cost.
    Shared,
}

impl Peer {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 5] =
        [Self::Leasehold, Self::ControllerRuntime, Self::KubeRs, Self::Bare, Self::Shared];
    /// Those that watch.
    pub const CONTROLLERS: [Self; 3] = [Self::Leasehold, Self::ControllerRuntime, Self::KubeRs];

    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Leasehold => "leasehold",
            Self::ControllerRuntime => "controller-runtime",
            Self::KubeRs => "kube-rs",
            Self::Bare => "bare loop",
            Self::Shared => "bare loop over h2",
        }
    }

    /// Whether it watches nothing.
    pub fn is_bare(self) -> bool {
        matches!(self, Self::Bare | Self::Shared)
    }

    /// Its program.
    pub fn program(self, tools: &Tools) -> PathBuf {
        match self {
            Self::Leasehold | Self::Shared => tools.peer_leasehold(),
            Self::ControllerRuntime => tools.peer_controller_runtime(),
            Self::KubeRs | Self::Bare => tools.peer_kube_rs(),
        }
    }
}

/// A line that a peer writes.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Line {
    /// It has started.
    Ready,
    /// Every object was reconciled.
    Done {
        /// The trigger.
        trigger: u64,
        /// The time from the trigger's event to the end of the last reconcile.
        seconds: f64,
    },
    /// A reconcile began.
    Started {
        /// `spec.touched` of its object.
        value: u64,
        /// When it began, by the wall clock.
        unix_nanos: i64,
    },
    /// How many objects are cached.
    Counted {
        /// All kinds together.
        objects: usize,
    },
    /// How large the heap is.
    Heap {
        /// By the allocator's count.
        bytes: u64,
        /// By the cache's own count, if it has one.
        cache_bytes: Option<u64>,
    },
    /// How fast a queue is.
    Queue {
        /// Keys added, taken and finished a second.
        per_second: f64,
        /// The same of a queue without priorities, if the peer has one too.
        plain_per_second: Option<f64>,
    },
}

/// Parses one line.
pub fn parse(line: &str) -> Result<Line> {
    serde_json::from_str(line).with_context(|| format!("a peer wrote {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_every_kind_are_parsed() {
        for (text, expect) in [
            (r#"{"event":"ready"}"#, Line::Ready),
            (
                r#"{"event":"done","trigger":2,"count":3,"seconds":0.5}"#,
                Line::Done { trigger: 2, seconds: 0.5 },
            ),
            (
                r#"{"event":"started","value":1,"unix_nanos":1795000000000000001}"#,
                Line::Started { value: 1, unix_nanos: 1_795_000_000_000_000_001 },
            ),
            (r#"{"event":"counted","objects":4}"#, Line::Counted { objects: 4 }),
            (r#"{"event":"heap","bytes":5}"#, Line::Heap { bytes: 5, cache_bytes: None }),
            (
                r#"{"event":"heap","bytes":5,"cache_bytes":4}"#,
                Line::Heap { bytes: 5, cache_bytes: Some(4) },
            ),
            (
                r#"{"event":"queue","keys":9,"per_second":7.5}"#,
                Line::Queue { per_second: 7.5, plain_per_second: None },
            ),
        ] {
            assert_eq!(parse(text).unwrap(), expect, "{text}");
        }
    }

    #[test]
    fn an_unknown_line_is_quoted_in_the_error() {
        for text in ["", "panic", r#"{"event":"dune"}"#, r#"{"event":"done"}"#] {
            assert!(parse(text).unwrap_err().to_string().contains(&format!("{text:?}")), "{text}");
        }
    }
}
