//! The shell of a restore: observes a cluster that has no id yet, takes the next step, says how far it is.
//!
//! The controller of EtcdClusters waits until this Job has succeeded for the volume of its first member.
//! It reads the Job itself, so nothing here must be in time for it.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use kube::api::Api;
use operands::archive::restore::{Restore, Restored, end_restore, restore, restoring_job};
use operands::archive::{JobSeen, Settings};
use operands::children::is_of;
use sdk::{
    Action, Context, Controller, ControllerSpec, Event, ObjectKey, ReconcileError, Reconciler,
};
use serde_json::json;

use super::api::EtcdSnapshot;
use super::jobs;
use super::restore::{Seed, origin};
use crate::api::EtcdCluster;
use crate::names;
use crate::version::Version;

/// The name of this part of the controller.
const NAME: &str = "etcd-restore";
/// The pause between looks; changes of the Job end it earlier.
const POLL: Duration = Duration::from_secs(15);

/// Reconciles EtcdClusters that begin with a snapshot.
struct RestoreReconciler {
    settings: Settings,
}

/// The controller of restores.
pub(super) fn controller(workers: usize, settings: Settings) -> ControllerSpec {
    Controller::for_kind::<EtcdCluster>(NAME)
        .part_of(super::WHOLE)
        .owns::<Job>()
        .workers(workers)
        .reconciler(RestoreReconciler { settings })
}

impl Reconciler for RestoreReconciler {
    type Kind = EtcdCluster;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(cluster) = ctx.get::<EtcdCluster>(key.namespace.as_deref(), &key.name)? else {
            return Ok(Action::Done);
        };
        let status = cluster.status.clone().unwrap_or_default();
        let is_ending = cluster.metadata.deletion_timestamp.is_some();
        if cluster.spec.restore_from.is_none() || is_ending {
            return Ok(Action::Done);
        }
        if status.cluster_id.is_some() {
            // Its Pod, which has ended, keeps the volume in use, so that the volume of a member that leaves
            // never goes.
            if let Some(job) =
                ctx.get::<Job>(key.namespace.as_deref(), &names::restore(&cluster))?
                && is_of(&*cluster, &*job)
            {
                end_restore(ctx, &*cluster, &JobSeen::of(&job)).await?;
            }
            return Ok(Action::Done);
        }
        // A version that cannot be read is said by the controller of EtcdClusters.
        let Ok(version) = cluster.spec.version.parse::<Version>() else { return Ok(Action::Done) };
        let founder = status.members.first();
        let volume =
            founder.and_then(|founder| Some((&founder.name, founder.volume_uid.as_ref()?)));
        // The next change of the status comes with the volume.
        let Some((member, volume_uid)) = volume else { return Ok(Action::Done) };
        let seed = Seed { member, volume_uid, version };
        let verdict = step(ctx, &self.settings, &cluster, seed).await?;
        let is_done = verdict == Restored::Yes;
        say(ctx, &cluster, verdict).await?;
        Ok(if is_done { Action::Done } else { Action::RequeueAfter(POLL) })
    }
}

/// Takes the next step, and says how far the restore is.
async fn step(
    ctx: &Context,
    settings: &Settings,
    cluster: &EtcdCluster,
    seed: Seed<'_>,
) -> Result<Restored, ReconcileError> {
    let namespace = cluster.namespace().unwrap_or_default();
    let name = names::restore(cluster);
    let job = restoring_job(ctx, cluster, &name).await?;
    if job.as_ref().is_some_and(|job| job.is_done_for(seed.volume_uid)) {
        // The snapshot may be gone meanwhile.
        return Ok(Restored::Yes);
    }
    let named = cluster.spec.restore_from.as_ref().and_then(|from| from.snapshot.as_ref());
    let snapshot = match named {
        Some(name) => {
            Api::<EtcdSnapshot>::namespaced(ctx.client(), &namespace).get_opt(name).await?
        }
        None => None,
    };
    let origin = match origin(cluster, snapshot.as_ref(), seed.version) {
        Ok(Some(origin)) => origin,
        Ok(None) => return Ok(Restored::Yes),
        Err(verdict) => return Ok(verdict),
    };
    let (volume_uid, image) = (seed.volume_uid, settings.image.as_deref());
    let wanted = Restore { job: &name, volume_uid, origin: &origin, image };
    let make =
        |image: &str| jobs::restore(cluster, seed.member, seed.version, volume_uid, &origin, image);
    restore(ctx, cluster, wanted, job.as_ref(), make).await
}

/// Writes how far it is, with an Event where a person should look.
async fn say(
    ctx: &Context,
    cluster: &EtcdCluster,
    verdict: Restored,
) -> Result<(), ReconcileError> {
    let known = cluster.status.as_ref().and_then(|status| status.restoring.clone());
    let (text, stuck) = match verdict {
        Restored::Yes => (None, None),
        Restored::No { reason, message, is_stuck } => {
            (Some(format!("{reason}: {message}")), is_stuck.then_some((reason, message)))
        }
    };
    if text == known {
        return Ok(());
    }
    ctx.patch_status(cluster, json!({"restoring": text})).await?;
    if let Some((reason, message)) = stuck {
        ctx.publish(Event::warning(cluster, reason, "Restore", message)).await;
    }
    Ok(())
}
