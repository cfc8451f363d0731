//! What one member says of itself, for `/debug/shards` and `/readyz`.

use model::{Epoch, MemberId, ShardId};
use serde::Serialize;

use crate::api::MemberState;

/// One member's own view.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The present incarnation.
    pub member: MemberId,
    /// What it asks for.
    pub state: MemberState,
    /// Whether Leases, Members and ShardMaps of the home cluster were all read.
    pub synced: bool,
    /// Seconds since the last successful renewal was sent; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_age_seconds: Option<f64>,
    /// Seconds for which this member may still act; 0 when fenced.
    pub lease_valid_seconds: f64,
    /// The coordinator, as far as this member knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coordinator: Option<MemberId>,
    /// Whether that is this member.
    pub is_coordinator: bool,
    /// The shards this member holds.
    pub shards: Vec<HeldShard>,
    /// How many shards of the fleet nobody holds.
    pub unowned: u32,
    /// What goes wrong at present, with object, cause and fix: that this member does not speak the
    /// fleet's version of the protocol, what fails with the home cluster, what was damaged there.
    pub problems: Vec<String>,
}

/// One shard as held by this member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldShard {
    /// The shard.
    pub shard: ShardId,
    /// The epoch it is held at.
    pub epoch: Epoch,
    /// `warming`, `active` or `draining`.
    pub hold: &'static str,
}
