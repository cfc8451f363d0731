//! What the fleet looks like from outside.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use serde_json::Value;

use super::Fleet;
use crate::chaos::agreement;
use crate::chaos::replica::{self, Replica};
use crate::harness::home::{self, Entry};
use crate::harness::kubectl;

impl Fleet<'_> {
    /// The entries of the ShardMaps now.
    pub async fn entries(&self) -> Result<Vec<Entry>> {
        home::shards(&self.home.client).await
    }

    /// The present incarnation of each replica; `None` for one that does not answer.
    pub async fn members(&self) -> Vec<Option<String>> {
        let member = async |replica: &Replica| {
            let said = replica::own_view(replica.admin()).await?;
            said["member"].as_str().map(str::to_owned)
        };
        join_all(self.replicas.iter().map(member)).await
    }

    /// Which replica coordinates.
    pub async fn coordinator(&self) -> Result<usize> {
        let path = format!("{}/leasehold-coordinator", home::path("leases"));
        let lease = kubectl::get(&self.home.client, &path).await?.unwrap_or_default();
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        let index = self.replicas.iter().position(|replica| replica.is(holder));
        index.with_context(|| format!("the coordinator {holder:?} is not one of our replicas"))
    }

    /// The replica that owns the most shards and does not coordinate.
    pub async fn busiest(&self) -> Result<usize> {
        let (coordinator, entries) = (self.coordinator().await?, self.entries().await?);
        let owned = |index: &usize| {
            let owners = entries.iter().filter_map(|entry| entry.owner.as_ref());
            owners.filter(|owner| self.replicas[*index].is(owner)).count()
        };
        let others = (0..self.replicas.len()).filter(|index| *index != coordinator);
        others.max_by_key(owned).context("there is no replica but the coordinator")
    }

    /// What `leasehold status` says that is not true, if it says such a thing.
    pub async fn untrue_status(&self) -> Result<Option<String>> {
        let before = self.entries().await?;
        let mut command = Command::new(self.scene.tools().leasehold());
        command.args([Path::new("status"), Path::new("--output"), Path::new("json")]);
        command.arg("--kubeconfig").arg(&self.home.kubeconfig);
        let output = command.output().context("run leasehold status")?;
        let said = String::from_utf8_lossy(&output.stderr);
        // 3 says that something is wrong with the fleet, which is what faults are for.
        ensure!(matches!(output.status.code(), Some(0 | 3)), "leasehold status: {said}");
        let status: Value = serde_json::from_slice(&output.stdout)?;
        Ok(agreement::untrue(&status, &before, &self.entries().await?))
    }
}
