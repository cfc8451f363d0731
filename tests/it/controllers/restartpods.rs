//! ConfigMaps that name the Pods to restart: one restart for each change, even through a handover.

use std::time::Duration;

use controllers::restartpods::annotation::{Noted, RECORD, RESTART_PODS, record};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::PostParams;
use leasehold::testing::TestEnv;
use serde_json::{Value, json};

use super::crash::at_every_write;
use super::{Story, confine, generation, merge, quiet, rights_of, tell};

const STORIES: &[Story] = &[
    (
        "each change of the content restarts once and other changes never",
        || Box::pin(each_change()),
    ),
    ("a change while the manager was down restarts once", || Box::pin(while_down())),
    ("without the annotation nothing happens and a wrong one is reported once", || {
        Box::pin(annotation())
    }),
    ("a Pod without an owner is left alone", || Box::pin(bare_pod())),
    ("a crash at any write still restarts once", || Box::pin(crashes())),
];

const CONFIG_MAP: &str = "greeting";
const DEPLOYMENT: &str = "greeter";

#[tokio::test(start_paused = true)]
async fn stories() {
    tell(STORIES).await;
}

fn start(env: &mut TestEnv) {
    env.run(controllers::build("restart-pods", 2));
}

/// The example, unchanged and reconciled once, with its Pod running.
async fn example() -> TestEnv {
    let mut env = TestEnv::builder().at("2026-11-21T10:00:00Z").start().await;
    confine(&env, rights_of("restart-pods"));
    start(&mut env);
    env.apply(controllers::get("restart-pods").unwrap().example).await;
    env.until_object(&env.api::<Deployment>("default"), DEPLOYMENT, |found| {
        found.status.as_ref().is_some_and(|status| status.ready_replicas == Some(1))
    })
    .await;
    let seen = recorded(&env, |noted| noted.record.hash.is_some()).await;
    assert_eq!(seen.record.restarts, 0, "restarted before the first change");
    env
}

fn maps(env: &TestEnv) -> Api<ConfigMap> {
    env.api("default")
}

async fn recorded(env: &TestEnv, wanted: impl Fn(&Noted) -> bool) -> Noted {
    let found =
        env.until_object(&maps(env), CONFIG_MAP, |map| wanted(&record(&map.metadata))).await;
    record(&found.metadata)
}

async fn restarts(env: &TestEnv, expect: i64) {
    recorded(env, |noted| {
        let record = &noted.record;
        record.restarts == expect && record.pending.is_none() && record.changed_at.is_none()
    })
    .await;
}

async fn patch(env: &TestEnv, patch: Value) {
    merge(&maps(env), CONFIG_MAP, patch).await;
}

async fn edit(env: &TestEnv, value: &str) {
    patch(env, json!({"data": {"greeting": value}})).await;
}

async fn annotate(env: &TestEnv, annotation: &str, value: Option<&str>) {
    patch(env, json!({"metadata": {"annotations": {annotation: value}}})).await;
}

async fn warnings(env: &TestEnv) -> Vec<String> {
    let events = super::events(env, "default").await.into_iter();
    let warnings = events.filter(|event| event.type_.as_deref() == Some("Warning"));
    warnings.filter_map(|event| event.note).collect()
}

async fn each_change() {
    let env = example().await;
    let before = generation(&env, DEPLOYMENT).await;
    for (change, value) in [(1, "Hello"), (2, "Good evening")] {
        edit(&env, value).await;
        restarts(&env, change).await;
        patch(&env, json!({"metadata": {"labels": {"touched": value.len().to_string()}}})).await;
        // Within a minute a second restart would be visible.
        env.pass(Duration::from_secs(60)).await;
        restarts(&env, change).await;
        assert_eq!(generation(&env, DEPLOYMENT).await, before + change);
    }
    quiet(&env, Duration::from_secs(600)).await;
}

async fn while_down() {
    let mut env = example().await;
    let before = generation(&env, DEPLOYMENT).await;
    env.stop().await;
    edit(&env, "while down").await;
    start(&mut env);
    restarts(&env, 1).await;
    assert_eq!(generation(&env, DEPLOYMENT).await, before + 1);
}

async fn annotation() {
    let env = example().await;
    let before = generation(&env, DEPLOYMENT).await;
    annotate(&env, RESTART_PODS, Some("app in greeter")).await;
    let hindered = recorded(&env, |record| record.problem.is_some()).await;
    assert!(hindered.problem.unwrap().contains("is not a label selector"));
    quiet(&env, Duration::from_secs(600)).await;
    assert_eq!(warnings(&env).await.len(), 1);
    // Changes that were made meanwhile count once it is correct again.
    edit(&env, "meanwhile").await;
    annotate(&env, RESTART_PODS, Some("app in (greeter)")).await;
    restarts(&env, 1).await;
    assert_eq!(generation(&env, DEPLOYMENT).await, before + 1);

    annotate(&env, RESTART_PODS, None).await;
    edit(&env, "nobody asks").await;
    env.pass(Duration::from_secs(60)).await;
    assert_eq!(generation(&env, DEPLOYMENT).await, before + 1);
    // Without its record, the content counts as seen for the first time.
    annotate(&env, RECORD, None).await;
    annotate(&env, RESTART_PODS, Some("app=greeter")).await;
    restarts(&env, 0).await;
    assert_eq!(generation(&env, DEPLOYMENT).await, before + 1);
}

async fn bare_pod() {
    let env = example().await;
    let pods: Api<Pod> = env.api("default");
    let bare = serde_json::from_value(json!({
        "metadata": {"name": "bare", "labels": {"app": "greeter"}},
        "spec": {"containers": [{"name": "app", "image": "app"}]},
    }));
    let uid = pods.create(&PostParams::default(), &bare.unwrap()).await.unwrap().metadata.uid;
    edit(&env, "Hello").await;
    restarts(&env, 1).await;
    let left = "left 1 Pods alone: nothing creates one without a controller again";
    let told = warnings(&env).await;
    assert!(told.len() == 1 && told[0].starts_with(left), "{told:?}");
    env.pass(Duration::from_secs(600)).await;
    assert_eq!(pods.get("bare").await.unwrap().metadata.uid, uid);
}

async fn crashes() {
    let writes = at_every_write(async |crash| {
        let mut env = example().await;
        let before = generation(&env, DEPLOYMENT).await;
        env.stop().await;
        edit(&env, "changed").await;
        crash.watch(&env);
        let controllers = || controllers::build("restart-pods", 2).into_iter().collect();
        crash.survived(&mut env, controllers, async |env| restarts(env, 1).await).await;
        env.pass(Duration::from_secs(60)).await;
        restarts(&env, 1).await;
        assert_eq!(generation(&env, DEPLOYMENT).await, before + 1);
    })
    .await;
    assert!(writes >= 5, "seen, decided, restarted, begun, done: {writes}");
}
