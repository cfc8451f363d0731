//! Memcached: nodes with stable names that come and go at the end of a list, restart one at a time, and
//! are left alone otherwise.

use std::time::Duration;

use apiserver::faults::{Fault, Request};
use controllers::Memcached;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::{Api, ResourceExt};
use leasehold::testing::{ApiError, Reason, TestEnv};
use serde_json::json;

use super::crash::at_every_write;
use super::{confine, merge, quiet, reasons, rights_of};

const NAME: &str = "cache";
const NAMESPACE: &str = "default";

async fn world() -> TestEnv {
    let mut env = TestEnv::builder().crds(controllers::crds()).start().await;
    confine(&env, rights_of("memcached"));
    start(&mut env);
    env
}

fn start(env: &mut TestEnv) {
    env.run(controllers::build("memcached", 2));
}

fn example() -> &'static str {
    controllers::get("memcached").unwrap().example
}

fn memcacheds(env: &TestEnv) -> Api<Memcached> {
    env.api(NAMESPACE)
}

fn sets(env: &TestEnv) -> Api<StatefulSet> {
    env.api(NAMESPACE)
}

/// Waits until the `Ready` condition has this reason and describes the present spec.
async fn reason(env: &TestEnv, reason: &str) -> Memcached {
    env.until_object(&memcacheds(env), NAME, |found| {
        let status = found.status.clone().unwrap_or_default();
        let is_present = status.observed_generation == found.metadata.generation;
        let mut conditions = status.conditions.iter();
        is_present && conditions.any(|it| it.type_ == "Ready" && it.reason == reason)
    })
    .await
}

/// Waits until as many nodes as the spec asks for are ready, and returns those listed.
async fn settled(env: &TestEnv) -> Vec<String> {
    reason(env, "NodesReady").await.status.unwrap().nodes
}

fn addresses(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("cache-{at}.cache.default.svc:11211")).collect()
}

/// The uids of the Pods, in order of their names: a node that restarts gets another.
async fn pods(env: &TestEnv) -> Vec<(String, String)> {
    let pods: Api<Pod> = env.api(NAMESPACE);
    let list = ListParams::default().labels("data.leasehold.dev/memcached=cache");
    let found = pods.list(&list).await.unwrap().items.into_iter();
    found.map(|pod| (pod.name_any(), pod.uid().unwrap())).collect()
}

#[tokio::test(start_paused = true)]
async fn the_example_grows_and_shrinks_at_the_end_of_its_list() {
    let env = world().await;
    env.apply(example()).await;
    assert_eq!(settled(&env).await, addresses(3));
    let status = memcacheds(&env).get(NAME).await.unwrap().status.unwrap();
    assert_eq!((status.size, status.ready), (3, 3));
    assert_eq!(status.version.as_deref(), Some("1.6.45"));
    assert_eq!(status.memory.as_deref(), Some("256Mi"));
    let budgets: Api<PodDisruptionBudget> = env.api(NAMESPACE);
    assert!(budgets.get_opt(NAME).await.unwrap().is_some());
    let before = pods(&env).await;

    // As `kubectl scale` and autoscalers do it.
    let scale = Patch::Merge(json!({"spec": {"replicas": 5}}));
    memcacheds(&env).patch_scale(NAME, &PatchParams::default(), &scale).await.unwrap();
    assert_eq!(settled(&env).await, addresses(5));
    let found = memcacheds(&env).get_scale(NAME).await.unwrap();
    let status = found.status.unwrap();
    assert_eq!(status.replicas, 5);
    assert_eq!(status.selector.as_deref(), Some("data.leasehold.dev/memcached=cache"));
    let grown = pods(&env).await;
    assert_eq!(grown[..3], before, "the nodes that were there are left alone");

    merge(&memcacheds(&env), NAME, json!({"spec": {"size": 1}})).await;
    assert_eq!(settled(&env).await, addresses(1));
    assert_eq!(pods(&env).await, before[..1], "and so is the one that stays");
    env.until_gone(&budgets, NAME).await;
    assert_eq!(reasons(&env, NAMESPACE).await, ["Created", "Scaled", "Scaled"]);
    quiet(&env, Duration::from_secs(3_600)).await;
}

#[tokio::test(start_paused = true)]
async fn a_version_changes_one_node_at_a_time_and_no_list() {
    let env = world().await;
    env.apply(example()).await;
    settled(&env).await;
    let before = pods(&env).await;
    merge(&memcacheds(&env), NAME, json!({"spec": {"image": "memcached:1.6.46"}})).await;
    let after = env
        .until("every node to have restarted", async || {
            let now = pods(&env).await;
            assert!(now.len() >= 2, "one at a time: {now:?}");
            let status = memcacheds(&env).get(NAME).await.unwrap().status.unwrap();
            assert_eq!(status.nodes, addresses(3), "the list stays");
            let is_new = |pod: &(String, String)| !before.contains(pod);
            (now.len() == 3 && now.iter().all(is_new)).then_some(now)
        })
        .await;
    assert_eq!(settled(&env).await, addresses(3));
    let names =
        |pods: &[(String, String)]| pods.iter().map(|pod| pod.0.clone()).collect::<Vec<_>>();
    assert_eq!(names(&after), names(&before), "names stay");
    let status = reason(&env, "NodesReady").await.status.unwrap();
    assert_eq!(status.version.as_deref(), Some("1.6.46"));
    assert_eq!(reasons(&env, NAMESPACE).await, ["Created", "Updating"]);
}

#[tokio::test(start_paused = true)]
async fn what_needs_no_restart_restarts_nothing_and_drift_is_put_right() {
    let env = world().await;
    env.apply(example()).await;
    settled(&env).await;
    let before = pods(&env).await;
    let services: Api<Service> = env.api(NAMESPACE);
    merge(&services, NAME, json!({"spec": {"publishNotReadyAddresses": false}})).await;
    merge(&services, NAME, json!({"metadata": {"labels": {"team": "web"}}})).await;
    env.until_object(&services, NAME, |found| {
        let publishes = found.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses);
        publishes == Some(true) && found.labels().contains_key("team")
    })
    .await;
    merge(&memcacheds(&env), NAME, json!({"spec": {"minReadySeconds": 60}})).await;
    env.until_object(&sets(&env), NAME, |set| set.spec.min_ready_seconds == Some(60)).await;
    merge(&sets(&env), NAME, json!({"spec": {"replicas": 9}})).await;
    env.until_object(&sets(&env), NAME, |set| set.spec.replicas == Some(3)).await;
    assert_eq!(settled(&env).await, addresses(3));
    env.pass(Duration::from_secs(60)).await;
    assert_eq!(pods(&env).await, before);
    assert_eq!(reasons(&env, NAMESPACE).await, ["Corrected", "Created", "ScaleRestored"]);

    // A StatefulSet that somebody deletes comes back under the same names.
    let params = DeleteParams::default();
    sets(&env).delete(NAME, &params).await.unwrap();
    env.until("other nodes of the same names", async || {
        let now = pods(&env).await;
        (now.len() == 3 && now.iter().all(|pod| !before.contains(pod))).then_some(())
    })
    .await;
    assert_eq!(settled(&env).await, addresses(3));
}

#[tokio::test(start_paused = true)]
async fn children_of_others_are_never_taken_over() {
    for kind in ["Service", "StatefulSet"] {
        let mut env = TestEnv::builder().crds(controllers::crds()).start().await;
        let services: Api<Service> = env.api(NAMESPACE);
        if kind == "Service" {
            let theirs = json!({
                "metadata": {"name": NAME},
                "spec": {"selector": {"app": "theirs"}, "ports": [{"port": 80}]},
            });
            let theirs = serde_json::from_value(theirs).unwrap();
            services.create(&PostParams::default(), &theirs).await.unwrap();
        } else {
            let theirs = json!({
                "metadata": {"name": NAME},
                "spec": {
                    "replicas": 0, "selector": {"matchLabels": {"app": "theirs"}},
                    "template": {
                        "metadata": {"labels": {"app": "theirs"}},
                        "spec": {"containers": [{"name": "app", "image": "theirs"}]},
                    },
                },
            });
            let theirs = serde_json::from_value(theirs).unwrap();
            sets(&env).create(&PostParams::default(), &theirs).await.unwrap();
        }
        start(&mut env);
        env.apply(example()).await;
        let found = reason(&env, "Conflict").await.status.unwrap();
        let message = &found.conditions[0].message;
        assert!(message.contains(&format!("{kind} cache exists")), "{message}");
        // All or nothing: the other children are not made either.
        env.pass(Duration::from_secs(60)).await;
        let made = [
            services.get_opt(NAME).await.unwrap().is_some(),
            sets(&env).get_opt(NAME).await.unwrap().is_some(),
        ];
        assert_eq!(made, [kind == "Service", kind == "StatefulSet"]);
        assert_eq!(reasons(&env, NAMESPACE).await, ["Conflict"]);

        // Once it is gone, the controller notices without a trigger.
        if kind == "Service" {
            services.delete(NAME, &DeleteParams::default()).await.unwrap();
        } else {
            sets(&env).delete(NAME, &DeleteParams::default()).await.unwrap();
        }
        assert_eq!(settled(&env).await, addresses(3));
    }
}

#[tokio::test(start_paused = true)]
async fn a_spec_that_cannot_be_is_a_condition_and_changes_nothing() {
    let env = world().await;
    env.apply(example()).await;
    settled(&env).await;
    let before = pods(&env).await;
    let bad = json!({"spec": {"size": 5, "extraArgs": ["-m", "4096"]}});
    merge(&memcacheds(&env), NAME, bad).await;
    let status = reason(&env, "InvalidSpec").await.status.unwrap();
    assert_eq!(status.nodes, addresses(3));
    assert!(status.conditions[0].message.contains("use spec.memory"), "{status:?}");
    let available = status.conditions.iter().find(|found| found.type_ == "Available").unwrap();
    assert_eq!(available.status, "True", "the nodes still serve");
    quiet(&env, Duration::from_secs(600)).await;
    assert_eq!(pods(&env).await, before);
    merge(&memcacheds(&env), NAME, json!({"spec": {"extraArgs": ["-I", "2m"]}})).await;
    assert_eq!(settled(&env).await, addresses(5));
    assert_eq!(pods(&env).await[..3], before);
    // What a server can see, it refuses.
    for bad in [json!({"size": 101}), json!({"size": -1}), json!({"connections": 1})] {
        let patch = Patch::Merge(json!({"spec": bad}));
        let refused = memcacheds(&env).patch(NAME, &PatchParams::default(), &patch).await;
        assert!(refused.is_err(), "{bad}");
    }
}

/// As an admission policy refuses, and is changed.
#[tokio::test(start_paused = true)]
async fn a_refused_child_is_reported_and_tried_again() {
    let mut env = TestEnv::builder().crds(controllers::crds()).start().await;
    env.set_faults(|request: &Request| match (request.verb, &*request.resource) {
        ("patch", "statefulsets") => Fault::Error(ApiError::new(Reason::Invalid, "no such image")),
        _ => Fault::None,
    });
    start(&mut env);
    env.apply(example()).await;
    let status = reason(&env, "Rejected").await.status.unwrap();
    assert!(status.conditions[0].message.contains("no such image"), "{status:?}");
    assert_eq!(reasons(&env, NAMESPACE).await, ["Rejected"]);
    env.end_faults();
    env.pass(Duration::from_secs(6 * 60)).await;
    assert_eq!(settled(&env).await, addresses(3));
}

#[tokio::test(start_paused = true)]
async fn deleting_it_removes_everything() {
    for policy in [PropagationPolicy::Background, PropagationPolicy::Foreground] {
        let env = world().await;
        env.apply(example()).await;
        settled(&env).await;
        let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        memcacheds(&env).delete(NAME, &params).await.unwrap();
        env.until_gone(&memcacheds(&env), NAME).await;
        env.until_gone(&sets(&env), NAME).await;
        env.until_gone(&env.api::<Service>(NAMESPACE), NAME).await;
        env.until_gone(&env.api::<PodDisruptionBudget>(NAMESPACE), NAME).await;
        env.until("the nodes to be gone", async || pods(&env).await.is_empty().then_some(())).await;
        // And nobody creates them again.
        env.pass(Duration::from_secs(30)).await;
        assert!(sets(&env).get_opt(NAME).await.unwrap().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_ends_alike() {
    let writes = at_every_write(async |crash| {
        let mut env = TestEnv::builder().crds(controllers::crds()).start().await;
        env.apply(example()).await;
        crash.watch(&env);
        let controllers = || controllers::build("memcached", 2);
        crash
            .survived(&mut env, controllers, async |env| {
                // A crash after the change begins here again.
                if memcacheds(env).get(NAME).await.unwrap().spec.size == 3 {
                    assert_eq!(settled(env).await, addresses(3));
                    let change = json!({"spec": {"size": 1, "image": "memcached:2"}});
                    merge(&memcacheds(env), NAME, change).await;
                }
                assert_eq!(settled(env).await, addresses(1));
            })
            .await;
        let set = sets(&env).get(NAME).await.unwrap();
        assert_eq!(set.metadata.generation, Some(2), "made once, and changed once");
        let budgets: Api<PodDisruptionBudget> = env.api(NAMESPACE);
        assert!(budgets.get_opt(NAME).await.unwrap().is_none());
    })
    .await;
    assert!(writes >= 8, "three children twice, and statuses: {writes}");
}
