//! An embedded cluster and a stand-in for SQS. The client of AWS's library reaches it without
//! sockets, so that both follow the test's paused time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_sqs::config::SharedHttpClient;
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use demo::standin::sqs::{Answer, Sqs, changes};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use leasehold::testing::{TestEnv, TokioClock};
use model::Clock;
use sdk::ControllerSpec;
use serde_json::{Value, json};
use sqs::Queue;
use sqs::environment::AwsEnvironment;

use super::super::crash::{Crash, Fate};
use super::super::merge;

pub const NAMESPACE: &str = "default";
/// A role that Queues name.
pub const NAMED: &str = "arn:aws:iam::000000000000:role/queues";
/// Longer than any drift check takes to come by default, with its jitter.
pub const A_WHILE: Duration = Duration::from_secs(600);

/// The stand-in, and the connection to it.
#[derive(Clone, Debug)]
pub struct Aws(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    sqs: Mutex<Sqs>,
    sts: Mutex<Sts>,
    clock: TokioClock,
    down: AtomicBool,
    denied: Mutex<Option<&'static str>>,
    revoked: Mutex<Vec<String>>,
    crash: Mutex<Option<Crash>>,
}

impl Aws {
    fn new(wall: Timestamp) -> Self {
        let clock = TokioClock::starting_at(wall);
        let (sqs, sts) = Default::default();
        let (down, denied, revoked, crash) = Default::default();
        Self(Arc::new(Inner { sqs, sts, clock, down, denied, revoked, crash }))
    }

    /// From now on, asks `crash` about every request that changes something.
    pub fn watch(&self, crash: &Crash) {
        *self.0.crash.lock().unwrap() = Some(crash.clone());
    }

    /// No request is answered while it is down.
    pub fn down(&self, down: bool) {
        self.0.down.store(down, Ordering::SeqCst);
    }

    /// From now on, refuses this operation: nobody has the right.
    pub fn deny(&self, operation: impl Into<Option<&'static str>>) {
        *self.0.denied.lock().unwrap() = operation.into();
    }

    /// From now on, refuses requests with this key.
    pub fn revoke(&self, key: &str) {
        self.0.revoked.lock().unwrap().push(format!("Credential={key}/"));
    }

    pub fn now(&self) -> Timestamp {
        self.0.clock.wall()
    }

    /// Gives access to the stand-in.
    pub fn sqs<T>(&self, look: impl FnOnce(&mut Sqs) -> T) -> T {
        look(&mut self.0.sqs.lock().unwrap())
    }

    /// Gives access to the stand-in for STS.
    pub fn sts<T>(&self, look: impl FnOnce(&mut Sts) -> T) -> T {
        look(&mut self.0.sts.lock().unwrap())
    }

    /// Sends a request as another client.
    pub fn outside(&self, operation: &str, body: Value) {
        let now = self.now();
        let answer = self.sqs(|sqs| sqs.answer(operation, &body, now));
        assert_eq!(answer.status, 200, "{operation}: {answer:?}");
    }

    /// How many requests for `operation` there were since the last call.
    pub fn count(&self, operation: &str, since: Timestamp) -> usize {
        self.sqs(|sqs| sqs.log.iter().filter(|(at, what)| *at > since && what == operation).count())
    }

    /// Every request since the last call.
    pub fn requests(&self, since: Timestamp) -> Vec<(Timestamp, String)> {
        self.sqs(|sqs| sqs.log.iter().filter(|(at, _)| *at > since).cloned().collect())
    }

    /// The controller in a manager without an identity or settings.
    pub fn controller(&self) -> ControllerSpec {
        self.controller_with(AwsEnvironment::default(), &Value::Null)
    }

    /// The controller in a manager with this environment, whose administrator permits the role and the
    /// manager's own identity.
    pub fn controller_in(&self, environment: AwsEnvironment) -> ControllerSpec {
        let entry = json!({"namespaces": ["*"], "roles": [{"arn": NAMED}], "ownIdentity": true});
        self.controller_with(environment, &json!({"access": [entry]}))
    }

    /// The controller in a manager with this environment and these settings.
    pub fn controller_with(&self, environment: AwsEnvironment, settings: &Value) -> ControllerSpec {
        let connector = SharedHttpConnector::new(self.clone());
        let client: SharedHttpClient = http_client_fn(move |_, _| connector.clone());
        sqs::controller_over(4, client, environment, settings)
    }

    fn answer(&self, request: &HttpRequest) -> Result<HttpResponse, ConnectorError> {
        let cut = || Err(ConnectorError::io("the connection was cut".into()));
        if self.0.down.load(Ordering::SeqCst) {
            return cut();
        }
        let body = request.body().bytes().expect("a body in memory");
        if request.uri().starts_with("https://sts.") {
            return Ok(self.sts(|sts| sts.answer(body, self.now())));
        }
        if let Some(path) = request.uri().strip_prefix("http://169.254.169.254") {
            return Ok(metadata(path, self.now()));
        }
        let target = request.headers().get("x-amz-target").expect("SQS's JSON protocol");
        let operation = target.strip_prefix("AmazonSQS.").expect("SQS's JSON protocol");
        let signature = request.headers().get("authorization").expect("it is signed");
        let is_revoked = |key: &String| signature.contains(key.as_str());
        if self.0.revoked.lock().unwrap().iter().any(is_revoked) {
            return Ok(response(&denied()));
        }
        let session = request.headers().get("x-amz-security-token");
        let body: Value = serde_json::from_slice(body).expect("JSON");
        if *self.0.denied.lock().unwrap() == Some(operation) {
            return Ok(response(&denied()));
        }
        let fate = match &*self.0.crash.lock().unwrap() {
            Some(crash) if changes(operation) => crash.fate(operation),
            _ => Fate::Done,
        };
        if fate == Fate::Unsent {
            return cut();
        }
        let now = self.now();
        self.sts(|sts| sts.last_used = session.map(str::to_owned));
        let answer = self.sqs(|sqs| sqs.answer(operation, &body, now));
        if fate == Fate::Unheard { cut() } else { Ok(response(&answer)) }
    }
}

impl HttpConnector for Aws {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        HttpConnectorFuture::ready(self.answer(&request))
    }
}

fn denied() -> Answer {
    let body = json!({"__type": "com.amazonaws.sqs#AccessDeniedException", "message": "denied"});
    Answer { status: 403, query_error: Some("AccessDenied;Sender".into()), retry_after: None, body }
}

fn response(answer: &Answer) -> HttpResponse {
    let status = StatusCode::try_from(answer.status).unwrap();
    let mut response = HttpResponse::new(status, SdkBody::from(answer.body.to_string()));
    if let Some(error) = &answer.query_error {
        response.headers_mut().insert("x-amzn-query-error", error.clone());
    }
    if let Some(seconds) = answer.retry_after {
        response.headers_mut().insert("retry-after", seconds.to_string());
    }
    response
}

/// The metadata service of a machine that has the role `machine`
/// (<https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-metadata-security-credentials.html>).
fn metadata(path: &str, now: Timestamp) -> HttpResponse {
    const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
    let body = match path {
        "/latest/api/token" => "a token".to_owned(),
        ROLES => "machine".to_owned(),
        path if path.strip_prefix(ROLES) == Some("machine") => json!({
            "Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": "ASIAMACHINE",
            "SecretAccessKey": "s", "Token": "machine-session", "Expiration": now + Sts::LIFETIME,
            "LastUpdated": now,
        })
        .to_string(),
        _ => String::new(),
    };
    let status = if body.is_empty() { 404 } else { 200 };
    let status = StatusCode::try_from(status).unwrap();
    let mut response = HttpResponse::new(status, SdkBody::from(body));
    response.headers_mut().insert("x-aws-ec2-metadata-token-ttl-seconds", "21600");
    response
}

/// Operations of STS, in the query protocol
/// (<https://docs.aws.amazon.com/STS/latest/APIReference/API_Operations.html>).
#[derive(Debug, Default)]
pub struct Sts {
    /// The role and token, or external id, of each request for credentials.
    pub asked: Vec<(String, String)>,
    /// The account of all credentials; the stand-in's if nothing is said.
    pub account: Option<String>,
    /// Whether it refuses requests.
    pub refuses: bool,
    /// The session token of the last request to SQS.
    pub last_used: Option<String>,
}

impl Sts {
    /// How long credentials are valid: AWS's default.
    pub const LIFETIME: Duration = Duration::from_secs(3_600);

    fn answer(&mut self, body: &[u8], now: Timestamp) -> HttpResponse {
        let form: BTreeMap<_, _> = form_urlencoded::parse(body).into_owned().collect();
        let action = form["Action"].as_str();
        let result = match action {
            "GetCallerIdentity" => {
                let account = self.account.as_deref().unwrap_or("000000000000");
                format!("<Account>{account}</Account>")
            }
            "AssumeRole" | "AssumeRoleWithWebIdentity" => {
                let proof = form.get("WebIdentityToken").or(form.get("ExternalId"));
                self.asked.push((form["RoleArn"].clone(), proof.cloned().unwrap_or_default()));
                let (number, expires) = (self.asked.len(), now + Self::LIFETIME);
                format!(
                    "<Credentials><AccessKeyId>ASIAEXAMPLE</AccessKeyId><SecretAccessKey>s\
                     </SecretAccessKey><SessionToken>session-{number}</SessionToken>\
                     <Expiration>{expires}</Expiration></Credentials>"
                )
            }
            other => panic!("STS is asked for {other}"),
        };
        let (status, body) = if self.refuses {
            let error =
                "<Type>Sender</Type><Code>AccessDenied</Code><Message>Not authorized</Message>";
            (403, format!("<ErrorResponse><Error>{error}</Error></ErrorResponse>"))
        } else {
            let result = format!("<{action}Result>{result}</{action}Result>");
            (200, format!("<{action}Response>{result}</{action}Response>"))
        };
        HttpResponse::new(StatusCode::try_from(status).unwrap(), SdkBody::from(body))
    }
}

/// A cluster, the stand-in, and a Secret `aws`; the engine does not run yet.
pub async fn world() -> (TestEnv, Aws) {
    let (env, aws) = without_secret().await;
    secret(&env).await;
    (env, aws)
}

/// The same, and the engine runs.
pub async fn running() -> (TestEnv, Aws) {
    let (mut env, aws) = world().await;
    env.run([aws.controller()]);
    (env, aws)
}

/// A [`world`] without the Secret.
pub async fn without_secret() -> (TestEnv, Aws) {
    let env = TestEnv::builder().server_times().crds(controllers::crds()).start().await;
    super::super::confine(&env, super::super::rights_of("sqs"));
    let aws = aws(&env);
    (env, aws)
}

/// A stand-in at the time of an environment.
pub fn aws(env: &TestEnv) -> Aws {
    Aws::new(env.now())
}

pub async fn secret(env: &TestEnv) {
    secret_in(&env.api(NAMESPACE)).await;
}

pub async fn secret_in(secrets: &Api<Secret>) {
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": "aws"},
        "stringData": {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "not-a-secret"},
    }))
    .unwrap();
    let mut secret = secret;
    // A real server does this with `stringData`.
    let data = secret.string_data.take().unwrap_or_default().into_iter();
    let bytes = data.map(|(key, value)| (key, k8s_openapi::ByteString(value.into_bytes())));
    secret.data = Some(bytes.collect());
    secrets.create(&PostParams::default(), &secret).await.unwrap();
}

pub fn queues(env: &TestEnv) -> Api<Queue> {
    env.api(NAMESPACE)
}

/// A Queue `default-<name>` with the Secret's credentials and these fields of its spec.
pub async fn make(env: &TestEnv, name: &str, more: Value) -> Queue {
    let mut spec = json!({"queueName": format!("default-{name}")});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    make_in(&queues(env), name, spec).await
}

/// A Queue with the Secret's credentials, the default name and these fields of its spec.
pub async fn make_in(queues: &Api<Queue>, name: &str, more: Value) -> Queue {
    let mut spec = json!({
        "region": "eu-west-1", "credentials": {"secretRef": {"name": "aws"}},
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let queue = Queue::new(name, serde_json::from_value(spec).unwrap());
    queues.create(&PostParams::default(), &queue).await.unwrap()
}

pub async fn patch(env: &TestEnv, name: &str, patch: Value) {
    merge(&queues(env), name, patch).await;
}

/// Waits until a condition has this status and reason.
pub async fn says(env: &TestEnv, name: &str, type_: &str, status: &str, reason: &str) -> Queue {
    env.until_object(&queues(env), name, |queue| {
        let conditions = queue.status.iter().flat_map(|status| &status.conditions);
        conditions
            .into_iter()
            .any(|found| (&*found.type_, &*found.status, &*found.reason) == (type_, status, reason))
    })
    .await
}

pub async fn ready(env: &TestEnv, name: &str) -> Queue {
    says(env, name, "Synced", "True", "Synced").await
}

/// A Queue `orders` that was made, and whose changes SQS shows.
pub async fn settled(more: Value) -> (TestEnv, Aws) {
    let (env, aws) = running().await;
    make(&env, "orders", more).await;
    ready(&env, "orders").await;
    env.pass(Duration::from_secs(90)).await;
    (env, aws)
}

/// The notes of all Events with this reason.
pub async fn events(env: &TestEnv, reason: &str) -> Vec<String> {
    let found = super::super::events(env, NAMESPACE).await.into_iter();
    let found = found.filter(|event| event.reason.as_deref() == Some(reason));
    found.filter_map(|event| event.note).collect()
}

pub fn url(name: &str) -> Value {
    json!({"QueueUrl": format!("https://sqs.eu-west-1.amazonaws.com/000000000000/{name}")})
}

/// The body of a request about a queue, with these fields.
pub fn about(name: &str, more: Value) -> Value {
    let mut body = url(name);
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}
