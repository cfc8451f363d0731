//! The present state of a fleet, read from its home cluster. Never writes.

use std::collections::{BTreeMap, BTreeSet};

use model::{MemberId, ShardId};
use ops::HomeArgs;
use sharding::record::{MapRecord, MemberRecord};

use super::scenario::Scenario;
use crate::cli::home::connect;
use fleet::{Objects, assemble};

/// Reads the live members, the owners of shards, and the loads that owners report.
pub(super) async fn read(home: &HomeArgs) -> anyhow::Result<Scenario> {
    let home = connect(home).await?;
    Ok(scenario(&home.objects().await?, &home.namespace))
}

fn scenario(objects: &Objects, namespace: &str) -> Scenario {
    let fleet = assemble(objects);
    let alive: BTreeSet<&MemberId> = fleet.alive().map(|member| &member.member).collect();
    let owners: BTreeMap<&ShardId, &MemberId> =
        fleet.shards.iter().filter_map(|s| Some((&s.shard, s.owner.as_ref()?))).collect();
    let members: Vec<MemberRecord> = objects
        .members
        .iter()
        .filter_map(MemberRecord::read)
        .filter(|member| alive.contains(&member.id))
        .collect();
    // A load that a former owner reports is outdated.
    let told = members.iter().flat_map(|m| m.spec.loads.iter().map(move |load| (&m.id, load)));
    let loads = told.filter(|(member, load)| owners.get(&load.shard) == Some(member));
    Scenario {
        title: format!("live, of namespace {namespace}"),
        loads: loads.map(|(_, load)| load.clone()).collect(),
        maps: objects.maps.iter().filter_map(MapRecord::read).collect(),
        policies: objects.policies.clone(),
        coordinator: fleet.coordinator.clone(),
        members,
    }
}
