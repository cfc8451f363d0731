//! The whole fleet as the home cluster tells it, for `leasehold status`. Reads, never writes.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use model::{Epoch, MemberId, ShardId};
use serde::Serialize;

use crate::api::{DownCluster, Member, MemberState, Phase, ShardMap};
use crate::lease;

/// Everything `leasehold status` shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fleet {
    /// The member that coordinates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coordinator: Option<MemberId>,
    /// All members that have a Member object, dead ones included until they are collected.
    pub members: Vec<FleetMember>,
    /// All shards, by cluster.
    pub shards: Vec<FleetShard>,
}

/// One member of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetMember {
    /// The incarnation.
    pub member: MemberId,
    /// The process.
    pub identity: String,
    /// What it asks for.
    pub state: MemberState,
    /// Whether it was asked to be drained.
    pub drain: bool,
    /// How its Lease stands.
    pub lease: LeaseStanding,
    /// When it last renewed its Lease, by its own wall clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewed: Option<Timestamp>,
    /// Whether it coordinates.
    pub coordinator: bool,
    /// How much it can carry.
    pub capacity: u32,
    /// The version of the protocol it speaks.
    pub protocol_version: u32,
    /// How many shards name it as owner.
    pub shards: u32,
    /// Milliseconds of work in each second, by its own word.
    pub busy: u32,
    /// The clusters it has no client for, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub down_clusters: Vec<DownCluster>,
}

/// How a member's Lease stands, without a clock: a Lease that ran out shows as held until the
/// coordinator takes it, which it does within the Lease's duration and margin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum LeaseStanding {
    /// Held by the member.
    Held,
    /// Given back by the member.
    Released,
    /// Ran out and was taken: the member is dead.
    Taken,
    /// There is no such Lease.
    Absent,
}

/// One shard of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetShard {
    /// The shard.
    pub shard: ShardId,
    /// Who owns it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<MemberId>,
    /// The epoch of its owner.
    pub epoch: Epoch,
    /// Its phase.
    pub phase: Phase,
    /// Who gets it next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<MemberId>,
}

/// The home cluster could not be read.
#[derive(Debug, thiserror::Error)]
#[error("list {what} in namespace {namespace} of the home cluster")]
pub struct ReadError {
    what: &'static str,
    namespace: String,
    #[source]
    source: Box<kube::Error>,
}

/// The objects of one fleet, as the home cluster has them.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// The Leases of members, and the coordinator's.
    pub leases: Vec<Lease>,
    /// The Members.
    pub members: Vec<Member>,
    /// The ShardMaps.
    pub maps: Vec<ShardMap>,
}

/// Reads the fleet from the home cluster.
///
/// # Errors
/// A list that the home cluster refused or did not answer.
pub async fn read(client: Client, namespace: &str) -> Result<Fleet, ReadError> {
    Ok(assemble(&list(client, namespace).await?))
}

/// Reads the objects of a fleet from the home cluster.
///
/// # Errors
/// A list that the home cluster refused or did not answer.
pub async fn list(client: Client, namespace: &str) -> Result<Objects, ReadError> {
    let failed = |what| {
        move |source| ReadError { what, namespace: namespace.to_owned(), source: Box::new(source) }
    };
    let all = ListParams::default();
    let managed = ListParams::default().labels(&lease::selector());
    let (leases, members, maps) = (
        Api::<Lease>::namespaced(client.clone(), namespace),
        Api::<Member>::namespaced(client.clone(), namespace),
        Api::<ShardMap>::namespaced(client, namespace),
    );
    let (leases, members, maps) =
        tokio::join!(leases.list(&managed), members.list(&all), maps.list(&all));
    Ok(Objects {
        leases: leases.map_err(failed("leases"))?.items,
        members: members.map_err(failed("members"))?.items,
        maps: maps.map_err(failed("shardmaps"))?.items,
    })
}

/// Joins the three kinds into one picture.
pub fn assemble(objects: &Objects) -> Fleet {
    let leases: BTreeMap<String, &Lease> =
        objects.leases.iter().map(|lease| (lease.name_any(), lease)).collect();
    let coordinator = leases
        .get(lease::COORDINATOR)
        .and_then(|lease| lease.spec.as_ref()?.holder_identity.as_ref()?.parse().ok());
    let mut shards: Vec<FleetShard> = objects.maps.iter().flat_map(shards_of).collect();
    shards.sort_by(|a, b| a.shard.cmp(&b.shard));
    let mut owned: BTreeMap<&MemberId, u32> = BTreeMap::new();
    for owner in shards.iter().filter_map(|shard| shard.owner.as_ref()) {
        *owned.entry(owner).or_default() += 1;
    }
    let member = |member: &Member| {
        let id: MemberId = member.name_any().parse().ok()?;
        let lease = leases.get(&lease::member_lease_name(&id)).copied();
        Some(FleetMember {
            identity: member.spec.identity.clone(),
            state: member.spec.state,
            drain: member.spec.drain,
            lease: standing(&id, lease),
            renewed: lease.and_then(|l| Some(l.spec.as_ref()?.renew_time.as_ref()?.0)),
            coordinator: coordinator.as_ref() == Some(&id),
            capacity: member.spec.capacity,
            protocol_version: member.spec.protocol_version,
            shards: owned.get(&id).copied().unwrap_or(0),
            busy: member.spec.busy,
            down_clusters: member.spec.down_clusters.clone(),
            member: id,
        })
    };
    let members = objects.members.iter().filter_map(member).collect();
    Fleet { coordinator, members, shards }
}

fn shards_of(map: &ShardMap) -> Vec<FleetShard> {
    let Ok(cluster) = map.name_any().parse() else { return Vec::new() };
    map.spec
        .shards
        .iter()
        .map(|entry| FleetShard {
            shard: entry.shard.in_cluster(&cluster),
            owner: entry.owner.clone(),
            epoch: entry.epoch,
            phase: entry.phase,
            target: entry.target.clone(),
        })
        .collect()
}

fn standing(member: &MemberId, lease: Option<&Lease>) -> LeaseStanding {
    let Some(lease) = lease else { return LeaseStanding::Absent };
    match lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()) {
        None | Some("") => LeaseStanding::Released,
        Some(holder) if holder == member.as_str() => LeaseStanding::Held,
        Some(_) => LeaseStanding::Taken,
    }
}
