//! JSON over HTTP, to a provider's API. The only file of this controller that connects to providers.
//!
//! `hyper-util` and `hyper-rustls` are in the program already, for the API servers. A larger client
//! would bring its own pools, redirects and retries, which are not needed here. The program runs in an
//! image without files, so Mozilla's root certificates are built in.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use sdk::Gathered;
use serde_json::Value;

use super::{Failure, Kind};

/// The largest answer that is read, in bytes. A page of 200 hosts has about 400,000.
const MAX_ANSWER: usize = 8 << 20;
/// The pause after status 429 without a `Retry-After`.
const PAUSE: Duration = Duration::from_secs(30);

/// Why no answer came.
pub type TransportError = Box<dyn std::error::Error + Send + Sync>;
type Send1 = dyn Fn(Request<Bytes>) -> BoxFuture<'static, Result<Response<Bytes>, TransportError>>
    + Send
    + Sync;

/// Sends requests. Clones share its connections.
#[derive(Clone)]
pub struct Http(Arc<Send1>);

impl Http {
    /// Over the network.
    pub fn new() -> Self {
        let connector = HttpsConnectorBuilder::new()
            .with_webpki_roots()
            .https_or_http()
            .enable_http1()
            .enable_http2()
            .build();
        let client = Client::builder(TokioExecutor::new()).build::<_, Full<Bytes>>(connector);
        Self::through(move |request| {
            let answer = client.request(request.map(Full::new));
            async move {
                let (head, body) = answer.await?.into_parts();
                let body = Gathered::new(body, MAX_ANSWER).collect().await?.to_bytes();
                Ok(Response::from_parts(head, body))
            }
            .boxed()
        })
    }

    /// Through a function: a stand-in of the same process.
    pub fn through(
        send: impl Fn(Request<Bytes>) -> BoxFuture<'static, Result<Response<Bytes>, TransportError>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self(Arc::new(send))
    }

    /// The API at an address, with a token.
    pub(super) fn at(&self, endpoint: &str, token: &str) -> Result<Api, Failure> {
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        let uri = endpoint.parse::<http::Uri>().ok();
        if uri.is_none_or(|uri| uri.scheme().is_none() || uri.host().is_none()) {
            let message =
                format!("{endpoint:?} is not the address of an API: write it like https://host/v2");
            return Err(Failure::new("the endpoint", Kind::Refused, message));
        }
        Ok(Api { http: self.clone(), endpoint, token: token.trim().to_owned() })
    }
}

impl Default for Http {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}

/// One API, with a token.
#[derive(Clone)]
pub(super) struct Api {
    http: Http,
    endpoint: String,
    token: String,
}

/// How a provider's refusals read.
pub(super) type Judge = fn(StatusCode, &Value) -> (Kind, String);

impl Api {
    /// Sends one request. `judge` reads failures that are not common to all HTTP APIs.
    pub(super) async fn send(
        &self,
        provider: &'static str,
        judge: Judge,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Bytes, Failure> {
        let unanswered = |message: String| Failure::new(provider, Kind::Unanswered, message);
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.endpoint))
            .header(AUTHORIZATION, format!("Bearer {}", self.token))
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, concat!("leasehold/", env!("CARGO_PKG_VERSION")))
            .body(body.map_or_else(Bytes::new, |body| body.to_string().into()));
        // A token with a line break cannot be a header.
        let request = request.map_err(|error| {
            Failure::new(provider, Kind::Token, format!("the request cannot be written: {error}"))
        })?;
        let answer = (self.http.0)(request).await;
        let answer = answer.map_err(|error| unanswered(sdk::error::chain(&*error)))?;
        if answer.status().is_success() {
            return Ok(answer.into_body());
        }
        Err(failure(provider, judge, &answer))
    }
}

fn failure(provider: &'static str, judge: Judge, answer: &Response<Bytes>) -> Failure {
    let status = answer.status();
    let body = serde_json::from_slice(answer.body()).unwrap_or(Value::Null);
    let (kind, message) = judge(status, &body);
    let kind = match status {
        StatusCode::UNAUTHORIZED => Kind::Token,
        StatusCode::TOO_MANY_REQUESTS => Kind::Overloaded,
        // Something else changes it at the moment.
        StatusCode::CONFLICT if kind == Kind::Refused => Kind::Busy,
        _ if status.is_server_error() => Kind::Unavailable,
        _ => kind,
    };
    let pause = (kind == Kind::Overloaded).then_some(PAUSE);
    Failure {
        provider,
        kind,
        message: if message.is_empty() { format!("HTTP {status}") } else { message },
        retry_after: retry_after(answer.headers()).or(pause),
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs)
}

/// A text of an answer, or nothing.
pub(super) fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}
