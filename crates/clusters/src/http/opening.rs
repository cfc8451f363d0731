//! Opens connections: over TCP at once, then TLS when it is its turn.

use std::future::ready;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Uri;
use http::uri::Scheme;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream, ResolveServerName};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::time::timeout;
use tower::{BoxError, Service};

use crate::address::Dialer;
use crate::handshakes::NO_TLS;
use crate::metered::Metered;

/// How long a connection over TCP may take, lookup of the name included; then TLS, where it needs no place.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const NO_TCP: &str = "it accepts no connection over TCP within 5s";

/// Opens connections to one server.
#[derive(Clone)]
pub(super) struct Opener {
    pub(super) dialer: Dialer,
    pub(super) tls: Arc<ClientConfig>,
    /// What the certificate of the server must name.
    pub(super) names: Arc<dyn ResolveServerName + Send + Sync>,
}

impl Service<Uri> for Opener {
    type Response = MaybeHttpsStream<TokioIo<Metered>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.dialer.poll_ready(cx)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let Self { tls, names, .. } = self.clone();
        let handshakes = self.dialer.handshakes();
        let dialing = self.dialer.call(to.clone());
        async move {
            let dialed = timeout(CONNECT_TIMEOUT, dialing).await;
            let stream = dialed.map_err(|_| NO_TCP)??;
            let is_plain = to.scheme() == Some(&Scheme::HTTP);
            let mut stream = Some(stream);
            let dialed = tower::service_fn(move |_: Uri| ready(stream.take().ok_or("asked twice")));
            let handshake = HttpsConnector::new(dialed, tls, false, names).call(to);
            match handshakes.filter(|_| !is_plain) {
                Some(handshakes) => handshakes.take(handshake).await,
                None => timeout(CONNECT_TIMEOUT, handshake).await.map_err(|_| NO_TLS)?,
            }
        }
        .boxed()
    }
}
