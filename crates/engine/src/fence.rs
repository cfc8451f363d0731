//! The fenced client: every write of a reconcile asks the fence again at the moment it is sent.
//!
//! # Invariants
//! - No write leaves without a permit for the dispatch's shard and epoch, asked for once its turn
//!   at the cluster's gate has come: what was permitted before a wait says nothing after it.
//! - No write outlives its permit: client timeout and the server's `?timeout=` are at most
//!   `permit.valid_for`. Ours is told by the clock that tells the Lease, so a process that slept
//!   past its Lease gives its writes up when it wakes.
//! - A write that was sent is awaited to its end even if the reconcile that sent it is dropped: it
//!   goes on in a task of its own then, and [`Fence::settle`] is the barrier that the runner awaits
//!   before it calls the dispatch finished.
//! - No write begins after that: a client that outlives its reconcile can only read. By
//!   construction: a write takes a token of the barrier *before* it asks whether the dispatch is
//!   over, and `settle` says that it is over before it waits for the tokens.
//! - A write that waits for its turn has not begun: it waits no longer than the Lease allows, ends
//!   with its reconcile, and holds up no drain.
//!
//! Where the engine is told to, a write carries the epoch it is made at (`stamp`).
//!
//! Reads pass: they change nothing, and the cache is preferred anyway.

use std::fmt::{self, Display};
use std::future::poll_fn;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use kube::core::Status;
use model::wire::Answer;
use model::{Clock, Epoch, FenceError, GroupName, Moment, Ownership, Permit, Purpose};
use prometheus::IntCounter;
use serde::de::DeserializeOwned;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tower::{BoxError, Service};
use tracing::Instrument;

use crate::dispatch::Dispatch;
use crate::echo::Written;
use crate::finish::to_its_end;
#[cfg(feature = "planted")]
use crate::planted::{self, Planted};
use crate::stamp;
use crate::transport::{Admitted, Transport};
use crate::upstream::UpstreamError;
use crate::upstream::gate::{Gate, Ticket};
use crate::upstream::line::Line;

/// The longest a single write may take, however long the Lease is valid.
pub const MAX_WRITE_TIME: Duration = Duration::from_secs(30);
/// Below this much validity a write is not begun: it could not be answered in time.
const MIN_WRITE_TIME: Duration = Duration::from_millis(1);
/// Writes of one reconcile that the next one waits to see in the cache.
const MAX_WRITTEN: usize = 64;
/// How much is told of a refusal that is no API server's, in bytes.
const MAX_REFUSAL_BYTES: usize = 200;

/// A write that the fence refused or cut off. Found in the source chain of the [`kube::Error`] that
/// a fenced client returns.
#[derive(Debug, thiserror::Error)]
pub enum FencedError {
    /// Not sent.
    #[error("{what} was not sent")]
    Refused {
        /// The request: its method and path, or what a controller calls it.
        what: String,
        /// Why the member may not act.
        #[source]
        source: FenceError,
    },
    /// Not sent: the reconcile it belongs to has ended, and its client was kept.
    #[error("{what} was not sent: its reconcile has ended")]
    Over {
        /// The request.
        what: String,
    },
    /// Sent, and not answered while the permit was valid. It may or may not have taken effect.
    #[error("{what} was not answered within {}ms, all that the Lease allows", .limit.as_millis())]
    TimedOut {
        /// The request.
        what: String,
        /// The time it was given.
        limit: Duration,
    },
}

/// What the clients of one dispatch share: the way to the cluster, the fence, and the writes under
/// way.
#[derive(Clone)]
pub(crate) struct Fence {
    cluster: Transport,
    ownership: Arc<dyn Ownership>,
    writes: TaskTracker,
    over: Arc<AtomicBool>,
    /// What was written and how, for whoever reads the cache next.
    written: Arc<Mutex<Vec<Written>>>,
    rejected: IntCounter,
    stamps: bool,
}

impl Fence {
    pub(crate) fn new(
        cluster: Transport,
        ownership: Arc<dyn Ownership>,
        rejected: IntCounter,
        stamps: bool,
    ) -> Self {
        let (writes, over, written) = (TaskTracker::new(), Arc::default(), Arc::default());
        Self { cluster, ownership, writes, over, written, rejected, stamps }
    }

    /// How many members are alive.
    pub(crate) fn members(&self) -> NonZeroU32 {
        self.ownership.members()
    }

    /// What was written, as far as the answers tell; the last [`MAX_WRITTEN`] writes.
    pub(crate) fn take_written(&self) -> Vec<Written> {
        std::mem::take(&mut self.written.lock().expect("no holder of this lock panics"))
    }

    /// Waits until it is the turn of a write by `dispatch` at `gate`, for as long as it may be sent
    /// at all; then asks whether it still may.
    pub(crate) async fn leave(
        &self,
        dispatch: &Dispatch,
        gate: &Arc<Gate>,
        what: &impl Display,
    ) -> Result<(Ticket, Leave), BoxError> {
        let limit = self.permitted(dispatch, what)?;
        let turn = tokio::time::timeout(limit, gate.admit(Line::Call)).await;
        let upstream = gate.upstream();
        let ticket =
            turn.map_err(|_| UpstreamError::NoTurn { upstream: upstream.clone(), limit })??;
        let token = self.writes.token();
        let limit = self.permitted(dispatch, what)?;
        let clock = Arc::clone(self.cluster.clock());
        Ok((ticket, Leave { limit, clock, token }))
    }

    /// Whether a write may be sent now, and how long it may take.
    fn permitted(&self, dispatch: &Dispatch, what: &impl Display) -> Result<Duration, FencedError> {
        if self.over.load(Ordering::SeqCst) {
            return Err(self.refused(FencedError::Over { what: what.to_string() }));
        }
        #[cfg(feature = "planted")]
        if planted::is(Planted::FenceAtDispatchOnly) {
            return Ok(MAX_WRITE_TIME);
        }
        match self.ownership.permit(&dispatch.shard, dispatch.epoch, Purpose::Write) {
            Ok(permit) => Ok(write_limit(permit)),
            Err(source) => {
                Err(self.refused(FencedError::Refused { what: what.to_string(), source }))
            }
        }
    }

    fn refused(&self, error: FencedError) -> FencedError {
        self.rejected.inc();
        tracing::warn!(error = model::error::chain(&error), "a write was fenced");
        error
    }

    /// Lets no further write begin, and waits until none is under way.
    pub(crate) async fn settle(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.writes.close();
        self.writes.wait().await;
    }
}

/// Leave to change something, once. Its dispatch is not over before it is given back.
pub(crate) struct Leave {
    limit: Duration,
    clock: Arc<dyn Clock>,
    token: TaskTrackerToken,
}

impl Leave {
    /// How long `work` may take.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Does `work`, to its end even if this is dropped, and gives it up when the leave has run out.
    /// By our clock: timers stand still while the machine sleeps, the Lease does not.
    pub(crate) async fn act<T: Send + 'static>(
        self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let Self { limit, clock, token } = self;
        let act = async move {
            // Given back when the work has ended, and not when its reconcile has.
            let _token = token;
            let deadline = clock.now() + limit;
            before(&*clock, deadline, work).await
        };
        to_its_end(act.in_current_span()).await
    }
}

/// A request to an API server, for people.
struct Wanted {
    method: Method,
    path: String,
}

impl Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

/// A tower service in front of a cluster's client, for one dispatch.
#[derive(Clone)]
pub(crate) struct FencedClient {
    fence: Fence,
    dispatch: Dispatch,
    user_agent: HeaderValue,
}

impl FencedClient {
    /// What sends the requests of `dispatch`.
    pub(crate) fn new(fence: &Fence, dispatch: &Dispatch) -> Self {
        let user_agent = user_agent(dispatch);
        Self { fence: fence.clone(), dispatch: dispatch.clone(), user_agent }
    }

    /// The same as a client, which has a task of its own.
    pub(crate) fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), self.fence.cluster.default_namespace())
    }

    /// Sends one request and reads its answer.
    pub(crate) async fn request<T: DeserializeOwned>(
        &self,
        request: Request<Vec<u8>>,
    ) -> Result<T, kube::Error> {
        let answer = self.clone().call(request.map(Body::from)).await;
        let unanswered = |error: BoxError| match error.downcast::<kube::Error>() {
            Ok(error) => *error,
            Err(error) => kube::Error::Service(error),
        };
        let (parts, body) = answer.map_err(unanswered)?.into_parts();
        let bytes = body.collect().await.map_err(kube::Error::Service)?.to_bytes();
        if parts.status.is_success() {
            return serde_json::from_slice(&bytes).map_err(kube::Error::SerdeError);
        }
        let status = serde_json::from_slice::<Status>(&bytes).unwrap_or_else(|_| {
            // Not the API server's words: a proxy's, say.
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_REFUSAL_BYTES)]);
            let reason = parts.status.canonical_reason().unwrap_or_default();
            Status::failure(&text, reason).with_code(parts.status.as_u16())
        });
        Err(kube::Error::Api(status.boxed()))
    }

    async fn write(self, mut request: Request<Body>) -> Result<Response<Answer>, BoxError> {
        let wanted =
            Wanted { method: request.method().clone(), path: request.uri().path().to_owned() };
        let cluster = self.fence.cluster.clone();
        let (ticket, leave) = self.fence.leave(&self.dispatch, cluster.gate(), &wanted).await?;
        let limit = leave.limit();
        request.extensions_mut().insert(Admitted::new(ticket));
        let request = with_server_timeout(request, limit);
        let account = Account::of(&request, &self.fence.written);
        let Dispatch { shard, epoch, .. } = &self.dispatch;
        let stamp = self.fence.stamps.then(|| (shard.group.clone(), *epoch));
        let send = async move {
            let request = match stamp {
                Some((group, epoch)) => with_stamp(request, &group, epoch).await?,
                None => request,
            };
            send_whole(cluster, request, account).await
        };
        let late = || FencedError::TimedOut { what: wanted.to_string(), limit };
        leave.act(send).await.unwrap_or_else(|| Err(late().into()))
    }
}

impl Service<Request<Body>> for FencedClient {
    type Response = Response<Answer>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Answer>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Whoever sends waits at the cluster's gate.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        request.headers_mut().insert(USER_AGENT, self.user_agent.clone());
        if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
            return self.fence.cluster.send(request);
        }
        self.clone().write(request).in_current_span().boxed()
    }
}

/// Enters a write into the account of its reconcile.
struct Account {
    method: Method,
    uri: Uri,
    written: Arc<Mutex<Vec<Written>>>,
}

impl Account {
    fn of(request: &Request<Body>, written: &Arc<Mutex<Vec<Written>>>) -> Self {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        Self { method, uri, written: Arc::clone(written) }
    }

    fn enter(self, answer: &[u8]) {
        let query = self.uri.query().unwrap_or_default();
        let Some(one) = Written::read(&self.method, self.uri.path(), query, answer) else { return };
        let mut written = self.written.lock().expect("no holder of this lock panics");
        if written.len() == MAX_WRITTEN {
            written.remove(0);
        }
        written.push(one);
    }
}

/// What comes of `work` before `deadline`. After it, `work` is not polled once more: a process that
/// was suspended sends nothing when it wakes, not even what it was about to.
async fn before<T>(
    clock: &dyn Clock,
    deadline: Moment,
    work: impl Future<Output = T>,
) -> Option<T> {
    let (mut work, mut late) = (pin!(work), clock.sleep_until(deadline));
    poll_fn(|cx| {
        if clock.now() >= deadline || late.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        work.as_mut().poll(cx).map(Some)
    })
    .await
}

/// Sends a request and reads the whole answer, so that its end is the end of the exchange.
async fn send_whole(
    cluster: Transport,
    request: Request<Body>,
    account: Account,
) -> Result<Response<Answer>, BoxError> {
    let (parts, body) = cluster.send(request).await?.into_parts();
    let bytes = body.collect().await?.to_bytes();
    if parts.status.is_success() {
        account.enter(&bytes);
    }
    let whole = Full::from(bytes).map_err(|never| match never {});
    Ok(Response::from_parts(parts, whole.boxed_unsync()))
}

/// Adds the epoch to what the request writes, if that can carry it.
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

fn write_limit(permit: Permit) -> Duration {
    permit.valid_for.clamp(MIN_WRITE_TIME, MAX_WRITE_TIME)
}

/// Sets `?timeout=`, in whole milliseconds rounded down, replacing one that is there.
fn with_server_timeout(mut request: Request<Body>, limit: Duration) -> Request<Body> {
    let uri = request.uri();
    let kept = uri.query().unwrap_or_default().split('&');
    let kept = kept.filter(|pair| !pair.is_empty() && !pair.starts_with("timeout="));
    let timeout = format!("timeout={}ms", limit.as_millis());
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
