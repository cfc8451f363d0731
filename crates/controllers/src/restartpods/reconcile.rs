//! The shell: the cache shows a change, the server confirms it, and the decision is recorded on the
//! ConfigMap before it is carried out.
//!
//! Each record is written under the resourceVersion that it was decided from. A crash at any point
//! repeats nothing, as with ConfigMonitor.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use sdk::ObjectKey;
use sdk::{
    Action, Context, Controller, ControllerSpec, Event, ReconcileError, Reconciler, label_value,
};
use serde_json::json;

use super::FIELD_MANAGER;
use super::annotation::{self, RECORD, RESTART_PODS, Record};
use crate::restarts::{Change, MAX_TARGETS, Restarts, change, hash, restartable};
use sdk::refusal::{is_gone, refusal};

/// Reconciles annotated ConfigMaps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RestartPodsReconciler;

/// The controller, with this many workers.
pub(super) fn controller(workers: usize) -> ControllerSpec {
    Controller::for_kind::<ConfigMap>(super::BUILTIN.name)
        .predicate(|_: Option<&ConfigMap>, now: Option<&ConfigMap>| {
            now.is_some_and(|map| map.annotations().contains_key(RESTART_PODS))
        })
        .field_manager(FIELD_MANAGER)
        .workers(workers)
        .reconciler(RestartPodsReconciler)
}

impl Reconciler for RestartPodsReconciler {
    type Kind = ConfigMap;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref();
        if let Some(found) = ctx.get::<ConfigMap>(namespace, &key.name)?
            && asks_for_more(&found)
        {
            let annotation = format!("restart-pods.leasehold.dev/{}", label_value(&key.name));
            let run = ConfigMapRun { ctx, namespace: namespace.unwrap_or_default(), annotation };
            run.go_on(&key.name).await?;
        }
        Ok(Action::Done)
    }
}

/// Whether a ConfigMap shows that there is something to do.
fn asks_for_more(map: &ConfigMap) -> bool {
    if map.metadata.deletion_timestamp.is_some() {
        return false;
    }
    let record = annotation::record(map);
    match annotation::request(map) {
        None => false,
        Some(Err(invalid)) => record.problem != Some(invalid.to_string()),
        Some(Ok(_)) => {
            let hash = hash(map);
            let change = change(record.hash.as_deref(), record.pending.as_ref(), &hash);
            change != Change::None || record != record.clone().seen(hash)
        }
    }
}

/// One reconcile of one ConfigMap.
struct ConfigMapRun<'a> {
    ctx: &'a Context,
    namespace: &'a str,
    annotation: String,
}

impl ConfigMapRun<'_> {
    /// Decides from the server's state, and carries the decision out.
    async fn go_on(&self, name: &str) -> Result<(), ReconcileError> {
        let api = self.restarts(Vec::new()).api::<ConfigMap>();
        let Some(map) = api.get_opt(name).await?.filter(asks_for_more) else { return Ok(()) };
        let record = annotation::record(&map);
        let selector = match annotation::request(&map) {
            None => return Ok(()),
            Some(Err(invalid)) => return self.hindered(&map, record, invalid.to_string()).await,
            Some(Ok((_, words))) => words.to_owned(),
        };
        let hash = hash(&map);
        match change(record.hash.as_deref(), record.pending.as_ref(), &hash) {
            Change::None => self.write(&map, &record.seen(hash)).await.map(drop),
            Change::Resume(_) => self.carry_out(map, record).await,
            Change::Restart => {
                let pods = self.pods(&selector).await?;
                let pending = self.restarts(pods).pending(hash).await?;
                if pending.targets() > MAX_TARGETS {
                    let count = pending.targets();
                    let problem =
                        format!("{count} to restart, {MAX_TARGETS} allowed: narrow {RESTART_PODS}");
                    return self.hindered(&map, record, problem).await;
                }
                let record = record.decided(pending);
                match self.write(&map, &record).await? {
                    Some(map) => self.carry_out(map, record).await,
                    None => Ok(()),
                }
            }
        }
    }

    /// Restarts what the record names, and records that it is done, or why not.
    async fn carry_out(&self, map: ConfigMap, record: Record) -> Result<(), ReconcileError> {
        let Some(pending) = record.pending.clone() else { return Ok(()) };
        if let Err(error) = self.restarts(Vec::new()).carry_out(&pending).await {
            if let Some(words) = refusal(&error) {
                self.hindered(&map, record, words).await?;
            }
            return Err(error.into());
        }
        let written = self.write(&map, &record.restarted(self.ctx.now())).await?;
        if written.is_some() && pending.targets() > 0 {
            let note = format!("content changed: restarted {}", pending.summary());
            self.ctx.publish(Event::normal(&map, "Restarted", "Restart", note)).await;
        }
        Ok(())
    }

    /// Reports once why nothing can be restarted: in the record and as an Event.
    async fn hindered(
        &self,
        map: &ConfigMap,
        record: Record,
        problem: String,
    ) -> Result<(), ReconcileError> {
        if record.problem.as_ref() == Some(&problem) {
            return Ok(());
        }
        self.write(map, &record.hindered(problem.clone())).await?;
        self.ctx.publish(Event::warning(map, "NotRestarted", "Restart", problem)).await;
        Ok(())
    }

    /// Writes the record, unless the ConfigMap changed since `map` was read. Returns the ConfigMap as it
    /// then is; `None` if it is gone.
    async fn write(
        &self,
        map: &ConfigMap,
        record: &Record,
    ) -> Result<Option<ConfigMap>, ReconcileError> {
        let text = serde_json::to_string(record).map_err(ReconcileError::terminal)?;
        let patch = Patch::Merge(json!({"metadata": {
            "resourceVersion": map.resource_version(), "annotations": {RECORD: text},
        }}));
        let field_manager = Some(FIELD_MANAGER.to_owned());
        let params = PatchParams { field_manager, ..PatchParams::default() };
        let api = self.restarts(Vec::new()).api::<ConfigMap>();
        match api.patch(&map.name_any(), &params, &patch).await {
            Ok(written) => Ok(Some(written)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The Pods to restart. Read from the server once for each change, which is not worth a watch.
    async fn pods(&self, selector: &str) -> Result<Vec<Arc<Pod>>, ReconcileError> {
        let api = self.restarts(Vec::new()).api::<Pod>();
        let found = api.list(&ListParams::default().labels(selector)).await?;
        Ok(found.items.into_iter().filter(restartable).map(Arc::new).collect())
    }

    fn restarts(&self, pods: Vec<Arc<Pod>>) -> Restarts<'_> {
        Restarts::new(self.ctx, self.namespace, pods, self.annotation.clone())
    }
}
