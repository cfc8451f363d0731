//! The fence on writes, and what a drain waits for.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use model::Clock;
use serde_json::json;
use tokio::sync::{Notify, watch};

use super::world::{World, listed, maps, settle};
use crate::{Action, ControllerSpec, Event, FencedError, ReconcileError};
use engine::testing::{Asked, Server, Watch, config_map};

const REJECTED: &str = "leasehold_fence_rejected_writes_total";

async fn delete(client: kube::Client) -> Result<(), kube::Error> {
    let api: Api<ConfigMap> = Api::namespaced(client, "ns");
    api.delete("other", &DeleteParams::default()).await.map(drop)
}

/// What the fence said, if it is in the causes of an error.
fn fenced(error: &kube::Error) -> Option<&FencedError> {
    let kube::Error::Service(source) = error else { return None };
    source.downcast_ref()
}

/// The code that writes.
#[derive(Clone, Copy, PartialEq)]
enum Writes {
    /// The reconcile, which runs no further when its Lease is over.
    Itself,
    /// A task that it spawned and waits for: only its writes are fenced.
    InATask,
}

/// A controller that writes when it is told to, and tells how that went.
fn writer(writes: Writes) -> (ControllerSpec, Arc<Notify>, watch::Receiver<Vec<String>>) {
    let go = Arc::new(Notify::new());
    let (told, results) = watch::channel(Vec::new());
    let gate = Arc::clone(&go);
    let spec = maps(move |ctx, _| {
        let (gate, told, client) = (Arc::clone(&gate), told.clone(), ctx.client());
        let write = async move {
            gate.notified().await;
            let result = delete(client).await;
            told.send_modify(|all| {
                all.push(match &result {
                    Ok(()) => "written".to_owned(),
                    Err(error) => match fenced(error) {
                        Some(FencedError::Refused { .. }) => "refused".to_owned(),
                        Some(FencedError::TimedOut { limit, .. }) => format!("{limit:?}"),
                        Some(FencedError::Over { .. }) | None => format!("{error:?}"),
                    },
                });
            });
            result.map_err(ReconcileError::from)?;
            Ok(Action::Done)
        };
        match writes {
            Writes::Itself => write.boxed(),
            Writes::InATask => tokio::spawn(write).map(|ended| ended.expect("no panic")).boxed(),
        }
    });
    (spec, go, results)
}

/// A world in which a reconcile of [`writer`]'s runs, and is yet to be told to write.
struct Stage {
    world: World,
    server: Server,
    _list: Watch,
    go: Arc<Notify>,
    results: watch::Receiver<Vec<String>>,
}

async fn about_to_write(writes: Writes) -> Stage {
    let (spec, go, results) = writer(writes);
    let (world, server, list) = listed(vec![spec], 3, &["a"]).await;
    world.wait_entries(1).await;
    Stage { world, server, _list: list, go, results }
}

#[tokio::test(start_paused = true)]
async fn a_write_says_who_sends_it_and_ends_with_the_lease() {
    let Stage { world, mut server, _list, go, mut results } = about_to_write(Writes::InATask).await;
    world.lease(Duration::from_millis(5500));
    go.notify_one();
    let write = server.expect("DELETE /api/v1/namespaces/ns/configmaps/other timeout=5500ms").await;
    let agent = write.request.headers["user-agent"].to_str().unwrap().to_owned();
    let version = env!("CARGO_PKG_VERSION");
    let expect = format!("leasehold/{version} (member=m-1; shard=east/g/0/1; epoch=3; key=ns/a)");
    assert_eq!(agent, expect);
    // Never answered: the write is given up with the Lease.
    results.wait_for(|all| all.first().is_some_and(|one| one == "5.5s")).await.unwrap();
    drop(write);
    // A long Lease does not make for a long wait.
    world.lease(Duration::from_secs(900));
    go.notify_one();
    let write =
        server.expect("DELETE /api/v1/namespaces/ns/configmaps/other timeout=30000ms").await;
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
    write.answer(200, &status);
    results.wait_for(|all| all.last().is_some_and(|one| one == "written")).await.unwrap();
    let size = |what: &str, of: &str| {
        world.metric(&format!(
            "rest_client_{what}_size_bytes_{of}{{host=\"clusters\",verb=\"DELETE\"}}"
        ))
    };
    // Two were sent, with `{}` as their options, and one was answered.
    assert_eq!((size("request", "count").as_str(), size("request", "sum").as_str()), ("2", "4"));
    assert_eq!(size("response", "count"), "1");
    assert_eq!(size("response", "sum"), status.to_string().len().to_string());
    let deletes = r#"rest_client_requests_total{code="200",host="clusters",method="DELETE"}"#;
    assert_eq!((world.metric(deletes).as_str(), world.metric(REJECTED).as_str()), ("1", "0"));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_write_ends_with_the_lease_though_timers_stood_still_meanwhile() {
    let Stage { world, mut server, _list, go, mut results } = about_to_write(Writes::InATask).await;
    world.lease(Duration::from_millis(5500));
    go.notify_one();
    let _write = server.asked().await;
    world.clock.suspend(Duration::from_secs(60));
    let given_up = results.wait_for(|all| all.first().is_some_and(|one| one == "5.5s"));
    let given_up = tokio::time::timeout(Duration::from_secs(1), given_up).await;
    assert!(given_up.is_ok(), "it waits for the rest of a timer");
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_ends_with_the_lease_and_so_does_its_write() {
    let Stage { world, mut server, _list, go, results } = about_to_write(Writes::Itself).await;
    world.lease(Duration::from_millis(5500));
    go.notify_one();
    let began = world.clock.now();
    let _write = server.asked().await;
    world.wait_entries(2).await;
    assert_eq!(world.clock.now().since(began), Duration::from_millis(5500));
    assert!(results.borrow().is_empty(), "no line of it ran after that");
    assert_eq!(world.metric(REJECTED), "0");
}

#[tokio::test(start_paused = true)]
async fn a_write_without_a_valid_lease_is_not_sent() {
    // A server cannot be told to answer within less than a millisecond.
    for valid_for in [Duration::ZERO, Duration::from_micros(999)] {
        let stage = about_to_write(Writes::InATask).await;
        let Stage { world, mut server, _list, go, mut results } = stage;
        world.lease(valid_for);
        go.notify_one();
        results.wait_for(|all| all.len() == 1).await.unwrap();
        assert_eq!((&*results.borrow()[0], &*world.metric(REJECTED)), ("refused", "1"));
        server.quiet(Duration::from_secs(1)).await;
    }
}

/// Drains the shard, and checks that this ends only after the write that is under way.
async fn drained_after(world: &World, write: Asked) {
    world.drain("east", 3, Duration::from_secs(2));
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(world.acknowledged().is_empty(), "the write is under way still");
    assert_eq!(world.journal().len(), 1, "and so the dispatch has not ended");
    write.answer(200, &json!({"kind": "Status", "status": "Success"}));
    world.wait_acknowledged("east/g/0/1@3").await;
    assert_eq!(world.journal().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_the_writes_of_what_it_cancels() {
    let Stage { world, mut server, _list, go, results } = about_to_write(Writes::Itself).await;
    go.notify_one();
    drained_after(&world, server.asked().await).await;
    assert!(results.borrow().is_empty(), "the reconcile itself was cancelled long ago");
}

/// Panics when it is dropped.
struct PanicsInDrop;

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("the test wants it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_the_writes_of_what_panics_when_it_is_cancelled() {
    let spec = maps(|ctx, _| {
        let client = ctx.client();
        async move {
            let _held = PanicsInDrop;
            delete(client).await?;
            Ok(Action::Done)
        }
        .boxed()
    });
    let (world, mut server, _list) = listed(vec![spec], 3, &["a"]).await;
    drained_after(&world, server.asked().await).await;
    settle().await;
    let panics = r#"controller_runtime_reconcile_panics_total{controller="maps"}"#;
    let active = r#"controller_runtime_active_workers{controller="maps"}"#;
    assert_eq!([world.metric(panics), world.metric(active)], ["1", "0"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_is_published_once_and_then_counted() {
    let spec = maps(|ctx, key| {
        async move {
            if let Some(map) = ctx.get::<ConfigMap>(key.namespace.as_deref(), &key.name)? {
                ctx.publish(Event::normal(&*map, "Scaled", "Scale", "from 1 to 2")).await;
            }
            Ok(Action::Done)
        }
        .boxed()
    });
    let (world, mut server, list) = listed(vec![spec], 3, &["a"]).await;
    let create = server.asked().await;
    assert!(create.line.starts_with("POST /apis/events.k8s.io/v1/namespaces/ns/events"));
    assert_eq!(create.body["regarding"]["uid"], "uid-a");
    assert_eq!(create.body["reportingController"], "leasehold.dev/maps");
    assert_eq!(create.body["reportingInstance"], "m-1");
    let name = create.body["metadata"]["name"].as_str().unwrap().to_owned();
    let stored = create.body.clone();
    create.answer(201, &stored);
    world.wait_entries(2).await;
    list.event("MODIFIED", &config_map("a", 6));
    let patch = server.asked().await;
    assert!(patch.line.starts_with("PATCH") && patch.line.contains(&name), "{}", patch.line);
    assert_eq!(patch.body["series"]["count"], 2);
    // An Event that cannot be written fails nothing.
    patch.refuse(500, "InternalError");
    world.wait_entries(4).await;
    let errors = r#"controller_runtime_reconcile_errors_total{controller="maps"}"#;
    assert_eq!(world.metric(errors), "0");
}

#[tokio::test(start_paused = true)]
async fn reads_pass_the_fence() {
    let spec = maps(|ctx, _| {
        let api: Api<ConfigMap> = Api::namespaced(ctx.client(), "ns");
        let both = async move {
            api.get("other").await?;
            api.create(&PostParams::default(), &ConfigMap::default()).await?;
            Ok(Action::Done)
        };
        tokio::spawn(both).map(|ended| ended.expect("no panic")).boxed()
    });
    let (world, mut server, _list) = listed(vec![spec], 3, &["a"]).await;
    let read = server.expect("GET /api/v1/namespaces/ns/configmaps/other").await;
    world.lease(Duration::ZERO);
    read.answer(200, &config_map("other", 1));
    world.wait_entries(2).await;
    settle().await;
    assert_eq!(world.metric(REJECTED), "1");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_outlives_its_reconcile_only_reads() {
    let (keep, kept) = watch::channel(None);
    let spec = maps(move |ctx, _| {
        keep.send_replace(Some(ctx.client()));
        std::future::ready(Ok(Action::Done)).boxed()
    });
    let (world, mut server, _list) = listed(vec![spec], 3, &["a"]).await;
    world.wait_entries(2).await;
    let client = kept.borrow().clone().unwrap();
    let error = delete(client.clone()).await.unwrap_err();
    assert!(matches!(fenced(&error), Some(FencedError::Over { .. })), "{error:?}");
    let api: Api<ConfigMap> = Api::namespaced(client, "ns");
    let read = tokio::spawn(async move { api.get("other").await });
    let asked = server.expect("GET /api/v1/namespaces/ns/configmaps/other").await;
    asked.answer(200, &config_map("other", 1));
    assert!(read.await.unwrap().is_ok());
}
