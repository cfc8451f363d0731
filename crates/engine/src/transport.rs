//! The layer on every request to a cluster: `rest_client_*` metrics, the `api` span, and a limit on
//! how long a server may take to begin its answer.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use model::{Clock, Cluster};
use tower::{BoxError, Service};
use tracing::Instrument;
use tracing::field::Empty;

use crate::metrics::RestMetrics;

/// How long a server may take until the head of its answer.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// A server that did not begin to answer.
#[derive(Debug, thiserror::Error)]
#[error("the server did not begin to answer within {}s", RESPONSE_TIMEOUT.as_secs())]
pub struct ResponseTimeout;

/// A tower service around a cluster's bare client.
pub(crate) struct Transport {
    client: kube::Client,
    metrics: RestMetrics,
    clock: Arc<dyn Clock>,
}

impl Transport {
    /// The cluster's client with this layer around it.
    pub(crate) fn client(
        cluster: &Cluster,
        metrics: RestMetrics,
        clock: Arc<dyn Clock>,
    ) -> kube::Client {
        let client = cluster.client.clone();
        let namespace = client.default_namespace().to_owned();
        kube::Client::new(Self { client, metrics, clock }, namespace)
    }
}

impl Service<Request<Body>> for Transport {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The inner client has its own bounded buffer and waits in `send`.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let client = self.client.clone();
        let metrics = self.metrics.clone();
        let clock = Arc::clone(&self.clock);
        let method = request.method().clone();
        let span = tracing::info_span!(
            "api",
            method = %method,
            path = request.uri().path(),
            status = Empty,
            otel.kind = "client",
        );
        let recorded = span.clone();
        let send = async move {
            let started = clock.now();
            let answer = tokio::time::timeout(RESPONSE_TIMEOUT, client.send(request)).await;
            let answer: Result<_, BoxError> = match answer {
                Ok(answer) => answer.map_err(BoxError::from),
                Err(_) => Err(ResponseTimeout.into()),
            };
            let status = answer.as_ref().ok().map(|response| response.status().as_u16());
            if let Some(status) = status {
                recorded.record("status", status);
            }
            metrics.observe(&method, status, clock.now().since(started));
            answer
        };
        send.instrument(span).boxed()
    }
}
