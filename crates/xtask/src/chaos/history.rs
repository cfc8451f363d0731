//! What a run leaves behind, as plain values: the input of [`super::oracle`] and [`super::gap`].
//!
//! All times are the wall clock's of this machine, on which every process runs: the API servers'
//! audit logs are dated by it, and journals are moved onto it when they are read.

use std::time::Duration;

use jiff::Timestamp;

use super::journal::Dispatch;
use crate::real::audit::{Ownership, Renewal};

/// One process of a replica, from the outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// What it is called; the names of its members begin with it.
    pub identity: String,
    /// When it stood still, from SIGSTOP to SIGCONT.
    pub pauses: Vec<(Timestamp, Timestamp)>,
    /// When it had certainly ended.
    pub ended: Timestamp,
}

/// The time of one round of one fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The fault's name.
    pub fault: &'static str,
    /// Just before it.
    pub from: Timestamp,
    /// When everything was well again.
    pub until: Timestamp,
}

/// All evidence of a run.
#[derive(Debug, Default)]
pub struct History {
    /// The ShardMaps, as the home cluster committed them.
    pub ownership: Ownership,
    /// The members' signs of life, as the home cluster received them.
    pub renewals: Vec<Renewal>,
    /// The members' own word on what they did.
    pub dispatches: Vec<Dispatch>,
    /// Writes in workload clusters that broke a rule: when, and what is wrong.
    pub bad_writes: Vec<(Timestamp, String)>,
    /// Attributed writes that were held against the ShardMaps.
    pub writes: usize,
    /// The processes.
    pub lives: Vec<Life>,
}

/// The Lease settings of the members.
#[derive(Clone, Copy, Debug)]
pub struct Timings {
    /// How long a Lease lasts.
    pub duration: Duration,
    /// How much earlier a member stops by itself.
    pub margin: Duration,
}

impl Timings {
    /// The defaults of `leasehold run`.
    pub const DEFAULT: Self =
        Self { duration: Duration::from_secs(8), margin: Duration::from_millis(500) };

    /// How long after the sending of a renewal a member may act.
    pub fn validity(&self) -> Duration {
        self.duration.saturating_sub(self.margin)
    }
}

impl Life {
    /// Whether `member` is one of its incarnations: the identity and a random suffix.
    pub fn is(&self, member: &str) -> bool {
        let suffix = member.strip_prefix(&self.identity).and_then(|rest| rest.strip_prefix('-'));
        suffix.is_some_and(|suffix| !suffix.contains('-'))
    }
}

impl Window {
    /// Whether a moment belongs to it.
    pub fn contains(&self, at: Timestamp) -> bool {
        self.from <= at && at <= self.until
    }
}

impl History {
    /// The process of a member.
    pub fn life(&self, member: &str) -> Option<&Life> {
        self.lives.iter().find(|life| life.is(member))
    }
}
