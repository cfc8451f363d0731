//! A schedule: makes backups when they are due, and deletes those that are not kept.
//!
//! A run has one name, made from the schedule's and the time in UTC. So whoever makes it twice, after a
//! crash or a handover, makes one. The last run is recorded after its backup was created: one that
//! a person deletes is not made again. What is not kept goes first: under a quota it makes room.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use kube::{Resource, ResourceExt};
use sdk::condition::whole_seconds;
use sdk::refusal::refusal;
use sdk::{
    Action, Context, Controller, ControllerSpec, Event, Object, ObjectKey, ReconcileError,
    Reconciler, Selector, mapping, spread,
};
use serde_json::{Value, json};

use super::api::{BackupPhase, ScheduleStatus, Scheduling};
use super::jobs::digits;
use super::kind::Archived;
use crate::schedule::{Backup, Retention, Schedule};

/// The longest time between two looks: a clock that is corrected is noticed within it.
const LONGEST: Duration = Duration::from_secs(3600);
/// How soon a backup that the server refuses is made again.
const REFUSED: Duration = Duration::from_secs(300);
/// The longest name of an object.
const MAX_NAME: usize = 253;
/// The most backups that one look deletes.
const MAX_DELETES: usize = 10;
/// The most that it tries to delete: a policy may keep some of them.
const MAX_TRIES: usize = 100;

/// A kind whose objects have a schedule of backups.
pub trait Scheduled: Object + Resource<Scope = NamespaceResourceScope> {
    /// The kind of the backups.
    type Backup: Archived;

    /// The controller of the schedules.
    const CONTROLLER: &'static str;
    /// The annotation of a backup that a schedule made: the object with the schedule.
    const SCHEDULED_BY: &'static str;
    /// Where the schedule is in the object, as `spec.snapshots`.
    const FIELD: &'static str;

    /// The schedule, if there is one.
    fn scheduling(&self) -> Option<&Scheduling>;

    /// What was recorded of it.
    fn recorded(&self) -> Option<&ScheduleStatus>;

    /// The change of the status that records this, which has null for what is not there any more.
    fn recording(status: Value) -> Value;

    /// The name of the database, in the object's namespace.
    fn database(&self) -> &str;

    /// A backup with this metadata, which has no owner: backups outlive the database.
    fn backup(&self, scheduling: &Scheduling, metadata: ObjectMeta) -> Self::Backup;
}

/// What a look decides.
#[derive(Clone, Debug, PartialEq)]
struct Decision<B> {
    /// Delete these first: name and uid.
    delete: Vec<(String, String)>,
    /// Then create this one.
    create: Option<Box<B>>,
    /// Then record this.
    status: Option<ScheduleStatus>,
    /// When the next run is due.
    next: Option<Timestamp>,
}

impl<B> Default for Decision<B> {
    fn default() -> Self {
        Self { create: None, status: None, delete: Vec::new(), next: None }
    }
}

/// Decides. `made` are the backups that this schedule made, `database` what the server has under the name of
/// the database.
fn decide<S: Scheduled>(
    owner: &S,
    made: &[Arc<S::Backup>],
    database: Option<&ObjectMeta>,
    now: Timestamp,
) -> Decision<S::Backup> {
    let is_ending = owner.meta().deletion_timestamp.is_some();
    let Some(wanted) = owner.scheduling().filter(|_| !is_ending) else {
        return Decision::default();
    };
    let known = owner.recorded().cloned();
    let mut status = known.unwrap_or_default();
    let schedule = match schedule::<S>(wanted) {
        Ok(schedule) => schedule,
        Err(problem) => {
            status.obstacle = Some(problem);
            return Decision { status: Some(status), ..Decision::default() };
        }
    };
    let created = owner.meta().creation_timestamp.as_ref().map_or(now, |at| at.0);
    // A run that is still to come was written by a clock that was ahead: runs go on from now.
    if status.last_run.as_ref().is_some_and(|last| last.0 > now) {
        status.last_run = Some(whole_seconds(now));
    }
    let last = status.last_run.as_ref().map_or(created, |at| at.0);
    let mut create = None;
    if let Some(run) = schedule.due(last, now) {
        let name = name_of(owner, run);
        let unfinished = made.iter().find(|found| is_unfinished(found) && found.name_any() != name);
        status.obstacle = unfinished.map(|running| {
            let (kind, name) = (S::Backup::kind(&()), running.name_any());
            format!("the run of {run} was skipped, because {kind} {name} still ran")
        });
        if unfinished.is_none() {
            create = Some(Box::new(backup(owner, wanted, name)));
        }
        status.last_run = Some(whole_seconds(run));
    } else if status.obstacle.as_deref().is_some_and(|text| !text.contains("was skipped")) {
        status.obstacle = None;
    }
    let complete = made.iter().filter(|found| phase(found) == BackupPhase::Complete);
    let newest = complete.max_by_key(|found| at(found)).map(|found| found.name_any());
    status.last_complete = newest.or(status.last_complete);
    Decision {
        create,
        status: Some(status),
        delete: database.map(|database| expired(wanted, made, database, now)).unwrap_or_default(),
        next: schedule.next(now),
    }
}

fn schedule<S: Scheduled>(wanted: &Scheduling) -> Result<Schedule, String> {
    wanted.destination.check().map_err(|error| format!("{}: {error}", S::FIELD))?;
    let schedule = Schedule::parse(&wanted.schedule, &wanted.time_zone);
    schedule.map_err(|error| format!("{}: {error}", S::FIELD))
}

fn expired<K: Archived>(
    wanted: &Scheduling,
    made: &[Arc<K>],
    database: &ObjectMeta,
    now: Timestamp,
) -> Vec<(String, String)> {
    let is_over =
        |found: &&Arc<K>| !is_unfinished(found) && found.meta().deletion_timestamp.is_none();
    let backup = |found: &Arc<K>| Backup {
        name: found.name_any(),
        at: at(found),
        good: phase(found) == BackupPhase::Complete,
    };
    let made: Vec<_> = made.iter().filter(|found| is_of(found, database)).collect();
    let backups: Vec<_> = made.iter().copied().filter(is_over).map(backup).collect();
    let last = usize::try_from(wanted.keep).unwrap_or(1);
    let retention = Retention { last: Some(last), within: None };
    let names = retention.expired(&backups, now).into_iter().take(MAX_TRIES);
    let uid = |name: &str| {
        let found = made.iter().find(|found| found.name_any() == name)?;
        Some((name.to_owned(), found.uid()?))
    };
    names.filter_map(uid).collect()
}

/// Whether a backup is of this very database. Those of a lost one of the same name are the last of its data:
/// they neither count nor go. One that says nothing failed early, or was made by a manager that did not
/// write it down.
fn is_of<K: Archived>(backup: &Arc<K>, database: &ObjectMeta) -> bool {
    match backup.status().and_then(|status| status.database_uid.as_ref()) {
        Some(uid) => Some(uid) == database.uid.as_ref(),
        None => {
            let began = database.creation_timestamp.as_ref();
            phase(backup) != BackupPhase::Complete
                || began.is_none_or(|began| at(backup) >= began.0)
        }
    }
}

fn phase<K: Archived>(backup: &Arc<K>) -> BackupPhase {
    backup.status().map(|status| status.phase).unwrap_or_default()
}

fn is_unfinished<K: Archived>(backup: &Arc<K>) -> bool {
    backup.meta().deletion_timestamp.is_none()
        && backup.status().is_none_or(|status| status.finished.is_none())
}

fn at<K: Archived>(backup: &Arc<K>) -> Timestamp {
    let started = backup.status().and_then(|status| status.started.as_ref());
    let created = backup.meta().creation_timestamp.as_ref();
    started.or(created).map_or(Timestamp::UNIX_EPOCH, |time: &Time| time.0)
}

fn name_of(owner: &impl ResourceExt, run: Timestamp) -> String {
    let time = run.to_zoned(TimeZone::UTC).strftime("-%Y-%m-%d-%H-%M").to_string();
    let (own, longest) = (owner.name_any(), MAX_NAME - time.len());
    if own.len() <= longest {
        return own + &time;
    }
    let digits = digits(&own);
    let short: String = own.chars().take(longest - digits.len() - 1).collect();
    format!("{}-{digits}{time}", short.trim_end_matches(['-', '.']))
}

fn backup<S: Scheduled>(owner: &S, wanted: &Scheduling, name: String) -> S::Backup {
    let annotations = [(S::SCHEDULED_BY.to_owned(), owner.name_any())];
    let metadata = ObjectMeta {
        name: Some(name),
        namespace: owner.namespace(),
        annotations: Some(annotations.into()),
        ..ObjectMeta::default()
    };
    owner.backup(wanted, metadata)
}

/// Reconciles the schedules of a kind.
struct ScheduleReconciler<S>(PhantomData<fn() -> S>);

/// The controller of the schedules of a kind.
pub fn controller<S: Scheduled>(workers: usize) -> ControllerSpec {
    Controller::for_kind::<S>(S::CONTROLLER)
        .part_of(S::Backup::TERMS.whole)
        .watches::<S::Backup>(mapping::named_by_annotation(S::SCHEDULED_BY))
        .workers(workers)
        .reconciler(ScheduleReconciler::<S>(PhantomData))
}

impl<S: Scheduled> Reconciler for ScheduleReconciler<S> {
    type Kind = S;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref();
        let Some(owner) = ctx.get::<S>(namespace, &key.name)? else {
            return Ok(Action::Done);
        };
        let all = ctx.list::<S::Backup>(namespace, &Selector::all())?;
        let is_ours = |found: &Arc<S::Backup>| {
            let by = found.annotations().get(S::SCHEDULED_BY);
            by.is_some_and(|by| **by == *key.name) && found.asked().database == owner.database()
        };
        let made: Vec<_> = all.into_iter().filter(is_ours).collect();
        let database = database(ctx, &*owner, &made).await?;
        let now = ctx.now();
        let decision = decide(&*owner, &made, database.as_ref(), now);
        take(ctx, &*owner, decision, now).await
    }
}

/// What the server has under the name of the database, if that matters: a single backup always stays.
async fn database<S: Scheduled>(
    ctx: &Context,
    owner: &S,
    made: &[Arc<S::Backup>],
) -> Result<Option<ObjectMeta>, ReconcileError> {
    if owner.scheduling().is_none() || made.len() < 2 {
        return Ok(None);
    }
    let namespace = owner.namespace().unwrap_or_default();
    let databases = Api::<<S::Backup as Archived>::Database>::namespaced(ctx.client(), &namespace);
    let found = databases.get_metadata_opt(owner.database()).await?;
    Ok(found.map(|found| found.metadata))
}

async fn take<S: Scheduled>(
    ctx: &Context,
    owner: &S,
    mut decision: Decision<S::Backup>,
    now: Timestamp,
) -> Result<Action, ReconcileError> {
    let namespace = owner.namespace().unwrap_or_default();
    let backups = Api::<S::Backup>::namespaced(ctx.client(), &namespace);
    let Cleared { kept, failed } = clear(&backups, decision.delete).await;
    let refused = match &decision.create {
        Some(backup) => create(&backups, backup).await?,
        None => None,
    };
    let known = owner.recorded().cloned();
    if let Some(words) = &refused {
        // The run is not over: it is made as soon as the server takes it.
        let last_run = known.as_ref().and_then(|known| known.last_run.clone());
        let obstacle = Some(words.clone());
        decision.status =
            decision.status.map(|status| ScheduleStatus { last_run, obstacle, ..status });
    }
    if let Some(status) = &mut decision.status {
        status.obstacle = status.obstacle.take().or_else(|| kept.clone());
    }
    if let Some(status) = decision.status.filter(|status| known.as_ref() != Some(status)) {
        let obstacle = status.obstacle.clone();
        let is_new = obstacle != known.and_then(|known| known.obstacle);
        // Null removes a field that is not there any more.
        let status = json!({
            "lastRun": status.last_run,
            "lastComplete": status.last_complete,
            "obstacle": status.obstacle,
        });
        ctx.patch_status(owner, S::recording(status)).await?;
        if let Some(obstacle) = obstacle.filter(|_| is_new) {
            let reason =
                if kept.as_ref() == Some(&obstacle) { "BackupNotDeleted" } else { "BackupSkipped" };
            ctx.publish(Event::warning(owner, reason, "Schedule", obstacle)).await;
        }
    }
    if let Some(error) = failed {
        return Err(error.into());
    }
    if refused.is_some() {
        return Ok(Action::RequeueAfter(spread(REFUSED, owner)));
    }
    let Some(next) = decision.next else { return Ok(Action::Done) };
    let longest = if kept.is_some() { spread(REFUSED, owner) } else { LONGEST };
    let pause = Duration::try_from(next.duration_since(now)).unwrap_or_default();
    Ok(Action::RequeueAfter(pause.clamp(Duration::from_secs(1), longest)))
}

/// What became of what is not kept.
#[derive(Default)]
struct Cleared {
    /// Why the server refuses to delete the first that it refuses to.
    kept: Option<String>,
    /// The first failure that is no refusal.
    failed: Option<kube::Error>,
}

/// Deletes what is not kept, also beside some that the server refuses to delete.
async fn clear<K: Archived>(backups: &Api<K>, expired: Vec<(String, String)>) -> Cleared {
    let (mut cleared, mut calls) = (Cleared::default(), 0);
    for (name, uid) in expired {
        let pinned = Preconditions { uid: Some(uid), resource_version: None };
        let deleted =
            backups.delete(&name, &DeleteParams::background().preconditions(pinned)).await;
        if let Some(words) = deleted.as_ref().err().and_then(refusal) {
            let kind = K::kind(&());
            let words = || format!("the server refuses to delete {kind} {name}: {words}");
            cleared.kept.get_or_insert_with(words);
            continue;
        }
        let is_over = |error: &kube::Error| matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409));
        if let Some(error) = deleted.err().filter(|error| !is_over(error)) {
            cleared.failed.get_or_insert(error);
        }
        calls += 1;
        if calls == MAX_DELETES {
            break;
        }
    }
    cleared
}

/// Creates a backup. Returns why the server refuses it, if it does.
async fn create<K: Archived>(
    backups: &Api<K>,
    backup: &K,
) -> Result<Option<String>, ReconcileError> {
    match backups.create(&PostParams::default(), backup).await {
        Ok(_) => Ok(None),
        // An earlier reconcile made it.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        Err(error) => {
            let words = refusal(&error).ok_or(error)?;
            let (kind, name) = (K::kind(&()), backup.name_any());
            Ok(Some(format!("the server refuses {kind} {name}: {words}")))
        }
    }
}

#[cfg(test)]
#[path = "schedule_fuzz.rs"]
mod fuzz;
#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
