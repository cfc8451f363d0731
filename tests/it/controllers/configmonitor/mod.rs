//! ConfigMonitor: one restart for each change, even through a handover.

mod refused;
pub(super) mod trouble;

use std::time::Duration;

use controllers::ConfigMonitor;
use controllers::restarts::content::Content;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use leasehold::testing::{ApiError, Fault, Reason, TestEnv};
use serde_json::{Value, json};

use super::crash::at_every_write;
use super::{confine, generation, merge, quiet, rights_of};

const MONITOR: &str = "flakapp-config-monitor";
const CONFIG_MAP: &str = "flaskapp-config";
const DEPLOYMENT: &str = "frontend";
const NAMESPACE: &str = "default";

async fn world() -> TestEnv {
    let builder = TestEnv::builder().at("2026-11-21T10:00:00Z").server_times();
    let env = builder.crds(controllers::crds()).start().await;
    confine(&env, rights_of("configmonitor"));
    env
}

fn start(env: &mut TestEnv) {
    env.run(controllers::build("configmonitor", 2));
}

/// The example, unchanged and reconciled once.
async fn example() -> TestEnv {
    let mut env = world().await;
    start(&mut env);
    env.apply(controllers::get("configmonitor").unwrap().example).await;
    let monitor = ready(&env, |_| true).await;
    assert_eq!(monitor.status.unwrap().record.restarts, 0, "restarted before the first change");
    env
}

fn monitors(env: &TestEnv) -> Api<ConfigMonitor> {
    env.api(NAMESPACE)
}

fn deployments(env: &TestEnv) -> Api<Deployment> {
    env.api(NAMESPACE)
}

/// Waits until the monitor is ready, has one Pod, and fulfils this condition too.
async fn ready(env: &TestEnv, wanted: impl Fn(&ConfigMonitor) -> bool) -> ConfigMonitor {
    env.until_object(&monitors(env), MONITOR, |monitor| {
        monitor.status.as_ref().is_some_and(|status| {
            let holds = status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
            let rests = status.record.pending.is_none() && status.record.changed_at.is_none();
            holds && status.selected_pods == 1 && rests
        }) && wanted(monitor)
    })
    .await
}

async fn reason(env: &TestEnv, type_: &str, status: &str, reason: &str) {
    env.until_object(&monitors(env), MONITOR, |monitor| {
        let conditions = monitor.status.iter().flat_map(|status| &status.conditions);
        conditions
            .into_iter()
            .any(|found| (&*found.type_, &*found.status, &*found.reason) == (type_, status, reason))
    })
    .await;
}

async fn edit(env: &TestEnv, value: &str) {
    let maps: Api<ConfigMap> = env.api(NAMESPACE);
    merge(&maps, CONFIG_MAP, json!({"data": {"config.cfg": value}})).await;
}

async fn restarts(env: &TestEnv, expect: i64) {
    ready(env, |monitor| monitor.status.as_ref().is_some_and(|s| s.record.restarts == expect))
        .await;
}

#[tokio::test(start_paused = true)]
async fn each_change_rolls_the_deployment_out_once() {
    let env = example().await;
    let before = generation(&env, DEPLOYMENT).await;
    for (change, value) in [(1, "one"), (2, "two")] {
        edit(&env, value).await;
        restarts(&env, change).await;
        // Within a minute a second restart would be visible.
        env.pass(Duration::from_secs(60)).await;
        restarts(&env, change).await;
        assert_eq!(generation(&env, DEPLOYMENT).await, before + change);
    }
}

/// As an admission policy refuses with 422, and is changed: nobody hears of that.
#[tokio::test(start_paused = true)]
async fn a_refused_restart_is_reported_and_made_when_the_refusal_is_over() {
    let env = example().await;
    let before = generation(&env, DEPLOYMENT).await;
    env.set_faults(|request| match (request.verb, &*request.resource) {
        ("patch", "deployments") => Fault::Error(ApiError::new(Reason::Invalid, "not on a Friday")),
        _ => Fault::None,
    });
    edit(&env, "one").await;
    reason(&env, "Ready", "False", "Rejected").await;
    env.pass(Duration::from_secs(3600)).await;
    assert_eq!(generation(&env, DEPLOYMENT).await, before);
    env.end_faults();
    // The longest backoff.
    env.pass(Duration::from_secs(1000)).await;
    restarts(&env, 1).await;
    assert_eq!(generation(&env, DEPLOYMENT).await, before + 1);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_other_fields_restarts_nothing() {
    let env = example().await;
    let before = generation(&env, DEPLOYMENT).await;
    let maps: Api<ConfigMap> = env.api(NAMESPACE);
    merge(&maps, CONFIG_MAP, json!({"metadata": {"labels": {"touched": "yes"}}})).await;
    env.pass(Duration::from_secs(60)).await;
    restarts(&env, 0).await;
    assert_eq!(generation(&env, DEPLOYMENT).await, before);
}

#[tokio::test(start_paused = true)]
async fn a_change_while_the_manager_was_down_restarts_once() {
    let mut env = example().await;
    let before = generation(&env, DEPLOYMENT).await;
    env.stop().await;
    edit(&env, "while down").await;
    env.pass(Duration::from_secs(60)).await;
    assert_eq!(generation(&env, DEPLOYMENT).await, before);

    start(&mut env);
    restarts(&env, 1).await;
    // Another member takes over and has nothing to do.
    env.stop().await;
    start(&mut env);
    env.pass(Duration::from_secs(60)).await;
    restarts(&env, 1).await;
    assert_eq!(generation(&env, DEPLOYMENT).await, before + 1);
}

/// A bare Pod, which the test creates, and creates again.
async fn bare_pod(env: &TestEnv) -> String {
    let pods: Api<Pod> = env.api(NAMESPACE);
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "bare", "labels": {"app": "frontend"}},
        "spec": {"containers": [{"name": "app", "image": "app"}]},
    }))
    .unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap().metadata.uid.unwrap()
}

/// A monitor with only a bare Pod, whose restart was decided and then interrupted. `deleted` says
/// whether the Pod had been deleted and created again when the member died.
async fn interrupted(deleted: bool) -> (TestEnv, String) {
    let mut env = example().await;
    deployments(&env).delete(DEPLOYMENT, &DeleteParams::background()).await.unwrap();
    let pods: Api<Pod> = env.api(NAMESPACE);
    env.until("the Deployment's Pods to be gone", async || {
        let found = pods.list(&ListParams::default()).await.unwrap();
        found.items.is_empty().then_some(())
    })
    .await;
    let mut uid = bare_pod(&env).await;
    ready(&env, |_| true).await;
    env.stop().await;

    edit(&env, "changed").await;
    let maps: Api<ConfigMap> = env.api(NAMESPACE);
    let hash = maps.get(CONFIG_MAP).await.unwrap().digest();
    let pending = json!({"hash": hash, "pods": [{"name": "bare", "uid": uid}]});
    record(&env, pending).await;
    if deleted {
        pods.delete("bare", &DeleteParams::default()).await.unwrap();
        env.until_gone(&pods, "bare").await;
        uid = bare_pod(&env).await;
    }
    start(&mut env);
    (env, uid)
}

async fn record(env: &TestEnv, pending: Value) {
    let patch = Patch::Merge(json!({"status": {"pending": pending}}));
    monitors(env).patch_status(MONITOR, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_restart_is_finished() {
    let (env, uid) = interrupted(false).await;
    let pods: Api<Pod> = env.api(NAMESPACE);
    env.until("the Pod to be deleted", async || {
        let found = pods.get_opt("bare").await.unwrap();
        found.is_none_or(|pod| pod.metadata.uid.as_ref() != Some(&uid)).then_some(())
    })
    .await;
    // Its creator has created it again, so it is left alone.
    let created = bare_pod(&env).await;
    restarts(&env, 1).await;
    env.pass(Duration::from_secs(60)).await;
    assert_eq!(pods.get("bare").await.unwrap().metadata.uid, Some(created));
}

#[tokio::test(start_paused = true)]
async fn the_pod_that_replaced_a_deleted_one_is_not_deleted_again() {
    let (env, uid) = interrupted(true).await;
    restarts(&env, 1).await;
    env.pass(Duration::from_secs(60)).await;
    let pods: Api<Pod> = env.api(NAMESPACE);
    assert_eq!(pods.get("bare").await.unwrap().metadata.uid, Some(uid));
}

#[tokio::test(start_paused = true)]
async fn a_missing_config_map_is_a_condition_and_not_an_error_loop() {
    let mut env = world().await;
    start(&mut env);
    let monitor = ConfigMonitor::new(
        MONITOR,
        serde_json::from_value(json!({
            "configMap": CONFIG_MAP, "podSelector": {"app": "frontend"}
        }))
        .unwrap(),
    );
    monitors(&env).create(&PostParams::default(), &monitor).await.unwrap();
    reason(&env, "Ready", "False", "ConfigMapMissing").await;
    quiet(&env, Duration::from_secs(600)).await;

    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": CONFIG_MAP}, "data": {"a": "b"}}))
            .unwrap();
    let maps: Api<ConfigMap> = env.api(NAMESPACE);
    maps.create(&PostParams::default(), &map).await.unwrap();
    reason(&env, "Ready", "True", "Watching").await;
}

#[tokio::test(start_paused = true)]
async fn both_spellings_work_and_must_agree() {
    let env = example().await;
    let spec = |value: Value| json!({"spec": value});
    for (patch, type_, status, why) in [
        (json!({"configMap": "other"}), "Invalid", "True", "Invalid"),
        (json!({"configMap": CONFIG_MAP}), "Invalid", "False", "Valid"),
        (json!({"configmap": null}), "Ready", "True", "Watching"),
        (json!({"podSelector": {"app": "*"}}), "Invalid", "True", "Invalid"),
        (json!({"podSelector": {"app": "frontend"}}), "Ready", "True", "Watching"),
        (json!({"configMap": null}), "Invalid", "True", "Invalid"),
    ] {
        merge(&monitors(&env), MONITOR, spec(patch)).await;
        reason(&env, type_, status, why).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_still_restarts_once() {
    let writes = at_every_write(async |crash| {
        let mut env = example().await;
        let before = generation(&env, DEPLOYMENT).await;
        env.stop().await;
        edit(&env, "changed").await;
        crash.watch(&env);
        let controllers = || controllers::build("configmonitor", 2);
        crash.survived(&mut env, controllers, async |env| restarts(env, 1).await).await;
        env.pass(Duration::from_secs(60)).await;
        restarts(&env, 1).await;
        assert_eq!(generation(&env, DEPLOYMENT).await, before + 1);
    })
    .await;
    assert!(writes >= 5, "seen, decided, restarted, begun, done, an Event: {writes}");
}
