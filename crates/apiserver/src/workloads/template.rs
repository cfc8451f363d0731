//! Pod templates: their hash, and the Pods made from them.

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::action::Kind;

/// The label that distinguishes the ReplicaSets of a Deployment and their Pods.
pub(crate) const HASH_LABEL: &str = "pod-template-hash";

/// The letters of generated suffixes: no vowels, and none that are easily confused.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A short word for a template; equal templates get equal words.
pub(crate) fn hash(template: &PodTemplateSpec) -> String {
    let mut template = template.clone();
    if let Some(labels) = template.metadata.as_mut().and_then(|m| m.labels.as_mut()) {
        labels.remove(HASH_LABEL);
    }
    let text = serde_json::to_string(&template).expect("a template is plain data");
    let digest = fnv1a(text.as_bytes());
    digest.to_string().bytes().map(|b| ALPHABET[usize::from(b) % ALPHABET.len()] as char).collect()
}

/// FNV-1a, 32 bits.
pub(crate) fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// The reference of a controller to what it owns.
pub(crate) fn owner_reference(kind: Kind, owner: &impl ResourceExt) -> Value {
    json!({
        "apiVersion": "apps/v1",
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
    template: &PodTemplateSpec,
    metadata: Value,
) -> Value {
    let template = serde_json::to_value(template).expect("a template is plain data");
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

/// Whether a Pod counts for its controller: neither finished nor being deleted.
pub(crate) fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    pod.meta().deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether a Pod is Ready.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    is_active(pod)
        && serde_json::to_value(conditions).ok().as_ref().and_then(Value::as_array).is_some_and(
            |conditions| conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"),
        )
}
