//! Seeds of trouble: what goes wrong in the first week with workloads that restart otherwise, or not at all.
//! Each row is a story of its own in a world of its own.

use k8s_openapi::api::apps::v1::{DaemonSet, ReplicaSet, StatefulSet};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::super::{Story, reasons, tell};
use super::*;

const STORIES: &[Story] = &[
    ("an edit comes in several parts", || Box::pin(debounced())),
    ("a Deployment is paused", || Box::pin(paused())),
    ("a StatefulSet waits for its Pods to be deleted", || Box::pin(on_delete())),
    ("a StatefulSet has a partition", || Box::pin(partitioned())),
    ("others take the annotation off again", || Box::pin(reverted())),
    ("nothing creates a Pod again", || Box::pin(bare())),
    ("a ReplicaSet rolls nothing out", || Box::pin(one_after_another())),
    ("a budget allows no eviction", || Box::pin(budget())),
    ("a budget allows no eviction of one of two", || Box::pin(budget_of_one())),
    ("a Pod never ends", || Box::pin(never_ending())),
    ("the selector is edited while Pods are to go", || Box::pin(reselected())),
    ("Argo Rollouts roll out", || Box::pin(rollout())),
    ("a selector is too wide", || Box::pin(too_many())),
    ("many workloads are in a distant cluster", || Box::pin(refused::distant())),
    ("the manager may not list what could restart", || Box::pin(refused::unlisted())),
    ("one is refused and another taken back", || Box::pin(refused::beside_reverted())),
    ("one is refused and a Pod is to go", || Box::pin(refused::beside_evicted())),
    ("a change is taken back at once", || Box::pin(taken_back())),
    ("content returns that the Pods restarted for before", || Box::pin(returned())),
    ("a namesake is in another namespace", || Box::pin(elsewhere())),
];

#[tokio::test(start_paused = true)]
async fn seeds_of_trouble() {
    tell(STORIES).await;
}

/// Waits until `Restarted` has this reason, and returns its status and message.
pub(super) async fn told(env: &TestEnv, reason: &str) -> (String, String) {
    let of = |monitor: &ConfigMonitor| {
        let mut conditions = monitor.status.iter().flat_map(|status| status.conditions.clone());
        conditions.find(|found| found.type_ == "Restarted" && found.reason == reason)
    };
    let monitor = env.until_object(&monitors(env), MONITOR, |found| of(found).is_some()).await;
    let found = of(&monitor).unwrap();
    (found.status, found.message)
}

/// A world with the monitor and its ConfigMap, seen, and nothing that is selected.
pub(super) async fn bare_world(spec: Value) -> TestEnv {
    let crds = controllers::crds().into_iter().chain([rollouts()]).collect::<Vec<_>>();
    let env = TestEnv::builder().at("2026-11-21T10:00:00Z").server_times();
    let mut env = env.crds(crds).start().await;
    start(&mut env);
    let map = json!({"metadata": {"name": CONFIG_MAP}, "data": {"config.cfg": "a"}});
    let maps: Api<ConfigMap> = env.api(NAMESPACE);
    let map = serde_json::from_value(map).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    let mut all = json!({"configMap": CONFIG_MAP, "podSelector": {"app": "frontend"}});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let monitor = ConfigMonitor::new(MONITOR, serde_json::from_value(all).unwrap());
    monitors(&env).create(&PostParams::default(), &monitor).await.unwrap();
    reason(&env, "Ready", "True", "Watching").await;
    env
}

/// A workload of this kind with two Pods that the monitor selects.
pub(super) async fn workload<K>(env: &TestEnv, more: Value) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + serde::Serialize,
{
    let labels = json!({"app": "frontend"});
    let mut spec = json!({
        "replicas": 2, "serviceName": "w", "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let object = serde_json::from_value(json!({"metadata": {"name": "w"}, "spec": spec})).unwrap();
    let api: Api<K> = env.api(NAMESPACE);
    api.create(&PostParams::default(), &object).await.unwrap();
    selected(env, 2).await;
    api
}

pub(super) async fn selected(env: &TestEnv, count: i32) {
    env.until_object(&monitors(env), MONITOR, |monitor| {
        monitor.status.as_ref().is_some_and(|status| status.selected_pods == count)
    })
    .await;
    let pods: Api<Pod> = env.api(NAMESPACE);
    env.until("the Pods to be ready", async || {
        let found = pods.list(&ListParams::default().labels("app=frontend")).await.unwrap().items;
        found.iter().all(is_ready).then_some(())
    })
    .await;
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|found| found.type_ == "Ready" && found.status == "True")
}

pub(super) async fn uids(env: &TestEnv) -> std::collections::BTreeSet<String> {
    let pods: Api<Pod> = env.api(NAMESPACE);
    let found = pods.list(&ListParams::default().labels("app=frontend")).await.unwrap().items;
    found.into_iter().filter_map(|pod| pod.metadata.uid).collect()
}

async fn debounced() {
    let env = example().await;
    let before = generation(&env, DEPLOYMENT).await;
    for part in ["one", "two", "three"] {
        edit(&env, part).await;
        env.pass(Duration::from_secs(1)).await;
    }
    assert_eq!(told(&env, "Settling").await.0, "False");
    assert_eq!(generation(&env, DEPLOYMENT).await, before);
    restarts(&env, 1).await;
    let (status, words) = told(&env, "RolledOut").await;
    assert_eq!((&*status, &*words), ("True", "restarted Deployment frontend"));
    env.pass(Duration::from_secs(60)).await;
    assert_eq!(generation(&env, DEPLOYMENT).await, before + 1);
    assert_eq!(reasons(&env, NAMESPACE).await, ["Restarted"]);
    quiet(&env, Duration::from_secs(600)).await;
}

async fn paused() {
    let env = example().await;
    merge(&deployments(&env), DEPLOYMENT, json!({"spec": {"paused": true}})).await;
    edit(&env, "one").await;
    let (status, words) = told(&env, "Paused").await;
    assert_eq!(status, "False");
    assert!(words.contains("Deployment frontend is paused"), "{words}");
    quiet(&env, Duration::from_secs(600)).await;
    merge(&deployments(&env), DEPLOYMENT, json!({"spec": {"paused": false}})).await;
    restarts(&env, 1).await;
    assert_eq!(told(&env, "RolledOut").await.0, "True");
}

async fn on_delete() {
    let env = bare_world(json!({})).await;
    workload::<StatefulSet>(&env, json!({"updateStrategy": {"type": "OnDelete"}})).await;
    edit(&env, "b").await;
    let (status, words) = told(&env, "OnDelete").await;
    assert_eq!(status, "False");
    assert!(words.contains("delete its Pods"), "{words}");
    let pods: Api<Pod> = env.api(NAMESPACE);
    for name in ["w-0", "w-1"] {
        pods.delete(name, &DeleteParams::default()).await.unwrap();
    }
    assert_eq!(told(&env, "RolledOut").await.1, "restarted StatefulSet w");
}

async fn partitioned() {
    let env = bare_world(json!({})).await;
    let partition =
        |number: i32| json!({"updateStrategy": {"rollingUpdate": {"partition": number}}});
    let sets = workload::<StatefulSet>(&env, partition(1)).await;
    edit(&env, "b").await;
    let (status, words) = told(&env, "Partitioned").await;
    assert_eq!(status, "False");
    assert!(words.contains("has the partition 1"), "{words}");
    merge(&sets, "w", json!({"spec": partition(0)})).await;
    assert_eq!(told(&env, "RolledOut").await.0, "True");
}

async fn reverted() {
    let env = example().await;
    merge(&deployments(&env), DEPLOYMENT, json!({"spec": {"paused": true}})).await;
    edit(&env, "one").await;
    told(&env, "Paused").await;
    let none = json!({format!("configmonitor.leasehold.dev/{MONITOR}"): null});
    let template = json!({"metadata": {"annotations": none}});
    merge(&deployments(&env), DEPLOYMENT, json!({"spec": {"template": template}})).await;
    let (status, words) = told(&env, "Reverted").await;
    assert_eq!(status, "False");
    assert!(words.contains("let them ignore it"), "{words}");
    // Nobody fights over it.
    quiet(&env, Duration::from_secs(600)).await;
}

async fn bare() {
    let env = bare_world(json!({})).await;
    let uid = bare_pod(&env).await;
    selected(&env, 1).await;
    edit(&env, "b").await;
    let (status, words) = told(&env, "PodsLeft").await;
    assert_eq!(status, "False");
    assert!(words.contains("left 1 Pods alone: "), "{words}");
    env.pass(Duration::from_secs(60)).await;
    assert_eq!(uids(&env).await, [uid].into());
    merge(&monitors(&env), MONITOR, json!({"spec": {"evictBarePods": true}})).await;
    edit(&env, "c").await;
    assert_eq!(told(&env, "RolledOut").await.1, "restarted Pod bare");
    assert!(uids(&env).await.is_empty());
}

async fn one_after_another() {
    let env = bare_world(json!({"debounceSeconds": 0})).await;
    let sets = workload::<ReplicaSet>(&env, json!({})).await;
    let before = uids(&env).await;
    edit(&env, "b").await;
    env.until("the first Pod to be replaced", async || (uids(&env).await != before).then_some(()))
        .await;
    let after = uids(&env).await;
    assert_eq!(after.intersection(&before).count(), 1, "not both at once");
    restarts_of(&env, 1).await;
    assert!(uids(&env).await.is_disjoint(&before));
    assert_eq!(sets.get("w").await.unwrap().metadata.generation, Some(1));
}

pub(super) async fn restarts_of(env: &TestEnv, expect: i64) {
    env.until_object(&monitors(env), MONITOR, |monitor| {
        monitor.status.as_ref().is_some_and(|status| {
            status.record.restarts == expect && status.record.pending.is_none()
        })
    })
    .await;
}

async fn budget() {
    let env = bare_world(json!({})).await;
    workload::<ReplicaSet>(&env, json!({})).await;
    let before = uids(&env).await;
    let budgets: Api<PodDisruptionBudget> = env.api(NAMESPACE);
    let budget = json!({
        "metadata": {"name": "all"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "frontend"}}},
    });
    let budget = serde_json::from_value(budget).unwrap();
    budgets.create(&PostParams::default(), &budget).await.unwrap();
    let allow = async |allowed: i32| {
        let generation = budgets.get("all").await.unwrap().metadata.generation;
        let status = json!({"status": {
            "observedGeneration": generation, "disruptionsAllowed": allowed, "currentHealthy": 2,
            "desiredHealthy": 2, "expectedPods": 2,
        }});
        let params = PatchParams::default();
        budgets.patch_status("all", &params, &Patch::Merge(status)).await.unwrap();
    };
    allow(0).await;
    edit(&env, "b").await;
    let (status, words) = told(&env, "DisruptionBudget").await;
    assert_eq!(status, "False");
    assert!(words.contains("disruption budget"), "{words}");
    env.pass(Duration::from_secs(600)).await;
    assert_eq!(uids(&env).await, before, "the budget counts");
    allow(2).await;
    restarts_of(&env, 1).await;
    assert!(uids(&env).await.is_disjoint(&before));
}

/// The Pod that is refused comes first by its name.
async fn budget_of_one() {
    let env = bare_world(json!({"debounceSeconds": 0, "evictBarePods": true})).await;
    workload::<ReplicaSet>(&env, json!({})).await;
    let bare = bare_pod(&env).await;
    selected(&env, 3).await;
    let before = uids(&env).await;
    env.set_faults(|request| match (&*request.subresource, &*request.name) {
        ("eviction", "bare") => Fault::Error(ApiError::new(Reason::TooManyRequests, "the budget")),
        _ => Fault::None,
    });
    edit(&env, "b").await;
    env.until("the others to go", async || {
        let left = uids(&env).await.intersection(&before).cloned().collect::<Vec<_>>();
        (left == [bare.clone()]).then_some(())
    })
    .await;
    env.pass(Duration::from_secs(600)).await;
    assert!(told(&env, "DisruptionBudget").await.1.contains("Pod bare: "));
    env.end_faults();
    restarts_of(&env, 1).await;
}

async fn never_ending() {
    let env = bare_world(json!({"debounceSeconds": 0, "evictBarePods": true})).await;
    bare_pod(&env).await;
    selected(&env, 1).await;
    let pods: Api<Pod> = env.api(NAMESPACE);
    let held = |by: Value| json!({"metadata": {"finalizers": by}});
    merge(&pods, "bare", held(json!(["example.com/held"]))).await;
    edit(&env, "b").await;
    env.pass(Duration::from_secs(600)).await;
    let (status, words) = told(&env, "PodNotEnding").await;
    assert_eq!(status, "False");
    assert!(words.contains("Pod bare was to end at 2026-11-21T10:"), "{words}");
    merge(&pods, "bare", held(json!(null))).await;
    restarts_of(&env, 1).await;
}

/// Those that were to be restarted when the content changed are, whatever would be chosen now.
async fn reselected() {
    for selector in [json!({"app": "other"}), json!(null)] {
        let env = bare_world(json!({})).await;
        workload::<ReplicaSet>(&env, json!({})).await;
        let before = uids(&env).await;
        env.set_faults(|request| match &*request.subresource {
            "eviction" => Fault::Error(ApiError::new(Reason::TooManyRequests, "the budget")),
            _ => Fault::None,
        });
        edit(&env, "b").await;
        told(&env, "DisruptionBudget").await;
        merge(&monitors(&env), MONITOR, json!({"spec": {"podSelector": selector}})).await;
        env.pass(Duration::from_secs(600)).await;
        assert_eq!(told(&env, "DisruptionBudget").await.0, "False");
        assert_eq!(uids(&env).await, before);
        env.end_faults();
        restarts_of(&env, 1).await;
        assert!(uids(&env).await.is_disjoint(&before));
        assert_eq!(told(&env, "RolledOut").await.1, "restarted 2 Pods");
    }
}

pub(in super::super) fn rollouts() -> CustomResourceDefinition {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    serde_json::from_value(json!({
        "metadata": {"name": "rollouts.argoproj.io"},
        "spec": {
            "group": "argoproj.io", "scope": "Namespaced",
            "names": {"kind": "Rollout", "plural": "rollouts"},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties":
                    {"spec": open, "status": open}}},
                "subresources": {"status": {}},
            }],
        },
    }))
    .unwrap()
}

async fn rollout() {
    let env = bare_world(json!({})).await;
    let sets = workload::<ReplicaSet>(&env, json!({})).await;
    let kind = ApiResource {
        group: "argoproj.io".into(),
        version: "v1alpha1".into(),
        api_version: "argoproj.io/v1alpha1".into(),
        kind: "Rollout".into(),
        plural: "rollouts".into(),
    };
    let rollouts = Api::<DynamicObject>::namespaced_with(env.client(), NAMESPACE, &kind);
    let rollout = DynamicObject::new("r", &kind).data(json!({"spec": {"replicas": 2}}));
    let made = rollouts.create(&PostParams::default(), &rollout).await.unwrap();
    let owner = json!({"metadata": {"ownerReferences": [{
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "r",
        "uid": made.uid(), "controller": true,
    }]}});
    merge(&sets, "w", owner).await;
    let before = uids(&env).await;
    edit(&env, "b").await;
    let (status, words) = told(&env, "RollingOut").await;
    assert_eq!((&*status, &*words), ("False", "waits: Rollout r"));
    env.pass(Duration::from_secs(600)).await;
    assert_eq!(uids(&env).await, before, "its own controller replaces them");
    let found = rollouts.get("r").await.unwrap();
    let at = found.data["spec"]["restartAt"].clone();
    assert!(at.as_str().unwrap().starts_with("2026-11-21T10:00"), "{at}");
    // Argo says so too when it only sees a new template, while a canary waits.
    for phase in ["Paused", "Healthy"] {
        let status = Patch::Merge(json!({"status": {"restartedAt": at, "phase": phase}}));
        rollouts.patch_status("r", &PatchParams::default(), &status).await.unwrap();
        if phase == "Paused" {
            let (_, words) = told(&env, "Paused").await;
            assert!(words.starts_with("Rollout r is paused"), "{words}");
        }
    }
    restarts_of(&env, 1).await;
    assert_eq!(found.metadata.generation, Some(2), "asked once");
}

async fn too_many() {
    const MOST: usize = 500;
    let env = bare_world(json!({"evictBarePods": true})).await;
    let pods: Api<Pod> = env.api(NAMESPACE);
    for number in 0..=MOST {
        let pod = json!({
            "metadata": {"name": format!("p-{number}"), "labels": {"app": "frontend"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        let pod = serde_json::from_value(pod).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }
    edit(&env, "b").await;
    let (_, words) = told(&env, "TooManyTargets").await;
    assert!(words.contains("501 to restart, 500 allowed"), "{words}");
    assert_eq!(uids(&env).await.len(), MOST + 1);
}

async fn taken_back() {
    let env = bare_world(json!({"debounceSeconds": 60})).await;
    edit(&env, "b").await;
    told(&env, "Settling").await;
    edit(&env, "a").await;
    let untold = |monitor: &ConfigMonitor| {
        let status = monitor.status.as_ref().unwrap();
        !status.conditions.iter().any(|found| found.type_ == "Restarted")
    };
    env.until_object(&monitors(&env), MONITOR, untold).await;
    reason(&env, "Ready", "True", "Watching").await;
    quiet(&env, Duration::from_secs(600)).await;
}

/// What came between was nobody's to restart for, and some Pods have it.
async fn returned() {
    let env = example().await;
    let before = generation(&env, DEPLOYMENT).await;
    edit(&env, "one").await;
    restarts(&env, 1).await;
    let spec = monitors(&env).get(MONITOR).await.unwrap().spec;
    monitors(&env).delete(MONITOR, &DeleteParams::default()).await.unwrap();
    env.until_gone(&monitors(&env), MONITOR).await;
    edit(&env, "two").await;
    env.pass(Duration::from_secs(60)).await;
    let again = ConfigMonitor::new(MONITOR, spec);
    monitors(&env).create(&PostParams::default(), &again).await.unwrap();
    restarts(&env, 0).await;
    assert_eq!(generation(&env, DEPLOYMENT).await, before + 1);
    edit(&env, "one").await;
    restarts(&env, 1).await;
    assert_eq!(generation(&env, DEPLOYMENT).await, before + 2);
}

/// An author's reach ends with the namespace.
async fn elsewhere() {
    let builder = TestEnv::builder().at("2026-11-21T10:00:00Z").crds(controllers::crds());
    let mut env = builder.namespace("other").start().await;
    start(&mut env);
    let example = controllers::get("configmonitor").unwrap().example;
    env.apply(example).await;
    ready(&env, |_| true).await;
    let other: Api<DaemonSet> = env.api("other");
    let labels = json!({"app": "frontend"});
    let set = json!({
        "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]},
        }},
    });
    let set = serde_json::from_value(set).unwrap();
    other.create(&PostParams::default(), &set).await.unwrap();
    edit(&env, "one").await;
    restarts(&env, 1).await;
    env.pass(Duration::from_secs(60)).await;
    assert_eq!(other.get("agent").await.unwrap().metadata.generation, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_evicts_each_pod_once() {
    let writes = at_every_write(async |crash| {
        let mut env = bare_world(json!({"debounceSeconds": 0})).await;
        workload::<ReplicaSet>(&env, json!({})).await;
        let before = uids(&env).await;
        env.stop().await;
        edit(&env, "b").await;
        crash.watch(&env);
        let controllers = || controllers::build("configmonitor", 2);
        crash.survived(&mut env, controllers, async |env| restarts_of(env, 1).await).await;
        let after = uids(&env).await;
        assert!(after.is_disjoint(&before) && after.len() == 2);
        env.pass(Duration::from_secs(300)).await;
        assert_eq!(uids(&env).await, after, "none is evicted twice");
    })
    .await;
    assert!(writes >= 6, "decided, begun, two evictions, done, an Event: {writes}");
}
