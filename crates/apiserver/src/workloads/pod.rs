//! Pods without a Node: they run at once, are Ready at once, and are gone when deleted.

use jiff::Timestamp;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::action::{Action, Kind, ObjectRef};
use super::object::Object;
use super::{replicaset, template};

/// The next writes for a Pod.
pub(crate) fn plan(pod: &Object, now: Timestamp) -> Vec<Action> {
    if pod.meta().deletion_timestamp.is_some() {
        // Nothing has to be stopped: confirm the deletion, unless a finalizer remains.
        let held = !pod.finalizers().is_empty();
        return if held { Vec::new() } else { vec![replicaset::delete(pod)] };
    }
    if !template::is_active(pod) || template::is_ready(pod) {
        return Vec::new();
    }
    let key = ObjectRef::new(Kind::Pod, pod);
    vec![Action::PatchStatus { key, body: json!({ "status": running(pod, now) }) }]
}

fn running(pod: &Object, now: Timestamp) -> Value {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let address = address(&pod.uid().unwrap_or_default());
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": now});
    let conditions: Vec<Value> =
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
            .map(condition)
            .into();
    let containers = pod.spec["containers"].as_array().into_iter().flatten();
    let statuses: Vec<Value> = containers
        .map(|container| {
            json!({
                "name": container["name"],
                "image": container["image"].as_str().unwrap_or_default(),
                "imageID": "",
                "containerID": format!("embedded://{}", pod.uid().unwrap_or_default()),
                "ready": true,
                "started": true,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            })
        })
        .collect();
    json!({
        "phase": "Running",
        "conditions": conditions,
        "containerStatuses": statuses,
        "hostIP": "127.0.0.1",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "qosClass": "BestEffort",
        "startTime": now,
    })
}

/// An address that stays the same for one Pod; nothing listens there.
fn address(uid: &str) -> String {
    let [_, b, c, d] = template::fnv1a(uid.as_bytes()).to_be_bytes();
    format!("10.{b}.{c}.{}", d.clamp(1, 254))
}
