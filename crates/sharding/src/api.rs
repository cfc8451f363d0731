//! The custom resources of the home cluster: [`ShardMap`] and [`Member`], both namespaced.
//!
//! Neither has a status subresource: a ShardMap is written by the coordinator alone and a Member
//! by its own process alone, and each of their changes must be one write.
//!
//! ```text
//! $ kubectl get shardmaps                              $ kubectl get members
//! NAME   SHARDS  OWNED  DRAINING  UNOWNED  OWNERS      NAME             STATE   SHARDS  ...
//! east   2       2      0         0        replica-0…  replica-0-x7k2p  active  2
//! ```

mod path;

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResource, CustomResourceExt};
use model::{
    ClusterName, ClusterSet, ClusterState, Epoch, GroupName, GroupScope, GroupTraits, MemberId,
    ShardId,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::protocol::{self, Versions};

pub use path::{InvalidShardPath, ShardPath};

/// How much a member can carry unless it says otherwise.
pub const DEFAULT_CAPACITY: u32 = 100;
/// The label on every object of ours in the home cluster.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "leasehold");
/// The most shards of one cluster: keeps a ShardMap below 64 KiB.
pub const MAX_SHARDS: usize = 256;
/// The most down clusters that a Member tells of; [`MAX_DOWN_BYTES`] bounds them too.
pub const MAX_DOWN_CLUSTERS: usize = 64;
/// How much of a Member they take at most, in bytes.
pub const MAX_DOWN_BYTES: usize = 6 * 1024;
/// The most shards whose load a Member tells; [`crate::load::MAX_LOAD_BYTES`] bounds them too.
pub const MAX_LOADS: usize = 1024;
/// The longest reason that a Member tells, in characters.
pub const MAX_REASON_CHARS: usize = 1024;

/// Who holds the shards of one workload cluster. The object is named after the cluster.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "leasehold.dev",
    version = "v1alpha1",
    kind = "ShardMap",
    namespaced,
    derive = "PartialEq",
    doc = "Who holds the shards of one workload cluster. Written by the coordinator only.",
    printcolumn = r#"{"name":"Shards","type":"integer","jsonPath":".spec.summary.shards"}"#,
    printcolumn = r#"{"name":"Owned","type":"integer","jsonPath":".spec.summary.owned"}"#,
    printcolumn = r#"{"name":"Draining","type":"integer","jsonPath":".spec.summary.draining"}"#,
    printcolumn = r#"{"name":"Unowned","type":"integer","jsonPath":".spec.summary.unowned"}"#,
    printcolumn = r#"{"name":"Owners","type":"string","jsonPath":".spec.summary.owners"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ShardMapSpec {
    /// Every shard of the cluster, one entry each.
    #[schemars(
        length(max = 256),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["shard"])
    )]
    pub shards: Vec<ShardEntry>,
    /// The highest epoch of any shard that was removed from this map; new shards start from it.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 0))]
    pub epoch_floor: Epoch,
    /// The version of the sharding protocol it is written in; absent for the first. Who does not
    /// speak it acts on none of the shards and replaces nothing.
    #[serde(default = "first_version", skip_serializing_if = "is_first_version")]
    #[schemars(with = "i32", range(min = 1))]
    pub protocol_version: u32,
    /// The entries counted, for `kubectl get`. Decides nothing.
    #[serde(default)]
    pub summary: Summary,
}

/// One shard of the cluster and who holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShardEntry {
    /// Which shard: `group/i/n`.
    #[schemars(with = "String", length(min = 5, max = 80))]
    pub shard: ShardPath,
    /// Counts the owners so far; the epoch of the present owner, or of the last one.
    #[schemars(with = "i64", range(min = 0))]
    pub epoch: Epoch,
    /// Where in its life the entry stands.
    pub phase: Phase,
    /// The member that owns it. Absent exactly when `Unowned`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", length(min = 1, max = 63))]
    pub owner: Option<MemberId>,
    /// The member that gets it when `owner` has drained. Only when `Draining`, and not even then
    /// when nobody is to get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", length(min = 1, max = 63))]
    pub target: Option<MemberId>,
}

/// The phase of a [`ShardEntry`]; the transitions are in [`crate::handover`].
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum Phase {
    /// Nobody may act.
    Unowned,
    /// `owner` may act while its Lease is valid.
    Owned,
    /// `owner` starts nothing new and acknowledges when all has ended; then `target` gets it.
    Draining,
}

/// A [`ShardMap`] counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// All shards.
    #[schemars(with = "i32", range(min = 0))]
    pub shards: u32,
    /// Those in phase `Owned`.
    #[schemars(with = "i32", range(min = 0))]
    pub owned: u32,
    /// Those in phase `Draining`.
    #[schemars(with = "i32", range(min = 0))]
    pub draining: u32,
    /// Those in phase `Unowned`.
    #[schemars(with = "i32", range(min = 0))]
    pub unowned: u32,
    /// The owners and how many shards each has, the largest first.
    pub owners: String,
}

/// One incarnation of a manager process. The object is named after the member.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "leasehold.dev",
    version = "v1alpha1",
    kind = "Member",
    namespaced,
    derive = "PartialEq",
    doc = "One incarnation of a manager process. Written by that process only; whether it is alive is told by its Lease, leasehold-member-<name>.",
    printcolumn = r#"{"name":"Identity","type":"string","jsonPath":".spec.identity"}"#,
    printcolumn = r#"{"name":"State","type":"string","jsonPath":".spec.state"}"#,
    printcolumn = r#"{"name":"Shards","type":"integer","jsonPath":".spec.shards"}"#,
    printcolumn = r#"{"name":"Busy (ms/s)","type":"integer","jsonPath":".spec.busy"}"#,
    printcolumn = r#"{"name":"Capacity","type":"integer","jsonPath":".spec.capacity"}"#,
    printcolumn = r#"{"name":"Protocol","type":"integer","jsonPath":".spec.protocolVersion"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct MemberSpec {
    /// The identity of the process, the same in each of its incarnations: its pod's name.
    #[schemars(length(min = 1, max = 63))]
    pub identity: String,
    /// What the member asks for.
    pub state: MemberState,
    /// How much it can carry, relative to the others.
    #[schemars(with = "i32", range(min = 1, max = 1000))]
    pub capacity: u32,
    /// The newest version of the sharding protocol that it speaks.
    #[schemars(with = "i32", range(min = 1))]
    pub protocol_version: u32,
    /// The oldest version that it speaks; absent if that is the newest too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 1))]
    pub oldest_protocol_version: Option<u32>,
    /// The controller groups it can run. It gets shards of no other.
    #[schemars(with = "Vec<String>", length(max = 64))]
    pub groups: Vec<GroupName>,
    /// What is particular about some of them. The others may be divided by object and share no kind
    /// with another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub group_details: Vec<GroupDetail>,
    /// How many shards it holds; refreshed seldom, decides nothing.
    #[serde(default)]
    #[schemars(with = "i32", range(min = 0))]
    pub shards: u32,
    /// The drains it has finished and the coordinator has not yet acted on.
    #[serde(default)]
    #[schemars(length(max = 65536))]
    pub acknowledged_drains: Vec<AcknowledgedDrain>,
    /// Somebody asked, by `leasehold drain`, that it be given nothing and lose what it has. The one
    /// field that others write; the member keeps it in each of its incarnations.
    #[serde(default, skip_serializing_if = "is_false")]
    pub drain: bool,
    /// Milliseconds of work in each second, over all its shards and workers: smoothed, told anew
    /// only when it changed by a fifth, and zero below a hundredth of a worker.
    #[serde(default)]
    #[schemars(with = "i32", range(min = 0))]
    pub busy: u32,
    /// What its shards cost it: those whose load is worth telling, the costliest
    /// [`MAX_LOADS`] of them. Rewritten seldom, and only when something changed by a fifth.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub loads: Vec<ShardLoad>,
    /// The clusters it has no client for, those that fail it and those that lack a kind which one of
    /// its controllers needs, the first [`MAX_DOWN_CLUSTERS`].
    /// Decides nothing: it tells whoever asks for the fleet's status what to repair.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub down_clusters: Vec<DownCluster>,
}

/// What a shard costs the member that holds it, smoothed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShardLoad {
    /// The shard: `cluster/group/i/n`.
    #[schemars(with = "String", length(min = 7, max = 160))]
    pub shard: ShardId,
    /// Milliseconds of work in each second, summed over all workers.
    #[serde(default)]
    #[schemars(with = "i32", range(min = 0))]
    pub busy: u32,
    /// Watch events in each thousand seconds.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 0))]
    pub events: u64,
    /// What the cache holds for it, in KiB.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 0))]
    pub cached: u64,
}

/// What is particular about a controller group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupDetail {
    /// The group.
    #[schemars(with = "String", length(min = 1, max = 63))]
    pub group: GroupName,
    /// How far its work may be divided.
    #[serde(default)]
    #[schemars(with = "String", extend("enum" = ["Object", "Cluster", "Fleet"]))]
    pub scope: GroupScope,
    /// The kinds that it watches and some other group of this member does too, as `group/Kind`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub shared_kinds: Vec<String>,
}

/// A cluster that a member has no client for, or that has failed it for a while, or has lacked a kind
/// that one of its controllers needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DownCluster {
    /// The cluster.
    #[schemars(with = "String", length(min = 1, max = 63))]
    pub cluster: ClusterName,
    /// What is wrong with its kubeconfig and how to repair it, or how it fails; cut to
    /// [`MAX_REASON_CHARS`].
    #[schemars(length(max = 1024))]
    pub reason: String,
}

/// What a member asks for.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum MemberState {
    /// It does not see the ShardMaps yet: give it nothing.
    Joining,
    /// Give it shards.
    Active,
    /// Take its shards away: it is about to exit.
    Leaving,
}

/// "Nothing of this shard at this epoch is queued, delayed or in flight any more, and nothing ever
/// will be."
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct AcknowledgedDrain {
    /// The shard: `cluster/group/i/n`.
    #[schemars(with = "String", length(min = 7, max = 160))]
    pub shard: ShardId,
    /// The epoch it was owned at.
    #[schemars(with = "i64", range(min = 0))]
    pub epoch: Epoch,
}

/// The definitions of both kinds, to be installed in the home cluster.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![ShardMap::crd(), Member::crd()]
}

// Serde hands over references.
#[expect(clippy::trivially_copy_pass_by_ref)]
fn is_false(flag: &bool) -> bool {
    !flag
}

fn first_version() -> u32 {
    protocol::FIRST
}

#[expect(clippy::trivially_copy_pass_by_ref)]
fn is_first_version(version: &u32) -> bool {
    *version == protocol::FIRST
}

// === impl MemberSpec ===

impl MemberSpec {
    /// An active member of usual capacity that can run these groups, holds nothing and tells nothing.
    pub fn new(identity: &str, groups: Vec<GroupName>) -> Self {
        Self {
            identity: identity.to_owned(),
            state: MemberState::Active,
            capacity: DEFAULT_CAPACITY,
            protocol_version: Versions::SPOKEN.newest,
            oldest_protocol_version: Versions::SPOKEN.told_oldest(),
            groups,
            group_details: Vec::new(),
            shards: 0,
            acknowledged_drains: Vec::new(),
            drain: false,
            busy: 0,
            loads: Vec::new(),
            down_clusters: Vec::new(),
        }
    }

    /// The versions of the protocol it speaks.
    pub fn versions(&self) -> Versions {
        let newest = self.protocol_version;
        Versions { oldest: self.oldest_protocol_version.unwrap_or(newest).min(newest), newest }
    }
}

// === impl DownCluster ===

impl DownCluster {
    /// A cluster and what is wrong with it, as far as there is room for that.
    pub fn new(cluster: &ClusterName, reason: &str) -> Self {
        let reason = reason.chars().take(MAX_REASON_CHARS).collect();
        Self { cluster: cluster.clone(), reason }
    }

    /// The clusters in `set` that there is no client for.
    pub fn all_of(set: &ClusterSet) -> Vec<Self> {
        let down = set.clusters.iter().filter_map(|(cluster, state)| match state {
            ClusterState::Down(reason) => Some(Self::new(cluster, reason)),
            ClusterState::Engaged(_) => None,
        });
        down.collect()
    }

    /// What of these a Member has room for: the first of them.
    pub fn that_fit(all: impl Iterator<Item = Self>) -> Vec<Self> {
        let mut bytes = 0;
        let room = |down: &Self| {
            bytes += "{\"cluster\":\"\",\"reason\":\"\"},".len();
            bytes += down.cluster.as_str().len() + down.reason.len();
            bytes <= MAX_DOWN_BYTES
        };
        all.take(MAX_DOWN_CLUSTERS).take_while(room).collect()
    }
}

// === impl GroupDetail ===

impl GroupDetail {
    /// What a Member tells of its groups.
    pub fn all_of(traits: &BTreeMap<GroupName, GroupTraits>) -> Vec<Self> {
        let is_shared = |kind: &&String| {
            traits.values().filter(|traits| traits.kinds.contains(kind.as_str())).count() > 1
        };
        let details = traits.iter().map(|(group, traits)| Self {
            group: group.clone(),
            scope: traits.scope,
            shared_kinds: traits.kinds.iter().filter(is_shared).take(64).cloned().collect(),
        });
        details.filter(|d| d.scope != GroupScope::Object || !d.shared_kinds.is_empty()).collect()
    }
}

// === impl MemberState ===

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Joining => "joining",
            Self::Active => "active",
            Self::Leaving => "leaving",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kubernetes knows no unsigned formats and warns of them at each apply.
    #[test]
    fn schemas_use_formats_that_kubernetes_knows() {
        for crd in crds() {
            let text = serde_json::to_string(&crd).unwrap();
            assert!(!text.contains("\"uint"), "{text}");
        }
    }

    #[test]
    fn shards_merge_by_name_and_are_bounded() {
        let crd = serde_json::to_value(ShardMap::crd()).unwrap();
        let version = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let shards = &version["properties"]["spec"]["properties"]["shards"];
        assert_eq!(shards["x-kubernetes-list-type"], "map");
        assert_eq!(shards["x-kubernetes-list-map-keys"][0], "shard");
        assert_eq!(shards["maxItems"], MAX_SHARDS);
    }

    #[test]
    fn a_member_tells_of_its_groups_only_what_is_particular() {
        let traits = |scope, kinds: &[&str]| GroupTraits {
            scope,
            kinds: kinds.iter().map(|&kind| kind.to_owned()).collect(),
        };
        let groups = BTreeMap::from([
            ("a".parse().unwrap(), traits(GroupScope::Object, &["/Pod", "/Secret"])),
            ("b".parse().unwrap(), traits(GroupScope::Object, &["/Node", "/Pod"])),
            ("c".parse().unwrap(), traits(GroupScope::Fleet, &["apps/Deployment"])),
            ("d".parse().unwrap(), traits(GroupScope::Object, &["/Service"])),
        ]);
        assert_eq!(
            serde_json::to_value(GroupDetail::all_of(&groups)).unwrap(),
            serde_json::json!([
                { "group": "a", "scope": "Object", "sharedKinds": ["/Pod"] },
                { "group": "b", "scope": "Object", "sharedKinds": ["/Pod"] },
                { "group": "c", "scope": "Fleet" },
            ])
        );
    }
}
