//! Queues that were changed or deleted outside, and SQS out of reach.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::super::quiet;
use super::trouble::message;
use super::world::{
    A_WHILE, about, events, make, patch, queues, ready, running, says, settled, url, world,
};

const NAME: &str = "default-orders";

#[tokio::test(start_paused = true)]
async fn a_change_from_outside_is_reverted_and_reported() {
    let (env, aws) = running().await;
    make(&env, "orders", json!({"tags": {"team": "shop"}})).await;
    ready(&env, "orders").await;
    env.pass(Duration::from_secs(120)).await;
    let edit = json!({"Attributes": {"VisibilityTimeout": "45"}});
    aws.outside("SetQueueAttributes", about(NAME, edit));
    aws.outside("TagQueue", about(NAME, json!({"Tags": {"team": "thieves", "more": "kept"}})));
    env.pass(A_WHILE).await;
    assert_eq!(aws.sqs(|sqs| sqs.attribute(NAME, "VisibilityTimeout")).unwrap(), "30");
    assert_eq!(aws.sqs(|sqs| sqs.tag_of(NAME, "team")).unwrap(), "shop");
    assert_eq!(aws.sqs(|sqs| sqs.tag_of(NAME, "more")).unwrap(), "kept");
    let mut notes = events(&env, "Drifted").await;
    notes.sort();
    assert_eq!(
        notes,
        [
            "VisibilityTimeout of queue default-orders was 45, put back to 30",
            "team of queue default-orders was thieves, put back to shop",
        ]
    );
    assert_eq!(ready(&env, "orders").await.status.unwrap().drifts, 1);
}

/// SQS shows old values for a while: they are neither set again nor mistaken for a change from
/// outside.
#[tokio::test(start_paused = true)]
async fn old_values_are_not_mistaken_for_drift() {
    let (mut env, aws) = world().await;
    aws.sqs(|sqs| sqs.lag = Duration::from_secs(50));
    env.run([aws.controller()]);
    make(&env, "orders", json!({"driftCheckIntervalSeconds": 30})).await;
    ready(&env, "orders").await;
    let since = aws.now();
    env.pass(Duration::from_secs(1)).await;
    patch(&env, "orders", json!({"spec": {"delaySeconds": 3}})).await;
    env.pass(A_WHILE).await;
    ready(&env, "orders").await;
    assert_eq!(aws.count("SetQueueAttributes", since), 1);
    assert_eq!(aws.sqs(|sqs| sqs.attribute(NAME, "DelaySeconds")).unwrap(), "3");
    assert_eq!(events(&env, "Drifted").await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_queue_deleted_outside_is_created_again_when_its_name_is_free() {
    let (env, aws) = running().await;
    make(&env, "orders", json!({"driftCheckIntervalSeconds": 30, "delaySeconds": 5})).await;
    ready(&env, "orders").await;
    env.pass(Duration::from_secs(120)).await;
    let since = aws.now();
    aws.outside("DeleteQueue", url(NAME));
    let queue = says(&env, "orders", "Ready", "False", "DeletedRecently").await;
    assert!(
        queue.status.unwrap().conditions[0].message.contains("SQS frees a name one minute after")
    );
    ready(&env, "orders").await;
    assert_eq!(aws.sqs(|sqs| sqs.attribute(NAME, "DelaySeconds")).unwrap(), "5");
    let notes = events(&env, "Recreated").await;
    assert_eq!(notes, ["queue default-orders in eu-west-1 was deleted outside: created it again"]);
    let tries = aws.count("CreateQueue", since);
    assert!(tries <= 3, "it waits for its time: {tries} tries");
}

#[tokio::test(start_paused = true)]
async fn while_sqs_is_out_of_reach_it_is_left_alone_and_each_queue_says_so_once() {
    let (env, aws) = running().await;
    for number in 0..20 {
        make(&env, &format!("q{number}"), json!({"driftCheckIntervalSeconds": 30})).await;
    }
    for number in 0..20 {
        ready(&env, &format!("q{number}")).await;
    }
    aws.down(true);
    env.pass(Duration::from_secs(60)).await;
    quiet(&env, Duration::from_secs(200)).await;
    env.pass(Duration::from_secs(200)).await;
    quiet(&env, A_WHILE).await;
    says(&env, "q7", "Synced", "False", "Unavailable").await;
    let edit = json!({"Attributes": {"VisibilityTimeout": "45"}});
    aws.outside("SetQueueAttributes", about("default-q7", edit));
    aws.down(false);
    env.pass(Duration::from_secs(180)).await;
    let found = aws.sqs(|sqs| sqs.attribute("default-q7", "VisibilityTimeout"));
    assert_eq!(found.unwrap(), "30");
}

#[tokio::test(start_paused = true)]
async fn throttling_slows_down_and_everything_is_still_created() {
    let (mut env, aws) = world().await;
    aws.sqs(|sqs| sqs.rate = Some(5));
    env.run([aws.controller()]);
    for number in 0..20 {
        make(&env, &format!("q{number}"), json!({})).await;
    }
    for number in 0..20 {
        ready(&env, &format!("q{number}")).await;
    }
    assert_eq!(aws.sqs(|sqs| sqs.names()).len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_where_a_key_made_it_that_cannot_look_at_it() {
    let (env, aws) = running().await;
    aws.deny("GetQueueAttributes");
    make(&env, "orders", json!({})).await;
    let queue = says(&env, "orders", "Ready", "False", "AccessDenied").await;
    assert_eq!(aws.sqs(|sqs| sqs.names()), [NAME]);
    let status = queue.status.unwrap();
    assert!(status.account.is_some() && status.arn.is_none(), "{status:?}");
    patch(&env, "orders", json!({"spec": {"endpoint": "https://sqs.test"}})).await;
    let queue = says(&env, "orders", "Invalid", "True", "Invalid").await;
    assert!(queue.status.unwrap().conditions.iter().any(|told| told.message.contains("endpoint")));
    patch(&env, "orders", json!({"spec": {"endpoint": null}})).await;
    aws.deny(None);
    ready(&env, "orders").await;
}

/// A row of the table in `trouble`: all else is kept right without a dead-letter queue.
pub async fn without_target() {
    let (env, aws) = running().await;
    let arn = "arn:aws:sqs:eu-west-1:000000000000:absent";
    let to = |count: u32| json!({"queueArn": arn, "maxReceiveCount": count});
    let attribute = |attribute| aws.sqs(|sqs| sqs.attribute(NAME, attribute));
    let count = || attribute("RedrivePolicy").is_some_and(|policy| policy.ends_with(":5}"));
    make(&env, "orders", json!({"redrivePolicy": to(5)})).await;
    let queue = says(&env, "orders", "Synced", "False", "RedriveTargetNotReady").await;
    let told = message(&queue, "Synced");
    assert!(told.contains("SQS will not set the dead-letter queue of queue default-orders"));
    says(&env, "orders", "Ready", "True", "Available").await;
    env.pass(Duration::from_secs(5)).await;
    quiet(&env, A_WHILE).await;
    let edit = json!({"Attributes": {"VisibilityTimeout": "45"}});
    aws.outside("SetQueueAttributes", about(NAME, edit));
    env.pass(A_WHILE).await;
    assert_eq!(attribute("VisibilityTimeout").unwrap(), "30");
    aws.outside("CreateQueue", json!({"QueueName": "absent"}));
    env.pass(A_WHILE).await;
    ready(&env, "orders").await;
    assert!(count());

    // It is gone, and the spec asks for something else of it.
    aws.outside("DeleteQueue", url("absent"));
    let change = json!({"redrivePolicy": to(6), "delaySeconds": 7, "tags": {"team": "shop"}});
    patch(&env, "orders", json!({"spec": change})).await;
    says(&env, "orders", "Synced", "False", "RedriveTargetNotReady").await;
    assert_eq!(attribute("DelaySeconds").unwrap(), "7");
    assert_eq!(aws.sqs(|sqs| sqs.tag_of(NAME, "team")).unwrap(), "shop");
    assert!(count(), "what it has stays");
    // So it is where the queue itself has to be made again.
    env.pass(Duration::from_secs(90)).await;
    aws.outside("DeleteQueue", url(NAME));
    env.pass(A_WHILE).await;
    assert_eq!(attribute("DelaySeconds").unwrap(), "7");
    patch(&env, "orders", json!({"spec": {"redrivePolicy": null}})).await;
    ready(&env, "orders").await;
    assert_eq!(attribute("RedrivePolicy"), None);
    assert_eq!(events(&env, "Recreated").await.len(), 1);
    let drifted = events(&env, "Drifted").await;
    assert_eq!(drifted, ["VisibilityTimeout of queue default-orders was 45, put back to 30"]);
}

/// A row of the table in `trouble`: IAM no longer knows whom a policy names, and all else is kept right.
pub async fn without_principal() {
    let role = "arn:aws:iam::000000000000:role/shop";
    let allow = json!({"Effect": "Allow", "Principal": {"AWS": role}});
    let policy = json!({"Statement": [allow]}).to_string();
    let (env, aws) = settled(json!({"policy": policy})).await;
    aws.sqs(|sqs| sqs.unknown.push(role.to_owned()));
    // SQS shows the id of a role that was deleted in place of its name.
    let shown = policy.replace(role, "AROAEXAMPLE");
    let edit = json!({"Attributes": {"Policy": shown, "VisibilityTimeout": "45"}});
    aws.outside("SetQueueAttributes", about(NAME, edit));
    env.pass(A_WHILE).await;
    let attribute = |attribute| aws.sqs(|sqs| sqs.attribute(NAME, attribute)).unwrap();
    assert_eq!(attribute("VisibilityTimeout"), "30");
    assert_eq!(attribute("Policy"), shown, "what it has stays");
    let told = message(&says(&env, "orders", "Synced", "False", "Rejected").await, "Synced");
    assert!(told.contains("Invalid value for the parameter Policy"), "{told}");
    assert!(told.contains("change spec.policy: all whom it names must exist"), "{told}");
    says(&env, "orders", "Ready", "True", "Available").await;
}

/// What it recorded then lies ahead of every clock.
#[tokio::test(start_paused = true)]
async fn what_a_clock_that_was_ahead_recorded_stops_no_queue() {
    let (env, aws) = settled(json!({})).await;
    let later = env.now() + Duration::from_secs(10 * 86_400);
    let ahead = json!({"status": {"nextCheck": later, "lastChange": later, "lastChecked": later}});
    let patch = Patch::Merge(ahead);
    queues(&env).patch_status("orders", &PatchParams::default(), &patch).await.unwrap();
    aws.outside("DeleteQueue", about(NAME, json!({})));
    // Longer than two intervals.
    env.pass(Duration::from_secs(1_000)).await;
    env.until("the queue to be made again", async || {
        (aws.sqs(|sqs| sqs.names()) == [NAME]).then_some(())
    })
    .await;
}
