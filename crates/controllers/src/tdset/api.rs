//! The `TDSet` resource (`schedule.rs/v1`): what a user writes and what the controller reports.
//!
//! Field names are those of the published resource, `intervalMint` included.

#![expect(clippy::duplicated_attributes, reason = "each printcolumn has its own type")]

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A Deployment whose number of replicas follows the hour of the day.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "schedule.rs",
    version = "v1",
    kind = "TDSet",
    plural = "tdsets",
    singular = "tdset",
    shortname = "tds",
    category = "leasehold",
    namespaced,
    status = "TDSetStatus",
    derive = "PartialEq",
    doc = "A TDSet runs a container with a number of replicas for each hour of the day.",
    printcolumn(name = "Desired", type_ = "integer", json_path = ".status.desiredReplicas"),
    printcolumn(name = "Current", type_ = "integer", json_path = ".status.currentReplicas"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Window", type_ = "string", json_path = ".status.activeWindow"),
    printcolumn(name = "Next", type_ = "string", json_path = ".status.nextChange"),
    printcolumn(name = "Zone", type_ = "string", json_path = ".spec.timeZone", priority = "1"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#,
        priority = "1"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct TDSetSpec {
    /// The container to run.
    pub container: Container,
    /// Windows of the day, in order of precedence: the first that holds the present hour decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 96))]
    pub scheduling_config: Vec<Window>,
    /// Replicas at hours that no window holds.
    #[serde(default = "default_replica")]
    #[schemars(range(min = 1))]
    pub default_replica: i32,
    /// The IANA time zone whose clock the windows are read on, such as `Europe/Berlin`.
    #[serde(default = "default_time_zone")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: String,
    /// The longest wait between two looks at the clock, in minutes. Without it the controller
    /// sleeps until the next change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1440))]
    pub interval_mint: Option<i32>,
    /// Creates a Service in front of the Pods if it names a port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceSpec>,
}

/// The container of a TDSet's Pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Container {
    /// The image to run.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// The port it listens on.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

/// The Service of a TDSet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceSpec {
    /// The port the Service listens on; without one there is no Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
}

/// Hours of the day and the replicas to run in them.
///
/// Half-open: the start belongs to it, the end does not. An end before the start crosses
/// midnight, an end of 0 is midnight, and equal hours mean the whole day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// The hour at which the window begins, on a 24-hour clock.
    #[schemars(range(min = 0, max = 23))]
    pub start_time: i32,
    /// The hour at which it ends; 0 is midnight.
    #[schemars(range(min = 0, max = 23))]
    pub end_time: i32,
    /// Replicas while it lasts.
    #[schemars(range(min = 0))]
    pub replica: i32,
}

/// What the controller last found and did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TDSetStatus {
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Replicas that the schedule asks for now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_replicas: Option<i32>,
    /// Pods that exist now.
    #[serde(default)]
    pub current_replicas: i32,
    /// Pods that are ready to serve now.
    #[serde(default)]
    pub ready_replicas: i32,
    /// The window that decides now, as `09:00-17:00`, or `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_window: Option<String>,
    /// When another window begins. Absent if that never happens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "sdk::schema::time")]
    pub next_change: Option<Time>,
    /// `Ready` and `Progressing`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "sdk::schema::conditions")]
    pub conditions: Vec<Condition>,
}

impl TDSetStatus {
    /// The next change, as a timestamp.
    pub fn next_change(&self) -> Option<Timestamp> {
        self.next_change.as_ref().map(|time| time.0)
    }
}

fn default_replica() -> i32 {
    1
}

fn default_time_zone() -> String {
    "UTC".to_owned()
}
