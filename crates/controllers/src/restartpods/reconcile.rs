//! The shell: the cache shows a change, the server confirms it, and the decision is recorded on the
//! ConfigMap before it is carried out.
//!
//! Each record is written under the resourceVersion that it was decided from. A crash at any point
//! repeats nothing, as with ConfigMonitor.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use sdk::ObjectKey;
use sdk::{
    Action, Context, Controller, ControllerSpec, Event, ReconcileError, Reconciler, label_value,
};
use serde_json::json;

use super::FIELD_MANAGER;
use super::annotation::{self, Noted, RECORD, RESTART_PODS};
use crate::restarts::{Advance, MAX_TARGETS, Outcome, Restarts, Then, Trouble, WINDOW, hash};
use sdk::refusal::is_gone;

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
            return ConfigMapRun { ctx, namespace: namespace.unwrap_or_default() }
                .go_on(&key.name)
                .await;
        }
        Ok(Action::Done)
    }
}

/// Whether a ConfigMap shows that there is something to do.
fn asks_for_more(map: &ConfigMap) -> bool {
    if map.metadata.deletion_timestamp.is_some() {
        return false;
    }
    let noted = annotation::record(map);
    match annotation::request(map) {
        None => false,
        Some(Err(invalid)) => noted.problem != Some(invalid.to_string()),
        Some(Ok(_)) => {
            let hash = hash(map);
            noted.problem.is_some() || noted.record != noted.record.clone().seen(hash)
        }
    }
}

/// One reconcile of one ConfigMap.
struct ConfigMapRun<'a> {
    ctx: &'a Context,
    namespace: &'a str,
}

impl ConfigMapRun<'_> {
    /// Takes steps from the server's state, each of them recorded before the next.
    async fn go_on(&self, name: &str) -> Result<Action, ReconcileError> {
        let found = self.maps().get_opt(name).await?;
        let Some(mut map) = found.filter(asks_for_more) else { return Ok(Action::Done) };
        let mut noted = annotation::record(&map);
        let restarts = match annotation::request(&map) {
            None => return Ok(Action::Done),
            Some(Err(invalid)) => {
                noted.problem = Some(invalid.to_string());
                self.write(&map, &noted).await?;
                return Ok(Action::Done);
            }
            Some(Ok((_, words))) => self.restarts(name, words.to_owned()),
        };
        loop {
            let step = restarts.step(annotation::record(&map).record, hash(&map)).await?;
            let Advance { record, outcome, then } = step;
            let noted = Noted { record, problem: problem(&outcome) };
            let Some(written) = self.write(&map, &noted).await? else { return Ok(Action::Done) };
            map = written;
            if let Outcome::Restarted(pending, None) = outcome
                && pending.targets() > 0
            {
                let note = format!("content changed: restarted {}", pending.summary());
                self.ctx.publish(Event::normal(&map, "Restarted", "Restart", note)).await;
            }
            match then {
                Then::GoOn => {}
                Then::Rest => return Ok(Action::Done),
                Then::Again(after) => return Ok(Action::RequeueAfter(after)),
                Then::Fail(error) => return Err(error.into()),
            }
        }
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.ctx.client(), self.namespace)
    }

    fn restarts(&self, name: &str, selector: String) -> Restarts<'_> {
        let annotation = format!("restart-pods.leasehold.dev/{}", label_value(name));
        let (ctx, namespace) = (self.ctx, self.namespace);
        Restarts { ctx, namespace, selector, bare: false, window: WINDOW, annotation }
    }

    /// Writes the record if it says something new, unless the ConfigMap changed since `map` was read; an Event
    /// tells of a new problem. Returns the ConfigMap as it then is; `None` if it is gone.
    async fn write(
        &self,
        map: &ConfigMap,
        noted: &Noted,
    ) -> Result<Option<ConfigMap>, ReconcileError> {
        let before = annotation::record(map);
        if before == *noted {
            return Ok(Some(map.clone()));
        }
        let text = serde_json::to_string(noted).map_err(ReconcileError::terminal)?;
        let patch = Patch::Merge(json!({"metadata": {
            "resourceVersion": map.resource_version(), "annotations": {RECORD: text},
        }}));
        let field_manager = Some(FIELD_MANAGER.to_owned());
        let params = PatchParams { field_manager, ..PatchParams::default() };
        let written = match self.maps().patch(&map.name_any(), &params, &patch).await {
            Ok(written) => written,
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if let Some(problem) = noted.problem.clone().filter(|_| noted.problem != before.problem) {
            self.ctx.publish(Event::warning(&written, "NotRestarted", "Restart", problem)).await;
        }
        Ok(Some(written))
    }
}

/// Why nothing is restarted, or what keeps a restart from its end.
fn problem(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Waiting(Trouble { reason: "RollingOut", .. }) => None,
        Outcome::Waiting(trouble) | Outcome::Restarted(_, Some(trouble)) => {
            Some(trouble.words.clone())
        }
        Outcome::Refused(words) => Some(words.clone()),
        Outcome::TooMany(count) => {
            Some(format!("{count} to restart, {MAX_TARGETS} allowed: narrow {RESTART_PODS}"))
        }
        Outcome::Current
        | Outcome::Settling
        | Outcome::Decided(_)
        | Outcome::Restarted(_, None) => None,
    }
}
