//! A server played by a test, which receives every request and answers it; and an informer of such a server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cache::{DecodedCache, StoreOptions, StoreWriter};
use extent::{Account, Ledger, RangeScope};
use futures::channel::mpsc as stream;
use futures::{FutureExt, StreamExt};
use http::header::RETRY_AFTER;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use listwatch::{Form, Intake, Scope};
use metrics::Metrics;
use model::testing::PausedClock;
use model::{Budget, Cluster, Kind};
use prometheus::Registry;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tower::BoxError;

use crate::{Informer, Target};

/// How long a test waits for something before it fails. Time is paused, so this costs nothing.
pub const PATIENCE: Duration = Duration::from_secs(3600);

/// What [`Watch::panic`] says.
const PANIC: &str = "as the test wants it";

type Answer = Result<Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError>;

/// The server's end: takes requests as they come.
pub struct Server {
    requests: mpsc::UnboundedReceiver<Asked>,
}

/// A request that waits for its answer.
pub struct Asked {
    /// `METHOD /path?query`, with parameters that are the same everywhere left out.
    pub line: String,
    /// Method, path and headers.
    pub request: http::request::Parts,
    /// Its body; null if it has none or it is not JSON.
    pub body: Value,
    answer: oneshot::Sender<Answer>,
}

/// The open answer to a watch.
pub struct Watch(stream::UnboundedSender<Result<Frame<Bytes>, BoxError>>);

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

/// A client, and the server it talks to.
pub fn server() -> (kube::Client, Server) {
    let (sender, requests) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: Request<Body>| {
        let sender = sender.clone();
        async move {
            let (request, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
            let line = line(&request);
            let (answer, answered) = oneshot::channel();
            // Without a server left, the connection is refused.
            let asked = Asked { line, request, body, answer };
            sender.send(asked).map_err(|_| "connection refused")?;
            answered.await.map_err(|_| "connection reset")?
        }
        .boxed()
    });
    (kube::Client::new(service, "default"), Server { requests })
}

/// An informer of ConfigMaps, its cluster's account and the server it talks to. It holds nothing until a scope is
/// required.
pub(crate) fn informer_with(
    form: Form,
    scope: Scope,
    budget: Budget,
) -> (Arc<Informer>, Arc<Account>, Server) {
    let (client, server) = server();
    let target = Target {
        cluster: "east".parse().expect("a name"),
        engagement: 1,
        kind: Kind::of::<ConfigMap>(),
        scope,
        form,
    };
    let metrics = Metrics::new(&Registry::new(), Arc::default()).expect("names of their own");
    let wire = Cluster::new(target.cluster.clone(), client, 1).wire;
    let metrics = metrics.informer(&target.cluster);
    let options = match form {
        Form::Whole => StoreOptions::default(),
        Form::Metadata => StoreOptions::default().metadata_only(),
    };
    let writer = StoreWriter::new(options, Arc::new(DecodedCache::new(0)));
    let account = Ledger::new(usize::MAX).open(&target.cluster, budget);
    let (clock, rng) = (PausedClock::new(), fastrand::Rng::with_seed(1));
    let kept = (writer, &account);
    let informer = Informer::start(target, wire, Intake::default(), clock, metrics, rng, kept);
    (informer, account, server)
}

/// An informer of all ConfigMaps.
pub fn informer() -> (Arc<Informer>, Server) {
    let (informer, _, server) = informer_with(Form::Whole, Scope::default(), Budget::default());
    // For as long as it runs.
    std::mem::forget(informer.require(RangeScope::Whole));
    (informer, server)
}

fn line(request: &http::request::Parts) -> String {
    let noise = |pair: &&str| {
        let key = pair.split('=').next().unwrap_or_default();
        !matches!(key, "" | "timeoutSeconds" | "allowWatchBookmarks" | "resourceVersionMatch")
    };
    let query: Vec<_> = request.uri.query().unwrap_or_default().split('&').filter(noise).collect();
    format!("{} {} {}", request.method, request.uri.path(), query.join("&")).trim().to_owned()
}

impl Server {
    /// The next request.
    pub async fn asked(&mut self) -> Asked {
        let next = tokio::time::timeout(PATIENCE, self.requests.recv()).await;
        next.expect("a request").expect("a client")
    }

    /// The next request; `None` without a client. Waits for as long as it takes.
    pub async fn next(&mut self) -> Option<Asked> {
        self.requests.recv().await
    }

    /// The next request, which must be this one.
    pub async fn expect(&mut self, line: &str) -> Asked {
        let asked = self.asked().await;
        assert_eq!(asked.line, line);
        asked
    }

    /// Whether nothing is asked for this long.
    pub async fn quiet(&mut self, time: Duration) {
        if let Ok(Some(asked)) = tokio::time::timeout(time, self.requests.recv()).await {
            panic!("unexpected: {}", asked.line);
        }
    }
}

impl Asked {
    /// Answers with this status and body.
    pub fn answer(self, status: u16, body: &Value) {
        self.respond(Response::builder().status(status), body);
    }

    /// Refuses, and asks for this long a pause.
    pub fn throttle(self, seconds: u64) {
        let response = Response::builder().status(429).header(RETRY_AFTER, seconds);
        let body = json!({"kind": "Status", "status": "Failure", "code": 429,
            "reason": "TooManyRequests", "message": "as the test wants it"});
        self.respond(response, &body);
    }

    fn respond(self, response: http::response::Builder, body: &Value) {
        let body = Full::new(Bytes::from(body.to_string()));
        let response = response.body(body.map_err(|never| match never {}).boxed_unsync());
        let response = response.expect("a status and a body make a response");
        // The client may have given up.
        let _ = self.answer.send(Ok(response));
    }

    /// Refuses with this status and reason.
    pub fn refuse(self, status: u16, reason: &str) {
        let body = json!({"kind": "Status", "status": "Failure", "code": status, "reason": reason,
            "message": "as the test wants it"});
        self.answer(status, &body);
    }

    /// Breaks the connection instead of answering.
    pub fn drop_connection(self) {
        let _ = self.answer.send(Err("connection reset".into()));
    }

    /// Answers with a page of a list.
    pub fn page(self, version: u64, next: &str, items: &[Value]) {
        let metadata = json!({"resourceVersion": version.to_string(), "continue": next});
        self.answer(200, &json!({"metadata": metadata, "items": items}));
    }

    /// Answers with a stream that stays open.
    pub fn watch(self) -> Watch {
        let (sender, frames) = stream::unbounded();
        let frames = frames.inspect(|frame: &Result<_, BoxError>| {
            if frame.as_ref().is_err_and(|error| error.to_string() == PANIC) {
                panic!("{PANIC}");
            }
        });
        let _ = self.answer.send(Ok(Response::new(StreamBody::new(frames).boxed_unsync())));
        Watch(sender)
    }

    /// Answers a streaming list with these objects, complete at `version`.
    pub fn list(self, version: u64, items: &[Value]) -> Watch {
        let watch = self.watch();
        for item in items {
            watch.event("ADDED", item);
        }
        watch.initial_end(version);
        watch
    }
}

impl Watch {
    fn raw(&self, text: &str) {
        let frame = Frame::data(Bytes::copy_from_slice(text.as_bytes()));
        // The client may have gone.
        let _ = self.0.unbounded_send(Ok(frame));
    }

    /// Sends the beginning of a line, or of a page.
    pub fn begin(&self, text: &str) {
        self.raw(text);
    }

    /// Sends a line as it is.
    pub fn text(&self, line: &str) {
        self.raw(&format!("{line}\n"));
    }

    /// Sends a watch event.
    pub fn event(&self, kind: &str, object: &Value) {
        self.text(&format!(r#"{{"type":"{kind}","object":{object}}}"#));
    }

    /// Sends a bookmark.
    pub fn bookmark(&self, version: u64) {
        self.event("BOOKMARK", &json!({"metadata": {"resourceVersion": version.to_string()}}));
    }

    /// Ends the initial events of a streaming list.
    pub fn initial_end(&self, version: u64) {
        let annotations = json!({"k8s.io/initial-events-end": "true"});
        let metadata = json!({"resourceVersion": version.to_string(), "annotations": annotations});
        self.event("BOOKMARK", &json!({"metadata": metadata}));
    }

    /// Says that the version is too old.
    pub fn expired(&self) {
        let status = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "old"});
        self.event("ERROR", &status);
    }

    /// Breaks the stream.
    pub fn broken(self) {
        let _ = self.0.unbounded_send(Err("connection reset".into()));
    }

    /// Panics when it is read next, as a library does that reads it.
    pub fn panic(&self) {
        let _ = self.0.unbounded_send(Err(PANIC.into()));
    }

    /// Waits until the client has hung up.
    pub async fn hung_up(&self) {
        let waiting = async {
            while !self.0.is_closed() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("the client hangs up");
    }
}

/// A ConfigMap.
pub fn config_map(name: &str, version: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "ns", "name": name,
        "uid": format!("uid-{name}"), "resourceVersion": version.to_string()},
        "data": {"version": version.to_string()}})
}
