//! A server in process, and raw requests to it.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use leasehold_apiserver::{Builder, Server};
use serde_json::{Value, json};
use tower::ServiceExt;

/// A server and a client for raw requests.
pub struct World {
    pub server: Server,
}

/// A complete answer.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub headers: HeaderMap,
    pub raw: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.raw).unwrap_or_else(|e| panic!("{e}: {:?}", self.raw))
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.raw).unwrap()
    }

    /// Panics with the answer unless it has this code.
    pub fn expect(self, code: u16) -> Value {
        assert_eq!(self.code, code, "{}", self.text());
        self.json()
    }

    /// Code, reason and message of a Status.
    pub fn status(&self) -> (u16, String, String) {
        let status = self.json();
        assert_eq!(status["kind"], "Status", "{status}");
        let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
        (self.code, text("reason"), text("message"))
    }
}

impl World {
    pub async fn new() -> Self {
        Self::with(Server::builder()).await
    }

    pub async fn with(builder: Builder) -> Self {
        Self { server: builder.seed(7).start().await.unwrap() }
    }

    pub async fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        let response = self.server.service().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let raw = body.collect().await.unwrap().to_bytes();
        Answer { code: parts.status.as_u16(), headers: parts.headers, raw }
    }

    async fn json(&self, method: Method, path: &str, media_type: &str, body: Value) -> Answer {
        let request =
            Request::builder().method(method).uri(path).header("content-type", media_type);
        self.send(request.body(Full::from(body.to_string())).unwrap()).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Full::default()).unwrap()).await
    }

    /// A request in another user's name.
    pub async fn acting(&self, user: &str, method: Method, path: &str, body: Value) -> Answer {
        let request = Request::builder().method(method).uri(path).header("impersonate-user", user);
        let request = request.header("content-type", "application/json");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(request.body(Full::from(body)).unwrap()).await
    }

    pub async fn get_as(&self, path: &str, accept: &str) -> Answer {
        self.send(Request::get(path).header("accept", accept).body(Full::default()).unwrap()).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.json(Method::POST, path, "application/json", body).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.json(Method::PUT, path, "application/json", body).await
    }

    pub async fn merge(&self, path: &str, body: Value) -> Answer {
        self.json(Method::PATCH, path, "application/merge-patch+json", body).await
    }

    pub async fn patch(&self, path: &str, media_type: &str, body: Value) -> Answer {
        self.json(Method::PATCH, path, media_type, body).await
    }

    pub async fn delete(&self, path: &str, options: Value) -> Answer {
        self.json(Method::DELETE, path, "application/json", options).await
    }

    /// Starts a watch.
    pub async fn watch(&self, path: &str) -> Lines {
        let request = Request::get(path).body(Full::<Bytes>::default()).unwrap();
        let response = self.server.service().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        Lines { body: response.into_body().boxed_unsync(), buffer: Vec::new() }
    }
}

impl World {
    /// Watches an object until `done`, and answers what it is then.
    pub async fn until(
        &self,
        path: &str,
        name: &str,
        what: &str,
        done: impl Fn(&Value) -> bool,
    ) -> Value {
        let mut last = Value::Null;
        let found = async {
            let mut lines =
                self.watch(&format!("{path}?watch=1&fieldSelector=metadata.name={name}")).await;
            loop {
                let event = lines.next().await.expect("the watch goes on");
                last = event["object"].clone();
                if done(&last) {
                    return;
                }
            }
        };
        let in_time = tokio::time::timeout(DEADLINE, found).await.is_ok();
        assert!(in_time, "not in time: {what}; {last:#}");
        last
    }

    /// Waits until there is no such object.
    pub async fn gone(&self, path: &str, name: &str) {
        let wait = async {
            let mut lines =
                self.watch(&format!("{path}?watch=1&fieldSelector=metadata.name={name}")).await;
            while self.get(&format!("{path}/{name}")).await.code != 404 {
                lines.next().await.expect("the watch goes on");
            }
        };
        tokio::time::timeout(DEADLINE, wait).await.unwrap_or_else(|_| panic!("{name} stays"));
    }
}

/// Whether a Pod is Ready.
pub fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|c| c["type"] == "Ready" && c["status"] == "True")
}

type LineBody = http_body_util::combinators::UnsyncBoxBody<Bytes, std::convert::Infallible>;

/// The events of a watch, line by line.
pub struct Lines {
    body: LineBody,
    buffer: Vec<u8>,
}

impl Lines {
    /// The next event; `None` when the watch has ended.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = self.body.frame().await?.unwrap();
            self.buffer.extend_from_slice(&frame.into_data().unwrap());
        }
    }

    /// The next event as type, name and resourceVersion.
    pub async fn brief(&mut self) -> (String, String, u64) {
        let event = self.next().await.expect("the watch continues");
        let meta = &event["object"]["metadata"];
        (
            event["type"].as_str().unwrap().to_owned(),
            meta["name"].as_str().unwrap_or_default().to_owned(),
            version(&event["object"]),
        )
    }
}

/// An object's resourceVersion.
pub fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap_or("0").parse().unwrap()
}

/// Pods of the default namespace.
pub const PODS: &str = "/api/v1/namespaces/default/pods";

/// How long a test waits for what must come.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// ConfigMaps of the default namespace.
pub const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A ConfigMap.
pub fn configmap(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name}, "data": {"key": value},
    })
}
