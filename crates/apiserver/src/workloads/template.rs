//! Pod templates: their hash, and the Pods made from them.

use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::action::Kind;
use super::object::Object;
use crate::objects::prepare::drop_nulls;

/// The label that distinguishes the ReplicaSets of a Deployment and their Pods.
pub(crate) const HASH_LABEL: &str = "pod-template-hash";

/// The letters of generated suffixes: no vowels, and none that are easily confused.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A short word for a template; equal templates get equal words.
pub(crate) fn hash(template: &Value) -> String {
    let mut template = template.clone();
    if let Some(Value::Object(labels)) = template.pointer_mut("/metadata/labels") {
        labels.remove(HASH_LABEL);
    }
    drop_nulls(&mut template);
    let digest = fnv1a(template.to_string().as_bytes());
    digest.to_string().bytes().map(|b| ALPHABET[usize::from(b) % ALPHABET.len()] as char).collect()
}

/// FNV-1a, 32 bits.
pub(crate) fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// The reference of a controller to what it owns.
pub(crate) fn owner_reference(kind: Kind, owner: &impl ResourceExt) -> Value {
    json!({
        "apiVersion": format!("{}/v1", kind.group()),
        "kind": kind.as_str(),
        "name": owner.name_any(),
        "uid": owner.uid().unwrap_or_default(),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// A Pod of `owner`. `metadata` adds to the template: a name or generateName, labels.
pub(crate) fn pod(
    kind: Kind,
    owner: &impl ResourceExt,
    template: &Value,
    metadata: Value,
) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": template.get("metadata").cloned().unwrap_or_else(|| json!({})),
        "spec": template.get("spec").cloned().unwrap_or_else(|| json!({})),
    });
    json_patch::merge(&mut pod["metadata"], &metadata);
    pod["metadata"]["ownerReferences"] = json!([owner_reference(kind, owner)]);
    pod
}

/// Whether the controller of an object is of this kind.
pub(crate) fn has_owner(object: &Object, kind: &str) -> bool {
    object.controller().is_some_and(|owner| owner.kind == kind)
}

/// Whether a Pod counts for its controller: neither finished nor being deleted.
pub(crate) fn is_active(pod: &Object) -> bool {
    let phase = pod.status["phase"].as_str();
    pod.meta().deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether a Pod is Ready.
pub(crate) fn is_ready(pod: &Object) -> bool {
    let mut conditions = pod.status["conditions"].as_array().into_iter().flatten();
    is_active(pod) && conditions.any(|c| c["type"] == "Ready" && c["status"] == "True")
}
