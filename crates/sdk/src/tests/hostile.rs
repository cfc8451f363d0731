//! A cluster whose objects are wrong, or change without end, is no trouble for others.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context as LogContext, Layer, SubscriberExt};

use super::world::{World, holding, idle, run, settle};
use crate::{Action, Controller, Kind, RetryClass, Selector};
use engine::testing::config_map;

/// Counts warnings and errors.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl<S: Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &Event<'_>, _: LogContext<'_, S>) {
        if *event.metadata().level() <= Level::WARN {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Warnings {
    /// How many there were since it was asked last.
    fn take(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

fn secret(name: &str, version: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "ns", "name": name,
        "uid": format!("uid-{name}"), "resourceVersion": version.to_string()}})
}

#[tokio::test(start_paused = true)]
async fn objects_that_fit_no_type_fill_no_log() {
    let spec = Controller::for_kind::<ConfigMap>("maps")
        .index("name", |map: &ConfigMap| map.metadata.name.clone().into_iter().collect())
        .watches::<Secret>(|_, _| Vec::new())
        .reconciler(run(|ctx, key| {
            let found = ctx.get::<ConfigMap>(key.namespace.as_deref(), &key.name);
            std::future::ready(found.map(|_| Action::Done)).boxed()
        }));
    let world = World::start(vec![spec]);
    let log = Warnings::default();
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(log.clone()));
    let mut server = world.engage("east", 1);
    world.hold_active("east", 1);
    let maps = server.asked().await.list(5, &[config_map("a", 1)]);
    let secrets = server.asked().await.list(5, &[secret("s", 1)]);
    world.wait_entries(2).await;
    assert_eq!(log.take(), 0);
    let unfit = |mut object: Value| {
        object["data"] = json!({"key": 5});
        object
    };
    for version in 10..1010 {
        maps.event("MODIFIED", &unfit(config_map("a", version)));
        settle().await;
    }
    assert!(world.journal().len() > 1000, "each was reconciled: {}", world.journal().len());
    let told = log.take();
    assert!((2..=20).contains(&told), "of the index and of the reconciles: {told}");
    for version in 10..1010 {
        secrets.event("MODIFIED", &unfit(secret("s", version)));
        settle().await;
    }
    let told = log.take();
    assert!((1..=10).contains(&told), "of the mapping: {told}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_would_take_too_much_is_not_decoded() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let spec = Controller::for_kind::<ConfigMap>("maps").reconciler(run(move |ctx, _| {
        let (api, noted) = (Api::<Deployment>::namespaced(ctx.client(), "ns"), Arc::clone(&noted));
        async move {
            let patch = Patch::Merge(json!({}));
            for error in [
                api.get("x").await.unwrap_err(),
                api.patch("x", &PatchParams::default(), &patch).await.unwrap_err(),
                api.list(&ListParams::default()).await.unwrap_err(),
            ] {
                noted.lock().unwrap().push(model::error::chain(&error));
            }
            Ok(Action::Done)
        }
        .boxed()
    }));
    let (world, mut server) = holding(vec![spec], 1);
    let _maps = server.asked().await.list(5, &[config_map("a", 1)]);
    let heavy = |containers: usize| {
        json!({"metadata": {"name": "x"}, "spec": {"selector": {}, "template": {"spec":
            {"containers": vec![json!({}); containers]}}}})
    };
    server.asked().await.answer(200, &heavy(20_000));
    server.asked().await.answer(200, &heavy(20_000));
    server.asked().await.answer(200, &json!({"metadata": {}, "items": vec![heavy(2_000); 40]}));
    world.wait_journal("end east/ns/a@1").await;
    let seen = seen.lock().unwrap().clone();
    for (error, expect) in seen.iter().zip(["16384 objects", "16384 objects", "65536 objects"]) {
        assert!(error.contains(expect), "{error}");
    }
    assert_eq!(seen.len(), 3);
    world.stop().await;
}

/// A ConfigMap has no field `spec`, so that the test itself takes little.
#[tokio::test(start_paused = true)]
async fn a_list_that_would_take_too_much_is_not_decoded() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let spec = Controller::for_kind::<ConfigMap>("maps").reconciler(run(move |ctx, key| {
        if &*key.name == "m-0" {
            let (kind, all) = (Kind::of::<ConfigMap>(), Selector::all());
            for found in [
                ctx.list::<ConfigMap>(None, &all).map(drop),
                ctx.list_as::<ConfigMap, Value>(None, &all).map(drop),
                ctx.list_dynamic::<DynamicObject>(&kind, None, &all).map(drop),
            ] {
                let error = found.unwrap_err();
                assert_eq!(error.class(), RetryClass::Terminal);
                noted.lock().unwrap().push(model::error::chain(&error));
            }
        }
        std::future::ready(Ok(Action::Done)).boxed()
    }));
    let (world, mut server) = holding(vec![spec], 1);
    let dense = |number: u64| {
        let mut map = config_map(&format!("m-{number}"), 1 + number);
        map["spec"] = vec![json!({}); 16_000].into();
        map
    };
    let maps: Vec<Value> = (0..30).map(dense).collect();
    let _maps = server.asked().await.list(50, &maps);
    world.wait_journal("end east/ns/m-0@1").await;
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 3);
    for error in seen {
        let expect = "cluster east: 30 objects of ConfigMap would take more than 256 MiB";
        assert!(error.contains(expect) && error.contains("; fix: "), "{error}");
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn others_run_between_two_events_of_a_mapping() {
    const EVENTS: usize = 100;
    let turns = Arc::new(AtomicUsize::new(0));
    let seen: Arc<Mutex<Vec<usize>>> = Arc::default();
    let (of_others, noted) = (Arc::clone(&turns), Arc::clone(&seen));
    let spec = Controller::for_kind::<ConfigMap>("maps")
        .watches::<Secret>(move |_, _| {
            noted.lock().unwrap().push(of_others.load(Ordering::Relaxed));
            Vec::new()
        })
        .reconciler(run(idle));
    let (world, mut server) = holding(vec![spec], 1);
    let _maps = server.asked().await.list(5, &[config_map("a", 1)]);
    let secrets = server.asked().await.list(5, &[]);
    world.wait_entries(2).await;
    for number in 0..EVENTS {
        secrets.event("ADDED", &secret(&format!("s{number}"), 10 + number as u64));
    }
    for turn in 0..100 * EVENTS {
        turns.store(turn, Ordering::Relaxed);
        tokio::task::yield_now().await;
        if seen.lock().unwrap().len() == EVENTS {
            break;
        }
    }
    let mut seen = seen.lock().unwrap().clone();
    assert_eq!(seen.len(), EVENTS);
    seen.dedup();
    assert!(seen.len() > EVENTS / 2, "between {EVENTS} events others had {} turns", seen.len());
    world.stop().await;
}
