//! The four patch types, over HTTP.

use serde_json::json;

use crate::world::{CONFIGMAPS, World, configmap, version};

const JSON: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

#[tokio::test]
async fn json_and_merge_patches() {
    let world = World::new().await;
    let path = format!("{CONFIGMAPS}/a");
    world.post(CONFIGMAPS, configmap("a", "1")).await.expect(201);
    let operations = json!([{"op": "replace", "path": "/data/key", "value": "2"}]);
    assert_eq!(world.patch(&path, JSON, operations).await.expect(200)["data"]["key"], "2");
    let merged = world.merge(&path, json!({"data": {"key": null, "other": "3"}})).await.expect(200);
    assert_eq!(merged["data"], json!({"other": "3"}));
    let failed = json!([{"op": "test", "path": "/data/other", "value": "9"}]);
    assert_eq!(world.patch(&path, JSON, failed).await.status().0, 422);
    assert_eq!(world.patch(&path, "text/plain", json!({})).await.status().0, 415);
    let stale = json!({"metadata": {"resourceVersion": "1"}, "data": {"x": "y"}});
    assert_eq!(world.merge(&path, stale).await.status().0, 409);
    assert_eq!(world.merge(&format!("{CONFIGMAPS}/b"), json!({})).await.status().0, 404);
    for metadata in [json!([]), json!({"labels": {"a": 1}}), json!({"managedFields": {}})] {
        let shapeless = world.merge(&path, json!({"metadata": metadata})).await;
        assert_eq!(shapeless.status().0, 400, "{metadata}");
    }
}

#[tokio::test]
async fn strategic_patches_merge_lists_by_key() {
    let world = World::new().await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [
            {"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]}}}});
    let created = world.post(deployments, deployment).await.expect(201);
    let patch =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "b", "image": "b:2"}]}}}});
    let patched = world.patch(&format!("{deployments}/d"), STRATEGIC, patch).await.expect(200);
    let containers = &patched["spec"]["template"]["spec"]["containers"];
    assert_eq!((&containers[0]["image"], &containers[1]["image"]), (&json!("a:1"), &json!("b:2")));
    assert_eq!(created["metadata"]["generation"], 1);
    assert_eq!(patched["metadata"]["generation"], 2);
}

#[tokio::test]
async fn applies_create_merge_and_conflict() {
    let world = World::new().await;
    let path = format!("{CONFIGMAPS}/a");
    let apply = |manager: &str| format!("{path}?fieldManager={manager}");
    let anonymous = world.patch(&path, APPLY, configmap("a", "1")).await;
    assert_eq!(
        anonymous.status().2,
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
    );
    let created = world.patch(&apply("one"), APPLY, configmap("a", "1")).await.expect(201);
    assert_eq!(created["metadata"]["managedFields"][0]["manager"], "one");
    let again = world.patch(&apply("one"), APPLY, configmap("a", "1")).await.expect(200);
    assert_eq!(version(&again), version(&created), "applying again is not a write");
    let contested = world.patch(&apply("two"), APPLY, configmap("a", "2")).await;
    assert_eq!((contested.code, contested.status().1.as_str()), (409, "Conflict"));
    let cause = &contested.json()["details"]["causes"][0];
    assert_eq!(
        (&cause["reason"], &cause["field"]),
        (&json!("FieldManagerConflict"), &json!(".data.key"))
    );
    let forced = format!("{}&force=true", apply("two"));
    assert_eq!(
        world.patch(&forced, APPLY, configmap("a", "2")).await.expect(200)["data"]["key"],
        "2"
    );
    let force =
        world.patch(&format!("{path}?force=true"), "application/merge-patch+json", json!({})).await;
    assert_eq!(force.code, 422);
}

#[tokio::test]
async fn a_scale_is_an_objects_replicas() {
    let world = World::new().await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "replicas": 2, "selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "a", "image": "a:1"}]}}}});
    world.post(path, deployment).await.expect(201);
    let scale = world.get(&format!("{path}/d/scale")).await.expect(200);
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(2)));
    assert_eq!(scale["status"]["selector"], "app=d");
    let patched = world.merge(&format!("{path}/d/scale"), json!({"spec": {"replicas": 5}})).await;
    assert_eq!(patched.expect(200)["spec"]["replicas"], 5);
    let object = world.get(&format!("{path}/d")).await.expect(200);
    assert_eq!(
        (&object["spec"]["replicas"], &object["metadata"]["generation"]),
        (&json!(5), &json!(2))
    );
    assert_eq!(world.get(&format!("{CONFIGMAPS}/x/scale")).await.status().0, 404);
}
