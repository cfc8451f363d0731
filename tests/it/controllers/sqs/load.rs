//! Many queues: how many requests they send to SQS and the API server over time.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use sqs::LIMITS;

use super::world::{Aws, make, ready, world};

const MANY: usize = 1_000;

/// Requests by minute since the last call.
fn by_minute(aws: &Aws, since: Timestamp) -> Vec<usize> {
    let mut minutes = BTreeMap::<i64, usize>::new();
    for (at, _) in aws.requests(since) {
        *minutes.entry(at.duration_since(since).as_secs() / 60).or_default() += 1;
    }
    let last = minutes.keys().last().copied().unwrap_or_default();
    (0..=last).map(|minute| minutes.get(&minute).copied().unwrap_or_default()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_thousand_queues_are_created_within_the_budget_and_checked_evenly() {
    let (mut env, aws) = world().await;
    for number in 0..MANY {
        make(&env, &format!("q{number}"), json!({"driftCheckIntervalSeconds": 3600})).await;
    }
    let start = aws.now();
    env.run([aws.controller()]);
    env.until("all queues to be made", async || {
        (aws.sqs(|sqs| sqs.names()).len() == MANY).then_some(())
    })
    .await;
    for number in 0..MANY {
        ready(&env, &format!("q{number}")).await;
    }
    let mut seconds = BTreeMap::<i64, u32>::new();
    for (at, _) in aws.requests(start - Duration::from_secs(1)) {
        *seconds.entry(at.as_second()).or_default() += 1;
    }
    let taken = aws.now().duration_since(start).as_secs();
    println!("{MANY} queues were made in {taken} s; requests a second: {:?}", seconds.values());
    // The rate of the budget, after its burst; the requests of one reconcile fall into one second.
    let allowed = LIMITS.requests + LIMITS.burst + 4;
    assert!(seconds.values().all(|count| *count <= allowed), "{seconds:?}");

    let since = aws.now();
    env.pass(Duration::from_secs(6_000)).await;
    let minutes = by_minute(&aws, since);
    println!("then, in each minute of 100: {minutes:?}");
    let later = &minutes[60..99];
    let mean = later.iter().sum::<usize>() as f64 / later.len() as f64;
    let most = later.iter().max().copied().unwrap_or_default() as f64;
    // Each queue's time in its interval is a hash of its uid, so a minute's checks, of two requests
    // each, are Poisson distributed: six standard deviations above the mean are one run in 200,000.
    let bound = mean + 6.0 * 2.0 * (mean / 2.0).sqrt();
    assert!(most < bound, "{most} in a minute, {mean} on average, allowed are {bound}");

    // For a new manager no drift check is due: it keeps the times of the manager before it.
    env.stop().await;
    let (since, writes) = (aws.now(), env.server().history().len());
    env.run([aws.controller()]);
    env.pass(Duration::from_secs(60)).await;
    let asked = aws.requests(since).len();
    assert!((asked as f64) < 3.0 * mean, "{asked} requests after a restart, {mean} a minute");
    let written = env.server().history().len() - writes;
    assert!(written as f64 <= 2.0 * mean, "{written} writes after a restart");
}
