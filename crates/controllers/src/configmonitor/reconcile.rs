//! The shell of ConfigMonitor: three caches in, restarts out.
//!
//! A cache may lag, and a restart cannot be undone. So before a restart is decided or resumed, the
//! monitor and its ConfigMap are read from the server. The write that records the decision carries
//! the resourceVersion of that read.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{Resource, ResourceExt};
use sdk::ObjectKey;
use sdk::{
    Action, Context, Controller, ControllerSpec, Event, Lookup, ReconcileError, Reconciler,
    Selector, label_value,
};

use super::FIELD_MANAGER;
use super::api::ConfigMonitor;
use super::plan::{Decision, Outcome, config_map_name, decide, selects, status};
use crate::restarts::{MAX_TARGETS, Pending, Restarts, restartable};
use sdk::refusal::refusal;

/// Reconciles ConfigMonitors.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ConfigMonitorReconciler;

/// The controller, with this many workers.
pub(super) fn controller(workers: usize) -> ControllerSpec {
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

/// The monitors of an object's namespace that it matters to.
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
        let annotation = format!("configmonitor.leasehold.dev/{}", label_value(&key.name));
        let pods = pods(ctx, &monitor)?;
        let restarts = Restarts::new(ctx, namespace.unwrap_or_default(), pods, annotation);
        let run = MonitorRun { ctx, restarts };
        match decide(&monitor, config_map.as_deref()) {
            Decision::Restart { .. } | Decision::Resume(_) => run.restart(&key.name).await?,
            undisturbed => {
                run.record(&monitor, &Outcome::Undisturbed(undisturbed)).await?;
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
struct MonitorRun<'a> {
    ctx: &'a Context,
    restarts: Restarts<'a>,
}

impl MonitorRun<'_> {
    /// Decides from the server's state, and carries the decision out.
    async fn restart(&self, name: &str) -> Result<(), ReconcileError> {
        let Some(monitor) = self.restarts.api::<ConfigMonitor>().get_opt(name).await? else {
            return Ok(());
        };
        let config_map = match config_map_name(&monitor.spec) {
            Ok(name) => self.restarts.api::<ConfigMap>().get_opt(name).await?,
            Err(_) => None,
        };
        match decide(&monitor, config_map.as_ref()) {
            Decision::Restart { config_map, hash } => {
                let pending = self.restarts.pending(hash).await?;
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

    /// Restarts what the decision names, and records that it is done, or why not.
    async fn carry_out(
        &self,
        monitor: &ConfigMonitor,
        pending: Pending,
    ) -> Result<(), ReconcileError> {
        if let Err(error) = self.restarts.carry_out(&pending).await {
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

    /// Writes the status if it says something new. Returns the monitor as it then is; `None` if it is
    /// gone.
    async fn record(
        &self,
        monitor: &ConfigMonitor,
        outcome: &Outcome,
    ) -> Result<Option<ConfigMonitor>, ReconcileError> {
        let status = status(monitor, outcome, self.restarts.count(), self.ctx.now());
        if monitor.status.as_ref() == Some(&status) {
            return Ok(Some(monitor.clone()));
        }
        let updated = ConfigMonitor { status: Some(status), ..monitor.clone() };
        self.ctx.update_status(&updated).await
    }
}
