//! What the kinds of backups and of schedules have in common.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::backup::destination::Destination;

/// What happens to what is stored when the object of a backup is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// It is deleted.
    #[default]
    Delete,
    /// It stays.
    Retain,
}

/// Where a backup is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BackupPhase {
    /// It waits for something.
    #[default]
    Pending,
    /// Its Job runs.
    Running,
    /// It is stored and verified.
    Complete,
    /// There is none, for the reason in the conditions.
    Failed,
    /// What is stored is being deleted.
    Deleting,
}

/// What the controller last found and did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupStatus {
    /// Where it is in its life.
    #[serde(default)]
    pub phase: BackupPhase,
    /// Its name at the destination. Something may be stored under it as soon as it is here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Where it is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Its size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// Its SHA-256, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The uid of the database's object: another database of that name has another one.
    #[serde(rename = "databaseUID", default, skip_serializing_if = "Option::is_none")]
    pub database_uid: Option<String>,
    /// The version that the database ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// When its Job was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "sdk::schema::time")]
    pub started: Option<Time>,
    /// When it was complete, or given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "sdk::schema::time")]
    pub finished: Option<Time>,
    /// `Complete` and `Failed`, and `Deleted` while it is being deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "sdk::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// When backups are made, where they are stored, and how many are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scheduling {
    /// When, in cron's words: minute, hour, day of the month, month, day of the week.
    #[schemars(length(min = 1, max = 128))]
    pub schedule: String,
    /// The IANA time zone of the schedule, such as `Europe/Berlin`.
    #[serde(default = "default_time_zone")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: String,
    /// How many are kept; older ones are deleted.
    #[serde(default = "default_keep")]
    #[schemars(range(min = 1, max = 1000))]
    pub keep: i32,
    /// Where they are stored.
    pub destination: Destination,
}

/// What a schedule did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleStatus {
    /// The last run that came due: a backup was made for it, or it was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "sdk::schema::time")]
    pub last_run: Option<Time>,
    /// The last backup that is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_complete: Option<String>,
    /// Why no backup is made, or none was made for the last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<String>,
}

fn default_time_zone() -> String {
    "UTC".to_owned()
}

fn default_keep() -> i32 {
    7
}
