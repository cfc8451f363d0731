//! How far the rollout of a workload is. Pure.
//!
//! The rules are those of `kubectl rollout status`, and of Argo Rollouts for its restarts. What a workload's
//! own controller will not do is told as what holds it.

use jiff::Timestamp;
use serde_json::Value;

use super::pending::{Pending, Workload, WorkloadKind};

/// How far a rollout is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// All Pods are new and available.
    Done,
    /// The workload's controller is at it.
    Rolling,
    /// It is held up, and goes on when people or Pods change something.
    Held(Trouble),
    /// It will not come to its end.
    Ended(Trouble),
}

/// What stands in the way of a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// In one word.
    pub(crate) reason: &'static str,
    /// For people.
    pub(crate) words: String,
}

impl Trouble {
    pub(crate) fn new(reason: &'static str, words: String) -> Self {
        Self { reason, words }
    }
}

/// How far the rollout of a workload is whose template has the restart's stamp under `annotation`.
pub(crate) fn stage(
    workload: &Workload,
    object: &Value,
    annotation: &str,
    pending: &Pending,
) -> Stage {
    let label = workload.label();
    if workload.kind == WorkloadKind::Rollout {
        return rollout(&label, object, pending);
    }
    let annotations = &object["spec"]["template"]["metadata"]["annotations"];
    if annotations[annotation] != pending.stamp() && !is_newer(object, pending) {
        let words = format!(
            "others took the annotation {annotation} off the template of {label}, and with it the rollout: let \
             them ignore it"
        );
        return Stage::Ended(Trouble::new("Reverted", words));
    }
    match workload.kind {
        WorkloadKind::Deployment => deployment(&label, object),
        WorkloadKind::StatefulSet => stateful_set(&label, object),
        WorkloadKind::DaemonSet | WorkloadKind::Rollout => daemon_set(&label, object),
    }
}

/// Whether a workload was made after the restart was decided: then it has no stamp, and only new Pods. One clock is
/// the manager's and one the server's: what was made shortly before may count as newer, and its rollout is followed.
fn is_newer(object: &Value, pending: &Pending) -> bool {
    let made = time(&object["metadata"]["creationTimestamp"]);
    pending.decided_at.as_ref().is_some_and(|decided| made > Some(decided.0))
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// A number of the status, 0 if it is absent.
fn told(object: &Value, field: &str) -> i64 {
    object["status"][field].as_i64().unwrap_or(0)
}

fn replicas(object: &Value) -> i64 {
    object["spec"]["replicas"].as_i64().unwrap_or(1)
}

/// Whether the status is of the present spec.
fn is_observed(object: &Value) -> bool {
    told(object, "observedGeneration") >= object["metadata"]["generation"].as_i64().unwrap_or(0)
}

fn held(reason: &'static str, words: String) -> Stage {
    Stage::Held(Trouble::new(reason, words))
}

fn done(is_done: bool) -> Stage {
    if is_done { Stage::Done } else { Stage::Rolling }
}

fn deployment(label: &str, object: &Value) -> Stage {
    if object["spec"]["paused"] == true {
        return held("Paused", format!("{label} is paused: its Pods restart when it is resumed"));
    }
    if !is_observed(object) {
        return Stage::Rolling;
    }
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let mut conditions = conditions.filter(|found| found["type"] == "Progressing");
    if conditions.any(|found| found["reason"] == "ProgressDeadlineExceeded") {
        let words = format!("{label} exceeded its progressDeadlineSeconds: look at its new Pods");
        return held("ProgressDeadlineExceeded", words);
    }
    done(is_renewed(object))
}

/// Whether all Pods are new and available.
fn is_renewed(object: &Value) -> bool {
    let updated = told(object, "updatedReplicas");
    updated >= replicas(object)
        && told(object, "replicas") <= updated
        && told(object, "availableReplicas") >= updated
}

fn on_delete(label: &str) -> Stage {
    let words = format!("{label} has the updateStrategy OnDelete: delete its Pods to restart them");
    held("OnDelete", words)
}

fn stateful_set(label: &str, object: &Value) -> Stage {
    if !is_observed(object) {
        return Stage::Rolling;
    }
    let (wanted, updated) = (replicas(object), told(object, "updatedReplicas"));
    let strategy = &object["spec"]["updateStrategy"];
    let is_ready = told(object, "readyReplicas") >= wanted
        && object["status"]["availableReplicas"].as_i64().is_none_or(|found| found >= wanted);
    if strategy["type"] == "OnDelete" {
        return if updated < wanted { on_delete(label) } else { done(is_ready) };
    }
    let partition = strategy["rollingUpdate"]["partition"].as_i64().unwrap_or(0).clamp(0, wanted);
    if !is_ready || updated < wanted - partition {
        return Stage::Rolling;
    }
    if updated < wanted {
        let words = format!(
            "{label} has the partition {partition}: the Pods below it restart when it is lowered"
        );
        return held("Partitioned", words);
    }
    let status = &object["status"];
    done(partition > 0 || status["currentRevision"] == status["updateRevision"])
}

fn daemon_set(label: &str, object: &Value) -> Stage {
    if !is_observed(object) {
        return Stage::Rolling;
    }
    let wanted = told(object, "desiredNumberScheduled");
    let is_updated = told(object, "updatedNumberScheduled") >= wanted;
    if object["spec"]["updateStrategy"]["type"] == "OnDelete" && !is_updated {
        return on_delete(label);
    }
    done(is_updated && told(object, "numberAvailable") >= wanted)
}

/// A Rollout restarts its Pods one by one, without a new template, and says until when it has. It says so too when it
/// only sees a new template, while old Pods run on beside its canary: so its phase counts.
fn rollout(label: &str, object: &Value, pending: &Pending) -> Stage {
    let asked = pending.decided_at.as_ref().map(|decided| decided.0);
    let restarted = time(&object["status"]["restartedAt"]) >= asked;
    let has_restarted = restarted || is_newer(object, pending);
    if !has_restarted && time(&object["spec"]["restartAt"]) < asked {
        let words = format!("others took spec.restartAt off {label}: let them ignore it");
        return Stage::Ended(Trouble::new("Reverted", words));
    }
    // It is text, and in early versions a hash.
    let observed = object["status"]["observedGeneration"].as_str();
    let observed = observed.and_then(|text| text.parse::<i64>().ok());
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
    if observed.is_some_and(|observed| observed < generation) {
        return Stage::Rolling;
    }
    match object["status"]["phase"].as_str() {
        Some("Degraded") => {
            let words = format!("{label} is degraded: look at its status");
            held("Degraded", words)
        }
        Some("Paused") => {
            held("Paused", format!("{label} is paused: promote or resume it to restart its Pods"))
        }
        Some("Healthy") => done(has_restarted),
        Some(_) => Stage::Rolling,
        // An early version, which has none.
        None => done(has_restarted && is_renewed(object)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ANNOTATION: &str = "a/b";

    fn word(kind: WorkloadKind, spec: Value, status: Value) -> &'static str {
        let workload = Workload::new(kind, "w");
        let decided_at = serde_json::from_value(json!("2026-11-21T10:00:05Z")).unwrap();
        let pending = Pending { hash: "h".into(), decided_at, ..Pending::default() };
        let mut object = json!({
            "metadata": {"generation": 2, "creationTimestamp": spec["made"]},
            "spec": {"template": {"metadata": {"annotations": {ANNOTATION: pending.stamp()}}}},
            "status": {"observedGeneration": 2},
        });
        for (field, more) in [("spec", spec), ("status", status)] {
            object[field].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        }
        match stage(&workload, &object, ANNOTATION, &pending) {
            Stage::Done => "done",
            Stage::Rolling => "rolling",
            Stage::Held(trouble) | Stage::Ended(trouble) => trouble.reason,
        }
    }

    #[test]
    fn deployments() {
        let all = json!({"replicas": 3, "updatedReplicas": 3, "availableReplicas": 3});
        let deadline =
            json!({"conditions": [{"type": "Progressing", "reason": "ProgressDeadlineExceeded"}]});
        let template = |metadata: Value| json!({"template": {"metadata": metadata}});
        for (spec, more, expect) in [
            (json!({}), json!({}), "done"),
            (json!({}), json!({"observedGeneration": 1}), "rolling"),
            (json!({}), json!({"updatedReplicas": 2}), "rolling"),
            (json!({}), json!({"replicas": 4}), "rolling"),
            (json!({}), json!({"availableReplicas": 2}), "rolling"),
            (json!({"paused": true}), json!({}), "Paused"),
            (json!({}), deadline, "ProgressDeadlineExceeded"),
            (json!({"template": {}}), json!({}), "Reverted"),
            // One of an earlier restart for the same content.
            (template(json!({"annotations": {ANNOTATION: "h"}})), json!({}), "Reverted"),
            // Made anew since.
            (json!({"template": {}, "made": "2026-11-21T10:00:06Z"}), json!({}), "done"),
            (json!({"template": {}, "made": "2026-11-21T10:00:05Z"}), json!({}), "Reverted"),
        ] {
            let mut spec = spec;
            spec["replicas"] = 3.into();
            let mut status = all.clone();
            status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            assert_eq!(word(WorkloadKind::Deployment, spec, status.clone()), expect, "{status}");
        }
        assert_eq!(word(WorkloadKind::Deployment, json!({"replicas": 0}), json!({})), "done");
    }

    #[test]
    fn stateful_sets() {
        let all = json!({
            "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3,
            "currentRevision": "r", "updateRevision": "r",
        });
        let partition =
            |number: i64| json!({"updateStrategy": {"rollingUpdate": {"partition": number}}});
        let on_delete = || json!({"updateStrategy": {"type": "OnDelete"}});
        for (spec, more, expect) in [
            (json!({}), json!({}), "done"),
            (json!({}), json!({"observedGeneration": 1}), "rolling"),
            (json!({}), json!({"readyReplicas": 2}), "rolling"),
            (json!({}), json!({"availableReplicas": 2}), "rolling"),
            (json!({}), json!({"updatedReplicas": 2}), "rolling"),
            (json!({}), json!({"currentRevision": "q"}), "rolling"),
            (on_delete(), json!({"updatedReplicas": 2}), "OnDelete"),
            (on_delete(), json!({"readyReplicas": 2}), "rolling"),
            (partition(2), json!({"updatedReplicas": 1}), "Partitioned"),
            (partition(2), json!({"updatedReplicas": 0}), "rolling"),
            (partition(9), json!({"updatedReplicas": 0}), "Partitioned"),
            (partition(2), json!({}), "done"),
        ] {
            let mut spec = spec;
            spec["replicas"] = 3.into();
            let mut status = all.clone();
            status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let found = word(WorkloadKind::StatefulSet, spec.clone(), status.clone());
            assert_eq!(found, expect, "{spec} {status}");
        }
    }

    #[test]
    fn daemon_sets_and_rollouts() {
        let status = |updated: i64, available: i64| {
            json!({"desiredNumberScheduled": 2, "updatedNumberScheduled": updated,
                "numberAvailable": available})
        };
        let on_delete = || json!({"updateStrategy": {"type": "OnDelete"}});
        for (spec, status, expect) in [
            (json!({}), status(2, 2), "done"),
            (json!({}), status(1, 2), "rolling"),
            (json!({}), status(2, 1), "rolling"),
            (on_delete(), status(1, 2), "OnDelete"),
            (on_delete(), status(2, 2), "done"),
        ] {
            assert_eq!(word(WorkloadKind::DaemonSet, spec, status.clone()), expect, "{status}");
        }
        let (asked, before) = ("2026-11-21T10:00:05Z", "2026-11-21T10:00:04Z");
        let restarted = |at: &str, phase: &str| json!({"restartedAt": at, "phase": phase, "observedGeneration": "2"});
        let early = |updated: i64, replicas: i64| {
            json!({"restartedAt": asked, "observedGeneration": "5d8f", "replicas": replicas,
                "updatedReplicas": updated, "availableReplicas": replicas})
        };
        let mut unseen = restarted(asked, "Healthy");
        unseen["observedGeneration"] = "1".into();
        assert_eq!(word(WorkloadKind::Rollout, json!({"restartAt": asked}), unseen), "rolling");
        for (spec, status, expect) in [
            (json!({"restartAt": asked}), restarted(asked, "Healthy"), "done"),
            (json!({"restartAt": before}), restarted(asked, "Healthy"), "done"),
            (json!({"restartAt": asked}), restarted(before, "Healthy"), "rolling"),
            (json!({"restartAt": asked}), restarted(asked, "Progressing"), "rolling"),
            (json!({"restartAt": asked}), restarted(asked, "Paused"), "Paused"),
            (json!({"restartAt": asked}), restarted(asked, "Degraded"), "Degraded"),
            (json!({"restartAt": asked}), json!({}), "rolling"),
            (json!({"restartAt": asked}), json!({"phase": "Degraded"}), "Degraded"),
            (json!({"restartAt": before}), json!({}), "Reverted"),
            (json!({}), json!({}), "Reverted"),
            (json!({"made": "2026-11-21T10:00:06Z"}), json!({"phase": "Healthy"}), "done"),
            // Of early versions, whose observed generation is a hash.
            (json!({"restartAt": asked}), early(2, 2), "done"),
            (json!({"restartAt": asked}), early(1, 2), "rolling"),
            (json!({"restartAt": asked}), early(2, 3), "rolling"),
        ] {
            let mut spec = spec;
            spec["replicas"] = 2.into();
            let found = word(WorkloadKind::Rollout, spec.clone(), status.clone());
            assert_eq!(found, expect, "{spec} {status}");
        }
    }
}
