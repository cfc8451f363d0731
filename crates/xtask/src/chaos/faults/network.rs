//! What happens between processes.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Round;
use crate::chaos::field::Field;
use crate::chaos::replica::HOME;
use crate::real::link::Passage;

/// Nearly twice a Lease: long enough for others to take over.
const CUT_FOR: Duration = Duration::from_secs(15);
const DELAY: Duration = Duration::from_millis(300);

/// The two ways of losing a network, in turn.
fn loss(round: Round) -> Passage {
    if round.number.is_multiple_of(2) { Passage::Silent } else { Passage::Cut }
}

/// One loses its home cluster.
pub async fn cut_home(field: &mut Field<'_>, round: Round) -> Result<()> {
    let victim = field.busiest().await?;
    disturb(field, victim, HOME, loss(round)).await
}

/// One reaches its home cluster late. It must stay the member it is.
pub async fn slow_home(field: &mut Field<'_>) -> Result<()> {
    let (victim, before) = (field.busiest().await?, field.members().await);
    disturb(field, victim, HOME, Passage::Slow(DELAY)).await?;
    ensure!(field.members().await == before, "a delay cost a member its Lease");
    Ok(())
}

/// One loses a workload cluster, which must cost nobody a Lease.
pub async fn cut_cluster(field: &mut Field<'_>, round: Round) -> Result<()> {
    let (entries, before) = (field.entries().await?, field.members().await);
    // Another cluster each time, real and embedded ones.
    let entry = entries.get(round.number % entries.len().max(1)).context("no shards")?;
    let cluster = entry.shard.split('/').next().unwrap_or_default().to_owned();
    let owner = entry.owner.clone().unwrap_or_default();
    let victim = field.replicas.iter().position(|replica| replica.is(&owner));
    let victim = victim.with_context(|| format!("{owner} is none of ours"))?;
    disturb(field, victim, &cluster, loss(round)).await?;
    ensure!(field.members().await == before, "a workload cluster cost a member its Lease");
    Ok(())
}

/// The home cluster's API server is away for as long as it takes to start.
pub async fn home_restart(field: &mut Field<'_>) -> Result<()> {
    field.home.kill_api_server();
    field.home.restart_api_server().await
}

/// The home cluster is away for longer than a Lease: everybody must stop, and begin anew.
pub async fn home_outage(field: &mut Field<'_>) -> Result<()> {
    field.home.kill_api_server();
    tokio::time::sleep(CUT_FOR).await;
    field.home.restart_api_server().await
}

async fn disturb(field: &Field<'_>, victim: usize, cluster: &str, by: Passage) -> Result<()> {
    field.replicas[victim].disturb(cluster, by)?;
    tokio::time::sleep(CUT_FOR).await;
    field.replicas[victim].disturb(cluster, Passage::Open)
}
