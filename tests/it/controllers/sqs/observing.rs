//! Queues that are only looked at: rows of the table in `trouble`.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use leasehold::testing::TestEnv;
use serde_json::json;

use super::trouble::{NAME, attribute, delete, message, owner};
use super::world::{
    A_WHILE, NAMESPACE, events, make, patch, queues, ready, running, says, url, world,
};

pub async fn seen() {
    let (env, aws) = running().await;
    make(&env, "orders", json!({"management": "Observe"})).await;
    says(&env, "orders", "Ready", "False", "QueueMissing").await;
    aws.outside("CreateQueue", json!({"QueueName": NAME, "Attributes": {"DelaySeconds": "9"}}));
    env.pass(A_WHILE).await;
    let queue = says(&env, "orders", "Synced", "False", "Differs").await;
    assert!(message(&queue, "Synced").contains("differs from the spec in DelaySeconds"));
    assert!(queue.status.unwrap().arn.is_some());
    let asked = aws.requests(aws.now() - A_WHILE);
    assert!(asked.iter().all(|(_, what)| what.starts_with("Get")
        || what.starts_with("List")
        || what == "CreateQueue"));
    patch(&env, "orders", json!({"spec": {"delaySeconds": 9}})).await;
    env.pass(Duration::from_secs(5)).await;
    ready(&env, "orders").await;
    assert_eq!(owner(&aws, NAME), "");
    // It never was this object's, whatever the spec says later.
    patch(&env, "orders", json!({"spec": {"management": "Manage"}})).await;
    says(&env, "orders", "Ready", "False", "NotOwned").await;
    delete(&env, "orders").await;
    env.until_gone(&queues(&env), "orders").await;
    assert_eq!(aws.sqs(|sqs| sqs.names()), [NAME]);
}

/// How many finalizers the Queue and its Secret have.
async fn finalizers(env: &TestEnv) -> [usize; 2] {
    let secrets: Api<Secret> = env.api(NAMESPACE);
    let (queue, secret) = (queues(env).get("orders").await, secrets.get("aws").await);
    [queue.unwrap().finalizers().len(), secret.unwrap().finalizers().len()]
}

/// Whoever only looks writes what it sees into the status, and nothing else.
pub async fn nothing_held() {
    let (mut env, aws) = world().await;
    aws.outside("CreateQueue", json!({"QueueName": NAME}));
    env.run([aws.controller()]);
    make(&env, "orders", json!({"management": "Observe"})).await;
    ready(&env, "orders").await;
    assert_eq!(finalizers(&env).await, [0, 0]);
    // One that manages holds both, and lets go of both when it only looks again.
    patch(&env, "orders", json!({"spec": {"management": "Manage", "adopt": true}})).await;
    env.pass(Duration::from_secs(5)).await;
    assert_eq!(finalizers(&env).await, [1, 1]);
    let mark = owner(&aws, NAME);
    patch(&env, "orders", json!({"spec": {"management": "Observe"}})).await;
    env.pass(Duration::from_secs(5)).await;
    assert_eq!(finalizers(&env).await, [0, 0]);
    ready(&env, "orders").await;
    // It goes at once, and its queue stays.
    queues(&env).delete("orders", &Default::default()).await.unwrap();
    assert!(queues(&env).get_opt("orders").await.unwrap().is_none());
    env.pass(A_WHILE).await;
    assert_eq!(owner(&aws, NAME), mark);
}

/// Other credentials may show another queue, or the same one elsewhere.
pub async fn elsewhere() {
    let (mut env, aws) = world().await;
    aws.outside("CreateQueue", json!({"QueueName": NAME}));
    env.run([aws.controller()]);
    make(&env, "orders", json!({"management": "Observe"})).await;
    ready(&env, "orders").await;
    // As it was seen with the credentials before.
    let there = "111111111111";
    let url = url(NAME)["QueueUrl"].as_str().unwrap().replace("000000000000", there);
    let seen = Patch::Merge(json!({"status": {"account": there, "url": url}}));
    queues(&env).patch_status("orders", &PatchParams::default(), &seen).await.unwrap();
    patch(&env, "orders", json!({"spec": {"delaySeconds": 9}})).await;
    let queue = says(&env, "orders", "Synced", "False", "Differs").await;
    assert_eq!(queue.status.unwrap().account.as_deref(), Some("000000000000"));
}

/// What was only seen was set by others, so a spec that does not name it gives nothing up.
pub async fn taken_over() {
    let (mut env, aws) = world().await;
    let policy = r#"{"Statement":[],"Version":"2012-10-17"}"#;
    let made = json!({"QueueName": NAME, "Attributes": {"Policy": policy, "DelaySeconds": "9"},
        "tags": {"team": "shop"}});
    aws.outside("CreateQueue", made);
    env.run([aws.controller()]);
    let seen = json!({"management": "Observe", "policy": policy, "delaySeconds": 9,
        "tags": {"team": "shop"}});
    make(&env, "orders", seen).await;
    ready(&env, "orders").await;
    let taken = json!({"management": "Manage", "adopt": true, "policy": null, "delaySeconds": 9,
        "tags": null});
    patch(&env, "orders", json!({"spec": taken})).await;
    env.pass(A_WHILE).await;
    ready(&env, "orders").await;
    assert_ne!(owner(&aws, NAME), "");
    assert_eq!(attribute(&aws, NAME, "Policy").as_deref(), Some(policy));
    assert_eq!(aws.sqs(|sqs| sqs.tag_of(NAME, "team")).as_deref(), Some("shop"));
    assert_eq!(events(&env, "Drifted").await, [""; 0]);
}
