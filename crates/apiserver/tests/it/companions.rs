//! The stand-ins for workload controllers and the garbage collector, over a server in process. The
//! tests write objects like any client, and watch until the stand-ins have done their work.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use leasehold_apiserver::Server;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// How long a test may take.
const DEADLINE: Duration = Duration::from_secs(60);

async fn server() -> Server {
    let server = Server::builder().name("companions").workloads(true).garbage_collector(true);
    server.start().await.expect("a server starts on a free port")
}

fn parse<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("the test writes valid objects")
}

async fn create<K>(api: &Api<K>, value: Value) -> K
where
    K: ResourceExt + Clone + Debug + DeserializeOwned + serde::Serialize,
{
    api.create(&PostParams::default(), &parse(value)).await.expect("created")
}

/// Follows all objects of `api`, by name, until `done` is true for them.
async fn until<K>(api: &Api<K>, what: &str, done: impl Fn(&BTreeMap<String, K>) -> bool)
where
    K: ResourceExt + Clone + Debug + DeserializeOwned + 'static,
{
    let mut known = BTreeMap::new();
    let follow = async {
        let list = api.list(&ListParams::default()).await.expect("listed");
        let version = list.metadata.resource_version.expect("lists have a version");
        known.extend(list.items.into_iter().map(|object| (object.name_any(), object)));
        if done(&known) {
            return;
        }
        let events = api.watch(&WatchParams::default(), &version).await.expect("watched");
        let mut events = pin!(events);
        while let Some(event) = events.try_next().await.expect("events arrive") {
            match event {
                WatchEvent::Added(o) | WatchEvent::Modified(o) => {
                    drop(known.insert(o.name_any(), o))
                }
                WatchEvent::Deleted(o) => drop(known.remove(&o.name_any())),
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) => panic!("watch failed: {status:?}"),
            }
            if done(&known) {
                return;
            }
        }
        panic!("the watch ended before {what}");
    };
    if tokio::time::timeout(DEADLINE, follow).await.is_err() {
        panic!("not within {DEADLINE:?}: {what}; {known:#?}");
    }
}

fn workload(kind: &str, name: &str, spec: Value) -> Value {
    let mut value = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "i:1"}]},
            },
        },
    });
    for (field, spec) in spec.as_object().expect("a spec") {
        value["spec"][field] = spec.clone();
    }
    value
}

fn converged(deployment: &Deployment, replicas: i32) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    status.observed_generation == deployment.metadata.generation
        && status.available_replicas.unwrap_or(0) == replicas
        && status.updated_replicas.unwrap_or(0) == replicas
        && status.replicas.unwrap_or(0) == replicas
}

async fn patch<K>(api: &Api<K>, name: &str, body: Value)
where
    K: ResourceExt + Clone + Debug + DeserializeOwned,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(body)).await.expect("patched");
}

#[tokio::test]
async fn a_deployment_lives_and_dies_with_its_children() {
    let server = server().await;
    let client = server.client();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    let sets: Api<ReplicaSet> = Api::namespaced(client.clone(), "default");
    let pods: Api<Pod> = Api::namespaced(client, "default");
    create(&deployments, workload("Deployment", "web", json!({"replicas": 3}))).await;
    until(&deployments, "available", |d| converged(&d["web"], 3)).await;
    let running = pods.list(&ListParams::default().labels("app=web")).await.expect("listed");
    assert_eq!(running.items.len(), 3);
    for pod in &running {
        let status = pod.status.as_ref().expect("Pods have a status");
        assert_eq!(status.phase.as_deref(), Some("Running"));
        assert!(status.pod_ip.is_some());
    }

    patch(
        &deployments,
        "web",
        json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}}}),
    )
    .await;
    until(&deployments, "rolled out", |d| converged(&d["web"], 3)).await;
    let image = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.containers[0].image.clone());
    until(&pods, "old Pods gone", |pods| {
        pods.len() == 3 && pods.values().all(|pod| image(pod).as_deref() == Some("i:2"))
    })
    .await;
    assert_eq!(sets.list(&ListParams::default()).await.expect("listed").items.len(), 2);

    patch(&deployments, "web", json!({"spec": {"replicas": 1}})).await;
    until(&pods, "scaled down", |pods| pods.len() == 1).await;

    deployments.delete("web", &DeleteParams::background()).await.expect("deleted");
    until(&sets, "ReplicaSets collected", BTreeMap::is_empty).await;
    until(&pods, "Pods collected", BTreeMap::is_empty).await;
    server.shutdown().await;
}

#[tokio::test]
async fn foreground_deletion_takes_the_children_first() {
    let server = server().await;
    let deployments: Api<Deployment> = Api::namespaced(server.client(), "default");
    let pods: Api<Pod> = Api::namespaced(server.client(), "default");
    create(&deployments, workload("Deployment", "web", json!({"replicas": 2}))).await;
    until(&deployments, "available", |d| converged(&d["web"], 2)).await;
    deployments.delete("web", &DeleteParams::foreground()).await.expect("deleted");
    until(&deployments, "the Deployment gone", BTreeMap::is_empty).await;
    let left = pods.list(&ListParams::default()).await.expect("listed");
    assert!(left.items.is_empty(), "the Deployment went before its Pods");
    server.shutdown().await;
}

#[tokio::test]
async fn orphans_are_released_and_kept() {
    let server = server().await;
    let sets: Api<ReplicaSet> = Api::namespaced(server.client(), "default");
    let pods: Api<Pod> = Api::namespaced(server.client(), "default");
    create(&sets, workload("ReplicaSet", "web", json!({"replicas": 2}))).await;
    until(&pods, "two Pods", |pods| pods.len() == 2).await;
    sets.delete("web", &DeleteParams::orphan()).await.expect("deleted");
    until(&sets, "the ReplicaSet gone", BTreeMap::is_empty).await;
    let left = pods.list(&ListParams::default()).await.expect("listed");
    assert_eq!(left.items.len(), 2);
    assert!(left.iter().all(|pod| pod.owner_references().is_empty()));
    server.shutdown().await;
}

#[tokio::test]
async fn stateful_and_daemon_sets_become_ready() {
    let server = server().await;
    let stateful: Api<StatefulSet> = Api::namespaced(server.client(), "default");
    let daemons: Api<DaemonSet> = Api::namespaced(server.client(), "default");
    let pods: Api<Pod> = Api::namespaced(server.client(), "default");
    create(&stateful, workload("StatefulSet", "db", json!({"replicas": 3, "serviceName": "db"})))
        .await;
    create(&daemons, workload("DaemonSet", "agent", json!({}))).await;
    until(&stateful, "db ready", |s| {
        s["db"].status.as_ref().is_some_and(|s| s.ready_replicas == Some(3))
    })
    .await;
    until(&daemons, "agent ready", |d| {
        d["agent"].status.as_ref().is_some_and(|s| s.number_ready == 1)
    })
    .await;
    for name in ["db-0", "db-1", "db-2"] {
        pods.get(name).await.expect("numbered Pods exist");
    }
    // A Pod on a Node is deleted in stages; the stand-in for the kubelet confirms.
    let agent =
        |pods: &BTreeMap<String, Pod>| pods.keys().find(|name| name.starts_with("agent-")).cloned();
    let list = pods.list(&ListParams::default()).await.expect("listed");
    let first = agent(&list.items.into_iter().map(|p| (p.name_any(), p)).collect()).expect("a Pod");
    pods.delete(&first, &DeleteParams::default()).await.expect("deleted");
    until(&pods, "replaced", |pods| agent(pods).is_some_and(|name| name != first)).await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_namespace_is_deleted_with_everything_in_it() {
    let server = server().await;
    let client = server.client();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    create(&namespaces, json!({"metadata": {"name": "team"}})).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "team");
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "team");
    create(&maps, json!({"metadata": {"name": "settings"}})).await;
    create(&deployments, workload("Deployment", "web", json!({"replicas": 2}))).await;
    until(&deployments, "available", |d| converged(&d["web"], 2)).await;
    namespaces.delete("team", &DeleteParams::default()).await.expect("deleted");
    until(&namespaces, "the namespace gone", |n| !n.contains_key("team")).await;
    assert!(maps.list(&ListParams::default()).await.expect("listed").items.is_empty());
    let pods: Api<Pod> = Api::namespaced(client, "team");
    assert!(pods.list(&ListParams::default()).await.expect("listed").items.is_empty());
    server.shutdown().await;
}

async fn define_owner(client: &Client) -> Api<DynamicObject> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = json!({
        "metadata": {"name": "owners.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced",
            "names": {"plural": "owners", "singular": "owner", "kind": "Owner", "listKind": "OwnerList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    create(&definitions, definition).await;
    until(&definitions, "established", |d| {
        let conditions =
            d["owners.example.org"].status.as_ref().and_then(|s| s.conditions.as_ref());
        let conditions = serde_json::to_value(conditions).expect("plain data");
        conditions
            .as_array()
            .is_some_and(|c| c.iter().any(|c| c["type"] == "Established" && c["status"] == "True"))
    })
    .await;
    let kind = GroupVersionKind::gvk("example.org", "v1", "Owner");
    Api::namespaced_with(client.clone(), "default", &ApiResource::from_gvk(&kind))
}

#[tokio::test]
async fn children_of_custom_resources_are_collected_and_shared_ones_disowned() {
    let server = server().await;
    let owners = define_owner(&server.client()).await;
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    let mut references = Vec::new();
    for name in ["a", "b"] {
        let body =
            json!({"apiVersion": "example.org/v1", "kind": "Owner", "metadata": {"name": name}});
        let owner = create(&owners, body).await;
        references.push(json!({
            "apiVersion": "example.org/v1", "kind": "Owner", "name": name,
            "uid": owner.uid().expect("stored objects have a uid"),
        }));
    }
    create(&maps, json!({"metadata": {"name": "only", "ownerReferences": [references[0]]}})).await;
    create(&maps, json!({"metadata": {"name": "shared", "ownerReferences": references}})).await;
    create(&maps, json!({"metadata": {"name": "free"}})).await;
    let mut stale = references[1].clone();
    stale["uid"] = json!("an-earlier-incarnation");
    create(&maps, json!({"metadata": {"name": "stale", "ownerReferences": [stale]}})).await;
    owners.delete("a", &DeleteParams::default()).await.expect("deleted");
    until(&maps, "only and stale collected, shared disowned", |maps| {
        !maps.contains_key("only")
            && !maps.contains_key("stale")
            && maps["shared"].owner_references().len() == 1
    })
    .await;
    assert!(maps.get_opt("free").await.expect("read").is_some());
    server.shutdown().await;
}

#[tokio::test]
async fn an_owner_in_another_namespace_does_not_count() {
    let server = server().await;
    let client = server.client();
    let owners = define_owner(&client).await;
    let body = json!({"apiVersion": "example.org/v1", "kind": "Owner", "metadata": {"name": "a"}});
    let owner = create(&owners, body).await;
    let reference = json!({
        "apiVersion": "example.org/v1", "kind": "Owner", "name": "a",
        "uid": owner.uid().expect("stored objects have a uid"),
    });
    let owned = |name: &str| json!({"name": name, "ownerReferences": [reference]});
    let namespaces: Api<Namespace> = Api::all(client.clone());
    create(&namespaces, json!({"metadata": {"name": "team"}})).await;
    let classes: Api<PriorityClass> = Api::all(client.clone());
    create(&classes, json!({"metadata": owned("wide"), "value": 1})).await;
    let elsewhere: Api<ConfigMap> = Api::namespaced(client.clone(), "team");
    create(&elsewhere, json!({"metadata": owned("elsewhere")})).await;
    until(&elsewhere, "collected, although the owner lives", BTreeMap::is_empty).await;

    let beside: Api<ConfigMap> = Api::namespaced(client, "default");
    create(&beside, json!({"metadata": owned("beside")})).await;
    owners.delete("a", &DeleteParams::default()).await.expect("deleted");
    until(&beside, "collected after its owner", BTreeMap::is_empty).await;
    let wide = classes.get_opt("wide").await.expect("read");
    assert!(wide.is_some(), "an object without a namespace has no owner in one");
    server.shutdown().await;
}

#[tokio::test]
async fn many_deployments_converge_together() {
    const COUNT: usize = 100;
    let server = server().await;
    let deployments: Api<Deployment> = Api::namespaced(server.client(), "default");
    let bodies = (0..COUNT)
        .map(|i| workload("Deployment", &format!("d{i}"), json!({"replicas": 2})))
        .map(|body| create(&deployments, body));
    futures::future::join_all(bodies).await;
    until(&deployments, "all available", |all| {
        all.len() == COUNT && all.values().all(|d| converged(d, 2))
    })
    .await;
    let pods: Api<Pod> = Api::namespaced(server.client(), "default");
    let found = pods.list(&ListParams::default()).await.expect("listed").items.len();
    assert_eq!(found, 2 * COUNT, "nothing is created twice");
    server.shutdown().await;
}
