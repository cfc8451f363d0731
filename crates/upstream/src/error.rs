//! Whom requests go to, and why one was not sent.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use model::ClusterName;

/// How long a key waits whose request got no turn in time.
const CROWDED_DELAY: Duration = Duration::from_secs(1);

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
/// `kube::Error` that a context's client returns, and of an `ExternalError`.
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
