//! Work that runs once in the fleet: held as a shard, fenced, drained and handed over.

use std::sync::Arc;
use std::time::Duration;

use engine::testing::{PATIENCE, Server};
use engine::{SingleRun, SingleSpec};
use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::DeleteParams;
use model::Hold;
use serde_json::json;
use tokio::sync::{Mutex, mpsc, watch};

use super::world::{World, settle};

const SHARD: &str = "fleet.leasehold.dev/single.report/0/1";
const START: &str = "start fleet.leasehold.dev/report@";
const END: &str = "end fleet.leasehold.dev/report@";
const DELETE: &str = "DELETE /api/v1/namespaces/ns/configmaps/old timeout=30000ms";

/// Deletes something in the east, and says how that went.
async fn delete(run: &SingleRun) -> &'static str {
    let Some(east) = run.fenced(&"east".parse().unwrap()) else { return "no such cluster" };
    let api: Api<ConfigMap> = Api::namespaced(east.client(), "ns");
    match api.delete("old", &DeleteParams::default()).await {
        Ok(_) => "written",
        Err(kube::Error::Service(_)) => "refused",
        Err(_) => "failed",
    }
}

/// Work that writes, ends or panics when it is told to, and says how it goes.
fn work() -> (SingleSpec, mpsc::Sender<&'static str>, watch::Receiver<Vec<String>>) {
    let (say, said) = mpsc::channel(9);
    let said = Arc::new(Mutex::new(said));
    let (told, results) = watch::channel(Vec::new());
    let spec = SingleSpec::new("report", move |run| {
        let (said, told) = (Arc::clone(&said), told.clone());
        let tell = move |what: String| told.send_modify(|all| all.push(what));
        async move {
            tell(format!("begun at {}", run.dispatch().epoch));
            let mut said = said.lock().await;
            let stopping = run.stopping().clone();
            loop {
                tokio::select! {
                    Some(word) = said.recv() => match word {
                        "write" => tell(delete(&run).await.to_owned()),
                        "panic" => panic!("the test wants it"),
                        _ => return,
                    },
                    () = stopping.cancelled() => {
                        tell("told to stop".to_owned());
                        // It has something to finish.
                        while said.recv().await == Some("write") {
                            tell(delete(&run).await.to_owned());
                        }
                        return;
                    }
                }
            }
        }
        .boxed()
    });
    (spec.unwrap(), say, results)
}

async fn told(results: &mut watch::Receiver<Vec<String>>, expect: &[&str]) {
    let waiting = results.wait_for(|all| all.len() >= expect.len());
    let all = tokio::time::timeout(PATIENCE, waiting).await.expect("it is told").unwrap().clone();
    assert_eq!(all, expect);
}

/// A world in which the work runs at epoch 3, with the east engaged.
async fn at_work() -> (World, Server, mpsc::Sender<&'static str>, watch::Receiver<Vec<String>>) {
    let (spec, say, mut results) = work();
    let world = World::start_single(spec);
    let east = world.engage("east", 1);
    world.hold_shards(&[(SHARD, Some((3, Hold::Warming)))]);
    settle().await;
    assert!(results.borrow().is_empty(), "warming runs nothing");
    world.hold_shards(&[(SHARD, Some((3, Hold::Active)))]);
    told(&mut results, &["begun at 3"]).await;
    (world, east, say, results)
}

#[tokio::test(start_paused = true)]
async fn it_runs_while_its_shard_is_held_and_writes_through_the_fence() {
    let (world, mut east, say, mut results) = at_work().await;
    say.send("write").await.unwrap();
    let asked = east.expect(DELETE).await;
    let agent = asked.request.headers["user-agent"].to_str().unwrap().to_owned();
    let shard = "shard=fleet.leasehold.dev/single.report/0/1; epoch=3; key=report)";
    assert!(agent.ends_with(shard), "{agent}");
    asked.answer(200, &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}));
    told(&mut results, &["begun at 3", "written"]).await;
    // Lost: it is cancelled where it stands.
    world.hold_shards(&[(SHARD, None)]);
    world.wait_journal(&format!("{END}3")).await;
    // Gained again.
    world.hold_shards(&[(SHARD, Some((5, Hold::Active)))]);
    told(&mut results, &["begun at 3", "written", "begun at 5"]).await;
    let journal = [format!("{START}3"), format!("{END}3"), format!("{START}5")];
    assert_eq!(world.journal(), journal);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_tells_it_to_stop_and_waits_for_it() {
    let (world, mut east, say, mut results) = at_work().await;
    world.drain_shard(SHARD, 3);
    told(&mut results, &["begun at 3", "told to stop"]).await;
    say.send("write").await.unwrap();
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
    east.expect(DELETE).await.answer(200, &status);
    told(&mut results, &["begun at 3", "told to stop", "written"]).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(world.acknowledged().is_empty(), "it runs still");
    say.send("end").await.unwrap();
    world.wait_acknowledged(&format!("{SHARD}@3")).await;
    assert_eq!(world.journal(), [format!("{START}3"), format!("{END}3")]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_past_its_deadline_cancels_it_and_waits_for_its_write() {
    let (world, mut east, say, _results) = at_work().await;
    say.send("write").await.unwrap();
    let asked = east.expect(DELETE).await;
    let deadline = model::Clock::now(&*world.clock) + Duration::from_secs(5);
    world.hold_shards(&[(SHARD, Some((3, Hold::Draining { deadline })))]);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(world.acknowledged().is_empty(), "a write is under way");
    asked.answer(200, &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}));
    world.wait_acknowledged(&format!("{SHARD}@3")).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_valid_lease_it_neither_begins_nor_goes_on() {
    let (spec, say, mut results) = work();
    let world = World::start_single(spec);
    world.lease(Duration::ZERO);
    world.hold_shards(&[(SHARD, Some((3, Hold::Active)))]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(results.borrow().is_empty(), "the holding says should, the fence says may not");
    world.lease(Duration::from_secs(8));
    told(&mut results, &["begun at 3"]).await;
    // Nobody has told it yet, but its Lease has ended: it is not polled once more.
    world.lease(Duration::ZERO);
    say.send("write").await.unwrap();
    world.wait_journal(&format!("{END}3")).await;
    assert_eq!(results.borrow().len(), 1);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_or_an_end_ends_it_until_it_is_gained_anew() {
    for word in ["panic", "end"] {
        let (world, _east, say, mut results) = at_work().await;
        say.send(word).await.unwrap();
        world.wait_journal(&format!("{END}3")).await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(world.journal().len(), 2);
        world.drain_shard(SHARD, 3);
        world.wait_acknowledged(&format!("{SHARD}@3")).await;
        world.hold_shards(&[(SHARD, Some((5, Hold::Active)))]);
        told(&mut results, &["begun at 3", "begun at 5"]).await;
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_under_a_shard_of_a_cluster() {
    let (spec, _say, results) = work();
    let world = World::start_single(spec);
    let _east = world.engage("east", 1);
    world.hold_shards(&[("east/single.report/0/1", Some((3, Hold::Active)))]);
    settle().await;
    assert!(results.borrow().is_empty());
    world.drain_shard("east/single.report/0/1", 3);
    world.wait_acknowledged("east/single.report/0/1@3").await;
    world.stop().await;
}
