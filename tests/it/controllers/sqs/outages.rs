//! SQS out of reach, and refusals that end: who waits is told why, and is not left waiting for a check that
//! comes once a day.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::DeleteParams;
use leasehold::testing::TestEnv;
use serde_json::json;
use sqs::Queue;

use super::super::merge;
use super::trouble::message;
use super::world::{
    A_WHILE, Aws, NAMESPACE, make, patch, queues, ready, running, says, secret, settled,
    without_secret, world,
};

/// A check once a day.
const DAILY: u32 = 86_400;
/// Within which an end of trouble is noticed: one and a half periods of five minutes and a tenth.
const SOON: Duration = Duration::from_secs(495);

fn elapsed(aws: &Aws, since: Timestamp) -> Duration {
    aws.now().duration_since(since).unsigned_abs()
}

async fn version(env: &TestEnv) -> String {
    queues(env).get("orders").await.unwrap().metadata.resource_version.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_new_queue_says_that_sqs_does_not_answer() {
    let (env, aws) = running().await;
    aws.down(true);
    make(&env, "orders", json!({"driftCheckIntervalSeconds": DAILY})).await;
    let queue = says(&env, "orders", "Ready", "False", "Unavailable").await;
    let said = message(&queue, "Ready");
    assert!(said.starts_with("SQS does not answer the request to look for queue"), "{said}");
    assert!(said.contains("the connection was cut"), "{said}");
    // It is told once.
    let version_then = version(&env).await;
    env.pass(A_WHILE).await;
    assert_eq!(version(&env).await, version_then);
    let since = aws.now();
    aws.down(false);
    ready(&env, "orders").await;
    assert!(elapsed(&aws, since) < Duration::from_secs(120), "{:?}", elapsed(&aws, since));
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_told_when_a_look_is_long_due_or_the_spec_changed() {
    let (env, aws) = settled(json!({})).await;
    aws.down(true);
    // Looks are due and fail, which is no news yet.
    let status = queues(&env).get("orders").await.unwrap().status.unwrap();
    let due = status.next_check.unwrap().0;
    env.pass(due.duration_since(aws.now()).unsigned_abs() + Duration::from_secs(200)).await;
    ready(&env, "orders").await;
    // The next look may come as late as the engine's pauses make it.
    env.pass(Duration::from_secs(1_000)).await;
    says(&env, "orders", "Synced", "False", "Unavailable").await;
    // The queue is there all the same.
    says(&env, "orders", "Ready", "True", "Available").await;
    aws.down(false);
    env.pass(Duration::from_secs(1_000)).await;
    ready(&env, "orders").await;
    aws.down(true);
    let since = aws.now();
    patch(&env, "orders", json!({"spec": {"visibilityTimeoutSeconds": 45}})).await;
    says(&env, "orders", "Synced", "False", "Unavailable").await;
    assert!(elapsed(&aws, since) < Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_cannot_be_deleted_because_sqs_does_not_answer_says_so() {
    let (env, aws) = settled(json!({"driftCheckIntervalSeconds": DAILY})).await;
    aws.down(true);
    queues(&env).delete("orders", &DeleteParams::default()).await.unwrap();
    let queue = says(&env, "orders", "Ready", "False", "DeletionBlocked").await;
    let said = message(&queue, "Ready");
    assert!(said.contains("SQS does not answer the request to look at queue"), "{said}");
    assert!(said.contains("leasehold.dev/abandon=true"), "{said}");
    aws.down(false);
    env.until_gone(&queues(&env), "orders").await;
}

#[tokio::test(start_paused = true)]
async fn a_right_that_comes_late_is_noticed_soon() {
    let (env, aws) = running().await;
    aws.deny(Some("CreateQueue"));
    make(&env, "orders", json!({"driftCheckIntervalSeconds": DAILY})).await;
    says(&env, "orders", "Ready", "False", "AccessDenied").await;
    aws.deny(None);
    env.pass(SOON).await;
    ready(&env, "orders").await;
    // From then on it is looked at once a day.
    env.pass(Duration::from_secs(120)).await;
    let since = aws.now();
    env.pass(Duration::from_secs(3_600)).await;
    assert_eq!(aws.count("GetQueueAttributes", since), 0);
}

#[tokio::test(start_paused = true)]
async fn credentials_that_were_replaced_are_used_at_once() {
    let (mut env, aws) = without_secret().await;
    secret(&env).await;
    env.run([aws.controller()]);
    make(&env, "first", json!({})).await;
    ready(&env, "first").await;
    let secrets: Api<Secret> = env.api(NAMESPACE);
    let key = ("AWS_ACCESS_KEY_ID".to_owned(), ByteString(b"AKIDREPLACED".to_vec()));
    let data = BTreeMap::from([key]);
    merge(&secrets, "aws", json!({"data": data})).await;
    aws.revoke("AKIDEXAMPLE");
    let since = aws.now();
    make(&env, "orders", json!({})).await;
    ready(&env, "orders").await;
    assert!(elapsed(&aws, since) < Duration::from_secs(5), "{:?}", elapsed(&aws, since));
    // With wrong ones, each look reads the Secret once more and no oftener.
    aws.revoke("AKIDREPLACED");
    patch(&env, "orders", json!({"spec": {"visibilityTimeoutSeconds": 45}})).await;
    says(&env, "orders", "Synced", "False", "AccessDenied").await;
}

/// What the rules of the definition refuse besides is shown on a real API server (`cargo xtask real --only sqs`).
#[tokio::test(start_paused = true)]
async fn names_that_sqs_refuses_are_refused_at_once() {
    let (env, _) = world().await;
    for (name, accepted) in [
        ("new orders", false),
        ("orders.fifo.fifo", false),
        (&*"x".repeat(81), false),
        ("orders.fifo", true),
        ("Orders_2", true),
    ] {
        let spec =
            json!({"region": "eu-west-1", "queueName": name, "fifo": name.ends_with(".fifo")});
        let queue = Queue::new(
            &format!("q{}-{}", name.len(), accepted),
            serde_json::from_value(spec).unwrap(),
        );
        let created = queues(&env).create(&Default::default(), &queue).await;
        match created {
            Ok(_) => assert!(accepted, "{name}"),
            Err(error) => {
                assert!(!accepted && error.to_string().contains("spec.queueName"), "{error}")
            }
        }
    }
}
