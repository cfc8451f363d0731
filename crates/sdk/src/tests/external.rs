//! Calls to an upstream outside of Kubernetes: paced, protected, fenced.

use std::future::ready;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{Notify, watch};

use super::world::{MAPS, Owner, World, holding, maps, settle};
use crate::{Action, ControllerSpec};
use crate::{ExternalFailure, ExternalLimits, Verdict};
use engine::testing::{Server, Watch, config_map};
use model::testing::PausedClock;

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the upstream says {0:?}")]
struct Said(Verdict);

impl ExternalFailure for Said {
    fn verdict(&self) -> Verdict {
        self.0
    }
}

const LIMITS: ExternalLimits = ExternalLimits {
    requests: 10,
    per: Duration::from_secs(1),
    burst: 1,
    max_concurrency: 8,
    first_pause: Duration::from_secs(1),
    max_pause: Duration::from_secs(60),
};

/// What was called, and when.
type Calls = Arc<Mutex<Vec<(Duration, String)>>>;

/// A controller that writes once for each key, to an upstream that says `answer` to the n-th call.
fn writer(
    answer: impl Fn(usize) -> BoxFuture<'static, Result<(), Said>> + Send + Sync + 'static,
) -> (ControllerSpec, Calls) {
    let calls = Calls::default();
    let (told, answer) = (Arc::clone(&calls), Arc::new(answer));
    let began = OnceLock::new();
    let spec = maps(move |ctx, key| {
        let (told, answer, now) = (Arc::clone(&told), Arc::clone(&answer), ctx.now());
        let since = now.duration_since(*began.get_or_init(|| now)).unsigned_abs();
        async move {
            let upstream = ctx.external("store", "store of account 1", &LIMITS);
            let name = key.name.to_string();
            let write = upstream.write("Put", move |token| {
                assert_eq!(token.to_string(), "east/g/0/1@3");
                let mut told = told.lock().unwrap();
                told.push((since, name));
                answer(told.len() - 1)
            });
            write.await?;
            Ok(Action::Done)
        }
        .boxed()
    });
    (spec, calls)
}

fn names(calls: &Calls) -> Vec<String> {
    calls.lock().unwrap().iter().map(|(_, name)| name.clone()).collect()
}

/// A world with this many keys to reconcile.
async fn world(spec: ControllerSpec, keys: usize) -> (World, Server, Watch) {
    let (world, mut server) = holding(vec![spec], 3);
    let maps: Vec<_> = (0..keys).map(|n| config_map(&format!("m{n}"), 1)).collect();
    let list = server.expect(MAPS).await.list(5, &maps);
    (world, server, list)
}

#[tokio::test(start_paused = true)]
async fn keys_that_find_the_budget_spent_come_back_in_their_turn_and_hold_no_worker() {
    let (spec, calls) = writer(|_| ready(Ok(())).boxed());
    // Two workers, and twenty keys at once.
    let (world, _server, _list) = world(spec.with_workers(2), 20).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let calls = calls.lock().unwrap().clone();
    assert_eq!(calls.len(), 20);
    for (number, (at, _)) in calls.iter().enumerate() {
        let due = Duration::from_millis(100 * number as u64);
        assert!(*at >= due && *at < due + Duration::from_millis(50), "{number} at {at:?}");
    }
    let held = r#"leasehold_external_held_back_total{external_service="store"}"#;
    assert_eq!(world.metric(held), "19", "each but the first was put off once");
    let failed = r#"controller_runtime_reconcile_errors_total{controller="maps"}"#;
    assert_eq!(world.metric(failed), "0");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn members_share_the_budget() {
    let (spec, calls) = writer(|_| ready(Ok(())).boxed());
    let world = World::start(vec![spec]);
    world.of_members(4);
    let mut server = world.engage("east", 1);
    world.hold_active("east", 3);
    let maps: Vec<_> = (0..5).map(|n| config_map(&format!("m{n}"), 1)).collect();
    let _list = server.expect(MAPS).await.list(5, &maps);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(calls.lock().unwrap().len(), 4, "one at once, then one in 400 ms");
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_fails_is_left_alone_and_one_that_wants_a_pause_gets_it() {
    let pause = Verdict::Overloaded { retry_after: Some(Duration::from_secs(30)) };
    let (spec, calls) = writer(move |call| {
        let answer = match call {
            0..5 => Err(Said(Verdict::Unanswered)),
            5 => Err(Said(pause)),
            _ => Ok(()),
        };
        ready(answer).boxed()
    });
    let (world, _server, _list) = world(spec, 1).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let at: Vec<_> = calls.lock().unwrap().iter().map(|(at, _)| *at).collect();
    assert_eq!(at.len(), 7);
    // The breaker opens at the fifth failure in a row; until then it is the key's own backoff.
    assert!(at[5] - at[4] >= Duration::from_millis(500), "{at:?}");
    assert!(at[6] - at[5] >= Duration::from_secs(30), "{at:?}");
    let refused = |result| {
        format!(
            "leasehold_external_requests_total{{external_service=\"store\",result=\"{result}\"}}"
        )
    };
    assert_eq!(world.metric(&refused("unanswered")), "5");
    assert_eq!(world.metric(&refused("overloaded")), "1");
    assert_eq!(world.metric(&refused("answered")), "1");
}

#[tokio::test(start_paused = true)]
async fn a_write_outside_is_fenced_and_a_drain_waits_for_it() {
    let (end, ended) = watch::channel(false);
    let (spec, calls) = writer(move |_| {
        let mut ended = ended.clone();
        async move {
            ended.wait_for(|ended| *ended).await.unwrap();
            Ok(())
        }
        .boxed()
    });
    let (world, _server, _list) = world(spec, 1).await;
    world.wait_entries(1).await;
    settle().await;
    assert_eq!(names(&calls), ["m0"]);
    // The reconcile is cancelled, its write is not.
    world.drain("east", 3, Duration::from_secs(1));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.acknowledged(), [""; 0]);
    end.send_replace(true);
    world.wait_acknowledged("east/g/0/1@3").await;
}

#[tokio::test(start_paused = true)]
async fn without_a_valid_lease_nothing_is_written_outside() {
    let go = Arc::new(Notify::new());
    let (gate, calls) = (Arc::clone(&go), Arc::new(AtomicUsize::new(0)));
    let (told, count) = (watch::Sender::new(None), Arc::clone(&calls));
    let mut heard = told.subscribe();
    let lease = watch::Sender::new(None::<Arc<Owner>>);
    let ends = lease.subscribe();
    let world = World::start(vec![maps(move |ctx, _| {
        let (gate, count, told) = (Arc::clone(&gate), Arc::clone(&count), told.clone());
        let ends = ends.clone();
        async move {
            gate.notified().await;
            // In the midst of a poll, after which the fence lets nothing of this run any more.
            ends.borrow().as_ref().unwrap().lease(Duration::ZERO);
            let upstream = ctx.external("store", "store of account 1", &LIMITS);
            let write = upstream.write("Put", |_| async move {
                count.fetch_add(1, Ordering::SeqCst);
                Ok::<_, Said>(())
            });
            let error = write.await.unwrap_err();
            told.send_replace(Some(model::error::chain(&error)));
            Ok(Action::Done)
        }
        .boxed()
    })]);
    lease.send_replace(Some(Arc::clone(&world.owner)));
    let mut server = world.engage("east", 1);
    world.hold_active("east", 3);
    let _list = server.expect(MAPS).await.list(5, &[config_map("a", 1)]);
    world.wait_entries(1).await;
    go.notify_one();
    let error = heard.wait_for(Option::is_some).await.unwrap().clone().unwrap();
    assert_eq!(
        error,
        "Put was not sent: shard east/g/0/1 is fenced: the Lease of member m-1 is no longer valid by \
         its own clock"
    );
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_has_one_turn_for_as_many_requests_as_it_says() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let spec = maps(move |ctx, _| {
        let count = Arc::clone(&count);
        async move {
            for _ in 0..3 {
                // Obtained again for each request, as by code that is spread over functions.
                let upstream = ctx.external("store", "store of account 1", &LIMITS).expecting(3);
                upstream.read("Get", ready(Ok::<_, Said>(()))).await?;
                count.fetch_add(1, Ordering::SeqCst);
            }
            Ok(Action::Done)
        }
        .boxed()
    });
    let (world, _server, _list) = world(spec, 10).await;
    tokio::time::sleep(Duration::from_millis(2650)).await;
    // Ten requests a second and three for each key: one at once, then one in 300 ms.
    assert_eq!(calls.load(Ordering::SeqCst), 27);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_wakes_between_the_permit_and_the_call_makes_no_call() {
    let calls = Arc::new(AtomicUsize::new(0));
    let (told, count) = (watch::Sender::new(None), Arc::clone(&calls));
    let mut heard = told.subscribe();
    let clock = watch::Sender::new(None::<Arc<PausedClock>>);
    let stops = clock.subscribe();
    let world = World::start(vec![maps(move |ctx, _| {
        let (count, told, stops) = (Arc::clone(&count), told.clone(), stops.clone());
        async move {
            let upstream = ctx.external("store", "store of account 1", &LIMITS);
            let write = upstream.write("Put", |_| {
                // The permit is given, the call is not made yet.
                stops.borrow().as_ref().unwrap().suspend(Duration::from_secs(9));
                async move {
                    count.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, Said>(())
                }
            });
            let error = write.await.unwrap_err();
            told.send_replace(Some(model::error::chain(&error)));
            Ok(Action::Done)
        }
        .boxed()
    })]);
    clock.send_replace(Some(Arc::clone(&world.clock)));
    let mut server = world.engage("east", 1);
    world.lease(Duration::from_secs(8));
    world.hold_active("east", 3);
    let _list = server.expect(MAPS).await.list(5, &[config_map("a", 1)]);
    let error = heard.wait_for(Option::is_some).await.unwrap().clone().unwrap();
    assert_eq!(error, "Put was not answered within 8s");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}
