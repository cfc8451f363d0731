//! What may be asked of an upstream.

use std::time::Duration;

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
    /// The longest pause; pauses double up to it. At least `first_pause`.
    pub max_pause: Duration,
}

impl Default for UpstreamLimits {
    /// Generous: an API server protects itself (API Priority and Fairness) and answers 429. These
    /// figures only bound what a runaway controller can do.
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

/// What the whole fleet may ask of one upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalLimits {
    /// Requests that may be sent, on average, in the time `per`.
    pub requests: u32,
    /// The time that `requests` is counted over.
    pub per: Duration,
    /// Requests at once after a rest.
    pub burst: u32,
    /// Requests of one member under way at once, at most; fewer when the upstream is overloaded.
    pub max_concurrency: u32,
    /// How long an upstream that fails is left alone at first.
    pub first_pause: Duration,
    /// The longest pause; pauses double up to it.
    pub max_pause: Duration,
}

impl Default for ExternalLimits {
    fn default() -> Self {
        Self {
            requests: 10,
            per: Duration::from_secs(1),
            burst: 10,
            max_concurrency: 8,
            first_pause: Duration::from_secs(1),
            max_pause: Duration::from_secs(60),
        }
    }
}
