//! configmonitor and restart-pods with Roles in some namespaces: nothing outside is read or restarted, and
//! what [`controllers::Builtin`] lists as their rights is enough, and is needed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::faults::Request;
use controllers::restarts::discovery::RESTART;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Api;
use leasehold::testing::{ApiError, Fault, Reason, TestEnv};
use serde_json::json;

use super::{allowed, merge, rights_of};

const OURS: &str = "web";
const THEIRS: &str = "other";
/// Who reads and writes in this test: whoever is not a stand-in for what a cluster itself runs.
const NAMES: [&str; 2] = ["configmonitor", "restart-pods"];

/// A ConfigMap, a Secret, a Deployment that uses both and asks to restart, and a monitor of each.
fn manifests(namespace: &str) -> String {
    let labels = json!({"app": "w"});
    let read = json!([{"configMapRef": {"name": "c"}}, {"secretRef": {"name": "s"}}]);
    let metadata = |name: &str| json!({"name": name, "namespace": namespace});
    let monitor = |name: &str, kind: &str| {
        json!({"apiVersion": "magalix.com/v1", "kind": "ConfigMonitor", "metadata": metadata(name),
            "spec": {kind: name, "podSelector": labels, "debounceSeconds": 0}})
    };
    let mut deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata("w"),
        "spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i", "envFrom": read}]},
        }},
    });
    deployment["metadata"]["annotations"] = json!({RESTART: "auto"});
    let all = [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("c"), "data": {"k": "1"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("s"), "stringData": {"k": "1"}}),
        deployment,
        monitor("c", "configMap"),
        monitor("s", "secret"),
    ];
    all.map(|object| object.to_string()).join("\n---\n")
}

/// What was asked for and not allowed.
type Refused = Arc<Mutex<BTreeSet<String>>>;

/// Gives these rights in namespace [`OURS`] and nothing else, to all but the cluster's own controllers.
fn grant(env: &TestEnv, rules: Vec<PolicyRule>) -> Refused {
    let refused = Refused::default();
    let noted = Arc::clone(&refused);
    env.set_faults(move |request: &Request| {
        let Request { verb, resource, subresource, namespace, user_agent, .. } = request;
        // Informers say nothing of themselves. Those of the cluster's own controllers are of all namespaces.
        let reads = matches!(*verb, "list" | "watch") && !namespace.is_empty();
        if !user_agent.starts_with("leasehold/") && !reads {
            return Fault::None;
        }
        if namespace == OURS && allowed(&rules, request) {
            return Fault::None;
        }
        noted.lock().unwrap().insert(format!("{verb} {resource}/{subresource} in {namespace}"));
        Fault::Error(ApiError::new(Reason::Forbidden, "no rights"))
    });
    refused
}

/// The rights of both controllers.
fn rights() -> Vec<PolicyRule> {
    NAMES.into_iter().flat_map(rights_of).collect()
}

async fn edit(env: &TestEnv, namespace: &str, value: &str) {
    let maps: Api<ConfigMap> = env.api(namespace);
    merge(&maps, "c", json!({"data": {"k": value}})).await;
    let secrets: Api<Secret> = env.api(namespace);
    merge(&secrets, "s", json!({"stringData": {"k": value}})).await;
}

async fn annotations(env: &TestEnv, namespace: &str) -> BTreeSet<String> {
    let deployments: Api<Deployment> = env.api(namespace);
    let template = deployments.get("w").await.unwrap().spec.template;
    template.metadata.unwrap().annotations.unwrap_or_default().into_keys().collect()
}

async fn run(rules: Vec<PolicyRule>) -> (TestEnv, Refused) {
    let builder = TestEnv::builder().at("2026-11-21T10:00:00Z").crds(controllers::crds());
    let mut env = builder.namespace(OURS).namespace(THEIRS).start().await;
    for namespace in [OURS, THEIRS] {
        env.apply(&manifests(namespace)).await;
    }
    let refused = grant(&env, rules);
    let namespaces = BTreeSet::from([OURS.to_owned()]);
    let specs = NAMES.into_iter().flat_map(|name| {
        (controllers::get(name).unwrap().build)(2, &json!({"watchSecrets": true}))
    });
    let specs: Vec<_> = specs.map(|spec| spec.with_namespaces(&namespaces)).collect();
    // Not even a watch of a whole cluster that would be refused.
    let mut sources = specs.iter().flat_map(|spec| &spec.sources);
    assert!(sources.all(|source| source.scope.namespace.as_deref() == Some(OURS)));
    env.run(specs);
    env.pass(Duration::from_secs(30)).await;
    for namespace in [OURS, THEIRS] {
        edit(&env, namespace, "2").await;
    }
    env.pass(Duration::from_secs(120)).await;
    (env, refused)
}

#[tokio::test(start_paused = true)]
async fn roles_in_a_namespace_are_enough_and_nothing_outside_is_touched() {
    let (env, refused) = run(rights()).await;
    let all = [
        "configmonitor.leasehold.dev/c",
        "configmonitor.leasehold.dev/s",
        "restart-pods.leasehold.dev/c",
        "secret.restart-pods.leasehold.dev/s",
    ];
    assert_eq!(annotations(&env, OURS).await, all.map(str::to_owned).into());
    assert_eq!(annotations(&env, THEIRS).await, BTreeSet::new());
    assert_eq!(*refused.lock().unwrap(), BTreeSet::new());
}

/// Each right that is taken away is missed: what lists the rights lists no others.
#[tokio::test(start_paused = true)]
async fn the_right_to_patch_deployments_is_missed() {
    let mut rules = rights();
    for rule in &mut rules {
        let deployments = rule.resources.iter().flatten().any(|found| found == "deployments");
        rule.verbs.retain(|verb| !deployments || verb != "patch");
    }
    let (env, refused) = run(rules).await;
    assert_eq!(annotations(&env, OURS).await, BTreeSet::new());
    let expect = format!("patch deployments/ in {OURS}");
    assert_eq!(*refused.lock().unwrap(), BTreeSet::from([expect]));
}
