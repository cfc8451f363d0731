//! The `ConfigMonitor` resource (`magalix.com/v1`): what a user writes and what the controller
//! records.
//!
//! The status is also the controller's memory: `hash` is the content that the Pods were last
//! restarted for, `pending` a restart that is decided and perhaps not finished.

#![expect(clippy::duplicated_attributes, reason = "each printcolumn has its own type")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::restarts::Record;

/// Pods to restart when the content of a ConfigMap or Secret changes.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "magalix.com",
    version = "v1",
    kind = "ConfigMonitor",
    plural = "configmonitors",
    singular = "configmonitor",
    shortname = "cmon",
    category = "leasehold",
    namespaced,
    status = "ConfigMonitorStatus",
    derive = "PartialEq",
    doc = "A ConfigMonitor restarts Pods once for each change of a ConfigMap's or Secret's content.",
    printcolumn(name = "ConfigMap", type_ = "string", json_path = ".status.configMap"),
    printcolumn(name = "Secret", type_ = "string", json_path = ".status.secret", priority = 1),
    printcolumn(name = "Pods", type_ = "integer", json_path = ".status.selectedPods"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#
    ),
    printcolumn(name = "Restarts", type_ = "integer", json_path = ".status.restarts"),
    printcolumn(name = "Last", type_ = "date", json_path = ".status.lastRestart"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct ConfigMonitorSpec {
    /// The name of the ConfigMap to watch, in the same namespace.
    #[serde(default, rename = "configMap", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub config_map: Option<String>,
    /// Another spelling of `configMap`. If both are given they must agree.
    #[serde(default, rename = "configmap", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub config_map_lowercase: Option<String>,
    /// The name of the Secret to watch instead, in the same namespace. The administrator must let the controller
    /// watch Secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub secret: Option<String>,
    /// Labels, all of which a Pod must carry to be restarted. Without it, the workloads of the namespace restart
    /// that use the ConfigMap or Secret.
    #[serde(default, rename = "podSelector", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minProperties" = 1, "maxProperties" = 32))]
    pub pod_selector: Option<BTreeMap<String, String>>,
    /// How long changes count as one: the restart begins this long after the first of them.
    #[serde(default = "default_debounce", rename = "debounceSeconds")]
    #[schemars(with = "i32", range(min = 0, max = 3_600))]
    pub debounce_seconds: u32,
    /// Whether Pods without a controller are evicted too, which nothing creates again.
    #[serde(default, rename = "evictBarePods", skip_serializing_if = "std::ops::Not::not")]
    pub evict_bare_pods: bool,
}

fn default_debounce() -> u32 {
    u32::try_from(crate::restarts::WINDOW.as_secs()).unwrap_or(u32::MAX)
}

/// What the controller last found, decided and did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMonitorStatus {
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The ConfigMap of `hash` and `pending`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<String>,
    /// The Secret of `hash` and `pending`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// What is recorded of its content and of restarts.
    #[serde(flatten)]
    pub record: Record,
    /// Pods that the selector matches now.
    #[serde(default)]
    pub selected_pods: i32,
    /// `Ready`, `Restarted` and `Invalid`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "sdk::schema::conditions")]
    pub conditions: Vec<Condition>,
}
