//! The built-in controllers through the engine, over an embedded API server, on paused time.

mod blogpost;
mod configmonitor;
mod crash;
mod discovery;
mod etcd;
mod many;
mod memcached;
mod mysql;
mod namespaced;
mod restartpods;
mod secrets;
mod sqs;
mod tdset;
mod tunnel;

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use leasehold::testing::TestEnv;

/// Checks that nothing is written for this long.
async fn quiet(env: &TestEnv, time: Duration) {
    let writes = env.server().history().len();
    env.pass(time).await;
    let found = env.server().history();
    assert_eq!(found.len(), writes, "written though nothing changes: {:#?}", &found[writes..]);
}

/// The generation of a Deployment in the default namespace: each change of its template raises it.
async fn generation(env: &TestEnv, deployment: &str) -> i64 {
    let deployments: Api<Deployment> = env.api("default");
    deployments.get(deployment).await.unwrap().metadata.generation.unwrap()
}

/// Every Event of a namespace.
async fn events(env: &TestEnv, namespace: &str) -> Vec<Event> {
    let events: Api<Event> = env.api(namespace);
    events.list(&ListParams::default()).await.unwrap().items
}

/// The reasons of these Events, sorted.
async fn reasons(env: &TestEnv, namespace: &str) -> Vec<String> {
    let events = events(env, namespace).await.into_iter();
    let mut reasons: Vec<_> = events.filter_map(|event| event.reason).collect();
    reasons.sort();
    reasons
}
