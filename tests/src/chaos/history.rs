//! What a run leaves behind, as plain values: the input of [`super::oracle`] and [`super::gap`].
//!
//! All times are those of this machine's wall clock. The API servers write it into their audit
//! logs, and the times of journals are converted when they are read.

use std::time::Duration;

use jiff::Timestamp;

use super::journal::Dispatch;
use crate::harness::audit::Renewal;
use crate::harness::manager::is_incarnation;
use crate::harness::ownership::Ownership;

/// When the process of a replica ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// The replica's identity, with which the names of its members begin.
    pub identity: String,
    /// When it was stopped, from SIGSTOP to SIGCONT.
    pub pauses: Vec<(Timestamp, Timestamp)>,
    /// When it had certainly ended.
    pub ended: Timestamp,
}

/// The time of one round of one fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The fault's name.
    pub fault: &'static str,
    /// Just before the fault.
    pub from: Timestamp,
    /// When the fleet had recovered.
    pub until: Timestamp,
}

/// All evidence of a run.
#[derive(Debug, Default)]
pub struct Evidence {
    /// The ShardMaps, as the home cluster committed them.
    pub ownership: Ownership,
    /// The renewals of the members' Leases, as the home cluster received them.
    pub renewals: Vec<Renewal>,
    /// What the members dispatched, according to their journals.
    pub dispatches: Vec<Dispatch>,
    /// Writes in workload clusters that broke a rule: when, and which.
    pub bad_writes: Vec<(Timestamp, String)>,
    /// How many attributed writes were compared with the ShardMaps.
    pub writes: usize,
    /// The processes.
    pub lives: Vec<Life>,
}

/// The Lease settings of the members.
#[derive(Clone, Copy, Debug)]
pub struct Timings {
    /// How long a Lease lasts.
    pub duration: Duration,
    /// How much earlier a member stops on its own.
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

impl Window {
    /// Whether a moment lies in it.
    pub fn contains(&self, at: Timestamp) -> bool {
        self.from <= at && at <= self.until
    }
}

impl Evidence {
    /// The process of a member.
    pub fn life(&self, member: &str) -> Option<&Life> {
        self.lives.iter().find(|life| is_incarnation(&life.identity, member))
    }
}
