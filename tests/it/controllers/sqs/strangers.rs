//! What people of one namespace can do to the queues of another: rows of the table in `trouble`.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use leasehold::testing::TestEnv;
use serde_json::{Value, json};
use sqs::Queue;

use super::trouble::{NAME, delete, message, permitting, with_key};
use super::world::{
    A_WHILE, Aws, NAMESPACE, aws, make, make_in, queues, ready, says, secret_in, settled, url,
};

const STRANGERS: &str = "strangers";
/// Queues of strangers, which need eight seconds of a budget.
const MANY: usize = 100;

fn arn(name: &str) -> String {
    format!("arn:aws:sqs:eu-west-1:000000000000:{name}")
}

fn to(arn: &str) -> Value {
    json!({"redrivePolicy": {"queueArn": arn, "maxReceiveCount": 3}})
}

/// A Secret `aws` with this key.
async fn key(secrets: &Api<Secret>, id: &str) {
    let pairs = [("AWS_ACCESS_KEY_ID", id), ("AWS_SECRET_ACCESS_KEY", "theirs")];
    let data = pairs.map(|(name, value)| (name.to_owned(), ByteString(value.into())));
    let mut secret = Secret { data: Some(data.into()), ..Secret::default() };
    secret.metadata.name = Some("aws".to_owned());
    secrets.create(&PostParams::default(), &secret).await.unwrap();
}

/// A cluster with a namespace of strangers, where Secrets exist in the first alone.
async fn shared(settings: &Value) -> (TestEnv, Aws) {
    let env = TestEnv::builder().crds(controllers::crds()).namespace(STRANGERS);
    let mut env = env.start().await;
    let aws = aws(&env);
    secret_in(&env.api(NAMESPACE)).await;
    env.run([aws.controller_with(with_key(), settings)]);
    (env, aws)
}

/// Whoever may write a Queue may name any ARN. What counts is what SQS has.
pub async fn named() {
    let (env, aws) = shared(&Value::Null).await;
    for name in ["orders", "returns"] {
        make(&env, name, json!({})).await;
        ready(&env, name).await;
    }
    let theirs: Api<Queue> = env.api(STRANGERS);
    // Without credentials this one has no queue.
    make_in(&theirs, "claims", to(&arn(NAME))).await;
    env.pass(A_WHILE).await;
    delete(&env, "orders").await;
    env.until_gone(&queues(&env), "orders").await;
    assert_eq!(aws.sqs(|sqs| sqs.names()), ["default-returns"]);

    // A queue with that policy counts, also where SQS may not be asked for it.
    secret_in(&env.api(STRANGERS)).await;
    make_in(&theirs, "uses", to(&arn("default-returns"))).await;
    env.until_condition(&theirs, "uses", "Synced").await;
    env.pass(Duration::from_secs(90)).await;
    aws.deny("ListDeadLetterSourceQueues");
    delete(&env, "returns").await;
    let queue = says(&env, "returns", "Ready", "False", "DeletionBlocked").await;
    assert!(message(&queue, "Ready").contains("Queue strangers/uses"), "{queue:?}");
    theirs.delete("uses", &DeleteParams::default()).await.unwrap();
    env.until_gone(&queues(&env), "returns").await;
}

/// What a Secret holds is its author's choice.
pub async fn budgets() {
    let own = json!({"environment": {}});
    for (id, credentials) in
        [("own", &own), ("AKIDOWN", &own), ("AKIDEXAMPLE", &json!({"secretRef": {"name": "aws"}}))]
    {
        let settings = permitting(json!({"namespaces": [NAMESPACE], "ownIdentity": true}));
        let (env, aws) = shared(&settings).await;
        key(&env.api(STRANGERS), id).await;
        let theirs: Api<Queue> = env.api(STRANGERS);
        for number in 0..MANY {
            make_in(&theirs, &format!("q{number}"), json!({})).await;
        }
        let since = aws.now();
        make(&env, "orders", json!({"credentials": credentials})).await;
        ready(&env, "orders").await;
        let taken = aws.now().duration_since(since).as_secs();
        assert!(taken < 3, "{id}: it took {taken} s, behind the queues of strangers");
        assert!(aws.sqs(|sqs| sqs.names()).len() < MANY, "their budget is not used up");
    }
}

/// The list of the administrator holds for the dead-letter queue too, by whatever way it is named.
pub async fn target() {
    let entry = json!({"namespaces": ["*"], "queuePrefixes": ["default-"], "ownIdentity": true});
    let (env, aws) = shared(&permitting(entry)).await;
    let own = |redrive: Value| {
        let mut spec = json!({"credentials": {"environment": {}}});
        spec.as_object_mut().unwrap().extend(redrive.as_object().unwrap().clone());
        spec
    };
    for name in ["billing", "default-dead"] {
        aws.outside("CreateQueue", json!({"QueueName": name}));
    }
    // Their own Secret lets them see another queue. That makes it no queue of theirs.
    make(&env, "seen", json!({"queueName": "billing", "management": "Observe"})).await;
    ready(&env, "seen").await;
    let seen = json!({"redrivePolicy": {"queueRef": {"name": "seen"}, "maxReceiveCount": 3}});
    for (name, redrive) in [("by-arn", to(&arn("billing"))), ("by-name", seen)] {
        make(&env, name, own(redrive)).await;
        let queue = says(&env, name, "Ready", "False", "NotPermitted").await;
        let told = message(&queue, "Ready");
        assert!(told.contains("with dead-letter queue billing"), "{told}");
        // It can be deleted all the same.
        delete(&env, name).await;
        env.until_gone(&queues(&env), name).await;
    }
    make(&env, "orders", own(to(&arn("default-dead")))).await;
    ready(&env, "orders").await;
    assert_eq!(aws.sqs(|sqs| sqs.names()), ["billing", "default-dead", NAME]);
}

/// Another account knows nothing of the queue, which is no reason to forget it.
pub async fn gone_elsewhere() {
    let (env, aws) = settled(json!({})).await;
    aws.sts(|sts| sts.account = Some("111111111111".to_owned()));
    // What another account would say of it.
    aws.outside("DeleteQueue", url(NAME));
    delete(&env, "orders").await;
    let queue = says(&env, "orders", "Ready", "False", "DeletionBlocked").await;
    let told = message(&queue, "Ready");
    assert!(told.contains("is in account 000000000000, and the credentials are of account 1111"));
    env.pass(A_WHILE).await;
    // Nor is silence.
    aws.sts(|sts| (sts.account, sts.refuses) = (None, true));
    env.pass(A_WHILE).await;
    let queue = says(&env, "orders", "Ready", "False", "DeletionBlocked").await;
    assert!(message(&queue, "Ready").contains("STS does not say whose the credentials are"));
    aws.sts(|sts| sts.refuses = false);
    env.until_gone(&queues(&env), "orders").await;
}
