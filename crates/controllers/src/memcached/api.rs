//! The `Memcached` resource (`data.leasehold.dev/v1alpha1`): what a user writes and what the controller
//! reports.
//!
//! What only a Pod can judge, as an affinity, is kept as it is written: a mistake in it becomes a
//! condition, and never an object that cannot be read.

#![expect(clippy::duplicated_attributes, reason = "each printcolumn has its own type")]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A cache of several nodes, each a memcached of its own: clients spread their keys over them.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "data.leasehold.dev",
    version = "v1alpha1",
    kind = "Memcached",
    plural = "memcacheds",
    singular = "memcached",
    shortname = "mc",
    category = "leasehold",
    namespaced,
    status = "MemcachedStatus",
    scale(
        spec_replicas_path = ".spec.size",
        status_replicas_path = ".status.size",
        label_selector_path = ".status.selector"
    ),
    derive = "PartialEq",
    doc = "A Memcached runs a cache of several nodes with stable names, over which clients spread their keys.",
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.ready"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#
    ),
    printcolumn(name = "Memory", type_ = "string", json_path = ".status.memory", priority = "1"),
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image", priority = "1"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct MemcachedSpec {
    /// How many nodes.
    #[serde(default = "default_size")]
    #[schemars(range(min = 0, max = 100))]
    pub size: i32,
    /// What they run: an image with `memcached` on its path. The default is written into the object
    /// when it is created, so that a newer Leasehold restarts nothing.
    #[serde(default = "default_image")]
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// Secrets of the namespace with which the images are pulled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub image_pull_secrets: Vec<PullSecret>,
    /// Memory of each node for items, such as `1Gi`: memcached's `-m`. Without it, what
    /// `resources.limits.memory` leaves; without that too, 64Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Amount>,
    /// The most connections to each node: memcached's `-c`.
    #[serde(default = "default_connections")]
    #[schemars(range(min = 16, max = 65_536))]
    pub connections: i32,
    /// Further arguments of memcached. Those that other fields set are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 512)))]
    pub extra_args: Vec<String>,
    /// Resources of memcached's container. Without memory here, as much as its items and their
    /// overhead need, as request and as limit.
    #[serde(default, skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
    /// How long a new node serves before the next one is restarted. It fills meanwhile.
    #[serde(default = "default_min_ready")]
    #[schemars(range(min = 0, max = 3_600))]
    pub min_ready_seconds: i32,
    /// Whether nodes share machines.
    #[serde(default)]
    pub anti_affinity: AntiAffinity,
    /// An affinity as in a Pod, beside `antiAffinity`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "open")]
    pub affinity: Option<Value>,
    /// Tolerations as in a Pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "tolerations")]
    pub tolerations: Vec<Toleration>,
    /// Labels of the machines to run on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub node_selector: BTreeMap<String, String>,
    /// The priority class of the Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: Option<String>,
    /// The user that memcached runs as, by number. The default is that of the official images.
    #[serde(default = "default_user")]
    #[schemars(range(min = 1))]
    pub run_as_user: i64,
    /// Further labels of the Pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub pod_labels: BTreeMap<String, String>,
    /// Annotations of the Pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub pod_annotations: BTreeMap<String, String>,
    /// Runs an exporter of Prometheus metrics beside each node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exporter: Option<Exporter>,
}

/// An exporter of Prometheus metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Exporter {
    /// Its image, with memcached_exporter as its entrypoint.
    #[serde(default = "default_exporter_image")]
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// Resources of its container.
    #[serde(default, skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
}

/// A Secret of the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PullSecret {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Requests and limits of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Resources {
    /// What it may use at most.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub limits: BTreeMap<String, Amount>,
    /// What is set aside for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub requests: BTreeMap<String, Amount>,
}

/// A quantity, such as `128Mi`, `500m` or `2`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Amount {
    /// A whole number.
    Number(i64),
    /// Any other.
    Text(String),
}

/// Whether nodes share machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AntiAffinity {
    /// Only if there are too few machines.
    #[default]
    Preferred,
    /// Never: a node without a machine of its own waits.
    Required,
    /// As the scheduler likes.
    None,
}

/// What the controller last found and did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemcachedStatus {
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The generation of the spec that the StatefulSet, the Service and the budget were last written for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_generation: Option<i64>,
    /// Nodes that exist now.
    #[serde(default)]
    pub size: i32,
    /// Nodes that are ready to serve now.
    #[serde(default)]
    pub ready: i32,
    /// The servers that clients should use, in the order in which they should use them: the list grows
    /// and shrinks at its end only, and a node that restarts stays in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// The version that each node runs: the tag of its image. While they differ, the one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Memory of each node for items, as the present spec asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// The labels of the Pods, as text, for autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// `Ready`, `Available` and `Progressing`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "sdk::schema::conditions")]
    pub conditions: Vec<Condition>,
}

// === impl Amount ===

impl Amount {
    /// The quantity as text.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

impl JsonSchema for Amount {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Amount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"x-kubernetes-int-or-string": true, "maxLength": 32})
    }
}

// === impl Resources ===

impl Resources {
    pub(crate) fn is_empty(&self) -> bool {
        self.limits.is_empty() && self.requests.is_empty()
    }
}

/// An object with any fields.
fn open(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn tolerations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "items": {
            "type": "object",
            "properties": {
                "effect": {"type": "string"},
                "key": {"type": "string"},
                "operator": {"type": "string"},
                "tolerationSeconds": {"type": "integer", "format": "int64"},
                "value": {"type": "string"},
            },
        },
    })
}

fn default_size() -> i32 {
    1
}

fn default_image() -> String {
    "docker.io/library/memcached:1.6.45".to_owned()
}

fn default_exporter_image() -> String {
    "docker.io/prom/memcached-exporter:v0.15.4".to_owned()
}

fn default_connections() -> i32 {
    1_024
}

fn default_min_ready() -> i32 {
    10
}

fn default_user() -> i64 {
    11_211
}
