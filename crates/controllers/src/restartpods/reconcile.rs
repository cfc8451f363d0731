//! The shell: the cache shows a change, the server confirms it, and the decision is recorded on the
//! ConfigMap or Secret before it is carried out.
//!
//! Of ConfigMaps and Secrets only the metadata is watched; a content is read from the server when its version is
//! new. Of workloads only what [`discovery`] reads is kept. Each record is written under the resourceVersion that
//! it was decided from. A crash at any point repeats nothing, as with ConfigMonitor.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;

use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use kube::core::{DynamicObject, ObjectMeta, PartialObjectMeta};
use sdk::refusal::is_gone;
use sdk::{
    Action, Context, Controller, ControllerSpec, Event, Lookup, ObjectKey, ReconcileError,
    Reconciler, Selector, Transform, Watch, label_value,
};
use serde_json::json;

use super::FIELD_MANAGER;
use super::annotation::{self, InvalidRequest, Noted, RECORD, RESTART_PODS};
use crate::restarts::discovery::{self, referred};
use crate::restarts::{
    Advance, Asker, Asking, Content, ContentKind, ContentRef, Digests, Discovery, MAX_TARGETS,
    Outcome, Restarts, Then, Trouble, UNREAD, WINDOW, Workload, WorkloadKind, told, unnamed,
    without_annotations,
};

/// What the annotations that matter here begin with.
const ANNOTATIONS: &str = "leasehold.dev/";
/// The index of workloads by what they ask for, or may mean.
const ASKED_FOR: &str = "asked-for";
/// The index of the Rollouts that ask for what a Deployment uses, by namespace.
const REFERRING: &str = "referring";
/// How many workloads get an Event of their own for what they say that cannot be read.
const MAX_TOLD: usize = 10;

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
        controller.watches_with(workloads(kind), move |workload, lookup| {
            let concerned = concerned(kind, workload, lookup).into_iter();
            let own = concerned.filter(|content| content.kind == K::KIND);
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

/// The workloads of a kind. Only a change of what they ask for counts, or of what a Rollout may ask for in their place.
fn workloads(kind: WorkloadKind) -> Watch<DynamicObject> {
    let indexed = |workload: &DynamicObject| {
        let (namespace, asking) = (workload.namespace(), Asking::of(workload));
        let concerned = asking.concerned().into_iter();
        concerned.map(|content| content.indexed(namespace.as_deref())).collect()
    };
    let referring = |workload: &DynamicObject| {
        let asks = referred(workload).is_some() && !Asking::of(workload).is_silent();
        workload.namespace().filter(|_| asks).into_iter().collect()
    };
    let said = move |workload: Option<&DynamicObject>| {
        let workload = workload?;
        let asking = Asking::of(workload);
        let counts = !asking.is_silent() || kind == WorkloadKind::Deployment && asking.is_user();
        counts.then(|| (asking, referred(workload).map(str::to_owned)))
    };
    let watch = Watch::dynamic(kind.kind())
        .index(ASKED_FOR, indexed)
        .index(REFERRING, referring)
        .transform(Transform::new(discovery::drops))
        .predicate(move |old: Option<&DynamicObject>, new: Option<&DynamicObject>| {
            said(old) != said(new)
        });
    if kind == WorkloadKind::Rollout { watch.optional() } else { watch }
}

/// What a workload asks for or may mean, alone and together with the Deployment whose template it runs, or with the Rollouts
/// that run its own.
fn concerned(
    kind: WorkloadKind,
    workload: &DynamicObject,
    lookup: &Lookup<'_>,
) -> BTreeSet<ContentRef> {
    let (asking, namespace) = (Asking::of(workload), workload.namespace());
    let (mut found, namespace) = (asking.concerned(), namespace.as_deref());
    match kind {
        WorkloadKind::Rollout => {
            let deployment = referred(workload).and_then(|name| {
                let kind = WorkloadKind::Deployment.kind();
                lookup.get_dynamic::<DynamicObject>(&kind, namespace, name)
            });
            let deployment = deployment.map(|deployment| Asking::of(&deployment));
            found.extend(asking.running(deployment.as_ref()).concerned());
        }
        WorkloadKind::Deployment => {
            let (kind, name) = (WorkloadKind::Rollout.kind(), workload.name_any());
            let rollouts = lookup.list_dynamic::<DynamicObject>(&kind, namespace, &Selector::all());
            let running = rollouts.iter().filter(|rollout| referred(rollout) == Some(&*name));
            let running = running.map(|rollout| Asking::of(rollout).running(Some(&asking)));
            found.extend(running.flat_map(|asking| asking.concerned()));
        }
        WorkloadKind::StatefulSet | WorkloadKind::DaemonSet => {}
    }
    found
}

/// What an object's Pods and workloads are, as far as it or they ask for restarts.
struct Wanted {
    selector: Option<String>,
    discovery: Option<Discovery>,
    /// What the annotations of the object say that cannot be read.
    misspelt: Vec<String>,
    /// What those of workloads that may mean the object say that cannot be read.
    workloads: BTreeMap<Workload, String>,
}

impl Wanted {
    fn is_nothing(&self) -> bool {
        self.selector.is_none() && self.discovery.is_none()
    }

    /// All that cannot be read.
    fn unread(&self) -> Option<String> {
        let of = |(workload, words): (&Workload, &String)| format!("{}: {words}", workload.label());
        let of_workloads = self.workloads.iter().map(of);
        let all: Vec<_> = self.misspelt.iter().cloned().chain(of_workloads).collect();
        (!all.is_empty()).then(|| told(&all))
    }
}

/// What workloads ask for an object.
#[derive(Default)]
struct Asked {
    /// Whether one does, or may mean it.
    any: bool,
    /// What they say that cannot be read.
    unread: BTreeMap<Workload, String>,
}

impl Asked {
    fn add(&mut self, workload: Workload, asking: &Asking, content: &ContentRef) {
        self.any = true;
        if let Some(words) = asking.unread(content) {
            self.unread.insert(workload, words);
        }
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
        Ok(wanted) if wanted.is_nothing() => noted.problem != wanted.unread(),
        Err(invalid) => noted.problem != Some(invalid.to_string()),
        Ok(wanted) => {
            let rests = |digest: &str| noted.record == noted.record.clone().seen(digest.to_owned());
            let tells = noted.problem.is_some() || wanted.unread().is_some();
            tells || !digest.is_some_and(rests)
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
        let (unread, restarts) = match wanted {
            Ok(wanted) if !wanted.is_nothing() => {
                let unread = wanted.unread();
                let before = annotation::record(&object).problem.unwrap_or_default();
                if unread.as_ref().is_some_and(|unread| !before.contains(unread)) {
                    self.tell(&wanted.workloads).await?;
                }
                (unread, self.restarts(name, wanted))
            }
            idle => {
                let problem =
                    idle.map_or_else(|invalid| Some(invalid.to_string()), |idle| idle.unread());
                let noted = Noted { problem, ..annotation::record(&object) };
                self.write(&object, &digest, &noted).await?;
                return Ok(Action::Done);
            }
        };
        loop {
            let step = restarts.step(annotation::record(&object).record, digest.clone()).await?;
            let Advance { record, outcome, then } = step;
            let problem = joined(problem(&outcome), unread.as_deref());
            let noted = Noted { record, problem };
            let Some(written) = self.write(&object, &digest, &noted).await? else {
                return Ok(Action::Done);
            };
            object = written;
            if let Outcome::Restarted(pending, trouble) = outcome
                && trouble.is_none_or(|trouble| trouble.reason == UNREAD)
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
        let asked = match discovery.is_ignored() {
            true => Asked::default(),
            false => self.asked(&content)?,
        };
        let flags = discovery.unread().map(str::to_owned);
        let misspelt = flags.into_iter().chain(annotation::misplaced(metadata)).collect();
        let searches = discovery.matches() || asked.any;
        let discovery = searches.then_some(discovery);
        let selector = annotation::request(metadata).transpose();
        Ok(selector.map(|selector| {
            let selector = selector.map(|(_, words)| words.to_owned());
            Wanted { selector, discovery, misspelt, workloads: asked.unread }
        }))
    }

    /// The workloads that ask for an object, or may mean it.
    fn asked(&self, content: &ContentRef) -> Result<Asked, ReconcileError> {
        let (value, mut asked) = (content.indexed(Some(self.namespace)), Asked::default());
        for kind in WorkloadKind::ALL {
            let found =
                self.ctx.indexed_dynamic::<DynamicObject>(&kind.kind(), ASKED_FOR, &value)?;
            for workload in &found {
                let named = Workload::new(kind, workload.name_any());
                asked.add(named, &Asking::of(workload), content);
            }
        }
        let (ctx, namespace, rollouts) = (self.ctx, self.namespace, WorkloadKind::Rollout.kind());
        let deployments = WorkloadKind::Deployment.kind();
        for rollout in &ctx.indexed_dynamic::<DynamicObject>(&rollouts, REFERRING, namespace)? {
            let Some(name) = referred(rollout) else { continue };
            let found = ctx.get_dynamic::<DynamicObject>(&deployments, Some(namespace), name)?;
            let asking = Asking::of(rollout).running(found.as_ref().map(Asking::of).as_ref());
            if asking.concerned().contains(content) {
                let named = Workload::new(WorkloadKind::Rollout, rollout.name_any());
                asked.add(named, &asking, content);
            }
        }
        Ok(asked)
    }

    /// Tells workloads what they say that cannot be read.
    async fn tell(&self, unread: &BTreeMap<Workload, String>) -> Result<(), ReconcileError> {
        for (workload, words) in unread.iter().take(MAX_TOLD) {
            let (client, kind) = (self.ctx.client(), workload.kind.kind().api_resource());
            let workloads = Api::<DynamicObject>::namespaced_with(client, self.namespace, &kind);
            if let Some(found) = workloads.get_opt(&workload.name).await? {
                let event = Event::warning(&found, "NotRestarted", "Restart", words.as_str());
                self.ctx.publish(event).await;
            }
        }
        Ok(())
    }

    fn restarts(&self, name: &str, wanted: Wanted) -> Restarts<'_> {
        let prefix = match K::KIND {
            ContentKind::ConfigMap => "restart-pods.leasehold.dev",
            ContentKind::Secret => "secret.restart-pods.leasehold.dev",
        };
        let annotation = format!("{prefix}/{}", label_value(name));
        let Wanted { selector, discovery, .. } = wanted;
        let (ctx, namespace) = (self.ctx, self.namespace);
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
        let params = PatchParams::apply(FIELD_MANAGER);
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

/// A problem, and what annotations say that cannot be read.
fn joined(problem: Option<String>, unread: Option<&str>) -> Option<String> {
    match (problem, unread) {
        (Some(problem), Some(unread)) if !problem.contains(unread) => {
            Some(format!("{problem}; {unread}"))
        }
        (problem, unread) => problem.or_else(|| unread.map(str::to_owned)),
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
