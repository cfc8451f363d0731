//! The custom resources of the home cluster: [`ShardMap`], [`Member`] and [`FleetPolicy`], all namespaced.
//!
//! None has a status subresource. Only the coordinator writes ShardMaps and only its own process writes a
//! Member, and each of their changes must be one write. People write FleetPolicies.
//!
//! ```text
//! $ kubectl get shardmaps                              $ kubectl get members
//! NAME   SHARDS  OWNED  DRAINING  UNOWNED  OWNERS      NAME             STATE   SHARDS  ...
//! east   2       2      0         0        replica-0…  replica-0-x7k2p  active  2
//! ```

mod clusters;
mod container;
mod group;
mod loads;
mod moved;
mod path;
mod policy;
mod shared;
mod version;

use std::fmt;
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResource, CustomResourceExt};
use model::{
    ClusterName, ClusterSet, ClusterState, ClusterUid, Epoch, GroupName, MemberId, ShardId,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::versions::{self, ProtocolVersions};

pub use clusters::ConfiguredClusters;
#[cfg(test)]
pub(crate) use clusters::MAX_NAMED_BYTES;
pub(crate) use clusters::{MAX_NAMED, MAX_OPEN, that_fit};
pub use container::MemberContainer;
pub use group::GroupDetail;
pub use loads::{ClusterLoad, LoadSum};
pub(crate) use loads::{MAX_CLUSTER_LOADS, MAX_LOADS};
pub use moved::{MoveCause, Moved, Moves};
pub use path::{InvalidShardPath, ShardPath};
pub use policy::{
    FleetPolicy, FleetPolicySpec, MemberPreference, MemberRule, MemberSelector, MoveLimits,
    ShardSelector,
};
pub use shared::Shared;
pub use version::ObjectVersion;

/// How much a member can carry unless its configuration says otherwise.
pub(crate) const DEFAULT_CAPACITY: u32 = 100;
/// The label on every object that Leasehold makes in the home cluster.
pub(crate) const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "leasehold");
/// The most controller groups of one member.
pub(crate) const MAX_GROUPS: usize = 128;
/// The most shards of one cluster: keeps a ShardMap below 192 KiB.
pub(crate) const MAX_SHARDS: usize = 384;
/// The most down clusters that a Member reports; [`MAX_DOWN_BYTES`] bounds them too.
pub(crate) const MAX_DOWN_CLUSTERS: usize = 64;
/// How much of a Member its down clusters take at most, in bytes.
pub(crate) const MAX_DOWN_BYTES: usize = 6 * 1024;
/// The most earlier instances of its container of which a Member says that they have ended.
pub(crate) const MAX_SUCCEEDED: usize = 16;
/// What names are: `model::name`.
const NAME: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// What a shard is called in its map.
const SHARD: &str =
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[0-9]+/[0-9]+$";
/// The longest reason that a Member reports, in characters.
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
        length(max = MAX_SHARDS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["shard"])
    )]
    pub shards: Vec<ShardEntry>,
    /// The highest epoch of any shard that was removed from this map; new shards start from it.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 0, max = Epoch::MAX.0))]
    pub epoch_floor: Epoch,
    /// The version of the sharding protocol that this map is written in; absent for the first. A
    /// member that does not speak it acts on none of the shards and does not replace the map.
    #[serde(default = "first_version", skip_serializing_if = "is_first_version")]
    #[schemars(with = "i32", range(min = 1))]
    pub protocol_version: u32,
    /// Counts of the entries, for `kubectl get`. No decision depends on them.
    #[serde(default)]
    pub summary: Summary,
}

/// One shard of the cluster and its owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShardEntry {
    /// Which shard: `group/i/n`.
    #[schemars(with = "String", length(min = 5, max = 80), regex(pattern = SHARD))]
    pub shard: ShardPath,
    /// The epoch of the present owner, or of the last one. It rises with each owner.
    #[schemars(with = "i64", range(min = 0, max = Epoch::MAX.0))]
    pub epoch: Epoch,
    /// Whether the shard has an owner, and whether it is being handed over.
    pub phase: Phase,
    /// The member that owns it. Absent exactly when `Unowned`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", length(min = 1, max = 63), regex(pattern = NAME))]
    pub owner: Option<MemberId>,
    /// The member that gets it when `owner` has drained. Only when `Draining`, and absent if nobody
    /// will get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", length(min = 1, max = 63), regex(pattern = NAME))]
    pub target: Option<MemberId>,
    /// Why and when it came to where it is. Absent if an earlier release wrote the map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<Moved>,
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
    /// `owner` starts nothing new and acknowledges when all work has ended; then `target` gets it.
    Draining,
}

/// Counts of a [`ShardMap`].
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
    doc = "One incarnation of a manager process. Written by that process only; its Lease, leasehold-member-<name>, says whether it is alive.",
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
    #[schemars(length(min = 1, max = 63), regex(pattern = NAME))]
    pub identity: String,
    /// Whether the member wants shards.
    pub state: MemberState,
    /// How much it can carry, relative to other members.
    #[schemars(with = "i32", range(min = 1, max = 1000))]
    pub capacity: u32,
    /// The newest version of the sharding protocol that it speaks.
    #[schemars(with = "i32", range(min = 1))]
    pub protocol_version: u32,
    /// The oldest version that it speaks; absent if that is the newest too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 1))]
    pub oldest_protocol_version: Option<u32>,
    /// The controller groups it can run. It gets shards of no other group.
    #[schemars(with = "Vec<String>", length(max = MAX_GROUPS), inner(regex(pattern = NAME)))]
    pub groups: Vec<GroupName>,
    /// Details of some of these groups. The others are of one controller of the same name, may be divided by
    /// object and share no watched kind with another group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_GROUPS))]
    pub group_details: Vec<GroupDetail>,
    /// How many shards it holds. Rarely refreshed; no decision depends on it.
    #[serde(default)]
    #[schemars(with = "i32", range(min = 0))]
    pub shards: u32,
    /// The drains it has finished and that the coordinator has not acted on yet, at most 4096 of them.
    #[serde(default)]
    // A member of an earlier release names more.
    #[schemars(length(max = 65536))]
    pub acknowledged_drains: Vec<AcknowledgedDrain>,
    /// Set by `leasehold drain`: the member gets no shards and hands over those it has. This is the
    /// only field that others write; the process keeps it in each of its incarnations.
    #[serde(default, skip_serializing_if = "is_false")]
    pub drain: bool,
    /// For which clusters its names stand, where the ShardMaps do not say the same: the first 64 of them.
    /// Their coordinator may not have these clusters configured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub named_clusters: Vec<NamedCluster>,
    /// Milliseconds of work in each second, over all its shards and workers. Smoothed, updated only
    /// when it changes by a fifth, and zero below a hundredth of a worker.
    #[serde(default)]
    #[schemars(with = "i32", range(min = 0))]
    pub busy: u32,
    /// The load of its shards: only loads above a small minimum, the highest 1024 of them. Rarely
    /// rewritten, and only when a load changes by a fifth.
    #[serde(default, skip_serializing_if = "Shared::is_empty")]
    #[schemars(with = "Vec<ShardLoad>", length(max = 1024))]
    pub loads: Shared<ShardLoad>,
    /// If `loads` has no room for all of them: the loads of the other shards, summed by cluster, the
    /// highest 256 of them.
    #[serde(default, skip_serializing_if = "Shared::is_empty")]
    #[schemars(with = "Vec<ClusterLoad>", length(max = 256))]
    pub cluster_loads: Shared<ClusterLoad>,
    /// If `clusterLoads` has no room for all of them either: the sum of the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest_load: Option<LoadSum>,
    /// The clusters for which it has no client, those that do not answer it and those that lack a kind
    /// which one of its controllers needs, the first 64 of them.
    /// No decision depends on them: `leasehold status` shows what to repair.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub down_clusters: Vec<DownCluster>,
    /// The clusters that it has configured, and those of them that it fails to reach. It gets shards of no
    /// other cluster. Absent if the member is of an earlier release: then it counts as if it had
    /// configured what the coordinator has, and reached all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clusters: Option<ConfiguredClusters>,
    /// The container of its process, by which others learn of its death before its Lease runs out. Absent
    /// if the process is not certain of it. Written when the Member is created, and never changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<MemberContainer>,
    /// The tokens of instances of the same container that ran before and have ended, as its process knows by
    /// the lock that it holds. Only with `container`; at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub succeeds: Vec<String>,
    /// Set once home was restored from a backup, emptied or replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<HomeHistory>,
    /// The zone in which its process runs, if its configuration says so. FleetPolicies select members by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub zone: Option<String>,
    /// The installation of which it is. What a member of another one than the coordinator's says of groups and
    /// clusters does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub installation: Option<String>,
}

/// What a member knows of changes of home's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HomeHistory {
    /// How often home was restored, emptied or replaced. Who knows of fewer reads home anew.
    #[schemars(with = "i64", range(min = 1))]
    pub changes: u64,
    /// The highest epoch that the member saw before the last change: no owner is named at it or below any
    /// more.
    #[schemars(with = "i64", range(min = 0))]
    pub floor: Epoch,
}

/// The load that a shard puts on the member that holds it, smoothed.
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
    /// How much of `busy` the one object takes that takes most, or a little more. The shard is split
    /// only for the rest: an object cannot be divided. Absent if the member does not measure it: then the
    /// shard is not split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 0))]
    pub heaviest: Option<u32>,
    /// Watch events in each thousand seconds.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 0))]
    pub events: u64,
    /// The size of its objects in the cache, in KiB.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 0))]
    pub cached: u64,
    /// How many milliseconds of work in each second it would take for a minute to do what waits of the initial list,
    /// if the member needs longer.
    #[serde(default, skip_serializing_if = "clusters::is_zero")]
    #[schemars(with = "i32", range(min = 0))]
    pub waiting: u32,
}

/// A cluster for which a member has no client, that has not answered it for a while, or that has lacked
/// a kind for a while which one of its controllers needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DownCluster {
    /// The cluster.
    #[schemars(with = "String", length(min = 1, max = 63))]
    pub cluster: ClusterName,
    /// What is wrong with its kubeconfig and how to repair it, or how its requests fail; at most 1024
    /// characters.
    #[schemars(length(max = 1024))]
    pub reason: String,
}

/// A cluster and a name of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamedCluster {
    /// The name.
    #[schemars(with = "String", length(min = 1, max = 63))]
    pub name: ClusterName,
    /// The cluster: the uid of its namespace `kube-system`.
    #[schemars(with = "String", length(min = 1, max = 63))]
    pub uid: ClusterUid,
}

/// Whether a member wants shards.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum MemberState {
    /// Not yet: it does not see the ShardMaps.
    Joining,
    /// Yes.
    Active,
    /// No, and it hands over those it has: it is about to exit.
    Leaving,
}

/// The promise of an owner that no work of this shard at this epoch is queued, delayed or in flight
/// any more, and that it will start none.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct AcknowledgedDrain {
    /// The shard: `cluster/group/i/n`.
    #[schemars(with = "String", length(min = 7, max = 160))]
    pub shard: ShardId,
    /// The epoch at which the member owned it.
    #[schemars(with = "i64", range(min = 0))]
    pub epoch: Epoch,
}

/// The definitions of all kinds, for the home cluster.
pub fn crds() -> Vec<CustomResourceDefinition> {
    static CRDS: LazyLock<[CustomResourceDefinition; 3]> =
        LazyLock::new(|| [ShardMap::crd(), Member::crd(), FleetPolicy::crd()]);
    CRDS.to_vec()
}

// Serde hands over references.
#[expect(clippy::trivially_copy_pass_by_ref)]
fn is_false(flag: &bool) -> bool {
    !flag
}

fn first_version() -> u32 {
    versions::FIRST
}

#[expect(clippy::trivially_copy_pass_by_ref)]
fn is_first_version(version: &u32) -> bool {
    *version == versions::FIRST
}

// === impl MemberSpec ===

impl MemberSpec {
    /// Whether they say the same, whatever they say of loads, numbers of shards and clusters that are down.
    pub(crate) fn is_same_but_loads(&self, other: &Self) -> bool {
        self.standing() == other.standing() && self.history == other.history
    }

    /// Whether they say the same but for the number of shards and the history of home.
    pub(crate) fn is_same_but_counts(&self, other: &Self) -> bool {
        let Self { busy, loads, cluster_loads, rest_load, down_clusters, .. } = self;
        self.standing() == other.standing()
            && (*busy, loads, cluster_loads) == (other.busy, &other.loads, &other.cluster_loads)
            && *rest_load == other.rest_load
            && *down_clusters == other.down_clusters
    }

    /// What changes rarely.
    fn standing(&self) -> impl PartialEq + '_ {
        #[rustfmt::skip]
        let Self {
            identity, state, capacity, protocol_version, oldest_protocol_version, zone,
            groups, group_details, acknowledged_drains, drain, named_clusters,
            clusters, container, succeeds, installation,
            // The functions above say which of these they compare.
            shards: _, busy: _, loads: _, cluster_loads: _, rest_load: _, down_clusters: _, history: _,
        } = self;
        let process = (identity, state, capacity, protocol_version, oldest_protocol_version, zone);
        let process = (process, installation);
        let work = (groups, group_details, acknowledged_drains, drain, named_clusters);
        (process, work, clusters, container, succeeds)
    }

    /// An active member of usual capacity that can run these groups, holds no shards and reports no
    /// load.
    pub fn new(identity: &str, groups: Vec<GroupName>) -> Self {
        Self {
            identity: identity.to_owned(),
            state: MemberState::Active,
            capacity: DEFAULT_CAPACITY,
            protocol_version: ProtocolVersions::SPOKEN.newest,
            oldest_protocol_version: ProtocolVersions::SPOKEN.reported_oldest(),
            groups,
            group_details: Vec::new(),
            shards: 0,
            acknowledged_drains: Vec::new(),
            drain: false,
            named_clusters: Vec::new(),
            busy: 0,
            loads: Shared::default(),
            cluster_loads: Shared::default(),
            rest_load: None,
            down_clusters: Vec::new(),
            clusters: None,
            container: None,
            succeeds: Vec::new(),
            history: None,
            zone: None,
            installation: None,
        }
    }

    /// The versions of the protocol it speaks.
    pub fn versions(&self) -> ProtocolVersions {
        let newest = self.protocol_version;
        ProtocolVersions {
            oldest: self.oldest_protocol_version.unwrap_or(newest).min(newest),
            newest,
        }
    }
}

// === impl DownCluster ===

impl DownCluster {
    /// A cluster and what is wrong with it, cut to what a Member has room for.
    pub(crate) fn new(cluster: &ClusterName, reason: &str) -> Self {
        let end = reason.char_indices().nth(MAX_REASON_CHARS).map_or(reason.len(), |(end, _)| end);
        Self { cluster: cluster.clone(), reason: reason[..end].to_owned() }
    }

    /// The clusters of `set` that have no client.
    pub(crate) fn all_of(set: &ClusterSet) -> Vec<Self> {
        let down = set.clusters.iter().filter_map(|(cluster, state)| match state {
            ClusterState::Down(reason) => Some(Self::new(cluster, reason)),
            ClusterState::Engaged(_) => None,
        });
        down.collect()
    }

    /// The first of these, as many as a Member has room for.
    pub(crate) fn that_fit(all: impl Iterator<Item = Self>) -> Vec<Self> {
        let mut bytes = 0;
        let room = |down: &Self| {
            bytes += "{\"cluster\":\"\",\"reason\":\"\"},".len();
            bytes += down.cluster.as_str().len() + down.reason.len();
            bytes <= MAX_DOWN_BYTES
        };
        all.take(MAX_DOWN_CLUSTERS).take_while(room).collect()
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
mod tests;
