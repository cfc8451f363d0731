//! The shell of an EtcdSnapshot: observes it, takes the next step, writes its status.
//!
//! The cache shows that there is something to do. The object is then read from the server, and every
//! write of its status carries the version of that read: whoever acts on an old status fails before it
//! acts.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, PostParams, Preconditions};
use operands::backup::destination::Destination;
use sdk::{
    Action, Context, Controller, ControllerSpec, Event, Lifecycle, ObjectKey, ReconcileError,
    Reconciler, mapping,
};

use super::api::{EtcdSnapshot, EtcdSnapshotStatus, SnapshotPhase};
use super::jobs;
use super::plan::{Observed, Step, end, next};
use super::seen::{JobSeen, PodsSeen};
use super::settings::Settings;
use crate::api::EtcdCluster;

/// The name of this part of the controller.
const NAME: &str = "etcd-snapshot";
/// Keeps an EtcdSnapshot until what it stored is deleted.
const FINALIZER: &str = "data.leasehold.dev/stored-snapshot";
/// The annotation of a Job: the EtcdSnapshot that it works for.
const SNAPSHOT: &str = "data.leasehold.dev/etcd-snapshot";
/// The pause before a step that follows from this one.
const SOON: Duration = Duration::from_secs(1);
/// The most Pods of a Job that are read.
const MAX_PODS: u32 = 16;

/// Reconciles EtcdSnapshots.
struct SnapshotReconciler {
    settings: Settings,
}

/// The controller of EtcdSnapshots.
pub(super) fn controller(workers: usize, settings: Settings) -> ControllerSpec {
    Controller::for_kind::<EtcdSnapshot>(NAME)
        .part_of(super::WHOLE)
        .watches::<Job>(mapping::named_by_annotation(SNAPSHOT))
        .watches::<EtcdCluster>(|cluster, lookup| {
            let namespace = cluster.namespace();
            let all = lookup.list::<EtcdSnapshot>(namespace.as_deref(), &sdk::Selector::all());
            let waits = |found: &&std::sync::Arc<EtcdSnapshot>| {
                let is_new = found.status.as_ref().is_none_or(|status| status.key.is_none());
                is_new && found.spec.cluster == cluster.name_any()
            };
            all.iter().filter(waits).map(|found| (found.namespace(), found.name_any())).collect()
        })
        .workers(workers)
        .reconciler(SnapshotReconciler { settings })
}

impl Reconciler for SnapshotReconciler {
    type Kind = EtcdSnapshot;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        let Some(cached) = ctx.get::<EtcdSnapshot>(Some(namespace), &key.name)? else {
            return Ok(Action::Done);
        };
        let is_over = cached.status.as_ref().is_some_and(|status| status.finished.is_some());
        if is_over && cached.metadata.deletion_timestamp.is_none() {
            return Ok(Action::Done);
        }
        let snapshots = Api::<EtcdSnapshot>::namespaced(ctx.client(), namespace);
        let Some(snapshot) = snapshots.get_opt(&key.name).await? else { return Ok(Action::Done) };
        match ctx.finalizer(&snapshot, FINALIZER).await? {
            Lifecycle::Over => Ok(Action::Done),
            Lifecycle::Live(snapshot) => self.live(ctx, &snapshot).await,
            Lifecycle::Ending => self.ending(ctx, &snapshot).await,
        }
    }
}

impl SnapshotReconciler {
    async fn live(&self, ctx: &Context, snapshot: &EtcdSnapshot) -> Result<Action, ReconcileError> {
        let namespace = snapshot.namespace().unwrap_or_default();
        let cluster = ctx.get::<EtcdCluster>(Some(&namespace), &snapshot.spec.cluster)?;
        let store = job(ctx, &namespace, &jobs::store_name(snapshot)).await?;
        let pods = match &store {
            Some(job) => pods_of(ctx, &namespace, &job.name).await?,
            None => PodsSeen::default(),
        };
        let observed = Observed {
            snapshot,
            cluster: cluster.as_deref(),
            image: self.settings.image.as_deref(),
            store,
            delete: None,
            pods,
            missing: missing(ctx, &namespace, &snapshot.spec.destination).await?,
            now: ctx.now(),
        };
        take(ctx, snapshot, next(&observed)).await
    }

    async fn ending(
        &self,
        ctx: &Context,
        snapshot: &EtcdSnapshot,
    ) -> Result<Action, ReconcileError> {
        let namespace = snapshot.namespace().unwrap_or_default();
        let delete = job(ctx, &namespace, &jobs::delete_name(snapshot)).await?;
        let pods = match &delete {
            Some(job) => pods_of(ctx, &namespace, &job.name).await?,
            None => PodsSeen::default(),
        };
        let observed = Observed {
            snapshot,
            cluster: None,
            image: self.settings.image.as_deref(),
            store: job(ctx, &namespace, &jobs::store_name(snapshot)).await?,
            delete,
            pods,
            missing: missing(ctx, &namespace, &snapshot.spec.destination).await?,
            now: ctx.now(),
        };
        let since = snapshot.metadata.deletion_timestamp.as_ref().map_or(ctx.now(), |at| at.0);
        match take(ctx, snapshot, end(&observed, since)).await {
            Err(error) if is_ending_namespace(&error) => {
                let note = "its namespace is being deleted, and no Job can run there any more";
                take(ctx, snapshot, Step::Release(Some(note.to_owned()))).await
            }
            other => other,
        }
    }
}

async fn take(
    ctx: &Context,
    snapshot: &EtcdSnapshot,
    step: Step,
) -> Result<Action, ReconcileError> {
    let namespace = snapshot.namespace().unwrap_or_default();
    match step {
        Step::Rest => Ok(Action::Done),
        Step::Record(status) => {
            record(ctx, snapshot, *status).await?;
            Ok(Action::RequeueAfter(SOON))
        }
        Step::Wait(status, pause) => {
            record(ctx, snapshot, *status).await?;
            Ok(Action::RequeueAfter(pause))
        }
        Step::Create(mut job) => {
            let annotations = job.metadata.annotations.get_or_insert_default();
            annotations.insert(SNAPSHOT.to_owned(), snapshot.name_any());
            if snapshot.metadata.deletion_timestamp.is_none() {
                sdk::set_controller(snapshot, &mut *job).map_err(ReconcileError::terminal)?;
            }
            create(ctx, &namespace, &job).await?;
            Ok(Action::RequeueAfter(SOON))
        }
        Step::Delete { name, uid } => {
            delete_job(ctx, &namespace, &name, &uid).await?;
            Ok(Action::RequeueAfter(SOON))
        }
        Step::Release(left) => {
            ctx.remove_finalizer(snapshot, FINALIZER).await?;
            if let Some(left) = left {
                ctx.publish(Event::warning(snapshot, "LeftBehind", "Delete", left)).await;
            }
            Ok(Action::Done)
        }
    }
}

/// Writes the status if it says something new, with an Event where it ends.
async fn record(
    ctx: &Context,
    snapshot: &EtcdSnapshot,
    status: EtcdSnapshotStatus,
) -> Result<(), ReconcileError> {
    if snapshot.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let ends = status.finished.is_some()
        && snapshot.status.as_ref().is_none_or(|known| known.finished.is_none());
    let message = status.conditions.first().map(|found| found.message.clone()).unwrap_or_default();
    let is_complete = status.phase == SnapshotPhase::Complete;
    let updated = EtcdSnapshot { status: Some(status), ..snapshot.clone() };
    ctx.update_status(&updated).await?;
    if ends && is_complete {
        ctx.publish(Event::normal(snapshot, "Stored", "Store", message)).await;
    } else if ends {
        ctx.publish(Event::warning(snapshot, "Failed", "Store", message)).await;
    }
    Ok(())
}

async fn job(
    ctx: &Context,
    namespace: &str,
    name: &str,
) -> Result<Option<JobSeen>, ReconcileError> {
    let found = Api::<Job>::namespaced(ctx.client(), namespace).get_opt(name).await?;
    Ok(found.as_ref().map(JobSeen::of))
}

/// Creates a Job. One of this name that is there already was created by an earlier reconcile.
pub(super) async fn create(
    ctx: &Context,
    namespace: &str,
    job: &Job,
) -> Result<(), ReconcileError> {
    let jobs = Api::<Job>::namespaced(ctx.client(), namespace);
    match jobs.create(&PostParams::default(), job).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

/// Deletes a Job, and its Pods before it is gone.
pub(super) async fn delete_job(
    ctx: &Context,
    namespace: &str,
    name: &str,
    uid: &str,
) -> Result<(), ReconcileError> {
    let pinned = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let params = DeleteParams::foreground().preconditions(pinned);
    match Api::<Job>::namespaced(ctx.client(), namespace).delete(name, &params).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

/// What the Pods of a Job say.
pub(super) async fn pods_of(
    ctx: &Context,
    namespace: &str,
    job: &str,
) -> Result<PodsSeen, ReconcileError> {
    let params = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
    let pods =
        Api::<Pod>::namespaced(ctx.client(), namespace).list(&params.limit(MAX_PODS)).await?;
    Ok(PodsSeen::of(&pods.items))
}

/// A Secret or a volume of a destination that does not exist.
pub(super) async fn missing(
    ctx: &Context,
    namespace: &str,
    destination: &Destination,
) -> Result<Option<String>, ReconcileError> {
    let secret = destination.s3.as_ref().and_then(|bucket| bucket.secret_name.as_ref());
    if let Some(name) = secret {
        let found =
            Api::<Secret>::namespaced(ctx.client(), namespace).get_metadata_opt(name).await?;
        return Ok(found
            .is_none()
            .then(|| format!("Secret {name} of the destination does not exist: create it")));
    }
    let Some(volume) = &destination.volume else { return Ok(None) };
    let name = &volume.claim_name;
    let claims = Api::<PersistentVolumeClaim>::namespaced(ctx.client(), namespace);
    let found = claims.get_metadata_opt(name).await?;
    Ok(found.is_none().then(|| {
        format!("PersistentVolumeClaim {name} of the destination does not exist: create it")
    }))
}

/// Whether nothing can be created because the namespace is being deleted.
fn is_ending_namespace(error: &ReconcileError) -> bool {
    let text = sdk::error::chain(error);
    text.contains("because it is being terminated")
}
