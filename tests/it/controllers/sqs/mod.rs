//! Queue: created, repaired, created again and deleted, through AWS's own client.

mod crash;
mod ending;
mod gauges;
mod healing;
mod identity;
mod load;
mod observing;
mod outages;
mod secrets;
mod strangers;
mod trouble;
mod world;

use std::time::Duration;

use kube::api::DeleteParams;
use serde_json::json;

use self::world::{
    A_WHILE, about, events, make, patch, queues, ready, running, says, secret, without_secret,
    world,
};
use super::quiet;

#[tokio::test(start_paused = true)]
async fn a_queue_is_created_as_its_spec_says_and_then_nothing_is_written() {
    let (env, aws) = running().await;
    make(
        &env,
        "orders",
        json!({
            "visibilityTimeoutSeconds": 60,
            "redrivePolicy": {"queueRef": {"name": "dead"}, "maxReceiveCount": 5},
            "tags": {"team": "shop"},
        }),
    )
    .await;
    let waiting = says(&env, "orders", "Synced", "False", "RedriveTargetNotReady").await;
    let message = &waiting.status.unwrap().conditions[1].message;
    assert_eq!(message, "Queue dead of spec.redrivePolicy does not exist: create it");
    make(&env, "dead", json!({})).await;
    let queue = ready(&env, "orders").await;
    let status = queue.status.unwrap();
    assert_eq!(status.arn.unwrap(), "arn:aws:sqs:eu-west-1:000000000000:default-orders");
    let name = "default-orders";
    let attribute = |attribute| aws.sqs(|sqs| sqs.attribute(name, attribute)).unwrap();
    assert_eq!(attribute("VisibilityTimeout"), "60");
    let redrive = r#"{"deadLetterTargetArn":"arn:aws:sqs:eu-west-1:000000000000:default-dead","maxReceiveCount":5}"#;
    assert_eq!(attribute("RedrivePolicy"), redrive);
    assert_eq!(aws.sqs(|sqs| sqs.tag_of(name, "team")).unwrap(), "shop");
    assert!(aws.sqs(|sqs| sqs.tag_of(name, "leasehold.dev/owner")).is_some());
    assert_eq!(events(&env, "Created").await.len(), 2);

    env.pass(Duration::from_secs(5)).await;
    let since = aws.now();
    quiet(&env, A_WHILE).await;
    let looks = aws.count("GetQueueAttributes", since);
    assert!((2..=6).contains(&looks), "two queues, looked at every five minutes: {looks}");
    assert_eq!(aws.count("SetQueueAttributes", since), 0);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_spec_is_made_at_once() {
    let (env, aws) = running().await;
    make(&env, "orders", json!({"tags": {"team": "shop", "stage": "test"}})).await;
    ready(&env, "orders").await;
    let change = json!({"delaySeconds": 7, "encryption": {"kms": {"keyId": "alias/orders"}},
        "tags": {"team": "sales", "stage": null}});
    patch(&env, "orders", json!({"spec": change})).await;
    env.pass(Duration::from_secs(5)).await;
    ready(&env, "orders").await;
    let name = "default-orders";
    let attribute = |attribute| aws.sqs(|sqs| sqs.attribute(name, attribute)).unwrap();
    assert_eq!(attribute("DelaySeconds"), "7");
    assert_eq!(attribute("KmsMasterKeyId"), "alias/orders");
    assert_eq!(attribute("SqsManagedSseEnabled"), "false");
    assert_eq!(aws.sqs(|sqs| sqs.tag_of(name, "team")).unwrap(), "sales");
    assert_eq!(aws.sqs(|sqs| sqs.tag_of(name, "stage")), None);
    let notes = events(&env, "Updated").await;
    assert!(notes.iter().any(|note| note.contains("DelaySeconds") && note.contains("from 0 to 7")));
    assert_eq!(events(&env, "Drifted").await, [""; 0]);

    patch(&env, "orders", json!({"spec": {"encryption": {"kms": null, "sqsManaged": {}}}})).await;
    env.pass(Duration::from_secs(5)).await;
    assert_eq!(aws.sqs(|sqs| sqs.attribute(name, "KmsMasterKeyId")), None);
}

#[tokio::test(start_paused = true)]
async fn a_fifo_queue_has_its_suffix_and_deduplicates() {
    let (env, aws) = running().await;
    make(&env, "orders", json!({"fifo": true, "contentBasedDeduplication": true})).await;
    ready(&env, "orders").await;
    assert_eq!(aws.sqs(|sqs| sqs.names()), ["default-orders.fifo"]);
    let found = aws.sqs(|sqs| sqs.attribute("default-orders.fifo", "ContentBasedDeduplication"));
    assert_eq!(found.unwrap(), "true");
}

/// A retry changes none of these conditions: nothing is written, and SQS is not asked.
#[tokio::test(start_paused = true)]
async fn a_spec_that_cannot_be_used_is_a_condition_and_not_an_error_loop() {
    let (env, aws) = running().await;
    for (name, spec, words) in [
        ("plain-fifo", json!({"queueName": "a.fifo"}), "ends in .fifo: set spec.fifo"),
        ("dedup", json!({"contentBasedDeduplication": true}), "set spec.fifo too, or remove it"),
        ("tag", json!({"tags": {"leasehold.dev/owner": "me"}}), "the controller sets that tag"),
        ("crypt", json!({"encryption": {}}), "spec.encryption has 0 of sqsManaged and kms"),
        (
            "two",
            json!({"credentials": {"secretRef": {"name": "aws"}, "environment": {}}}),
            "spec.credentials has 2 of secretRef, webIdentity, assumeRole and environment",
        ),
        (
            "self",
            json!({"redrivePolicy": {"queueRef": {"name": "self"}, "maxReceiveCount": 1}}),
            "names this Queue itself",
        ),
        (
            "self-arn",
            json!({"redrivePolicy": {"maxReceiveCount": 1,
                "queueArn": "arn:aws:sqs:eu-west-1:000000000000:default-self-arn"}}),
            "names this Queue itself",
        ),
        (
            "both",
            json!({"redrivePolicy": {"queueRef": {"name": "a"}, "maxReceiveCount": 1,
                "queueArn": "arn:aws:sqs:eu-west-1:000000000000:a"}}),
            "spec.redrivePolicy has 2 of queueRef and queueArn",
        ),
        ("scope", json!({"deduplicationScope": "Queue"}), "spec.deduplicationScope is for FIFO"),
        (
            "limit",
            json!({"fifo": true, "fifoThroughputLimit": "PerMessageGroup"}),
            "set spec.deduplicationScope to MessageGroup too",
        ),
    ] {
        make(&env, name, spec).await;
        let queue = says(&env, name, "Invalid", "True", "Invalid").await;
        let message = &queue.status.unwrap().conditions[2].message;
        assert!(message.contains(words), "{name}: {message}");
    }
    env.pass(Duration::from_secs(5)).await;
    quiet(&env, A_WHILE).await;
    assert_eq!(aws.requests(env.now() - A_WHILE - A_WHILE), []);
    assert_eq!(events(&env, "Invalid").await.len(), 10);
    // It can be deleted whatever is wrong with it.
    queues(&env).delete("tag", &DeleteParams::default()).await.unwrap();
    env.until_gone(&queues(&env), "tag").await;
}

/// The embedded server has no CEL, so the plan refuses what a real server would refuse.
#[tokio::test(start_paused = true)]
async fn a_change_that_is_not_possible_is_refused_and_the_queue_stays() {
    let (env, aws) = running().await;
    make(&env, "orders", json!({})).await;
    ready(&env, "orders").await;
    for (change, back, words) in [
        (
            json!({"queueName": "other"}),
            json!({"queueName": "default-orders"}),
            "spec.queueName cannot",
        ),
        (json!({"fifo": true}), json!({"fifo": false}), "spec.fifo cannot"),
        (
            json!({"endpoint": "http://127.0.0.1:1"}),
            json!({"endpoint": null}),
            "spec.endpoint cannot",
        ),
        (json!({"region": "eu-west-2"}), json!({"region": "eu-west-1"}), "spec.region cannot"),
    ] {
        patch(&env, "orders", json!({"spec": change})).await;
        let queue = says(&env, "orders", "Invalid", "True", "Invalid").await;
        let conditions = queue.status.unwrap().conditions;
        assert!(conditions[2].message.contains(words), "{}", conditions[2].message);
        assert_eq!(conditions[0].status, "True", "the queue still exists");
        patch(&env, "orders", json!({"spec": back})).await;
        ready(&env, "orders").await;
    }
    assert_eq!(aws.sqs(|sqs| sqs.names()), ["default-orders"]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_secret_is_a_condition_and_not_an_error_loop() {
    let (mut env, aws) = without_secret().await;
    env.run([aws.controller()]);
    make(&env, "orders", json!({})).await;
    let queue = says(&env, "orders", "Ready", "False", "CredentialsMissing").await;
    let message = &queue.status.unwrap().conditions[0].message;
    assert!(message.starts_with("Secret aws does not exist: create it, with AWS_ACCESS_KEY_ID"));
    env.pass(Duration::from_secs(5)).await;
    quiet(&env, A_WHILE).await;
    secret(&env).await;
    ready(&env, "orders").await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_of_others_is_only_touched_if_it_is_adopted() {
    let (mut env, aws) = world().await;
    aws.outside(
        "CreateQueue",
        json!({"QueueName": "default-orders", "Attributes": {"DelaySeconds": "9"}}),
    );
    aws.outside("TagQueue", about("default-orders", json!({"Tags": {"made-by": "hand"}})));
    let since = aws.now();
    env.run([aws.controller()]);
    make(&env, "orders", json!({})).await;
    let queue = says(&env, "orders", "Ready", "False", "NotOwned").await;
    let message = &queue.status.unwrap().conditions[0].message;
    assert!(message.contains("exists and has no tag") && message.contains("spec.adopt"));
    env.pass(Duration::from_secs(5)).await;
    quiet(&env, A_WHILE).await;
    let asked = aws.requests(since);
    assert!(asked.iter().all(|(_, what)| what.starts_with("Get") || what.starts_with("List")));

    patch(&env, "orders", json!({"spec": {"adopt": true}})).await;
    ready(&env, "orders").await;
    assert_eq!(aws.sqs(|sqs| sqs.attribute("default-orders", "DelaySeconds")).unwrap(), "0");
    assert_eq!(aws.sqs(|sqs| sqs.tag_of("default-orders", "made-by")).unwrap(), "hand");
    assert_eq!(
        events(&env, "Adopted").await,
        ["adopted queue default-orders, which was without an owner"]
    );
}
