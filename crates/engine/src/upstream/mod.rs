//! Upstream protection: what keeps one cluster from being asked too much, and one that does not
//! answer from costing anything but its own progress.
//!
//! ```text
//!   informers ──▶ line ─┐ turns           breaker ─┐
//!                       ├──────▶ gate ◀── budget ──┼─ guard ◀── verdict ◀── how requests end
//!   reconciles ─▶ line ─┘         │       limit  ──┘
//!                                 ▼
//!                             transport ─▶ API server
//! ```
//!
//! - `budget`: requests a second. `limit`: requests at once, adapting. `breaker`: none, while a
//!   cluster fails. `guard` is all three in one. Pure, like `line`, who is next, and `verdict`, what
//!   an answer says.
//! - `gate` is the shell around them, one for each cluster. Requests pass it in `transport`; the
//!   writes of a reconcile pass it in `fence`, which asks for leave only when their turn has come.
//!
//! A watch counts until the head of its answer has come. Nothing is retried below the controllers
//! and the list-and-watch machine: a refused or failed request is its sender's to repeat. A
//! reconcile that meets an open breaker fails at once and its key is run again when the cluster is,
//! without a step of its backoff; an informer waits for its turn, and is the probe if it is first.
//! Its own backoff counts only attempts that were made, and runs beside the breaker's pause, not
//! after it.
//!
//! The home cluster's Leases, Members and ShardMaps do not pass here: `sharding` has a client of its
//! own, so a gate never stands between a member and its Lease.

mod breaker;
mod budget;
pub(crate) mod gate;
pub(crate) mod gates;
mod guard;
mod limit;
pub(crate) mod line;
pub(crate) mod verdict;

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use model::ClusterName;

pub use breaker::{BreakerPhase, FAILURES};
pub use guard::PATIENCE;
pub use limit::QUICK;
pub use line::MAX_WAITING;
pub use verdict::{MAX_RETRY_AFTER, UNANSWERED};

/// How long a key waits whose request got no turn in time.
const CROWDED_DELAY: Duration = Duration::from_secs(1);

/// What one replica may ask of one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamLimits {
    /// Requests a second, on average. At least 1.
    pub requests_per_second: u32,
    /// Requests at once after a rest. At least 1.
    pub burst: u32,
    /// Requests under way at once, at most; fewer when the cluster is overloaded. At least 1.
    pub max_concurrency: u32,
    /// How long a cluster that fails is left alone at first.
    pub first_pause: Duration,
    /// How long at most, after pauses that doubled. At least `first_pause`.
    pub max_pause: Duration,
}

impl Default for UpstreamLimits {
    /// Generous, for an API server protects itself (API Priority and Fairness) and says so with
    /// 429: the figures only bound what a runaway controller can do.
    fn default() -> Self {
        Self {
            requests_per_second: 1000,
            burst: 1000,
            max_concurrency: 100,
            first_pause: Duration::from_secs(1),
            max_pause: Duration::from_secs(30),
        }
    }
}

/// Whom requests go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upstream {
    /// The API server of a cluster.
    Cluster(ClusterName),
    /// A service outside of Kubernetes, by the name that its controller gave it.
    External(Arc<str>),
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster(cluster) => write!(f, "cluster {cluster}"),
            Self::External(name) => f.write_str(name),
        }
    }
}

/// A request that was not sent, to spare whom it would have gone to. Found in the source chain of the
/// [`kube::Error`] that a context's client returns, and of an
/// [`ExternalError`](crate::external::ExternalError).
#[derive(Clone, Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The upstream fails or asked for a pause.
    #[error("{upstream} is asked again in {}ms, since it failed: {cause}", .again_in.as_millis())]
    LeftAlone {
        /// Whom it would have gone to.
        upstream: Upstream,
        /// How it failed last.
        cause: Arc<str>,
        /// When it is tried again.
        again_in: Duration,
    },
    /// Its budget is spent: the key has a turn then, and runs again for it.
    #[error("the turn at {upstream} comes in {}ms", .again_in.as_millis())]
    NotYet {
        /// Whom it would have gone to.
        upstream: Upstream,
        /// When the turn comes.
        again_in: Duration,
    },
    /// More wait for their turn already than may.
    #[error("too many requests wait for {upstream} already")]
    Crowded {
        /// Whom it would have gone to.
        upstream: Upstream,
    },
    /// Its turn did not come while the Lease would have allowed it.
    #[error("no turn came for a write to {upstream} within {}ms", .limit.as_millis())]
    NoTurn {
        /// Whom it would have gone to.
        upstream: Upstream,
        /// The time it had.
        limit: Duration,
    },
}

impl UpstreamError {
    /// When the request is worth another try.
    pub fn again_in(&self) -> Duration {
        match self {
            Self::LeftAlone { again_in, .. } | Self::NotYet { again_in, .. } => *again_in,
            Self::Crowded { .. } | Self::NoTurn { .. } => CROWDED_DELAY,
        }
    }

    /// The one among the causes of an error, if there is one.
    pub fn among<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref() {
                return Some(found);
            }
            next = error.source();
        }
        None
    }
}
