//! The Queue controller over a real API server and moto, an SQS implementation that is not ours,
//! behind a proxy that throttles and cuts. Queues are created, repaired, created again, left alone
//! and deleted. The check itself edits and reads queues with boto3, not with our client.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::moto::Moto;
use super::stage::set;
use crate::harness::control_plane::ControlPlane;
use crate::harness::kubectl::{self, holds};
use crate::harness::manager::Manager;
use crate::harness::wait::{self, Stopwatch};
use crate::harness::{Scene, home};
use crate::proxy::{Passage, Proxy};

/// Longer than SQS reserves the name of a deleted queue, and a drift check after that.
const DEADLINE: Duration = Duration::from_secs(180);
/// How long moto throttles, and how long it is out of reach.
const TROUBLE: Duration = Duration::from_secs(55);
/// What a throttling server answers to everything.
const THROTTLED: Passage = Passage::Answered(
    b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 2\r\n\
      content-length: 0\r\nconnection: close\r\n\r\n",
);

/// A role that is assumed with a token, and one that is assumed with the manager's own identity.
const ROLE: &str = "arn:aws:iam::123456789012:role/queues";
const OTHER_ROLE: &str = "arn:aws:iam::123456789012:role/by-pod-identity";
/// What the agent of Pod Identity answers.
const POD_IDENTITY: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
      content-length: 115\r\nconnection: close\r\n\r\n\
      {\"AccessKeyId\":\"ASIAPODIDENTITY0\",\"SecretAccessKey\":\"secret\",\
      \"Token\":\"session\",\"Expiration\":\"2099-01-01T00:00:00Z\"}";

const QUEUE: &str = "default-orders";
const OBJECT: &str = "/apis/sqs.leasehold.dev/v1alpha1/namespaces/default/queues/orders";

/// Runs the check.
pub async fn run(scene: &Scene) -> Result<()> {
    let plane = ControlPlane::local(scene, "east").await?;
    home::install(&plane.kubectl).await?;
    let mut moto = Moto::start(scene).await?;
    let proxy = Proxy::to((Ipv4Addr::LOCALHOST, moto.port).into()).await?;
    // Its log is what is left of a failure.
    let log = json!({"filter": "info,engine=debug,sdk=debug,upstream=debug,listwatch=debug"});
    let access = json!([{
        "namespaces": ["default"],
        "endpoints": [format!("http://127.0.0.1:{}", proxy.address().port())],
        "roles": [{"arn": ROLE}, {"arn": OTHER_ROLE, "externalId": "x-17"}],
    }]);
    let sqs = json!({"workers": 4, "identity": "podIdentity", "access": access});
    let more = json!({"controllers": {"sqs": sqs}, "telemetry": {"log": log}});
    let (token, sts) = (scene.dir().join("token"), format!("http://127.0.0.1:{}", moto.port));
    fs::write(&token, "a service account's")?;
    let agent = Proxy::to((Ipv4Addr::LOCALHOST, moto.port).into()).await?;
    agent.set(Passage::Answered(POD_IDENTITY));
    let identity = format!("http://127.0.0.1:{}/v1/credentials", agent.address().port());
    let environment = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", &*token),
        ("AWS_ENDPOINT_URL_STS", Path::new(&sts)),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", Path::new(&identity)),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &*token),
    ];
    let mut manager =
        Manager::start_with(scene, "replica-0", &plane, &[&plane], &more, &environment)?;
    let watch = Stopwatch::start();

    immutable_by_schema(&plane, proxy.address().port()).await?;
    plane.kubectl.apply(&manifests(proxy.address().port())).await?;
    synced(&plane, &mut manager).await?;
    ensure!(attribute(&moto, "VisibilityTimeout")? == "45", "the queue is not as its spec says");
    let redrive = attribute(&moto, "RedrivePolicy")?;
    ensure!(redrive.contains("default-dead"), "the queue has no dead-letter queue: {redrive}");
    println!("two queues exist after {watch}");

    for (name, role) in [
        ("by-role", json!({"webIdentity": {"roleArn": ROLE}})),
        ("by-pod-identity", json!({"assumeRole": {"roleArn": OTHER_ROLE}})),
    ] {
        let queue = one(name, proxy.address().port(), &json!({"credentials": role}));
        plane.kubectl.apply(&queue).await?;
        wait::until(DEADLINE, "a queue to be created with a role", async || {
            Ok(names(&moto)?.contains(&format!("default-{name}")).then_some(()))
        })
        .await?;
        plane.kubectl.run(&["delete", "queues.sqs.leasehold.dev", name, "--timeout=120s"]).await?;
        println!("the manager assumed a role ({name}) and created a queue with it after {watch}");
    }
    ensure!(agent.connections() > 0, "the agent of Pod Identity was not asked");

    edit(&moto, "sqs.set_queue_attributes(QueueUrl=u, Attributes={'VisibilityTimeout': '7'})")?;
    until_attribute(&moto, "45").await?;
    until_event(&plane, "VisibilityTimeout of queue default-orders was 7, put back to 45").await?;
    println!("a queue that was edited outside is repaired after {watch}");

    edit(&moto, "sqs.delete_queue(QueueUrl=u)")?;
    until_attribute(&moto, "45").await?;
    until_event(&plane, "was deleted outside: created it again").await?;
    println!("a queue that was deleted outside exists again after {watch}");

    for (name, trouble) in [("throttled", THROTTLED), ("cut off", Passage::Cut)] {
        in_trouble(&plane, &mut manager, &proxy, &moto, trouble)
            .await
            .with_context(|| format!("while {name}"))?;
        println!("{name} for {} s, and synced after {watch}", TROUBLE.as_secs());
    }
    manager.check_alive()?;
    moto.process.check_alive()?;

    plane.kubectl.run(&["delete", "queues.sqs.leasehold.dev", "orders", "--timeout=120s"]).await?;
    ensure!(names(&moto)? == "default-dead", "its queue still exists: {}", names(&moto)?);
    println!("the queue is deleted with its object after {watch}");
    manager.leave().await?;
    Ok(())
}

/// While SQS is in trouble, the controller leaves it alone and does not write the object's status;
/// then it repairs what was changed meanwhile.
async fn in_trouble(
    plane: &ControlPlane,
    manager: &mut Manager,
    proxy: &Proxy,
    moto: &Moto,
    trouble: Passage,
) -> Result<()> {
    synced(plane, manager).await?;
    proxy.set(trouble);
    edit(moto, "sqs.set_queue_attributes(QueueUrl=u, Attributes={'VisibilityTimeout': '9'})")?;
    let (version, asked) = (version(plane).await?, proxy.connections());
    tokio::time::sleep(TROUBLE).await;
    let asked = proxy.connections() - asked;
    // Each of two queues is checked every 27 to 33 s, the first time after half of that to one and a half: within
    // 50 s. Failures are retried with backoff.
    ensure!(asked > 0 && asked < 60, "asked {asked} times in {} s", TROUBLE.as_secs());
    ensure!(version == self::version(plane).await?, "the trouble is written into the status");
    ensure!(attribute(moto, "VisibilityTimeout")? == "9", "the proxy let a change through");
    proxy.set(Passage::Open);
    until_attribute(moto, "45").await
}

/// A real server refuses by CEL what the controller's plan refuses on a server without CEL.
async fn immutable_by_schema(plane: &ControlPlane, port: u16) -> Result<()> {
    let mut queue: Value = serde_json::from_str(&one("fixed", port, &json!({})))?;
    plane.kubectl.apply(&queue.to_string()).await?;
    queue["spec"]["region"] = json!("eu-west-2");
    let words = plane.kubectl.refused(&["apply", "--filename", "-"], &queue.to_string()).await?;
    ensure!(words.contains("region cannot be changed"), "refused for another reason: {words}");
    plane.kubectl.run(&["delete", "queues.sqs.leasehold.dev", "fixed", "--timeout=120s"]).await?;
    Ok(())
}

fn one(name: &str, port: u16, more: &Value) -> String {
    let mut spec = json!({
        "queueName": format!("default-{name}"),
        "region": "eu-west-1",
        "endpoint": format!("http://127.0.0.1:{port}"),
        "visibilityTimeoutSeconds": 45,
        "driftCheckIntervalSeconds": 30,
        "credentials": {"secretRef": {"name": "aws"}},
    });
    set(&mut spec, more);
    json!({
        "apiVersion": "sqs.leasehold.dev/v1alpha1", "kind": "Queue",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })
    .to_string()
}

fn manifests(port: u16) -> String {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "aws", "namespace": "default"},
        "stringData": {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"},
    });
    let redrive = json!({"redrivePolicy": {"queueRef": {"name": "dead"}, "maxReceiveCount": 3}});
    let queues = [one("orders", port, &redrive), one("dead", port, &json!({}))];
    [&[secret.to_string()], &queues[..]].concat().join("\n---\n")
}

async fn synced(plane: &ControlPlane, manager: &mut Manager) -> Result<()> {
    let mut last = Value::Null;
    let outcome = wait::until(DEADLINE, "the Queue to be synced", async || {
        manager.check_alive()?;
        let queue = kubectl::get(&plane.client, OBJECT).await?.unwrap_or_default();
        last = queue["status"].clone();
        Ok(holds(&queue, "Synced").then_some(()))
    })
    .await;
    outcome.with_context(|| format!("its status: {last}"))
}

async fn version(plane: &ControlPlane) -> Result<String> {
    let queue = kubectl::get(&plane.client, OBJECT).await?.context("the Queue is gone")?;
    Ok(queue["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned())
}

async fn until_event(plane: &ControlPlane, words: &str) -> Result<()> {
    wait::until(DEADLINE, "an Event", async || {
        let events = plane.kubectl.run(&["get", "events", "-n", "default"]).await?;
        Ok(events.contains(words).then_some(()))
    })
    .await
    .with_context(|| format!("no Event says {words:?}"))
}

async fn until_attribute(moto: &Moto, value: &str) -> Result<()> {
    wait::until(DEADLINE, "the queue to be as the spec says", async || {
        Ok((attribute(moto, "VisibilityTimeout").unwrap_or_default() == value).then_some(()))
    })
    .await
}

fn edit(moto: &Moto, line: &str) -> Result<()> {
    let url = format!("u = sqs.get_queue_url(QueueName='{QUEUE}')['QueueUrl']");
    moto.ask(&format!("{url}\n{line}")).map(drop)
}

fn attribute(moto: &Moto, name: &str) -> Result<String> {
    moto.ask(&format!(
        "u = sqs.get_queue_url(QueueName='{QUEUE}')['QueueUrl']\n\
         print(sqs.get_queue_attributes(QueueUrl=u, AttributeNames=['All'])['Attributes'].get('{name}', ''))"
    ))
}

fn names(moto: &Moto) -> Result<String> {
    moto.ask(
        "print(' '.join(sorted(u.rsplit('/')[-1] for u in sqs.list_queues().get('QueueUrls', []))))",
    )
}
