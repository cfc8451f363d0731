//! The shell of ConfigMonitor: three or four caches in, restarts out.
//!
//! Of ConfigMaps, Secrets and Pods only the metadata is watched. A content is read from the server when its
//! version is new. Workloads are not watched but searched when a restart is decided, and read while they roll out.
//!
//! A cache may lag, and a restart cannot be undone. So before a restart is decided or resumed, the
//! monitor and its ConfigMap or Secret are read from the server. The write that records the decision carries
//! the resourceVersion of that read.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use sdk::{
    Action, Context, Controller, ControllerSpec, Event, Lookup, ObjectKey, ReconcileError,
    Reconciler, Selector, Watch, label_value,
};

use super::FIELD_MANAGER;
use super::api::{ConfigMonitor, ConfigMonitorSpec};
use super::plan::{Found, InvalidSpec, record, selects, status, watched};
use crate::restarts::{
    Advance, Asker, Content, ContentKind, ContentRef, Decision, Digests, Discovery, Outcome,
    Pending, Record, Restarts, Then, UNREAD, is_selectable, without_annotations,
};

/// The index of monitors by what they watch.
const WATCHED: &str = "watched";

/// Reconciles ConfigMonitors.
#[derive(Debug)]
pub(super) struct ConfigMonitorReconciler {
    digests: Digests,
    watches_secrets: bool,
}

/// The controller, with this many workers; it watches Secrets only if it is told to.
pub(super) fn controller(workers: usize, watches_secrets: bool) -> ControllerSpec {
    let controller = Controller::for_kind::<ConfigMonitor>(super::BUILTIN.name)
        .index::<ConfigMonitor>(WATCHED, |monitor| {
            let content = watched(&monitor.spec).into_iter();
            content.map(|content| content.indexed(monitor.namespace().as_deref())).collect()
        })
        .watches_with(metadata::<ConfigMap>(), monitors_of::<ConfigMap>)
        .watches_with(
            // Their annotations are of no use here, and are often the largest part of them.
            Watch::<Pod>::all().metadata_only().transform(without_annotations(|_| false)),
            |pod, lookup| {
                let (namespace, labels) = (pod.namespace(), pod.metadata.labels.as_ref());
                let all = lookup.list::<ConfigMonitor>(namespace.as_deref(), &Selector::all());
                let concerned =
                    all.iter().filter(|monitor| !rolls(monitor) && selects(&monitor.spec, labels));
                concerned.map(|monitor| (monitor.namespace(), monitor.name_any())).collect()
            },
        )
        // A group of its own: its kinds are others' too, and it need not run where those do.
        .group(super::BUILTIN.name)
        .field_manager(FIELD_MANAGER)
        .workers(workers);
    let controller = match watches_secrets {
        true => controller.watches_with(metadata::<Secret>().optional(), monitors_of::<Secret>),
        false => controller,
    };
    controller.reconciler(ConfigMonitorReconciler { digests: Digests::default(), watches_secrets })
}

fn metadata<K: Content>() -> Watch<PartialObjectMeta<K>> {
    Watch::<K>::all().metadata_only().transform(without_annotations(|_| false))
}

/// Whether a monitor waits for rollouts, which are read now and then: not with every change of their Pods.
fn rolls(monitor: &ConfigMonitor) -> bool {
    let pending = monitor.status.as_ref().and_then(|status| status.record.pending.as_ref());
    pending.is_some_and(Pending::only_rolls)
}

/// The monitors that watch an object.
fn monitors_of<K: Content>(
    object: &PartialObjectMeta<K>,
    lookup: &Lookup<'_>,
) -> Vec<(Option<String>, String)> {
    let content = ContentRef { kind: K::KIND, name: object.name_any() };
    lookup.indexed_names::<ConfigMonitor>(WATCHED, &content.indexed(object.namespace().as_deref()))
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
        let (selector, content) = match selector(&monitor.spec) {
            Ok(selector) => (selector, watched(&monitor.spec)),
            Err(invalid) => (None, Err(invalid)),
        };
        let run = MonitorRun::new(ctx, &self.digests, &monitor, selector)?;
        let content = match content {
            Ok(content) => content,
            Err(invalid) => return run.say(&monitor, Found::Invalid(invalid)).await,
        };
        if content.kind == ContentKind::Secret && !self.sees_secrets(ctx)? {
            return run.say(&monitor, Found::Unwatched(content)).await;
        }
        let Some(hash) = self.digests.seen(ctx, &content).await? else {
            return run.say(&monitor, Found::Missing(content)).await;
        };
        let record = record(&monitor, &content);
        match record.decide(&hash, ctx.now(), run.restarts.window) {
            Decision::Current => {
                let found = Found::Step(content, Outcome::Current);
                run.record(&monitor, &found, Some(record.seen(hash))).await?;
                Ok(Action::Done)
            }
            _ => run.restart(&key.name).await,
        }
    }
}

impl ConfigMonitorReconciler {
    /// Whether Secrets are watched, and may be.
    fn sees_secrets(&self, ctx: &Context) -> Result<bool, ReconcileError> {
        Ok(self.watches_secrets && ctx.available::<PartialObjectMeta<Secret>>()?)
    }
}

/// Which Pods a spec selects, if it does.
fn selector(spec: &ConfigMonitorSpec) -> Result<Option<Selector>, InvalidSpec> {
    let selector = spec.pod_selector.clone().map(|labels| {
        let match_labels = Some(labels);
        Selector::try_from(LabelSelector { match_labels, ..LabelSelector::default() })
    });
    let selector = selector.transpose();
    selector.map_err(|error| InvalidSpec::Selector(sdk::error::foreign(&error.to_string())))
}

/// One reconcile of one monitor.
struct MonitorRun<'a> {
    ctx: &'a Context,
    digests: &'a Digests,
    restarts: Restarts<'a>,
    /// How many Pods are selected now.
    selected: usize,
}

impl<'a> MonitorRun<'a> {
    fn new(
        ctx: &'a Context,
        digests: &'a Digests,
        monitor: &ConfigMonitor,
        selector: Option<Selector>,
    ) -> Result<Self, ReconcileError> {
        let namespace = ctx.key().namespace.as_deref();
        let pods = match &selector {
            Some(selector) => ctx.list::<PartialObjectMeta<Pod>>(namespace, selector)?,
            None => Vec::new(),
        };
        let selected = |pod: &PartialObjectMeta<Pod>| {
            selects(&monitor.spec, pod.metadata.labels.as_ref()) && is_selectable(pod)
        };
        let restarts = Restarts {
            ctx,
            namespace: namespace.unwrap_or_default(),
            selector: selector.map(|selector| selector.to_string()),
            discovery: None,
            bare: monitor.spec.evict_bare_pods,
            window: Duration::from_secs(monitor.spec.debounce_seconds.into()),
            annotation: format!("configmonitor.leasehold.dev/{}", label_value(&monitor.name_any())),
        };
        let selected = pods.iter().filter(|pod| selected(pod)).count();
        Ok(Self { ctx, digests, restarts, selected })
    }

    /// Takes steps from the server's state, each of them recorded before the next.
    async fn restart(mut self, name: &str) -> Result<Action, ReconcileError> {
        let Some(mut monitor) = self.restarts.api::<ConfigMonitor>().get_opt(name).await? else {
            return Ok(Action::Done);
        };
        let content = match watched(&monitor.spec) {
            Ok(content) if monitor.spec.pod_selector.as_ref().is_none_or(|s| !s.is_empty()) => {
                content
            }
            _ => return Ok(Action::Done),
        };
        let Some((metadata, hash)) = self.digests.read(self.ctx, &content).await? else {
            return Ok(Action::Done);
        };
        if monitor.spec.pod_selector.is_none() {
            let discovery = Discovery::new(content.clone(), &metadata, Asker::Monitor);
            self.restarts.discovery = Some(discovery);
        }
        loop {
            let step = self.restarts.step(record(&monitor, &content), hash.clone()).await?;
            let Advance { record, outcome, then } = step;
            let found = Found::Step(content.clone(), outcome);
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
        if let Found::Step(content, Outcome::Restarted(pending, trouble)) = found
            && trouble.as_ref().is_none_or(|trouble| trouble.reason == UNREAD)
            && pending.targets() > 0
        {
            let note = format!("{content} changed: restarted {}", pending.summary());
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
