//! Evictions, and the budgets that refuse them.

use serde_json::{Value, json};

use crate::world::World;

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

/// A Pod on a node that runs, Ready or not.
async fn pod(world: &World, name: &str, ready: bool) -> Value {
    let object = json!({
        "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
    });
    world.post(PODS, object).await.expect(201);
    let ready = if ready { "True" } else { "False" };
    let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]});
    world.merge(&format!("{PODS}/{name}/status"), json!({"status": status})).await.expect(200)
}

async fn budget(world: &World, name: &str, spec: Value) {
    let mut spec = spec;
    spec["selector"] = json!({"matchLabels": {"app": "x"}});
    world.post(BUDGETS, json!({"metadata": {"name": name}, "spec": spec})).await.expect(201);
}

async fn evict(world: &World, name: &str, options: Value) -> (u16, Value) {
    let mut eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": name, "namespace": "default"},
    });
    if !options.is_null() {
        eviction["deleteOptions"] = options;
    }
    let answer = world.post(&format!("{PODS}/{name}/eviction"), eviction).await;
    (answer.code, answer.json())
}

#[tokio::test]
async fn an_evicted_pod_says_why_and_gets_its_grace() {
    let world = World::new().await;
    pod(&world, "a", true).await;
    let success = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    let dry = json!({"dryRun": ["All"]});
    assert_eq!(evict(&world, "a", dry).await, (201, success.clone()));
    let kept = world.get(&format!("{PODS}/a")).await.expect(200);
    assert!(kept["metadata"]["deletionTimestamp"].is_null(), "a dry run changes nothing");
    assert_eq!(evict(&world, "a", Value::Null).await, (201, success.clone()));
    let ending = world.get(&format!("{PODS}/a")).await.expect(200);
    assert_eq!(ending["metadata"]["deletionGracePeriodSeconds"], 30);
    let why = &ending["status"]["conditions"][1];
    assert_eq!(
        (&why["type"], &why["reason"]),
        (&json!("DisruptionTarget"), &json!("EvictionByEvictionAPI"))
    );
    assert_eq!(evict(&world, "a", json!({"gracePeriodSeconds": 0})).await, (201, success));
    assert_eq!(evict(&world, "a", Value::Null).await.0, 404);
}

#[tokio::test]
async fn a_budget_counts_the_ready_pods() {
    let world = World::new().await;
    for name in ["a", "b"] {
        pod(&world, name, true).await;
    }
    pod(&world, "sick", false).await;
    budget(&world, "b1", json!({"minAvailable": 1})).await;
    assert_eq!(evict(&world, "a", Value::Null).await.0, 201);
    let (code, refused) = evict(&world, "b", Value::Null).await;
    assert_eq!(code, 429);
    let cause = json!({
        "reason": "DisruptionBudget",
        "message": "The disruption budget b1 needs 1 healthy pods and has 1 currently",
    });
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "Cannot evict pod as it would violate the pod's disruption budget.",
        "reason": "TooManyRequests", "details": {"causes": [cause]}, "code": 429,
    });
    assert_eq!(refused, expected);
    assert_eq!(evict(&world, "sick", Value::Null).await.0, 201, "it does not count");
    pod(&world, "c", true).await;
    assert_eq!(evict(&world, "b", Value::Null).await.0, 201, "another one is Ready");
}

#[tokio::test]
async fn a_share_is_of_what_the_deployment_wants() {
    let world = World::new().await;
    let template = json!({
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    let spec =
        json!({"replicas": 2, "selector": {"matchLabels": {"app": "x"}}, "template": template});
    let apps = "/apis/apps/v1/namespaces/default";
    let named = |name: &str, kind: &str, above: &Value| {
        let mut object = json!({"metadata": {"name": name}, "spec": spec});
        if !above.is_null() {
            object["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "apps/v1", "kind": kind, "controller": true,
                "name": above["metadata"]["name"], "uid": above["metadata"]["uid"],
            }]);
        }
        object
    };
    let deployment = named("d", "", &Value::Null);
    let deployment = world.post(&format!("{apps}/deployments"), deployment).await.expect(201);
    let set = named("rs", "Deployment", &deployment);
    let set = world.post(&format!("{apps}/replicasets"), set).await.expect(201);
    for name in ["a", "b"] {
        pod(&world, name, true).await;
        let owner = json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "controller": true,
            "uid": set["metadata"]["uid"],
        }]);
        let owned = json!({"metadata": {"ownerReferences": owner}});
        world.merge(&format!("{PODS}/{name}"), owned).await.expect(200);
    }
    budget(&world, "half", json!({"maxUnavailable": "50%"})).await;
    assert_eq!(evict(&world, "a", Value::Null).await.0, 201);
    assert_eq!(evict(&world, "b", Value::Null).await.0, 429);
    let less = json!({"spec": {"replicas": 1}});
    world.merge(&format!("{apps}/deployments/d"), less).await.expect(200);
    let dry = json!({"dryRun": ["All"]});
    assert_eq!(evict(&world, "b", dry).await.0, 201, "half of one, rounded up, is one");
    world.delete(&format!("{apps}/deployments/d"), json!({})).await.expect(200);
    world.delete(&format!("{apps}/replicasets/rs"), json!({})).await.expect(200);
    let (code, refused) = evict(&world, "b", Value::Null).await;
    let why = refused["details"]["causes"][0]["message"].as_str().unwrap();
    assert_eq!(code, 429);
    assert!(why.contains("it failed sync: found no controllers for pod"), "{why}");
}

#[tokio::test]
async fn a_status_that_somebody_writes_decides() {
    let world = World::new().await;
    pod(&world, "a", true).await;
    budget(&world, "b1", json!({"minAvailable": 1})).await;
    let status = format!("{BUDGETS}/b1/status");
    let write = async |status_of: Value| {
        world.merge(&status, json!({"status": status_of})).await.expect(200);
    };
    write(json!({"disruptionsAllowed": 1})).await;
    let (code, refused) = evict(&world, "a", Value::Null).await;
    assert_eq!((code, &refused["details"]["retryAfterSeconds"]), (429, &json!(10)));
    write(json!({"observedGeneration": 1})).await;
    assert_eq!(evict(&world, "a", json!({"dryRun": ["All"]})).await.0, 201);
    assert_eq!(evict(&world, "a", Value::Null).await.0, 201);
    let after = world.get(&format!("{BUDGETS}/b1")).await.expect(200);
    assert_eq!(after["status"]["disruptionsAllowed"], 0);
    assert!(after["status"]["disruptedPods"]["a"].is_string());
    assert_eq!(after["status"]["conditions"][0]["reason"], "InsufficientPods");
    let managers = after["metadata"]["managedFields"].as_array().unwrap();
    assert!(managers.iter().any(|entry| entry["manager"] == "kube-apiserver"), "{managers:?}");
}

#[tokio::test]
async fn evictions_that_make_no_sense_are_refused() {
    let world = World::new().await;
    let uid = pod(&world, "a", true).await["metadata"]["uid"].clone();
    let path = format!("{PODS}/a/eviction");
    let cases = [
        (
            json!({"metadata": {"name": "b"}}),
            400,
            "name in URL does not match name in Eviction object",
        ),
        (
            json!({"metadata": {"name": "a", "namespace": "q"}}),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}),
            400,
            "Pod in version \"v1\" cannot be handled as a Eviction: converting (v1.Pod) to (policy.Eviction): unknown conversion",
        ),
        (
            json!({"metadata": {"name": "a"}, "deleteOptions": {"dryRun": ["x"]}}),
            422,
            "DeleteOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"x\"]: supported values: \"All\"",
        ),
    ];
    for (body, code, message) in cases {
        let (found, _, text) = world.post(&path, body).await.status();
        assert_eq!((found, text.as_str()), (code, message));
    }
    assert_eq!(world.get(&path).await.status().0, 405);
    for (field, value) in [("uid", json!("u")), ("resourceVersion", json!("1"))] {
        let (code, refused) = evict(&world, "a", json!({"preconditions": {field: value}})).await;
        let message = refused["message"].as_str().unwrap();
        assert_eq!(code, 409);
        assert!(
            message.starts_with("Operation cannot be fulfilled on Pod \"a\": the "),
            "{message}"
        );
    }
    for name in ["b1", "b2"] {
        budget(&world, name, json!({"minAvailable": 0})).await;
    }
    let (code, refused) = evict(&world, "a", Value::Null).await;
    let many = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    assert_eq!((code, refused["message"].as_str(), refused.get("reason")), (500, Some(many), None));
    let known = json!({"preconditions": {"uid": uid}});
    world.delete(&format!("{BUDGETS}/b2"), json!({})).await.expect(200);
    assert_eq!(evict(&world, "a", known).await.0, 201);
}

#[tokio::test]
async fn a_pod_that_does_not_run_needs_no_budget() {
    let world = World::new().await;
    pod(&world, "a", true).await;
    budget(&world, "b1", json!({"minAvailable": 9})).await;
    assert_eq!(evict(&world, "a", Value::Null).await.0, 429);
    world
        .merge(&format!("{PODS}/a/status"), json!({"status": {"phase": "Succeeded"}}))
        .await
        .expect(200);
    assert_eq!(evict(&world, "a", Value::Null).await.0, 201);
    assert_eq!(world.get(&format!("{PODS}/a")).await.code, 404);
}
