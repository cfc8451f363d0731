//! The shell of ConfigMonitor: three kinds of cache in, restarts out.
//!
//! A cache may lag, and a restart cannot be taken back. So the cache only raises suspicion: before
//! a restart is decided or resumed, the monitor and its ConfigMap are read from the server. The
//! write that records the decision carries the resourceVersion of that read.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{
    Action, Context, Controller, ControllerSpec, Event, Lookup, ReconcileError, Reconciler,
    Selector,
};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Resource, ResourceExt};
use model::ObjectKey;
use serde_json::json;

use super::FIELD_MANAGER;
use super::api::{ConfigMonitor, Pending, PodRef, Workload, WorkloadKind};
use super::plan::{
    Decision, MAX_TARGETS, Outcome, config_map_name, decide, deployment_of, pending, replica_sets,
    restartable, selects, status,
};
use crate::label::label_value;
use crate::refusal::{is_gone, is_gone_or_replaced, refusal};

/// Reconciles ConfigMonitors.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConfigMonitorReconciler;

/// The controller, with this many workers.
pub fn controller(workers: usize) -> ControllerSpec {
    Controller::for_kind::<ConfigMonitor>(super::BUILTIN.name)
        .watches::<ConfigMap>(|config_map, lookup| {
            let name = config_map.name_any();
            monitors(config_map, lookup, |monitor| {
                config_map_name(&monitor.spec).is_ok_and(|watched| watched == name)
            })
        })
        .watches::<Pod>(|pod, lookup| {
            let labels = pod.metadata.labels.as_ref();
            monitors(pod, lookup, |monitor| selects(&monitor.spec, labels))
        })
        .field_manager(FIELD_MANAGER)
        .workers(workers)
        .reconciler(ConfigMonitorReconciler)
}

/// The monitors of an object's namespace that care about it.
fn monitors<K: Resource>(
    object: &K,
    lookup: &Lookup<'_>,
    cares: impl Fn(&ConfigMonitor) -> bool,
) -> Vec<(Option<String>, String)> {
    lookup
        .list::<ConfigMonitor>(object.namespace().as_deref(), &Selector::all())
        .iter()
        .filter(|monitor| cares(monitor))
        .map(|monitor| (monitor.namespace(), monitor.name_any()))
        .collect()
}

impl Reconciler for ConfigMonitorReconciler {
    type Kind = ConfigMonitor;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref();
        let Some(monitor) = ctx.get::<ConfigMonitor>(namespace, &key.name)? else {
            return Ok(Action::Done);
        };
        if monitor.metadata.deletion_timestamp.is_some() {
            return Ok(Action::Done);
        }
        let config_map = match config_map_name(&monitor.spec) {
            Ok(name) => ctx.get::<ConfigMap>(namespace, name)?,
            Err(_) => None,
        };
        let turn =
            Turn { ctx, namespace: namespace.unwrap_or_default(), pods: pods(ctx, &monitor)? };
        match decide(&monitor, config_map.as_deref()) {
            Decision::Restart { .. } | Decision::Resume(_) => turn.restart(&key.name).await?,
            undisturbed => {
                turn.record(&monitor, &Outcome::Undisturbed(undisturbed)).await?;
            }
        }
        Ok(Action::Done)
    }
}

/// The Pods that a monitor would restart.
fn pods(ctx: &Context, monitor: &ConfigMonitor) -> Result<Vec<Arc<Pod>>, ReconcileError> {
    let selector = LabelSelector {
        match_labels: Some(monitor.spec.pod_selector.clone()),
        ..LabelSelector::default()
    };
    let selector = Selector::try_from(selector).map_err(ReconcileError::terminal)?;
    let mut pods = ctx.list::<Pod>(monitor.namespace().as_deref(), &selector)?;
    pods.retain(|pod| selects(&monitor.spec, pod.metadata.labels.as_ref()) && restartable(pod));
    Ok(pods)
}

/// One reconcile of one monitor.
struct Turn<'a> {
    ctx: &'a Context,
    namespace: &'a str,
    pods: Vec<Arc<Pod>>,
}

impl Turn<'_> {
    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.ctx.client(), self.namespace)
    }

    /// Decides on what the server says, and carries the decision out.
    async fn restart(&self, name: &str) -> Result<(), ReconcileError> {
        let Some(monitor) = self.api::<ConfigMonitor>().get_opt(name).await? else {
            return Ok(());
        };
        let config_map = match config_map_name(&monitor.spec) {
            Ok(name) => self.api::<ConfigMap>().get_opt(name).await?,
            Err(_) => None,
        };
        match decide(&monitor, config_map.as_ref()) {
            Decision::Restart { config_map, hash } => {
                let deployments = self.deployments().await?;
                let pods = self.pods.iter().map(Arc::as_ref);
                let pending = pending(hash, pods, &deployments);
                self.begin(monitor, config_map, pending).await
            }
            Decision::Resume(pending) => self.carry_out(&monitor, pending).await,
            undisturbed => {
                self.record(&monitor, &Outcome::Undisturbed(undisturbed)).await?;
                Ok(())
            }
        }
    }

    /// Records the decision, then carries it out.
    async fn begin(
        &self,
        monitor: ConfigMonitor,
        config_map: String,
        pending: Pending,
    ) -> Result<(), ReconcileError> {
        if pending.targets() > MAX_TARGETS {
            self.record(&monitor, &Outcome::TooMany(pending.targets())).await?;
            return Ok(());
        }
        let decided = Outcome::Decided { config_map, pending: pending.clone() };
        match self.record(&monitor, &decided).await? {
            Some(monitor) => self.carry_out(&monitor, pending).await,
            None => Ok(()),
        }
    }

    /// Restarts what the decision names, all of it: one target that is refused holds up no other.
    async fn carry_out(
        &self,
        monitor: &ConfigMonitor,
        pending: Pending,
    ) -> Result<(), ReconcileError> {
        let mut failure = None;
        for workload in &pending.workloads {
            if let Err(error) = self.roll_out(monitor, workload, &pending.hash).await {
                failure = failure.or(Some(error).filter(|error| !is_gone(error)));
            }
        }
        for pod in &pending.pods {
            if let Err(error) = self.delete(pod).await {
                failure = failure.or(Some(error).filter(|error| !is_gone_or_replaced(error)));
            }
        }
        if let Some(error) = failure {
            if let Some(words) = refusal(&error) {
                self.record(monitor, &Outcome::Refused(words)).await?;
            }
            return Err(error.into());
        }
        self.record(monitor, &Outcome::Restarted(pending.clone())).await?;
        self.announce(monitor, &pending).await;
        Ok(())
    }

    async fn announce(&self, monitor: &ConfigMonitor, pending: &Pending) {
        if pending.targets() > 0 {
            let config_map = config_map_name(&monitor.spec).unwrap_or_default();
            let note = format!("ConfigMap {config_map} changed: restarted {}", pending.summary());
            self.ctx.publish(Event::normal(monitor, "Restarted", "Restart", note)).await;
        }
    }

    /// Writes the content's hash into the Pod template. Where it already stands the server changes
    /// nothing, so that a rollout is never begun twice for one change.
    ///
    /// A merge patch touches this one annotation. Server-side apply would drop those of other
    /// monitors of the same workload, for all share our field manager.
    async fn roll_out(
        &self,
        monitor: &ConfigMonitor,
        workload: &Workload,
        hash: &str,
    ) -> Result<(), kube::Error> {
        let annotation =
            format!("configmonitor.leasehold.dev/{}", label_value(&monitor.name_any()));
        let patch = Patch::Merge(json!({
            "spec": {"template": {"metadata": {"annotations": {annotation: hash}}}}
        }));
        let params =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
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
    async fn delete(&self, pod: &PodRef) -> Result<(), kube::Error> {
        let pinned = Preconditions { uid: Some(pod.uid.clone()), resource_version: None };
        let params = DeleteParams::default().preconditions(pinned);
        self.api::<Pod>().delete(&pod.name, &params).await.map(drop)
    }

    /// The Deployment of each ReplicaSet that has one, among the owners of the Pods. Asked of the
    /// server, once per change: it is not worth a watch.
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

    /// Writes the status if it says something new. The monitor as it then is; `None` if it is gone.
    async fn record(
        &self,
        monitor: &ConfigMonitor,
        outcome: &Outcome,
    ) -> Result<Option<ConfigMonitor>, ReconcileError> {
        let status = status(monitor, outcome, self.pods.len(), self.ctx.now());
        if monitor.status.as_ref() == Some(&status) {
            return Ok(Some(monitor.clone()));
        }
        let updated = ConfigMonitor { status: Some(status), ..monitor.clone() };
        self.ctx.update_status(&updated).await
    }
}
