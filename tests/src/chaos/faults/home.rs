//! Faults of the home cluster's memory and of the way to it.

use std::fs;

use anyhow::Result;

use super::Round;
use crate::chaos::fleet::Fleet;
use crate::harness::home;

/// The home cluster is restored from a backup. An owner died since, so the backup does not know who took over.
pub async fn restored(fleet: &mut Fleet<'_>, round: Round) -> Result<()> {
    let backup = fleet.next_dir().with_extension(format!("backup-{}", round.number));
    fleet.home.back_up(&backup).await?;
    fleet.settle().await?;
    let victim = fleet.busiest().await?;
    fleet.kill(&[victim]);
    fleet.start().await?;
    fleet.settle().await?;
    fleet.home.restore(&backup).await?;
    Ok(fs::remove_dir_all(&backup)?)
}

/// The home cluster loses all that it holds. Somebody installs our definitions again.
pub async fn emptied(fleet: &mut Fleet<'_>) -> Result<()> {
    fleet.home.empty().await?;
    home::install(&fleet.home.kubectl).await
}

/// The home cluster gets another certificate authority and other tokens. The replicas' kubeconfigs of it change
/// after that.
pub async fn certificates(fleet: &mut Fleet<'_>) -> Result<()> {
    fleet.renew_home().await
}
