//! Gaining, draining and losing shards.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use model::{Hold, Work, Workload};
use tokio::sync::{Notify, Semaphore};

use super::ranges::{HIGH, LOW, all, high, names, reconciled, set};
use super::world::{MAPS, World, holding, idle, listed, maps, run, settle};
use crate::{Action, Controller, ControllerSpec};
use engine::testing::config_map;

/// A controller whose reconciles wait for leave to end.
fn gated(workers: usize) -> (ControllerSpec, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let leave = Arc::clone(&gate);
    let reconciler = run(move |_, _| {
        let gate = Arc::clone(&leave);
        async move {
            gate.acquire().await.expect("the gate is never closed").forget();
            Ok(Action::Done)
        }
        .boxed()
    });
    let spec = Controller::for_kind::<ConfigMap>("maps")
        .workers(workers)
        .timeout(Duration::from_secs(3600))
        .reconciler(reconciler);
    (spec, gate)
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_what_runs_and_drops_what_waits() {
    let (spec, gate) = gated(1);
    let (world, mut server, list) = listed(vec![spec], 3, &["a", "b"]).await;
    world.wait_entries(1).await;
    world.drain("east", 3, Duration::from_secs(600));
    settle().await;
    list.event("MODIFIED", &config_map("a", 6));
    list.event("MODIFIED", &config_map("b", 7));
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!((world.journal().len(), world.acknowledged().len()), (1, 0), "it runs still");
    gate.add_permits(9);
    world.wait_acknowledged("east/g/0/1@3").await;
    assert_eq!(world.journal(), ["start east/ns/a@3", "end east/ns/a@3"]);
    world.hold("east", None);
    list.hung_up().await;
    tokio::time::sleep(Duration::from_secs(5000)).await;
    assert_eq!(world.journal().len(), 2, "nothing was left to run");

    // Gained again: everything is reconciled again, at the new epoch.
    world.hold_active("east", 5);
    let _list = server.expect(MAPS).await.list(9, &["a", "b"].map(|name| config_map(name, 1)));
    world.wait_journal("end east/ns/b@5").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_shard_costs_is_measured_while_it_is_held() {
    let (spec, gate) = gated(1);
    let world = World::start(vec![spec]);
    let work = || -> Option<Work> { world.meter.measure().into_values().next() };
    let mut server = world.engage("east", 1);
    assert_eq!(work(), None);
    world.hold_active("east", 3);
    let list = server.expect(MAPS).await.list(5, &["a", "b"].map(|name| config_map(name, 1)));
    world.wait_entries(1).await;
    list.event("MODIFIED", &config_map("b", 6));
    tokio::time::sleep(Duration::from_secs(100)).await;
    let measured = work().unwrap();
    assert_eq!((measured.busy, measured.events), (Duration::from_secs(100), 3));
    let cached: usize = world.status.informers().iter().map(|informer| informer.bytes).sum();
    assert_eq!(measured.cached_bytes, cached as u64);
    gate.add_permits(9);
    world.wait_journal("end east/ns/b@3").await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(work().unwrap().busy, Duration::from_secs(100), "nothing ran");
    world.hold("east", None);
    settle().await;
    assert_eq!(work(), None);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_past_its_deadline_cancels() {
    let (spec, _gate) = gated(1);
    let (world, _server, _list) = listed(vec![spec], 3, &["a"]).await;
    world.wait_entries(1).await;
    world.drain("east", 3, Duration::from_secs(30));
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert!(world.acknowledged().is_empty());
    world.wait_acknowledged("east/g/0/1@3").await;
    assert_eq!(world.journal(), ["start east/ns/a@3", "end east/ns/a@3"]);
}

#[tokio::test(start_paused = true)]
async fn a_drain_of_what_never_ran_is_acknowledged() {
    let world = World::start(vec![maps(idle)]);
    world.drain("nowhere", 8, Duration::from_secs(30));
    world.wait_acknowledged("nowhere/g/0/1@8").await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_shard_is_cancelled_at_once_and_a_regained_one_never_overlaps() {
    let (spec, gate) = gated(1);
    let (world, mut server, _list) = listed(vec![spec], 3, &["a"]).await;
    world.wait_entries(1).await;
    world.hold("east", None);
    world.wait_journal("end east/ns/a@3").await;
    // Lost and regained so quickly that only the epoch tells.
    world.hold_active("east", 5);
    let _second = server.expect(MAPS).await.list(5, &[config_map("a", 1)]);
    world.wait_journal("start east/ns/a@5").await;
    world.hold_active("east", 7);
    world.wait_journal("end east/ns/a@5").await;
    // What was cancelled held the cache until its end, so nothing had to be listed again.
    world.wait_journal("start east/ns/a@7").await;
    gate.add_permits(1);
    world.wait_journal("end east/ns/a@7").await;
    let expect = [3, 5, 7].map(|e| [format!("start east/ns/a@{e}"), format!("end east/ns/a@{e}")]);
    assert_eq!(world.journal(), expect.concat());
}

#[tokio::test(start_paused = true)]
async fn what_a_member_that_joins_again_gets_back_is_not_listed_anew() {
    let (world, mut server, list) = listed(vec![maps(idle)], 3, &["a"]).await;
    world.wait_journal("end east/ns/a@3").await;
    world.rejoin("m-2");
    server.quiet(Duration::from_secs(100)).await;
    world.hold_active("east", 4);
    world.wait_journal("end east/ns/a@4").await;
    server.quiet(Duration::from_secs(1)).await;
    drop(list);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn caches_that_are_not_needed_again_go_soon_after_a_member_has_shards() {
    let world = World::start(vec![maps(idle)]);
    let (mut east, mut west) = (world.engage("east", 1), world.engage("west", 1));
    world.hold_active("east", 3);
    let list = east.expect(MAPS).await.list(5, &[config_map("a", 1)]);
    world.wait_journal("end east/ns/a@3").await;
    world.rejoin("m-2");
    world.hold_active("west", 4);
    let _other = west.expect(MAPS).await.list(5, &[config_map("b", 1)]);
    world.wait_journal("end west/ns/b@4").await;
    let soon = tokio::time::timeout(Duration::from_secs(29), list.hung_up()).await;
    assert!(soon.is_err(), "it may come back");
    list.hung_up().await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_valid_lease_nothing_is_dispatched() {
    let (world, mut server) = holding(vec![maps(idle)], 3);
    world.lease(Duration::ZERO);
    let _list = server.expect(MAPS).await.list(5, &[config_map("a", 1)]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(world.journal().is_empty(), "the holding says should, the fence says may not");
    world.lease(Duration::from_secs(8));
    world.wait_journal("end east/ns/a@3").await;
}

#[tokio::test(start_paused = true)]
async fn no_line_of_a_reconcile_runs_after_its_lease() {
    let (wakes, lines) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (gate, count) = (Arc::clone(&wakes), Arc::clone(&lines));
    let world = World::start(vec![maps(move |_, _| {
        let (gate, count) = (Arc::clone(&gate), Arc::clone(&count));
        async move {
            gate.notified().await;
            count.fetch_add(1, Ordering::SeqCst);
            Ok(Action::Done)
        }
        .boxed()
    })]);
    let mut server = world.engage("east", 1);
    world.lease(Duration::from_secs(8));
    world.hold_active("east", 3);
    let _list = server.expect(MAPS).await.list(5, &[config_map("a", 1)]);
    world.wait_journal("start east/ns/a@3").await;
    // The process stands still. When it wakes, nobody has told the engine yet that the shard is lost.
    world.clock.suspend(Duration::from_secs(8));
    wakes.notify_one();
    world.wait_journal("end east/ns/a@3").await;
    assert_eq!(lines.load(Ordering::SeqCst), 0);
    // A renewal that was answered late makes the Lease valid again: the key is not lost.
    world.lease(Duration::from_secs(8));
    wakes.notify_one();
    world.wait_entries(4).await;
    assert_eq!(lines.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn another_kubeconfig_means_another_connection() {
    let (world, mut old, first) = listed(vec![maps(idle)], 3, &["a"]).await;
    world.wait_entries(2).await;
    let mut new = world.engage("east", 2);
    first.hung_up().await;
    let second = new.expect(MAPS).await.list(5, &[config_map("a", 2)]);
    world.wait_entries(4).await;
    old.quiet(Duration::from_secs(60)).await;
    world.disengage("east");
    second.hung_up().await;
    let mut back = world.engage("east", 3);
    let _third = back.expect(MAPS).await.list(5, &[config_map("a", 2)]);
    world.wait_entries(6).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_begins_during_a_drain_uses_the_new_kubeconfig() {
    let (low_names, high_names) = names(8);
    let (spec, gate) = gated(8);
    let world = World::start(vec![spec]);
    let mut old = world.engage("east", 1);
    world.hold_shards(&[(LOW, Some((1, Hold::Active))), (HIGH, Some((1, Hold::Active)))]);
    let list = old.expect(MAPS).await.list(5, &all(&low_names, 3));
    world.wait_entries(low_names.len()).await;
    world.drain_shard(LOW, 1);
    let mut new = world.engage("east", 2);
    // The other shard begins anew where the new kubeconfig leads.
    new.expect(&high("configmaps")).await.page(5, "", &all(&high_names, 4));
    gate.add_permits(100);
    world.wait_acknowledged(&format!("{LOW}@1")).await;
    settle().await;
    assert_eq!(reconciled(&world), set(&[low_names, high_names].concat()));
    world.hold_shards(&[(LOW, None)]);
    list.hung_up().await;
    old.quiet(Duration::from_secs(600)).await;
    world.stop().await;
}

/// Nobody may know the old token any more.
#[tokio::test(start_paused = true)]
async fn a_cluster_whose_new_kubeconfig_works_does_not_fail_by_what_drains() {
    let (low_names, high_names) = names(8);
    let (spec, gate) = gated(8);
    let world = World::start(vec![spec]);
    let mut old = world.engage("east", 1);
    world.hold_shards(&[(LOW, Some((1, Hold::Active))), (HIGH, Some((1, Hold::Active)))]);
    let list = old.expect(MAPS).await.list(5, &all(&low_names, 3));
    world.wait_entries(low_names.len()).await;
    world.drain_shard(LOW, 1);
    let mut new = world.engage("east", 2);
    new.expect(&high("configmaps")).await.page(5, "", &all(&high_names, 4));
    let _watch = new.asked().await.watch();
    list.broken();
    for _ in 0..3 {
        old.asked().await.refuse(401, "Unauthorized");
    }
    tokio::time::sleep(Duration::from_secs(40)).await;
    let failing = world.meter.failing();
    assert!(failing.is_empty(), "{failing:?}");
    gate.add_permits(100);
    world.wait_acknowledged(&format!("{LOW}@1")).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_stops_leaves_nothing_running() {
    let (spec, _gate) = gated(1);
    let (world, mut server) = holding(vec![spec], 3);
    let list = server.expect(MAPS).await.list(5, &[config_map("a", 1)]);
    world.wait_entries(1).await;
    let status = world.status.clone();
    world.stop().await;
    list.hung_up().await;
    assert_eq!((status.queues()[0].running, status.readiness().ready), (0, false));
}
