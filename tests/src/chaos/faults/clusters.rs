//! Faults of what replicas know of workload clusters, and of who reaches them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use model::Range;

use super::Round;
use super::network::loss;
use crate::chaos::fleet::Fleet;
use crate::chaos::replica::Replica;
use crate::harness::{load, wait};
use crate::proxy::Passage;

/// How long the shards of a cluster may take to get to the one who reaches it: requests must fail, that must
/// be reported, and a drain may have to wait for its deadline.
const MOVE_DEADLINE: Duration = Duration::from_secs(120);
/// Several times as long as a removed cluster keeps its shards.
const EMPTY_FOR: Duration = Duration::from_secs(20);

/// Only one replica reaches a workload cluster, and it has no shard of it. It must get them, and change
/// objects, at the cost of nobody's Lease.
pub async fn one_reaches(fleet: &mut Fleet<'_>, round: Round) -> Result<()> {
    let (entries, before) = (fleet.entries().await?, fleet.members().await);
    // A different cluster each time, real and embedded ones.
    let targets = fleet.targets();
    let target = targets.get(round.number % targets.len().max(1)).context("no clusters")?;
    let of_cluster = format!("{}/", target.cluster);
    let shards = || entries.iter().filter(|entry| entry.shard.starts_with(&of_cluster));
    let owns = |replica: &Replica| {
        shards().any(|entry| entry.owner.as_deref().is_some_and(|owner| replica.is(owner)))
    };
    let sole = fleet.replicas.iter().position(|replica| !owns(replica));
    let sole = sole.context("every replica has a shard of the cluster")?;
    let others = || fleet.replicas.iter().enumerate().filter(|(index, _)| *index != sole);
    others().try_for_each(|(_, replica)| replica.disturb(&target.cluster, loss(round)))?;
    let what = format!("the shards of {} to be with the one that reaches it", target.cluster);
    wait::until(MOVE_DEADLINE, &what, async || {
        let entries = fleet.entries().await?;
        let mut shards = entries.iter().filter(|entry| entry.shard.starts_with(&of_cluster));
        let is_there = shards.all(|entry| {
            let owner = entry.owner.as_deref().unwrap_or_default();
            entry.phase == "Owned" && fleet.replicas[sole].is(owner)
        });
        Ok(is_there.then_some(()))
    })
    .await?;
    let seen = load::observed(&target.client, &[Range::WHOLE]).await?;
    wait::until(MOVE_DEADLINE, "the cluster to be served by it", async || {
        Ok((load::observed(&target.client, &[Range::WHOLE]).await? > seen).then_some(()))
    })
    .await?;
    others().try_for_each(|(_, replica)| replica.disturb(&target.cluster, Passage::Open))?;
    ensure!(fleet.members().await == before, "a workload cluster cost a member its Lease");
    Ok(())
}

/// No replica has any cluster for a while. All shards stay where they are.
pub async fn emptied_secret(fleet: &mut Fleet<'_>) -> Result<()> {
    let before = fleet.entries().await?;
    fleet.replicas.iter().try_for_each(Replica::empty_clusters)?;
    tokio::time::sleep(EMPTY_FOR).await;
    let after = fleet.entries().await?;
    fleet.replicas.iter().try_for_each(Replica::refill_clusters)?;
    ensure!(after == before, "an emptied Secret changed who owns what: {before:?}; then {after:?}");
    Ok(())
}
