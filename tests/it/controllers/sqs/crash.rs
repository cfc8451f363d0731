//! A crash at each write, to Kubernetes and to SQS.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use serde_json::json;

use super::super::crash::at_every_write;
use super::world::{NAMESPACE, about, make, queues, ready, running, url, world};

const NAME: &str = "default-orders";

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_still_creates_one_queue() {
    let writes = at_every_write(async |crash| {
        let (mut env, aws) = world().await;
        aws.outside("CreateQueue", json!({"QueueName": "dead"}));
        let arn = "arn:aws:sqs:eu-west-1:000000000000:dead";
        let redrive = json!({"queueArn": arn, "maxReceiveCount": 5});
        let to = json!({"configMap": "orders-queue"});
        let spec = json!({"tags": {"team": "shop"}, "redrivePolicy": redrive, "connection": to});
        make(&env, "orders", spec).await;
        crash.watch(&env);
        aws.watch(&crash);
        let controllers = || vec![aws.controller()];
        crash
            .survived(&mut env, controllers, async |env| {
                ready(env, "orders").await;
            })
            .await;
        assert_eq!(aws.sqs(|sqs| sqs.names()), ["dead", NAME]);
        assert_eq!(aws.sqs(|sqs| sqs.tag_of(NAME, "team")).unwrap(), "shop");
        assert!(aws.sqs(|sqs| sqs.attribute(NAME, "RedrivePolicy")).unwrap().contains(arn));
        let maps: Api<ConfigMap> = env.api(NAMESPACE);
        let told = maps.get("orders-queue").await.unwrap().data.unwrap();
        assert_eq!(told["QUEUE_URL"], url(NAME)["QueueUrl"]);
        let secrets: Api<Secret> = env.api(NAMESPACE);
        assert_eq!(secrets.get("aws").await.unwrap().finalizers().len(), 1);
    })
    .await;
    let what = "finalizer, Secret, intent, queue, dead-letter queue, ConfigMap, status";
    assert!(writes >= 8, "{what}: {writes}");
}

/// SQS shows a new queue late, and its object may be gone before.
#[tokio::test(start_paused = true)]
async fn a_queue_that_is_created_late_or_again_does_not_outlive_its_object() {
    for was_there in [false, true] {
        let (env, aws) = running().await;
        if was_there {
            make(&env, "orders", json!({"driftCheckIntervalSeconds": 60})).await;
            ready(&env, "orders").await;
            env.pass(Duration::from_secs(90)).await;
            aws.deny("CreateQueue");
            aws.outside("DeleteQueue", url(NAME));
        } else {
            aws.deny("CreateQueue");
            make(&env, "orders", json!({"driftCheckIntervalSeconds": 60})).await;
        }
        env.pass(Duration::from_secs(3_600)).await;
        aws.sqs(|sqs| sqs.lag = Duration::from_secs(30));
        aws.deny(None);
        env.until("the queue", async || (aws.sqs(|sqs| sqs.names()) == [NAME]).then_some(())).await;
        queues(&env).delete("orders", &DeleteParams::default()).await.unwrap();
        env.until_gone(&queues(&env), "orders").await;
        assert_eq!(aws.sqs(|sqs| sqs.names()), [""; 0], "{was_there}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_drift_is_repaired_still_repairs_it() {
    let writes = at_every_write(async |crash| {
        let (mut env, aws) = running().await;
        let policy = r#"{"Statement":[]}"#;
        make(&env, "orders", json!({"driftCheckIntervalSeconds": 30, "policy": policy})).await;
        ready(&env, "orders").await;
        env.stop().await;
        env.pass(Duration::from_secs(300)).await;
        let edit = json!({"Attributes": {"VisibilityTimeout": "45", "Policy": "{}"}});
        aws.outside("SetQueueAttributes", about(NAME, edit));
        crash.watch(&env);
        aws.watch(&crash);
        let controllers = || vec![aws.controller()];
        crash
            .survived(&mut env, controllers, async |env| {
                env.until("the drift to be put right and recorded", async || {
                    let found = |name| aws.sqs(|sqs| sqs.attribute(NAME, name));
                    let is_back = found("VisibilityTimeout").as_deref() == Some("30")
                        && found("Policy").as_deref() == Some(policy);
                    is_back.then_some(())
                })
                .await;
                ready(env, "orders").await;
            })
            .await;
    })
    .await;
    assert!(writes >= 2, "the attributes, the policy: {writes}");
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_the_object_ends_leaves_nothing_behind() {
    let writes = at_every_write(async |crash| {
        let (mut env, aws) = running().await;
        make(&env, "orders", json!({})).await;
        ready(&env, "orders").await;
        env.stop().await;
        env.pass(Duration::from_secs(90)).await;
        queues(&env).delete("orders", &DeleteParams::default()).await.unwrap();
        crash.watch(&env);
        aws.watch(&crash);
        let controllers = || vec![aws.controller()];
        crash
            .survived(&mut env, controllers, async |env| {
                env.until_gone(&queues(env), "orders").await;
            })
            .await;
        assert_eq!(aws.sqs(|sqs| sqs.names()), [""; 0]);
        let secrets: Api<Secret> = env.api(NAMESPACE);
        assert_eq!(secrets.get("aws").await.unwrap().finalizers().len(), 0);
    })
    .await;
    assert!(writes >= 4, "the queue, its name off record, the Secret, the finalizer: {writes}");
}
