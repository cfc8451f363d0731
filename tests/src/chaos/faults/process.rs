//! Faults of processes.

use std::time::Duration;

use anyhow::{Result, bail};

use super::Round;
use crate::chaos::fleet::Fleet;
use crate::proxy::Passage;

/// How often the ShardMaps are read in search of a drain. Each time takes some milliseconds, and a
/// new replica needs a few seconds to start.
const LOOKS_FOR_A_DRAIN: usize = 20_000;
/// How late clusters answer while a reconcile is awaited, each way.
const LATE: Duration = Duration::from_millis(300);

/// SIGKILL of a replica.
pub async fn kill(fleet: &mut Fleet<'_>) -> Result<()> {
    let victim = fleet.busiest().await?;
    fleet.kill(&[victim]);
    Ok(())
}

/// SIGTERM of a replica.
pub async fn term(fleet: &mut Fleet<'_>) -> Result<()> {
    let leaver = fleet.busiest().await?;
    fleet.dismiss(leaver).await
}

/// A new replica joins.
pub async fn join(fleet: &mut Fleet<'_>) -> Result<()> {
    fleet.start().await
}

/// SIGSTOP of a replica, then SIGCONT.
pub async fn stop(fleet: &mut Fleet<'_>, round: Round) -> Result<()> {
    let sleeper = fleet.busiest().await?;
    fleet.replicas[sleeper].sleep(round.stop_for).await;
    Ok(())
}

/// SIGSTOP of a replica in the midst of a reconcile, then SIGCONT. Its clusters answer late, so that
/// reconciles last.
pub async fn stop_in_reconcile(fleet: &mut Fleet<'_>, round: Round) -> Result<()> {
    let sleeper = fleet.busiest().await?;
    let clusters: Vec<String> = fleet.targets().into_iter().map(|target| target.cluster).collect();
    let replica = &mut fleet.replicas[sleeper];
    clusters.iter().try_for_each(|name| replica.disturb(name, Passage::Slow(LATE)))?;
    let reconciles = replica.sleep_in_reconcile(round.stop_for).await?;
    eprintln!("a replica was stopped in the midst of {reconciles} reconciles");
    clusters.iter().try_for_each(|name| replica.disturb(name, Passage::Open))
}

/// Replaces every replica by a new one.
pub async fn rolling(fleet: &mut Fleet<'_>) -> Result<()> {
    for _ in 0..fleet.replicas.len() {
        fleet.start().await?;
        fleet.settle().await?;
        fleet.dismiss(0).await?;
    }
    Ok(())
}

/// SIGKILL of the coordinator and another replica at once.
pub async fn double_kill(fleet: &mut Fleet<'_>) -> Result<()> {
    let victims = [fleet.coordinator().await?, fleet.busiest().await?];
    fleet.kill(&victims);
    Ok(())
}

/// SIGKILL of the coordinator as soon as a drain is seen.
pub async fn coordinator_in_a_rebalance(fleet: &mut Fleet<'_>) -> Result<()> {
    let coordinator = fleet.coordinator().await?;
    fleet.start().await?;
    for _ in 0..LOOKS_FOR_A_DRAIN {
        if fleet.entries().await?.iter().any(|entry| entry.phase == "Draining") {
            fleet.kill(&[coordinator]);
            return Ok(());
        }
    }
    bail!("nothing was drained for the new replica")
}
