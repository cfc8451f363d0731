//! Read your writes: the next reconcile of a key begins when the cache shows what the last wrote.

use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;

use super::world::{World, listed, maps, settle};
use crate::{Action, ControllerSpec};
use engine::testing::{Server, Watch, config_map};

const PUT: &str = "PUT /api/v1/namespaces/ns/configmaps/a timeout=30000ms";
const STALE: &str = r#"leasehold_stale_reconciles_total{controller="maps"}"#;

/// A controller that replaces each object as it finds it.
fn replacer() -> ControllerSpec {
    maps(|ctx, key| {
        async move {
            if let Some(map) = ctx.get::<ConfigMap>(Some("ns"), &key.name)? {
                let api: Api<ConfigMap> = Api::namespaced(ctx.client(), "ns");
                api.replace(&key.name, &PostParams::default(), &map).await?;
            }
            Ok(Action::Done)
        }
        .boxed()
    })
}

/// A world in which `a` was replaced, which made version 9 of it, and has changed before that: the
/// cache is at version 7, and the key waits.
async fn behind() -> (World, Server, Watch) {
    let (world, mut server, watch) = listed(vec![replacer()], 3, &["a"]).await;
    server.expect(PUT).await.answer(200, &config_map("a", 9));
    world.wait_entries(2).await;
    watch.event("MODIFIED", &config_map("a", 7));
    server.quiet(Duration::from_secs(5)).await;
    assert_eq!(world.journal().len(), 2, "the cache is behind: {:?}", world.journal());
    (world, server, watch)
}

#[tokio::test(start_paused = true)]
async fn a_key_waits_until_the_cache_shows_what_it_wrote() {
    let (world, mut server, watch) = behind().await;
    watch.event("MODIFIED", &config_map("a", 9));
    let put = server.expect(PUT).await;
    assert_eq!(put.body["data"]["version"], "9", "it reads its own write");
    put.answer(200, &config_map("a", 9));
    world.wait_entries(4).await;
    assert_eq!(world.metric(STALE), "0");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_or_a_change_of_another_object_shows_it_as_well() {
    let (world, mut server, watch) = behind().await;
    watch.event("ADDED", &config_map("b", 12));
    let next = [server.asked().await, server.asked().await];
    assert!(next.iter().any(|put| put.line == PUT), "{next:?}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_stays_behind_is_not_waited_for_forever() {
    let (world, mut server, _watch) = behind().await;
    server.expect(PUT).await.answer(200, &config_map("a", 9));
    assert_eq!(world.metric(STALE), "1");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_does_not_wait_for_the_cache() {
    let (world, _server, _watch) = behind().await;
    let before = model::Clock::now(&*world.clock).since_origin();
    world.drain("east", 3, Duration::from_secs(30));
    world.wait_acknowledged("east/g/0/1@3").await;
    settle().await;
    assert!(model::Clock::now(&*world.clock).since_origin() - before < Duration::from_secs(1));
    assert_eq!(world.journal().len(), 2, "nothing began: {:?}", world.journal());
    world.stop().await;
}
