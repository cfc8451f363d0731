//! Workloads that restart for what they use, or for what they name: with restart-pods because they say so,
//! with a ConfigMonitor because it names no Pods.

use std::collections::BTreeMap;
use std::time::Duration;

use controllers::ConfigMonitor;
use controllers::restartpods::annotation::record;
use controllers::restarts::discovery::{
    RESTART, RESTART_EXCEPT, RESTART_FOR, RESTART_IGNORE, RESTART_MATCH,
};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use leasehold::testing::TestEnv;
use sdk::ControllerSpec;
use serde_json::{Value, json};

use super::configmonitor::trouble::rollouts;
use super::crash::at_every_write;
use super::{merge, quiet};

const NAMESPACE: &str = "default";
const CONTENT: &str = "settings";

fn built() -> Vec<ControllerSpec> {
    (controllers::get("restart-pods").unwrap().build)(2, &json!({"watchSecrets": true}))
}

/// A ConfigMap or Secret.
fn content(kind: &str, name: &str, annotations: &Value) -> Value {
    let data = if kind == "Secret" { "stringData" } else { "data" };
    json!({
        "apiVersion": "v1", "kind": kind, data: {"k": "1"},
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
    })
}

/// A workload without Pods, whose template has this spec.
fn workload(kind: &str, name: &str, annotations: &Value, pods: &Value) -> Value {
    let labels = json!({"app": name});
    let mut spec = json!({"name": "x", "containers": [{"name": "c", "image": "i"}]});
    spec.as_object_mut().unwrap().remove("name");
    spec.as_object_mut().unwrap().extend(pods.as_object().unwrap().clone());
    let version = if kind == "Rollout" { "argoproj.io/v1alpha1" } else { "apps/v1" };
    let mut workload = json!({
        "apiVersion": version, "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    });
    if kind != "DaemonSet" {
        workload["spec"]["replicas"] = 0.into();
    }
    if kind == "StatefulSet" {
        workload["spec"]["serviceName"] = name.into();
    }
    workload
}

fn deployment(name: &str, annotations: &Value, pods: &Value) -> Value {
    workload("Deployment", name, annotations, pods)
}

/// A spec of Pods that take their environment from ConfigMap [`CONTENT`].
fn user() -> Value {
    json!({"containers": [{"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": CONTENT}}]}]})
}

async fn world(manifests: &[Value], specs: Vec<ControllerSpec>) -> TestEnv {
    let crds: Vec<CustomResourceDefinition> =
        controllers::crds().into_iter().chain([rollouts()]).collect();
    let builder = TestEnv::builder().at("2026-11-21T10:00:00Z").crds(crds).namespace("other");
    let mut env = builder.start().await;
    for manifest in manifests {
        env.apply(&manifest.to_string()).await;
    }
    env.run(specs);
    env
}

fn maps(env: &TestEnv) -> Api<ConfigMap> {
    env.api(NAMESPACE)
}

/// Waits until restart-pods has made so many restarts for ConfigMap [`CONTENT`], and none is under way.
async fn restarts(env: &TestEnv, expect: i64) {
    env.until_object(&maps(env), CONTENT, |map| {
        let record = record(&map.metadata).record;
        record.hash.is_some()
            && record.restarts == expect
            && record.pending.is_none()
            && record.changed_at.is_none()
    })
    .await;
}

async fn edit(env: &TestEnv, value: &str) {
    merge(&maps(env), CONTENT, json!({"data": {"k": value}})).await;
}

fn kind(kind: &str) -> ApiResource {
    let (group, version) = match kind {
        "Rollout" => ("argoproj.io", "v1alpha1"),
        _ => ("apps", "v1"),
    };
    ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: format!("{group}/{version}"),
        kind: kind.into(),
        plural: format!("{}s", kind.to_lowercase()),
    }
}

/// How often each workload was restarted, by its name: the generation that it has more than when it was made.
async fn restarted(env: &TestEnv, namespace: &str) -> BTreeMap<String, i64> {
    let mut found = BTreeMap::new();
    for name in ["Deployment", "StatefulSet", "DaemonSet", "Rollout"] {
        let api = Api::<DynamicObject>::namespaced_with(env.client(), namespace, &kind(name));
        for object in api.list(&ListParams::default()).await.unwrap() {
            found.insert(object.name_any(), object.meta().generation.unwrap() - 1);
        }
    }
    found.retain(|_, count| *count > 0);
    found
}

fn times(names: &[&str], count: i64) -> BTreeMap<String, i64> {
    names.iter().map(|name| ((*name).to_owned(), count)).collect()
}

#[tokio::test(start_paused = true)]
async fn whoever_uses_it_in_any_way_restarts_and_nobody_else() {
    let auto = json!({RESTART: "auto"});
    let env_from =
        json!({"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": CONTENT}}]});
    let key = json!({"configMapKeyRef": {"name": CONTENT, "key": "k"}});
    let env_value = json!({"name": "c", "image": "i", "env": [{"name": "K", "valueFrom": key}]});
    let volume = json!({"volumes": [{"name": "v", "configMap": {"name": CONTENT}}]});
    let projected = json!({"volumes": [{"name": "v", "projected": {"sources": [{"configMap": {"name": CONTENT}}]}}]});
    let manifests = [
        content("ConfigMap", CONTENT, &json!({})),
        content("Secret", CONTENT, &json!({})),
        deployment("env-from", &auto, &json!({"containers": [env_from]})),
        deployment("env-value", &auto, &json!({"containers": [env_value]})),
        deployment("volume", &auto, &volume),
        deployment("projected", &auto, &projected),
        deployment("init", &auto, &json!({"initContainers": [env_from]})),
        workload("StatefulSet", "set", &auto, &volume),
        workload("DaemonSet", "daemons", &auto, &volume),
        deployment("unused", &auto, &json!({})),
        deployment(
            "of-secret",
            &auto,
            &json!({"volumes": [{"name": "v", "secret": {"secretName": CONTENT}}]}),
        ),
        deployment("silent", &json!({}), &volume),
    ];
    let env = world(&manifests, built()).await;
    restarts(&env, 0).await;
    edit(&env, "2").await;
    restarts(&env, 1).await;
    let all = ["daemons", "env-from", "env-value", "init", "projected", "set", "volume"];
    assert_eq!(restarted(&env, NAMESPACE).await, times(&all, 1));
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = env.api(NAMESPACE);
    merge(&secrets, CONTENT, json!({"stringData": {"k": "2"}})).await;
    env.until_object(&secrets, CONTENT, |secret| record(&secret.metadata).record.restarts == 1)
        .await;
    env.pass(Duration::from_secs(60)).await;
    assert_eq!(restarted(&env, NAMESPACE).await, times(&[&all[..], &["of-secret"]].concat(), 1));
    quiet(&env, Duration::from_secs(600)).await;
}

#[tokio::test(start_paused = true)]
async fn a_workload_names_searches_excepts_or_refuses() {
    let named = format!("secret/x, configmap/{CONTENT}");
    let except = format!("configmap/{CONTENT}");
    let search = json!({RESTART: "search"});
    let manifests = [
        content("ConfigMap", CONTENT, &json!({})),
        deployment("naming", &json!({RESTART_FOR: named}), &json!({})),
        deployment("searching", &search, &user()),
        deployment("searching-elsewhere", &search, &json!({})),
        deployment("excepting", &json!({RESTART: "auto", RESTART_EXCEPT: except}), &user()),
        deployment("refusing", &json!({RESTART: "off", RESTART_FOR: named}), &user()),
    ];
    let env = world(&manifests, built()).await;
    restarts(&env, 0).await;
    edit(&env, "2").await;
    restarts(&env, 1).await;
    assert_eq!(restarted(&env, NAMESPACE).await, times(&["naming"], 1));
    let annotate = async |key: &str, value: Option<&str>| {
        merge(&maps(&env), CONTENT, json!({"metadata": {"annotations": {key: value}}})).await;
    };
    annotate(RESTART_MATCH, Some("true")).await;
    edit(&env, "3").await;
    restarts(&env, 2).await;
    let after = BTreeMap::from([("naming".to_owned(), 2), ("searching".to_owned(), 1)]);
    assert_eq!(restarted(&env, NAMESPACE).await, after);
    annotate(RESTART_IGNORE, Some("true")).await;
    edit(&env, "4").await;
    env.pass(Duration::from_secs(120)).await;
    assert_eq!(restarted(&env, NAMESPACE).await, after);
    quiet(&env, Duration::from_secs(600)).await;
}

/// What a workload did not ask for is not known, so the first content that is known restarts nothing.
#[tokio::test(start_paused = true)]
async fn it_begins_when_a_workload_asks_and_ends_when_it_does_not() {
    let manifests =
        [content("ConfigMap", CONTENT, &json!({})), deployment("web", &json!({}), &user())];
    let mut env = world(&manifests, built()).await;
    edit(&env, "2").await;
    quiet(&env, Duration::from_secs(600)).await;
    env.apply(&deployment("web", &json!({RESTART: "auto"}), &user()).to_string()).await;
    restarts(&env, 0).await;
    env.stop().await;
    edit(&env, "while down").await;
    env.run(built());
    restarts(&env, 1).await;
    assert_eq!(restarted(&env, NAMESPACE).await, times(&["web"], 1));
    let deployments =
        Api::<DynamicObject>::namespaced_with(env.client(), NAMESPACE, &kind("Deployment"));
    merge(&deployments, "web", json!({"metadata": {"annotations": {RESTART: "off"}}})).await;
    env.pass(Duration::from_secs(10)).await;
    edit(&env, "4").await;
    env.pass(Duration::from_secs(120)).await;
    assert_eq!(restarted(&env, NAMESPACE).await, times(&["web"], 1));
}

#[tokio::test(start_paused = true)]
async fn argo_rollouts_are_found_and_restart_by_their_field() {
    let manifests = [
        content("ConfigMap", CONTENT, &json!({})),
        workload("Rollout", "canary", &json!({RESTART: "auto"}), &user()),
    ];
    let env = world(&manifests, built()).await;
    restarts(&env, 0).await;
    edit(&env, "2").await;
    let rollouts = Api::<DynamicObject>::namespaced_with(env.client(), NAMESPACE, &kind("Rollout"));
    let asked = env
        .until_object(&rollouts, "canary", |found| found.data["spec"]["restartAt"].is_string())
        .await;
    let at = &asked.data["spec"]["restartAt"];
    let done = json!({"status": {"restartedAt": at, "phase": "Healthy"}});
    rollouts.patch_status("canary", &PatchParams::default(), &Patch::Merge(done)).await.unwrap();
    restarts(&env, 1).await;
    assert_eq!(restarted(&env, NAMESPACE).await, times(&["canary"], 1));
}

/// It runs the template of a Deployment that has no replicas of its own.
#[tokio::test(start_paused = true)]
async fn a_rollout_restarts_for_what_the_template_uses_that_it_runs() {
    let auto = json!({RESTART: "auto"});
    for (name, of_deployment, of_rollout) in [
        ("restart-pods", &json!({}), &auto),
        ("restart-pods", &auto, &json!({})),
        ("configmonitor", &json!({}), &json!({})),
    ] {
        let mut canary = workload("Rollout", "canary", of_rollout, &json!({}));
        canary["spec"] = json!({
            "replicas": 2,
            "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        });
        let manifests = [
            content("ConfigMap", CONTENT, &json!({})),
            monitor(),
            canary,
            deployment("web", of_deployment, &user()),
        ];
        let specs = match name {
            "configmonitor" => controllers::build(name, 2),
            _ => built(),
        };
        let env = world(&manifests, specs).await;
        let settled = async |count| match name {
            "configmonitor" => monitor_restarts(&env, count).await,
            _ => restarts(&env, count).await,
        };
        settled(0).await;
        edit(&env, "2").await;
        let rollouts =
            Api::<DynamicObject>::namespaced_with(env.client(), NAMESPACE, &kind("Rollout"));
        let asked = env
            .until_object(&rollouts, "canary", |found| found.data["spec"]["restartAt"].is_string())
            .await;
        let status = json!({
            "restartedAt": asked.data["spec"]["restartAt"], "phase": "Healthy",
        });
        let done = Patch::Merge(json!({"status": status}));
        rollouts.patch_status("canary", &PatchParams::default(), &done).await.unwrap();
        settled(1).await;
        assert_eq!(restarted(&env, NAMESPACE).await, times(&["canary"], 1), "{name}");
    }
}

/// A template that begins to use it counts as well as an annotation that is added.
#[tokio::test(start_paused = true)]
async fn a_rollout_asks_once_the_template_that_it_runs_uses_it() {
    let mut canary = workload("Rollout", "canary", &json!({RESTART: "auto"}), &json!({}));
    canary["spec"] = json!({
        "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
    });
    let manifests = [content("ConfigMap", CONTENT, &json!({})), canary];
    let env = world(&manifests, built()).await;
    quiet(&env, Duration::from_secs(600)).await;
    env.apply(&deployment("web", &json!({}), &user()).to_string()).await;
    restarts(&env, 0).await;
}

/// Waits until the record's problem has these words, and returns the kinds of what Warnings are about.
async fn told(env: &TestEnv, words: &str) -> Vec<String> {
    env.until_object(&maps(env), CONTENT, |map| {
        record(&map.metadata).problem.is_some_and(|problem| problem.contains(words))
    })
    .await;
    env.pass(Duration::from_secs(1)).await;
    let events = super::events(env, NAMESPACE).await.into_iter();
    let warnings = events.filter(|event| event.type_.as_deref() == Some("Warning"));
    let mut kinds: Vec<_> =
        warnings.filter_map(|event| event.regarding.and_then(|about| about.kind)).collect();
    kinds.sort();
    kinds
}

#[tokio::test(start_paused = true)]
async fn an_annotation_that_cannot_be_read_is_told_at_once() {
    for (key, word, words) in [
        (RESTART, "True", "Deployment web: annotation leasehold.dev/restart is \"True\""),
        (RESTART_FOR, CONTENT, "Deployment web: annotation leasehold.dev/restart-for has"),
        ("leasehold.dev/restarts", "auto", "Deployment web: annotation leasehold.dev/restarts is"),
    ] {
        let manifests = [
            content("ConfigMap", CONTENT, &json!({})),
            deployment("web", &json!({key: word}), &user()),
        ];
        let env = world(&manifests, built()).await;
        assert_eq!(told(&env, words).await, ["ConfigMap", "Deployment"], "{key}");
        quiet(&env, Duration::from_secs(600)).await;
        edit(&env, "2").await;
        env.pass(Duration::from_secs(60)).await;
        assert_eq!(restarted(&env, NAMESPACE).await, times(&[], 0), "{key}");
        let deployments =
            Api::<DynamicObject>::namespaced_with(env.client(), NAMESPACE, &kind("Deployment"));
        let correct = json!({key: null, RESTART: "auto"});
        merge(&deployments, "web", json!({"metadata": {"annotations": correct}})).await;
        env.until_object(&maps(&env), CONTENT, |map| record(&map.metadata).problem.is_none()).await;
        edit(&env, "3").await;
        restarts(&env, 1).await;
        assert_eq!(restarted(&env, NAMESPACE).await, times(&["web"], 1), "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_object_says_that_cannot_be_read_is_told_and_restarts_nobody_it_ignores() {
    for (key, word, count) in [
        (RESTART_IGNORE, "True", 0),
        (RESTART_MATCH, "yes", 1),
        ("leasehold.dev/restart", "auto", 1),
    ] {
        let manifests = [
            content("ConfigMap", CONTENT, &json!({key: word})),
            deployment("web", &json!({RESTART: "auto"}), &user()),
        ];
        let env = world(&manifests, built()).await;
        assert_eq!(told(&env, &format!("annotation {key} is ")).await, ["ConfigMap"]);
        edit(&env, "2").await;
        env.pass(Duration::from_secs(60)).await;
        let names: &[&str] = if count == 0 { &[] } else { &["web"] };
        assert_eq!(restarted(&env, NAMESPACE).await, times(names, count), "{key}");
        quiet(&env, Duration::from_secs(600)).await;
        merge(&maps(&env), CONTENT, json!({"metadata": {"annotations": {key: null}}})).await;
        env.until_object(&maps(&env), CONTENT, |map| record(&map.metadata).problem.is_none()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_monitor_tells_whose_annotations_it_cannot_read() {
    let manifests = [
        content("ConfigMap", CONTENT, &json!({})),
        monitor(),
        deployment("silent", &json!({}), &user()),
        deployment("web", &json!({RESTART: "yes"}), &user()),
    ];
    let env = world(&manifests, controllers::build("configmonitor", 2)).await;
    monitor_restarts(&env, 0).await;
    edit(&env, "2").await;
    monitored(&env, |monitor| {
        let conditions = monitor.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|found| {
            found.type_ == "Restarted"
                && found.reason == "AnnotationUnread"
                && found.message.contains("Deployment web: annotation leasehold.dev/restart is")
        })
    })
    .await;
    monitor_restarts(&env, 1).await;
    assert_eq!(restarted(&env, NAMESPACE).await, times(&["silent"], 1));
    quiet(&env, Duration::from_secs(600)).await;
}

fn monitor() -> Value {
    json!({
        "apiVersion": "magalix.com/v1", "kind": "ConfigMonitor",
        "metadata": {"name": "m", "namespace": NAMESPACE}, "spec": {"configMap": CONTENT},
    })
}

async fn monitored(env: &TestEnv, wanted: impl Fn(&ConfigMonitor) -> bool) {
    let monitors: Api<ConfigMonitor> = env.api(NAMESPACE);
    env.until_object(&monitors, "m", wanted).await;
}

async fn monitor_restarts(env: &TestEnv, expect: i64) {
    monitored(env, |monitor| {
        monitor.status.as_ref().is_some_and(|status| {
            let record = &status.record;
            let rests = record.pending.is_none() && record.changed_at.is_none();
            record.hash.is_some() && record.restarts == expect && rests
        })
    })
    .await;
}

/// An author's reach ends with the namespace.
#[tokio::test(start_paused = true)]
async fn a_monitor_without_a_selector_restarts_who_uses_its_config_map_in_its_namespace() {
    let mut elsewhere = deployment("elsewhere", &json!({RESTART: "auto"}), &user());
    elsewhere["metadata"]["namespace"] = "other".into();
    let manifests = [
        content("ConfigMap", CONTENT, &json!({})),
        monitor(),
        deployment("silent", &json!({}), &user()),
        deployment("refusing", &json!({RESTART: "off"}), &user()),
        deployment("unused", &json!({}), &json!({})),
        elsewhere,
    ];
    let env = world(&manifests, controllers::build("configmonitor", 2)).await;
    monitor_restarts(&env, 0).await;
    edit(&env, "2").await;
    monitor_restarts(&env, 1).await;
    env.pass(Duration::from_secs(60)).await;
    assert_eq!(restarted(&env, NAMESPACE).await, times(&["silent"], 1));
    assert_eq!(restarted(&env, "other").await, times(&[], 0));
}

#[tokio::test(start_paused = true)]
async fn so_many_workloads_restart_at_once_and_no_more() {
    const MOST: usize = 500;
    let users = (0..=MOST).map(|number| deployment(&format!("w-{number}"), &json!({}), &user()));
    let mut manifests = vec![content("ConfigMap", CONTENT, &json!({})), monitor()];
    manifests.extend(users);
    let env = world(&manifests, controllers::build("configmonitor", 2)).await;
    monitor_restarts(&env, 0).await;
    edit(&env, "2").await;
    monitored(&env, |monitor| {
        let conditions = monitor.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|found| {
            found.reason == "TooManyTargets"
                && found.message.contains("501 to restart, 500 allowed")
        })
    })
    .await;
    assert_eq!(restarted(&env, NAMESPACE).await, times(&[], 0));
    let deployments =
        Api::<DynamicObject>::namespaced_with(env.client(), NAMESPACE, &kind("Deployment"));
    deployments.delete("w-7", &kube::api::DeleteParams::default()).await.unwrap();
    monitor_restarts(&env, 1).await;
    assert_eq!(restarted(&env, NAMESPACE).await.len(), MOST);
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_still_restarts_once() {
    for name in ["configmonitor", "restart-pods"] {
        let built = || match name {
            "configmonitor" => controllers::build(name, 2),
            _ => built(),
        };
        let settled = async |env: &TestEnv, count| match name {
            "configmonitor" => monitor_restarts(env, count).await,
            _ => restarts(env, count).await,
        };
        let writes = at_every_write(async |crash| {
            let manifests = [
                content("ConfigMap", CONTENT, &json!({})),
                monitor(),
                deployment("one", &json!({RESTART: "auto"}), &user()),
                deployment("two", &json!({RESTART: "auto"}), &user()),
            ];
            let mut env = world(&manifests, built()).await;
            settled(&env, 0).await;
            env.stop().await;
            edit(&env, "2").await;
            crash.watch(&env);
            crash.survived(&mut env, built, async |env| settled(env, 1).await).await;
            env.pass(Duration::from_secs(60)).await;
            settled(&env, 1).await;
            assert_eq!(restarted(&env, NAMESPACE).await, times(&["one", "two"], 1));
        })
        .await;
        assert!(writes >= 6, "seen, decided, two restarted, begun or done, an Event: {writes}");
    }
}
