//! How an object stands with the controllers of its kind, in each of its states.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::DeleteParams;
use model::Hold;
use tokio::sync::Notify;

use super::world::{MAPS, World, holding, idle, listed, maps, run, settle};
use crate::{Action, Controller, ReconcileError};
use engine::testing::config_map;
use explain::{Explained, Explanation};

fn explain(world: &World, object: &str) -> Explanation {
    world.status.explain(&object.parse().unwrap())
}

/// How a ConfigMap of the cluster `east` stands with the only controller.
fn of(world: &World, name: &str) -> Explained {
    let found = explain(world, &format!("east/ConfigMap/ns/{name}")).controllers;
    <[Explained; 1]>::try_from(found).expect("one controller")[0].clone()
}

#[tokio::test(start_paused = true)]
async fn keys_are_running_ready_delayed_or_failing() {
    let (gate, blocked) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (waits, at_work) = (Arc::clone(&gate), Arc::clone(&blocked));
    let spec =
        Controller::for_kind::<ConfigMap>("maps").workers(1).reconciler(run(move |_, key| {
            let (waits, at_work) = (Arc::clone(&waits), Arc::clone(&at_work));
            async move {
                match &*key.name {
                    "fails" => {
                        Err(ReconcileError::terminal(std::io::Error::other("no such bucket")))
                    }
                    "later" => Ok(Action::RequeueAfter(Duration::from_secs(600))),
                    "busy" => {
                        at_work.notify_one();
                        waits.notified().await;
                        Ok(Action::Done)
                    }
                    _ => Ok(Action::Done),
                }
            }
            .boxed()
        }));
    let (world, mut server) = holding(vec![spec], 3);
    let all = ["fails", "later", "busy", "queued"].map(|name| config_map(name, 1));
    let _list = server.expect(MAPS).await.list(5, &all);
    blocked.notified().await;
    tokio::time::sleep(Duration::from_secs(5)).await;

    let busy = of(&world, "busy");
    assert_eq!(busy.key.running_seconds, Some(5.0));
    assert_eq!((busy.key.runs_again, &busy.key.failure), (false, &None));
    let shard = busy.shard.expect("it is held");
    assert_eq!(
        (shard.shard.to_string().as_str(), shard.epoch.0, shard.open),
        ("east/g/0/1", 3, true)
    );
    let cached = busy.cached.expect("it is cached");
    assert_eq!(
        (cached.resource_version.as_str(), cached.matters, cached.deleting),
        ("1", true, false)
    );
    let watch = busy.watch.expect("it is watched");
    assert_eq!((watch.synced, watch.lag_seconds, watch.error), (true, Some(5.0), None));
    assert_eq!((busy.fence, busy.in_scope), (None, true));

    assert_eq!(of(&world, "queued").key.ready_seconds, Some(5.0));
    assert_eq!(of(&world, "later").key.delayed_seconds, Some(595.0));
    let failure = of(&world, "fails").key.failure.expect("it fails");
    assert_eq!((failure.result.as_str(), failure.times), ("failed for good", 1));
    assert!(failure.error.ends_with("no such bucket"), "{}", failure.error);
    assert_eq!((failure.first_seconds, failure.last_seconds), (5.0, 5.0));

    let unknown = of(&world, "unknown");
    assert_eq!((unknown.cached, unknown.key.ready_seconds), (None, None));
    let other = explain(&world, "east/Secret/ns/busy");
    assert_eq!((other.controllers, other.kinds), (vec![], vec!["ConfigMap".to_owned()]));

    gate.notify_one();
    settle().await;
    world.hold("east", None);
    settle().await;
    assert_eq!(of(&world, "fails").key.failure, None, "another owner reconciles it");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn shards_are_elsewhere_warming_held_draining_or_fenced() {
    let world = World::start(vec![maps(idle)]);
    let elsewhere = of(&world, "a");
    assert_eq!((elsewhere.shard, elsewhere.watch, elsewhere.cached), (None, None, None));

    let mut server = world.engage("east", 1);
    world.hold("east", Some((4, Hold::Warming)));
    let _list = server.expect(MAPS).await.list(5, &[config_map("a", 1)]);
    settle().await;
    let warming = of(&world, "a");
    assert!(!warming.shard.expect("it will be held").open);
    let refusal = warming.fence.expect("nothing may begin");
    assert!(refusal.contains("changing owners"), "{refusal}");

    world.hold_active("east", 4);
    settle().await;
    let held = of(&world, "a");
    assert_eq!((held.shard.map(|shard| shard.open), held.fence), (Some(true), None));

    world.lease(Duration::from_secs(1));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let refusal = of(&world, "a").fence.expect("its Lease has ended");
    assert!(refusal.contains("the Lease of member m-1 is no longer valid"), "{refusal}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_a_predicate_leaves_out_does_not_matter() {
    let controller = Controller::for_kind::<ConfigMap>("maps");
    let spec = controller.filter(|_, new| new.is_none()).reconciler(run(idle));
    let (world, _server, _list) = listed(vec![spec], 1, &["a"]).await;
    settle().await;
    let left_out = of(&world, "a");
    assert!(!left_out.cached.expect("it is cached").matters);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_key_of_a_dead_cluster_is_held_back_by_the_breaker() {
    let spec = maps(|ctx, key| {
        async move {
            let api: Api<ConfigMap> = Api::namespaced(ctx.client(), "ns");
            api.delete(&key.name, &DeleteParams::default()).await?;
            Ok(Action::Done)
        }
        .boxed()
    });
    let (world, mut server) = holding(vec![spec], 1);
    let all: Vec<_> = (0..20).map(|n| config_map(&format!("m{n}"), 1)).collect();
    let _list = server.expect(MAPS).await.list(5, &all);
    let broken = async {
        while let Some(asked) = server.next().await {
            asked.drop_connection();
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(60), broken).await;
    let explanation = explain(&world, "east/configmaps/ns/m1");
    let held_back = explanation.held_back.expect("the breaker is open");
    assert!(held_back.cause.ends_with("connection reset"), "{}", held_back.cause);
    assert!(held_back.retry_seconds > 0.0, "{held_back:?}");
    let key = of(&world, "m1").key;
    let failure = key.failure.expect("it could not be done");
    assert_eq!(failure.result, "held back", "{failure:?}");
    assert!(key.delayed_seconds.is_some(), "{failure:?}");
    assert_eq!(explain(&world, "west/ConfigMap/ns/m1").held_back, None);
    drop(server);
    world.stop().await;
}
