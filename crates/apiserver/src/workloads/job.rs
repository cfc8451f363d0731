//! Job -> Pods that do its work, until enough have succeeded or too many have failed.
//!
//! A Pod that fails is replaced at once. Left out: `activeDeadlineSeconds`, `ttlSecondsAfterFinished`,
//! indexes, and policies for failure and success.

use std::sync::Arc;

use jiff::Timestamp;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::action::{Action, Kind, ObjectRef};
use super::object::{Object, count};
use super::status::{self, Condition};
use super::{replicaset, template};

/// How many Pods may fail by default.
const DEFAULT_LIMIT: i32 = 6;

/// How far the Pods of a Job are.
struct Tally<'a> {
    active: Vec<&'a Object>,
    ready: usize,
    succeeded: usize,
    failed: usize,
    /// Restarts of containers, which count as failures where Pods restart.
    restarts: i64,
}

/// The next writes for a Job, given its Pods.
pub(crate) fn plan(job: &Object, pods: &[Arc<Object>], now: Timestamp) -> Vec<Action> {
    if job.meta().deletion_timestamp.is_some() || outcome(job).is_some() {
        return Vec::new();
    }
    let spec = &job.spec;
    let tally = Tally::of(pods);
    let wanted = usize::try_from(count(&spec["completions"]).unwrap_or(1)).unwrap_or(0);
    let limit = count(&spec["backoffLimit"]).unwrap_or(DEFAULT_LIMIT).max(0);
    let complete = tally.succeeded >= wanted;
    let failed = tally.failed > limit as usize || tally.restarts > i64::from(limit);
    let mut actions = Vec::new();
    if complete || failed || spec["suspend"] == true {
        actions.extend(tally.active.iter().map(|pod| replicaset::delete(pod)));
    } else {
        let parallel = usize::try_from(count(&spec["parallelism"]).unwrap_or(1)).unwrap_or(0);
        let due = parallel.min(wanted - tally.succeeded).saturating_sub(tally.active.len());
        actions.extend((0..due.min(replicaset::MAX_BURST)).map(|_| create(job)));
    }
    let end = match (complete, failed) {
        (true, _) => {
            Some(("Complete", "CompletionsReached", "Reached expected number of succeeded pods"))
        }
        (_, true) => {
            let why = "Job has reached the specified backoff limit";
            Some(("Failed", "BackoffLimitExceeded", why))
        }
        _ => None,
    };
    let told = told(job, &tally, end, now);
    actions.extend(status::patch(ObjectRef::new(Kind::Job, job), &job.status, told));
    actions
}

impl<'a> Tally<'a> {
    fn of(pods: &'a [Arc<Object>]) -> Self {
        let phase = |phase: &str| pods.iter().filter(|pod| pod.status["phase"] == phase).count();
        let active: Vec<&Object> =
            pods.iter().map(|pod| &**pod).filter(|pod| template::is_active(pod)).collect();
        let containers = active
            .iter()
            .flat_map(|pod| pod.status["containerStatuses"].as_array().into_iter().flatten());
        Self {
            ready: active.iter().filter(|pod| template::is_ready(pod)).count(),
            restarts: containers.filter_map(|status| status["restartCount"].as_i64()).sum(),
            succeeded: phase("Succeeded"),
            failed: phase("Failed"),
            active,
        }
    }
}

fn told(job: &Object, tally: &Tally<'_>, end: Option<(&str, &str, &str)>, now: Timestamp) -> Value {
    let stamp = json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let started = Some(&job.status["startTime"]).filter(|time| !time.is_null());
    let mut told = json!({
        "startTime": started.unwrap_or(&stamp),
        "active": if end.is_some() { 0 } else { tally.active.len() },
        "ready": if end.is_some() { 0 } else { tally.ready },
        "succeeded": tally.succeeded,
        "failed": tally.failed,
        "terminating": 0,
        "uncountedTerminatedPods": {},
    });
    if let Some((kind, reason, message)) = end {
        let condition = Condition { kind, status: true, reason, message: message.to_owned() };
        let mut condition = status::condition(None, &condition, now);
        condition["lastProbeTime"] = stamp.clone();
        // Deployments have it, Jobs do not.
        if let Value::Object(fields) = &mut condition {
            fields.remove("lastUpdateTime");
        }
        told["conditions"] = json!([condition]);
        if kind == "Complete" {
            told["completionTime"] = stamp;
        }
    }
    status::omit_zero(&mut told, &["active", "succeeded", "failed"]);
    told
}

/// How a Job ended, if it has.
fn outcome(job: &Object) -> Option<&str> {
    let conditions = job.status["conditions"].as_array().into_iter().flatten();
    let mut ends = conditions.filter(|condition| condition["status"] == "True");
    ends.find_map(|c| c["type"].as_str().filter(|kind| matches!(*kind, "Complete" | "Failed")))
}

fn create(job: &Object) -> Action {
    let (name, uid) = (job.name_any(), job.uid().unwrap_or_default());
    let metadata = json!({
        "generateName": format!("{name}-"),
        "labels": {
            "batch.kubernetes.io/job-name": name, "job-name": name,
            "batch.kubernetes.io/controller-uid": uid, "controller-uid": uid,
        },
    });
    Action::Create {
        kind: Kind::Pod,
        namespace: job.namespace().unwrap_or_default(),
        body: template::pod(Kind::Job, job, &job.spec["template"], metadata),
    }
}
