//! TDSets without the manager's types: plain objects of `schedule.rs/v1`.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::json;

/// `cluster/namespace/name`.
pub type Key = String;

/// The resource, written out because none of the manager's code is linked.
pub fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("schedule.rs", "v1", "TDSet"),
        "tdsets",
    )
}

/// All TDSets of a cluster.
pub fn all(client: kube::Client) -> Api<DynamicObject> {
    Api::all_with(client, &resource())
}

/// The TDSets of one namespace.
pub fn namespaced(client: kube::Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client, namespace, &resource())
}

/// The `change`-th version of a TDSet, whose spec differs from that of the version before.
pub fn object(name: &str, change: u32) -> DynamicObject {
    DynamicObject::new(name, &resource()).data(json!({ "spec": spec(change) }))
}

/// The spec of the `change`-th version. Replicas alternate in every window, so that each change
/// must reach the Deployment at any hour.
pub fn spec(change: u32) -> serde_json::Value {
    let replica = 1 + change % 2;
    json!({
        "container": { "image": "crccheck/hello-world", "port": 8000 },
        "schedulingConfig": [
            { "startTime": 9, "endTime": 17, "replica": replica },
            { "startTime": 17, "endTime": 0, "replica": replica },
        ],
        "defaultReplica": replica,
    })
}

/// The generation that is Ready, if the status has observed it and says so.
pub fn ready_generation(object: &DynamicObject) -> Option<i64> {
    let status = object.data.get("status")?;
    let generation = object.metadata.generation?;
    let ready = status.get("conditions")?.as_array()?.iter().any(|condition| {
        condition.get("type").is_some_and(|t| t == "Ready")
            && condition.get("status").is_some_and(|s| s == "True")
    });
    let observed = status.get("observedGeneration")?.as_i64()?;
    (ready && observed == generation).then_some(generation)
}

/// The key of an object.
pub fn key(cluster: &str, object: &DynamicObject) -> Key {
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let name = object.metadata.name.as_deref().unwrap_or_default();
    format!("{cluster}/{namespace}/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(generation: i64, observed: i64, ready: &str) -> Option<i64> {
        let mut object = object("a", 0);
        object.metadata.generation = Some(generation);
        object.data["status"] = json!({
            "observedGeneration": observed,
            "conditions": [{ "type": "Ready", "status": ready }],
        });
        ready_generation(&object)
    }

    #[test]
    fn ready_means_observed_and_true() {
        assert_eq!(seen(2, 2, "True"), Some(2));
        assert_eq!(seen(2, 1, "True"), None);
        assert_eq!(seen(2, 2, "False"), None);
        assert_eq!(ready_generation(&object("a", 0)), None);
    }

    #[test]
    fn each_change_changes_the_spec() {
        assert_ne!(spec(0), spec(1));
        assert_ne!(spec(1), spec(2));
    }
}
