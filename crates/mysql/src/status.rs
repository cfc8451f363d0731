//! What the controller records of a MySQLCluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::memory::Memory;

/// What the controller last found and did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MySQLClusterStatus {
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// In one word what happens now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The instance that takes writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<String>,
    /// How many instances serve, of how many wanted, as `2/3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// The lowest version that an instance runs, as its server says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// When the passwords in use of the controller's accounts came into use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passwords_rotated: Option<String>,
    /// What must be known of the past to promote an instance. Do not change it.
    #[serde(default)]
    pub replication: Memory,
    /// The instances, in order of their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 9))]
    pub instances: Vec<InstanceStatus>,
    /// `Available`, `Progressing`, `Degraded` and `SpecValid`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "sdk::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// An instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceStatus {
    /// Its name, which is that of its Pod.
    pub name: String,
    /// What it is now.
    #[serde(default)]
    pub role: InstanceRole,
    /// Whether it serves: writes if it is the primary, else reads.
    #[serde(default)]
    pub is_ready: bool,
    /// Whether commits may wait for its acknowledgement, and it may take over.
    #[serde(default)]
    pub is_member: bool,
    /// The version it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Why it does not serve, or does not replicate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

impl InstanceStatus {
    /// Whether it follows the primary.
    pub(crate) fn is_replica(&self) -> bool {
        self.role == InstanceRole::Replica
    }
}

/// What an instance is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InstanceRole {
    /// Neither: it starts, joins, or is lost.
    #[default]
    None,
    /// It takes writes.
    Primary,
    /// It follows the primary.
    Replica,
}
