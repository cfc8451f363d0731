//! What can be observed from outside: one trace from watch event to API call, metrics, status.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use tracing::Subscriber;
use tracing::span::{Attributes, Id};
use tracing_subscriber::layer::{Context as LayerContext, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use super::world::{MAPS, World, holding, idle, listed, maps, settle};
use crate::Action;
use engine::testing::config_map;

/// Writes down each span with its ancestors, outermost first.
#[derive(Clone, Default)]
struct Lineages(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lineages {
    fn on_new_span(&self, _: &Attributes<'_>, id: &Id, ctx: LayerContext<'_, S>) {
        let scope = ctx.span_scope(id).unwrap();
        let names: Vec<_> = scope.from_root().map(|span| span.name()).collect();
        self.0.lock().unwrap().push(names.join(" > "));
    }
}

/// The spans of a first list and its reconcile, and those of a change and its reconcile.
async fn lineages(lineages: &Lineages) -> [Vec<String>; 2] {
    let take = || std::mem::take(&mut *lineages.0.lock().unwrap());
    let spec = maps(|ctx, key| {
        let api: Api<ConfigMap> = Api::namespaced(ctx.client(), "ns");
        let name = key.name.to_string();
        async move {
            api.delete(&name, &Default::default()).await?;
            Ok(Action::Done)
        }
        .boxed()
    });
    let (world, mut server, list) = listed(vec![spec], 1, &["a"]).await;
    let success = serde_json::json!({"kind": "Status", "status": "Success"});
    server.asked().await.answer(200, &success);
    world.wait_entries(2).await;
    let first = take();
    list.event("MODIFIED", &config_map("a", 6));
    server.asked().await.answer(200, &success);
    world.wait_entries(4).await;
    let all = [first, take()];
    // Before the server goes: an engine that still runs would ask again, and write a span into the
    // next list.
    world.stop().await;
    all
}

#[tokio::test(start_paused = true)]
async fn one_trace_runs_from_the_watch_event_to_the_api_call() {
    let written = Lineages::default();
    let subscriber = tracing_subscriber::registry().with(written.clone());
    let _guard = tracing::subscriber::set_default(subscriber);
    let [first, change] = lineages(&written).await;
    // The request for the list; then a first reconcile, which no event caused.
    assert_eq!(first, ["api", "reconcile", "reconcile > api"]);
    assert_eq!(
        change,
        [
            "watch.event",
            "watch.event > queue",
            "watch.event > queue > reconcile",
            "watch.event > queue > reconcile > api",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_kind_without_objects_has_no_series_but_of_a_silent_server() {
    let (world, mut server) = holding(vec![maps(idle)], 1);
    let _list = server.expect(MAPS).await.list(77, &[]);
    settle().await;
    let lag = r#"leasehold_watch_lag_seconds{cluster="east",kind="ConfigMap"}"#;
    let others = [
        r#"leasehold_cache_objects{cluster="east",kind="other"}"#,
        r#"leasehold_cache_bytes{cluster="east",kind="other"}"#,
        r#"leasehold_shard_mode{cluster="east",kind="ConfigMap",mode="none"}"#,
    ];
    for series in [lag].iter().chain(&others) {
        assert_eq!(world.metric(series), "absent", "{series}");
    }
    tokio::time::sleep(std::time::Duration::from_secs(80)).await;
    let found: f64 = world.metric(lag).parse().unwrap();
    assert!((75.0..85.0).contains(&found), "{found}");
    assert_eq!(world.metric(others[0]), "absent");
}

#[tokio::test(start_paused = true)]
async fn state_is_scraped_as_it_is() {
    let world = World::start(vec![maps(idle)]);
    let zero = r#"controller_runtime_reconcile_errors_total{controller="maps"}"#;
    assert_eq!(world.metric(zero), "0", "counters begin at zero");
    let mut server = world.engage("east", 1);
    world.hold_active("east", 1);
    world.lease(std::time::Duration::ZERO);
    let list = server.expect(MAPS).await.list(77, &[config_map("a", 1), config_map("b", 2)]);
    settle().await;
    for (series, expect) in [
        (r#"leasehold_cache_objects{cluster="east",kind="other"}"#, "2"),
        (r#"leasehold_cache_objects{cluster="east",kind="ConfigMap"}"#, "absent"),
        (r#"leasehold_cache_bytes{cluster="east",kind="ConfigMap"}"#, "absent"),
        (r#"leasehold_shard_mode{cluster="east",kind="ConfigMap",mode="none"}"#, "absent"),
        (r#"controller_runtime_max_concurrent_reconciles{controller="maps"}"#, "2"),
        (r#"workqueue_adds_total{controller="maps",name="maps"}"#, "2"),
        (r#"workqueue_retries_total{controller="maps",name="maps"}"#, "2"),
        (r#"workqueue_depth{controller="maps",name="maps",priority="0"}"#, "0"),
        (r#"leasehold_cluster_queue_depth{cluster="east",controller="maps"}"#, "absent"),
        (
            r#"informer_store_resource_version{group="",name="leasehold",resource="configmaps",version="v1"}"#,
            "77",
        ),
    ] {
        assert_eq!(world.metric(series), expect, "{series}");
    }
    let queue = &world.status.queues()[0];
    assert_eq!((queue.depth, queue.delayed, queue.running), (0, 2, 0), "the fence refused both");
    assert_eq!(queue.clusters, BTreeMap::from([("east".parse().unwrap(), 0)]));
    world.hold("east", None);
    list.hung_up().await;
    let gone = world.metric(r#"leasehold_cache_objects{cluster="east",kind="other"}"#);
    assert_eq!(gone, "absent", "what is gone leaves no series behind");
}
