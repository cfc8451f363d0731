//! Invalid requests of every kind: the answer is a Status, never a panic and never a server error.

use http::{Method, Request};
use http_body_util::Full;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::world::World;

const PATHS: &[&str] = &[
    "/api/v1/namespaces",
    "/api/v1/namespaces/default",
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/configmaps/a",
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/default/secrets/a",
    "/api/v1/namespaces/default/services",
    "/apis/apps/v1/namespaces/default/deployments",
    "/apis/apps/v1/namespaces/default/deployments/a",
    "/apis/apps/v1/namespaces/default/deployments/a/scale",
    "/apis/apps/v1/namespaces/default/deployments/a/status",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases/a",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/example.com/v1/namespaces/default/widgets",
    "/apis/example.com/v1/namespaces/default/widgets/a",
    "/apis/events.k8s.io/v1/namespaces/default/events/a",
];

const KEYS: &str = "apiVersion kind metadata name namespace generateName labels annotations \
                    finalizers ownerReferences uid resourceVersion deletionTimestamp managedFields \
                    spec status data replicas selector matchLabels template containers ports \
                    versions names plural group scope schema openAPIV3Schema strategy renewTime \
                    clusterIP type preconditions propagationPolicy dryRun";

const MEDIA_TYPES: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/vnd.kubernetes.protobuf",
];

fn definition() -> Value {
    json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}}}}]},
    })
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..3).prop_map(Value::from),
        prop::sample::select(vec![
            "",
            "a",
            "default",
            "v1",
            "apps/v1",
            "0",
            "é\u{1F980}",
            "2024-01-01T00:00:00Z"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        let keys = prop::sample::select(KEYS.split(' ').collect::<Vec<_>>());
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(keys, inner, 0..6)
                .prop_map(|entries| entries.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    })
}

/// Bodies that pass the first checks and are invalid below.
fn body() -> impl Strategy<Value = Value> {
    let named = (value(), value(), value()).prop_map(|(spec, status, labels)| {
        json!({"metadata": {"name": "a", "labels": labels}, "spec": spec, "status": status, "data": spec})
    });
    prop_oneof![value(), named]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn any_body_gets_a_status_or_an_object(
        requests in prop::collection::vec(
            (0..PATHS.len(), 0usize..4, 0..MEDIA_TYPES.len(), body()), 1..8),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let world = World::new().await;
            world.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition()).await.expect(201);
            for (path, method, media_type, body) in requests {
                let method = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE][method].clone();
                let path = format!("{}?fieldManager=fuzz", PATHS[path]);
                let request = Request::builder().method(method).uri(path);
                let request = request.header("content-type", MEDIA_TYPES[media_type]);
                let answer = world.send(request.body(Full::from(body.to_string())).unwrap()).await;
                assert!(answer.code < 500, "{body} {}", answer.text());
                // A group that was removed with its definition is unknown to the server.
                let gone = answer.code == 404 && answer.text() == "404 page not found\n";
                assert!(gone || answer.json()["kind"].is_string());
            }
        });
    }

    #[test]
    fn any_query_gets_a_status_or_a_list(
        parameters in prop::collection::vec(
            (prop::sample::select(vec![
                "labelSelector", "fieldSelector", "limit", "continue", "resourceVersion",
                "resourceVersionMatch", "sendInitialEvents", "includeObject", "timeoutSeconds",
            ]), "[a-z0-9=!,().%A-Z ]{0,8}|Exact|NotOlderThan|true|0|1"), 0..4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let world = World::new().await;
            let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
            let answer = world.get(&format!("/api/v1/namespaces?{query}")).await;
            assert!(answer.code < 500 || answer.code == 504, "{query} {}", answer.text());
            assert!(answer.json()["kind"].is_string());
        });
    }
}
