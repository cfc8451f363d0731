//! The `TDSet` resource (`schedule.rs/v1`): what a user writes and what the controller reports.
//!
//! Field names are those of the published resource, `intervalMint` included.

#![expect(clippy::duplicated_attributes, reason = "each printcolumn has its own type")]

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Replicas that follow the clock: of a Deployment that it makes, or of a workload that exists.
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
    doc = "A TDSet gives a workload a number of replicas for each time of the day, week and year.",
    printcolumn(name = "Desired", type_ = "integer", json_path = ".status.desiredReplicas"),
    printcolumn(name = "Current", type_ = "integer", json_path = ".status.currentReplicas"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Window", type_ = "string", json_path = ".status.activeWindow"),
    printcolumn(name = "Next", type_ = "string", json_path = ".status.nextChange"),
    printcolumn(name = "Then", type_ = "integer", json_path = ".status.nextReplicas"),
    printcolumn(name = "Target", type_ = "string", json_path = ".status.target", priority = "1"),
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
#[schemars(extend("x-kubernetes-validations" = json!([{
    "rule": "[has(self.container), has(self.template), has(self.targetRef)].filter(x, x).size() == 1",
    "message": "give exactly one of container, template and targetRef",
}])))]
pub struct TDSetSpec {
    /// The container to run, in a Deployment of the TDSet's name. Exactly one of this, `template` and
    /// `targetRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Container>,
    /// The whole Pod template of that Deployment, instead of one container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub template: Option<Value>,
    /// A workload of the same namespace that exists: its number of replicas is set, and nothing else of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// Takes over a Deployment of the TDSet's name that no controller owns. Its selector stays.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopt: bool,
    /// Leaves the number of replicas to others for as long as it is true.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
    /// Days on which neither windows nor `cron` count, such as holidays. The first that holds the day
    /// decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200))]
    pub exceptions: Vec<Exception>,
    /// Windows of the day, in order of precedence: the first that holds the present time decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 96))]
    pub scheduling_config: Vec<Window>,
    /// Windows between times of cron. They count where no window of `schedulingConfig` does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub cron: Vec<CronWindow>,
    /// Replicas at times that no window holds.
    #[serde(default = "default_replica")]
    #[schemars(range(min = 0))]
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
    /// Creates a Service in front of the Pods if it names a port. Not for a `targetRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceSpec>,
}

/// The container of a TDSet's Pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Container {
    /// Its name. Without one it is `app`, or stays what it is in a Deployment that was taken over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: Option<String>,
    /// The image to run.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// The port it listens on.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

/// A workload of the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetRef {
    /// Its API group and version.
    #[serde(default = "default_api_version")]
    #[schemars(length(min = 1, max = 253))]
    pub api_version: String,
    /// Its kind: a `Deployment`, a `StatefulSet`, or one with a scale subresource that the manager's
    /// configuration lists.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Its name.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
}

/// The Service of a TDSet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceSpec {
    /// The port the Service listens on; without one there is no Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
}

/// Times of the day and the replicas to run in them.
///
/// Half-open: the start belongs to it, the end does not. An end before the start crosses
/// midnight, an end of 0 is midnight, and equal times mean a whole day. A window that crosses midnight
/// belongs to the day on which it begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// The hour at which the window begins, on a 24-hour clock.
    #[schemars(range(min = 0, max = 23))]
    pub start_time: i32,
    /// The hour at which it ends; 0 is midnight.
    #[schemars(range(min = 0, max = 23))]
    pub end_time: i32,
    /// The minute of that hour at which it begins.
    #[serde(default, skip_serializing_if = "crate::is_zero")]
    #[schemars(range(min = 0, max = 59))]
    pub start_minute: i32,
    /// The minute of that hour at which it ends.
    #[serde(default, skip_serializing_if = "crate::is_zero")]
    #[schemars(range(min = 0, max = 59))]
    pub end_minute: i32,
    /// The days of the week on which it begins; all of them if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7))]
    pub days: Vec<Day>,
    /// The first date on which it begins, as `2026-12-01`, or each year, as `12-01`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([0-9]{4}-)?[0-9]{2}-[0-9]{2}$"))]
    pub from: Option<String>,
    /// The last such date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([0-9]{4}-)?[0-9]{2}-[0-9]{2}$"))]
    pub to: Option<String>,
    /// Replicas while it lasts.
    #[schemars(range(min = 0))]
    pub replica: i32,
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "each is its name")]
pub enum Day {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

/// A window between two times of cron: it lasts from one that `start` names to the next that `end` names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CronWindow {
    /// When it begins: minute, hour, day of month, month, day of week, as `0 9 * * 1-5`.
    #[schemars(length(min = 9, max = 256))]
    pub start: String,
    /// When it ends.
    #[schemars(length(min = 9, max = 256))]
    pub end: String,
    /// Replicas while it lasts.
    #[schemars(range(min = 0))]
    pub replica: i32,
}

/// Whole days of the time zone, from midnight to midnight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Exception {
    /// The first day, as `2026-12-24`, or each year, as `12-24`.
    #[schemars(regex(pattern = r"^([0-9]{4}-)?[0-9]{2}-[0-9]{2}$"))]
    pub from: String,
    /// The last day; without it, the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([0-9]{4}-)?[0-9]{2}-[0-9]{2}$"))]
    pub to: Option<String>,
    /// Replicas on these days; without it, `defaultReplica`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replica: Option<i32>,
}

/// What the controller last found and did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TDSetStatus {
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The generation of the spec that the Deployment and the Service were last written for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_generation: Option<i64>,
    /// Replicas that the schedule asks for now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_replicas: Option<i32>,
    /// The workload whose replicas are set, as `Deployment/web`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The HorizontalPodAutoscaler of that workload: the schedule sets its `minReplicas`, and it scales.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaler: Option<String>,
    /// Pods that exist now.
    #[serde(default)]
    pub current_replicas: i32,
    /// Pods that are ready to serve now; 0 with a `targetRef`, whose scale does not say.
    #[serde(default)]
    pub ready_replicas: i32,
    /// What decides now: a window, as `09:00-17:00`, an exception, a window of cron, `default`, or
    /// `suspended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_window: Option<String>,
    /// When something else decides. Absent if that is not within five weeks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "sdk::schema::time")]
    pub next_change: Option<Time>,
    /// Replicas from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_replicas: Option<i32>,
    /// `Ready`, `Progressing` and `ScheduleComplete`.
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

fn default_api_version() -> String {
    "apps/v1".to_owned()
}

/// The schema of an object whose form is Kubernetes' own.
fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}
