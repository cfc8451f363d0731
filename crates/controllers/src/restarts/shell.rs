//! Carries out restarts that are decided and recorded. Shell.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use sdk::{Context, ReconcileError};
use serde_json::json;

use super::pending::{
    Pending, PodRef, Workload, WorkloadKind, deployment_of, pending, replica_sets,
};
use crate::delete::delete;
use sdk::refusal::is_gone;

/// Restarts Pods of one namespace.
pub(crate) struct Restarts<'a> {
    ctx: &'a Context,
    namespace: &'a str,
    /// The Pods to restart at a change.
    pods: Vec<Arc<Pod>>,
    /// The annotation of Pod templates with the content of their last rollout.
    annotation: String,
}

impl<'a> Restarts<'a> {
    pub(crate) fn new(
        ctx: &'a Context,
        namespace: &'a str,
        pods: Vec<Arc<Pod>>,
        annotation: String,
    ) -> Self {
        Self { ctx, namespace, pods, annotation }
    }

    /// How many Pods would be restarted.
    pub(crate) fn count(&self) -> usize {
        self.pods.len()
    }

    /// Objects of the namespace.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.ctx.client(), self.namespace)
    }

    /// The restart for content `hash`.
    ///
    /// # Errors
    /// If the owners of the Pods cannot be read.
    pub(crate) async fn pending(&self, hash: String) -> Result<Pending, ReconcileError> {
        let deployments = self.deployments().await?;
        Ok(pending(hash, self.pods.iter().map(Arc::as_ref), &deployments))
    }

    /// Restarts everything that the decision names, also after one target was refused.
    ///
    /// # Errors
    /// The first refusal or failure. What is gone needs no restart.
    pub(crate) async fn carry_out(&self, pending: &Pending) -> Result<(), kube::Error> {
        let mut failure = None;
        for workload in &pending.workloads {
            if let Err(error) = self.roll_out(workload, &pending.hash).await {
                failure = failure.or(Some(error).filter(|error| !is_gone(error)));
            }
        }
        for pod in &pending.pods {
            if let Err(error) = self.delete(pod).await {
                failure = failure.or(Some(error));
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Writes the content's hash into the Pod template. If it is there already the server changes
    /// nothing, so no rollout begins twice for one change.
    ///
    /// A merge patch touches this one annotation. Server-side apply would drop those of other monitors
    /// of the same workload, as all of them share our field manager.
    async fn roll_out(&self, workload: &Workload, hash: &str) -> Result<(), kube::Error> {
        let patch = Patch::Merge(json!({
            "spec": {"template": {"metadata": {"annotations": {&self.annotation: hash}}}}
        }));
        let field_manager = Some(self.ctx.field_manager().to_owned());
        let params = PatchParams { field_manager, ..PatchParams::default() };
        let name = &workload.name;
        match workload.kind {
            WorkloadKind::Deployment => {
                self.api::<Deployment>().patch_metadata(name, &params, &patch).await?;
            }
            WorkloadKind::StatefulSet => {
                self.api::<StatefulSet>().patch_metadata(name, &params, &patch).await?;
            }
            WorkloadKind::DaemonSet => {
                self.api::<DaemonSet>().patch_metadata(name, &params, &patch).await?;
            }
        }
        Ok(())
    }

    /// Deletes one incarnation of a Pod.
    async fn delete(&self, PodRef { name, uid }: &PodRef) -> Result<(), kube::Error> {
        let client = self.ctx.client();
        delete::<Pod>(client, self.namespace, (name, uid), DeleteParams::default()).await
    }

    /// The Deployments of the ReplicaSets among the owners of the Pods. Read from the server once for
    /// each change, which is not worth a watch.
    async fn deployments(&self) -> Result<BTreeMap<String, String>, ReconcileError> {
        let api = self.api::<ReplicaSet>();
        let mut deployments = BTreeMap::new();
        for name in replica_sets(self.pods.iter().map(Arc::as_ref)) {
            let found = api.get_metadata_opt(&name).await?;
            let owners = found.map(|set| set.metadata.owner_references.unwrap_or_default());
            if let Some(deployment) = owners.as_deref().and_then(deployment_of) {
                deployments.insert(name, deployment.to_owned());
            }
        }
        Ok(deployments)
    }
}
