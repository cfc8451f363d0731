//! The `MySQLBackup` and `MySQLBackupSchedule` resources (`cr.mysqloperator.grtl.github.com/v1`): one backup
//! of a MySQLCluster, and what makes them.

#![expect(clippy::duplicated_attributes, reason = "each printcolumn has its own type")]

use kube::CustomResource;
use operands::archive::{BackupStatus, DeletionPolicy, ScheduleStatus, Scheduling};
use operands::backup::destination::Destination;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A backup of a MySQLCluster, kept at a destination. It outlives the cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cr.mysqloperator.grtl.github.com",
    version = "v1",
    kind = "MySQLBackup",
    plural = "mysqlbackups",
    singular = "mysqlbackup",
    category = "leasehold",
    namespaced,
    status = "BackupStatus",
    derive = "PartialEq",
    doc = "A MySQLBackup saves the content of a MySQLCluster once and keeps it at a destination.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cluster"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(name = "Size", type_ = "integer", json_path = ".status.size"),
    printcolumn(name = "Finished", type_ = "date", json_path = ".status.finished"),
    printcolumn(name = "Place", type_ = "string", json_path = ".status.location", priority = "1")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = json!([{
    "rule": "self.cluster == oldSelf.cluster && self.destination == oldSelf.destination",
    "message": "cluster and destination cannot be changed: create another MySQLBackup",
}])))]
pub struct MySQLBackupSpec {
    /// The MySQLCluster, in the object's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub cluster: String,
    /// Where the backup is stored.
    pub destination: Destination,
    /// What happens to what is stored when this object is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// Backups of a MySQLCluster by a schedule.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cr.mysqloperator.grtl.github.com",
    version = "v1",
    kind = "MySQLBackupSchedule",
    plural = "mysqlbackupschedules",
    singular = "mysqlbackupschedule",
    category = "leasehold",
    namespaced,
    status = "ScheduleStatus",
    derive = "PartialEq",
    doc = "A MySQLBackupSchedule makes a MySQLBackup at each time of its schedule, and deletes old ones.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cluster"),
    printcolumn(name = "Schedule", type_ = "string", json_path = ".spec.schedule"),
    printcolumn(name = "Suspended", type_ = "boolean", json_path = ".spec.suspend"),
    printcolumn(name = "Last run", type_ = "date", json_path = ".status.lastRun"),
    printcolumn(name = "Last backup", type_ = "string", json_path = ".status.lastComplete"),
    printcolumn(
        name = "Obstacle",
        type_ = "string",
        json_path = ".status.obstacle",
        priority = "1"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = json!([{
    "rule": "self.cluster == oldSelf.cluster",
    "message": "cluster cannot be changed: create another MySQLBackupSchedule",
}])))]
pub struct MySQLBackupScheduleSpec {
    /// The MySQLCluster, in the object's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub cluster: String,
    /// Whether no backup is made and none is deleted.
    #[serde(default)]
    pub suspend: bool,
    /// When backups are made, where they are stored, and how many are kept.
    #[serde(flatten)]
    pub scheduling: Scheduling,
}
