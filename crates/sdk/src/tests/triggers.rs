//! Keys from outside of Kubernetes.

use std::time::Duration;

use futures::{FutureExt, StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use tokio::sync::Semaphore;

use super::ranges::{LOW, names};
use super::world::{MAPS, World, holding, idle, run, settle};
use crate::{Action, Controller, ControllerSpec, ObjectKey, Trigger};
use engine::testing::config_map;
use model::Hold;

fn key(text: &str) -> ObjectKey {
    let mut parts = text.split('/');
    let mut next = || parts.next().unwrap();
    let cluster = next().parse().unwrap();
    ObjectKey::new(cluster, Some(next()), next())
}

fn triggered(trigger: &Trigger) -> ControllerSpec {
    Controller::for_kind::<ConfigMap>("maps").triggered_by(trigger).reconciler(run(idle))
}

#[tokio::test(start_paused = true)]
async fn a_key_from_outside_is_reconciled_where_its_shard_is_held() {
    let trigger = Trigger::new(8);
    // Nobody runs yet: nobody is told, and nobody waits.
    for _ in 0..20 {
        trigger.reconcile(key("east/ns/a")).await;
    }
    let (world, mut east) = holding(vec![triggered(&trigger)], 3);
    let maps = ["a", "b"].map(|name| config_map(name, 1));
    let _list = east.expect(MAPS).await.list(5, &maps);
    world.wait_entries(4).await;
    trigger.reconcile(key("east/ns/b")).await;
    settle().await;
    let expect = ["start east/ns/b@3", "end east/ns/b@3"];
    assert_eq!(world.journal()[4..], expect);
    for elsewhere in ["west/ns/a", "east/ns/none", "east/other/a"] {
        trigger.reconcile(key(elsewhere)).await;
    }
    settle().await;
    assert_eq!(world.journal().len(), 6, "{:?}", world.journal());
    trigger.reconcile_all().await;
    world.wait_entries(10).await;
    world.stop().await;
    // Nobody runs any more.
    for _ in 0..20 {
        trigger.reconcile(key("east/ns/a")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_goes_to_the_range_its_object_lies_in() {
    let trigger = Trigger::new(8);
    let world = World::start(vec![triggered(&trigger)]);
    let mut east = world.engage("east", 1);
    world.hold_shards(&[(LOW, Some((3, Hold::Active)))]);
    let (low, high) = names(20);
    let all: Vec<_> = low.iter().chain(&high).map(|name| config_map(name, 1)).collect();
    // It does not divide: all are sent, and those of the lower half are kept.
    east.asked().await.page(5, "", &all);
    let _watch = east.asked().await.watch();
    world.wait_entries(2 * low.len()).await;
    trigger.reconcile(key(&format!("east/ns/{}", high[0]))).await;
    trigger.reconcile(key(&format!("east/ns/{}", low[0]))).await;
    settle().await;
    let start = 2 * low.len();
    let expect = ["start", "end"].map(|what| format!("{what} east/ns/{}@3", low[0]));
    assert_eq!(world.journal()[start..], expect);
    trigger.reconcile_all().await;
    settle().await;
    assert_eq!(world.journal().len(), start + 2 + 2 * low.len());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_for_at_large_comes_after_what_is_asked_for_by_name() {
    let trigger = Trigger::new(8);
    let gate = std::sync::Arc::new(Semaphore::new(3));
    let leave = std::sync::Arc::clone(&gate);
    let reconciler = run(move |_, _| {
        let gate = std::sync::Arc::clone(&leave);
        async move {
            gate.acquire().await.unwrap().forget();
            Ok(Action::Done)
        }
        .boxed()
    });
    let spec = Controller::for_kind::<ConfigMap>("maps").workers(1).triggered_by(&trigger);
    let (world, mut east) = holding(vec![spec.reconciler(reconciler)], 3);
    let maps = ["a", "b", "c"].map(|name| config_map(name, 1));
    let list = east.expect(MAPS).await.list(5, &maps);
    world.wait_entries(6).await;
    list.event("MODIFIED", &config_map("b", 6));
    world.wait_entries(7).await;
    trigger.reconcile_all().await;
    trigger.reconcile(key("east/ns/c")).await;
    settle().await;
    gate.add_permits(9);
    world.wait_entries(14).await;
    assert_eq!(world.journal()[8], "start east/ns/c@3", "{:?}", world.journal());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn streams_are_followed_while_the_controller_runs() {
    let pause = || tokio::time::sleep(Duration::from_secs(60));
    let keys = stream::iter(["east/ns/b", "east/ns/a"]).then(move |text| async move {
        pause().await;
        key(text)
    });
    let all = stream::once(tokio::time::sleep(Duration::from_secs(180)));
    let spec = Controller::for_kind::<ConfigMap>("maps")
        .reconcile_on(keys)
        .reconcile_all_on(all)
        .reconciler(run(idle));
    let (world, mut east) = holding(vec![spec], 3);
    let maps = ["a", "b"].map(|name| config_map(name, 1));
    let _list = east.expect(MAPS).await.list(5, &maps);
    world.wait_entries(4).await;
    for (entries, last) in [(6, "b"), (8, "a")] {
        tokio::time::sleep(Duration::from_secs(60)).await;
        settle().await;
        let journal = world.journal();
        assert_eq!(
            (journal.len(), &*journal[entries - 1]),
            (entries, &*format!("end east/ns/{last}@3"))
        );
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    settle().await;
    assert_eq!(world.journal().len(), 12, "all, and the streams have ended");
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(world.journal().len(), 12);
    world.stop().await;
}
