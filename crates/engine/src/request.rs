//! The one path of every request to a cluster, of informers and reconciles, reads and writes:
//!
//! ```text
//!  admission          fence                 deadline             send        account
//!  gate: its turn ──▶ writes: still ours? ─▶ ?timeout=, timers ─▶ wire ─▶ metrics, gate,
//!                                                                          what was written
//! ```
//!
//! The functions below are in that order. Nothing is retried here: `rest_client_request_retries_total`
//! exists for dashboards that query it, and has no series.

use std::fmt::{self, Display};
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, UPGRADE, USER_AGENT};
use http::{Method, Request, Response, Uri};
use http_body::Body as _;
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use model::wire::{self, Answer};
use model::{Clock, Cluster, Epoch, GroupName, Wire};
use portforward::{DIAL_TIMEOUT, DialError, MAX_STREAMS, PodPort, PodStream};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tower::BoxError;
use tracing::Instrument;
use tracing::field::Empty;
use upstream::{Caller, Gate, Outcome, Ticket};

use crate::dispatch::Dispatch;
use crate::fence::{Fence, FencedError};
use crate::large::{Expected, LargeAnswers, Reads};
use metrics::RestMetrics;
use writes::Written;
use writes::stamp;

/// How long a server may take until the head of its answer.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long, where others wait to see whether it answers at all.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(15);

/// A server that did not begin to answer.
#[derive(Debug, thiserror::Error)]
#[error("the server did not begin to answer within {}s", .limit.as_secs())]
pub struct ResponseTimeout {
    limit: Duration,
}

/// A request to change the protocol of its connection, which would then be out of the fence's sight.
#[derive(Debug, thiserror::Error)]
#[error(
    "{what} was not sent: exec, attach and port-forward leave the fence's sight; \
     use ctx.pod(namespace, name).dial(port)"
)]
struct UnfencedUpgrade {
    what: String,
}

/// An answer to come, once its head is there.
type Answering = BoxFuture<'static, Result<Response<Answer>, BoxError>>;

/// The client of one cluster, without the fence. Clones share it.
#[derive(Clone)]
pub(crate) struct ClusterClient(Arc<Inner>);

struct Inner {
    wire: Wire,
    gate: Arc<Gate>,
    metrics: RestMetrics,
    clock: Arc<dyn Clock>,
    /// Whether writes carry the epoch at which they are made.
    stamps: bool,
    /// For streams to Pods.
    streams: Arc<Semaphore>,
    large: LargeAnswers,
}

/// What sends the requests of one dispatch: reads as they are, writes through the fence.
#[derive(Clone)]
pub struct FencedClient {
    cluster: ClusterClient,
    fence: Fence,
    dispatch: Dispatch,
    user_agent: HeaderValue,
}

/// A request, for people.
struct Asked {
    method: Method,
    path: String,
}

impl Asked {
    fn by(request: &Request<Body>) -> Self {
        Self { method: request.method().clone(), path: request.uri().path().to_owned() }
    }
}

impl Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

impl ClusterClient {
    pub(crate) fn new(
        cluster: &Cluster,
        gate: Arc<Gate>,
        metrics: RestMetrics,
        clock: Arc<dyn Clock>,
        stamps: bool,
        large: LargeAnswers,
    ) -> Self {
        let (wire, streams) = (cluster.wire.clone(), Arc::new(Semaphore::new(MAX_STREAMS)));
        Self(Arc::new(Inner { wire, gate, metrics, clock, stamps, streams, large }))
    }

    /// Sends a request that changes nothing, when it is its turn: of a reconcile, which reads its answers in turns,
    /// or of an informer, which bounds what it reads itself.
    fn read(&self, request: Request<Body>, reads: Option<Reads>) -> Answering {
        let (cluster, span) = (self.clone(), api_span(&request));
        let exchange = async move {
            let caller = if reads.is_some() { Caller::Reconcile } else { Caller::Informer };
            let ticket = cluster.0.gate.admit(caller).await?;
            let reads = reads.filter(|_| !is_followed(request.uri()));
            let (large, expected) = (cluster.0.large.clone(), Expected::of(&request));
            let answer = cluster.send(ticket, request).await?;
            Ok(match reads {
                Some(reads) => answer.map(|body| large.in_turn(reads, expected, body)),
                None => answer,
            })
        };
        exchange.instrument(span).boxed()
    }

    /// What sends the requests of informers, each when it is its turn.
    pub(crate) fn wire(&self) -> Wire {
        let client = self.clone();
        Wire::new(move |request| client.read(request, None))
    }

    /// Sends a write of `dispatch`, when it is its turn and while the fence allows it. Reads the
    /// whole answer, so that its end is the end of the exchange.
    async fn write(
        self,
        fence: Fence,
        dispatch: Dispatch,
        request: Request<Body>,
    ) -> Result<Response<Answer>, BoxError> {
        let asked = Asked::by(&request);
        let (ticket, permit) = fence.admit(&dispatch, &self.0.gate, &asked).await?;
        let limit = permit.limit();
        let request = with_server_timeout(request, limit);
        let written = fence.clone();
        let exchange = async move {
            let request = match self.0.stamps {
                true => with_stamp(request, &dispatch.shard.group, dispatch.epoch).await?,
                false => request,
            };
            let (method, uri) = (request.method().clone(), request.uri().clone());
            let (large, expected) = (self.0.large.clone(), Expected::of(&request));
            let (clock, gate) = (Arc::clone(&self.0.clock), Arc::clone(&self.0.gate));
            let sent = clock.now();
            let (parts, body) = self.send(ticket, request).await?.into_parts();
            let reads = written.reads().clone();
            let answer = large.in_turn(reads, expected, body).collect().await?.to_bytes();
            let query = uri.query().unwrap_or_default();
            written.answered(&dispatch, clock.now().since(sent), gate.fastest());
            if parts.status.is_success()
                && let Some(one) = Written::read(&method, uri.path(), query, &answer)
            {
                written.record(one);
            }
            let whole = Full::from(answer).map_err(|never| match never {});
            Ok(Response::from_parts(parts, whole.boxed_unsync()))
        };
        let late = || FencedError::TimedOut { what: asked.to_string(), limit };
        permit.act(exchange).await.unwrap_or_else(|| Err(late().into()))
    }

    /// Asks for another protocol on the connection, when it is its turn and while the fence allows it.
    async fn upgrade(
        self,
        fence: Fence,
        dispatch: Dispatch,
        request: Request<Body>,
    ) -> Result<Response<Answer>, BoxError> {
        let asked = Asked::by(&request);
        let (ticket, permit) = fence.admit(&dispatch, &self.0.gate, &asked).await?;
        let limit = permit.limit().min(DIAL_TIMEOUT);
        let answer = permit.act(tokio::time::timeout(limit, self.send(ticket, request))).await;
        let late = || FencedError::TimedOut { what: asked.to_string(), limit };
        answer.and_then(Result::ok).unwrap_or_else(|| Err(late().into()))
    }

    /// Sends a request whose turn it is. Returns the answer once its head has come, and accounts for
    /// it: to the gate, in the metrics and in the `api` span.
    async fn send(
        self,
        ticket: Ticket,
        request: Request<Body>,
    ) -> Result<Response<Answer>, BoxError> {
        let limit = if ticket.is_probe() { PROBE_TIMEOUT } else { RESPONSE_TIMEOUT };
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let is_watch = wire::is_watch(request.uri());
        self.0.metrics.waited(&method, ticket.waited());
        if let Some(bytes) = request.body().size_hint().exact() {
            self.0.metrics.sent(&method, bytes);
        }
        let started = self.0.clock.now();
        let answer = tokio::time::timeout(limit, self.0.wire.send(request)).await;
        let answer = answer.unwrap_or_else(|_| Err(ResponseTimeout { limit }.into()));
        ticket.ended(match &answer {
            Ok(response) => Outcome::of(&path, response.status(), response.headers()),
            Err(error) => Outcome::unanswered(&**error),
        });
        let status = answer.as_ref().ok().map(Response::status);
        if let Some(status) = status {
            tracing::Span::current().record("status", status.as_u16());
        }
        self.0.metrics.observe(&method, status, self.0.clock.now().since(started));
        match is_watch {
            // It has no size before its end.
            true => answer,
            false => answer.map(|answer| self.0.metrics.counted(&method, answer)),
        }
    }
}

impl FencedClient {
    pub(crate) fn new(cluster: ClusterClient, fence: Fence, dispatch: Dispatch) -> Self {
        let user_agent = user_agent(&dispatch);
        Self { cluster, fence, dispatch, user_agent }
    }

    /// Wraps this in a [`kube::Client`], which has its own task.
    pub fn client(&self) -> kube::Client {
        let this = self.clone();
        let wire = Wire::new(move |request| this.send(request));
        wire.within(self.cluster.0.wire.namespace()).client()
    }

    /// Sends one request and reads its answer.
    ///
    /// # Errors
    /// What the server says, or why the request was not sent or not answered.
    pub async fn request<T: DeserializeOwned>(
        &self,
        request: Request<Vec<u8>>,
    ) -> Result<T, kube::Error> {
        let answer = self.request_text(request).await?;
        serde_json::from_str(&answer).map_err(kube::Error::SerdeError)
    }

    /// Sends one request and returns its answer as it came. It is in a box so that all of this is
    /// compiled here, once, and not with each type that an answer is read as.
    ///
    /// # Errors
    /// What the server says, or why the request was not sent or not answered.
    pub fn request_text(
        &self,
        request: Request<Vec<u8>>,
    ) -> BoxFuture<'_, Result<String, kube::Error>> {
        self.exchange(request).boxed()
    }

    async fn exchange(&self, request: Request<Vec<u8>>) -> Result<String, kube::Error> {
        let answer = self.send(request.map(Body::from)).await;
        let unanswered = |error: BoxError| match error.downcast::<kube::Error>() {
            Ok(error) => *error,
            Err(error) => kube::Error::Service(error),
        };
        let (parts, body) = answer.map_err(unanswered)?.into_parts();
        let bytes = body.collect().await.map_err(kube::Error::Service)?.to_bytes();
        if parts.status.is_success() {
            return String::from_utf8(bytes.into()).map_err(kube::Error::FromUtf8);
        }
        Err(wire::refusal(parts.status, &bytes))
    }

    /// Opens a stream to a port of a Pod. It is fenced like a write, and so is each of its frames; it is cut
    /// when the dispatch has ended.
    ///
    /// # Errors
    /// See [`DialError`].
    pub fn dial(&self, port: PodPort) -> BoxFuture<'static, Result<PodStream, DialError>> {
        let (client, streams) = (self.clone(), Arc::clone(&self.cluster.0.streams));
        let (fence, dispatch) = (self.fence.clone(), self.dispatch.clone());
        let ask = move |port: &PodPort| fence.ask(&dispatch, port).map_err(std::io::Error::other);
        async move {
            let send = |request| client.upgrade(request);
            let stream = portforward::dial(port, streams, Arc::new(ask), send).await?;
            client.fence.hold(stream.line());
            Ok(stream)
        }
        .boxed()
    }

    /// Asks for another protocol on a connection of its own.
    fn upgrade(&self, mut request: Request<Body>) -> Answering {
        request.headers_mut().insert(USER_AGENT, self.user_agent.clone());
        let (cluster, span) = (self.cluster.clone(), api_span(&request));
        let (fence, dispatch) = (self.fence.clone(), self.dispatch.clone());
        cluster.upgrade(fence, dispatch, request).instrument(span).boxed()
    }

    /// Sends one request.
    fn send(&self, mut request: Request<Body>) -> Answering {
        if request.headers().contains_key(UPGRADE) {
            let what = Asked::by(&request).to_string();
            return ready(Err(UnfencedUpgrade { what }.into())).boxed();
        }
        request.headers_mut().insert(USER_AGENT, self.user_agent.clone());
        if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
            return self.cluster.read(request, Some(self.fence.reads().clone()));
        }
        let (cluster, span) = (self.cluster.clone(), api_span(&request));
        let (fence, dispatch) = (self.fence.clone(), self.dispatch.clone());
        cluster.write(fence, dispatch, request).instrument(span).boxed()
    }
}

/// Whether an answer has no end of its own: a watch, or a log that grows.
fn is_followed(uri: &Uri) -> bool {
    let follows = || uri.query().unwrap_or_default().contains("follow=");
    wire::is_watch(uri) || (uri.path().ends_with("/log") && follows())
}

/// The span of a request.
fn api_span(request: &Request<Body>) -> tracing::Span {
    tracing::info_span!(
        "api",
        method = %request.method(),
        path = request.uri().path(),
        status = Empty,
        otel.kind = "client",
    )
}

/// Adds the epoch to the object in a request, if it can carry one.
async fn with_stamp(
    request: Request<Body>,
    group: &GroupName,
    epoch: Epoch,
) -> Result<Request<Body>, BoxError> {
    let (mut parts, body) = request.into_parts();
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if !stamp::is_stamped(&parts.method, parts.uri.path(), content_type.unwrap_or_default()) {
        return Ok(Request::from_parts(parts, body));
    }
    let bytes = body.collect().await?.to_bytes();
    let Some(stamped) = stamp::stamped(&bytes, group, epoch) else {
        return Ok(Request::from_parts(parts, Body::from(bytes)));
    };
    // It was the length of what came in.
    parts.headers.remove(CONTENT_LENGTH);
    Ok(Request::from_parts(parts, Body::from(stamped)))
}

/// Sets `?timeout=`, in whole milliseconds rounded down, replacing one that is there.
fn with_server_timeout(mut request: Request<Body>, limit: Duration) -> Request<Body> {
    let uri = request.uri();
    let kept = uri.query().unwrap_or_default().split('&');
    let kept = kept.filter(|pair| !pair.is_empty() && !pair.starts_with("timeout="));
    // Zero would mean no limit.
    let timeout = format!("timeout={}ms", limit.as_millis().max(1));
    let query = kept.chain([timeout.as_str()]).collect::<Vec<_>>().join("&");
    let mut parts = uri.clone().into_parts();
    let path_and_query = format!("{}?{query}", uri.path()).parse();
    parts.path_and_query = Some(path_and_query.expect("a valid query with one more pair is valid"));
    *request.uri_mut() = Uri::from_parts(parts).expect("only the query changed");
    request
}

/// `leasehold/<version> (member=...; shard=...; epoch=...; key=<ns/name>)`, which audit logs keep.
fn user_agent(dispatch: &Dispatch) -> HeaderValue {
    let Dispatch { member, shard, epoch, key, .. } = dispatch;
    let key = match &key.namespace {
        Some(namespace) => format!("{namespace}/{}", key.name),
        None => key.name.to_string(),
    };
    let version = env!("CARGO_PKG_VERSION");
    let text =
        format!("leasehold/{version} (member={member}; shard={shard}; epoch={epoch}; key={key})");
    HeaderValue::from_str(&text)
        .unwrap_or(HeaderValue::from_static(concat!("leasehold/", env!("CARGO_PKG_VERSION"))))
}

impl fmt::Debug for ClusterClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterClient").field("gate", &self.0.gate).finish_non_exhaustive()
    }
}
