//! What is read and written besides the backups themselves: Jobs, their Pods, what a destination needs.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use kube::api::{Api, DeleteParams, ListParams, PostParams, Preconditions};
use sdk::refusal::refusal;
use sdk::{Context, ReconcileError};

use super::seen::{JobSeen, PodsSeen};
use crate::backup::destination::Destination;

/// The most Pods of a Job that are read.
const MAX_PODS: u32 = 16;

/// A Job, if there is one.
pub(super) async fn job(
    ctx: &Context,
    namespace: &str,
    name: &str,
) -> Result<Option<JobSeen>, ReconcileError> {
    let found = Api::<Job>::namespaced(ctx.client(), namespace).get_opt(name).await?;
    Ok(found.as_ref().map(JobSeen::of))
}

/// Creates a Job. One of this name that is there already was created by an earlier reconcile. Returns the
/// server's words if it refuses the Job, as by a quota.
pub(super) async fn create(
    ctx: &Context,
    namespace: &str,
    job: &Job,
) -> Result<Option<String>, ReconcileError> {
    let jobs = Api::<Job>::namespaced(ctx.client(), namespace);
    match jobs.create(&PostParams::default(), job).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        Err(error) => refusal(&error).map(Some).ok_or_else(|| error.into()),
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
