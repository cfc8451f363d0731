//! The container that a member's process runs in.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The container whose first process a member is. What it takes to name one, and why a process that is in
/// doubt names none, is in `src/container.rs`.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct MemberContainer {
    /// The uid of its Pod.
    #[serde(rename = "podUID")]
    #[schemars(length(min = 1, max = 63))]
    pub pod_uid: String,
    /// The container's name in the Pod, the same in each of its instances.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The start of the machine, as its kernel names it.
    #[serde(rename = "bootID")]
    #[schemars(length(min = 1, max = 63))]
    pub boot_id: String,
    /// Names this instance of the container. It is in the file from which the kubelet takes the message of
    /// the container's termination, and in no other.
    #[schemars(length(min = 1, max = 63))]
    pub token: String,
    /// The file of the Pod on which the process holds a lock until it ends, as device and number; absent if
    /// it has none.
    #[serde(rename = "lockID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", length(min = 1, max = 63))]
    pub lock_id: Option<String>,
}
