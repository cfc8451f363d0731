//! The schedule of a cluster: makes EtcdSnapshots when they are due, and deletes those that are not kept.
//!
//! A run has one name, made from the cluster's and the time in UTC. So whoever makes it twice, after a
//! crash or a handover, makes one. The last run is recorded after its EtcdSnapshot was created: one that
//! a person deletes is not made again.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use operands::schedule::{Backup, Retention, Schedule};
use sdk::condition::whole_seconds;
use sdk::{
    Action, Context, Controller, ControllerSpec, Event, ObjectKey, ReconcileError, Reconciler,
    Selector, mapping,
};
use serde_json::json;

use super::api::{DeletionPolicy, EtcdSnapshot, EtcdSnapshotSpec, SnapshotPhase};
use crate::api::{EtcdCluster, Snapshots, SnapshotsStatus};
use crate::names;

/// The name of this part of the controller.
const NAME: &str = "etcd-schedule";
/// The annotation of an EtcdSnapshot that a schedule made: the EtcdCluster.
const SCHEDULED_BY: &str = "data.leasehold.dev/scheduled-by";
/// The longest time between two looks: a clock that is corrected is noticed within it.
const LONGEST: Duration = Duration::from_secs(3600);
/// The most EtcdSnapshots that one look deletes.
const MAX_DELETES: usize = 10;

/// What a look decides.
#[derive(Clone, Debug, Default, PartialEq)]
struct Decision {
    /// Create this one first.
    create: Option<Box<EtcdSnapshot>>,
    /// Then record this.
    status: Option<SnapshotsStatus>,
    /// Then delete these: name and uid.
    delete: Vec<(String, String)>,
    /// When the next run is due.
    next: Option<Timestamp>,
}

/// Decides. `made` are the EtcdSnapshots that this schedule made.
fn decide(cluster: &EtcdCluster, made: &[Arc<EtcdSnapshot>], now: Timestamp) -> Decision {
    let known = cluster.status.as_ref().and_then(|status| status.snapshots.clone());
    let is_ending = cluster.metadata.deletion_timestamp.is_some();
    let Some(wanted) = cluster.spec.snapshots.as_ref().filter(|_| !is_ending) else {
        return Decision::default();
    };
    let mut status = known.unwrap_or_default();
    let schedule = match schedule(wanted) {
        Ok(schedule) => schedule,
        Err(problem) => {
            status.obstacle = Some(problem);
            return Decision { status: Some(status), ..Decision::default() };
        }
    };
    let created = cluster.metadata.creation_timestamp.as_ref().map_or(now, |at| at.0);
    let last = status.last_run.as_ref().map_or(created, |at| at.0);
    let mut create = None;
    if let Some(run) = schedule.due(last, now) {
        let name = name_of(cluster, run);
        let unfinished = made.iter().find(|found| is_unfinished(found) && found.name_any() != name);
        status.obstacle = unfinished.map(|running| {
            format!(
                "the run of {run} was skipped, because EtcdSnapshot {} still ran",
                running.name_any()
            )
        });
        if unfinished.is_none() {
            create = Some(Box::new(snapshot(cluster, wanted, name)));
        }
        status.last_run = Some(whole_seconds(run));
    } else if status.obstacle.as_deref().is_some_and(|text| !text.contains("was skipped")) {
        status.obstacle = None;
    }
    let complete = made.iter().filter(|found| phase(found) == SnapshotPhase::Complete);
    let newest = complete.max_by_key(|found| at(found)).map(|found| found.name_any());
    status.last_complete = newest.or(status.last_complete);
    Decision {
        create,
        status: Some(status),
        delete: expired(wanted, made, now),
        next: schedule.next(now),
    }
}

fn schedule(wanted: &Snapshots) -> Result<Schedule, String> {
    wanted.destination.check().map_err(|error| format!("spec.snapshots: {error}"))?;
    let schedule = Schedule::parse(&wanted.schedule, &wanted.time_zone);
    schedule.map_err(|error| format!("spec.snapshots: {error}"))
}

fn expired(
    wanted: &Snapshots,
    made: &[Arc<EtcdSnapshot>],
    now: Timestamp,
) -> Vec<(String, String)> {
    let is_over = |found: &&Arc<EtcdSnapshot>| {
        !is_unfinished(found) && found.metadata.deletion_timestamp.is_none()
    };
    let backup = |found: &Arc<EtcdSnapshot>| Backup {
        name: found.name_any(),
        at: at(found),
        good: phase(found) == SnapshotPhase::Complete,
    };
    let backups: Vec<_> = made.iter().filter(is_over).map(backup).collect();
    let last = usize::try_from(wanted.keep).unwrap_or(1);
    let retention = Retention { last: Some(last), within: None };
    let names = retention.expired(&backups, now).into_iter().take(MAX_DELETES);
    let uid = |name: &str| {
        let found = made.iter().find(|found| found.name_any() == name)?;
        Some((name.to_owned(), found.uid()?))
    };
    names.filter_map(uid).collect()
}

fn phase(snapshot: &EtcdSnapshot) -> SnapshotPhase {
    snapshot.status.as_ref().map(|status| status.phase).unwrap_or_default()
}

fn is_unfinished(snapshot: &EtcdSnapshot) -> bool {
    snapshot.metadata.deletion_timestamp.is_none()
        && snapshot.status.as_ref().is_none_or(|status| status.finished.is_none())
}

fn at(snapshot: &EtcdSnapshot) -> Timestamp {
    let started = snapshot.status.as_ref().and_then(|status| status.started.as_ref());
    let created = snapshot.metadata.creation_timestamp.as_ref();
    started.or(created).map_or(Timestamp::UNIX_EPOCH, |time: &Time| time.0)
}

fn name_of(cluster: &EtcdCluster, run: Timestamp) -> String {
    let time = run.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d-%H-%M").to_string();
    format!("{}-{time}", cluster.name_any())
}

fn snapshot(cluster: &EtcdCluster, wanted: &Snapshots, name: String) -> EtcdSnapshot {
    // No owner: snapshots outlive the cluster.
    let annotations = [(SCHEDULED_BY.to_owned(), cluster.name_any())];
    let metadata = ObjectMeta {
        name: Some(name),
        namespace: cluster.namespace(),
        labels: Some(names::labels(cluster)),
        annotations: Some(annotations.into()),
        ..ObjectMeta::default()
    };
    let spec = EtcdSnapshotSpec {
        cluster: cluster.name_any(),
        destination: wanted.destination.clone(),
        deletion_policy: DeletionPolicy::Delete,
    };
    EtcdSnapshot { metadata, spec, status: None }
}

/// Reconciles the schedules of EtcdClusters.
struct ScheduleReconciler;

/// The controller of schedules.
pub(super) fn controller(workers: usize) -> ControllerSpec {
    Controller::for_kind::<EtcdCluster>(NAME)
        .part_of(super::WHOLE)
        .watches::<EtcdSnapshot>(mapping::named_by_annotation(SCHEDULED_BY))
        .workers(workers)
        .reconciler(ScheduleReconciler)
}

impl Reconciler for ScheduleReconciler {
    type Kind = EtcdCluster;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref();
        let Some(cluster) = ctx.get::<EtcdCluster>(namespace, &key.name)? else {
            return Ok(Action::Done);
        };
        let all = ctx.list::<EtcdSnapshot>(namespace, &Selector::all())?;
        let is_ours = |found: &Arc<EtcdSnapshot>| {
            found.annotations().get(SCHEDULED_BY).is_some_and(|by| **by == *key.name)
                && *found.spec.cluster == *key.name
        };
        let made: Vec<_> = all.into_iter().filter(is_ours).collect();
        let now = ctx.now();
        let decision = decide(&cluster, &made, now);
        take(ctx, &cluster, decision, now).await
    }
}

async fn take(
    ctx: &Context,
    cluster: &EtcdCluster,
    decision: Decision,
    now: Timestamp,
) -> Result<Action, ReconcileError> {
    let namespace = cluster.namespace().unwrap_or_default();
    let snapshots = Api::<EtcdSnapshot>::namespaced(ctx.client(), &namespace);
    if let Some(snapshot) = &decision.create {
        match snapshots.create(&PostParams::default(), snapshot).await {
            // An earlier reconcile made it.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            other => drop(other?),
        }
    }
    let known = cluster.status.as_ref().and_then(|status| status.snapshots.clone());
    if let Some(status) = decision.status.filter(|status| known.as_ref() != Some(status)) {
        let obstacle = status.obstacle.clone();
        let is_new = obstacle != known.and_then(|known| known.obstacle);
        // Null removes a field that is not there any more.
        let patch = json!({"snapshots": {
            "lastRun": status.last_run,
            "lastComplete": status.last_complete,
            "obstacle": status.obstacle,
        }});
        ctx.patch_status(cluster, patch).await?;
        if let Some(obstacle) = obstacle.filter(|_| is_new) {
            ctx.publish(Event::warning(cluster, "SnapshotSkipped", "Schedule", obstacle)).await;
        }
    }
    for (name, uid) in decision.delete {
        let pinned = Preconditions { uid: Some(uid), resource_version: None };
        match snapshots.delete(&name, &DeleteParams::background().preconditions(pinned)).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            other => drop(other?),
        }
    }
    let Some(next) = decision.next else { return Ok(Action::Done) };
    let pause = Duration::try_from(next.duration_since(now)).unwrap_or_default();
    Ok(Action::RequeueAfter(pause.clamp(Duration::from_secs(1), LONGEST)))
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
