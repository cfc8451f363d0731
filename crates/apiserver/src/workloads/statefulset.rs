//! StatefulSet -> numbered Pods: up in order, down in reverse, updated from the highest.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::action::{Action, Kind, ObjectRef};
use super::object::{Object, count};
use super::{replicaset, status, template};

/// The label with the template of a Pod.
pub(crate) const REVISION_LABEL: &str = "controller-revision-hash";

/// The next writes for a StatefulSet, given its Pods.
pub(crate) fn plan(set: &Object, pods: &[Arc<Object>]) -> Vec<Action> {
    let spec = &set.spec;
    let revision = format!("{}-{}", set.name_any(), template::hash(&spec["template"]));
    let by_ordinal: BTreeMap<i32, &Object> =
        pods.iter().filter_map(|pod| Some((ordinal(set, pod)?, &**pod))).collect();
    let mut actions = Vec::new();
    if set.meta().deletion_timestamp.is_none() {
        actions.extend(step(set, spec, &revision, &by_ordinal));
    }

    let active = || by_ordinal.values().filter(|pod| template::is_active(pod));
    let ready = active().filter(|pod| template::is_ready(pod)).count();
    let updated = active().filter(|pod| is_at(pod, &revision)).count();
    let before = set.status["currentRevision"].as_str().map(str::to_owned);
    let settled = updated == active().count();
    let current_revision =
        if settled { revision.clone() } else { before.unwrap_or_else(|| revision.clone()) };
    let mut desired = json!({
        "observedGeneration": set.meta().generation.unwrap_or(0),
        "replicas": active().count(),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "currentReplicas": active().filter(|pod| is_at(pod, &current_revision)).count(),
        "updatedReplicas": updated,
        "currentRevision": current_revision,
        "updateRevision": revision,
        "collisionCount": 0,
    });
    status::omit_zero(&mut desired, &["readyReplicas", "currentReplicas", "updatedReplicas"]);
    actions.extend(status::patch(ObjectRef::new(Kind::StatefulSet, set), &set.status, desired));
    actions
}

/// The next Pods to create, or the next one to delete.
fn step(set: &Object, spec: &Value, revision: &str, pods: &BTreeMap<i32, &Object>) -> Vec<Action> {
    let first = count(&spec["ordinals"]["start"]).unwrap_or(0);
    let wanted = first..first + count(&spec["replicas"]).unwrap_or(1).max(0);
    let parallel = spec["podManagementPolicy"] == "Parallel";
    let mut actions = Vec::new();
    for ordinal in wanted.clone() {
        match pods.get(&ordinal) {
            None => actions.push(create(set, spec, revision, ordinal)),
            Some(pod) if template::is_ready(pod) => continue,
            Some(_) => {}
        }
        // With ordered management, a missing Pod delays those after it.
        if !parallel {
            return actions;
        }
        if actions.len() == replicaset::MAX_BURST {
            break;
        }
    }
    if !actions.is_empty() {
        return actions;
    }
    let mut surplus =
        pods.iter().rev().filter(|(o, pod)| !wanted.contains(o) && template::is_active(pod));
    if let Some((_, pod)) = surplus.next() {
        return vec![replicaset::delete(pod)];
    }
    let update = &spec["updateStrategy"];
    if update["type"] == "OnDelete" {
        return actions;
    }
    let partition = count(&update["rollingUpdate"]["partition"]).unwrap_or(0);
    let outdated = |(o, pod): &(&i32, &&Object)| **o >= partition && !is_at(pod, revision);
    let settled = wanted.clone().all(|o| pods.get(&o).is_some_and(|pod| template::is_ready(pod)));
    match pods.iter().rev().find(outdated) {
        Some((_, pod)) if settled => vec![replicaset::delete(pod)],
        _ => actions,
    }
}

fn create(set: &Object, spec: &Value, revision: &str, ordinal: i32) -> Action {
    let name = format!("{}-{ordinal}", set.name_any());
    let labels = json!({
        "name": name,
        "labels": {
            REVISION_LABEL: revision,
            "statefulset.kubernetes.io/pod-name": name,
            "apps.kubernetes.io/pod-index": ordinal.to_string(),
        },
    });
    let mut body = template::pod(Kind::StatefulSet, set, &spec["template"], labels);
    body["spec"]["hostname"] = json!(name);
    if let Some(service) = spec["serviceName"].as_str().filter(|s| !s.is_empty()) {
        body["spec"]["subdomain"] = json!(service);
    }
    Action::Create { kind: Kind::Pod, namespace: set.namespace().unwrap_or_default(), body }
}

fn ordinal(set: &Object, pod: &Object) -> Option<i32> {
    pod.name_any().strip_prefix(&format!("{}-", set.name_any()))?.parse().ok()
}

fn is_at(pod: &Object, revision: &str) -> bool {
    pod.labels().get(REVISION_LABEL).is_some_and(|r| r == revision)
}
