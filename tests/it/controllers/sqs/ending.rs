//! What happens to a queue when its object is deleted.

use std::time::Duration;

use kube::api::DeleteParams;
use leasehold::testing::TestEnv;
use serde_json::json;

use super::super::quiet;
use super::world::{Aws, about, events, make, patch, queues, ready, says, settled};

const NAME: &str = "default-orders";

async fn delete(env: &TestEnv) {
    queues(env).delete("orders", &DeleteParams::default()).await.unwrap();
}

fn untag(aws: &Aws) {
    aws.outside("UntagQueue", about(NAME, json!({"TagKeys": ["leasehold.dev/owner"]})));
}

#[tokio::test(start_paused = true)]
async fn the_queue_goes_with_its_object() {
    let (env, aws) = settled(json!({})).await;
    delete(&env).await;
    env.until_gone(&queues(&env), "orders").await;
    assert_eq!(aws.sqs(|sqs| sqs.names()), [""; 0]);
    assert_eq!(events(&env, "Deleted").await, ["deleted queue default-orders in eu-west-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_retained_queue_stays_and_belongs_to_another_for_a_new_object() {
    let (env, aws) = settled(json!({"deletionPolicy": "Retain"})).await;
    delete(&env).await;
    env.until_gone(&queues(&env), "orders").await;
    assert_eq!(aws.sqs(|sqs| sqs.names()), [NAME]);
    make(&env, "orders", json!({})).await;
    let queue = says(&env, "orders", "Ready", "False", "NotOwned").await;
    let message = &queue.status.unwrap().conditions[0].message;
    assert!(message.contains("belongs to cluster:"), "{message}");
    // The queue never was this object's: the object can be deleted, and the queue stays.
    delete(&env).await;
    env.until_gone(&queues(&env), "orders").await;
    assert_eq!(aws.sqs(|sqs| sqs.names()), [NAME]);
    make(&env, "orders", json!({"adopt": true})).await;
    ready(&env, "orders").await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_whose_tag_was_removed_is_not_deleted_and_an_annotation_ends_the_wait() {
    let (env, aws) = settled(json!({})).await;
    untag(&aws);
    delete(&env).await;
    let queue = says(&env, "orders", "Ready", "False", "DeletionBlocked").await;
    let message = &queue.status.unwrap().conditions[0].message;
    assert!(message.contains("its tag leasehold.dev/owner was removed outside"), "{message}");
    assert!(message.contains("set annotation leasehold.dev/abandon=true"), "{message}");
    env.pass(Duration::from_secs(5)).await;
    quiet(&env, Duration::from_secs(600)).await;
    patch(&env, "orders", json!({"metadata": {"annotations": {"leasehold.dev/abandon": "true"}}}))
        .await;
    env.until_gone(&queues(&env), "orders").await;
    assert_eq!(aws.sqs(|sqs| sqs.names()), [NAME]);
    assert_eq!(events(&env, "Abandoned").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn by_policy_a_queue_whose_tag_was_removed_is_orphaned() {
    let (env, aws) = settled(json!({"deletionPolicy": "OrphanOnUnmanaged"})).await;
    untag(&aws);
    delete(&env).await;
    env.until_gone(&queues(&env), "orders").await;
    assert_eq!(aws.sqs(|sqs| sqs.names()), [NAME]);
    let notes = events(&env, "Orphaned").await;
    assert!(
        notes[0].contains("is left behind: its tag leasehold.dev/owner was removed"),
        "{notes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn while_sqs_is_out_of_reach_the_object_waits_and_then_goes() {
    let (env, aws) = settled(json!({})).await;
    aws.down(true);
    delete(&env).await;
    env.pass(Duration::from_secs(120)).await;
    assert!(queues(&env).get_opt("orders").await.unwrap().is_some());
    aws.down(false);
    env.until_gone(&queues(&env), "orders").await;
    assert_eq!(aws.sqs(|sqs| sqs.names()), [""; 0]);
}
