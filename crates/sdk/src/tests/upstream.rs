//! Clusters that fail, are overloaded or come back, and what that costs others.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::DeleteParams;
use model::{Clock, Moment, Workload};
use serde_json::{Value, json};
use tracing::{Level, Subscriber};
use tracing_subscriber::layer::{Context as LayerContext, Layer, SubscriberExt};

use model::testing::PausedClock;

use super::world::{World, run, settle};
use crate::{Action, Controller, ControllerSpec};
use engine::testing::{Asked, Server, Watch, config_map};
use engine::{LENT_AFTER, LISTED_KIB, STREAM_KIB};
use upstream::BreakerPhase;
use upstream::UpstreamLimits;

const REJECTED: &str = "leasehold_fence_rejected_writes_total";

/// A controller that writes once for each object, under its name.
fn writer() -> ControllerSpec {
    Controller::for_kind::<ConfigMap>("maps").workers(50).reconciler(run(|ctx, key| {
        async move {
            let api: Api<ConfigMap> = Api::namespaced(ctx.client(), "ns");
            api.delete(&key.name, &DeleteParams::default()).await?;
            Ok(Action::Done)
        }
        .boxed()
    }))
}

/// The same, in a task that the reconcile spawns and waits for: the fence does not keep that from running
/// on, only from writing.
fn spawning_writer() -> ControllerSpec {
    Controller::for_kind::<ConfigMap>("maps").reconciler(run(|ctx, key| {
        let (client, name) = (ctx.client(), key.name.clone());
        let write = async move {
            let api: Api<ConfigMap> = Api::namespaced(client, "ns");
            api.delete(&name, &DeleteParams::default()).await
        };
        tokio::spawn(write).map(|ended| Ok(ended.expect("no panic").map(|_| Action::Done)?)).boxed()
    }))
}

fn maps(count: usize) -> Vec<Value> {
    (0..count).map(|number| config_map(&format!("m{number}"), 1)).collect()
}

fn written(asked: Asked) {
    asked.answer(200, &json!({"kind": "Status", "status": "Success"}));
}

fn is_watch(asked: &Asked) -> bool {
    asked.line.contains("watch=true")
}

/// When requests came, and what they were.
type Log = Arc<Mutex<Vec<(Moment, String)>>>;

/// Makes a server answer every request with `answer`. Watches that it returns stay open.
fn play(
    mut server: Server,
    clock: &Arc<PausedClock>,
    mut answer: impl FnMut(Asked) -> Option<Watch> + Send + 'static,
) -> Log {
    let log = Log::default();
    let (noted, clock) = (Arc::clone(&log), Arc::clone(clock));
    tokio::spawn(async move {
        let mut watches = Vec::new();
        while let Some(asked) = server.next().await {
            noted.lock().unwrap().push((clock.now(), asked.line.clone()));
            watches.extend(answer(asked));
        }
    });
    log
}

/// A cluster with this many objects, where everything works.
fn healthy(server: Server, clock: &Arc<PausedClock>, count: usize) -> Log {
    play(server, clock, move |asked| {
        if is_watch(&asked) {
            return Some(asked.list(5, &maps(count)));
        }
        written(asked);
        None
    })
}

/// A cluster that lists this many objects and answers nothing after that.
fn dead(server: Server, clock: &Arc<PausedClock>, count: usize) -> Log {
    let mut listed = false;
    play(server, clock, move |asked| {
        if !std::mem::replace(&mut listed, true) {
            return Some(asked.list(5, &maps(count)));
        }
        asked.drop_connection();
        None
    })
}

/// A world whose cluster has so many keys, in a shard of this epoch, and is left alone because it is dead.
async fn left_alone(keys: usize, epoch: u64) -> World {
    let world = World::start(vec![writer()]);
    dead(world.engage("east", 1), &world.clock, keys);
    world.hold_active("east", epoch);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.status.upstreams()[0].breaker, BreakerPhase::Open);
    world
}

/// Counts warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl<S: Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &tracing::Event<'_>, _: LayerContext<'_, S>) {
        if *event.metadata().level() <= Level::WARN {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_many_first_lists_some_are_under_way_at_once_and_dead_clusters_hold_up_none() {
    let many = LISTED_KIB / STREAM_KIB as usize + 44;
    let world = World::start(vec![writer()]);
    let mut servers: Vec<_> = (0..many).map(|n| world.engage(&format!("c{n}"), 1)).collect();
    for n in 0..many {
        world.hold_active(&format!("c{n}"), 1);
    }
    settle().await;
    let mut asked = || -> Vec<(String, Asked)> {
        let asked = servers.iter_mut().enumerate().filter_map(|(n, server)| {
            let asked = tokio::task::unconstrained(server.next()).now_or_never();
            Some((format!("c{n}"), asked??))
        });
        asked.collect()
    };
    let mut first = asked();
    assert_eq!(first.len(), many - 44);
    // One list ends, so the next begins.
    let _done = first.remove(0).1.list(5, &maps(1));
    settle().await;
    let watches = |asked: &[(String, Asked)]| asked.iter().filter(|(_, a)| is_watch(a)).count();
    let second = asked();
    assert_eq!(watches(&second), 1);
    // The others do not answer.
    tokio::time::sleep(LENT_AFTER).await;
    settle().await;
    let third = asked();
    assert_eq!(watches(&third), 43);
    // A late answer is still used.
    let (late, answer) = first.remove(0);
    let _late = answer.list(5, &maps(1));
    settle().await;
    let informers = world.status.informers();
    let late = informers.iter().find(|informer| informer.cluster.as_str() == late);
    assert!(late.is_some_and(|informer| informer.synced), "{late:?}");
    world.stop().await;
}

/// Fewer keys of all clusters run at once when writes have become slow, not where a cluster is far away.
#[tokio::test(start_paused = true)]
async fn writes_that_become_slow_lower_the_limit_of_all_clusters() {
    for (first_ms, expect) in [(10, "32"), (400, "128")] {
        let world = World::start(vec![writer()]);
        let mut is_first = true;
        play(world.engage("east", 1), &world.clock, move |asked| {
            if is_watch(&asked) {
                return Some(asked.list(5, &maps(400)));
            }
            let ms = if std::mem::take(&mut is_first) { first_ms } else { 400 };
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                written(asked);
            });
            None
        });
        world.hold_active("east", 1);
        tokio::time::sleep(Duration::from_secs(300)).await;
        let reconciled =
            r#"controller_runtime_reconcile_total{controller="maps",result="success"}"#;
        assert_eq!(world.metric(reconciled), "400");
        let limit = world.metric(r#"leasehold_queue_concurrency_limit{controller="maps"}"#);
        assert_eq!(limit, expect, "the first answer came after {first_ms} ms");
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_cluster_delays_no_other_and_is_reported_once() {
    let warnings = Warnings::default();
    let subscriber = tracing_subscriber::registry().with(warnings.clone());
    let _guard = tracing::subscriber::set_default(subscriber);
    let world = World::start(vec![writer()]);
    let clock = Arc::clone(&world.clock);
    let (east, west) = (world.engage("east", 1), world.engage("west", 1));
    let (east, west) = (dead(east, &clock, 20), healthy(west, &clock, 20));
    world.hold_active("east", 1);
    world.hold_active("west", 1);
    settle().await;
    assert_eq!(west.lock().unwrap().len(), 21, "a list, and all the writes");
    let done = |entry: &String| entry.starts_with("end west");
    assert_eq!(world.journal().iter().filter(|entry| done(entry)).count(), 20);

    tokio::time::sleep(Duration::from_secs(60)).await;
    let [east_status, west_status] = &world.status.upstreams()[..] else { panic!() };
    assert_eq!(east_status.breaker, BreakerPhase::Open);
    assert!(east_status.cause.as_ref().unwrap().ends_with("connection reset"), "{east_status:?}");
    assert_eq!((west_status.breaker, &west_status.cause), (BreakerPhase::Closed, &None));
    let failing = world.meter.failing();
    let failing: Vec<_> = failing.iter().map(|(name, why)| (name.as_str(), &**why)).collect();
    assert!(matches!(failing[..], [("east", why)] if why.ends_with("connection reset")));
    let breaker = |cluster| {
        world.metric(&format!("leasehold_cluster_breaker_state{{cluster=\"{cluster}\"}}"))
    };
    assert_eq!((breaker("east"), breaker("west")), ("2".to_owned(), "0".to_owned()));

    let (asked, told) = (east.lock().unwrap().len(), warnings.0.load(Ordering::Relaxed));
    let tried = world.journal().len();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let probes = east.lock().unwrap().len() - asked;
    assert!((1..=4).contains(&probes), "{probes} in a minute, of pauses of 15 s to 30 s");
    assert!(world.journal().len() >= tried + 20, "meanwhile its keys were tried");
    let repeated = warnings.0.load(Ordering::Relaxed) - told;
    assert!(repeated <= probes, "{repeated} warnings: at most a key's that was the probe");

    // A shard that comes while it is left alone does not keep the replica from being ready.
    world.hold("east", None);
    settle().await;
    world.hold_active("east", 2);
    settle().await;
    let readiness = world.status.readiness();
    assert!(readiness.ready, "{readiness:?}");
    assert!(readiness.failing[0].ends_with("connection reset"), "{readiness:?}");
    world.stop().await;
}

/// Each run takes CPU that the others need.
#[tokio::test(start_paused = true)]
async fn the_keys_of_a_cluster_that_is_left_alone_do_not_come_back_all_at_once() {
    let world = left_alone(500, 1).await;
    let held_back =
        r#"controller_runtime_reconcile_total{controller="maps",result="requeue_after"}"#;
    let runs = || world.metric(held_back).parse::<usize>().unwrap();
    let (began, mut before, mut most) = (runs(), runs(), 0_usize);
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = runs();
        (most, before) = (most.max(now - before), now);
    }
    assert!(before >= began + 500, "they are tried");
    assert!(most < 200, "{most} of 500 in a tenth of a second");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_asks_for_a_pause_gets_it_and_everything_in_the_end() {
    let world = World::start(vec![writer()]);
    let clock = Arc::clone(&world.clock);
    let (east, west) = (world.engage("east", 1), world.engage("west", 1));
    let refusals = Arc::new(Mutex::new(Vec::new()));
    let (noted, at) = (Arc::clone(&refusals), Arc::clone(&clock));
    let east = play(east, &clock, move |asked| {
        if is_watch(&asked) {
            return Some(asked.list(5, &maps(40)));
        }
        let mut refusals = noted.lock().unwrap();
        if refusals.len() < 30 {
            refusals.push(at.now());
            asked.throttle(3);
        } else {
            written(asked);
        }
        None
    });
    let _west = healthy(west, &clock, 40);
    world.hold_active("east", 1);
    world.hold_active("west", 1);
    settle().await;
    let done = |cluster: &str| {
        let end = format!("end {cluster}");
        world.journal().iter().filter(|entry| entry.starts_with(&end)).count()
    };
    assert_eq!(done("west"), 40, "at once");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let refusals = refusals.lock().unwrap().clone();
    assert_eq!(refusals.len(), 30);
    for (came, line) in east.lock().unwrap().iter() {
        let early = refusals
            .iter()
            .find(|&&refused| *came > refused && *came < refused + Duration::from_secs(3));
        assert_eq!(early, None, "{line} came at {came:?}");
    }
    let names: BTreeSet<_> = east.lock().unwrap().iter().map(|(_, line)| line.clone()).collect();
    assert_eq!(names.len(), 41, "each of them was written");
    let success =
        world.metric(r#"controller_runtime_reconcile_total{controller="maps",result="success"}"#);
    assert_eq!(success, "80");
    let waits = r#"rest_client_rate_limiter_duration_seconds_count{host="clusters",verb="DELETE"}"#;
    assert_eq!(
        world.metric(waits),
        "110",
        "30 refused and 40 done in one cluster, 40 in the other"
    );
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_back_is_probed_by_one_and_then_not_run_over() {
    let world = World::start(vec![writer()]);
    let clock = Arc::clone(&world.clock);
    let server = world.engage("east", 1);
    let back = Arc::new(AtomicBool::new(false));
    let healed = Arc::clone(&back);
    let (under_way, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (counted, peaks, at) = (Arc::clone(&under_way), Arc::clone(&most), Arc::clone(&clock));
    let mut listed = false;
    let log = play(server, &clock, move |asked| {
        if !std::mem::replace(&mut listed, true) {
            // The stream breaks at once, so the informer has to ask again as well.
            asked.list(5, &maps(200)).broken();
        } else if !healed.load(Ordering::Relaxed) {
            asked.drop_connection();
        } else {
            let (counted, at) = (Arc::clone(&counted), at.now());
            peaks.lock().unwrap().push((at, counted.fetch_add(1, Ordering::Relaxed) + 1));
            if is_watch(&asked) {
                counted.fetch_sub(1, Ordering::Relaxed);
                return Some(asked.watch());
            }
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(10)).await;
                counted.fetch_sub(1, Ordering::Relaxed);
                written(asked);
            });
        }
        None
    });
    world.hold_active("east", 1);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(world.status.upstreams()[0].breaker, BreakerPhase::Open);
    let outage = log.lock().unwrap().len();
    assert!(outage < 60, "{outage} requests of 200 keys in 100 s");
    back.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.status.upstreams()[0].breaker, BreakerPhase::Closed);
    let names = log.lock().unwrap()[outage..].iter().map(|(_, line)| line.clone()).collect();
    let names: BTreeSet<String> = names;
    assert_eq!(names.iter().filter(|line| line.starts_with("DELETE")).count(), 200);
    assert!(names.iter().any(|line| line.contains("watch=true")), "and the watch is back");
    // Each round of 10 ms has one more than that before it.
    let peaks = most.lock().unwrap().clone();
    let (began, first) = peaks[0];
    assert_eq!(first, 1);
    for (when, count) in peaks {
        let rounds = usize::try_from(when.since(began).as_millis() / 10).unwrap();
        assert!(count <= 2 + rounds, "{count} at once after {rounds} rounds");
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_has_begun_takes_no_place_among_the_requests_at_once() {
    let limits = UpstreamLimits { max_concurrency: 1, ..UpstreamLimits::default() };
    let world = World::start_with(limits, vec![writer()]);
    let clock = Arc::clone(&world.clock);
    let under_way = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let peak = Arc::clone(&most);
    let log = play(world.engage("east", 1), &clock, move |asked| {
        if is_watch(&asked) {
            return Some(asked.list(5, &maps(20)));
        }
        let under_way = Arc::clone(&under_way);
        peak.fetch_max(under_way.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            under_way.fetch_sub(1, Ordering::Relaxed);
            written(asked);
        });
        None
    });
    world.hold_active("east", 1);
    world.wait_entries(40).await;
    assert_eq!((log.lock().unwrap().len(), most.load(Ordering::Relaxed)), (21, 1));
    let limit = world.metric(r#"leasehold_cluster_concurrency_limit{cluster="east"}"#);
    assert_eq!(limit, "1");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn leaving_does_not_wait_for_a_cluster_that_is_left_alone() {
    let world = left_alone(20, 3).await;
    let clock = Arc::clone(&world.clock);
    let began = clock.now();
    world.drain("east", 3, Duration::from_secs(30));
    world.wait_acknowledged("east/g/0/1@3").await;
    assert!(clock.now().since(began) < Duration::from_millis(10), "{:?}", clock.now());
    world.stop().await;
}

/// A cluster with one object that answers its first write with a demand for a pause.
async fn paused(world: &World) -> Server {
    let mut server = world.engage("east", 1);
    world.hold_active("east", 3);
    let list = server.asked().await.list(5, &maps(1));
    server.asked().await.throttle(4);
    // The list stays open for as long as the test lasts.
    tokio::spawn(async move { list.hung_up().await });
    world.wait_entries(3).await;
    server
}

#[tokio::test(start_paused = true)]
async fn a_write_that_waits_for_its_turn_holds_up_no_drain() {
    let world = World::start(vec![writer()]);
    let _server = paused(&world).await;
    assert_eq!(world.status.upstreams()[0].waiting, 1);
    let began = world.clock.now();
    world.drain("east", 3, Duration::from_secs(1));
    world.wait_acknowledged("east/g/0/1@3").await;
    assert!(world.clock.now().since(began) < Duration::from_millis(1010));
    assert_eq!(world.status.upstreams()[0].waiting, 0);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_permitted_before_a_wait_is_asked_again_after_it() {
    let world = World::start(vec![spawning_writer()]);
    let mut server = paused(&world).await;
    assert_eq!(world.metric(REJECTED), "0");
    world.lease(Duration::ZERO);
    server.quiet(Duration::from_secs(20)).await;
    assert_eq!(world.metric(REJECTED), "1");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_write_waits_no_longer_than_the_lease_is_valid() {
    let world = World::start(vec![writer()]);
    let mut server = paused(&world).await;
    // The one that waits was permitted for long. It is refused in its turn; the next one is not.
    server.asked().await.throttle(4);
    world.lease(Duration::from_millis(2500));
    let began = world.clock.now();
    world.wait_entries(6).await;
    let took = world.clock.now().since(began);
    assert!(took <= Duration::from_millis(2501), "{took:?}, and its turn would come after 4 s");
    assert!(took > Duration::from_secs(2), "{took:?}");
    server.quiet(Duration::from_secs(20)).await;
    world.stop().await;
}
