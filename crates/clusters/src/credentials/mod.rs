//! What requests show to a server, kept fresh without a restart.
//!
//! ```text
//!   request ──▶ Authenticated ──▶ Connections ──▶ server
//!                 │      ▲             │
//!                 ▼      └── 401 ──────┘   what was shown is refused
//!              Keeper: Lifecycle says: show it, renew it, wait, or fail
//!                 │
//!                 ▼ one renewal at a time, in a task of its own, bounded in time
//!              Source: a token file, a credential program, an OIDC issuer
//! ```
//!
//! A renewal begins before the end of what it renews, and requests go on with that meanwhile; they
//! wait only when there is nothing left to show. While renewals fail, requests fail at once with the
//! reason, and the next attempt waits longer each time. What a server refuses is renewed too, for
//! credentials are revoked and clocks differ. Nothing is sent twice: a request that was refused is
//! told to whoever sent it.

mod lifecycle;
mod oidc;
mod program;
mod source;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response, StatusCode};
use kube::client::Body;
use model::Clock;
use tokio::sync::{Semaphore, watch};
use tower::{BoxError, Service};

use crate::error::Unusable;
use crate::http::{Connections, Counted};

use lifecycle::{Lifecycle, Step, Term};
pub use lifecycle::{RENEW_BEFORE, RETRY_MAX, RETRY_MIN, TRUSTED_FOR};
pub use program::MAX_ANSWER_BYTES;
pub(crate) use source::Source;
pub use source::TOKEN_FILE_PERIOD;

/// How long a renewal may take.
pub const RENEWAL_TIMEOUT: Duration = Duration::from_secs(15);

/// What proves to a server who we are.
#[derive(Clone, Default)]
pub(crate) struct Credential {
    /// The value of `Authorization`.
    header: Option<HeaderValue>,
    /// What TLS shows.
    identity: Option<Arc<Identity>>,
}

/// A client certificate and its key, in PEM.
#[derive(PartialEq, Eq)]
pub(crate) struct Identity {
    pub certificate: String,
    pub key: String,
}

/// Keeps one cluster's credential fresh.
#[derive(Clone)]
pub(crate) struct Keeper(Arc<Inner>);

struct Inner {
    /// Where the cluster comes from, for people.
    origin: String,
    clock: Arc<dyn Clock>,
    /// Bounds the renewals of all clusters.
    places: Arc<Semaphore>,
    source: tokio::sync::Mutex<Source>,
    lifecycle: Mutex<Lifecycle<Credential>>,
    /// Told at the end of each renewal.
    settled: watch::Sender<()>,
}

impl Keeper {
    /// Keeps what `source` gives, once it has given it for the first time.
    ///
    /// # Errors
    /// [`Unusable`] when it does not give any.
    pub async fn start(
        origin: &str,
        source: Source,
        places: Arc<Semaphore>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Arc<Unusable>> {
        let this = Self(Arc::new(Inner {
            origin: origin.to_owned(),
            clock,
            places,
            source: tokio::sync::Mutex::new(source),
            lifecycle: Mutex::new(Lifecycle::new()),
            settled: watch::Sender::new(()),
        }));
        this.show().await?;
        Ok(this)
    }

    /// What to show now, and its number. Waits for a renewal only if there is nothing to show.
    async fn show(&self) -> Result<(Credential, u64), Arc<Unusable>> {
        let mut settled = self.0.settled.subscribe();
        loop {
            let Step { show, renew } = self.with(|lifecycle| lifecycle.step(self.0.clock.now()));
            if renew {
                tokio::spawn(self.clone().renew());
            }
            if let Some(show) = show {
                return show;
            }
            // Never an error: the sender lives as long as `self`.
            let _ = settled.changed().await;
        }
    }

    /// A request that showed the credential of this number was refused.
    fn refused(&self, number: u64) {
        self.with(|lifecycle| lifecycle.refused(number, self.0.clock.now()));
    }

    /// In a task of its own: whoever asked for it may have gone, and the others wait for its end.
    async fn renew(self) {
        let this = self.clone();
        let renewed = tokio::spawn(async move { this.obtain().await }).await;
        let renewed = renewed.unwrap_or_else(|panicked| {
            let (origin, source) = (self.0.origin.clone(), Box::new(panicked));
            Err(Unusable::Client { origin, source })
        });
        let now = self.0.clock.now();
        self.with(|lifecycle| match renewed {
            Ok((credential, term)) => lifecycle.renewed(credential, term, now),
            Err(error) => {
                let error = Arc::new(error);
                if lifecycle.failed(Arc::clone(&error), now) {
                    tracing::warn!("a credential could not be renewed: {}", error.reason());
                }
            }
        });
        self.0.settled.send_replace(());
    }

    async fn obtain(&self) -> Result<(Credential, Term), Unusable> {
        let Inner { origin, clock, places, source, .. } = &*self.0;
        // The wait for a place is none of the source's, and is bounded as each of those before it is.
        let _place = places.acquire().await.expect("the semaphore is never closed");
        let mut source = source.lock().await;
        let limit = RENEWAL_TIMEOUT;
        let obtained = tokio::time::timeout(limit, source.obtain(origin, clock.wall())).await;
        obtained.unwrap_or_else(|_| Err(source.timeout(origin, limit)))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Lifecycle<Credential>) -> T) -> T {
        act(&mut self.0.lifecycle.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Connections whose requests show a credential.
#[derive(Clone)]
pub(crate) struct Authenticated {
    keeper: Keeper,
    connections: Connections,
}

impl Authenticated {
    pub fn new(keeper: Keeper, connections: Connections) -> Self {
        Self { keeper, connections }
    }
}

impl Service<Request<Body>> for Authenticated {
    type Response = Response<Counted>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Counted>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Who waits is bounded above, by cluster.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let Self { keeper, connections } = self.clone();
        async move {
            let (credential, number) = keeper.show().await?;
            if let Some(header) = credential.header {
                request.headers_mut().insert(AUTHORIZATION, header);
            }
            let response = connections.send(request, credential.identity.as_ref()).await?;
            if response.status() == StatusCode::UNAUTHORIZED {
                keeper.refused(number);
            }
            Ok(response)
        }
        .boxed()
    }
}

/// Never prints what it holds.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").finish_non_exhaustive()
    }
}
