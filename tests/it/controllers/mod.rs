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

use std::pin::Pin;
use std::time::Duration;

use apiserver::faults::Request;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use leasehold::testing::{ApiError, Fault, Reason, TestEnv};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What happens in a world of its own, and its name.
type Story = (&'static str, fn() -> Pin<Box<dyn Future<Output = ()>>>);

/// Lets one story happen after the other.
async fn tell(stories: &[Story]) {
    for (name, story) in stories {
        println!("{name}");
        story().await;
    }
}

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

/// Changes an object by a JSON merge patch.
async fn merge<K>(api: &Api<K>, name: &str, patch: Value)
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
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

/// What the built-in controller of this name says that it needs in a workload cluster.
fn rights_of(name: &str) -> Vec<PolicyRule> {
    let builtin = controllers::get(name).unwrap();
    let more = builtin.more_rbac.iter().flat_map(|(_, rules)| rules());
    (builtin.rbac)().into_iter().chain(more).collect()
}

/// Whether one of these rules allows a request.
fn allowed(rules: &[PolicyRule], request: &Request) -> bool {
    let Request { verb, group, resource, subresource, .. } = request;
    let resource = match subresource.as_str() {
        "" => resource.clone(),
        sub => format!("{resource}/{sub}"),
    };
    let has =
        |list: &Option<Vec<String>>, item: &str| list.iter().flatten().any(|found| found == item);
    rules.iter().any(|rule| {
        has(&rule.api_groups, group)
            && has(&rule.resources, &resource)
            && rule.verbs.iter().any(|found| found == verb)
    })
}

/// Refuses what a controller asks for beyond these rights, but for what informers read, which say nothing of
/// themselves. Faults that a test sets later take the place of this.
fn confine(env: &TestEnv, rules: Vec<PolicyRule>) {
    env.set_faults(move |request: &Request| {
        if !request.user_agent.starts_with("leasehold/") || allowed(&rules, request) {
            return Fault::None;
        }
        let Request { verb, resource, subresource, .. } = request;
        let words = format!("no right to {verb} {resource}/{subresource}");
        Fault::Error(ApiError::new(Reason::Forbidden, words))
    });
}
