//! When a key runs again, and at which priority: rate limiter, retry-after, priorities and periodic
//! resync.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use model::{Clock, Hold, Moment};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::world::{MAPS, SECRETS, World, holding, idle, listed, run, settle};
use crate::{Action, Controller, Priority, RateLimiter, ReconcileError, Watch, mapping};
use engine::testing::{Server, Watch as Stream, config_map};
use model::testing::PausedClock;

fn maps() -> Controller<ConfigMap> {
    Controller::for_kind::<ConfigMap>("maps")
}

/// The milliseconds between the runs of one object within a minute, for the outcome of each run.
async fn delays(
    controller: Controller<ConfigMap>,
    outcome: impl Fn(u32) -> Result<Action, ReconcileError> + Send + Sync + 'static,
) -> Vec<u128> {
    let (runs, times) = (AtomicU32::new(0), Arc::new(Mutex::new(Vec::new())));
    let noted = Arc::clone(&times);
    let clock = PausedClock::new();
    let world = World::start(vec![controller.reconciler(run(move |_, _| {
        noted.lock().unwrap().push(clock.now());
        let outcome = outcome(runs.fetch_add(1, Ordering::Relaxed));
        std::future::ready(outcome).boxed()
    }))]);
    let mut server = world.engage("east", 1);
    world.hold_active("east", 1);
    let _list = server.expect(MAPS).await.list(5, &[config_map("a", 1)]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.stop().await;
    let times = times.lock().unwrap();
    times.windows(2).map(|pair| pair[1].since(pair[0]).as_millis()).collect()
}

fn failure() -> std::io::Error {
    std::io::Error::other("the test wants it")
}

#[tokio::test(start_paused = true)]
async fn a_controller_has_the_backoff_that_it_asks_for() {
    let limiter = RateLimiter::exponential(Duration::from_secs(2), Duration::from_secs(10));
    let fail = |_| Err(ReconcileError::transient(failure()));
    let delays = delays(maps().rate_limiter(limiter.with_jitter(0.0)), fail).await;
    assert_eq!(delays, [2_000, 4_000, 8_000, 10_000, 10_000, 10_000, 10_000]);
}

#[tokio::test(start_paused = true)]
async fn an_error_says_when_to_retry() {
    let limiter = RateLimiter::exponential(Duration::from_secs(1), Duration::from_secs(100));
    let delays = delays(maps().rate_limiter(limiter.with_jitter(0.0)), |run| {
        Err(match run {
            0 => ReconcileError::transient(failure()).retry_after(Duration::from_secs(20)),
            // The second failure in a row.
            1 => ReconcileError::transient(failure()),
            2 => ReconcileError::conflict(failure()).retry_after(Duration::from_millis(300)),
            3 => ReconcileError::conflict(failure()),
            _ => ReconcileError::terminal(failure()).retry_after(Duration::from_millis(1)),
        })
    });
    assert_eq!(delays.await, [20_000, 2_000, 300, 8_000], "a terminal error is not retried");
}

fn secret(name: &str, version: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "ns", "name": name,
        "uid": format!("uid-{name}"), "resourceVersion": version.to_string()}})
}

/// Ready keys by priority.
fn depth(world: &World) -> [String; 4] {
    ["0", "-10", "-50", "-100"].map(|priority| {
        let labels = format!(r#"{{controller="maps",name="maps",priority="{priority}"}}"#);
        world.metric(&format!("workqueue_depth{labels}"))
    })
}

#[tokio::test(start_paused = true)]
async fn changes_have_the_priority_of_their_source() {
    let (gate, open) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (waits, opened) = (Arc::clone(&gate), Arc::clone(&open));
    let spec = maps()
        .priority(Priority::Retry)
        .watches_with(Watch::<Secret>::all().priority(Priority::Initial), mapping::namesake())
        .requeue_priority(Priority::Change)
        .workers(1)
        .reconciler(run(move |_, key| {
            let (waits, opened) = (Arc::clone(&waits), Arc::clone(&opened));
            let blocks = &*key.name == "a";
            async move {
                if blocks {
                    opened.notify_one();
                    waits.notified().await;
                }
                Ok(Action::RequeueAfter(Duration::from_secs(10)))
            }
            .boxed()
        }));
    let (world, mut server) = holding(vec![spec], 1);
    let names = ["a", "b", "c"];
    let maps = server.expect(MAPS).await.list(5, &names.map(|name| config_map(name, 1)));
    let secrets = server.expect(SECRETS).await.list(5, &[]);
    open.notified().await;
    gate.notify_one();
    // All have run; the first blocks the only worker again.
    tokio::time::sleep(Duration::from_secs(5)).await;
    maps.event("MODIFIED", &config_map("a", 6));
    open.notified().await;
    assert_eq!(depth(&world), ["0", "0", "0", "0"]);
    maps.event("MODIFIED", &config_map("b", 7));
    secrets.event("ADDED", &secret("c", 8));
    settle().await;
    assert_eq!(depth(&world), ["0", "1", "0", "1"]);
    // They are due to be requeued.
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(depth(&world), ["2", "0", "0", "0"]);
    world.stop().await;
}

/// When each object of a world was reconciled.
type Runs = Arc<Mutex<BTreeMap<String, Vec<Moment>>>>;

/// A world of 40 objects that are reconciled again each minute, and the runs since it was opened.
async fn resynced(shards: &[&'static str]) -> (World, (Server, Stream), Runs) {
    let runs = Runs::default();
    let (noted, clock) = (Arc::clone(&runs), PausedClock::new());
    let spec = maps().resync_every(Duration::from_secs(60)).reconciler(run(move |_, key| {
        noted.lock().unwrap().entry(key.name.to_string()).or_default().push(clock.now());
        std::future::ready(Ok(Action::Done)).boxed()
    }));
    let world = World::start(vec![spec]);
    let mut server = world.engage("east", 1);
    let active = |shard: &&'static str| (*shard, Some((1, Hold::Active)));
    world.hold_shards(&shards.iter().map(active).collect::<Vec<_>>());
    let objects: Vec<_> = (0..40).map(|n| config_map(&format!("o{n}"), 1)).collect();
    let list = server.asked().await.list(5, &objects);
    world.wait_entries(80).await;
    runs.lock().unwrap().clear();
    (world, (server, list), runs)
}

#[tokio::test(start_paused = true)]
async fn a_resync_reconciles_every_object_about_once_in_an_interval() {
    for shards in [&["east/g/0/1"][..], &["east/g/0/2", "east/g/1/2"]] {
        let (world, (mut server, _list), runs) = resynced(shards).await;
        // Nothing is listed. Later the watch is opened again, as it is now and then.
        server.quiet(Duration::from_secs(2 * 60)).await;
        tokio::time::sleep(Duration::from_secs(18 * 60)).await;
        let runs = runs.lock().unwrap().clone();
        assert_eq!(runs.len(), 40);
        for (name, times) in &runs {
            assert!((17..=22).contains(&times.len()), "{name} ran {} times", times.len());
            for pair in times.windows(2) {
                let apart = pair[1].since(pair[0]).as_secs();
                assert!((45..=80).contains(&apart), "{name} again after {apart} s");
            }
        }
        // Spread over the interval: a quarter of a minute has about a quarter of the runs.
        let mut quarters = BTreeMap::<u64, usize>::new();
        for time in runs.values().flatten() {
            *quarters.entry(time.since_origin().as_secs() / 15).or_default() += 1;
        }
        let busiest = quarters.values().max().unwrap();
        assert!(*busiest <= 20, "{busiest} of 40 within 15 s");
        world.stop().await;
    }
}

/// However many shards are held, the objects of a cluster are walked once.
#[test]
fn the_shards_of_a_cluster_share_a_resync() {
    let tasks = |shards: &[&'static str]| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (world, _server, _runs) = resynced(shards).await;
            settle().await;
            let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
            world.stop().await;
            tasks
        })
    };
    let quarters = ["east/g/0/4", "east/g/1/4", "east/g/2/4", "east/g/3/4"];
    assert_eq!(tasks(&quarters), tasks(&["east/g/0/1"]));
}

#[tokio::test(start_paused = true)]
async fn a_resync_ends_with_its_shard() {
    let (world, _server, runs) = resynced(&["east/g/0/1"]).await;
    world.drain_shard("east/g/0/1", 1);
    world.wait_acknowledged("east/g/0/1@1").await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(runs.lock().unwrap().is_empty(), "a shard that is drained runs nothing");
    world.hold("east", None);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(runs.lock().unwrap().is_empty(), "nor does one that is gone");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_resync_has_its_own_priority() {
    let open = Arc::new(Notify::new());
    let opened = Arc::clone(&open);
    let controller = maps().workers(1).timeout(Duration::from_secs(600));
    let spec = controller.resync_every(Duration::from_secs(60)).reconciler(run(move |_, _| {
        let opened = Arc::clone(&opened);
        async move {
            opened.notified().await;
            Ok(Action::Done)
        }
        .boxed()
    }));
    let (world, _server, _list) = listed(vec![spec], 1, &["a", "b"]).await;
    world.wait_entries(1).await;
    // One waits for its first run, which is raised; one runs, and must run again.
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert_eq!(depth(&world), ["0", "0", "1", "0"]);
    open.notify_one();
    world.wait_entries(3).await;
    assert_eq!(depth(&world), ["0", "0", "1", "0"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_resync_nothing_runs_again() {
    let (world, _server, _list) = listed(vec![maps().reconciler(run(idle))], 1, &["a"]).await;
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    assert_eq!(world.journal().len(), 2);
    world.stop().await;
}
