//! What can be seen of the fleet from outside.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use futures::future::join_all;
use serde_json::Value;

use super::Field;
use crate::chaos::replica::{self, Replica};
use crate::chaos::truth::{self, Entry};
use crate::real::manager::NAMESPACE;
use crate::real::{kubectl, process};

impl Field<'_> {
    /// The ShardMaps at this moment.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn entries(&self) -> Result<Vec<Entry>> {
        let path = format!("/apis/leasehold.dev/v1alpha1/namespaces/{NAMESPACE}/shardmaps");
        Ok(truth::of_maps(&kubectl::list(&self.home.client, &path).await?))
    }

    /// The present incarnation of each replica, as far as it answers.
    pub async fn members(&self) -> Vec<Option<String>> {
        let member = async |replica: &Replica| {
            let said = replica::own_view(replica.admin()).await?;
            said["member"].as_str().map(str::to_owned)
        };
        join_all(self.replicas.iter().map(member)).await
    }

    /// Which replica coordinates.
    ///
    /// # Errors
    /// If that is none of them.
    pub async fn coordinator(&self) -> Result<usize> {
        let path = format!(
            "/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/leasehold-coordinator"
        );
        let lease = kubectl::get(&self.home.client, &path).await?.unwrap_or_default();
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        let index = self.replicas.iter().position(|replica| replica.is(holder));
        index.with_context(|| format!("the coordinator, {holder:?}, is none of ours"))
    }

    /// The replica that owns the most shards and does not coordinate.
    ///
    /// # Errors
    /// If there is none.
    pub async fn busiest(&self) -> Result<usize> {
        let (coordinator, entries) = (self.coordinator().await?, self.entries().await?);
        let owned = |index: &usize| {
            let is_his = |e: &&Entry| e.owner.as_ref().is_some_and(|o| self.replicas[*index].is(o));
            entries.iter().filter(is_his).count()
        };
        let others = (0..self.replicas.len()).filter(|index| *index != coordinator);
        others.max_by_key(owned).context("nobody but the coordinator")
    }

    /// What `leasehold status` says that is not true, if anything is.
    ///
    /// # Errors
    /// If it fails.
    pub async fn untrue_status(&self) -> Result<Option<String>> {
        let before = self.entries().await?;
        let mut command = Command::new(self.scene.tools().leasehold());
        command.args([Path::new("status"), Path::new("--output"), Path::new("json")]);
        command.arg("--kubeconfig").arg(&self.home.kubeconfig);
        let status: Value = serde_json::from_str(&process::run(&mut command)?)?;
        Ok(truth::untrue(&status, &before, &self.entries().await?))
    }
}
