//! Faults of processes.

use anyhow::{Result, bail};

use super::Round;
use crate::chaos::fleet::Fleet;

/// How often the ShardMaps are read in search of a drain. Each time takes some milliseconds, and a
/// new replica needs a few seconds to start.
const LOOKS_FOR_A_DRAIN: usize = 20_000;

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
