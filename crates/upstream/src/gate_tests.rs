//! The gate's waiting, on a paused clock.

use futures::FutureExt;

use super::*;
use crate::breaker::FAILURES;
use model::testing::PausedClock;

const LIMITS: UpstreamLimits = UpstreamLimits {
    requests_per_second: 1000,
    burst: 1000,
    max_concurrency: 2,
    first_pause: Duration::from_secs(1),
    max_pause: Duration::from_secs(30),
};

fn gate(limits: &UpstreamLimits) -> Arc<Gate> {
    let rng = fastrand::Rng::with_seed(5);
    Gate::new(Upstream::Cluster("east".parse().unwrap()), limits, PausedClock::new(), rng)
}

fn refused() -> Outcome {
    Outcome::Unanswered { cause: "connection refused".into() }
}

fn status_of(gate: &Arc<Gate>) -> UpstreamStatus {
    gate.status("east".parse().unwrap(), gate.clock.now())
}

async fn open(gate: &Arc<Gate>) {
    for _ in 0..FAILURES {
        gate.admit(Caller::Reconcile).await.unwrap().ended(refused());
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_pass_in_order_and_the_lines_take_turns() {
    let gate = gate(&UpstreamLimits { max_concurrency: 1, ..LIMITS });
    let first = gate.admit(Caller::Reconcile).await.unwrap();
    let mut waiting = Vec::new();
    for (number, line) in [
        Caller::Reconcile,
        Caller::Reconcile,
        Caller::Reconcile,
        Caller::Informer,
        Caller::Informer,
    ]
    .into_iter()
    .enumerate()
    {
        let mut turn = Box::pin(gate.admit(line).map(move |ticket| (number, ticket.unwrap())));
        assert!(futures::poll!(&mut turn).is_pending());
        waiting.push(turn);
    }
    assert_eq!(status_of(&gate).waiting, 5);
    drop(first);
    let mut order = Vec::new();
    while !waiting.is_empty() {
        let ((number, ticket), _, rest) = futures::future::select_all(waiting).await;
        order.push(number);
        waiting = rest;
        ticket.ended(Outcome::Answered);
    }
    assert_eq!(order, [3, 0, 4, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn one_who_gives_up_frees_his_place_and_one_who_is_dropped_his_request() {
    let gate = gate(&LIMITS);
    let (one, two) = (
        gate.admit(Caller::Reconcile).await.unwrap(),
        gate.admit(Caller::Reconcile).await.unwrap(),
    );
    let mut first = Box::pin(gate.admit(Caller::Reconcile));
    let mut second = Box::pin(gate.admit(Caller::Reconcile));
    assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending());
    drop(one);
    // Told that it is his turn, and gone before he took it.
    drop(first);
    let second = second.await.unwrap();
    let status = status_of(&gate);
    assert_eq!((status.in_flight, status.waiting), (2, 0));
    drop((two, second));
    assert_eq!(status_of(&gate).in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn while_it_is_left_alone_reconciles_fail_at_once_and_an_informer_is_the_probe() {
    let gate = gate(&LIMITS);
    open(&gate).await;
    let Err(UpstreamError::LeftAlone { upstream, cause, again_in }) =
        gate.admit(Caller::Reconcile).await
    else {
        panic!("{:?}", status_of(&gate));
    };
    assert_eq!((&*upstream.to_string(), &*cause), ("cluster east", "connection refused"));
    assert!(again_in <= LIMITS.first_pause && again_in >= LIMITS.first_pause / 2);
    let status = status_of(&gate);
    assert_eq!(status.cause.as_deref(), Some("connection refused"));
    let began = gate.clock.now();
    let probe = gate.admit(Caller::Informer).await.unwrap();
    assert!(probe.is_probe() && gate.clock.now().since(began) >= again_in);
    assert!(gate.admit(Caller::Reconcile).await.is_err(), "one probe is enough");
    probe.ended(Outcome::Answered);
    assert!(gate.admit(Caller::Reconcile).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_when_it_opens_are_told_at_once() {
    let gate = gate(&UpstreamLimits { max_concurrency: 1, ..LIMITS });
    for _ in 1..FAILURES {
        gate.admit(Caller::Reconcile).await.unwrap().ended(refused());
    }
    let last = gate.admit(Caller::Reconcile).await.unwrap();
    let mut calls: Vec<_> = (0..50).map(|_| Box::pin(gate.admit(Caller::Reconcile))).collect();
    for call in &mut calls {
        assert!(futures::poll!(call).is_pending());
    }
    let began = gate.clock.now();
    last.ended(refused());
    for call in calls {
        assert!(matches!(call.await, Err(UpstreamError::LeftAlone { .. })));
    }
    assert_eq!(gate.clock.now(), began);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_the_budget_goes_on_by_itself() {
    let gate = gate(&UpstreamLimits { requests_per_second: 10, burst: 2, ..LIMITS });
    let began = gate.clock.now();
    for _ in 0..12 {
        gate.admit(Caller::Reconcile).await.unwrap().ended(Outcome::Answered);
    }
    let took = gate.clock.now().since(began);
    assert!(took >= Duration::from_secs(1) && took < Duration::from_millis(1020), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_has_all_places_at_a_service_gives_them_to_another() {
    let (rng, service) = (fastrand::Rng::with_seed(5), Upstream::External("store".into()));
    let gate = Gate::new(service, &LIMITS, PausedClock::new(), rng);
    let [east, west]: [ClusterName; 2] = ["east", "west"].map(|name| name.parse().unwrap());
    let one = gate.admit_for(&east).await.unwrap();
    let two = gate.admit_for(&east).await.unwrap();
    let mut further = Box::pin(gate.admit_for(&east));
    assert!(futures::poll!(&mut further).is_pending());
    let mut of_another = Box::pin(gate.admit_for(&west));
    assert!(futures::poll!(&mut of_another).is_pending());
    one.ended(Outcome::Answered);
    let _held = of_another.await.unwrap();
    assert!(futures::poll!(&mut further).is_pending());
    two.ended(Outcome::Answered);
    further.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_log_is_told_once_in_a_while_that_a_server_fails() {
    let gate = gate(&LIMITS);
    let probe = async |outcome| gate.admit(Caller::Informer).await.unwrap().ended(outcome);
    open(&gate).await;
    assert!(gate.state().is_told);
    probe(Outcome::Answered).await;
    assert!(!gate.state().is_told, "that it answers again is told too");
    open(&gate).await;
    assert!(!gate.state().is_told, "it was, a moment ago");
    tokio::time::sleep(TOLD_EVERY).await;
    probe(refused()).await;
    assert!(gate.state().is_told, "it goes on");
}
