//! Faults of connections.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Round;
use crate::chaos::fleet::Fleet;
use crate::chaos::replica::HOME;
use crate::proxy::Passage;

/// Nearly twice a Lease: long enough for others to take over.
const CUT_FOR: Duration = Duration::from_secs(15);
const DELAY: Duration = Duration::from_millis(300);

/// The two ways of losing a connection, in turn.
pub(super) fn loss(round: Round) -> Passage {
    if round.number.is_multiple_of(2) { Passage::Silent } else { Passage::Cut }
}

/// A replica loses its home cluster.
pub async fn cut_home(fleet: &mut Fleet<'_>, round: Round) -> Result<()> {
    let victim = fleet.busiest().await?;
    disturb(fleet, victim, HOME, loss(round)).await
}

/// A replica's requests to its home cluster are late. It must stay the same member.
pub async fn slow_home(fleet: &mut Fleet<'_>) -> Result<()> {
    let (victim, before) = (fleet.busiest().await?, fleet.members().await);
    disturb(fleet, victim, HOME, Passage::Slow(DELAY)).await?;
    ensure!(fleet.members().await == before, "a delay cost a member its Lease");
    Ok(())
}

/// A replica loses a workload cluster, which must cost no member its Lease.
pub async fn cut_cluster(fleet: &mut Fleet<'_>, round: Round) -> Result<()> {
    let (entries, before) = (fleet.entries().await?, fleet.members().await);
    // A different cluster each time, real and embedded ones.
    let entry = entries.get(round.number % entries.len().max(1)).context("no shards")?;
    let cluster = entry.shard.split('/').next().unwrap_or_default().to_owned();
    let owner = entry.owner.clone().unwrap_or_default();
    let victim = fleet.replicas.iter().position(|replica| replica.is(&owner));
    let victim = victim.with_context(|| format!("{owner} is not one of our replicas"))?;
    disturb(fleet, victim, &cluster, loss(round)).await?;
    ensure!(fleet.members().await == before, "a workload cluster cost a member its Lease");
    Ok(())
}

/// The home cluster's API server is down for as long as it takes to start.
pub async fn home_restart(fleet: &mut Fleet<'_>) -> Result<()> {
    fleet.home.kill_api_server();
    fleet.home.restart_api_server().await
}

/// The home cluster is down for longer than a Lease: all replicas must stop and rejoin.
pub async fn home_outage(fleet: &mut Fleet<'_>) -> Result<()> {
    fleet.home.kill_api_server();
    tokio::time::sleep(CUT_FOR).await;
    fleet.home.restart_api_server().await
}

async fn disturb(fleet: &Fleet<'_>, victim: usize, cluster: &str, by: Passage) -> Result<()> {
    fleet.replicas[victim].disturb(cluster, by)?;
    tokio::time::sleep(CUT_FOR).await;
    fleet.replicas[victim].disturb(cluster, Passage::Open)
}
