//! Upstreams, and why a request to one was not sent.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use model::ClusterName;

/// A key whose request got no turn in time runs again after this long.
const CROWDED_DELAY: Duration = Duration::from_secs(1);

/// The receiver of requests.
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

/// A request that was not sent, to protect its upstream. Found in the source chain of the
/// `kube::Error` that a context's client returns, and of an `ExternalError`.
#[derive(Clone, Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The upstream fails or asked for a pause.
    #[error("{upstream} is not asked for another {}ms because it failed: {cause}", .again_in.as_millis())]
    LeftAlone {
        /// The upstream.
        upstream: Upstream,
        /// How it failed last.
        cause: Arc<str>,
        /// When it is tried again.
        again_in: Duration,
    },
    /// The service's budget is spent. The key has a turn later, and runs again then.
    #[error("the turn at {upstream} comes in {}ms", .again_in.as_millis())]
    NotYet {
        /// The upstream.
        upstream: Upstream,
        /// When the turn comes.
        again_in: Duration,
    },
    /// Too many requests wait for their turn already.
    #[error("too many requests wait for {upstream} already")]
    Crowded {
        /// The upstream.
        upstream: Upstream,
    },
    /// Its turn did not come in the time that the Lease allows.
    #[error("no turn came for a write to {upstream} within {}ms", .limit.as_millis())]
    NoTurn {
        /// The upstream.
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

    /// The first such error in the source chain of `error`, if there is one.
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
