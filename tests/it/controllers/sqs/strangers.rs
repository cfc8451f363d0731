//! What people of one namespace can do to the queues of another: rows of the table in `trouble`.

use std::time::Duration;

use apiserver::faults::Request;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use leasehold::testing::{ApiError, Fault, Reason, TestEnv};
use serde_json::{Value, json};
use sqs::Queue;

use super::trouble::{NAME, OWNER_TAG, attribute, delete, message, owner, permitting, with_key};
use super::world::{
    A_WHILE, Aws, NAMESPACE, about, aws, events, make, make_in, patch, queues, ready, says,
    secret_in, settled, url, world,
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

/// A Secret `aws` with this key, which is also the token of its session.
async fn key(secrets: &Api<Secret>, id: &str) {
    let pairs =
        [("AWS_ACCESS_KEY_ID", id), ("AWS_SECRET_ACCESS_KEY", "theirs"), ("AWS_SESSION_TOKEN", id)];
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
    let queue = says(&env, "returns", "Ready", "False", "DeletionReferenced").await;
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
    // A queue that exists keeps the one it has, and the rest is healed.
    patch(&env, "orders", json!({"spec": to(&arn("billing"))})).await;
    let queue = says(&env, "orders", "Synced", "False", "NotPermitted").await;
    let told = message(&queue, "Synced");
    assert!(told.contains("with dead-letter queue billing"), "{told}");
    says(&env, "orders", "Ready", "True", "Available").await;
    env.pass(Duration::from_secs(90)).await;
    let delayed = json!({"Attributes": {"DelaySeconds": "9"}});
    aws.outside("SetQueueAttributes", about(NAME, delayed));
    env.pass(A_WHILE).await;
    assert_eq!(attribute(&aws, NAME, "DelaySeconds").as_deref(), Some("0"));
    assert!(attribute(&aws, NAME, "RedrivePolicy").unwrap().contains("default-dead"));
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

/// AWS's own STS knows whose the credentials are, also where SQS has an address in a VPC.
pub async fn gone_in_a_vpc() {
    let endpoint = "https://vpce-1a2b.sqs.eu-west-1.vpce.amazonaws.com";
    let entry = json!({"namespaces": [NAMESPACE], "endpoints": [endpoint]});
    let (env, aws) = shared(&permitting(entry)).await;
    make(&env, "orders", json!({"endpoint": endpoint, "driftCheckIntervalSeconds": 30})).await;
    ready(&env, "orders").await;
    env.pass(Duration::from_secs(90)).await;
    aws.sts(|sts| sts.account = Some("111111111111".to_owned()));
    aws.outside("DeleteQueue", url(NAME));
    says(&env, "orders", "Ready", "False", "OtherAccount").await;
    env.pass(A_WHILE).await;
    assert_eq!(aws.sqs(|sqs| sqs.names()), [""; 0], "none is made in another account");
    delete(&env, "orders").await;
    let queue = says(&env, "orders", "Ready", "False", "DeletionBlocked").await;
    assert!(message(&queue, "Ready").contains("the credentials are of account 1111"));
    aws.sts(|sts| sts.account = None);
    env.until_gone(&queues(&env), "orders").await;
}

/// Marks of earlier versions name a cluster by its context, and many contexts have the same name.
pub async fn same_context() {
    let (mut env, aws) = world().await;
    let theirs = "east/default/orders/0b6e6a4e-7c1a-4f2e-9d50-000000000001";
    aws.outside("CreateQueue", json!({"QueueName": NAME, "tags": {OWNER_TAG: theirs}}));
    env.run([aws.controller()]);
    make(&env, "orders", json!({"adopt": true})).await;
    let queue = says(&env, "orders", "Ready", "False", "NotOwned").await;
    let told = message(&queue, "Ready");
    assert!(told.contains(theirs) && told.contains("remove that tag"), "{told}");
    env.pass(A_WHILE).await;
    assert_eq!(owner(&aws, NAME), theirs);
}

/// What was read in a cluster is of that cluster, whatever the clusters are called next.
pub async fn swapped_contexts() {
    let env = TestEnv::builder().crds(controllers::crds()).clusters(["east", "west"]);
    let mut env = env.start().await;
    let aws = aws(&env);
    for (cluster, id) in [("east", "AKIDEAST"), ("west", "AKIDWEST")] {
        key(&env.cluster(cluster).api(NAMESPACE), id).await;
    }
    let used = || aws.sts(|sts| sts.last_used.clone());
    let made = async |env: &TestEnv, name: &str| {
        let queues: Api<Queue> = env.cluster("east").api(NAMESPACE);
        make_in(&queues, name, json!({})).await;
        env.until_condition(&queues, name, "Synced").await;
    };
    let spec = aws.controller();
    env.run([spec.clone()]);
    made(&env, "orders").await;
    assert_eq!(used().as_deref(), Some("AKIDEAST"));
    env.stop().await;
    for (from, to) in [("east", "before"), ("west", "east"), ("before", "west")] {
        env.rename(from, to);
    }
    // The same process goes on.
    env.run([spec]);
    made(&env, "returns").await;
    assert_eq!(used().as_deref(), Some("AKIDWEST"));
}

/// It goes with the Queue in any case.
pub async fn kept_config_map() {
    let (env, _aws) = settled(json!({"connection": {"configMap": "first"}})).await;
    env.set_faults(|request: &Request| {
        let ours = request.user_agent.starts_with("leasehold/");
        match ours && request.resource == "configmaps" && request.verb == "delete" {
            true => Fault::Error(ApiError::new(Reason::Forbidden, "by policy")),
            false => Fault::None,
        }
    });
    patch(&env, "orders", json!({"spec": {"connection": {"configMap": "second"}}})).await;
    let maps: Api<ConfigMap> = env.api(NAMESPACE);
    env.until("the other ConfigMap", async || maps.get_opt("second").await.ok()?.map(drop)).await;
    env.pass(Duration::from_secs(5)).await;
    ready(&env, "orders").await;
    let told = events(&env, "ConnectionNotRemoved").await;
    assert!(told.len() == 1 && told[0].starts_with("ConfigMap first of an earlier"), "{told:?}");
    assert!(told[0].contains("by policy"), "{told:?}");
}

/// Somebody makes the ConfigMap after we looked for it.
pub async fn config_map() {
    let (mut env, aws) = world().await;
    let maps: Api<ConfigMap> = env.api(NAMESPACE);
    let theirs = json!({"metadata": {"name": "theirs"}, "data": {"colour": "blue"}});
    let theirs: ConfigMap = serde_json::from_value(theirs).unwrap();
    maps.create(&PostParams::default(), &theirs).await.unwrap();
    env.set_faults(|request: &Request| {
        let ours = request.user_agent.starts_with("leasehold/");
        match ours && request.resource == "configmaps" && request.verb == "get" {
            true => Fault::Error(ApiError::new(Reason::NotFound, "not yet")),
            false => Fault::None,
        }
    });
    env.run([aws.controller()]);
    make(&env, "orders", json!({"connection": {"configMap": "theirs"}})).await;
    says(&env, "orders", "Synced", "False", "ConnectionNotWritten").await;
    let found = maps.get("theirs").await.unwrap();
    assert!(found.owner_references().is_empty(), "{:?}", found.owner_references());
    assert_eq!(found.data, theirs.data);
}
