//! The shell of a backup: observes it, takes the next step, writes its status.
//!
//! The cache shows that there is something to do. The object is then read from the server, and every
//! write of its status carries the version of that read: whoever acts on an old status fails before it
//! acts.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use kube::api::Api;
use sdk::{
    Action, Context, Controller, ControllerSpec, Event, Lifecycle, ObjectKey, ReconcileError,
    Reconciler, mapping,
};

use super::api::{BackupPhase, BackupStatus};
use super::calls::{create, delete_job, job, missing, pods_of};
use super::jobs;
use super::kind::Archived;
use super::plan::{Observed, Step, end, next, refused};
use super::seen::PodsSeen;
use super::settings::Settings;

/// The pause before a step that follows from this one.
const SOON: Duration = Duration::from_secs(1);

/// Reconciles the backups of a kind.
struct BackupReconciler<K> {
    settings: Settings,
    kind: PhantomData<fn() -> K>,
}

/// The controller of the backups of a kind.
pub fn controller<K: Archived>(workers: usize, settings: Settings) -> ControllerSpec {
    let terms = K::TERMS;
    Controller::for_kind::<K>(terms.controller)
        .part_of(terms.whole)
        .watches::<Job>(mapping::named_by_annotation(terms.annotation))
        .watches::<K::Database>(|database, lookup| {
            let namespace = database.namespace();
            let all = lookup.list::<K>(namespace.as_deref(), &sdk::Selector::all());
            let waits = |found: &&Arc<K>| {
                // While its Job runs, another database of that name is none of its business.
                let is_unfinished = found.status().is_none_or(|status| status.finished.is_none());
                is_unfinished && found.asked().database == database.name_any()
            };
            all.iter().filter(waits).map(|found| (found.namespace(), found.name_any())).collect()
        })
        .workers(workers)
        .reconciler(BackupReconciler::<K> { settings, kind: PhantomData })
}

impl<K: Archived> Reconciler for BackupReconciler<K> {
    type Kind = K;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        let Some(cached) = ctx.get::<K>(Some(namespace), &key.name)? else {
            return Ok(Action::Done);
        };
        let is_over = cached.status().is_some_and(|status| status.finished.is_some());
        if is_over && cached.meta().deletion_timestamp.is_none() {
            return Ok(Action::Done);
        }
        let backups = Api::<K>::namespaced(ctx.client(), namespace);
        let Some(backup) = backups.get_opt(&key.name).await? else { return Ok(Action::Done) };
        match ctx.finalizer(&backup, K::TERMS.finalizer).await? {
            Lifecycle::Over => Ok(Action::Done),
            Lifecycle::Live(backup) => self.live(ctx, &*backup).await,
            Lifecycle::Ending => self.ending(ctx, &backup).await,
        }
    }
}

impl<K: Archived> BackupReconciler<K> {
    async fn live(&self, ctx: &Context, backup: &K) -> Result<Action, ReconcileError> {
        let namespace = backup.namespace().unwrap_or_default();
        let asked = backup.asked();
        let database = ctx.get::<K::Database>(Some(&namespace), asked.database)?;
        let store = job(ctx, &namespace, &jobs::store_name(backup)).await?;
        let pods = match &store {
            Some(job) => pods_of(ctx, &namespace, &job.name).await?,
            None => PodsSeen::default(),
        };
        let observed = Observed {
            backup,
            database: database.as_deref(),
            image: self.settings.image.as_deref(),
            store,
            delete: None,
            pods,
            missing: missing(ctx, &namespace, backup.asked().destination).await?,
            now: ctx.now(),
        };
        take(ctx, &observed, next(&observed)).await
    }

    async fn ending(&self, ctx: &Context, backup: &K) -> Result<Action, ReconcileError> {
        let namespace = backup.namespace().unwrap_or_default();
        let delete = job(ctx, &namespace, &jobs::delete_name(backup)).await?;
        let pods = match &delete {
            Some(job) => pods_of(ctx, &namespace, &job.name).await?,
            None => PodsSeen::default(),
        };
        let observed = Observed {
            backup,
            database: None,
            image: self.settings.image.as_deref(),
            store: job(ctx, &namespace, &jobs::store_name(backup)).await?,
            delete,
            pods,
            missing: missing(ctx, &namespace, backup.asked().destination).await?,
            now: ctx.now(),
        };
        take(ctx, &observed, end(&observed)).await
    }
}

async fn take<K: Archived>(
    ctx: &Context,
    observed: &Observed<'_, K>,
    step: Step,
) -> Result<Action, ReconcileError> {
    let backup = observed.backup;
    let namespace = backup.namespace().unwrap_or_default();
    match step {
        Step::Rest => Ok(Action::Done),
        Step::Record(status) => {
            record(ctx, backup, *status).await?;
            Ok(Action::RequeueAfter(SOON))
        }
        Step::Wait(status, pause) => {
            record(ctx, backup, *status).await?;
            Ok(Action::RequeueAfter(pause))
        }
        Step::Create(mut job) => {
            let annotations = job.metadata.annotations.get_or_insert_default();
            annotations.insert(K::TERMS.annotation.to_owned(), backup.name_any());
            if backup.meta().deletion_timestamp.is_none() {
                sdk::set_controller(backup, &mut *job).map_err(ReconcileError::terminal)?;
            }
            match create(ctx, &namespace, &job).await? {
                None => Ok(Action::RequeueAfter(SOON)),
                Some(words) => {
                    let instead = refused(observed, &job.name_any(), &words);
                    Box::pin(take(ctx, observed, instead)).await
                }
            }
        }
        Step::Delete { name, uid } => {
            delete_job(ctx, &namespace, &name, &uid).await?;
            Ok(Action::RequeueAfter(SOON))
        }
        Step::Finish { name, uid } => {
            ctx.remove_finalizer(backup, K::TERMS.finalizer).await?;
            delete_job(ctx, &namespace, &name, &uid).await?;
            Ok(Action::Done)
        }
        Step::Release(left) => {
            ctx.remove_finalizer(backup, K::TERMS.finalizer).await?;
            if let Some(left) = left {
                ctx.publish(Event::warning(backup, "LeftBehind", "Delete", left)).await;
            }
            Ok(Action::Done)
        }
    }
}

/// Writes the status if it says something new, with an Event where it ends.
async fn record<K: Archived>(
    ctx: &Context,
    backup: &K,
    status: BackupStatus,
) -> Result<(), ReconcileError> {
    if backup.status() == Some(&status) {
        return Ok(());
    }
    let ends =
        status.finished.is_some() && backup.status().is_none_or(|known| known.finished.is_none());
    let message = status.conditions.first().map(|found| found.message.clone()).unwrap_or_default();
    let is_complete = status.phase == BackupPhase::Complete;
    let mut written = backup.clone();
    *written.status_mut() = Some(status);
    ctx.update_status(&written).await?;
    if ends && is_complete {
        ctx.publish(Event::normal(backup, "Stored", "Store", message)).await;
    } else if ends {
        ctx.publish(Event::warning(backup, "Failed", "Store", message)).await;
    }
    Ok(())
}
