//! Delete, finalizers, namespaces, deletecollection.

use serde_json::json;

use crate::world::{CONFIGMAPS, World, configmap, version};

#[tokio::test]
async fn an_object_without_finalizers_is_gone_at_once() {
    let world = World::new().await;
    let created = world.post(CONFIGMAPS, configmap("a", "1")).await.expect(201);
    let mut events =
        world.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={}", version(&created))).await;
    let status = world.delete(&format!("{CONFIGMAPS}/a"), json!({})).await.expect(200);
    assert_eq!(status["status"], "Success");
    assert_eq!(status["details"]["uid"], created["metadata"]["uid"]);
    let (kind, name, at) = events.brief().await;
    assert_eq!((kind.as_str(), name.as_str()), ("DELETED", "a"));
    assert_eq!(at, world.server.revision(), "the event bears the deletion's version");
    assert_eq!(world.delete(&format!("{CONFIGMAPS}/a"), json!({})).await.status().0, 404);
}

#[tokio::test]
async fn finalizers_keep_an_object_until_the_last_is_removed() {
    let world = World::new().await;
    let path = format!("{CONFIGMAPS}/a");
    let mut held = configmap("a", "1");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    world.post(CONFIGMAPS, held).await.expect(201);
    let marked = world.delete(&path, json!({})).await.expect(200);
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    let again = world.delete(&path, json!({})).await.expect(200);
    assert_eq!(version(&again), version(&marked));
    let more = json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}});
    assert_eq!(world.merge(&path, more).await.status().0, 422);
    world.merge(&path, json!({"metadata": {"finalizers": null}})).await.expect(200);
    assert_eq!(world.get(&path).await.code, 404);
}

#[tokio::test]
async fn preconditions_and_options_are_checked() {
    let world = World::new().await;
    world.post(CONFIGMAPS, configmap("a", "1")).await.expect(201);
    let path = format!("{CONFIGMAPS}/a");
    let cases = [
        (json!({"preconditions": {"uid": "other"}}), 409),
        (json!({"preconditions": {"resourceVersion": "1"}}), 409),
        (json!({"propagationPolicy": "Background", "orphanDependents": true}), 422),
        (json!({"propagationPolicy": "Sideways"}), 422),
        (json!({"dryRun": ["Some"]}), 422),
    ];
    for (options, code) in cases {
        assert_eq!(world.delete(&path, options.clone()).await.status().0, code, "{options}");
    }
    world.delete(&path, json!({"dryRun": ["All"]})).await.expect(200);
    world.get(&path).await.expect(200);
    let foreground = world.delete(&path, json!({"propagationPolicy": "Foreground"})).await;
    assert_eq!(foreground.expect(200)["metadata"]["finalizers"], json!(["foregroundDeletion"]));
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let world = World::new().await;
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let mut object = configmap(name, "1");
        object["metadata"]["labels"] = json!({"l": label});
        world.post(CONFIGMAPS, object).await.expect(201);
    }
    let gone =
        world.delete(&format!("{CONFIGMAPS}?labelSelector=l%3Dx"), json!({})).await.expect(200);
    assert_eq!(gone["items"].as_array().unwrap().len(), 2);
    let left = world.get(CONFIGMAPS).await.expect(200);
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_namespace_that_is_deleted_accepts_nothing_new() {
    let world = World::new().await;
    world.post("/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await.expect(201);
    let going = world.delete("/api/v1/namespaces/n", json!({})).await.expect(200);
    assert_eq!(going["status"]["phase"], "Terminating");
    let refused = world.post("/api/v1/namespaces/n/configmaps", configmap("a", "1")).await;
    assert_eq!(refused.status().0, 403);
    assert_eq!(refused.json()["details"]["causes"][0]["reason"], "NamespaceTerminating");
    let mut empty = going;
    empty["spec"] = json!({});
    world.put("/api/v1/namespaces/n/finalize", empty).await.expect(200);
    assert_eq!(world.get("/api/v1/namespaces/n").await.code, 404);
}

#[tokio::test]
async fn the_garbage_collector_empties_a_namespace() {
    use leasehold_apiserver::Server;
    let world = World::with(Server::builder().garbage_collector(true)).await;
    world.post("/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await.expect(201);
    world.post("/api/v1/namespaces/n/configmaps", configmap("a", "1")).await.expect(201);
    let at = world.server.revision();
    let mut events = world.watch(&format!("/api/v1/namespaces?watch=1&resourceVersion={at}")).await;
    world.delete("/api/v1/namespaces/n", json!({})).await.expect(200);
    while events.brief().await.0 != "DELETED" {}
    assert_eq!(world.get("/api/v1/namespaces/n/configmaps/a").await.code, 404);
}
