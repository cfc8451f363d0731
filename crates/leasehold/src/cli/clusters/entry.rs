//! The Secrets of the home cluster that `leasehold clusters` writes: one for each cluster.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use clusters::{LABEL, may_be_called};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::config::Kubeconfig;
use kube::{Client, ResourceExt};
use model::ClusterName;
use serde_json::json;

use super::rights::MADE;
use ops::{HomeCluster, in_time};

/// The label of what is written, as in the workload clusters. Its value is the field manager too.
const MANAGED_BY: &str = MADE[0];
const MANAGER: &str = MADE[1];
/// The key of the kubeconfig.
const KEY: &str = "kubeconfig";

/// The Secret of a cluster.
pub(super) fn secret_name(cluster: &ClusterName) -> String {
    format!("cluster-{cluster}")
}

/// The Secrets of one fleet.
pub(super) struct Entries {
    api: Api<Secret>,
    /// Which home cluster has them, as messages name it.
    home: String,
}

impl Entries {
    /// Those of the fleet at `home`.
    pub(super) fn of(home: &HomeCluster) -> Self {
        let client: Client = home.client.clone();
        Self { api: Api::namespaced(client, &home.namespace), home: home.shown.clone() }
    }

    /// Whether the name may be written: nobody else has a Secret there.
    pub(super) async fn free(&self, cluster: &ClusterName) -> anyhow::Result<()> {
        let name = secret_name(cluster);
        let what = format!("read Secret {name} of {}", self.home);
        let found = in_time(&what, self.api.get_opt(&name)).await?.context(what)?;
        let foreign =
            |secret: &Secret| secret.labels().get(MANAGED_BY).map(String::as_str) != Some(MANAGER);
        ensure!(
            !found.as_ref().is_some_and(foreign),
            "Secret {name} is there already and was not made by this command: give the cluster another \
             --name"
        );
        Ok(())
    }

    /// Writes the Secret of a cluster.
    pub(super) async fn put(&self, cluster: &ClusterName, kubeconfig: &str) -> anyhow::Result<()> {
        let name = secret_name(cluster);
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": name, "labels": {LABEL: cluster, MANAGED_BY: MANAGER}},
            "data": {KEY: ByteString(kubeconfig.into())},
        });
        let params = PatchParams::apply(MANAGER).force();
        let what = format!("write Secret {name} of {}", self.home);
        let patch = Patch::Apply(secret);
        let written = self.api.patch(&name, &params, &patch);
        in_time(&what, written).await?.map(drop).context(what)
    }

    /// Removes the Secret of a cluster that was added.
    pub(super) async fn delete(&self, cluster: &ClusterName) -> anyhow::Result<()> {
        let name = secret_name(cluster);
        let what = format!("delete Secret {name} of {}", self.home);
        let params = DeleteParams::default();
        let deleted = self.api.delete(&name, &params);
        in_time(&what, deleted).await?.map(drop).context(what)
    }

    /// The name under which a cluster was added, and its server. It is found by the name that replicas give it, too.
    pub(super) async fn get(&self, cluster: &ClusterName) -> anyhow::Result<(ClusterName, String)> {
        let all = self.all().await?;
        let shown: Vec<_> = all.keys().map(ClusterName::to_string).collect();
        find(all, cluster).with_context(|| {
            format!("no cluster {cluster} was added; there are: {}", shown.join(", "))
        })
    }

    /// The same, if the cluster was added.
    pub(super) async fn find(
        &self,
        cluster: &ClusterName,
    ) -> anyhow::Result<Option<(ClusterName, String)>> {
        Ok(find(self.all().await?, cluster))
    }

    /// The clusters that were added, each with its server.
    pub(super) async fn all(&self) -> anyhow::Result<BTreeMap<ClusterName, String>> {
        let params = ListParams::default().labels(&format!("{LABEL},{MANAGED_BY}={MANAGER}"));
        let what = format!("list Secrets of {}", self.home);
        let found = in_time(&what, self.api.list(&params)).await?.context(what)?;
        let entry = |secret: Secret| {
            // A label that is no name of a cluster is passed over.
            let name = secret.labels().get(LABEL)?.parse().ok()?;
            let data = secret.data.unwrap_or_default();
            let kubeconfig = data.get(KEY).map(|bytes| String::from_utf8_lossy(&bytes.0));
            let kubeconfig = kubeconfig.and_then(|text| Kubeconfig::from_yaml(&text).ok());
            let clusters = kubeconfig.into_iter().flat_map(|kubeconfig| kubeconfig.clusters);
            let mut servers = clusters.filter_map(|named| named.cluster?.server);
            Some((name, servers.next().unwrap_or_default()))
        };
        Ok(found.items.into_iter().filter_map(entry).collect())
    }
}

/// The cluster that was added under this name, or else the one to which replicas give it.
fn find(
    mut all: BTreeMap<ClusterName, String>,
    cluster: &ClusterName,
) -> Option<(ClusterName, String)> {
    let exact = all.remove_entry(cluster);
    exact.or_else(|| all.into_iter().find(|(own, _)| may_be_called(own, cluster)))
}
