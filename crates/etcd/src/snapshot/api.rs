//! The `EtcdSnapshot` resource (`data.leasehold.dev/v1alpha1`): one snapshot of an EtcdCluster.

#![expect(clippy::duplicated_attributes, reason = "each printcolumn has its own type")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use operands::backup::destination::Destination;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A snapshot of an EtcdCluster, kept at a destination. It outlives the cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "data.leasehold.dev",
    version = "v1alpha1",
    kind = "EtcdSnapshot",
    plural = "etcdsnapshots",
    singular = "etcdsnapshot",
    category = "leasehold",
    namespaced,
    status = "EtcdSnapshotStatus",
    derive = "PartialEq",
    doc = "An EtcdSnapshot saves the content of an EtcdCluster once and keeps it at a destination.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cluster"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Size", type_ = "integer", json_path = ".status.size"),
    printcolumn(
        name = "Location",
        type_ = "string",
        json_path = ".status.location",
        priority = "1"
    ),
    printcolumn(name = "Finished", type_ = "date", json_path = ".status.finished"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = json!([{
    "rule": "self.cluster == oldSelf.cluster && self.destination == oldSelf.destination",
    "message": "cluster and destination cannot be changed: create another EtcdSnapshot",
}])))]
pub struct EtcdSnapshotSpec {
    /// The EtcdCluster, in the object's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub cluster: String,
    /// Where the snapshot is stored.
    pub destination: Destination,
    /// What happens to what is stored when this object is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// What happens to what is stored when an EtcdSnapshot is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// It is deleted.
    #[default]
    Delete,
    /// It stays.
    Retain,
}

/// Where an EtcdSnapshot is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SnapshotPhase {
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
pub struct EtcdSnapshotStatus {
    /// Where it is in its life.
    #[serde(default)]
    pub phase: SnapshotPhase,
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
    /// The version of etcd that saved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_version: Option<String>,
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
