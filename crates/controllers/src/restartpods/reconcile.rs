//! The shell: the cache shows a change, the server confirms it, and the decision is recorded on the
//! ConfigMap or Secret before it is carried out.
//!
//! Of ConfigMaps and Secrets only the metadata is watched; a content is read from the server when its version is
//! new. Of workloads only what [`discovery`] reads is kept. Each record is written under the resourceVersion that
//! it was decided from. A crash at any point repeats nothing, as with ConfigMonitor.

use std::marker::PhantomData;

use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use kube::core::{DynamicObject, ObjectMeta, PartialObjectMeta};
use sdk::refusal::is_gone;
use sdk::{
    Action, Context, Controller, ControllerSpec, Event, ObjectKey, ReconcileError, Reconciler,
    Transform, Watch, label_value,
};
use serde_json::json;

use super::FIELD_MANAGER;
use super::annotation::{self, InvalidRequest, Noted, RECORD, RESTART_PODS};
use crate::restarts::discovery::{self, asked_for};
use crate::restarts::{
    Advance, Asker, Content, ContentKind, ContentRef, Digests, Discovery, MAX_TARGETS, Outcome,
    Restarts, Then, Trouble, WINDOW, WorkloadKind, unnamed, without_annotations,
};

/// What the annotations that matter here begin with.
const ANNOTATIONS: &str = "leasehold.dev/";
/// The index of workloads by what they ask for.
const ASKED_FOR: &str = "asked-for";

/// Reconciles objects of one kind that are annotated, or that workloads ask for.
#[derive(Debug)]
pub(super) struct RestartPodsReconciler<K> {
    digests: Digests,
    kind: PhantomData<fn() -> K>,
}

/// The part of that name for one kind, with this many workers.
pub(super) fn controller<K: Content>(name: &str, workers: usize) -> ControllerSpec {
    let annotations = without_annotations(|key| key.starts_with(ANNOTATIONS));
    let objects = Watch::<K>::all().metadata_only().transform(annotations);
    let controller = Controller::for_watch(name, objects);
    let controller = WorkloadKind::ALL.into_iter().fold(controller, |controller, kind| {
        controller.watches_with(workloads(kind), |workload, _| {
            let asked_for = asked_for(workload).into_iter();
            let own = asked_for.filter(|content| content.kind == K::KIND);
            own.map(|content| (workload.namespace(), content.name)).collect()
        })
    });
    controller
        .part_of(super::BUILTIN.name)
        // A group of its own: its kinds are others' too, and it need not run where those do.
        .group(super::BUILTIN.name)
        .field_manager(FIELD_MANAGER)
        .workers(workers)
        .reconciler(RestartPodsReconciler::<K> { digests: Digests::default(), kind: PhantomData })
}

/// The workloads of a kind. Only a change of what they ask for counts.
fn workloads(kind: WorkloadKind) -> Watch<DynamicObject> {
    let indexed = |workload: &DynamicObject| {
        let namespace = workload.namespace();
        asked_for(workload).iter().map(|content| content.indexed(namespace.as_deref())).collect()
    };
    let asked = |workload: Option<&DynamicObject>| workload.map(asked_for).unwrap_or_default();
    let watch = Watch::dynamic(kind.kind())
        .index(ASKED_FOR, indexed)
        .transform(Transform::new(discovery::drops))
        .predicate(move |old: Option<&DynamicObject>, new: Option<&DynamicObject>| {
            asked(old) != asked(new)
        });
    if kind == WorkloadKind::Rollout { watch.optional() } else { watch }
}

/// What an object's Pods and workloads are, as far as it or they ask for restarts.
struct Wanted {
    selector: Option<String>,
    discovery: Option<Discovery>,
}

impl Wanted {
    fn is_nothing(&self) -> bool {
        self.selector.is_none() && self.discovery.is_none()
    }
}

impl<K: Content> Reconciler for RestartPodsReconciler<K> {
    type Kind = PartialObjectMeta<K>;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref();
        let Some(seen) = ctx.get::<PartialObjectMeta<K>>(namespace, &key.name)? else {
            return Ok(Action::Done);
        };
        let run = self.run(ctx);
        let digest = self.digests.get(ctx.cluster(), &seen.metadata);
        match asks_for_more(&seen.metadata, &run.wanted(&seen.metadata)?, digest.as_deref()) {
            true => run.go_on(&key.name).await,
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
fn asks_for_more(
    metadata: &ObjectMeta,
    wanted: &Result<Wanted, InvalidRequest>,
    digest: Option<&str>,
) -> bool {
    if metadata.deletion_timestamp.is_some() {
        return false;
    }
    let noted = annotation::record(metadata);
    match wanted {
        Ok(wanted) if wanted.is_nothing() => false,
        Err(invalid) => noted.problem != Some(invalid.to_string()),
        Ok(_) => {
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
        let wanted = self.wanted(&object)?;
        if !asks_for_more(&object, &wanted, Some(&digest)) {
            return Ok(Action::Done);
        }
        let restarts = match wanted {
            Err(invalid) => {
                let noted =
                    Noted { problem: Some(invalid.to_string()), ..annotation::record(&object) };
                self.write(&object, &digest, &noted).await?;
                return Ok(Action::Done);
            }
            Ok(wanted) => self.restarts(name, wanted),
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

    /// What the object asks for, and the workloads for it.
    fn wanted(
        &self,
        metadata: &ObjectMeta,
    ) -> Result<Result<Wanted, InvalidRequest>, ReconcileError> {
        let name = metadata.name.clone().unwrap_or_default();
        let content = ContentRef { kind: K::KIND, name };
        let discovery = Discovery::new(content.clone(), metadata, Asker::Workload);
        let searches = discovery.matches() || !discovery.is_ignored() && self.is_asked(&content)?;
        let discovery = searches.then_some(discovery);
        let selector = annotation::request(metadata).transpose();
        Ok(selector.map(|selector| {
            let selector = selector.map(|(_, words)| words.to_owned());
            Wanted { selector, discovery }
        }))
    }

    /// Whether a workload asks for an object.
    fn is_asked(&self, content: &ContentRef) -> Result<bool, ReconcileError> {
        let value = content.indexed(Some(self.namespace));
        for kind in WorkloadKind::ALL {
            let kind = kind.kind();
            let asking = self.ctx.indexed_dynamic::<DynamicObject>(&kind, ASKED_FOR, &value)?;
            if !asking.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn restarts(&self, name: &str, wanted: Wanted) -> Restarts<'_> {
        let prefix = match K::KIND {
            ContentKind::ConfigMap => "restart-pods.leasehold.dev",
            ContentKind::Secret => "secret.restart-pods.leasehold.dev",
        };
        let annotation = format!("{prefix}/{}", label_value(name));
        let (ctx, namespace, Wanted { selector, discovery }) = (self.ctx, self.namespace, wanted);
        let (bare, window) = (false, WINDOW);
        Restarts { ctx, namespace, selector, discovery, bare, window, annotation }
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
        Outcome::TooMany(count) => Some(format!(
            "{count} to restart, {MAX_TARGETS} allowed: narrow {RESTART_PODS}, or let fewer workloads ask"
        )),
        Outcome::Current
        | Outcome::Settling
        | Outcome::Decided(_)
        | Outcome::Restarted(_, None) => None,
    }
}
