//! The built-in controllers through the engine, over an embedded API server, on paused time.

mod blogpost;
mod configmonitor;
mod crash;
mod many;
mod restartpods;
mod sqs;
mod tdset;
mod tunnel;

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use leasehold::testing::TestEnv;

/// Every Event of a namespace so far.
async fn events(env: &TestEnv, namespace: &str) -> Vec<Event> {
    let events: Api<Event> = env.api(namespace);
    events.list(&ListParams::default()).await.unwrap().items
}

/// Their reasons, sorted.
async fn reasons(env: &TestEnv, namespace: &str) -> Vec<String> {
    let events = events(env, namespace).await.into_iter();
    let mut reasons: Vec<_> = events.filter_map(|event| event.reason).collect();
    reasons.sort();
    reasons
}
