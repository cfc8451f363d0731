//! Seeds of trouble: what goes wrong in the first week with queues of one account, of many clusters and
//! of others. Each row is a story of its own in a world of its own.

use std::time::Duration;

use apiserver::faults::Request;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use leasehold::testing::{ApiError, Fault, Reason, TestEnv};
use serde_json::{Value, json};
use sqs::Queue;
use sqs::environment::AwsEnvironment;

use super::super::{Story, tell};
use super::world::{
    A_WHILE, Aws, NAMED, NAMESPACE, about, aws, events, make, make_in, patch, queues, ready,
    running, says, secret_in, settled, url, without_secret, world,
};
use super::{healing, observing, secrets, strangers};

const STORIES: &[Story] = &[
    ("a context gets another name", || Box::pin(renamed_context())),
    ("a queue has the mark of an earlier version", || Box::pin(old_mark())),
    ("a queue has the default name of an earlier version", || Box::pin(old_name())),
    ("a cluster tells late which one it is", || Box::pin(late_identity())),
    ("two objects would have one name", || Box::pin(one_name())),
    ("two clusters share an account", || Box::pin(one_account())),
    ("adoption meets an owner", || Box::pin(adoption())),
    ("nobody permits the manager's identity", || Box::pin(no_fallback())),
    ("nobody permits an address", || Box::pin(other_address())),
    ("a role asks for an external id", || Box::pin(external_id())),
    ("the manager has its machine's identity", || Box::pin(machine())),
    ("credentials are of another account", || Box::pin(other_account())),
    ("the dead-letter queue is missing", || Box::pin(missing_target())),
    ("SQS refuses the dead-letter queue", || Box::pin(healing::without_target())),
    ("IAM does not know whom a policy names", || Box::pin(healing::without_principal())),
    ("the dead-letter queue is deleted first", || Box::pin(target_goes())),
    ("queues outside name a dead-letter queue", || Box::pin(sources_outside())),
    ("a namespace is deleted", || Box::pin(namespace_goes())),
    ("another Secret is named", || Box::pin(other_secret())),
    ("a Secret is replaced", || Box::pin(replaced_secret())),
    ("the manager may not touch Secrets any more", || Box::pin(kept_secret())),
    ("a Secret may not be read for a while", || Box::pin(secrets::unreadable())),
    ("a Secret goes", || Box::pin(secrets::going())),
    ("a Secret is replaced while a queue ends", || Box::pin(secrets::replaced())),
    ("somebody takes our finalizer off", || Box::pin(secrets::without_us())),
    ("policies come and go", || Box::pin(policies())),
    ("a FIFO queue has many message groups", || Box::pin(throughput())),
    ("a queue with messages is deleted", || Box::pin(not_empty())),
    ("a queue is paused", || Box::pin(paused())),
    ("a queue is observed", || Box::pin(observing::seen())),
    ("nothing waits for who observes", || Box::pin(observing::nothing_held())),
    ("a queue is observed elsewhere", || Box::pin(observing::elsewhere())),
    ("a queue that was observed is taken over", || Box::pin(observing::taken_over())),
    ("consumers want an address", || Box::pin(connection())),
    ("a stranger names a queue", || Box::pin(strangers::named())),
    ("a stranger's key has another's name", || Box::pin(strangers::budgets())),
    ("a dead-letter queue is nobody's to use", || Box::pin(strangers::target())),
    ("a queue is sought in another account", || Box::pin(strangers::gone_elsewhere())),
    ("SQS has an address in a VPC", || Box::pin(strangers::gone_in_a_vpc())),
    ("another fleet's cluster has the same name", || Box::pin(strangers::same_context())),
    ("two contexts swap their names", || Box::pin(strangers::swapped_contexts())),
    ("an old ConfigMap may not be deleted", || Box::pin(strangers::kept_config_map())),
    ("a stranger makes a ConfigMap meanwhile", || Box::pin(strangers::config_map())),
];

pub const NAME: &str = "default-orders";
pub const OWNER_TAG: &str = "leasehold.dev/owner";

#[tokio::test(start_paused = true)]
async fn seeds_of_trouble() {
    tell(STORIES).await;
}

pub fn owner(aws: &Aws, name: &str) -> String {
    aws.sqs(|sqs| sqs.tag_of(name, OWNER_TAG)).unwrap_or_default()
}

pub fn attribute(aws: &Aws, name: &str, attribute: &str) -> Option<String> {
    aws.sqs(|sqs| sqs.attribute(name, attribute))
}

fn edit(aws: &Aws, timeout: &str) {
    let edit = json!({"Attributes": {"VisibilityTimeout": timeout}});
    aws.outside("SetQueueAttributes", about(NAME, edit));
}

pub fn message(queue: &Queue, type_: &str) -> String {
    let conditions = queue.status.iter().flat_map(|status| &status.conditions);
    let mut found = conditions.filter(|found| found.type_ == type_);
    found.next().map(|found| found.message.clone()).unwrap_or_default()
}

pub async fn delete(env: &TestEnv, name: &str) {
    queues(env).delete(name, &DeleteParams::default()).await.unwrap();
}

pub fn permitting(entry: Value) -> Value {
    json!({"access": [entry]})
}

pub fn with_key() -> AwsEnvironment {
    let pair = [("AWS_ACCESS_KEY_ID", "AKIDOWN"), ("AWS_SECRET_ACCESS_KEY", "s")];
    pair.into_iter().map(|(name, value)| (name, value.to_owned())).collect()
}

async fn renamed_context() {
    let (mut env, aws) = settled(json!({})).await;
    let mark = owner(&aws, NAME);
    env.stop().await;
    env.rename("east", "production");
    edit(&aws, "45");
    env.run([aws.controller()]);
    env.pass(A_WHILE).await;
    assert_eq!(attribute(&aws, NAME, "VisibilityTimeout").unwrap(), "30");
    ready(&env, "orders").await;
    assert_eq!(owner(&aws, NAME), mark);
}

async fn old_mark() {
    let (mut env, aws) = world().await;
    let uid = make(&env, "orders", json!({})).await.uid().unwrap();
    let mark = format!("before/default/orders/{uid}");
    let made = json!({"QueueName": NAME, "tags": {OWNER_TAG: mark}});
    aws.outside("CreateQueue", made);
    env.run([aws.controller()]);
    let queue = ready(&env, "orders").await;
    assert_eq!(owner(&aws, NAME), mark_of(&env, &queue).await);
    assert_eq!(aws.sqs(|sqs| sqs.names()), [NAME]);
}

/// The mark with which a queue of this object is made.
async fn mark_of(env: &TestEnv, queue: &Queue) -> String {
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(env.client());
    let cluster = namespaces.get("kube-system").await.unwrap().uid().unwrap();
    format!("cluster:{cluster}/default/{}/{}", queue.name_any(), queue.uid().unwrap())
}

async fn old_name() {
    let (mut env, aws) = world().await;
    let queue = make_in(&queues(&env), "orders", json!({})).await;
    let mark = format!("east/default/orders/{}", queue.uid().unwrap());
    aws.outside("CreateQueue", json!({"QueueName": NAME, "tags": {OWNER_TAG: mark}}));
    let status = json!({"status": {
        "queueName": NAME, "region": "eu-west-1", "url": url(NAME)["QueueUrl"],
        "arn": format!("arn:aws:sqs:eu-west-1:000000000000:{NAME}"), "tags": {OWNER_TAG: mark},
    }});
    let params = PatchParams::default();
    queues(&env).patch_status("orders", &params, &Patch::Merge(status)).await.unwrap();
    env.run([aws.controller()]);
    let queue = ready(&env, "orders").await;
    assert_eq!(queue.status.unwrap().queue_name.unwrap(), NAME);
    assert_eq!(aws.sqs(|sqs| sqs.names()), [NAME]);
    assert_eq!(owner(&aws, NAME), mark_of(&env, &queues(&env).get("orders").await.unwrap()).await);
}

async fn late_identity() {
    let (mut env, aws) = world().await;
    env.forget_identities();
    env.run([aws.controller()]);
    make_in(&queues(&env), "orders", json!({})).await;
    let queue = ready(&env, "orders").await;
    let name = queue.status.unwrap().queue_name.unwrap();
    assert!(owner(&aws, &name).starts_with("east/default/orders/"));
    env.stop().await;

    env.learn_identities().await;
    env.run([aws.controller()]);
    env.pass(A_WHILE).await;
    let queue = ready(&env, "orders").await;
    assert_eq!(owner(&aws, &name), mark_of(&env, &queue).await);
    assert_eq!(aws.sqs(|sqs| sqs.names()), [name]);
}

async fn one_name() {
    let env = TestEnv::builder().crds(controllers::crds()).namespace("a").namespace("a-b");
    let mut env = env.start().await;
    let aws = aws(&env);
    env.run([aws.controller()]);
    for (namespace, name) in [("a", "b-c"), ("a-b", "c")] {
        secret_in(&env.api(namespace)).await;
        let queues: Api<Queue> = env.api(namespace);
        make_in(&queues, name, json!({})).await;
        env.until_object(&queues, name, |queue| {
            queue.status.as_ref().is_some_and(|status| status.arn.is_some())
        })
        .await;
    }
    assert_eq!(aws.sqs(|sqs| sqs.names()).len(), 2);
}

async fn one_account() {
    let env = TestEnv::builder().crds(controllers::crds()).clusters(["east", "west"]);
    let mut env = env.start().await;
    let aws = aws(&env);
    env.run([aws.controller()]);
    for cluster in ["east", "west"] {
        secret_in(&env.cluster(cluster).api(NAMESPACE)).await;
        let queues: Api<Queue> = env.cluster(cluster).api(NAMESPACE);
        make_in(&queues, "orders", json!({})).await;
        env.until_object(&queues, "orders", |queue| {
            queue.status.as_ref().is_some_and(|status| status.arn.is_some())
        })
        .await;
    }
    assert_eq!(aws.sqs(|sqs| sqs.names()).len(), 2);
}

async fn adoption() {
    let (env, aws) = settled(json!({})).await;
    let mark = owner(&aws, NAME);
    make(&env, "thief", json!({"queueName": NAME, "adopt": true})).await;
    let queue = says(&env, "thief", "Ready", "False", "NotOwned").await;
    let told = message(&queue, "Ready");
    assert!(told.contains(&mark) && told.contains("remove that tag"), "{told}");
    env.pass(A_WHILE).await;
    assert_eq!(owner(&aws, NAME), mark);
    delete(&env, "thief").await;
    env.until_gone(&queues(&env), "thief").await;
    assert_eq!(aws.sqs(|sqs| sqs.names()), [NAME]);
}

async fn no_fallback() {
    let (mut env, aws) = without_secret().await;
    let start = aws.now() - Duration::from_secs(1);
    let entry = json!({"namespaces": ["platform"], "ownIdentity": true});
    env.run([aws.controller_with(with_key(), &permitting(entry))]);
    for (name, credentials) in [
        ("none", json!(null)),
        ("own", json!({"environment": {}})),
        ("role", json!({"assumeRole": {"roleArn": NAMED}})),
        ("web", json!({"webIdentity": {"roleArn": NAMED}})),
    ] {
        make(&env, name, json!({"credentials": credentials})).await;
        let queue = says(&env, name, "Ready", "False", "NotPermitted").await;
        let told = message(&queue, "Ready");
        assert!(told.contains("namespace default of cluster east"), "{told}");
        assert!(told.contains("controllers.sqs.access"), "{told}");
    }
    env.pass(A_WHILE).await;
    assert_eq!(aws.requests(start), []);
    env.stop().await;
    let entry =
        json!({"namespaces": ["default"], "queuePrefixes": ["default-"], "ownIdentity": true});
    env.run([aws.controller_with(with_key(), &permitting(entry))]);
    env.pass(A_WHILE).await;
    for name in ["none", "own"] {
        ready(&env, name).await;
    }
    says(&env, "role", "Ready", "False", "NotPermitted").await;
    make(&env, "prefix", json!({"queueName": "other", "credentials": {"environment": {}}})).await;
    says(&env, "prefix", "Ready", "False", "NotPermitted").await;
}

async fn other_address() {
    let (mut env, aws) = world().await;
    let start = aws.now() - Duration::from_secs(1);
    let entry = json!({"namespaces": ["default"], "endpoints": ["http://moto:5000"]});
    env.run([aws.controller_with(AwsEnvironment::default(), &permitting(entry))]);
    make(&env, "inside", json!({"endpoint": "http://10.0.0.1"})).await;
    says(&env, "inside", "Ready", "False", "NotPermitted").await;
    assert_eq!(aws.requests(start), []);
    make(&env, "orders", json!({"endpoint": "http://moto:5000"})).await;
    ready(&env, "orders").await;
}

async fn external_id() {
    let (mut env, aws) = without_secret().await;
    let entry = json!({"namespaces": ["*"], "roles": [{"arn": NAMED, "externalId": "x-17"}]});
    env.run([aws.controller_with(with_key(), &permitting(entry))]);
    make(&env, "orders", json!({"credentials": {"assumeRole": {"roleArn": NAMED}}})).await;
    ready(&env, "orders").await;
    // Without credentials of its own a Queue gets what the list gives its namespace.
    make(&env, "given", json!({"credentials": null})).await;
    ready(&env, "given").await;
    assert_eq!(aws.sts(|sts| sts.asked.clone()), [(NAMED.to_owned(), "x-17".to_owned())]);
    assert_eq!(aws.sts(|sts| sts.last_used.clone()).as_deref(), Some("session-1"));
}

async fn machine() {
    let (mut env, aws) = without_secret().await;
    let mut settings = permitting(json!({"namespaces": ["*"], "ownIdentity": true}));
    settings["identity"] = "instanceProfile".into();
    env.run([aws.controller_with(AwsEnvironment::default(), &settings)]);
    make(&env, "orders", json!({"credentials": {"environment": {}}})).await;
    ready(&env, "orders").await;
    assert_eq!(aws.sts(|sts| sts.last_used.clone()).as_deref(), Some("machine-session"));
}

async fn other_account() {
    let (env, aws) = settled(json!({"driftCheckIntervalSeconds": 30})).await;
    let status = queues(&env).get("orders").await.unwrap().status.unwrap();
    assert_eq!(status.account.unwrap(), "000000000000");
    aws.sts(|sts| sts.account = Some("111111111111".to_owned()));
    aws.outside("DeleteQueue", url(NAME));
    let queue = says(&env, "orders", "Ready", "False", "OtherAccount").await;
    let told = message(&queue, "Ready");
    assert!(told.contains("is in account 000000000000, and the credentials are of account 1111"));
    env.pass(A_WHILE).await;
    assert_eq!(aws.sqs(|sqs| sqs.names()), [""; 0], "it is not created in another account");
    aws.sts(|sts| sts.account = None);
    ready(&env, "orders").await;
    assert_eq!(aws.sqs(|sqs| sqs.names()), [NAME]);
}

async fn missing_target() {
    let redrive = json!({"queueRef": {"name": "dead"}, "maxReceiveCount": 5});
    let (env, aws) = running().await;
    make(&env, "dead", json!({"deletionPolicy": "Retain"})).await;
    make(&env, "orders", json!({"redrivePolicy": redrive})).await;
    ready(&env, "orders").await;
    let policy = attribute(&aws, NAME, "RedrivePolicy").unwrap();
    delete(&env, "dead").await;
    let queue = says(&env, "orders", "Synced", "False", "RedriveTargetNotReady").await;
    assert!(message(&queue, "Synced").contains("Queue dead of spec.redrivePolicy does not exist"));
    env.pass(Duration::from_secs(90)).await;
    edit(&aws, "45");
    env.pass(A_WHILE).await;
    assert_eq!(attribute(&aws, NAME, "VisibilityTimeout").unwrap(), "30", "the rest is healed");
    assert_eq!(attribute(&aws, NAME, "RedrivePolicy").unwrap(), policy, "what it has stays");
    says(&env, "orders", "Ready", "True", "Available").await;
    make(&env, "dead", json!({"adopt": true})).await;
    ready(&env, "orders").await;
}

async fn target_goes() {
    let (env, aws) = running().await;
    make(&env, "dead", json!({})).await;
    let redrive = json!({"queueRef": {"name": "dead"}, "maxReceiveCount": 5});
    make(&env, "orders", json!({"redrivePolicy": redrive})).await;
    ready(&env, "orders").await;
    env.pass(Duration::from_secs(90)).await;
    delete(&env, "dead").await;
    let queue = says(&env, "dead", "Ready", "False", "DeletionReferenced").await;
    let told = message(&queue, "Ready");
    assert!(told.contains("is the dead-letter queue of Queue default/orders"), "{told}");
    env.pass(A_WHILE).await;
    assert_eq!(aws.sqs(|sqs| sqs.names()), ["default-dead", NAME]);
    let since = aws.now();
    delete(&env, "orders").await;
    env.until_gone(&queues(&env), "orders").await;
    env.until_gone(&queues(&env), "dead").await;
    assert!(aws.now().duration_since(since).as_secs() < 30, "it goes when the last referrer goes");
    assert_eq!(aws.sqs(|sqs| sqs.names()), [""; 0]);
}

async fn sources_outside() {
    let (env, aws) = settled(json!({})).await;
    let arn = format!("arn:aws:sqs:eu-west-1:000000000000:{NAME}");
    let policy = format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":3}}"#);
    let made = json!({"QueueName": "by-hand", "Attributes": {"RedrivePolicy": policy}});
    aws.outside("CreateQueue", made);
    // One of another Queue that names it by its ARN.
    let redrive = json!({"queueArn": arn, "maxReceiveCount": 3});
    make(&env, "by-arn", json!({"redrivePolicy": redrive})).await;
    ready(&env, "by-arn").await;
    assert!(attribute(&aws, "default-by-arn", "RedrivePolicy").unwrap().contains(&arn));
    delete(&env, "orders").await;
    for (gone, expect) in [("", "Queue default/by-arn"), ("default-by-arn", "/by-hand")] {
        if !gone.is_empty() {
            delete(&env, "by-arn").await;
            env.until_gone(&queues(&env), "by-arn").await;
        }
        env.until_object(&queues(&env), "orders", |queue| message(queue, "Ready").contains(expect))
            .await;
    }
    aws.outside("DeleteQueue", url("by-hand"));
    env.until_gone(&queues(&env), "orders").await;
}

/// Everything in it is deleted at once, the Secret first.
async fn namespace_goes() {
    let (env, aws) = running().await;
    let to =
        |name: &str| json!({"redrivePolicy": {"queueRef": {"name": name}, "maxReceiveCount": 5}});
    // Two that name each other.
    make(&env, "orders", to("dead")).await;
    make(&env, "dead", to("orders")).await;
    for name in ["orders", "dead"] {
        ready(&env, name).await;
    }
    env.pass(Duration::from_secs(120)).await;
    let secrets: Api<Secret> = env.api(NAMESPACE);
    secrets.delete("aws", &DeleteParams::default()).await.unwrap();
    let held = secrets.get("aws").await.unwrap();
    assert_eq!(held.finalizers().len(), 2, "{:?}", held.finalizers());
    // Longer than credentials are remembered.
    env.pass(Duration::from_secs(120)).await;
    for name in ["orders", "dead"] {
        delete(&env, name).await;
    }
    for name in ["orders", "dead"] {
        env.until_gone(&queues(&env), name).await;
    }
    env.until_gone(&secrets, "aws").await;
    assert_eq!(aws.sqs(|sqs| sqs.names()), [""; 0]);
}

async fn other_secret() {
    let (env, _aws) = settled(json!({})).await;
    let secrets: Api<Secret> = env.api(NAMESPACE);
    let aws_secret = secrets.get("aws").await.unwrap();
    let mut next = Secret { data: aws_secret.data.clone(), ..Secret::default() };
    next.metadata.name = Some("next".to_owned());
    secrets.create(&PostParams::default(), &next).await.unwrap();
    patch(&env, "orders", json!({"spec": {"credentials": {"secretRef": {"name": "next"}}}})).await;
    env.until("the other Secret to be held", async || {
        let [old, new] = [secrets.get("aws").await.ok()?, secrets.get("next").await.ok()?];
        (old.finalizers().is_empty() && new.finalizers().len() == 1).then_some(())
    })
    .await;
    secrets.delete("aws", &DeleteParams::default()).await.unwrap();
    env.until_gone(&secrets, "aws").await;
    ready(&env, "orders").await;
    delete(&env, "orders").await;
    env.until_gone(&queues(&env), "orders").await;
    assert_eq!(secrets.get("next").await.unwrap().finalizers().len(), 0);
}

async fn replaced_secret() {
    let (env, _aws) = settled(json!({})).await;
    let secrets: Api<Secret> = env.api(NAMESPACE);
    let held = secrets.get("aws").await.unwrap();
    assert_eq!(held.finalizers().len(), 1);
    let mut new = Secret { data: held.data.clone(), ..Secret::default() };
    new.metadata.name = Some("aws".to_owned());
    secrets.replace("aws", &PostParams::default(), &new).await.unwrap();
    assert_eq!(secrets.get("aws").await.unwrap().finalizers().len(), 0);
    env.pass(Duration::from_secs(7_200)).await;
    assert_eq!(secrets.get("aws").await.unwrap().finalizers().len(), 1);
}

async fn kept_secret() {
    for verb in ["get", "patch"] {
        let (env, _aws) = settled(json!({"deletionPolicy": "Retain"})).await;
        env.set_faults(move |request: &Request| {
            let ours = request.user_agent.starts_with("leasehold/");
            match ours && request.resource == "secrets" && request.verb == verb {
                true => Fault::Error(ApiError::new(Reason::Forbidden, "not yours")),
                false => Fault::None,
            }
        });
        delete(&env, "orders").await;
        let queue = says(&env, "orders", "Ready", "False", "DeletionBlocked").await;
        let told = message(&queue, "Ready");
        assert!(told.starts_with("Secret aws keeps the finalizer sqs.leasehold.dev/"), "{told}");
        assert!(told.contains("not yours") && told.contains("abandon=true"), "{told}");
        assert_eq!(events(&env, "SecretNotReleased").await.len(), 1);
        env.end_faults();
        env.until_gone(&queues(&env), "orders").await;
        let secrets: Api<Secret> = env.api(NAMESPACE);
        assert_eq!(secrets.get("aws").await.unwrap().finalizers().len(), 0);
    }
}

async fn policies() {
    let policy = r#"{"Version": "2012-10-17", "Statement": [{"Effect": "Allow",
        "Principal": {"Service": ["sns.amazonaws.com"]}, "Action": "sqs:SendMessage", "Resource": "*"}]}"#;
    let allow = json!({"permission": "ByQueue",
        "sourceQueueArns": ["arn:aws:sqs:eu-west-1:000000000000:b", "arn:aws:sqs:eu-west-1:000000000000:a"]});
    let spec = json!({"policy": policy, "redriveAllowPolicy": allow});
    let (env, aws) = settled(spec).await;
    assert_eq!(attribute(&aws, NAME, "Policy").as_deref(), Some(policy), "as it was written");
    let found = attribute(&aws, NAME, "RedriveAllowPolicy").unwrap();
    assert!(found.contains("byQueue") && found.contains("000000000000:a"), "{found}");
    // SQS shows the same policy in another spelling: that is no drift.
    let spelt = policy.replace(r#"["sns.amazonaws.com"]"#, r#""sns.amazonaws.com""#);
    aws.outside("SetQueueAttributes", about(NAME, json!({"Attributes": {"Policy": spelt}})));
    env.pass(A_WHILE).await;
    assert_eq!(events(&env, "Drifted").await, [""; 0]);
    patch(&env, "orders", json!({"spec": {"policy": null, "redriveAllowPolicy": null}})).await;
    env.pass(Duration::from_secs(5)).await;
    ready(&env, "orders").await;
    assert_eq!(attribute(&aws, NAME, "Policy"), None, "what the spec gave up is gone");
    let found = attribute(&aws, NAME, "RedriveAllowPolicy").unwrap();
    assert_eq!(found, r#"{"redrivePermission":"allowAll"}"#);
    // One that the spec never had is left alone.
    aws.outside("SetQueueAttributes", about(NAME, json!({"Attributes": {"Policy": "{}"}})));
    env.pass(A_WHILE).await;
    assert_eq!(attribute(&aws, NAME, "Policy").as_deref(), Some("{}"));
}

async fn throughput() {
    let (env, aws) = running().await;
    let fast = json!({"fifo": true, "deduplicationScope": "MessageGroup",
        "fifoThroughputLimit": "PerMessageGroup"});
    make(&env, "orders", fast).await;
    ready(&env, "orders").await;
    let name = "default-orders.fifo";
    assert_eq!(attribute(&aws, name, "DeduplicationScope").as_deref(), Some("messageGroup"));
    let limit = attribute(&aws, name, "FifoThroughputLimit");
    assert_eq!(limit.as_deref(), Some("perMessageGroupId"));
}

async fn not_empty() {
    let (env, aws) = settled(json!({"deletionPolicy": "DeleteIfEmpty"})).await;
    aws.sqs(|sqs| sqs.messages.insert(NAME.to_owned(), 12));
    delete(&env, "orders").await;
    let queue = says(&env, "orders", "Ready", "False", "DeletionBlocked").await;
    assert!(message(&queue, "Ready").contains("has about 12 messages"));
    env.pass(A_WHILE).await;
    assert_eq!(aws.sqs(|sqs| sqs.names()), [NAME]);
    // As SQS may show a queue that has some: none at one look.
    let empty =
        |queue: &Queue| queue.status.as_ref().is_some_and(|status| status.empty_since.is_some());
    aws.sqs(|sqs| sqs.messages.clear());
    let queue = env.until_object(&queues(&env), "orders", empty).await;
    assert!(message(&queue, "Ready").contains("it is deleted if it still shows none then"));
    aws.sqs(|sqs| sqs.messages.insert(NAME.to_owned(), 1));
    env.until_object(&queues(&env), "orders", |queue| !empty(queue)).await;
    assert_eq!(aws.sqs(|sqs| sqs.names()), [NAME]);
    aws.sqs(|sqs| sqs.messages.clear());
    let queue = env.until_object(&queues(&env), "orders", empty).await;
    let since = queue.status.unwrap().empty_since.unwrap();
    env.until_gone(&queues(&env), "orders").await;
    assert_eq!(aws.sqs(|sqs| sqs.names()), [""; 0]);
    assert!(env.now().duration_since(since.0).as_secs() >= 90);
}

async fn paused() {
    let (env, aws) = settled(json!({})).await;
    patch(&env, "orders", json!({"spec": {"management": "Pause"}})).await;
    says(&env, "orders", "Synced", "False", "Paused").await;
    edit(&aws, "45");
    let since = aws.now();
    env.pass(A_WHILE).await;
    assert_eq!(aws.requests(since), []);
    delete(&env, "orders").await;
    let queue = says(&env, "orders", "Ready", "False", "DeletionBlocked").await;
    assert!(message(&queue, "Ready").contains("spec.management is Pause"));
    env.pass(A_WHILE).await;
    assert_eq!(aws.requests(since), []);
    patch(&env, "orders", json!({"spec": {"management": "Manage"}})).await;
    env.until_gone(&queues(&env), "orders").await;
    assert_eq!(aws.sqs(|sqs| sqs.names()), [""; 0]);
}

async fn connection() {
    let (env, _aws) = settled(json!({"connection": {"configMap": "orders-queue"}})).await;
    let maps: Api<ConfigMap> = env.api(NAMESPACE);
    let told = maps.get("orders-queue").await.unwrap();
    let data = told.data.unwrap();
    assert_eq!(data["QUEUE_URL"], url(NAME)["QueueUrl"]);
    assert_eq!(data["QUEUE_ARN"], format!("arn:aws:sqs:eu-west-1:000000000000:{NAME}"));
    // One that somebody else made is left alone, and the old one goes.
    let others = json!({"metadata": {"name": "theirs"}, "data": {"QUEUE_URL": "mine"}});
    let others: ConfigMap = serde_json::from_value(others).unwrap();
    maps.create(&PostParams::default(), &others).await.unwrap();
    patch(&env, "orders", json!({"spec": {"connection": {"configMap": "theirs"}}})).await;
    let queue = says(&env, "orders", "Synced", "False", "ConnectionNotWritten").await;
    assert!(message(&queue, "Synced").contains("it exists and is not this Queue's"));
    assert_eq!(maps.get("theirs").await.unwrap().data.unwrap()["QUEUE_URL"], "mine");
    env.until_gone(&maps, "orders-queue").await;
}
