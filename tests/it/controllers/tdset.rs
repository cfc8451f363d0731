//! TDSet: converges, follows the hour, puts foreign changes right, lets go.

use std::sync::Arc;
use std::time::Duration;

use apiserver::faults::{Fault, Request};
use controllers::TDSet;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use serde_json::json;
use tests::solo::Solo;

const NAME: &str = "tdset-hello-world";
const NAMESPACE: &str = "temp";

async fn world(wall: &str) -> Solo {
    let mut solo = Solo::new(wall, controllers::crds(), &[NAMESPACE]).await;
    start(&mut solo);
    solo
}

fn start(solo: &mut Solo) {
    solo.start(controllers::build("tdset", 2).into_iter().collect());
}

fn example() -> &'static str {
    controllers::get("tdset").unwrap().example
}

fn sets(solo: &Solo) -> Api<TDSet> {
    solo.api(NAMESPACE)
}

fn deployments(solo: &Solo) -> Api<Deployment> {
    solo.api(NAMESPACE)
}

/// Waits until the TDSet says `Ready` as given, for this reason.
async fn condition(solo: &Solo, status: &str, reason: &str) -> TDSet {
    solo.until_object(&sets(solo), NAME, |set| {
        let conditions = set.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|found| {
            (&*found.type_, &*found.status, &*found.reason) == ("Ready", status, reason)
        })
    })
    .await
}

async fn replicas(solo: &Solo, expect: i32) -> Deployment {
    solo.until_object(&deployments(solo), NAME, |found| found.spec.replicas == Some(expect)).await
}

async fn reasons(solo: &Solo) -> Vec<String> {
    let events: Api<Event> = solo.api(NAMESPACE);
    let events = events.list(&ListParams::default()).await.unwrap();
    let mut reasons: Vec<_> = events.items.into_iter().filter_map(|event| event.reason).collect();
    reasons.sort();
    reasons
}

async fn merge<K>(api: &Api<K>, patch: serde_json::Value)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    api.patch(NAME, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_example_converges_and_follows_the_hour() {
    let solo = world("2026-11-21T16:59:00Z").await;
    solo.apply(example()).await;
    let set = condition(&solo, "True", "ReplicasAvailable").await;
    let status = set.status.unwrap();
    assert_eq!(
        (status.desired_replicas, status.current_replicas, status.active_window.as_deref()),
        (Some(5), 5, Some("09:00-17:00"))
    );
    let change = status.next_change().unwrap();
    assert_eq!(change.to_string(), "2026-11-21T17:00:00Z");
    replicas(&solo, 5).await;

    // Nothing polls: the change comes with the hour, not before and not long after.
    replicas(&solo, 3).await;
    let late = solo.now().duration_since(change).unsigned_abs();
    assert!(solo.now() >= change && late < Duration::from_secs(2), "{late:?} late");
    assert_eq!(reasons(&solo).await, ["Created", "Scaled"]);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_scale_is_put_right_and_other_fields_are_left() {
    let solo = world("2026-11-21T10:00:00Z").await;
    solo.apply(example()).await;
    condition(&solo, "True", "ReplicasAvailable").await;
    let annotations = json!({"template": {"metadata": {"annotations": {"restarted": "now"}}}});
    merge(&deployments(&solo), json!({"spec": annotations})).await;
    merge(&deployments(&solo), json!({"spec": {"replicas": 9}})).await;
    let found = replicas(&solo, 5).await;
    let kept = found.spec.template.metadata.unwrap().annotations.unwrap();
    assert_eq!(kept["restarted"], "now");
    assert_eq!(reasons(&solo).await, ["Created", "ScaleRestored"]);
}

/// The status goes from settled to rolling out and back while the cache still shows the first: the
/// last write must not be spared because it equals what the cache shows.
#[tokio::test(start_paused = true)]
async fn a_status_judged_on_a_lagging_cache_is_put_right() {
    const LAG: Duration = Duration::from_secs(10);
    let solo = world("2026-11-21T10:00:00Z").await;
    solo.apply(example()).await;
    condition(&solo, "True", "ReplicasAvailable").await;
    let lagging = |request: &Request| {
        let late = request.verb == "watch" && request.resource == "tdsets";
        if late { Fault::Delay(LAG) } else { Fault::None }
    };
    solo.server().set_faults(Some(Arc::new(lagging)));
    solo.server().close_watches();
    merge(&deployments(&solo), json!({"spec": {"replicas": 9}})).await;
    condition(&solo, "False", "ReplicasUnavailable").await;
    solo.pass(3 * LAG).await;
    let status = condition(&solo, "True", "ReplicasAvailable").await.status.unwrap();
    assert_eq!((status.desired_replicas, status.current_replicas), (Some(5), 5));
}

#[tokio::test(start_paused = true)]
async fn deleting_it_removes_its_children() {
    for policy in [PropagationPolicy::Background, PropagationPolicy::Foreground] {
        let solo = world("2026-11-21T10:00:00Z").await;
        solo.apply(example()).await;
        merge(&sets(&solo), json!({"spec": {"service": {"port": 80}}})).await;
        condition(&solo, "True", "ReplicasAvailable").await;
        let services: Api<Service> = solo.api(NAMESPACE);
        solo.until_object(&services, NAME, |_| true).await;

        let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        sets(&solo).delete(NAME, &params).await.unwrap();
        solo.until("everything to be gone", async || {
            let gone = sets(&solo).get_opt(NAME).await.unwrap().is_none()
                && deployments(&solo).get_opt(NAME).await.unwrap().is_none()
                && services.get_opt(NAME).await.unwrap().is_none();
            gone.then_some(())
        })
        .await;
        // And nobody makes them anew.
        solo.pass(Duration::from_secs(30)).await;
        assert!(deployments(&solo).get_opt(NAME).await.unwrap().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn the_service_comes_and_goes_with_its_port() {
    let solo = world("2026-11-21T10:00:00Z").await;
    let services: Api<Service> = solo.api(NAMESPACE);
    solo.apply(example()).await;
    condition(&solo, "True", "ReplicasAvailable").await;
    assert!(services.get_opt(NAME).await.unwrap().is_none());
    for port in [80, 81] {
        merge(&sets(&solo), json!({"spec": {"service": {"port": port}}})).await;
        solo.until_object(&services, NAME, |service| {
            let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref());
            matches!(ports, Some([only]) if only.port == port)
        })
        .await;
    }
    merge(&sets(&solo), json!({"spec": {"service": null}})).await;
    solo.until("the Service to be gone", async || {
        services.get_opt(NAME).await.unwrap().is_none().then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_deployment_of_others_is_never_taken_over() {
    let mut solo = Solo::new("2026-11-21T10:00:00Z", controllers::crds(), &[NAMESPACE]).await;
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
    deployments(&solo).create(&PostParams::default(), &theirs).await.unwrap();
    start(&mut solo);
    solo.apply(example()).await;
    condition(&solo, "False", "Conflict").await;
    let found = deployments(&solo).get(NAME).await.unwrap();
    assert_eq!((found.spec.replicas, found.metadata.owner_references), (Some(1), None));

    // Once it is out of the way nobody needs to be told.
    deployments(&solo).delete(NAME, &DeleteParams::default()).await.unwrap();
    condition(&solo, "True", "ReplicasAvailable").await;
    replicas(&solo, 5).await;
}

#[tokio::test(start_paused = true)]
async fn an_unknown_zone_is_a_condition_until_it_is_put_right() {
    let solo = world("2026-11-21T10:00:00Z").await;
    solo.apply(example()).await;
    condition(&solo, "True", "ReplicasAvailable").await;
    merge(&sets(&solo), json!({"spec": {"timeZone": "Mars/Olympus"}})).await;
    condition(&solo, "False", "InvalidTimeZone").await;
    // Nothing is changed on a guess, and nothing is retried.
    let writes = solo.server().history().len();
    solo.pass(Duration::from_secs(600)).await;
    assert_eq!(solo.server().history().len(), writes);
    replicas(&solo, 5).await;

    // 10:00 in London is 19:00 in Tokyo.
    merge(&sets(&solo), json!({"spec": {"timeZone": "Asia/Tokyo"}})).await;
    replicas(&solo, 2).await;
    condition(&solo, "True", "ReplicasAvailable").await;
}
