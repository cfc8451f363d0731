//! [`FleetPolicy`]: what people want of a fleet, beyond what its members and loads say.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use kube::CustomResource;

/// What people want of shards and members. Written by people, with kubectl or `leasehold pause`, `pin` and
/// the like; read by every member, and followed by the coordinator.
///
/// Where several policies say something about the same shard or member: it is paused if one of them pauses it,
/// a member must please all pins and all avoidances. Of two numbers for a member, the one counts whose policy is
/// more precise: one with its whole name, then one with its beginning, then one for its zone, then one for all.
/// Else that counts whose policy comes last in the alphabet.
#[derive(
    CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "leasehold.dev",
    version = "v1alpha1",
    kind = "FleetPolicy",
    plural = "fleetpolicies",
    namespaced,
    derive = "PartialEq",
    doc = "What people want of the shards and members of a fleet: pauses, pins, weights, limits.",
    printcolumn = r#"{"name":"Pause","type":"boolean","jsonPath":".spec.pause"}"#,
    printcolumn = r#"{"name":"Clusters","type":"string","jsonPath":".spec.shards.clusters"}"#,
    printcolumn = r#"{"name":"Groups","type":"string","jsonPath":".spec.shards.groups"}"#,
    printcolumn = r#"{"name":"Names","type":"string","jsonPath":".spec.shards.names"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".spec.reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = json!([
    {
        "rule": "has(self.pause) || has(self.pin) || has(self.avoid) || has(self.busy) || has(self.members) || has(self.moves)",
        "message": "a policy must say something: pause, pin, avoid, busy, members or moves",
    },
    {
        "rule": "!has(self.shards) || has(self.pause) || has(self.pin) || has(self.avoid) || has(self.busy)",
        "message": "shards are selected for pause, pin, avoid and busy: say one of them",
    },
    {
        "rule": "!has(self.busy) || has(self.shards)",
        "message": "busy is of each of the selected shards: say which, under shards",
    },
])))]
pub struct FleetPolicySpec {
    /// The shards that `pause`, `pin`, `avoid` and `busy` are about; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<ShardSelector>,
    /// Nobody works on these shards: their owners drain them, and nobody gets them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<bool>,
    /// These shards go to these members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<MemberPreference>,
    /// These shards do not go to these members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub avoid: Option<MemberPreference>,
    /// Each of these shards counts as if its work took that many milliseconds in each second, whatever is
    /// measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 0, max = 100_000))]
    pub busy: Option<u32>,
    /// What some members may carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<MemberRule>,
    /// How many shards may move at a time, where nothing fails: to balance the fleet, to empty a cordoned member,
    /// and because of pins, avoidances and most shards that are not strict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<MoveLimits>,
    /// Why, for people: `leasehold policies` shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub reason: Option<String>,
}

/// Selects shards: those in one of the clusters and of one of the groups, or named. What is absent selects
/// nothing by itself; clusters without groups are all groups of them, and groups without clusters are those of
/// all clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = json!([{
    "rule": "has(self.clusters) || has(self.groups) || has(self.names)",
    "message": "select shards by clusters, groups or names; leave `shards` out to select all",
}])))]
pub struct ShardSelector {
    /// Names of clusters, as `leasehold status` shows them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(min = 1, max = 64),
        inner(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"))
    )]
    pub clusters: Vec<String>,
    /// Controller groups, as `leasehold status` shows them: the second part of a shard's name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(min = 1, max = 64),
        inner(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"))
    )]
    pub groups: Vec<String>,
    /// Shards, as `leasehold status` shows them: `cluster/group/i/n`. Halves of a shard that was split
    /// meanwhile, and the whole into which it was merged, are meant too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(min = 1, max = 64),
        inner(
            length(min = 7, max = 160),
            regex(pattern = r"^[a-z0-9.-]+/[a-z0-9.-]+/[0-9]+/[0-9]+$")
        )
    )]
    pub names: Vec<String>,
}

/// Selects members by name and by zone; where both are given, both must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberSelector {
    /// Identities of replicas, which are names of Pods. A `*` at the end stands for whatever follows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(min = 1, max = 64),
        inner(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9.-]*\*?$"))
    )]
    pub names: Vec<String>,
    /// Zones, as the replicas' configurations name them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 63)))]
    pub zones: Vec<String>,
}

/// Members that are better or worse for some shards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = json!([{
    "rule": "has(self.names) || has(self.zones)",
    "message": "select members by names or zones",
}])))]
pub struct MemberPreference {
    /// Which members.
    #[serde(flatten)]
    pub select: MemberSelector,
    /// Whether a shard rather waits without an owner than go elsewhere. Otherwise it goes elsewhere while
    /// no such member can take it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
}

/// What some members may carry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = json!([{
    "rule": "has(self.capacity) || has(self.maxShards) || has(self.cordon)",
    "message": "say what holds for these members: capacity, maxShards or cordon",
}])))]
pub struct MemberRule {
    /// Which members; by default all.
    #[serde(flatten)]
    pub select: MemberSelector,
    /// How much each of them can carry, in place of what its configuration says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 1, max = 1000))]
    pub capacity: Option<u32>,
    /// How many shards each of them has at most. Shards for which no member has a place wait without an
    /// owner; those that it has already stay until another member has a place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 0, max = 1_000_000))]
    pub max_shards: Option<u32>,
    /// They get no shards and hand over those they have, as with `leasehold drain`, but after a restart too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordon: Option<bool>,
}

/// How many shards may move at a time. With 0, none does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MoveLimits {
    /// From and to one member; by default 8, or a two-hundredth of what a member has, if that is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 0, max = 1000))]
    pub per_member: Option<u32>,
    /// In the fleet; by default 64, or a fiftieth of what a member has, if that is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 0, max = 10_000))]
    pub in_fleet: Option<u32>,
}
