//! The next step of a backup, decided from what was found. Pure.
//!
//! ```text
//!   Pending ──record: key, started──▶ Running ──Job──▶ Complete
//!      │ waits too long, or cannot be     │ Job failed
//!      └──────────────────────────────────┴────────▶ Failed
//!   deleted: store Job away ──▶ delete Job ──▶ finalizer off; or given up after a while
//! ```
//!
//! The key is recorded before the Job is created, so that something is stored only where the status says
//! so, and deletion knows what to delete. Each later step is found again in the Job.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::Resource;
use sdk::condition::{Finding, conditions, rest, whole_seconds};

use super::api::{BackupPhase, BackupStatus, DeletionPolicy};
use super::jobs;
use super::kind::Archived;
use super::seen::{JobSeen, Outcome, PodsSeen};

/// How long a backup waits for what it needs, and for its Job to be taken by the server.
const START_WITHIN: Duration = Duration::from_secs(3_600);
/// How long the deletion of what is stored is tried, from the first look at it: until then nobody may have been
/// there to try.
const GIVE_UP: Duration = Duration::from_secs(600);
/// The pause between looks; changes of Jobs end it earlier.
const POLL: Duration = Duration::from_secs(30);
/// The pause between looks during a deletion.
const SOON: Duration = Duration::from_secs(5);

/// A backup as it was found.
#[derive(Clone, Debug)]
pub(super) struct Observed<'a, K: Archived> {
    pub(super) backup: &'a K,
    pub(super) database: Option<&'a K::Database>,
    /// The manager's own image.
    pub(super) image: Option<&'a str>,
    pub(super) store: Option<JobSeen>,
    pub(super) delete: Option<JobSeen>,
    /// Of the Job that matters now.
    pub(super) pods: PodsSeen,
    /// A Secret or a volume of the destination that does not exist.
    pub(super) missing: Option<String>,
    pub(super) now: Timestamp,
}

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Write this status, then look again.
    Record(Box<BackupStatus>),
    /// Create this Job.
    Create(Box<Job>),
    /// Delete this Job and its Pods.
    Delete { name: String, uid: String },
    /// Write this status, and look again after this time.
    Wait(Box<BackupStatus>, Duration),
    /// Let the object go; with a warning if something may be left behind.
    Release(Option<String>),
    /// Let the object go, then delete this Job, which did its work: its Pod keeps volumes in use.
    Finish { name: String, uid: String },
    /// Nothing is left to do.
    Rest,
}

/// Why nothing happens now.
struct Obstacle {
    reason: &'static str,
    message: String,
    /// Whether waiting helps.
    passes: bool,
}

impl Obstacle {
    fn passing(reason: &'static str, message: String) -> Self {
        Self { reason, message, passes: true }
    }
}

/// The next step of a backup that lives.
pub(super) fn next<K: Archived>(observed: &Observed<'_, K>) -> Step {
    let status = observed.status();
    if status.finished.is_some() {
        return Step::Rest;
    }
    match (&status.key, &observed.store) {
        (None, _) => observed.begin(),
        (Some(key), None) => observed.create(key),
        (Some(_), Some(job)) => observed.follow(job),
    }
}

/// The next step of a backup that is being deleted.
pub(super) fn end<K: Archived>(observed: &Observed<'_, K>) -> Step {
    let (backup, status) = (observed.backup, observed.status());
    let Some(key) = status.key.clone() else { return Step::Release(None) };
    if backup.asked().deletion_policy == DeletionPolicy::Retain {
        return Step::Release(None);
    }
    if let Some(job) = observed.delete.as_ref().filter(|job| job.outcome == Outcome::Complete) {
        return Step::Finish { name: job.name.clone(), uid: job.uid.clone() };
    }
    let place = status.location.clone().unwrap_or_else(|| key.clone());
    // One that is still to come was written by a clock that was ahead: the tries are counted from now.
    let latest = observed.now + GIVE_UP;
    let mut known = status.conditions.iter().filter(|found| found.type_ == "Deleted");
    let Some(told) = known.find(|found| found.last_transition_time.0 <= latest) else {
        let mut anew = observed.status();
        anew.conditions.retain(|found| found.type_ != "Deleted");
        let message = format!("what is stored at {place} is deleted");
        return Step::Record(Box::new(observed.ending(anew, "Deleting", message)));
    };
    if rest(told.last_transition_time.0, GIVE_UP, observed.now).is_none() {
        let why = &told.message;
        return Step::Release(Some(format!(
            "given up after 10 minutes, delete {place} yourself: {why}"
        )));
    }
    // Whoever stores would store again what is deleted.
    if let Some(job) = observed.store.as_ref().filter(|job| job.outcome == Outcome::Running) {
        return match job.is_deleting {
            false => Step::Delete { name: job.name.clone(), uid: job.uid.clone() },
            true => observed.deleting("Stopping", format!("Job {} is being stopped", job.name)),
        };
    }
    if let Some(job) = &observed.delete {
        return observed.follow_delete(job);
    }
    if let Some(missing) = &observed.missing {
        return observed.deleting("DestinationGone", missing.clone());
    }
    let Some(image) = observed.image else { return observed.deleting("NoImage", no_image()) };
    match jobs::delete(backup, &key, image) {
        Ok(job) => Step::Create(Box::new(job)),
        // Nothing was ever stored at a destination that is none.
        Err(_) => Step::Release(None),
    }
}

/// The next step of a backup whose Job the server refuses in these words.
pub(super) fn refused<K: Archived>(observed: &Observed<'_, K>, job: &str, words: &str) -> Step {
    let message = format!("the server refuses Job {job}: {words}");
    if observed.backup.meta().deletion_timestamp.is_some() {
        return match words.contains("because it is being terminated") {
            true => Step::Release(Some(
                "its namespace is being deleted, and no Job can run there any more".to_owned(),
            )),
            false => observed.deleting("Rejected", message),
        };
    }
    let status = observed.status();
    let since = status.started.as_ref().map_or(observed.now, |at| at.0);
    if rest(since, START_WITHIN, observed.now).is_none() {
        return observed.failed("Rejected", message);
    }
    let told = observed.told(status, BackupPhase::Running, "Rejected", message);
    Step::Wait(Box::new(told), POLL)
}

pub(super) fn no_image() -> String {
    "the manager does not know its own image: set LEASEHOLD_IMAGE in its environment".to_owned()
}

impl<K: Archived> Observed<'_, K> {
    fn status(&self) -> BackupStatus {
        self.backup.status().cloned().unwrap_or_default()
    }

    /// Checks everything that a Job needs, then records where it will store.
    fn begin(&self) -> Step {
        let (backup, asked) = (self.backup, self.backup.asked());
        let (version, database_uid) = match self.ready() {
            Ok(ready) => ready,
            Err(obstacle) => return self.blocked(obstacle),
        };
        let key = jobs::key(backup, asked.database);
        let mut status = self.status();
        status.location = Some(asked.destination.location(&key));
        (status.key, status.version) = (Some(key), Some(version));
        status.database_uid = database_uid;
        status.started = Some(whole_seconds(self.now));
        let message = format!("Job {} saves the {}", jobs::store_name(backup), K::TERMS.noun);
        Step::Record(Box::new(self.told(status, BackupPhase::Running, "Running", message)))
    }

    /// The version that the database runs, and its uid, if a backup of it can be made now.
    fn ready(&self) -> Result<(String, Option<String>), Obstacle> {
        let asked = self.backup.asked();
        asked.destination.check().map_err(|error| Obstacle {
            reason: "InvalidDestination",
            message: format!("{error}: create another {}", K::kind(&())),
            passes: false,
        })?;
        let (wait, kind) = (Obstacle::passing, K::Database::kind(&()));
        let database = self.database.filter(|found| found.meta().deletion_timestamp.is_none());
        let database = database.ok_or_else(|| {
            wait("NoCluster", format!("{kind} {} does not exist: create it", asked.database))
        })?;
        let version = K::serving(database).ok_or_else(|| {
            let message = format!("{kind} {} {}", asked.database, K::TERMS.unready);
            wait("ClusterNotReady", message)
        })?;
        if let Some(missing) = &self.missing {
            return Err(wait("DestinationGone", missing.clone()));
        }
        match self.image {
            Some(_) => Ok((version, database.meta().uid.clone())),
            None => Err(wait("NoImage", no_image())),
        }
    }

    /// The database that has the name of the one that is saved, which was deleted.
    fn namesake(&self) -> Option<&K::Database> {
        let saved = self.status().database_uid?;
        self.database.filter(|found| found.meta().uid.as_ref() != Some(&saved))
    }

    /// It cannot be told whose content is stored.
    fn doubtful(&self) -> Step {
        let (kind, location) = (K::Database::kind(&()), self.status().location.unwrap_or_default());
        let message = format!(
            "its {kind} was deleted while it was saved, and another has its name: what is at {location}, if \
             anything, may be of either"
        );
        self.failed("NoCluster", message)
    }

    /// Creates the Job. One that somebody deleted is created again: it finds what was stored.
    fn create(&self, key: &str) -> Step {
        let Some(database) = self.database else {
            let (kind, noun) = (K::Database::kind(&()), K::TERMS.noun);
            let message = format!(
                "its {kind} was deleted before anybody saw that the {noun} was saved: if it was, it is at {}, and \
                 can be restored by its destination and key",
                self.status().location.unwrap_or_default()
            );
            return self.failed("NoCluster", message);
        };
        if self.namesake().is_some() {
            return self.doubtful();
        }
        let Some(image) = self.image else {
            return self.blocked(Obstacle::passing("NoImage", no_image()));
        };
        let version = self.status().version.unwrap_or_default();
        match self.backup.store(database, &version, key, image) {
            Ok(job) => Step::Create(Box::new(job)),
            Err(error) => self.failed("InvalidDestination", error.to_string()),
        }
    }

    fn follow(&self, job: &JobSeen) -> Step {
        let said = self.pods.trouble.clone();
        let namesake = self.namesake().map(|found| found.meta().creation_timestamp.as_ref());
        match &job.outcome {
            // Its Pod finds the other one under the name, and would save that.
            Outcome::Running if namesake.is_some() && !job.is_deleting => {
                Step::Delete { name: job.name.clone(), uid: job.uid.clone() }
            }
            Outcome::Complete
                if let Some(began) = namesake
                    && job.completed.zip(began).is_none_or(|(end, began)| end >= began.0) =>
            {
                self.doubtful()
            }
            Outcome::Running => {
                let stops = self.missing.clone().or_else(|| self.pods.stops(job, self.now));
                let also = stops.map(|text| format!(": {text}"));
                let message = format!("Job {} runs{}", job.name, also.unwrap_or_default());
                let status = self.told(self.status(), BackupPhase::Running, "Running", message);
                Step::Wait(Box::new(status), POLL)
            }
            Outcome::Complete => self.complete(),
            Outcome::Failed(why) => {
                let why = said.unwrap_or_else(|| why.clone());
                self.failed("JobFailed", format!("Job {} failed: {why}", job.name))
            }
        }
    }

    fn complete(&self) -> Step {
        let mut status = self.status();
        let stored = self.pods.report.as_ref().and_then(|report| report.backups.first());
        if let Some(stored) = stored {
            status.size = i64::try_from(stored.size).ok();
            status.sha256 = Some(stored.sha256.clone());
        }
        status.finished = Some(whole_seconds(self.now));
        let place = status.location.clone().unwrap_or_default();
        let message = format!("the {} is stored at {place} and verified", K::TERMS.noun);
        Step::Record(Box::new(self.told(status, BackupPhase::Complete, "Stored", message)))
    }

    fn failed(&self, reason: &'static str, message: String) -> Step {
        let mut status = self.status();
        status.finished = Some(whole_seconds(self.now));
        Step::Record(Box::new(self.told(status, BackupPhase::Failed, reason, message)))
    }

    /// Waits, for as long as that may help.
    fn blocked(&self, obstacle: Obstacle) -> Step {
        let Obstacle { reason, message, passes } = obstacle;
        let since = self.backup.meta().creation_timestamp.as_ref().map_or(self.now, |at| at.0);
        let passed = Duration::try_from(self.now.duration_since(since)).unwrap_or_default();
        if !passes || passed >= START_WITHIN {
            return self.failed(reason, message);
        }
        let status = self.told(self.status(), BackupPhase::Pending, reason, message);
        Step::Wait(Box::new(status), POLL)
    }

    fn follow_delete(&self, job: &JobSeen) -> Step {
        let said = self.pods.trouble.clone();
        match &job.outcome {
            Outcome::Failed(why) if !job.is_deleting => {
                let known = self.status();
                let message = format!("Job {} failed: {}", job.name, said.as_ref().unwrap_or(why));
                let told = self.ending(known.clone(), "DeleteFailed", message);
                // The cause is written before the Job that knows it goes; then another one tries again.
                if told == known {
                    return Step::Delete { name: job.name.clone(), uid: job.uid.clone() };
                }
                Step::Record(Box::new(told))
            }
            _ => {
                let stops = self.missing.clone().or_else(|| self.pods.stops(job, self.now));
                let also = stops.map(|text| format!(": {text}"));
                let message = format!("Job {} runs{}", job.name, also.unwrap_or_default());
                self.deleting("Deleting", message)
            }
        }
    }

    fn deleting(&self, reason: &'static str, message: String) -> Step {
        Step::Wait(Box::new(self.ending(self.status(), reason, message)), SOON)
    }

    fn ending(
        &self,
        mut status: BackupStatus,
        reason: &'static str,
        message: String,
    ) -> BackupStatus {
        status.phase = BackupPhase::Deleting;
        let finding = Finding { type_: "Deleted", holds: false, reason, message };
        let told =
            conditions(vec![finding], &status.conditions, self.backup.meta().generation, self.now);
        status.conditions.retain(|found| found.type_ != "Deleted");
        status.conditions.extend(told);
        status
    }

    /// The status with this phase, and conditions that say why.
    fn told(
        &self,
        mut status: BackupStatus,
        phase: BackupPhase,
        reason: &'static str,
        message: String,
    ) -> BackupStatus {
        status.phase = phase;
        let finding = |type_, holds| Finding { type_, holds, reason, message: message.clone() };
        let findings = vec![
            finding("Complete", phase == BackupPhase::Complete),
            finding("Failed", phase == BackupPhase::Failed),
        ];
        let generation = self.backup.meta().generation;
        status.conditions = conditions(findings, &status.conditions, generation, self.now);
        status
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
