//! Create, get, update.

use serde_json::{Value, json};

use crate::world::{CONFIGMAPS, World, configmap, version};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

#[tokio::test]
async fn an_object_is_created_once() {
    let world = World::new().await;
    let created = world.post(CONFIGMAPS, configmap("a", "1")).await.expect(201);
    assert_eq!(created["metadata"]["namespace"], "default");
    assert!(created["metadata"]["uid"].is_string() && version(&created) > 0);
    assert!(created["metadata"].get("generation").is_none(), "ConfigMaps count no generations");

    let again = world.post(CONFIGMAPS, configmap("a", "2")).await;
    assert_eq!(
        again.status(),
        (409, "AlreadyExists".into(), "configmaps \"a\" already exists".into())
    );
    assert_eq!(again.json()["details"], json!({"name": "a", "kind": "configmaps"}));

    let read = world.get(&format!("{CONFIGMAPS}/a")).await.expect(200);
    assert_eq!(read, created);
}

#[tokio::test]
async fn names_can_be_generated() {
    let world = World::new().await;
    let prefix = json!({"metadata": {"generateName": "job-"}});
    let created = world.post(CONFIGMAPS, prefix).await.expect(201);
    let name = created["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("job-") && name.len() == 9, "{name}");
    let nameless = world.post(CONFIGMAPS, json!({"metadata": {}})).await;
    assert_eq!(
        nameless.status().2,
        "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required"
    );
}

#[tokio::test]
async fn bodies_must_fit_their_path() {
    let world = World::new().await;
    let wrong_namespace = json!({"metadata": {"name": "a", "namespace": "other"}});
    let cases = [
        (
            wrong_namespace,
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            json!({"apiVersion": "v2", "metadata": {"name": "a"}}),
            400,
            "ConfigMap in version \"v2\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is \
             registered for version \"v2\" in scheme \"pkg/runtime/scheme.go:111\"",
        ),
    ];
    for (body, code, message) in cases {
        let answer = world.post(CONFIGMAPS, body).await;
        assert_eq!((answer.code, answer.status().2.as_str()), (code, message));
    }
    let missing = world.post("/api/v1/namespaces/nowhere/configmaps", configmap("a", "1")).await;
    assert_eq!(
        missing.status(),
        (404, "NotFound".into(), "namespaces \"nowhere\" not found".into())
    );
    let nowhere = world.post("/api/v1/configmaps", configmap("a", "1")).await;
    assert_eq!(nowhere.status().1, "MethodNotAllowed");
    let unknown = world.get("/api/v1/namespaces/default/nothings").await;
    assert_eq!(unknown.status().2, "the server could not find the requested resource");
    assert_eq!(world.get("/apis/no.such/v1/things").await.text(), "404 page not found\n");
}

#[tokio::test]
async fn an_update_names_the_version_it_replaces() {
    let world = World::new().await;
    let path = format!("{CONFIGMAPS}/a");
    let first = world.post(CONFIGMAPS, configmap("a", "1")).await.expect(201);
    let mut next = first.clone();
    next["data"]["key"] = json!("2");
    let second = world.put(&path, next.clone()).await.expect(200);
    assert!(version(&second) > version(&first));
    let stale = world.put(&path, next).await;
    assert_eq!(
        stale.status(),
        (
            409,
            "Conflict".into(),
            "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; \
             please apply your changes to the latest version and try again"
                .into()
        )
    );
    world.put(&path, configmap("a", "3")).await.expect(200);
    let absent = world.put(&format!("{CONFIGMAPS}/b"), configmap("b", "1")).await;
    assert_eq!(absent.status().0, 404);
}

#[tokio::test]
async fn a_write_that_changes_nothing_is_not_one() {
    let world = World::new().await;
    let first = world.post(CONFIGMAPS, configmap("a", "1")).await.expect(201);
    let again = world.put(&format!("{CONFIGMAPS}/a"), configmap("a", "1")).await.expect(200);
    assert_eq!(version(&again), version(&first));
    let patched = world.merge(&format!("{CONFIGMAPS}/a"), json!({"data": {"key": "1"}})).await;
    assert_eq!(version(&patched.expect(200)), version(&first));
    assert_eq!(world.server.history().len(), 1);
}

#[tokio::test]
async fn leases_are_compared_and_swapped() {
    let world = World::new().await;
    let lease = |holder: &str| -> Value {
        json!({"metadata": {"name": "l"}, "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": 8,
            "renewTime": "2024-01-01T00:00:00.5Z"}})
    };
    let path = format!("{LEASES}/l");
    let created = world.put(&path, lease("a")).await.expect(201);
    assert_eq!(created["spec"]["renewTime"], "2024-01-01T00:00:00.500000Z");
    let blind = world.put(&path, lease("b")).await;
    assert_eq!(
        blind.status(),
        (
            422,
            "Invalid".into(),
            "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: \
             Invalid value: 0: must be specified for an update"
                .into()
        )
    );
    let mut swap = lease("b");
    swap["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"].clone();
    world.put(&path, swap.clone()).await.expect(200);
    assert_eq!(world.put(&path, swap).await.status().0, 409);
    let mut other = lease("c");
    other["metadata"]["name"] = json!("absent");
    other["metadata"]["uid"] = json!("gone");
    assert_eq!(world.put(&format!("{LEASES}/absent"), other).await.status().0, 409);
}

#[tokio::test]
async fn a_dry_run_leaves_no_trace() {
    let world = World::new().await;
    let revision = world.server.revision();
    let dry = world.post(&format!("{CONFIGMAPS}?dryRun=All"), configmap("a", "1")).await;
    assert_eq!(dry.expect(201)["data"]["key"], "1");
    assert_eq!(world.get(&format!("{CONFIGMAPS}/a")).await.code, 404);
    assert_eq!(world.server.revision(), revision);
    let wrong = world.post(&format!("{CONFIGMAPS}?dryRun=Some"), configmap("a", "1")).await;
    assert_eq!(wrong.code, 422);
}

#[tokio::test]
async fn a_service_gets_an_address_and_keeps_it() {
    let world = World::new().await;
    let services = "/api/v1/namespaces/default/services";
    let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
    let created = world.post(services, service.clone()).await.expect(201);
    assert_eq!(created["spec"]["clusterIP"], "10.96.0.1");
    assert_eq!(created["spec"]["ports"][0]["targetPort"], 80);
    let kept = world.put(&format!("{services}/web"), service).await.expect(200);
    assert_eq!(kept["spec"]["clusterIP"], "10.96.0.1");
    let mut moved = kept;
    moved["spec"]["clusterIP"] = json!("10.96.0.9");
    assert_eq!(world.put(&format!("{services}/web"), moved).await.code, 422);
}

#[tokio::test]
async fn writes_are_on_record() {
    let world = World::new().await;
    world.post(CONFIGMAPS, configmap("a", "1")).await.expect(201);
    world.merge(&format!("{CONFIGMAPS}/a"), json!({"data": {"key": "2"}})).await.expect(200);
    world.delete(&format!("{CONFIGMAPS}/a"), json!({})).await.expect(200);
    let verbs: Vec<_> = world.server.history().iter().map(|w| (w.verb, w.name.clone())).collect();
    assert_eq!(verbs, [("create", "a".into()), ("patch", "a".into()), ("delete", "a".into())]);
}

#[tokio::test]
async fn built_in_kinds_have_types_too() {
    let world = World::new().await;
    let mut sloppy = configmap("a", "1");
    sloppy["dat"] = json!({"x": "y"});
    let strict = world.post(&format!("{CONFIGMAPS}?fieldValidation=Strict"), sloppy.clone()).await;
    assert_eq!(
        strict.status().2,
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: \
         strict decoding error: unknown field \"dat\""
    );
    let created = world.post(CONFIGMAPS, sloppy).await;
    assert_eq!(created.headers["warning"], "299 - \"unknown field \\\"dat\\\"\"");
    assert!(created.expect(201).get("dat").is_none());
    let wrong = world.post(CONFIGMAPS, json!({"metadata": {"name": "b"}, "data": {"a": 1}})).await;
    assert_eq!(
        wrong.status().2,
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal \
         number into Go struct field ConfigMap.data.a of type string"
    );
}

#[tokio::test]
async fn objects_may_come_as_protobuf() {
    let world = World::new().await;
    // Captured from `kubectl create configmap a --from-literal=x=y`.
    let body = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x1b\x0a\x11\x0a\x01a\x12\0\x1a\0\x22\0*\x002\08\0B\0\x12\x06\x0a\x01x\x12\x01y\x1a\0\x22\0";
    let request = http::Request::post(CONFIGMAPS)
        .header("content-type", "application/vnd.kubernetes.protobuf")
        .header("accept", "application/vnd.kubernetes.protobuf,application/json")
        .body(http_body_util::Full::from(&body[..]))
        .unwrap();
    let created = world.send(request).await.expect(201);
    assert_eq!(created["data"], json!({"x": "y"}));
}
