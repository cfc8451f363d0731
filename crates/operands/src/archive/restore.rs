//! The beginning of a database with a backup: a Job brings it onto the volume of the first server, before
//! that server starts for the first time.
//!
//! The Job carries the uid of the volume. A Job for another volume, which was lost, is deleted and another
//! one is created. So the data is restored once for each volume, and the server starts on it only when
//! the Job has succeeded.

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use kube::api::Api;
use kube::{Resource, ResourceExt};
use sdk::{Context, Object, ReconcileError};

use super::api::BackupPhase;
use super::calls::{create, delete_job, missing, pods_of};
use super::jobs::Origin;
use super::kind::Archived;
use super::plan::no_image;
use super::seen::{JobSeen, Outcome, PodsSeen};
use crate::backup::destination::DestinationError;
use crate::children::is_of;

/// Whether the volume of the first server holds what the database should begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restored {
    /// It does, or the database begins empty.
    Yes,
    /// Not yet.
    No {
        /// The reason as a condition has it.
        reason: &'static str,
        /// Cause, object and fix.
        message: String,
        /// Whether a person should look.
        is_stuck: bool,
    },
}

impl Restored {
    /// Not yet, and a person should look.
    pub fn stuck(reason: &'static str, message: impl Into<String>) -> Self {
        Self::No { reason, message: message.into(), is_stuck: true }
    }

    /// Not yet, because the server refuses an object in these words.
    pub fn refused(object: &str, words: &str) -> Self {
        Self::stuck("Rejected", format!("the server refuses {object}: {words}"))
    }

    /// Not yet.
    pub fn waits(message: impl Into<String>) -> Self {
        Self::No { reason: "Restoring", message: message.into(), is_stuck: false }
    }
}

/// The next step of a restore.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Create(Box<Job>),
    Delete { name: String, uid: String },
    Say(Restored),
}

/// What is restored where.
#[derive(Clone, Copy, Debug)]
pub struct Restore<'a> {
    /// The Job's name.
    pub job: &'a str,
    /// The uid of the volume of the first server.
    pub volume_uid: &'a str,
    /// Where the backup is.
    pub origin: &'a Origin,
    /// The manager's own image.
    pub image: Option<&'a str>,
}

/// Where a backup is that an object describes.
///
/// # Errors
/// What is said while there is none: `absent` if the object does not exist.
pub fn origin_of<K: Archived>(
    name: &str,
    backup: Option<&K>,
    absent: Restored,
) -> Result<Origin, Restored> {
    let Some(backup) = backup else { return Err(absent) };
    let (kind, status) = (K::kind(&()), backup.status().cloned().unwrap_or_default());
    match (status.phase, status.key) {
        (BackupPhase::Complete, Some(key)) => {
            let destination = backup.asked().destination.clone();
            Ok(Origin { destination, key, sha256: status.sha256 })
        }
        (BackupPhase::Pending | BackupPhase::Running, _) => {
            Err(Restored::waits(format!("{kind} {name} is not complete yet")))
        }
        _ => {
            let message = format!("{kind} {name} holds nothing: restore from another one");
            Err(Restored::stuck(K::TERMS.unusable, message))
        }
    }
}

/// Takes the next step of a restore for `owner`, and says how far it is. `make` makes the Job, by our
/// image.
///
/// # Errors
/// What the server says.
pub async fn restore<O>(
    ctx: &Context,
    owner: &O,
    wanted: Restore<'_>,
    job: Option<&JobSeen>,
    make: impl FnOnce(&str) -> Result<Job, DestinationError>,
) -> Result<Restored, ReconcileError>
where
    O: Object + Resource<Scope = NamespaceResourceScope>,
{
    let (name, namespace) = (wanted.job, owner.namespace().unwrap_or_default());
    let missing = missing(ctx, &namespace, &wanted.origin.destination).await?;
    let pods = match job {
        Some(job) => pods_of(ctx, &namespace, &job.name).await?,
        None => PodsSeen::default(),
    };
    let seen = job.map(|job| (job, &pods));
    match next(wanted, seen, missing.as_deref(), ctx.now(), make) {
        Step::Say(verdict) => Ok(verdict),
        Step::Create(mut job) => {
            sdk::set_controller(owner, &mut *job).map_err(ReconcileError::terminal)?;
            Ok(match create(ctx, &namespace, &job).await? {
                None => Restored::waits(format!("Job {name} was created")),
                Some(words) => Restored::refused(&format!("Job {name}"), &words),
            })
        }
        Step::Delete { name, uid } => {
            delete_job(ctx, &namespace, &name, &uid).await?;
            Ok(Restored::waits(format!("Job {name} is of another volume, and is deleted")))
        }
    }
}

/// The Job that restores for `owner`, if there is one.
///
/// # Errors
/// What the server says.
pub async fn restoring_job<O>(
    ctx: &Context,
    owner: &O,
    name: &str,
) -> Result<Option<JobSeen>, ReconcileError>
where
    O: Object + Resource<Scope = NamespaceResourceScope>,
{
    let namespace = owner.namespace().unwrap_or_default();
    let job = Api::<Job>::namespaced(ctx.client(), &namespace).get_opt(name).await?;
    Ok(job.filter(|job| is_of(owner, job)).as_ref().map(JobSeen::of))
}

/// Deletes the Job of a database that was founded with what it restored. One that still runs is left alone.
///
/// # Errors
/// What the server says.
pub async fn end_restore<O>(ctx: &Context, owner: &O, job: &JobSeen) -> Result<(), ReconcileError>
where
    O: Object + Resource<Scope = NamespaceResourceScope>,
{
    if job.is_deleting || job.outcome == Outcome::Running {
        return Ok(());
    }
    delete_job(ctx, &owner.namespace().unwrap_or_default(), &job.name, &job.uid).await
}

/// The next step. `missing` is a part of the destination that does not exist.
fn next(
    wanted: Restore<'_>,
    job: Option<(&JobSeen, &PodsSeen)>,
    missing: Option<&str>,
    now: Timestamp,
    make: impl FnOnce(&str) -> Result<Job, DestinationError>,
) -> Step {
    let Some((job, pods)) = job else {
        if let Some(missing) = missing {
            return Step::Say(Restored::stuck("DestinationGone", missing));
        }
        let Some(image) = wanted.image else {
            return Step::Say(Restored::stuck("NoImage", no_image()));
        };
        return match make(image) {
            Ok(job) => Step::Create(Box::new(job)),
            Err(error) => Step::Say(Restored::stuck("InvalidDestination", error.to_string())),
        };
    };
    let (name, uid) = (job.name.clone(), job.uid.clone());
    if job.is_deleting {
        return Step::Say(Restored::waits(format!("Job {name} is being deleted")));
    }
    if job.volume.as_deref() != Some(wanted.volume_uid) {
        return Step::Delete { name, uid };
    }
    let said = pods.trouble.clone().or(missing.map(str::to_owned));
    let stops = || said.clone().or_else(|| pods.stops(job, now));
    Step::Say(match &job.outcome {
        Outcome::Complete => Restored::Yes,
        Outcome::Running => {
            let also = stops().map(|text| format!(": {text}")).unwrap_or_default();
            let Origin { destination, key, .. } = wanted.origin;
            Restored::waits(format!("Job {name} restores {}{also}", destination.location(key)))
        }
        Outcome::Failed(why) => {
            let why = said.clone().unwrap_or_else(|| why.clone());
            let message = format!(
                "Job {name} failed: {why}; remove the cause, then delete the Job, and it runs again"
            );
            Restored::stuck("RestoreFailed", message)
        }
    })
}

#[cfg(test)]
#[path = "restore_tests.rs"]
mod tests;
