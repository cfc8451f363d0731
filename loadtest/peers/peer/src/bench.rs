//! The kind that is reconciled: a schedule of replicas for each hour, about 2.3 KB.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The desired state.
#[derive(Clone, Debug, CustomResource, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "bench.leasehold.dev",
    version = "v1",
    kind = "Bench",
    plural = "benches",
    namespaced,
    status = "BenchStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct BenchSpec {
    /// What runs.
    pub container: Container,
    /// Replicas outside of the schedule.
    pub default_replica: u32,
    /// Replicas by the hour.
    pub scheduling_config: Vec<Slot>,
    /// A number that changes to measure how soon a change is seen.
    pub touched: Option<u64>,
}

/// What runs.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub struct Container {
    /// Its image.
    pub image: String,
    /// The port on which it listens.
    pub port: u16,
}

/// Replicas for a part of the day.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Slot {
    /// The hour at which it begins.
    pub start_time: u32,
    /// The hour at which it ends.
    pub end_time: u32,
    /// How many replicas there are.
    pub replica: u32,
}

/// The observed state.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BenchStatus {
    /// The usual conditions.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// Replicas now.
    #[serde(default)]
    pub replicas: u32,
    /// The trigger for which it was last reconciled.
    #[serde(default)]
    pub trigger: u64,
}

impl Bench {
    /// The trigger for which the object was last reconciled; 0 for none.
    pub fn trigger(&self) -> u64 {
        self.status.as_ref().map_or(0, |status| status.trigger)
    }
}

/// The name of an object.
pub fn name(index: usize) -> String {
    format!("bench-{index:05}")
}

/// The status that a reconcile writes.
pub fn status(trigger: u64) -> Value {
    json!({"trigger": trigger})
}

/// The merge patch that a reconcile sends.
pub fn patch(trigger: u64) -> Value {
    json!({"status": status(trigger)})
}
