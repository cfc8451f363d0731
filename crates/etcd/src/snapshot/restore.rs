//! The beginning of a cluster with a snapshot: a Job brings it onto the volume of the first member,
//! before that member's first Pod. Pure.
//!
//! The Job carries the uid of the volume. A Job for another volume, which a member lost, is deleted and
//! another one is created. So the data is restored once for each volume, and the member starts on it
//! only when the Job has succeeded.

use k8s_openapi::api::batch::v1::Job;

use super::api::{EtcdSnapshot, SnapshotPhase};
use super::jobs::{self, Origin};
use super::seen::{JobSeen, Outcome, PodsSeen};
use crate::api::EtcdCluster;
use crate::version::Version;

/// Whether the volume of the first member holds what the cluster should begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Restored {
    /// It does, or the cluster begins empty.
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
    pub(super) fn stuck(reason: &'static str, message: impl Into<String>) -> Self {
        Self::No { reason, message: message.into(), is_stuck: true }
    }

    pub(super) fn waits(message: impl Into<String>) -> Self {
        Self::No { reason: "Restoring", message: message.into(), is_stuck: false }
    }
}

/// The next step of a restore.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Create(Box<Job>),
    Delete { name: String, uid: String },
    Say(Restored),
}

/// The first member and its volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seed<'a> {
    pub(super) member: &'a str,
    pub(super) volume_uid: &'a str,
    pub(super) version: Version,
}

/// What the spec names.
pub(super) fn origin(
    cluster: &EtcdCluster,
    snapshot: Option<&EtcdSnapshot>,
    version: Version,
) -> Result<Option<Origin>, Restored> {
    let Some(from) = &cluster.spec.restore_from else { return Ok(None) };
    let bad = |message: &str| {
        let message = format!("spec.restoreFrom {message}; create another EtcdCluster");
        Restored::stuck("InvalidRestoreFrom", message)
    };
    let origin = match (&from.snapshot, &from.destination, &from.key) {
        (Some(name), None, None) => named(name, snapshot, version)?,
        (None, Some(destination), Some(key)) => {
            Origin { destination: destination.clone(), key: key.clone() }
        }
        _ => return Err(bad("must name either a snapshot, or destination and key")),
    };
    match origin.destination.check() {
        Ok(()) => Ok(Some(origin)),
        Err(error) => Err(bad(&format!("cannot be used: {error}"))),
    }
}

fn named(
    name: &str,
    snapshot: Option<&EtcdSnapshot>,
    version: Version,
) -> Result<Origin, Restored> {
    let Some(snapshot) = snapshot else {
        let message = format!(
            "EtcdSnapshot {name} does not exist in this namespace: create it, or restore from destination and key"
        );
        return Err(Restored::stuck("SnapshotMissing", message));
    };
    let status = snapshot.status.clone().unwrap_or_default();
    match (status.phase, status.key) {
        (SnapshotPhase::Complete, Some(key)) => {
            let made = status.etcd_version.as_deref().and_then(|text| text.parse::<Version>().ok());
            if let Some(made) =
                made.filter(|made| (made.major, made.minor) > (version.major, version.minor))
            {
                let message = format!(
                    "EtcdSnapshot {name} is of etcd {made}, which {version} cannot read: create an \
                     EtcdCluster with version {made}"
                );
                return Err(Restored::stuck("SnapshotTooNew", message));
            }
            Ok(Origin { destination: snapshot.spec.destination.clone(), key })
        }
        (SnapshotPhase::Pending | SnapshotPhase::Running, _) => {
            Err(Restored::waits(format!("EtcdSnapshot {name} is not complete yet")))
        }
        _ => {
            let message = format!("EtcdSnapshot {name} holds nothing: restore from another one");
            Err(Restored::stuck("SnapshotUnusable", message))
        }
    }
}

/// The next step. `missing` is a part of the destination that does not exist.
pub(super) fn next(
    cluster: &EtcdCluster,
    seed: Seed<'_>,
    origin: &Origin,
    job: Option<&JobSeen>,
    pods: &PodsSeen,
    (image, missing): (Option<&str>, Option<&str>),
) -> Step {
    let Some(job) = job else {
        if let Some(missing) = missing {
            return Step::Say(Restored::stuck("DestinationGone", missing));
        }
        let Some(image) = image else {
            let message =
                "the manager does not know its own image: set LEASEHOLD_IMAGE in its environment";
            return Step::Say(Restored::stuck("NoImage", message));
        };
        let job = jobs::restore(cluster, seed.member, seed.version, seed.volume_uid, origin, image);
        return match job {
            Ok(job) => Step::Create(Box::new(job)),
            Err(error) => Step::Say(Restored::stuck("InvalidRestoreFrom", error.to_string())),
        };
    };
    let (name, uid) = (job.name.clone(), job.uid.clone());
    if job.is_deleting {
        return Step::Say(Restored::waits(format!("Job {name} is being deleted")));
    }
    if job.volume.as_deref() != Some(seed.volume_uid) {
        return Step::Delete { name, uid };
    }
    let said = pods.trouble.clone().or(missing.map(str::to_owned));
    Step::Say(match &job.outcome {
        Outcome::Complete => Restored::Yes,
        Outcome::Running => {
            let also = said.map(|text| format!(": {text}")).unwrap_or_default();
            Restored::waits(format!(
                "Job {name} restores {}{also}",
                origin.destination.location(&origin.key)
            ))
        }
        Outcome::Failed(why) => {
            let why = said.unwrap_or_else(|| why.clone());
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
