//! Watches the clusters from outside: lists, watches, and lists again when the watch breaks.
//!
//! This is a small loop on the plain client on purpose: what the demo measures must not depend on the
//! informers that it measures.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::core::DynamicObject;
use model::{ClusterName, ObjectKey};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::generate::{CHANGE, Kind, Target};
use crate::track::{DeploymentState, ObjectState, Seen};

/// How long to wait before listing again.
const RETRY: Duration = Duration::from_millis(200);

/// How many objects a list asks for at once.
const PAGE: u32 = 500;

/// An object as a cluster delivered it.
#[derive(Debug)]
pub(crate) enum Delivered<K> {
    /// It exists, perhaps unchanged.
    Present(K),
    /// It was deleted; its last state.
    Deleted(K),
}

/// Delivers every object that `api` shows, and each change, until the receiver is gone.
///
/// Objects deleted while a watch was broken are not reported: the demo deletes none.
pub(crate) async fn follow<K, T>(
    api: Api<K>,
    read: impl Fn(Delivered<K>) -> Option<T> + Send,
    out: mpsc::Sender<T>,
) where
    K: Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    while !out.is_closed() {
        if let Err(error) = follow_once(&api, &read, &out).await {
            tracing::debug!(error = %model::error::chain(&error), "watching again");
        }
        tokio::select! {
            () = tokio::time::sleep(RETRY) => {}
            () = out.closed() => {}
        }
    }
}

async fn follow_once<K, T>(
    api: &Api<K>,
    read: &(impl Fn(Delivered<K>) -> Option<T> + Send),
    out: &mpsc::Sender<T>,
) -> Result<(), kube::Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let mut pages = ListParams::default().limit(PAGE);
    let version = loop {
        let list = api.list(&pages).await?;
        for object in list.items {
            deliver(Delivered::Present(object), read, out).await;
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => pages.continue_token = Some(token),
            None => break list.metadata.resource_version.unwrap_or_default(),
        }
    };
    let events = api.watch(&WatchParams::default(), &version).await?;
    let mut events = std::pin::pin!(events);
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = out.closed() => return Ok(()),
        };
        let delivered = match event {
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                Delivered::Present(object)
            }
            Some(Ok(WatchEvent::Deleted(object))) => Delivered::Deleted(object),
            Some(Ok(WatchEvent::Bookmark(_))) => continue,
            Some(Ok(WatchEvent::Error(status))) => return Err(kube::Error::Api(status)),
            Some(Err(error)) => return Err(error),
            None => return Ok(()),
        };
        deliver(delivered, read, out).await;
    }
}

async fn deliver<K, T>(
    delivered: Delivered<K>,
    read: &(impl Fn(Delivered<K>) -> Option<T> + Send),
    out: &mpsc::Sender<T>,
) {
    if let Some(item) = read(delivered) {
        // The loop notices a receiver that is gone.
        let _ = out.send(item).await;
    }
}

/// Reads a TDSet or ConfigMonitor of `cluster`.
pub(crate) fn object(
    cluster: ClusterName,
    kind: Kind,
) -> impl Fn(Delivered<DynamicObject>) -> Option<Seen> {
    move |delivered| {
        Some(match delivered {
            Delivered::Present(object) => {
                let target = Target { kind, key: key(&cluster, &object)? };
                Seen::Object(target, object_state(&object))
            }
            Delivered::Deleted(object) => {
                Seen::ObjectGone(Target { kind, key: key(&cluster, &object)? })
            }
        })
    }
}

/// Reads a Deployment of `cluster`.
pub(crate) fn deployment(
    cluster: ClusterName,
) -> impl Fn(Delivered<DynamicObject>) -> Option<Seen> {
    move |delivered| {
        Some(match delivered {
            Delivered::Present(object) => {
                Seen::Deployment(key(&cluster, &object)?, deployment_state(&object))
            }
            Delivered::Deleted(object) => Seen::DeploymentGone(key(&cluster, &object)?),
        })
    }
}

fn key(cluster: &ClusterName, object: &DynamicObject) -> Option<ObjectKey> {
    let name: &Arc<str> = &object.metadata.name.as_deref()?.into();
    Some(ObjectKey::new(cluster.clone(), object.metadata.namespace.as_deref(), name))
}

fn object_state(object: &DynamicObject) -> ObjectState {
    let annotations = object.metadata.annotations.as_ref();
    let change = annotations.and_then(|annotations| annotations.get(CHANGE)?.parse().ok());
    let status = &object.data["status"];
    let current = status["observedGeneration"].as_i64() == object.metadata.generation;
    ObjectState { change: change.unwrap_or(0), ready: current && is_ready(&status["conditions"]) }
}

fn is_ready(conditions: &Value) -> bool {
    conditions
        .as_array()
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn deployment_state(object: &DynamicObject) -> DeploymentState {
    let (spec, status) = (&object.data["spec"], &object.data["status"]);
    let generation = object.metadata.generation.unwrap_or(0);
    // Until the Deployment's own controller has seen the spec, the status describes an older one.
    let current = status["observedGeneration"].as_i64() == Some(generation);
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    let updated = number(&status["updatedReplicas"]).min(number(&status["readyReplicas"]));
    DeploymentState {
        generation,
        replicas: spec["replicas"].as_i64().unwrap_or(1),
        ready: if current { updated } else { -1 },
        image: spec["template"]["spec"]["containers"][0]["image"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read<T>(value: Value, state: impl Fn(&DynamicObject) -> T) -> T {
        state(&serde_json::from_value(value).unwrap())
    }

    #[test]
    fn an_object_is_ready_when_its_status_speaks_of_its_present_spec() {
        for (generation, observed, status, ready) in [
            (2, json!(2), "True", true),
            (3, json!(2), "True", false),
            (2, json!(2), "False", false),
            (2, json!(null), "True", false),
        ] {
            let object = json!({
                "apiVersion": "schedule.rs/v1", "kind": "TDSet",
                "metadata": {"name": "a", "generation": generation, "annotations": {CHANGE: "7"}},
                "status": {
                    "observedGeneration": observed,
                    "conditions": [{"type": "Ready", "status": status}],
                },
            });
            assert_eq!(read(object, object_state), ObjectState { change: 7, ready });
        }
    }

    #[test]
    fn a_deployment_counts_the_pods_of_its_present_spec() {
        let object = |observed: i64| {
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "a", "generation": 4},
                "spec": {
                    "replicas": 3,
                    "template": {"spec": {"containers": [{"name": "app", "image": "web:1"}]}},
                },
                "status": {"observedGeneration": observed, "updatedReplicas": 2, "readyReplicas": 3},
            })
        };
        let expect = |ready| DeploymentState {
            generation: 4,
            replicas: 3,
            ready,
            image: "web:1".to_owned(),
        };
        assert_eq!(read(object(4), deployment_state), expect(2));
        assert_eq!(read(object(3), deployment_state), expect(-1));
    }
}
