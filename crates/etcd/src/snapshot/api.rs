//! The `EtcdSnapshot` resource (`data.leasehold.dev/v1alpha1`): one snapshot of an EtcdCluster.

#![expect(clippy::duplicated_attributes, reason = "each printcolumn has its own type")]

use kube::CustomResource;
use operands::archive::{BackupStatus, DeletionPolicy};
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
    status = "BackupStatus",
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
