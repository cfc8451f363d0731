//! Controllers of scope Fleet: reconciles that read and write in other clusters.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use model::Hold;
use tokio::sync::{Mutex, mpsc, watch};

use super::world::{MAPS, World, listed, maps, run, settle};
use crate::{
    Action, ClusterName, Context, Controller, ControllerSpec, FencedError, GroupScope,
    ReconcileError, RetryClass,
};
use engine::testing::{PATIENCE, Server, Watch, config_map};

const PUT: &str = "PUT /api/v1/namespaces/ns/configmaps/a timeout=30000ms";
const EAST: &str = "east/g/0/1";
const WEST: &str = "west/g/0/1";

fn cluster(name: &str) -> ClusterName {
    name.parse().unwrap()
}

/// Replaces `a` in the cluster of a context as the cache there has it.
async fn replace(ctx: &Context) -> Result<(), ReconcileError> {
    let map = ctx.get::<ConfigMap>(Some("ns"), "a")?.ok_or_else(|| {
        ReconcileError::terminal(std::io::Error::other("the cache has no such object"))
    })?;
    let api: Api<ConfigMap> = Api::namespaced(ctx.client(), "ns");
    api.replace("a", &PostParams::default(), &map).await?;
    Ok(())
}

/// What the fence said, if it is in the causes of an error.
fn fenced(error: &ReconcileError) -> Option<&FencedError> {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if let Some(kube::Error::Service(service)) = error.downcast_ref() {
            return service.downcast_ref();
        }
        source = error.source();
    }
    None
}

/// The two clusters, each with an object `a`, of which the test holds the shards.
struct Stage {
    world: World,
    east: (Server, Watch),
    west: (Server, Watch),
}

impl Stage {
    async fn start(spec: ControllerSpec) -> Self {
        let world = World::start(vec![spec]);
        let (mut east, mut west) = (world.engage("east", 1), world.engage("west", 1));
        let active = |epoch| Some((epoch, Hold::Active));
        world.hold_shards(&[(WEST, active(7)), (EAST, active(3))]);
        let in_west = west.expect(MAPS).await.list(5, &[config_map("a", 4)]);
        world.wait_journal("end west/ns/a@7").await;
        let in_east = east.expect(MAPS).await.list(5, &[config_map("a", 1)]);
        world.wait_journal("start east/ns/a@3").await;
        Self { world, east: (east, in_east), west: (west, in_west) }
    }
}

/// A controller that replaces west's object for each key of the east.
fn replacer() -> ControllerSpec {
    let reconciler = run(|ctx, key| {
        async move {
            if key.cluster.as_str() == "east" {
                assert_eq!(ctx.clusters(), ["east", "west"].map(cluster));
                let west = ctx.in_cluster(&cluster("west"))?;
                assert_eq!(
                    (west.cluster(), &west.key().cluster),
                    (&cluster("west"), ctx.cluster())
                );
                replace(&west).await?;
                // And back again, which is no visit.
                assert_eq!(west.in_cluster(&key.cluster)?.epoch(), ctx.epoch());
            }
            Ok(Action::Done)
        }
        .boxed()
    });
    let spec = Controller::for_kind::<ConfigMap>("maps").group_scope(GroupScope::Fleet);
    spec.reconciler(reconciler)
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_writes_in_another_cluster_and_reads_there_what_it_wrote() {
    let Stage { world, east: (_east, in_east), west: (mut west, in_west) } =
        Stage::start(replacer()).await;
    let put = west.expect(PUT).await;
    let agent = put.request.headers["user-agent"].to_str().unwrap().to_owned();
    assert!(agent.ends_with("(member=m-1; shard=west/g/0/1; epoch=7; key=ns/a)"), "{agent}");
    assert_eq!(put.body["data"]["version"], "4", "it reads the other cluster's cache");
    put.answer(200, &config_map("a", 9));
    world.wait_journal("end east/ns/a@3").await;
    in_east.event("MODIFIED", &config_map("a", 6));
    west.quiet(Duration::from_secs(5)).await;
    in_west.event("MODIFIED", &config_map("a", 9));
    let put = west.expect(PUT).await;
    assert_eq!(put.body["data"]["version"], "9", "the next run waited for its cache");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_not_at_hand_is_refused_until_it_is() {
    let (told, mut refusals) = watch::channel(Vec::new());
    let visit = move |scope| {
        let told = told.clone();
        let reconciler = run(move |ctx, _| {
            let told = told.clone();
            async move {
                let error = match ctx.in_cluster(&cluster("west")) {
                    Ok(_) => return Ok(Action::Done),
                    Err(error) => error,
                };
                let text = model::error::chain(&error);
                told.send_modify(|all| all.push((error.class(), text)));
                Err(error)
            }
            .boxed()
        });
        Controller::for_kind::<ConfigMap>("maps").group_scope(scope).reconciler(reconciler)
    };

    let (world, _server, _list) = listed(vec![visit(GroupScope::Cluster)], 3, &["a"]).await;
    world.wait_journal("end east/ns/a@3").await;
    let (class, text) = refusals.borrow_and_update().last().cloned().unwrap();
    assert!(class == RetryClass::Terminal && text.contains("scope Fleet"), "{class:?} {text}");
    world.stop().await;

    let (world, _server, _list) = listed(vec![visit(GroupScope::Fleet)], 3, &["a"]).await;
    let mut next = async |expect: &str| {
        let expected = |all: &Vec<(RetryClass, String)>| {
            let last = all.last().map(|(class, text)| (*class, text.contains(expect)));
            last == Some((RetryClass::Transient, true))
        };
        drop(refusals.wait_for(expected).await.unwrap());
    };
    next("does not hold the shard of group g there").await;
    let mut west = world.engage("west", 1);
    world.hold_active("west", 7);
    let in_west = west.expect(MAPS).await;
    next("its caches are being filled").await;
    let _west = in_west.list(5, &[]);
    settle().await;
    world.wait_journal("end east/ns/a@3").await;
    let before =
        world.metric(r#"controller_runtime_reconcile_total{controller="maps",result="success"}"#);
    assert_eq!(before, "0");
    tokio::time::sleep(Duration::from_secs(2000)).await;
    let after =
        world.metric(r#"controller_runtime_reconcile_total{controller="maps",result="success"}"#);
    assert_eq!(after, "1", "the retry finds it");
    world.stop().await;
}

/// A controller whose run for the east's key does what the test says: `write`, `visit again` or `end`.
/// Tells how each went.
fn puppet() -> (ControllerSpec, mpsc::Sender<&'static str>, watch::Receiver<Vec<String>>) {
    let (say, said) = mpsc::channel(9);
    let said = Arc::new(Mutex::new(said));
    let (told, results) = watch::channel(Vec::new());
    let reconciler = run(move |ctx, key| {
        let (said, told) = (Arc::clone(&said), told.clone());
        async move {
            if key.cluster.as_str() == "west" {
                return Ok(Action::Done);
            }
            let west = ctx.in_cluster(&cluster("west"))?;
            let mut said = said.lock().await;
            while let Some(word) = said.recv().await {
                let result = match word {
                    "write" => replace(&west).await,
                    "visit again" => ctx.in_cluster(&cluster("west")).map(drop),
                    _ => return Ok(Action::Done),
                };
                let text = match result {
                    Ok(()) => "done".to_owned(),
                    Err(error) if fenced(&error).is_some() => model::error::chain(&error),
                    Err(error) => format!("{error:?}"),
                };
                told.send_modify(|all| all.push(text));
            }
            Ok(Action::Done)
        }
        .boxed()
    });
    let spec = Controller::for_kind::<ConfigMap>("maps")
        .group_scope(GroupScope::Fleet)
        .timeout(Duration::from_secs(36_000))
        .reconciler(reconciler);
    (spec, say, results)
}

async fn told(results: &mut watch::Receiver<Vec<String>>, count: usize, expect: &str) {
    let waiting = results.wait_for(|all| all.len() >= count);
    let all = tokio::time::timeout(PATIENCE, waiting).await.expect("it is told").unwrap();
    assert!(all[count - 1].contains(expect), "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn a_write_needs_the_shards_of_both_clusters() {
    let (spec, say, mut results) = puppet();
    let Stage { world, east: _east, west: (mut west, _in_west) } = Stage::start(spec).await;
    say.send("write").await.unwrap();
    west.expect(PUT).await.answer(200, &config_map("a", 4));
    told(&mut results, 1, "done").await;

    // Lost there, while it is held here.
    world.hold("west", None);
    say.send("write").await.unwrap();
    told(&mut results, 2, "was not sent: shard west/g/0/1 is fenced").await;
    // Regained: this run began with the shard as it was.
    world.hold_active("west", 9);
    world.wait_journal("end west/ns/a@9").await;
    say.send("write").await.unwrap();
    told(&mut results, 3, "was not sent: shard west/g/0/1 is fenced").await;
    say.send("end").await.unwrap();
    world.wait_journal("end east/ns/a@3").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_its_own_shard_a_reconcile_writes_nowhere() {
    let (spec, say, _results) = puppet();
    let Stage { world, east: _east, west: (mut west, _in_west) } = Stage::start(spec).await;
    // The fence knows before anybody is cancelled.
    world.lease(Duration::ZERO);
    say.send("write").await.unwrap();
    world.wait_journal("end east/ns/a@3").await;
    world.lease(Duration::from_secs(900));
    world.hold("east", None);
    west.quiet(Duration::from_secs(60)).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_reconciles_of_other_clusters_that_work_there() {
    let (spec, say, mut results) = puppet();
    let Stage { world, east: _east, west: (mut west, _in_west) } = Stage::start(spec).await;
    settle().await;
    world.drain("west", 7, Duration::from_secs(600));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(world.acknowledged().is_empty(), "a reconcile of the east works there");
    say.send("write").await.unwrap();
    west.expect(PUT).await.answer(200, &config_map("a", 4));
    told(&mut results, 1, "done").await;
    say.send("end").await.unwrap();
    world.wait_acknowledged("west/g/0/1@7").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn past_its_deadline_a_drain_waits_for_the_write_under_way_and_no_other_begins() {
    let (spec, say, mut results) = puppet();
    let Stage { world, east: _east, west: (mut west, _in_west) } = Stage::start(spec).await;
    settle().await;
    say.send("write").await.unwrap();
    let put = west.expect(PUT).await;
    world.drain("west", 7, Duration::from_secs(10));
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(world.acknowledged().is_empty(), "a write is under way");
    put.answer(200, &config_map("a", 4));
    told(&mut results, 1, "done").await;
    world.wait_acknowledged("west/g/0/1@7").await;
    say.send("write").await.unwrap();
    told(&mut results, 2, "was not sent: shard west/g/0/1 is fenced").await;
    assert!(!world.journal().contains(&"end east/ns/a@3".to_owned()), "the run itself goes on");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_visits_a_shard_that_drains() {
    let reconciler = run(|ctx, _| {
        let refused = ctx.in_cluster(&cluster("west")).map(|_| Action::Done);
        std::future::ready(refused).boxed()
    });
    let spec = Controller::for_kind::<ConfigMap>("maps").group_scope(GroupScope::Fleet);
    let Stage { world, east: (_east, in_east), west: _west } =
        Stage::start(spec.reconciler(reconciler)).await;
    world.wait_journal("end east/ns/a@3").await;
    world.drain("west", 7, Duration::from_secs(600));
    world.wait_acknowledged("west/g/0/1@7").await;
    in_east.event("MODIFIED", &config_map("a", 6));
    settle().await;
    let errors = world.metric(r#"controller_runtime_reconcile_errors_total{controller="maps"}"#);
    let again = r#"controller_runtime_reconcile_total{controller="maps",result="requeue"}"#;
    assert_eq!(errors, "0", "it is nobody's fault");
    assert_ne!(world.metric(again), "0");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn controllers_that_work_in_one_cluster_have_that_one() {
    let spec = maps(|ctx, key| {
        assert_eq!(ctx.clusters(), std::slice::from_ref(&key.cluster));
        let same = ctx.in_cluster(&key.cluster).map(|same| assert_eq!(same.shard(), ctx.shard()));
        std::future::ready(same.map(|()| Action::Done)).boxed()
    });
    let (world, _server, _list) = listed(vec![spec], 3, &["a"]).await;
    world.wait_journal("end east/ns/a@3").await;
    let errors = world.metric(r#"controller_runtime_reconcile_errors_total{controller="maps"}"#);
    assert_eq!(errors, "0");
    world.stop().await;
}
