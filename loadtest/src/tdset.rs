//! TDSets without the manager's types: plain objects of `schedule.rs/v1`.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

use crate::scenario::Objects;

/// `cluster/namespace/name`.
pub type Key = String;

/// The kind.
pub const KIND: &str = "TDSet";

/// The label that says which run made an object, where there are objects of others.
pub const RUN: &str = "load/run";

/// The resource, written out because none of the manager's code is linked.
pub fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("schedule.rs", "v1", KIND), "tdsets")
}

/// All TDSets of a cluster.
pub fn all(client: kube::Client) -> Api<DynamicObject> {
    Api::all_with(client, &resource())
}

/// The TDSets of one namespace.
pub fn namespaced(client: kube::Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client, namespace, &resource())
}

/// How many Pods a TDSet runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pods {
    /// One and two by turns: each change moves them.
    ByTurns,
    /// So many: each change moves the port of the container.
    Always(u32),
}

impl Pods {
    /// Those of the `n`-th object of a cluster.
    pub fn of(objects: &Objects, n: usize) -> Self {
        let with = objects.pods.map(|pods| u32::from(n < pods as usize));
        with.map_or(Self::ByTurns, Self::Always)
    }
}

/// The `change`-th version of a TDSet, whose spec differs from that of the version before, with an annotation of so
/// many bytes.
pub fn object(name: &str, pods: Pods, change: u32, padding: u32) -> DynamicObject {
    let mut object =
        DynamicObject::new(name, &resource()).data(json!({ "spec": spec(pods, change) }));
    if padding > 0 {
        // Text of which half is the object's own, as with names, addresses and hashes in real objects.
        let seed = name.bytes().fold(0_u64, |seed, byte| seed.wrapping_mul(31) + u64::from(byte));
        let mut rng = fastrand::Rng::with_seed(seed);
        let common = "owner: platform, tier: standard, region: ".chars().cycle();
        let text = common.map(|c| if rng.bool() { rng.alphanumeric() } else { c });
        let text: String = text.take(padding as usize).collect();
        object.metadata.annotations = Some([("load/padding".to_owned(), text)].into());
    }
    object
}

/// The spec of the `change`-th version. Replicas are the same in both halves of the day, so that each change
/// must reach the Deployment at any hour. The image is part of every node of Kubernetes.
pub fn spec(pods: Pods, change: u32) -> Value {
    let (replica, port) = match pods {
        Pods::ByTurns => (1 + change % 2, 8000),
        Pods::Always(replica) => (replica, 8000 + change % 2),
    };
    json!({
        "container": { "image": "registry.k8s.io/pause:3.10", "port": port },
        "schedulingConfig": [
            { "startTime": 0, "endTime": 12, "replica": replica },
            { "startTime": 12, "endTime": 0, "replica": replica },
        ],
        // At no hour, and none is not allowed.
        "defaultReplica": replica.max(1),
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
        let mut object = object("a", Pods::ByTurns, 0, 0);
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
        assert_eq!(ready_generation(&object("a", Pods::ByTurns, 0, 0)), None);
    }

    #[test]
    fn each_change_changes_the_spec() {
        for pods in [Pods::ByTurns, Pods::Always(0), Pods::Always(1)] {
            assert_ne!(spec(pods, 0), spec(pods, 1));
            assert_ne!(spec(pods, 1), spec(pods, 2));
        }
    }
}
