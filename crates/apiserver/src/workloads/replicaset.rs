//! ReplicaSet -> Pods.

use std::sync::Arc;

use kube::{Resource, ResourceExt};
use serde_json::json;

use super::action::{Action, Kind, ObjectRef};
use super::object::{Object, count};
use super::{status, template};

/// How many Pods a plan creates or deletes at most; the next plan continues.
pub(crate) const MAX_BURST: usize = 500;

/// The next writes for a ReplicaSet, given its Pods.
pub(crate) fn plan(set: &Object, pods: &[Arc<Object>]) -> Vec<Action> {
    let mut active: Vec<&Object> =
        pods.iter().map(|pod| &**pod).filter(|pod| template::is_active(pod)).collect();
    let mut actions = Vec::new();
    if set.meta().deletion_timestamp.is_none() {
        let desired = usize::try_from(count(&set.spec["replicas"]).unwrap_or(1)).unwrap_or(0);
        if active.len() < desired {
            let missing = (desired - active.len()).min(MAX_BURST);
            actions.extend(std::iter::repeat_with(|| create(set)).take(missing));
        } else {
            // Pods that are not ready are deleted first, then the youngest.
            active.sort_by_key(|pod| {
                let created = pod.creation_timestamp().map(|t| t.0);
                (template::is_ready(pod), std::cmp::Reverse(created), pod.name_any())
            });
            let surplus = (active.len() - desired).min(MAX_BURST);
            actions.extend(active[..surplus].iter().map(|pod| delete(pod)));
        }
    }
    let ready = active.iter().filter(|pod| template::is_ready(pod)).count();
    let mut desired = json!({
        "observedGeneration": set.meta().generation.unwrap_or(0),
        "replicas": active.len(),
        "fullyLabeledReplicas": active.len(),
        "readyReplicas": ready,
        "availableReplicas": ready,
    });
    let zeroes = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
    status::omit_zero(&mut desired, &zeroes);
    actions.extend(status::patch(ObjectRef::new(Kind::ReplicaSet, set), &set.status, desired));
    actions
}

fn create(set: &Object) -> Action {
    let name = json!({"generateName": format!("{}-", set.name_any())});
    Action::Create {
        kind: Kind::Pod,
        namespace: set.namespace().unwrap_or_default(),
        body: template::pod(Kind::ReplicaSet, set, &set.spec["template"], name),
    }
}

/// Deletes a Pod.
pub(crate) fn delete(pod: &Object) -> Action {
    Action::Delete { key: ObjectRef::new(Kind::Pod, pod), uid: pod.uid().unwrap_or_default() }
}
