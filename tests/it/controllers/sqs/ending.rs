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
    let queue = says(&env, "orders", "Ready", "False", "DeletionNotOwned").await;
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

/// SQS shows a deleted queue for a while, and its object is made anew meanwhile.
#[tokio::test(start_paused = true)]
async fn a_queue_that_sqs_still_shows_is_no_strangers() {
    let (env, aws) = settled(json!({})).await;
    aws.sqs(|sqs| sqs.lag = Duration::from_secs(50));
    delete(&env).await;
    env.until_gone(&queues(&env), "orders").await;
    make(&env, "orders", json!({})).await;
    let queue = says(&env, "orders", "Ready", "False", "Settling").await;
    let message = &queue.status.unwrap().conditions[0].message;
    assert!(message.contains("is that of an earlier object of this name"), "{message}");
    env.pass(Duration::from_secs(150)).await;
    ready(&env, "orders").await;
    assert_eq!(aws.sqs(|sqs| sqs.names()), [NAME]);
    assert_eq!(events(&env, "NotOwned").await, [""; 0]);
}

/// Queues may be kept in several ways.
#[tokio::test(start_paused = true)]
async fn a_dead_letter_queue_stays_while_a_queue_that_is_kept_names_it() {
    for kept in [
        json!({"spec": {"deletionPolicy": "Retain"}}),
        json!({"spec": {"management": "Observe"}}),
        json!({"metadata": {"annotations": {"leasehold.dev/abandon": "true"}}}),
    ] {
        let (env, aws) = settled(json!({})).await;
        let to = json!({"queueRef": {"name": "orders"}, "maxReceiveCount": 3});
        make(&env, "uses", json!({"redrivePolicy": to})).await;
        ready(&env, "uses").await;
        patch(&env, "uses", kept.clone()).await;
        env.pass(Duration::from_secs(90)).await;
        // Its object goes a while later.
        let finalizers = json!(["example.com/slow", "sqs.leasehold.dev/queue"]);
        patch(&env, "uses", json!({"metadata": {"finalizers": finalizers}})).await;
        queues(&env).delete("uses", &DeleteParams::default()).await.unwrap();
        delete(&env).await;
        let queue = says(&env, "orders", "Ready", "False", "DeletionReferenced").await;
        let message = &queue.status.unwrap().conditions[0].message;
        assert!(message.contains("is the dead-letter queue of"), "{kept}: {message}");
        assert_eq!(aws.sqs(|sqs| sqs.names()), [NAME, "default-uses"]);
    }
}

/// As when their namespace is deleted.
#[tokio::test(start_paused = true)]
async fn two_queues_that_name_each_other_go_together() {
    for policy in ["Delete", "OrphanOnUnmanaged", "DeleteIfEmpty"] {
        let (env, aws) = settled(json!({"deletionPolicy": policy})).await;
        let to = |name: &str| json!({"queueRef": {"name": name}, "maxReceiveCount": 3});
        make(&env, "uses", json!({"deletionPolicy": policy, "redrivePolicy": to("orders")})).await;
        ready(&env, "uses").await;
        patch(&env, "orders", json!({"spec": {"redrivePolicy": to("uses")}})).await;
        env.pass(Duration::from_secs(90)).await;
        delete(&env).await;
        queues(&env).delete("uses", &DeleteParams::default()).await.unwrap();
        env.pass(Duration::from_secs(120)).await;
        env.until_gone(&queues(&env), "orders").await;
        env.until_gone(&queues(&env), "uses").await;
        assert_eq!(aws.sqs(|sqs| sqs.names()), [""; 0], "{policy}");
    }
}

/// Each is the dead-letter queue of the one before it, and the first that of the last.
#[tokio::test(start_paused = true)]
async fn a_ring_of_queues_goes_together() {
    for policy in ["Delete", "OrphanOnUnmanaged"] {
        let (env, aws) = settled(json!({"deletionPolicy": policy})).await;
        let to = |name: &str| json!({"queueRef": {"name": name}, "maxReceiveCount": 3});
        for (name, target) in [("b", "orders"), ("a", "b")] {
            let spec = json!({"deletionPolicy": policy, "redrivePolicy": to(target)});
            make(&env, name, spec).await;
            ready(&env, name).await;
        }
        patch(&env, "orders", json!({"spec": {"redrivePolicy": to("a")}})).await;
        env.pass(Duration::from_secs(90)).await;
        ready(&env, "orders").await;
        for name in ["orders", "a", "b"] {
            queues(&env).delete(name, &DeleteParams::default()).await.unwrap();
        }
        env.pass(Duration::from_secs(120)).await;
        for name in ["orders", "a", "b"] {
            env.until_gone(&queues(&env), name).await;
        }
        assert_eq!(aws.sqs(|sqs| sqs.names()), [""; 0], "{policy}");
    }
}

/// Its consumers still receive from it, and what fails needs a place.
#[tokio::test(start_paused = true)]
async fn a_dead_letter_queue_stays_while_a_queue_waits_for_its_end() {
    for policy in ["DeleteIfEmpty", "Delete"] {
        let (env, aws) = settled(json!({})).await;
        let to = json!({"queueRef": {"name": "orders"}, "maxReceiveCount": 3});
        make(&env, "uses", json!({"deletionPolicy": policy, "redrivePolicy": to})).await;
        ready(&env, "uses").await;
        env.pass(Duration::from_secs(90)).await;
        let owner = aws.sqs(|sqs| sqs.tag_of("default-uses", "leasehold.dev/owner"));
        let owner = json!({"Tags": {"leasehold.dev/owner": owner}});
        match policy {
            "Delete" => {
                let tag = json!({"TagKeys": ["leasehold.dev/owner"]});
                aws.outside("UntagQueue", about("default-uses", tag));
            }
            _ => assert_eq!(aws.sqs(|sqs| sqs.messages.insert("default-uses".to_owned(), 1)), None),
        }
        queues(&env).delete("uses", &DeleteParams::default()).await.unwrap();
        let why = if policy == "Delete" { "DeletionNotOwned" } else { "DeletionBlocked" };
        says(&env, "uses", "Ready", "False", why).await;
        delete(&env).await;
        env.pass(Duration::from_secs(300)).await;
        let queue = says(&env, "orders", "Ready", "False", "DeletionReferenced").await;
        let message = &queue.status.unwrap().conditions[0].message;
        assert!(message.contains("is the dead-letter queue of Queue default/uses"), "{message}");
        assert_eq!(aws.sqs(|sqs| sqs.names()), [NAME, "default-uses"]);
        aws.sqs(|sqs| sqs.messages.clear());
        aws.outside("TagQueue", about("default-uses", owner));
        env.pass(Duration::from_secs(600)).await;
        env.until_gone(&queues(&env), "uses").await;
        env.until_gone(&queues(&env), "orders").await;
        assert_eq!(aws.sqs(|sqs| sqs.names()), [""; 0], "{policy}");
    }
}

/// SQS lists the queues that name it in pages.
#[tokio::test(start_paused = true)]
async fn many_that_end_at_once_hide_none_that_stays() {
    let (env, aws) = settled(json!({})).await;
    let to = json!({"queueRef": {"name": "orders"}, "maxReceiveCount": 3});
    let names: Vec<_> = (10..21).map(|number| format!("q{number}")).collect();
    for name in &names {
        make(&env, name, json!({"redrivePolicy": to})).await;
    }
    for name in &names {
        ready(&env, name).await;
    }
    let arn = queues(&env).get("orders").await.unwrap().status.unwrap().arn.unwrap();
    let policy = json!({"deadLetterTargetArn": arn, "maxReceiveCount": 3}).to_string();
    let attributes = json!({"RedrivePolicy": policy});
    aws.outside("CreateQueue", json!({"QueueName": "outside", "Attributes": attributes}));
    env.pass(Duration::from_secs(90)).await;
    aws.deny("DeleteQueue");
    for name in &names {
        queues(&env).delete(name, &DeleteParams::default()).await.unwrap();
    }
    delete(&env).await;
    let told = |queue: &sqs::Queue| {
        let conditions = queue.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|told| {
            told.message.contains("is the dead-letter queue of")
                && told.message.contains("/outside")
        })
    };
    env.until_object(&queues(&env), "orders", told).await;
}
