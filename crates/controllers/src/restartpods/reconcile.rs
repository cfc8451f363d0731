//! The shell: the cache shows a change, the server confirms it, and the decision is recorded on the
//! ConfigMap or Secret before it is carried out.
//!
//! Only metadata is watched; a content is read from the server when its version is new. Each record is
//! written under the resourceVersion that it was decided from. A crash at any point repeats nothing, as with
//! ConfigMonitor.

use std::marker::PhantomData;

use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use kube::core::{ObjectMeta, PartialObjectMeta};
use sdk::refusal::is_gone;
use sdk::{
    Action, Context, Controller, ControllerSpec, Event, ObjectKey, ReconcileError, Reconciler,
    Watch, label_value,
};
use serde_json::json;

use super::FIELD_MANAGER;
use super::annotation::{self, Noted, RECORD, RESTART_PODS};
use crate::restarts::{
    Advance, Content, ContentKind, Digests, MAX_TARGETS, Outcome, Restarts, Then, Trouble, WINDOW,
    unnamed, without_annotations,
};

/// What the annotations that matter here begin with.
const ANNOTATIONS: &str = "leasehold.dev/";

/// Reconciles annotated objects of one kind.
#[derive(Debug)]
pub(super) struct RestartPodsReconciler<K> {
    digests: Digests,
    kind: PhantomData<fn() -> K>,
}

/// The part of that name for one kind, with this many workers.
pub(super) fn controller<K: Content>(name: &str, workers: usize) -> ControllerSpec {
    let annotations = without_annotations(|key| key.starts_with(ANNOTATIONS));
    Controller::for_watch(name, Watch::<K>::all().metadata_only().transform(annotations))
        .predicate(|_: Option<&PartialObjectMeta<K>>, now: Option<&PartialObjectMeta<K>>| {
            now.is_some_and(|object| object.annotations().contains_key(RESTART_PODS))
        })
        .part_of(super::BUILTIN.name)
        // A group of its own: its kinds are others' too, and it need not run where those do.
        .group(super::BUILTIN.name)
        .field_manager(FIELD_MANAGER)
        .workers(workers)
        .reconciler(RestartPodsReconciler::<K> { digests: Digests::default(), kind: PhantomData })
}

impl<K: Content> Reconciler for RestartPodsReconciler<K> {
    type Kind = PartialObjectMeta<K>;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref();
        let Some(seen) = ctx.get::<PartialObjectMeta<K>>(namespace, &key.name)? else {
            return Ok(Action::Done);
        };
        let digest = self.digests.get(ctx.cluster(), &seen.metadata);
        match asks_for_more(&seen.metadata, digest.as_deref()) {
            true => self.run(ctx).go_on(&key.name).await,
            false => Ok(Action::Done),
        }
    }
}

impl<K> RestartPodsReconciler<K> {
    fn run<'a>(&'a self, ctx: &'a Context) -> Run<'a, K> {
        let namespace = ctx.key().namespace.as_deref().unwrap_or_default();
        Run { ctx, digests: &self.digests, namespace, kind: PhantomData }
    }
}

/// Whether an object shows that there is something to do. If its digest is not known it must be read.
fn asks_for_more(metadata: &ObjectMeta, digest: Option<&str>) -> bool {
    if metadata.deletion_timestamp.is_some() {
        return false;
    }
    let noted = annotation::record(metadata);
    match annotation::request(metadata) {
        None => false,
        Some(Err(invalid)) => noted.problem != Some(invalid.to_string()),
        Some(Ok(_)) => {
            let rests = |digest: &str| noted.record == noted.record.clone().seen(digest.to_owned());
            noted.problem.is_some() || !digest.is_some_and(rests)
        }
    }
}

/// One reconcile of one object.
struct Run<'a, K> {
    ctx: &'a Context,
    digests: &'a Digests,
    namespace: &'a str,
    kind: PhantomData<fn() -> K>,
}

impl<K: Content> Run<'_, K> {
    /// Takes steps from the server's state, each of them recorded before the next.
    async fn go_on(&self, name: &str) -> Result<Action, ReconcileError> {
        let Some((mut object, digest)) = self.digests.read_of::<K>(self.ctx, name).await? else {
            return Ok(Action::Done);
        };
        if !asks_for_more(&object, Some(&digest)) {
            return Ok(Action::Done);
        }
        let restarts = match annotation::request(&object) {
            None => return Ok(Action::Done),
            Some(Err(invalid)) => {
                let noted =
                    Noted { problem: Some(invalid.to_string()), ..annotation::record(&object) };
                self.write(&object, &digest, &noted).await?;
                return Ok(Action::Done);
            }
            Some(Ok((_, words))) => self.restarts(name, words.to_owned()),
        };
        loop {
            let step = restarts.step(annotation::record(&object).record, digest.clone()).await?;
            let Advance { record, outcome, then } = step;
            let noted = Noted { record, problem: problem(&outcome) };
            let Some(written) = self.write(&object, &digest, &noted).await? else {
                return Ok(Action::Done);
            };
            object = written;
            if let Outcome::Restarted(pending, None) = outcome
                && pending.targets() > 0
            {
                let note = format!("content changed: restarted {}", pending.summary());
                let about = unnamed::<K>(&object);
                self.ctx.publish(Event::normal(&about, "Restarted", "Restart", note)).await;
            }
            match then {
                Then::GoOn => {}
                Then::Rest => return Ok(Action::Done),
                Then::Again(after) => return Ok(Action::RequeueAfter(after)),
                Then::Fail(error) => return Err(error.into()),
            }
        }
    }

    fn restarts(&self, name: &str, selector: String) -> Restarts<'_> {
        let prefix = match K::KIND {
            ContentKind::ConfigMap => "restart-pods.leasehold.dev",
            ContentKind::Secret => "secret.restart-pods.leasehold.dev",
        };
        let annotation = format!("{prefix}/{}", label_value(name));
        let (ctx, namespace) = (self.ctx, self.namespace);
        Restarts { ctx, namespace, selector, bare: false, window: WINDOW, annotation }
    }

    /// Writes the record if it says something new, unless the object changed since it was read; an Event
    /// tells of a new problem. Returns its metadata as it then is; `None` if it is gone.
    async fn write(
        &self,
        object: &ObjectMeta,
        digest: &str,
        noted: &Noted,
    ) -> Result<Option<ObjectMeta>, ReconcileError> {
        let before = annotation::record(object);
        if before == *noted {
            return Ok(Some(object.clone()));
        }
        let text = serde_json::to_string(noted).map_err(ReconcileError::terminal)?;
        let patch = Patch::Merge(json!({"metadata": {
            "resourceVersion": object.resource_version, "annotations": {RECORD: text},
        }}));
        let field_manager = Some(FIELD_MANAGER.to_owned());
        let params = PatchParams { field_manager, ..PatchParams::default() };
        let objects = Api::<K>::namespaced(self.ctx.client(), self.namespace);
        let name = object.name.as_deref().unwrap_or_default();
        let written = match objects.patch_metadata(name, &params, &patch).await {
            Ok(written) => written.metadata,
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // The version was the one that was read, so the content is still that.
        self.digests.keep(self.ctx.cluster(), &written, digest);
        if let Some(problem) = noted.problem.clone().filter(|_| noted.problem != before.problem) {
            let about = unnamed::<K>(&written);
            self.ctx.publish(Event::warning(&about, "NotRestarted", "Restart", problem)).await;
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
