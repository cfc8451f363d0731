//! The `EtcdCluster` resource (`data.leasehold.dev/v1alpha1`): what a user writes and what the
//! controller records.
//!
//! The status is also the controller's memory: which numbers of members were given out, which volume
//! belongs to which member, the id of the cluster. Each is written before the step that relies on it.

#![expect(clippy::duplicated_attributes, reason = "each printcolumn has its own type")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use operands::archive::{ScheduleStatus, Scheduling};
use operands::backup::destination::Destination;
use operands::pod::PodExtras;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The repository of etcd's own images.
const IMAGE: &str = "gcr.io/etcd-development/etcd";

/// A cluster of etcd, each member with a Pod and a PersistentVolumeClaim of its own.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "data.leasehold.dev",
    version = "v1alpha1",
    kind = "EtcdCluster",
    plural = "etcdclusters",
    singular = "etcdcluster",
    shortname = "etcd",
    category = "leasehold",
    namespaced,
    status = "EtcdClusterStatus",
    derive = "PartialEq",
    doc = "An EtcdCluster runs etcd: it grows, shrinks, upgrades and heals it member by member.",
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.ready"),
    printcolumn(name = "Leader", type_ = "string", json_path = ".status.leader"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = json!([
    {
        "rule": "self.size % 2 == 1",
        "message": "size must be odd: an even number of members survives no more losses than one member less",
    },
    {
        "rule": "self.tls.enabled == oldSelf.tls.enabled",
        "message": "tls.enabled cannot be changed: restore a snapshot into another EtcdCluster",
    },
    {
        "rule": "self.storage.size == oldSelf.storage.size",
        "message": "storage.size cannot be changed: restore a snapshot into another EtcdCluster",
    },
    {
        "rule": "has(self.restoreFrom) == has(oldSelf.restoreFrom) \
                 && (!has(self.restoreFrom) || self.restoreFrom == oldSelf.restoreFrom)",
        "message": "restoreFrom cannot be changed: a cluster is restored once, when it is created",
    },
])))]
pub struct EtcdClusterSpec {
    /// The number of members: 1, 3, 5, 7 or 9.
    #[serde(default = "default_size")]
    #[schemars(range(min = 1, max = 9))]
    pub size: i32,
    /// etcd's version, such as `3.6.5`. It may rise by one minor version at a time, and not fall to an
    /// earlier minor version.
    #[schemars(length(max = 32), regex(pattern = r"^[0-9]+\.[0-9]+\.[0-9]+$"))]
    pub version: String,
    /// The repository of the image; its tag is `v` and the version.
    #[serde(default = "default_image")]
    #[schemars(length(min = 1, max = 256))]
    pub image: String,
    /// The volume of each member.
    #[serde(default)]
    pub storage: Storage,
    /// The resources of each member's container, as in a Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "operands::pod::any_object")]
    pub resources: Option<Value>,
    /// TLS between members and to clients.
    #[serde(default)]
    pub tls: Tls,
    /// How long a member may be lost, as `5m` or `1h30m`, before another takes over from it.
    #[serde(default = "default_replace_after")]
    #[schemars(length(min = 1, max = 32))]
    pub replace_after: String,
    /// The size at which the database refuses writes, in bytes. Without it etcd's own: 2 GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 16_777_216_i64, max = 107_374_182_400_i64))]
    pub quota_backend_bytes: Option<i64>,
    /// When members give unused space of their databases back.
    #[serde(default)]
    pub defragment: Defragment,
    /// Snapshots by a schedule. Without it there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<Scheduling>,
    /// The snapshot with whose content the cluster begins. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_from: Option<RestoreFrom>,
    /// What else the members' Pods have.
    #[serde(default)]
    pub pod: PodExtras,
    /// More arguments of etcd, such as `--auto-compaction-retention=1h`. Those that the controller
    /// sets itself are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 1024)))]
    pub extra_args: Vec<String>,
}

/// The volume of each member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Its size, such as `8Gi`. Cannot be changed.
    #[serde(default = "default_storage")]
    #[schemars(length(min = 1, max = 32))]
    pub size: String,
    /// Its StorageClass. Without it the cluster's default class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub class_name: Option<String>,
    /// What happens to the volumes when this object is deleted.
    #[serde(default)]
    pub reclaim: Reclaim,
}

/// What happens to the volumes when an EtcdCluster is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Reclaim {
    /// They are deleted with it.
    #[default]
    Delete,
    /// They stay.
    Retain,
}

/// TLS between members and to clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// Whether members speak TLS, and accept only clients with a certificate of the cluster's own CA.
    /// Cannot be changed.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// How often the certificates of members and clients are renewed. They are valid for half as long
    /// again.
    #[serde(default = "default_renewal")]
    #[schemars(length(min = 1, max = 32))]
    pub renewal: String,
}

/// When members give unused space of their databases back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Defragment {
    /// Whether the controller does that.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// It does if at least so much of the database is unused, in percent,
    #[serde(default = "default_unused_percent")]
    #[schemars(range(min = 1, max = 99))]
    pub unused_percent: i32,
    /// and so much, in bytes.
    #[serde(default = "default_unused_bytes")]
    #[schemars(range(min = 1_048_576_i64))]
    pub unused_bytes: i64,
    /// The shortest time between two defragmentations of members.
    #[serde(default = "default_defragment_interval")]
    #[schemars(length(min = 1, max = 32))]
    pub interval: String,
}

/// A snapshot with whose content a cluster begins: the name of an EtcdSnapshot, or a file at a
/// destination.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreFrom {
    /// The EtcdSnapshot, in the object's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub snapshot: Option<String>,
    /// Where the file is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<Destination>,
    /// The file's name there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub key: Option<String>,
}

/// What the controller last found and did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdClusterStatus {
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// In one word what happens now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// How many members are healthy, of how many wanted, as `2/3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// The name of the member that leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// The lowest version that a member runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The version that is being brought to all members, from the first one that gets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_version: Option<String>,
    /// etcd's id of the cluster, in hexadecimal. Once it is here, nothing bootstraps a cluster again.
    #[serde(rename = "clusterID", default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// The number of the next member. Numbers are never reused.
    #[serde(default)]
    pub next_member: i64,
    /// The members, in order of their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberStatus>,
    /// When a member was last defragmented.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "sdk::schema::time")]
    pub defragmented_at: Option<Time>,
    /// What the schedule of snapshots did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<ScheduleStatus>,
    /// How far the restore of a snapshot is, or what stops it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restoring: Option<String>,
    /// `Available`, `Progressing`, `Degraded` and `SpecValid`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "sdk::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// A member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// Its name, which is that of its Pod and of its PersistentVolumeClaim.
    pub name: String,
    /// etcd's id of it, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Where it is in its life.
    #[serde(default)]
    pub phase: MemberPhase,
    /// The uid of the PersistentVolumeClaim that holds its data. It never runs on another.
    #[serde(rename = "volumeUID", default, skip_serializing_if = "Option::is_none")]
    pub volume_uid: Option<String>,
    /// The version it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The size of its database in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db_size: Option<i64>,
    /// Whether it learns and has no vote yet.
    #[serde(default)]
    pub is_learner: bool,
    /// Whether it leads.
    #[serde(default)]
    pub is_leader: bool,
    /// Since when it is not healthy, with a Pod as the spec asks for it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "sdk::schema::time")]
    pub lost_since: Option<Time>,
}

/// Where a member is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MemberPhase {
    /// Its number is taken; etcd may know it or not.
    #[default]
    Joining,
    /// It has joined: it votes, or did once.
    Running,
    /// It leaves: etcd is asked to remove it, then its Pod and its volume go.
    Leaving,
}

impl Default for Storage {
    fn default() -> Self {
        Self { size: default_storage(), class_name: None, reclaim: Reclaim::default() }
    }
}

impl Default for Tls {
    fn default() -> Self {
        Self { enabled: true, renewal: default_renewal() }
    }
}

impl Default for Defragment {
    fn default() -> Self {
        Self {
            enabled: true,
            unused_percent: default_unused_percent(),
            unused_bytes: default_unused_bytes(),
            interval: default_defragment_interval(),
        }
    }
}

fn default_size() -> i32 {
    3
}

fn default_image() -> String {
    IMAGE.to_owned()
}

fn default_storage() -> String {
    "8Gi".to_owned()
}

fn default_renewal() -> String {
    "1440h".to_owned()
}

pub(crate) fn default_replace_after() -> String {
    "5m".to_owned()
}

fn default_unused_percent() -> i32 {
    45
}

fn default_unused_bytes() -> i64 {
    104_857_600
}

fn default_defragment_interval() -> String {
    "1h".to_owned()
}

fn yes() -> bool {
    true
}
