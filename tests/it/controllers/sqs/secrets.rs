//! What becomes of Secrets that Queues hold: rows of the table in `trouble`.

use std::time::Duration;

use apiserver::faults::Request;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use leasehold::testing::{ApiError, Fault, Reason, TestEnv};
use serde_json::json;

use super::trouble::{NAME, delete, message};
use super::world::{NAMESPACE, make, patch, queues, says, settled};

/// Longer than it is remembered which Secrets are held.
async fn pass_hours(env: &TestEnv) {
    env.pass(Duration::from_secs(7_200)).await;
}

async fn finalizers(env: &TestEnv) -> usize {
    let secrets: Api<Secret> = env.api(NAMESPACE);
    secrets.get("aws").await.unwrap().finalizers().len()
}

async fn delete_secret(env: &TestEnv) {
    let secrets: Api<Secret> = env.api(NAMESPACE);
    secrets.delete("aws", &DeleteParams::default()).await.unwrap();
}

/// That we may not read it now is no reason to forget that it has our finalizer.
pub async fn unreadable() {
    let (env, _aws) = settled(json!({"deletionPolicy": "Retain"})).await;
    env.set_faults(|request: &Request| {
        let ours = request.user_agent.starts_with("leasehold/");
        match ours && request.resource == "secrets" && request.verb == "get" {
            true => Fault::Error(ApiError::new(Reason::Forbidden, "not yours")),
            false => Fault::None,
        }
    });
    pass_hours(&env).await;
    says(&env, "orders", "Ready", "False", "CredentialsMissing").await;
    env.end_faults();
    delete(&env, "orders").await;
    env.until_gone(&queues(&env), "orders").await;
    assert_eq!(finalizers(&env).await, 0);
}

/// A queue that is made with a Secret which goes could not be deleted after it.
pub async fn going() {
    let (env, aws) = settled(json!({})).await;
    delete_secret(&env).await;
    make(&env, "late", json!({})).await;
    let queue = says(&env, "late", "Ready", "False", "CredentialsMissing").await;
    let told = message(&queue, "Ready");
    assert!(told.starts_with("Secret aws is being deleted: name another"), "{told}");
    assert_eq!(aws.sqs(|sqs| sqs.names()), [NAME]);
    // Once it is gone its key is still remembered for a while.
    delete(&env, "orders").await;
    env.until_gone(&queues(&env), "orders").await;
    env.until_gone(&env.api::<Secret>(NAMESPACE), "aws").await;
    make(&env, "later", json!({})).await;
    let queue = says(&env, "later", "Ready", "False", "CredentialsMissing").await;
    assert!(message(&queue, "Ready").starts_with("Secret aws does not exist"));
    assert_eq!(aws.sqs(|sqs| sqs.names()), [""; 0]);
    for name in ["late", "later"] {
        delete(&env, name).await;
        env.until_gone(&queues(&env), name).await;
    }
}

/// Whoever replaces a Secret takes its finalizers off, and a queue may wait for days for its end.
pub async fn replaced() {
    let (env, aws) = settled(json!({"deletionPolicy": "DeleteIfEmpty"})).await;
    aws.sqs(|sqs| sqs.messages.insert(NAME.to_owned(), 1));
    delete(&env, "orders").await;
    says(&env, "orders", "Ready", "False", "DeletionBlocked").await;
    let secrets: Api<Secret> = env.api(NAMESPACE);
    let mut new = Secret { data: secrets.get("aws").await.unwrap().data, ..Secret::default() };
    new.metadata.name = Some("aws".to_owned());
    secrets.replace("aws", &PostParams::default(), &new).await.unwrap();
    assert_eq!(finalizers(&env).await, 0);
    pass_hours(&env).await;
    assert_eq!(finalizers(&env).await, 1);
    delete_secret(&env).await;
    aws.sqs(|sqs| sqs.messages.clear());
    pass_hours(&env).await;
    env.until_gone(&queues(&env), "orders").await;
    env.until_gone(&secrets, "aws").await;
    assert_eq!(aws.sqs(|sqs| sqs.names()), [""; 0]);
}

/// As people do with an object that does not go.
pub async fn without_us() {
    for restarts in [false, true] {
        let (mut env, aws) = settled(json!({})).await;
        patch(&env, "orders", json!({"spec": {"management": "Pause"}})).await;
        says(&env, "orders", "Synced", "False", "Paused").await;
        if restarts {
            env.stop().await;
            env.run([aws.controller()]);
        }
        env.pass(Duration::from_secs(5)).await;
        delete(&env, "orders").await;
        says(&env, "orders", "Ready", "False", "DeletionBlocked").await;
        assert_eq!(finalizers(&env).await, 1);
        patch(&env, "orders", json!({"metadata": {"finalizers": null}})).await;
        env.until("the Secret to be let go", async || (finalizers(&env).await == 0).then_some(()))
            .await;
    }
}
