//! What happens to processes.

use anyhow::{Result, bail};

use super::Round;
use crate::chaos::field::Field;

/// How often the ShardMaps are read in search of a drain. Each reading takes some milliseconds, and
/// a newcomer a few seconds to start.
const LOOKS_FOR_A_DRAIN: usize = 20_000;

/// SIGKILL of one.
pub async fn kill(field: &mut Field<'_>) -> Result<()> {
    let victim = field.busiest().await?;
    field.kill(&[victim]);
    Ok(())
}

/// SIGTERM of one.
pub async fn term(field: &mut Field<'_>) -> Result<()> {
    let leaver = field.busiest().await?;
    field.dismiss(leaver).await
}

/// One more.
pub async fn join(field: &mut Field<'_>) -> Result<()> {
    field.start().await
}

/// SIGSTOP of one, and SIGCONT.
pub async fn stop(field: &mut Field<'_>, round: Round) -> Result<()> {
    let sleeper = field.busiest().await?;
    field.replicas[sleeper].sleep(round.stop_for).await;
    Ok(())
}

/// A new one for each of them.
pub async fn rolling(field: &mut Field<'_>) -> Result<()> {
    for _ in 0..field.replicas.len() {
        field.start().await?;
        field.settle().await?;
        field.dismiss(0).await?;
    }
    Ok(())
}

/// SIGKILL of the coordinator and another at once.
pub async fn double_kill(field: &mut Field<'_>) -> Result<()> {
    let victims = [field.coordinator().await?, field.busiest().await?];
    field.kill(&victims);
    Ok(())
}

/// SIGKILL of the coordinator as soon as a drain is seen.
pub async fn coordinator_in_a_rebalance(field: &mut Field<'_>) -> Result<()> {
    let coordinator = field.coordinator().await?;
    field.start().await?;
    for _ in 0..LOOKS_FOR_A_DRAIN {
        if field.entries().await?.iter().any(|entry| entry.phase == "Draining") {
            field.kill(&[coordinator]);
            return Ok(());
        }
    }
    bail!("nothing was drained for the newcomer")
}
