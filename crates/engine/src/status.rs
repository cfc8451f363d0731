//! What the engine tells about itself: readiness, queues and informers, for `/readyz`,
//! `/debug/queues` and `/debug/clusters`.

use std::collections::BTreeMap;

use model::{ClusterName, ControllerName};
use serde::Serialize;

/// One queue at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatus {
    /// The controller.
    pub controller: ControllerName,
    /// Keys ready to be dispatched, or held until their shard is active.
    pub depth: usize,
    /// Keys waiting for a retry or a wake-up.
    pub delayed: usize,
    /// Keys being reconciled.
    pub running: usize,
    /// How long the oldest ready key has waited.
    pub oldest_seconds: f64,
    /// Ready keys of each cluster.
    pub clusters: BTreeMap<ClusterName, usize>,
}

/// One informer at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InformerStatus {
    /// The cluster.
    pub cluster: ClusterName,
    /// The kind, as `group/Kind`.
    pub kind: String,
    /// The namespace it is restricted to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The label and field selectors it is restricted to.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// Whether the first list is complete.
    pub synced: bool,
    /// Objects in the cache.
    pub objects: usize,
    /// Bytes of the cache.
    pub bytes: usize,
    /// The newest resourceVersion seen.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Seconds since the server was last heard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_seconds: Option<f64>,
    /// Subscribers.
    pub subscribers: usize,
    /// Why the last attempt failed; absent once the server answers again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Whether the engine does its work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Readiness {
    /// Whether the informers of every owned shard have synced, those of clusters that do not
    /// answer left out: a dead cluster must not keep a replica from being ready for the others.
    pub ready: bool,
    /// What is waited for: informers that have yet to sync.
    pub waiting: Vec<String>,
    /// Informers that have not synced because their cluster refuses or does not answer.
    pub failing: Vec<String>,
}
