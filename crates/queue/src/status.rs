//! The status and the gauges of a queue.

use std::collections::BTreeMap;
use std::time::Duration;

use model::{ClusterName, ControllerName};
use serde::Serialize;

/// A queue at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatus {
    /// The controller.
    pub controller: ControllerName,
    /// Keys ready to be dispatched.
    pub depth: usize,
    /// Keys that wait for a retry, or to be requeued.
    pub delayed: usize,
    /// Keys being reconciled.
    pub running: usize,
    /// How long the oldest ready key has waited.
    pub oldest_seconds: f64,
    /// Ready keys of each cluster.
    pub clusters: BTreeMap<ClusterName, usize>,
}

/// The gauges of a queue.
#[derive(Clone, Debug, Default)]
pub struct QueueGauges {
    /// Ready keys, by priority.
    pub depth: [usize; 4],
    /// How long the oldest ready key has waited.
    pub oldest: Duration,
    /// Time that all running keys have run so far, summed.
    pub unfinished: Duration,
    /// Time that the longest running key has run so far.
    pub longest_running: Duration,
}
