//! The layer on every request to a cluster: its turn at the cluster's [`Gate`], `rest_client_*`
//! metrics, the `api` span, and a limit on how long a server may take to begin its answer.
//!
//! Nothing is retried here: `rest_client_request_retries_total` exists for dashboards that ask for
//! it, and stays without series.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use model::wire::Answer;
use model::{Clock, Cluster, Wire};
use tower::{BoxError, Service};
use tracing::Instrument;
use tracing::field::Empty;

use crate::metrics::RestMetrics;
use crate::upstream::gate::{Gate, Ticket};
use crate::upstream::line::Line;
use crate::upstream::verdict::Outcome;

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

/// Rides on a request as an extension: it is an informer's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Follows;

/// Rides on a request as an extension: it has had its turn.
#[derive(Clone, Debug)]
pub(crate) struct Admitted(Arc<Mutex<Option<Ticket>>>);

/// A tower service around a cluster's bare client. Clones share it.
#[derive(Clone)]
pub(crate) struct Transport(Arc<Inner>);

struct Inner {
    wire: Wire,
    default_namespace: String,
    gate: Arc<Gate>,
    metrics: RestMetrics,
    clock: Arc<dyn Clock>,
}

impl Admitted {
    pub(crate) fn new(ticket: Ticket) -> Self {
        Self(Arc::new(Mutex::new(Some(ticket))))
    }

    fn take(&self) -> Option<Ticket> {
        self.0.lock().expect("no holder of this lock panics").take()
    }
}

impl Transport {
    pub(crate) fn new(
        cluster: &Cluster,
        gate: Arc<Gate>,
        metrics: RestMetrics,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (wire, namespace) = (cluster.wire.clone(), cluster.client.default_namespace());
        let default_namespace = namespace.to_owned();
        Self(Arc::new(Inner { wire, default_namespace, gate, metrics, clock }))
    }

    /// The cluster's client with this layer around it.
    pub(crate) fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), self.default_namespace())
    }

    /// The namespace of requests that name none.
    pub(crate) fn default_namespace(&self) -> &str {
        &self.0.default_namespace
    }

    /// The clock that times its requests.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    /// What requests wait at.
    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.0.gate
    }

    /// Sends one request.
    pub(crate) fn send(
        &self,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<Answer>, BoxError>> {
        let span = tracing::info_span!(
            "api",
            method = %request.method(),
            path = request.uri().path(),
            status = Empty,
            otel.kind = "client",
        );
        self.clone().exchange(request).instrument(span).boxed()
    }

    async fn exchange(self, mut request: Request<Body>) -> Result<Response<Answer>, BoxError> {
        let ticket = self.ticket(&mut request).await?;
        let limit = if ticket.is_probe() { PROBE_TIMEOUT } else { RESPONSE_TIMEOUT };
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        self.0.metrics.waited(&method, ticket.waited());
        let started = self.0.clock.now();
        let answer = tokio::time::timeout(limit, self.0.wire.send(request)).await;
        let answer = answer.unwrap_or_else(|_| Err(ResponseTimeout { limit }.into()));
        ticket.ended(match &answer {
            Ok(response) => Outcome::of(&path, response.status(), response.headers()),
            Err(error) => Outcome::unanswered(&**error),
        });
        let status = answer.as_ref().ok().map(|response| response.status().as_u16());
        if let Some(status) = status {
            tracing::Span::current().record("status", status);
        }
        self.0.metrics.observe(&method, status, self.0.clock.now().since(started));
        answer
    }

    /// The request's turn: the one it comes with, or one to wait for.
    async fn ticket(&self, request: &mut Request<Body>) -> Result<Ticket, BoxError> {
        let extensions = request.extensions_mut();
        if let Some(ticket) = extensions.remove::<Admitted>().and_then(|admitted| admitted.take()) {
            return Ok(ticket);
        }
        let follows = extensions.remove::<Follows>().is_some();
        let line = if follows { Line::Follow } else { Line::Call };
        Ok(self.0.gate.admit(line).await?)
    }
}

impl Service<Request<Body>> for Transport {
    type Response = Response<Answer>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Answer>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Whoever sends waits at the cluster's gate.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.send(request)
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("gate", &self.0.gate).finish_non_exhaustive()
    }
}
