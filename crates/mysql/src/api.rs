//! The `MySQLCluster` resource (`cr.mysqloperator.grtl.github.com/v1`): what a user writes.
//!
//! What the controller records is in `status`.

#![expect(clippy::duplicated_attributes, reason = "each printcolumn has its own type")]

use std::collections::BTreeMap;

use kube::CustomResource;
use operands::backup::destination::Destination;
use operands::pod::PodExtras;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::status::MySQLClusterStatus;

/// The image, if none is given.
const IMAGE: &str = "docker.io/library/mysql:8.4";
/// The exporter's image, if none is given.
const EXPORTER: &str = "docker.io/prom/mysqld-exporter:v0.17.2";

/// MySQL with replicas, of which one takes over when the primary is lost.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cr.mysqloperator.grtl.github.com",
    version = "v1",
    kind = "MySQLCluster",
    plural = "mysqlclusters",
    singular = "mysqlcluster",
    shortname = "mysql",
    category = "leasehold",
    namespaced,
    status = "MySQLClusterStatus",
    derive = "PartialEq",
    doc = "A MySQLCluster runs MySQL: one primary, and replicas of which one takes over.",
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.ready"),
    printcolumn(name = "Primary", type_ = "string", json_path = ".status.primary"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = json!([
    {
        "rule": "!has(self.acks) || self.acks < self.replicas",
        "message": "acks must be lower than replicas: a commit cannot wait for more replicas than there are",
    },
    {
        "rule": "!has(self.fromBackup) || !has(self.fromStored)",
        "message": "fromBackup and fromStored cannot both be set: a cluster begins with one backup",
    },
    {
        "rule": "has(self.fromBackup) == has(oldSelf.fromBackup) \
                 && (!has(self.fromBackup) || self.fromBackup == oldSelf.fromBackup)",
        "message": "fromBackup cannot be changed: a cluster is restored once, when it is created",
    },
    {
        "rule": "has(self.fromStored) == has(oldSelf.fromStored) \
                 && (!has(self.fromStored) || self.fromStored == oldSelf.fromStored)",
        "message": "fromStored cannot be changed: a cluster is restored once, when it is created",
    },
    {
        "rule": "has(self.storageClass) == has(oldSelf.storageClass) \
                 && (!has(self.storageClass) || self.storageClass == oldSelf.storageClass)",
        "message": "storageClass cannot be changed: restore a backup into another MySQLCluster",
    },
])))]
pub struct MySQLClusterSpec {
    /// The Secret with root's password under the key `password`, in the object's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub secret: String,
    /// The MySQLBackup with whose content the cluster begins, in the object's namespace. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub from_backup: Option<String>,
    /// A backup at a destination with whose content the cluster begins, such as one of a cluster elsewhere.
    /// Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_stored: Option<Stored>,
    /// The port of the Services for clients.
    #[serde(default = "default_port")]
    #[schemars(range(min = 1, max = 65_535))]
    pub port: i32,
    /// The number of instances, the primary among them.
    #[serde(default = "default_replicas")]
    #[schemars(range(min = 1, max = 9))]
    pub replicas: i32,
    /// The size of each instance's volume, such as `8Gi`. It may grow.
    #[serde(default = "default_storage")]
    #[schemars(length(min = 1, max = 32))]
    pub storage: String,
    /// The StorageClass of the volumes. Without it the cluster's default class. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub storage_class: Option<String>,
    /// What happens to volumes when their instance or this object goes.
    #[serde(default)]
    pub volume_reclaim: VolumeReclaim,
    /// The image of MySQL 8.4 or later.
    #[serde(default = "default_image")]
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// The Secrets with which images are pulled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    pub image_pull_secrets: Vec<String>,
    /// How many replicas have each commit before a client hears of it. Without it one, or none if there is
    /// one instance alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 8))]
    pub acks: Option<i32>,
    /// What the primary of two instances does when the other one is lost.
    #[serde(default)]
    pub when_alone: WhenAlone,
    /// How long the other of two instances is lost before its primary continues alone, as `1m`. It matters
    /// with `whenAlone: Continue`.
    #[serde(default = "default_alone_after")]
    #[schemars(length(min = 1, max = 32))]
    pub alone_after: String,
    /// How long a primary is lost, as `5s` or `1m`, before another instance takes over.
    #[serde(default = "default_failover_after")]
    #[schemars(length(min = 1, max = 32))]
    pub failover_after: String,
    /// The instance that should be primary, as `NAME-1`. Without it whoever is stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub primary: Option<String>,
    /// How far a replica may be behind, as `30s`, before no client reads from it. Without it as far as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub max_lag: Option<String>,
    /// The resources of each instance's container, as in a Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "operands::pod::any_object")]
    pub resources: Option<Value>,
    /// Settings of mysqld, such as `max_connections: 500`. Those that the controller sets itself are refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "settings")]
    pub mysql_conf: BTreeMap<String, Value>,
    /// What else the instances' Pods have.
    #[serde(default)]
    pub pod: PodExtras,
    /// The certificates.
    #[serde(default)]
    pub tls: Tls,
    /// The controller's own accounts.
    #[serde(default)]
    pub accounts: Accounts,
    /// A container beside each instance that serves metrics. Without it there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exporter: Option<Exporter>,
}

/// A backup at a destination.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stored {
    /// Where it is.
    pub destination: Destination,
    /// Its name there.
    #[schemars(length(min = 1, max = 512))]
    pub key: String,
}

/// What happens to volumes when their instance or the MySQLCluster goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VolumeReclaim {
    /// They are deleted with it.
    #[default]
    Delete,
    /// They stay.
    Retain,
}

/// What the primary of two instances does when the other one is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WhenAlone {
    /// Its writes wait until the other is back.
    #[default]
    Block,
    /// It continues without a copy: what it acknowledges then is lost with its volume.
    Continue,
}

/// The certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "MySQLTls")]
pub struct Tls {
    /// How often the servers' certificate is renewed. It is valid for half as long again.
    #[serde(default = "default_renewal")]
    #[schemars(length(min = 1, max = 32))]
    pub renewal: String,
}

/// The controller's own accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "MySQLAccounts")]
pub struct Accounts {
    /// How often their passwords are rotated, as `720h`; at least `1h`. Without it only when the annotation
    /// `mysql.leasehold.dev/rotate` gets another value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub rotation: Option<String>,
}

/// A container beside each instance that serves metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Exporter {
    /// The image of Prometheus' mysqld_exporter.
    #[serde(default = "default_exporter")]
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// The resources of its container, as in a Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "operands::pod::any_object")]
    pub resources: Option<Value>,
}

impl Default for Tls {
    fn default() -> Self {
        Self { renewal: default_renewal() }
    }
}

/// The schema of settings: texts, and numbers as people write them.
fn settings(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 128,
        "additionalProperties": {
            "x-kubernetes-int-or-string": true,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "maxLength": 1024,
        },
    })
}

fn default_port() -> i32 {
    3_306
}

fn default_replicas() -> i32 {
    3
}

fn default_storage() -> String {
    "8Gi".to_owned()
}

fn default_image() -> String {
    IMAGE.to_owned()
}

fn default_exporter() -> String {
    EXPORTER.to_owned()
}

pub(crate) fn default_alone_after() -> String {
    "1m".to_owned()
}

pub(crate) fn default_failover_after() -> String {
    "5s".to_owned()
}

fn default_renewal() -> String {
    "1440h".to_owned()
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt;

    use super::*;

    #[test]
    fn the_users_manifest_is_read_as_it_stands() {
        let cluster = crate::testkit::users();
        let spec = &cluster.spec;
        assert_eq!((spec.secret.as_str(), spec.port, spec.replicas), ("my-secret", 3_306, 2));
        assert_eq!(spec.from_backup.as_deref(), Some("my-backup-2017-12-14-01-22"));
        assert_eq!((spec.storage.as_str(), spec.image.as_str()), ("1Gi", "mysql:latest"));
        assert_eq!((spec.when_alone, &*spec.failover_after), (WhenAlone::Block, "5s"));
        let crd = MySQLCluster::crd();
        assert_eq!(crd.metadata.name.unwrap(), "mysqlclusters.cr.mysqloperator.grtl.github.com");
    }

    #[test]
    fn every_text_and_number_of_the_spec_has_a_bound() {
        let crd = serde_json::to_value(MySQLCluster::crd()).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let fields = schema["properties"]["spec"]["properties"].as_object().unwrap();
        assert_eq!(schema["properties"]["spec"]["required"], json!(["secret"]));
        for (name, field) in fields {
            let bounds: &[&str] = match field["type"].as_str() {
                Some("string") => &["maxLength", "enum"],
                Some("integer") => &["maximum"],
                Some("array") => &["maxItems"],
                _ => continue,
            };
            assert!(bounds.iter().any(|bound| field.get(bound).is_some()), "{name}: {field}");
        }
    }
}
