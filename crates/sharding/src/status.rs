//! The status of one member, for `/debug/shards` and `/readyz`.

use model::{Epoch, MemberId, ShardId};
use serde::Serialize;

use crate::api::MemberState;

/// The status of one member, as it sees itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The present incarnation.
    pub member: MemberId,
    /// Whether it wants shards.
    pub state: MemberState,
    /// Whether it has read all Leases, Members and ShardMaps of the home cluster.
    pub synced: bool,
    /// Seconds since the last successful renewal was sent; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_age_seconds: Option<f64>,
    /// Seconds for which this member may still act; 0 if it is fenced.
    pub lease_valid_seconds: f64,
    /// The coordinator, as far as this member knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coordinator: Option<MemberId>,
    /// Whether that is this member.
    pub is_coordinator: bool,
    /// The shards this member holds.
    pub shards: Vec<HeldShard>,
    /// How many shards of the fleet have no owner.
    pub unowned: u32,
    /// The clusters under whose name this member does nothing: each is another cluster than the fleet's of
    /// that name, or has another name. With both names, cause and fix.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused_clusters: Vec<String>,
    /// Why this member cannot do its part, if it cannot: it does not speak the fleet's version of the protocol,
    /// it is of another installation, its clusters differ by more than it can say, or requests to the home cluster
    /// fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hindrance: Option<String>,
    /// The present problems, each with object, cause and fix: what hinders this member, objects in the home
    /// cluster that are damaged, and what it noticed as coordinator.
    pub problems: Vec<String>,
}

/// One shard that this member holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldShard {
    /// The shard.
    pub shard: ShardId,
    /// Its epoch.
    pub epoch: Epoch,
    /// `warming`, `active` or `draining`.
    pub hold: &'static str,
    /// Whether nobody is served: this member does not have the cluster configured, or fails to reach it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unserved: bool,
}
