//! What must be known of the past to promote an instance: part of the status. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the controller knows of the replication. It is written before the step that relies on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// Rises when a manager begins with this cluster, so that a status that its predecessor sent late is
    /// refused: the object has changed.
    #[serde(default)]
    pub reign: i64,
    /// Rises with each change of the primary.
    #[serde(default)]
    pub term: i64,
    /// The instance that may take writes; nobody while one is chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<String>,
    /// While nobody is primary: who was last. It has all that was acknowledged, and the others may not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<String>,
    /// How many members have acknowledged each commit of which a client was told. Never more than the
    /// primary certainly waits for.
    #[serde(default)]
    #[schemars(with = "i32", range(min = 0, max = 8))]
    pub acks: u32,
    /// The instances that may acknowledge a commit or take over, the primary among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 9))]
    pub members: Vec<Member>,
}

/// An instance that may acknowledge a commit or take over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// The instance: the name of its Pod.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its `server_uuid`. A volume that was lost comes back with another.
    #[schemars(length(max = 36))]
    pub uuid: String,
}
