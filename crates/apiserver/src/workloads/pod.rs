//! Pods: they get a Node, run, are Ready when what runs in them is, finish if it does, and are gone
//! when deleted.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::action::{Action, Kind, ObjectRef};
use super::object::Object;
use super::{replicaset, status, template};
use crate::program::{Exit, Run, Start, State};

/// The conditions of a Pod that runs, besides those of its containers.
const SETTLED: [&str; 3] = ["PodReadyToStartContainers", "Initialized", "PodScheduled"];

/// What a Pod finds around it.
pub(crate) struct Surroundings<'a> {
    /// The Node that it gets.
    pub(crate) node: &'a str,
    /// The uid of the bound claim behind each of its volumes that has one, or what is missing.
    pub(crate) claims: Result<BTreeMap<String, String>, String>,
    /// The containers that run a program.
    pub(crate) expected: Vec<&'a str>,
    /// Those of them that were started.
    pub(crate) runs: BTreeMap<String, Run>,
}

/// The next writes for a Pod.
pub(crate) fn plan(pod: &Object, around: &Surroundings<'_>, now: Timestamp) -> Vec<Action> {
    if pod.meta().deletion_timestamp.is_some() {
        // Nothing has to be stopped: confirm the deletion, unless a finalizer remains.
        let held = !pod.finalizers().is_empty();
        return if held { Vec::new() } else { vec![replicaset::delete(pod)] };
    }
    if !template::is_active(pod) {
        return Vec::new();
    }
    let claims = match &around.claims {
        Ok(claims) => claims,
        Err(missing) => return unschedulable(pod, missing, now).into_iter().collect(),
    };
    if pod.spec["nodeName"].as_str().is_none_or(str::is_empty) {
        let body = json!({"spec": {"nodeName": around.node}});
        return vec![Action::Patch { key: ObjectRef::new(Kind::Pod, pod), body }];
    }
    let started = |name: &&&str| around.runs.contains_key(**name);
    let missing: Vec<&&str> = around.expected.iter().filter(|name| !started(name)).collect();
    if !missing.is_empty() {
        return missing.into_iter().map(|name| start(pod, name, claims, 0)).collect();
    }
    // A Pod without programs that is Ready stays as it is, also if somebody else writes its status.
    if around.expected.is_empty() && template::is_ready(pod) {
        return Vec::new();
    }
    let told = told(pod, around, now);
    match status::differs(&pod.status, &told) {
        true => {
            let key = ObjectRef::new(Kind::Pod, pod);
            vec![Action::PatchStatus { key, body: json!({ "status": told }) }]
        }
        false => restarts(pod, around, claims),
    }
}

/// Starts a program in a container.
fn start(
    pod: &Object,
    container: &str,
    claims: &BTreeMap<String, String>,
    restarts: u32,
) -> Action {
    let mut value = pod.to_value();
    value["status"]["podIP"] = json!(address(pod));
    let start = Start {
        pod: value,
        container: container.to_owned(),
        claims: claims.clone(),
        files: BTreeMap::new(),
        restarts,
    };
    let uid = pod.uid().unwrap_or_default();
    Action::Start { key: ObjectRef::new(Kind::Pod, pod), uid, start: Box::new(start) }
}

/// Starts again what has ended and should not have, after the status has said so.
fn restarts(
    pod: &Object,
    around: &Surroundings<'_>,
    claims: &BTreeMap<String, String>,
) -> Vec<Action> {
    let ended = around.runs.iter().filter(|(_, run)| match &run.state {
        State::Exited(exit) => restarts_after(pod, exit),
        State::Running { .. } => false,
    });
    ended.map(|(name, run)| start(pod, name, claims, run.restarts + 1)).collect()
}

/// Whether a container starts again after it has ended so.
fn restarts_after(pod: &Object, exit: &Exit) -> bool {
    match pod.spec["restartPolicy"].as_str() {
        Some("Never") => false,
        Some("OnFailure") => exit.code != 0,
        _ => true,
    }
}

/// A Pod waits for its claims without a Node.
fn unschedulable(pod: &Object, missing: &str, now: Timestamp) -> Option<Action> {
    let reason = json!({"reason": "Unschedulable", "message": missing});
    let conditions = [condition(pod, "PodScheduled", false, &reason, now)];
    let told = json!({"phase": "Pending", "conditions": merged(pod, conditions.into())});
    let key = ObjectRef::new(Kind::Pod, pod);
    let differs = status::differs(&pod.status, &told);
    differs.then(|| Action::PatchStatus { key, body: json!({ "status": told }) })
}

/// The status that the containers of a Pod amount to.
fn told(pod: &Object, around: &Surroundings<'_>, now: Timestamp) -> Value {
    let containers: Vec<(&Value, Run)> =
        containers(pod).map(|container| (container, run(pod, container, around))).collect();
    let ready = containers.iter().all(|(_, run)| run.state == State::Running { ready: true });
    let phase = phase(pod, &containers);
    let mut conditions: Vec<Value> =
        SETTLED.iter().map(|kind| condition(pod, kind, true, &Value::Null, now)).collect();
    let why = match phase {
        "Succeeded" => json!({"reason": "PodCompleted"}),
        "Failed" => json!({"reason": "PodFailed"}),
        _ if ready => Value::Null,
        _ => json!({"reason": "ContainersNotReady"}),
    };
    for kind in ["Ready", "ContainersReady"] {
        conditions.push(condition(pod, kind, ready, &why, now));
    }
    let statuses: Vec<Value> = containers
        .iter()
        .map(|(container, run)| container_status(pod, container, run, now))
        .collect();
    let address = address(pod);
    let started = &pod.status["startTime"];
    let mut told = json!({
        "phase": phase,
        "conditions": merged(pod, conditions),
        "containerStatuses": statuses,
        "hostIP": "127.0.0.1",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": if started.is_null() { json!(stamp(now)) } else { started.clone() },
    });
    let first: Vec<Value> = pod.spec["initContainers"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|container| {
            let sidecar = container["restartPolicy"] == "Always";
            let state = match sidecar {
                true => State::Running { ready: true },
                false => State::Exited(Exit::default()),
            };
            container_status(pod, container, &Run { state, restarts: 0 }, now)
        })
        .collect();
    if !first.is_empty() {
        told["initContainerStatuses"] = json!(first);
    }
    told
}

fn containers(pod: &Object) -> impl Iterator<Item = &Value> {
    pod.spec["containers"].as_array().into_iter().flatten()
}

/// How a container is: as its program says; without one it runs, or has done its work in a Pod of a
/// Job.
fn run(pod: &Object, container: &Value, around: &Surroundings<'_>) -> Run {
    let name = container["name"].as_str().unwrap_or_default();
    let nothing = || {
        let state = match template::has_owner(pod, "Job") {
            true => State::Exited(Exit::default()),
            false => State::Running { ready: true },
        };
        Run { state, restarts: 0 }
    };
    around.runs.get(name).cloned().unwrap_or_else(nothing)
}

fn phase(pod: &Object, containers: &[(&Value, Run)]) -> &'static str {
    let exits: Vec<&Exit> = containers
        .iter()
        .filter_map(|(_, run)| match &run.state {
            State::Exited(exit) => Some(exit),
            State::Running { .. } => None,
        })
        .collect();
    let finished = !exits.is_empty()
        && exits.len() == containers.len()
        && !exits.iter().any(|exit| restarts_after(pod, exit));
    match (finished, exits.iter().all(|exit| exit.code == 0)) {
        (false, _) => "Running",
        (true, true) => "Succeeded",
        (true, false) => "Failed",
    }
}

fn container_status(pod: &Object, container: &Value, run: &Run, now: Timestamp) -> Value {
    let before = [&pod.status["containerStatuses"], &pod.status["initContainerStatuses"]];
    let before = before.into_iter().filter_map(Value::as_array).flatten();
    let before = before.into_iter().find(|b| b["name"] == container["name"]);
    let same = before.filter(|before| before["restartCount"] == run.restarts);
    let kept = |pointer: &str| {
        let time = same.and_then(|same| same.pointer(pointer)).filter(|time| !time.is_null());
        time.cloned()
    };
    let started = kept("/state/running/startedAt").or_else(|| kept("/state/terminated/startedAt"));
    let started = started.unwrap_or_else(|| json!(stamp(now)));
    let id = format!("embedded://{}-{}", pod.uid().unwrap_or_default(), run.restarts);
    let (ready, state) = match &run.state {
        State::Running { ready } => (*ready, json!({"running": {"startedAt": started}})),
        State::Exited(exit) => {
            let finished = kept("/state/terminated/finishedAt");
            let mut ended = json!({
                "exitCode": exit.code,
                "reason": if exit.code == 0 { "Completed" } else { "Error" },
                "startedAt": started,
                "finishedAt": finished.unwrap_or_else(|| json!(stamp(now))),
                "containerID": id,
            });
            if !exit.message.is_empty() {
                ended["message"] = json!(exit.message);
            }
            (false, json!({ "terminated": ended }))
        }
    };
    let mut told = json!({
        "name": container["name"],
        "image": container["image"].as_str().unwrap_or_default(),
        "imageID": "",
        "containerID": id,
        "ready": ready,
        "started": matches!(run.state, State::Running { .. }),
        "restartCount": run.restarts,
        "state": state,
    });
    let last = match same {
        Some(same) => same["lastState"].clone(),
        None => before.map_or(Value::Null, |before| before["state"].clone()),
    };
    if last.as_object().is_some_and(|last| !last.is_empty()) {
        told["lastState"] = last;
    }
    told
}

/// A condition whose time moves with its status.
fn condition(pod: &Object, kind: &str, status: bool, why: &Value, now: Timestamp) -> Value {
    let status = if status { "True" } else { "False" };
    let before = pod.status["conditions"].as_array().into_iter().flatten();
    let mut before = before.filter(|c| c["type"] == kind && c["status"] == status);
    let time = before.next().map(|c| c["lastTransitionTime"].clone()).filter(|t| !t.is_null());
    let mut told = json!({
        "type": kind, "status": status,
        "lastTransitionTime": time.unwrap_or_else(|| json!(stamp(now))),
    });
    for (field, text) in why.as_object().into_iter().flatten() {
        told[field] = text.clone();
    }
    told
}

/// These conditions, and those of other types that the Pod has.
fn merged(pod: &Object, mut conditions: Vec<Value>) -> Vec<Value> {
    for other in pod.status["conditions"].as_array().into_iter().flatten() {
        if conditions.iter().all(|known| known["type"] != other["type"]) {
            conditions.push(other.clone());
        }
    }
    conditions
}

fn stamp(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// An address that stays the same for one Pod; nothing listens there.
fn address(pod: &Object) -> String {
    let uid = pod.uid().unwrap_or_default();
    let [_, b, c, d] = template::fnv1a(uid.as_bytes()).to_be_bytes();
    format!("10.{b}.{c}.{}", d.clamp(1, 254))
}
