//! TDSet: converges, follows the hour, reverts foreign changes, and cleans up.

mod listed;
mod takeover;
mod trouble;

use std::time::Duration;

use apiserver::faults::{Fault, Request};
use controllers::TDSet;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{DeleteParams, PostParams, PropagationPolicy};
use leasehold::testing::{ApiError, Reason, TestEnv};
use serde_json::json;

use super::crash::at_every_write;
use super::{confine, merge, quiet, reasons, rights_of};

const NAME: &str = "tdset-hello-world";
const NAMESPACE: &str = "temp";

async fn world(wall: &str) -> TestEnv {
    let mut env =
        TestEnv::builder().at(wall).crds(controllers::crds()).namespace(NAMESPACE).start().await;
    confine(&env, rights_of("tdset"));
    start(&mut env);
    env
}

fn start(env: &mut TestEnv) {
    env.run(controllers::build("tdset", 2));
}

fn example() -> &'static str {
    controllers::get("tdset").unwrap().example
}

fn sets(env: &TestEnv) -> Api<TDSet> {
    env.api(NAMESPACE)
}

fn deployments(env: &TestEnv) -> Api<Deployment> {
    env.api(NAMESPACE)
}

/// Waits until the `Ready` condition of the TDSet has this status and reason.
async fn condition(env: &TestEnv, status: &str, reason: &str) -> TDSet {
    env.until_object(&sets(env), NAME, |set| {
        let conditions = set.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|found| {
            (&*found.type_, &*found.status, &*found.reason) == ("Ready", status, reason)
        })
    })
    .await
}

async fn replicas(env: &TestEnv, expect: i32) -> Deployment {
    env.until_object(&deployments(env), NAME, |found| found.spec.replicas == Some(expect)).await
}

#[tokio::test(start_paused = true)]
async fn the_example_converges_and_follows_the_hour() {
    let env = world("2026-11-21T16:59:00Z").await;
    env.apply(example()).await;
    let set = condition(&env, "True", "ReplicasAvailable").await;
    let status = set.status.unwrap();
    assert_eq!(
        (status.desired_replicas, status.current_replicas, status.active_window.as_deref()),
        (Some(5), 5, Some("09:00-17:00"))
    );
    let change = status.next_change().unwrap();
    assert_eq!(change.to_string(), "2026-11-21T17:00:00Z");
    replicas(&env, 5).await;

    // Nothing polls: the change comes with the hour, neither before nor long after.
    replicas(&env, 3).await;
    let late = env.now().duration_since(change).unsigned_abs();
    assert!(env.now() >= change && late < Duration::from_secs(2), "{late:?} late");
    assert_eq!(reasons(&env, NAMESPACE).await, ["Created", "Scaled"]);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_scale_is_reverted_and_other_fields_are_left_alone() {
    let env = world("2026-11-21T10:00:00Z").await;
    env.apply(example()).await;
    condition(&env, "True", "ReplicasAvailable").await;
    let annotations = json!({"template": {"metadata": {"annotations": {"restarted": "now"}}}});
    merge(&deployments(&env), NAME, json!({"spec": annotations})).await;
    merge(&deployments(&env), NAME, json!({"spec": {"replicas": 9}})).await;
    let found = replicas(&env, 5).await;
    let kept = found.spec.template.metadata.unwrap().annotations.unwrap();
    assert_eq!(kept["restarted"], "now");
    assert_eq!(reasons(&env, NAMESPACE).await, ["Created", "ScaleRestored"]);
}

/// The status changes from settled to rolling out and back while the cache still shows the first.
/// The last write must not be skipped because it equals what the cache shows.
#[tokio::test(start_paused = true)]
async fn a_status_computed_from_a_lagging_cache_is_corrected() {
    const LAG: Duration = Duration::from_secs(10);
    let env = world("2026-11-21T10:00:00Z").await;
    env.apply(example()).await;
    condition(&env, "True", "ReplicasAvailable").await;
    let lagging = |request: &Request| {
        let late = request.verb == "watch" && request.resource == "tdsets";
        if late { Fault::Delay(LAG) } else { Fault::None }
    };
    env.set_faults(lagging);
    env.server().close_watches();
    merge(&deployments(&env), NAME, json!({"spec": {"replicas": 9}})).await;
    condition(&env, "False", "ReplicasUnavailable").await;
    env.pass(3 * LAG).await;
    let status = condition(&env, "True", "ReplicasAvailable").await.status.unwrap();
    assert_eq!((status.desired_replicas, status.current_replicas), (Some(5), 5));
}

#[tokio::test(start_paused = true)]
async fn deleting_it_removes_its_children() {
    for policy in [PropagationPolicy::Background, PropagationPolicy::Foreground] {
        let env = world("2026-11-21T10:00:00Z").await;
        env.apply(example()).await;
        merge(&sets(&env), NAME, json!({"spec": {"service": {"port": 80}}})).await;
        condition(&env, "True", "ReplicasAvailable").await;
        let services: Api<Service> = env.api(NAMESPACE);
        env.until_object(&services, NAME, |_| true).await;

        let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        sets(&env).delete(NAME, &params).await.unwrap();
        env.until_gone(&sets(&env), NAME).await;
        env.until_gone(&deployments(&env), NAME).await;
        env.until_gone(&services, NAME).await;
        // And nobody creates them again.
        env.pass(Duration::from_secs(30)).await;
        assert!(deployments(&env).get_opt(NAME).await.unwrap().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn the_service_comes_and_goes_with_its_port() {
    let env = world("2026-11-21T10:00:00Z").await;
    let services: Api<Service> = env.api(NAMESPACE);
    env.apply(example()).await;
    condition(&env, "True", "ReplicasAvailable").await;
    assert!(services.get_opt(NAME).await.unwrap().is_none());
    for port in [80, 81] {
        merge(&sets(&env), NAME, json!({"spec": {"service": {"port": port}}})).await;
        env.until_object(&services, NAME, |service| {
            let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref());
            matches!(ports, Some([only]) if only.port == port)
        })
        .await;
    }
    merge(&sets(&env), NAME, json!({"spec": {"service": null}})).await;
    env.until_gone(&services, NAME).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_child_is_reported_and_retried_and_the_hours_go_on() {
    // As a ValidatingAdmissionPolicy and as a webhook refuse, and are changed.
    for reason in [Reason::Invalid, Reason::Forbidden] {
        refused(reason).await;
    }
}

async fn refused(reason: Reason) {
    let env = world("2026-11-21T16:30:30Z").await;
    env.set_faults(move |request: &Request| match (request.verb, &*request.resource) {
        ("patch", "services") => Fault::Error(ApiError::new(reason, "no such port here")),
        _ => Fault::None,
    });
    env.apply(example()).await;
    condition(&env, "True", "ReplicasAvailable").await;
    merge(&sets(&env), NAME, json!({"spec": {"service": {"port": 80}}})).await;
    let set = condition(&env, "False", "Rejected").await;
    let ready = set.status.unwrap().conditions.into_iter().find(|found| found.type_ == "Ready");
    assert!(ready.unwrap().message.contains("no such port here"));
    replicas(&env, 5).await;
    let change = "2026-11-21T17:00:00Z".parse().unwrap();
    env.pass(Duration::from_secs(28 * 60)).await;
    replicas(&env, 3).await;
    let late = env.now().duration_since(change).unsigned_abs();
    assert!(env.now() >= change && late < Duration::from_secs(2), "{late:?} late");
    let told = reasons(&env, NAMESPACE).await;
    assert_eq!(told, ["Created", "Rejected", "Scaled"]);
    env.end_faults();
    // Nothing says that the refusal is over.
    env.pass(Duration::from_secs(6 * 60)).await;
    let services: Api<Service> = env.api(NAMESPACE);
    assert!(services.get_opt(NAME).await.unwrap().is_some());
    condition(&env, "True", "ReplicasAvailable").await;
}

#[tokio::test(start_paused = true)]
async fn a_deployment_of_others_is_never_taken_over() {
    let mut env = TestEnv::builder()
        .at("2026-11-21T10:00:00Z")
        .crds(controllers::crds())
        .namespace(NAMESPACE)
        .start()
        .await;
    let theirs: Deployment = serde_json::from_value(json!({
        "metadata": {"name": NAME},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "theirs"}},
            "template": {
                "metadata": {"labels": {"app": "theirs"}},
                "spec": {"containers": [{"name": "app", "image": "theirs"}]},
            },
        },
    }))
    .unwrap();
    deployments(&env).create(&PostParams::default(), &theirs).await.unwrap();
    start(&mut env);
    env.apply(example()).await;
    condition(&env, "False", "Conflict").await;
    let found = deployments(&env).get(NAME).await.unwrap();
    assert_eq!((found.spec.replicas, found.metadata.owner_references), (Some(1), None));

    // Once it is gone, the controller notices without a trigger.
    deployments(&env).delete(NAME, &DeleteParams::default()).await.unwrap();
    condition(&env, "True", "ReplicasAvailable").await;
    replicas(&env, 5).await;
}

#[tokio::test(start_paused = true)]
async fn an_unknown_zone_is_a_condition_until_it_is_corrected() {
    let env = world("2026-11-21T10:00:00Z").await;
    env.apply(example()).await;
    condition(&env, "True", "ReplicasAvailable").await;
    merge(&sets(&env), NAME, json!({"spec": {"timeZone": "Mars/Olympus"}})).await;
    condition(&env, "False", "InvalidTimeZone").await;
    // Nothing is guessed, and nothing is retried.
    quiet(&env, Duration::from_secs(600)).await;
    replicas(&env, 5).await;

    // 10:00 in London is 19:00 in Tokyo.
    merge(&sets(&env), NAME, json!({"spec": {"timeZone": "Asia/Tokyo"}})).await;
    replicas(&env, 2).await;
    condition(&env, "True", "ReplicasAvailable").await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_ends_alike() {
    let writes = at_every_write(async |crash| {
        let builder = TestEnv::builder().at("2026-11-21T10:00:00Z").namespace(NAMESPACE);
        let mut env = builder.crds(controllers::crds()).start().await;
        env.apply(example()).await;
        crash.watch(&env);
        let controllers = || controllers::build("tdset", 2);
        crash
            .survived(&mut env, controllers, async |env| {
                condition(env, "True", "ReplicasAvailable").await;
            })
            .await;
        let deployment = replicas(&env, 5).await;
        assert_eq!(deployment.metadata.generation, Some(1), "made once, and not changed since");
    })
    .await;
    assert!(writes >= 3, "the Deployment, an Event, the status: {writes}");
}
