//! What is dispatched, when, and what each outcome leads to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use model::Hold;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::world::{MAPS, SECRETS, World, idle, listed, maps, run, settle};
use crate::{Action, Controller, ReconcileError, Selector, predicate};
use engine::testing::config_map;

fn secret(name: &str, version: u64, extra: &Value) -> Value {
    let mut metadata = json!({"namespace": "ns", "name": name, "uid": format!("uid-{name}"),
        "resourceVersion": version.to_string()});
    metadata.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
}

#[tokio::test(start_paused = true)]
async fn a_shard_fills_its_caches_warm_and_runs_when_active() {
    let world = World::start(vec![maps(idle)]);
    let mut server = world.engage("east", 1);
    server.quiet(Duration::from_secs(60)).await;
    world.hold("east", Some((4, Hold::Warming)));
    let list = server.expect(MAPS).await;
    settle().await;
    assert!(!world.status.readiness().ready);
    let list = list.list(5, &[config_map("a", 1), config_map("b", 2)]);
    settle().await;
    list.event("DELETED", &config_map("b", 6));
    settle().await;
    assert!(world.status.readiness().ready);
    assert!(world.journal().is_empty(), "warming dispatches nothing");
    world.hold_active("east", 4);
    world.wait_entries(4).await;
    let journal = world.journal();
    assert_eq!(journal[0], "start east/ns/b@4", "a change, the delete, comes before the rest");
    assert!(journal.contains(&"end east/ns/a@4".to_owned()), "{journal:?}");
    list.event("MODIFIED", &config_map("a", 7));
    world.wait_entries(6).await;
    let total =
        world.metric(r#"controller_runtime_reconcile_total{controller="maps",result="success"}"#);
    assert_eq!(total, "3");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_until_every_kind_has_synced() {
    let spec = Controller::for_kind::<ConfigMap>("maps").owns::<Secret>().reconciler(run(idle));
    let (world, mut server, maps) = listed(vec![spec], 1, &["a"]).await;
    let secrets = server.expect(SECRETS).await;
    settle().await;
    assert!(world.journal().is_empty());
    assert_eq!(world.status.readiness().waiting, ["east/Secret"]);
    secrets.refuse(403, "Forbidden");
    let secrets = server.expect(SECRETS).await;
    settle().await;
    let readiness = world.status.readiness();
    assert!(readiness.ready && readiness.failing[0].contains("403 Forbidden"), "{readiness:?}");
    let _secrets = secrets.list(6, &[]);
    world.wait_journal("end east/ns/a@1").await;
    drop(maps);
}

/// Runs one reconciler on one object, and gives the journal's length and some counters after a
/// while.
async fn outcome(
    result: impl Fn(u32) -> Result<Action, ReconcileError> + Send + Sync + 'static,
) -> (usize, Vec<String>) {
    let runs = AtomicU32::new(0);
    let spec = maps(move |_, _| {
        let result = result(runs.fetch_add(1, Ordering::Relaxed));
        std::future::ready(result).boxed()
    });
    let (world, _server, list) = listed(vec![spec], 1, &["a"]).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let counters = [
        r#"reconcile_total{controller="maps",result="success"}"#,
        r#"reconcile_total{controller="maps",result="requeue_after"}"#,
        r#"reconcile_total{controller="maps",result="requeue"}"#,
        r#"reconcile_total{controller="maps",result="error"}"#,
        r#"reconcile_errors_total{controller="maps"}"#,
        r#"terminal_reconcile_errors_total{controller="maps"}"#,
        r#"reconcile_panics_total{controller="maps"}"#,
    ];
    let counters = counters.map(|name| world.metric(&format!("controller_runtime_{name}")));
    let runs = world.journal().len() / 2;
    world.stop().await;
    drop(list);
    (runs, counters.to_vec())
}

#[tokio::test(start_paused = true)]
async fn results_decide_what_comes_next() {
    let failure = || std::io::Error::other("the test wants it");
    let (runs, counters) = outcome(|_| Ok(Action::Done)).await;
    assert_eq!((runs, counters.join(" ").as_str()), (1, "1 0 0 0 0 0 0"));
    let (runs, counters) = outcome(|_| Ok(Action::RequeueAfter(Duration::from_secs(4)))).await;
    assert_eq!((runs, counters.join(" ").as_str()), (3, "0 3 0 0 0 0 0"));
    let (runs, counters) = outcome(move |_| Err(ReconcileError::terminal(failure()))).await;
    assert_eq!((runs, counters.join(" ").as_str()), (1, "0 0 0 1 1 1 0"));
    // 5 ms doubling: the eleventh retry would come after 5.1 s more than the tenth.
    let (runs, counters) = outcome(move |_| Err(ReconcileError::transient(failure()))).await;
    assert_eq!((runs, counters.join(" ").as_str()), (11, "0 0 0 11 11 0 0"));
    let (runs, counters) = outcome(move |run| match run {
        0 => Err(ReconcileError::conflict(failure())),
        1 => panic!("the test wants it"),
        _ => Ok(Action::Done),
    })
    .await;
    assert_eq!((runs, counters.join(" ").as_str()), (3, "1 0 1 1 1 0 1"));
    let (runs, counters) = outcome(|run| match run {
        0 => Err(ReconcileError::terminal(PanicsWhenShown)),
        _ => Ok(Action::Done),
    })
    .await;
    assert_eq!((runs, counters.join(" ").as_str()), (2, "1 0 0 1 1 0 1"));
    // The longest delay there is, and none at all: a millisecond.
    let (runs, counters) = outcome(|_| Ok(Action::RequeueAfter(Duration::MAX))).await;
    assert_eq!((runs, counters.join(" ").as_str()), (1, "0 1 0 0 0 0 0"));
    let (runs, _) = outcome(|_| Ok(Action::RequeueAfter(Duration::ZERO))).await;
    assert!((100..=10_001).contains(&runs), "{runs} in ten seconds");
    for (delay, most) in [(Duration::MAX, 1), (Duration::ZERO, 10_001)] {
        let fail = move |_| Err(ReconcileError::transient(failure()).retry_after(delay));
        let (runs, _) = outcome(fail).await;
        assert!((1..=most).contains(&runs), "{runs} in ten seconds, with {delay:?}");
    }
}

/// An error with a defect.
#[derive(Debug)]
struct PanicsWhenShown;

impl std::fmt::Display for PanicsWhenShown {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("the test wants it")
    }
}

impl std::error::Error for PanicsWhenShown {}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_takes_too_long_is_cancelled_and_retried() {
    let spec = Controller::for_kind::<ConfigMap>("maps")
        .timeout(Duration::from_secs(3))
        .reconciler(run(|_, _| std::future::pending().boxed()));
    let (world, _server, _list) = listed(vec![spec], 1, &["a"]).await;
    world.wait_entries(5).await;
    let timeouts = r#"controller_runtime_reconcile_timeouts_total{controller="maps"}"#;
    assert_eq!(world.metric(timeouts), "2");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_hangs_delays_no_other() {
    let spec = Controller::for_kind::<ConfigMap>("maps").workers(1).reconciler(run(|ctx, _| {
        let stuck = ctx.cluster().as_str() == "east";
        async move {
            if stuck {
                std::future::pending::<()>().await;
            }
            Ok(Action::Done)
        }
        .boxed()
    }));
    let world = World::start(vec![spec]);
    let mut east = world.engage("east", 1);
    let mut west = world.engage("west", 1);
    let mut dead = world.engage("dead", 1);
    for cluster in ["east", "west", "dead"] {
        world.hold_active(cluster, 1);
    }
    let _dead = dead.expect(MAPS).await;
    let names = ["a", "b", "c"];
    let _east = east.expect(MAPS).await.list(5, &names.map(|name| config_map(name, 1)));
    world.wait_journal("start east/ns/a@1").await;
    let _west = west.expect(MAPS).await.list(5, &names.map(|name| config_map(name, 1)));
    world.wait_journal("end west/ns/c@1").await;
    let running = world.metric(r#"controller_runtime_active_workers{controller="maps"}"#);
    assert_eq!(running, "1", "one of east, which is all it gets");
    assert_eq!(world.status.queues()[0].clusters[&"east".parse().unwrap()], 2);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_changes_while_it_runs_runs_again_but_never_twice_at_once() {
    let gate = Arc::new(Notify::new());
    let opened = Arc::clone(&gate);
    let spec = maps(move |_, _| {
        let gate = Arc::clone(&gate);
        async move {
            gate.notified().await;
            Ok(Action::Done)
        }
        .boxed()
    });
    let (world, _server, list) = listed(vec![spec], 1, &["a"]).await;
    world.wait_entries(1).await;
    for version in 6..9 {
        list.event("MODIFIED", &config_map("a", version));
    }
    settle().await;
    assert_eq!(world.journal().len(), 1);
    opened.notify_one();
    world.wait_entries(3).await;
    opened.notify_one();
    world.wait_entries(4).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.journal().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn children_and_mappings_lead_to_the_object() {
    let spec = Controller::for_kind::<ConfigMap>("maps")
        .filter(|old, new| match (old, new) {
            (Some(old), Some(new)) => old.data != new.data,
            _ => true,
        })
        .owns_with::<Secret>(crate::Scope { labels: "own".parse().unwrap(), ..Default::default() })
        .watches_with::<Secret>(
            crate::Scope { labels: "map".parse().unwrap(), ..Default::default() },
            |secret, lookup| {
                let all = lookup.list::<ConfigMap>(Some("ns"), &Selector::all());
                let wanted = secret.metadata.labels.as_ref().and_then(|l| l.get("map")).cloned();
                assert_ne!(wanted.as_deref(), Some("panic"));
                all.iter()
                    .filter(|map| map.metadata.name == wanted)
                    .map(|map| (map.metadata.namespace.clone(), map.metadata.name.clone().unwrap()))
                    .collect()
            },
        )
        .reconciler(run(idle));
    let (world, mut server, maps) = listed(vec![spec], 1, &["a", "b"]).await;
    let labelled =
        |label: &str| SECRETS.replace("watch=true", &format!("watch=true&labelSelector={label}"));
    let owned = server.expect(&labelled("own")).await.list(5, &[]);
    let mapped = server.expect(&labelled("map")).await.list(5, &[]);
    world.wait_entries(4).await;

    let owner = |kind: &str, name: &str| {
        json!({"ownerReferences": [{"apiVersion": "v1", "kind": kind, "name": name,
            "uid": format!("uid-{name}"), "controller": true}]})
    };
    owned.event("ADDED", &secret("s", 6, &owner("ConfigMap", "a")));
    world.wait_entries(6).await;
    assert_eq!(world.journal()[4], "start east/ns/a@1");
    owned.event("ADDED", &secret("t", 7, &owner("Pod", "a")));
    // From a to b: both are told.
    owned.event("MODIFIED", &secret("s", 8, &owner("ConfigMap", "b")));
    world.wait_entries(10).await;
    owned.event("DELETED", &secret("s", 9, &owner("ConfigMap", "b")));
    world.wait_entries(12).await;

    mapped.event("ADDED", &secret("m", 10, &json!({"labels": {"map": "panic"}})));
    mapped.event("MODIFIED", &secret("m", 11, &json!({"labels": {"map": "b"}})));
    world.wait_entries(14).await;
    assert_eq!(world.journal()[12], "start east/ns/b@1", "the feed outlives a panic");

    let mut touched = config_map("a", 12);
    touched["data"]["version"] = "1".into();
    maps.event("MODIFIED", &touched);
    settle().await;
    assert_eq!(world.journal().len(), 14, "the predicate lets nothing through");
    maps.event("MODIFIED", &config_map("a", 13));
    world.wait_entries(16).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn controllers_share_the_informer_of_a_kind() {
    let other = Controller::for_kind::<Secret>("secrets")
        .watches::<ConfigMap>(|_, _| Vec::new())
        .predicate(predicate::generation_changed())
        .reconciler(super::world::Idle::<Secret>::default());
    let (world, mut server, list) = listed(vec![maps(idle), other], 1, &["a"]).await;
    let _secrets = server.expect(SECRETS).await.list(5, &[secret("s", 1, &json!({}))]);
    world.wait_entries(4).await;
    server.quiet(Duration::from_secs(60)).await;
    let informers = world.status.informers();
    let subscribers: Vec<_> = informers.iter().map(|i| (i.kind.as_str(), i.subscribers)).collect();
    assert_eq!(subscribers, [("ConfigMap", 2), ("Secret", 1)]);
    world.hold("east", None);
    list.hung_up().await;
    assert!(world.status.informers().is_empty());
}
