//! The status and the gauges of a queue.

use std::collections::BTreeMap;
use std::time::Duration;

use model::{ClusterName, ControllerName, Epoch, ShardId};
use serde::{Deserialize, Serialize};

/// A queue at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatus {
    /// The controller.
    pub controller: ControllerName,
    /// The resource that it reconciles, as `deployments.apps`; whoever knows it fills it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
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
    /// The keys that have run longest, of those that run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub longest: Vec<RunningKey>,
    /// The keys that failed most often since they succeeded, of those that are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failing: Vec<FailingKey>,
}

/// The most keys of each list in a [`QueueStatus`].
pub(crate) const MAX_SHOWN_KEYS: usize = 20;

/// A key that is being reconciled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunningKey {
    /// The object, as `cluster/namespace/name`.
    pub key: String,
    /// For how long.
    pub seconds: f64,
}

/// A key that fails.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailingKey {
    /// The object, as `cluster/namespace/name`.
    pub key: String,
    /// How it failed last.
    #[serde(flatten)]
    pub failure: FailureStatus,
}

/// How a key failed last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailureStatus {
    /// In which way, in a word or two.
    pub result: String,
    /// What it said, cut to a kilobyte.
    pub error: String,
    /// How often, since it succeeded last or came into the record.
    pub times: u32,
    /// Seconds since the last time.
    pub last_seconds: f64,
    /// Seconds since the first time.
    pub first_seconds: f64,
}

/// Where one key stands in a queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyStatus {
    /// The shards of its cluster that have a queue here.
    pub shards: Vec<HeldShard>,
    /// How long it has been ready, if it is: since its shard was opened at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_seconds: Option<f64>,
    /// How many keys may run of all clusters, if it is ready and waits until fewer do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crowded: Option<usize>,
    /// When it is ready again, if it is delayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed_seconds: Option<f64>,
    /// How long it has been reconciled, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_seconds: Option<f64>,
    /// Whether it is reconciled again after that.
    #[serde(default)]
    pub runs_again: bool,
    /// Failures in a row, from which the backoff follows.
    pub failures: u32,
    /// How it failed last, if it fails and is among the failing keys that are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureStatus>,
    /// Seconds since a run of it last ended without a failure, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub succeeded_seconds: Option<f64>,
}

/// A shard with a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldShard {
    /// The shard.
    pub shard: ShardId,
    /// The epoch at which it is held.
    pub epoch: Epoch,
    /// Whether its keys are given out.
    pub open: bool,
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
    /// How many keys may run, of all clusters that get on.
    pub concurrency_limit: usize,
}
