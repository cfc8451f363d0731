//! What a gate tells about itself.

use model::ClusterName;
use serde::Serialize;

use super::breaker::BreakerPhase;

/// The gate before one cluster at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamStatus {
    /// The cluster.
    pub cluster: ClusterName,
    /// Whether requests pass.
    pub breaker: BreakerPhase,
    /// Why reconciles are refused; absent while they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Seconds until the cluster is asked again; absent while requests pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_seconds: Option<f64>,
    /// Requests that may be under way at once.
    pub concurrency_limit: usize,
    /// Requests under way whose answer has not begun.
    pub in_flight: usize,
    /// Requests that wait for their turn.
    pub waiting: usize,
}
