//! StatefulSet -> numbered Pods: up in order, down in reverse, updated from the highest; and a claim of
//! its own for each Pod and template. A Pod without a controller that has the name of one is adopted.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::action::{Action, Kind, ObjectRef};
use super::object::{Object, count};
use super::{replicaset, status, template};

/// The label with the template of a Pod.
pub(crate) const REVISION_LABEL: &str = "controller-revision-hash";

/// Finds an object of a kind by its name in the namespace of the StatefulSet.
type Find<'a> = dyn Fn(Kind, &str) -> Option<&'a Object> + 'a;

/// The next writes for a StatefulSet, given its Pods.
pub(crate) fn plan(set: &Object, pods: &[Arc<Object>], find: &Find<'_>) -> Vec<Action> {
    let spec = &set.spec;
    let revision = format!("{}-{}", set.name_any(), template::hash(&spec["template"]));
    let by_ordinal: BTreeMap<i32, &Object> =
        pods.iter().filter_map(|pod| Some((ordinal(set, pod)?, &**pod))).collect();
    let mut actions = Vec::new();
    if set.meta().deletion_timestamp.is_none() {
        actions.extend(step(set, &revision, &by_ordinal, find));
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
fn step(
    set: &Object,
    revision: &str,
    pods: &BTreeMap<i32, &Object>,
    find: &Find<'_>,
) -> Vec<Action> {
    let spec = &set.spec;
    let first = count(&spec["ordinals"]["start"]).unwrap_or(0);
    let wanted = first..first + count(&spec["replicas"]).unwrap_or(1).max(0);
    let parallel = spec["podManagementPolicy"] == "Parallel";
    let mut actions = Vec::new();
    for ordinal in wanted.clone() {
        match pods.get(&ordinal) {
            None => {
                actions.extend(claims(set, ordinal, find));
                let there = find(Kind::Pod, &pod_name(set, ordinal));
                match there {
                    Some(pod) => actions.extend(adopt(set, pod)),
                    None => actions.push(create(set, spec, revision, ordinal)),
                }
            }
            Some(pod) if template::is_ready(pod) => continue,
            Some(_) => actions.extend(claims(set, ordinal, find)),
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
    if let Some((ordinal, pod)) = surplus.next() {
        actions.push(replicaset::delete(pod));
        if spec["persistentVolumeClaimRetentionPolicy"]["whenScaled"] == "Delete" {
            let own = names_of_claims(set, *ordinal).into_iter();
            let found = own.filter_map(|(_, name)| find(Kind::Claim, &name));
            actions.extend(found.map(|claim| Action::Delete {
                key: ObjectRef::new(Kind::Claim, claim),
                uid: claim.uid().unwrap_or_default(),
            }));
        }
        return actions;
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

fn pod_name(set: &Object, ordinal: i32) -> String {
    format!("{}-{ordinal}", set.name_any())
}

/// Each template of claims, with the name of the claim of one Pod.
fn names_of_claims(set: &Object, ordinal: i32) -> Vec<(&Value, String)> {
    let templates = set.spec["volumeClaimTemplates"].as_array().into_iter().flatten();
    let name = |template: &Value| {
        let of = template["metadata"]["name"].as_str().unwrap_or_default();
        format!("{of}-{}", pod_name(set, ordinal))
    };
    templates.map(|template| (template, name(template))).collect()
}

/// The claims of a Pod that are missing, and those that do not go with the StatefulSet yet but should.
fn claims(set: &Object, ordinal: i32, find: &Find<'_>) -> Vec<Action> {
    let goes = set.spec["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Delete";
    let mut owner = template::owner_reference(Kind::StatefulSet, set);
    owner["controller"] = json!(false);
    let one = |(template, name): (&Value, String)| {
        let Some(claim) = find(Kind::Claim, &name) else {
            let mut body = template.clone();
            body["apiVersion"] = json!("v1");
            body["kind"] = json!("PersistentVolumeClaim");
            let labels = set.spec["selector"]["matchLabels"].clone();
            let metadata = json!({"name": name, "labels": labels});
            json_patch::merge(&mut body["metadata"], &metadata);
            if goes {
                body["metadata"]["ownerReferences"] = json!([owner]);
            }
            let namespace = set.namespace().unwrap_or_default();
            return Some(Action::Create { kind: Kind::Claim, namespace, body });
        };
        let has = claim.owner_references().iter().any(|r| Some(&r.uid) == set.uid().as_ref());
        (goes && !has && claim.meta().deletion_timestamp.is_none()).then(|| {
            let mut owners = json!(claim.owner_references());
            owners.as_array_mut().into_iter().for_each(|owners| owners.push(owner.clone()));
            let body = json!({"metadata": {"uid": claim.uid(), "ownerReferences": owners}});
            Action::Patch { key: ObjectRef::new(Kind::Claim, claim), body }
        })
    };
    names_of_claims(set, ordinal).into_iter().filter_map(one).collect()
}

/// Takes a Pod that has no controller and that the selector chooses.
fn adopt(set: &Object, pod: &Object) -> Option<Action> {
    let wanted = set.spec["selector"]["matchLabels"].as_object()?;
    let chosen = wanted
        .iter()
        .all(|(key, value)| pod.labels().get(key).map(String::as_str) == value.as_str());
    let is_free = template::is_active(pod) && pod.controller().is_none();
    (chosen && is_free).then(|| {
        let owner = template::owner_reference(Kind::StatefulSet, set);
        let body = json!({"metadata": {"uid": pod.uid(), "ownerReferences": [owner]}});
        Action::Patch { key: ObjectRef::new(Kind::Pod, pod), body }
    })
}

fn create(set: &Object, spec: &Value, revision: &str, ordinal: i32) -> Action {
    let name = pod_name(set, ordinal);
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
    let own = names_of_claims(set, ordinal).into_iter().map(|(template, claim)| {
        json!({"name": template["metadata"]["name"], "persistentVolumeClaim": {"claimName": claim}})
    });
    let own: Vec<Value> = own.collect();
    if !own.is_empty() {
        let given = body["spec"]["volumes"].as_array().into_iter().flatten();
        let rest = given.filter(|volume| !own.iter().any(|own| own["name"] == volume["name"]));
        body["spec"]["volumes"] = rest.cloned().chain(own.iter().cloned()).collect();
    }
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
