//! The shell of ConfigMonitor: three caches in, restarts out.
//!
//! Workloads are not watched but read while they roll out: a watch would join this controller with every
//! other that watches their kinds.
//!
//! A cache may lag, and a restart cannot be undone. So before a restart is decided or resumed, the
//! monitor and its ConfigMap are read from the server. The write that records the decision carries
//! the resourceVersion of that read.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{Resource, ResourceExt};
use sdk::{
    Action, Context, Controller, ControllerSpec, Event, Lookup, ObjectKey, ReconcileError,
    Reconciler, Selector, label_value,
};

use super::FIELD_MANAGER;
use super::api::ConfigMonitor;
use super::plan::{Found, config_map_name, record, selects, status};
use crate::restarts::{
    Advance, Decision, Outcome, Pending, Record, Restarts, Then, hash, restartable,
};

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
            monitors(pod, lookup, |monitor| !rolls(monitor) && selects(&monitor.spec, labels))
        })
        .field_manager(FIELD_MANAGER)
        .workers(workers)
        .reconciler(ConfigMonitorReconciler)
}

/// Whether a monitor waits for rollouts, which are read now and then: not with every change of their Pods.
fn rolls(monitor: &ConfigMonitor) -> bool {
    let pending = monitor.status.as_ref().and_then(|status| status.record.pending.as_ref());
    pending.is_some_and(Pending::only_rolls)
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
        let run = MonitorRun::new(ctx, &monitor)?;
        let name = match config_map_name(&monitor.spec) {
            Ok(name) => name.to_owned(),
            Err(invalid) => return run.say(&monitor, Found::Invalid(invalid)).await,
        };
        let Some(config_map) = ctx.get::<ConfigMap>(namespace, &name)? else {
            return run.say(&monitor, Found::Missing(name)).await;
        };
        let (hash, window) = (hash(&config_map), run.restarts.window);
        let record = record(&monitor, &name);
        match record.decide(&hash, ctx.now(), window) {
            Decision::Current => {
                let found = Found::Step(name, Outcome::Current);
                run.record(&monitor, &found, Some(record.seen(hash))).await?;
                Ok(Action::Done)
            }
            _ => run.restart(&key.name).await,
        }
    }
}

/// One reconcile of one monitor.
struct MonitorRun<'a> {
    ctx: &'a Context,
    restarts: Restarts<'a>,
    /// How many Pods are selected now.
    selected: usize,
}

impl<'a> MonitorRun<'a> {
    fn new(ctx: &'a Context, monitor: &ConfigMonitor) -> Result<Self, ReconcileError> {
        let namespace = ctx.key().namespace.as_deref();
        let selector = LabelSelector {
            match_labels: Some(monitor.spec.pod_selector.clone()),
            ..LabelSelector::default()
        };
        let selector = Selector::try_from(selector).map_err(ReconcileError::terminal)?;
        let pods = ctx.list::<Pod>(namespace, &selector)?;
        let selected =
            |pod: &Pod| selects(&monitor.spec, pod.metadata.labels.as_ref()) && restartable(pod);
        let restarts = Restarts {
            ctx,
            namespace: namespace.unwrap_or_default(),
            selector: selector.to_string(),
            bare: monitor.spec.evict_bare_pods,
            window: Duration::from_secs(monitor.spec.debounce_seconds.into()),
            annotation: format!("configmonitor.leasehold.dev/{}", label_value(&monitor.name_any())),
        };
        let selected = pods.iter().filter(|pod| selected(pod)).count();
        Ok(Self { ctx, restarts, selected })
    }

    /// Takes steps from the server's state, each of them recorded before the next.
    async fn restart(&self, name: &str) -> Result<Action, ReconcileError> {
        let Some(mut monitor) = self.restarts.api::<ConfigMonitor>().get_opt(name).await? else {
            return Ok(Action::Done);
        };
        let source = match config_map_name(&monitor.spec) {
            Ok(source) if !monitor.spec.pod_selector.is_empty() => source.to_owned(),
            _ => return Ok(Action::Done),
        };
        let Some(config_map) = self.restarts.api::<ConfigMap>().get_opt(&source).await? else {
            return Ok(Action::Done);
        };
        loop {
            let step = self.restarts.step(record(&monitor, &source), hash(&config_map)).await?;
            let Advance { record, outcome, then } = step;
            let found = Found::Step(source.clone(), outcome);
            let Some(recorded) = self.record(&monitor, &found, Some(record)).await? else {
                return Ok(Action::Done);
            };
            monitor = recorded;
            self.announce(&monitor, &found).await;
            match then {
                Then::GoOn => {}
                Then::Rest => return Ok(Action::Done),
                Then::Again(after) => return Ok(Action::RequeueAfter(after)),
                Then::Fail(error) => return Err(error.into()),
            }
        }
    }

    async fn announce(&self, monitor: &ConfigMonitor, found: &Found) {
        if let Found::Step(source, Outcome::Restarted(pending, None)) = found
            && pending.targets() > 0
        {
            let note = format!("ConfigMap {source} changed: restarted {}", pending.summary());
            self.ctx.publish(Event::normal(monitor, "Restarted", "Restart", note)).await;
        }
    }

    /// Says why nothing can be restarted.
    async fn say(&self, monitor: &ConfigMonitor, found: Found) -> Result<Action, ReconcileError> {
        self.record(monitor, &found, None).await?;
        Ok(Action::Done)
    }

    /// Writes the status if it says something new. Returns the monitor as it then is; `None` if it is
    /// gone.
    async fn record(
        &self,
        monitor: &ConfigMonitor,
        found: &Found,
        record: Option<Record>,
    ) -> Result<Option<ConfigMonitor>, ReconcileError> {
        let status = status(monitor, found, record, self.selected, self.ctx.now());
        if monitor.status.as_ref() == Some(&status) {
            return Ok(Some(monitor.clone()));
        }
        let updated = ConfigMonitor { status: Some(status), ..monitor.clone() };
        self.ctx.update_status(&updated).await
    }
}
