//! Targets of kinds that the administrator lists. The stories are listed with the other trouble.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use apiserver::faults::{Fault, Request};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use leasehold::testing::{ApiError, Reason, TestEnv};
use serde_json::{Value, json};

use super::super::configmonitor::trouble::rollouts;
use super::super::{merge, quiet, reasons};
use super::trouble::{MORNING, make, says, spec, to};
use super::{NAMESPACE, sets};

fn widgets() -> CustomResourceDefinition {
    let number = json!({"type": "integer"});
    let part = |field: &str| json!({"type": "object", "properties": {field: number}});
    serde_json::from_value(json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties":
                    {"spec": part("size"), "status": part("size")}}},
                "subresources": {"scale": {
                    "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size",
                }},
            }],
        },
    }))
    .unwrap()
}

/// A world in which the administrator has listed a kind.
async fn listing(crd: CustomResourceDefinition) -> TestEnv {
    let (spec, version) = (&crd.spec, &crd.spec.versions[0].name);
    let (group, kind, plural) = (&spec.group, &spec.names.kind, &spec.names.plural);
    let listed = json!({"group": group, "version": version, "kind": kind, "plural": plural});
    let listed = json!({"targets": [listed]});
    let crds: Vec<_> = controllers::crds().into_iter().chain([crd]).collect();
    let mut env = TestEnv::builder().at(MORNING).crds(crds).namespace(NAMESPACE).start().await;
    env.run((controllers::get("tdset").unwrap().build)(2, &listed));
    env
}

/// A Widget with this spec.
async fn widget(env: &TestEnv, spec: Value) -> Api<DynamicObject> {
    let kind = ApiResource {
        group: "example.com".into(),
        version: "v1".into(),
        api_version: "example.com/v1".into(),
        kind: "Widget".into(),
        plural: "widgets".into(),
    };
    let widgets = Api::<DynamicObject>::namespaced_with(env.client(), NAMESPACE, &kind);
    let widget = DynamicObject::new("w", &kind).data(json!({"spec": spec}));
    widgets.create(&PostParams::default(), &widget).await.unwrap();
    widgets
}

fn to_widget() -> Value {
    json!({"targetRef": {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w"}})
}

async fn has_size(env: &TestEnv, widgets: &Api<DynamicObject>, expect: i32) {
    env.until("the Widget to be scaled", async || {
        (widgets.get("w").await.ok()?.data["spec"]["size"] == expect).then_some(())
    })
    .await;
}

/// A real server has no scale to show then, and lets it be set.
pub(super) async fn unnumbered() {
    let env = listing(widgets()).await;
    let widgets = widget(&env, json!({})).await;
    let is_set = AtomicBool::new(false);
    env.set_faults(move |request: &Request| match (request.verb, &*request.subresource) {
        ("patch", "scale") => {
            is_set.store(true, Ordering::Relaxed);
            Fault::None
        }
        ("get", "scale") if !is_set.load(Ordering::Relaxed) => {
            let words = "the spec replicas field \".spec.size\" does not exist";
            Fault::Error(ApiError::new(Reason::InternalError, words))
        }
        _ => Fault::None,
    });
    let mut hours = spec(to_widget());
    hours["suspend"] = true.into();
    make(&env, "hours", hours).await;
    says(&env, "hours", "Ready", "False", "ReplicasUnavailable").await;
    assert!(widgets.get("w").await.unwrap().data["spec"]["size"].is_null(), "others decide");
    merge(&sets(&env), "hours", json!({"spec": {"suspend": false}})).await;
    has_size(&env, &widgets, 5).await;
    env.pass(Duration::from_secs(10)).await;
    quiet(&env, Duration::from_secs(600)).await;
    assert_eq!(reasons(&env, NAMESPACE).await, ["Scaled"]);
}

pub(super) async fn listed_kind() {
    let env = listing(widgets()).await;
    let widgets = widget(&env, json!({"size": 1})).await;
    make(&env, "hours", spec(to_widget())).await;
    has_size(&env, &widgets, 5).await;
    make(&env, "others", spec(to("DaemonSet", "d"))).await;
    let told = says(&env, "others", "Ready", "False", "NotPermitted").await;
    assert!(told.contains("Widget of example.com, not DaemonSet of apps/v1"), "{told}");
}

/// Who lists Rollouts lets it be seen whose template they run.
pub(super) async fn run_by_a_rollout() {
    let env = listing(rollouts()).await;
    let labels = json!({"app": "web"});
    let pods = json!({"containers": [{"name": "web", "image": "web"}]});
    let template = json!({"metadata": {"labels": labels}, "spec": pods});
    let idle = json!({"replicas": 0, "selector": {"matchLabels": labels}, "template": template});
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": NAMESPACE}, "spec": idle});
    env.apply(&web.to_string()).await;
    make(&env, "hours", spec(to("Deployment", "web"))).await;
    let ready = async || says(&env, "hours", "Ready", "True", "ReplicasAvailable").await;
    assert_eq!(ready().await, "5 of 5 replicas available");
    let run = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let canary = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout",
        "metadata": {"name": "canary", "namespace": NAMESPACE}, "spec": {"workloadRef": run}});
    env.apply(&canary.to_string()).await;
    let told = async || ready().await.contains("Rollout canary runs the template").then_some(());
    env.until("the Rollout to be named", told).await;
    quiet(&env, Duration::from_secs(600)).await;
}
