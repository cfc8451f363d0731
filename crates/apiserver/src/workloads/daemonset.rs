//! DaemonSet -> one Pod per Node. A server without Nodes counts as one Node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::action::{Action, Kind, ObjectRef};
use super::object::Object;
use super::statefulset::REVISION_LABEL;
use super::{replicaset, status, template};

/// The Node of a server that has none.
pub(crate) const VIRTUAL_NODE: &str = "embedded";

/// The next writes for a DaemonSet, given its Pods and the names of all Nodes.
pub(crate) fn plan(set: &Object, pods: &[Arc<Object>], nodes: &BTreeSet<String>) -> Vec<Action> {
    let spec = &set.spec;
    let virtual_node = BTreeSet::from([VIRTUAL_NODE.to_owned()]);
    let nodes = if nodes.is_empty() { &virtual_node } else { nodes };
    let revision = template::hash(&spec["template"]);
    let mut placed: BTreeMap<String, &Object> = BTreeMap::new();
    let mut surplus = Vec::new();
    for pod in pods.iter().map(|pod| &**pod).filter(|pod| template::is_active(pod)) {
        let node = pod.spec["nodeName"].as_str().unwrap_or_default().to_owned();
        if !nodes.contains(&node) || placed.contains_key(&node) {
            surplus.push(pod);
        } else {
            placed.insert(node, pod);
        }
    }

    let mut actions = Vec::new();
    if set.meta().deletion_timestamp.is_none() {
        actions.extend(surplus.iter().map(|pod| replicaset::delete(pod)));
        let missing = nodes.iter().filter(|node| !placed.contains_key(*node));
        let missing = missing.take(replicaset::MAX_BURST);
        actions.extend(missing.map(|node| create(set, spec, &revision, node)));
        let rolling = spec["updateStrategy"]["type"].as_str();
        let all_ready =
            placed.len() == nodes.len() && placed.values().all(|p| template::is_ready(p));
        if rolling != Some("OnDelete") && all_ready {
            // One at a time: the next is deleted when its replacement is Ready.
            let outdated = placed.values().find(|pod| !is_at(pod, &revision));
            actions.extend(outdated.map(|pod| replicaset::delete(pod)));
        }
    }
    let ready = placed.values().filter(|pod| template::is_ready(pod)).count();
    let mut desired = json!({
        "observedGeneration": set.meta().generation.unwrap_or(0),
        "desiredNumberScheduled": nodes.len(),
        "currentNumberScheduled": placed.len(),
        "updatedNumberScheduled": placed.values().filter(|pod| is_at(pod, &revision)).count(),
        "numberMisscheduled": surplus.len(),
        "numberReady": ready,
        "numberAvailable": ready,
        "numberUnavailable": nodes.len() - ready,
    });
    let zeroes = ["updatedNumberScheduled", "numberAvailable", "numberUnavailable"];
    status::omit_zero(&mut desired, &zeroes);
    actions.extend(status::patch(ObjectRef::new(Kind::DaemonSet, set), &set.status, desired));
    actions
}

fn create(set: &Object, spec: &Value, revision: &str, node: &str) -> Action {
    let metadata = json!({
        "generateName": format!("{}-", set.name_any()),
        "labels": {REVISION_LABEL: revision},
    });
    let mut body = template::pod(Kind::DaemonSet, set, &spec["template"], metadata);
    body["spec"]["nodeName"] = json!(node);
    Action::Create { kind: Kind::Pod, namespace: set.namespace().unwrap_or_default(), body }
}

fn is_at(pod: &Object, revision: &str) -> bool {
    pod.labels().get(REVISION_LABEL).is_some_and(|r| r == revision)
}
