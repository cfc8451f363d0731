//! The credentials of requests, renewed without a restart.
//!
//! ```text
//!   request ──▶ Authenticated ──▶ Connections ──▶ server
//!                 │      ▲             │
//!                 ▼      └── 401 ──────┘   the credential is refused
//!              Keeper: Lifecycle decides: use it, renew it, wait, or fail
//!                 │
//!                 ▼ one renewal at a time, in a task of its own, bounded in time
//!              CredentialSource: a token file, a credential program, an OIDC issuer
//! ```
//!
//! A renewal begins before the old credential ends, and requests use the old one meanwhile. They wait only when there is
//! no valid credential. While renewals fail, requests fail at once with the reason, and the wait before the next attempt
//! grows. A refused credential is renewed too, because credentials are revoked and clocks differ. No request is sent
//! twice: the sender gets the refusal.

mod calls;
#[cfg(test)]
mod fuzz;
mod header;
mod life;
mod lifecycle;
mod oidc;
mod program;
mod source;
#[cfg(test)]
mod tests;

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response, StatusCode};
use kube::client::Body;
use model::Clock;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::{BoxError, Service};

use crate::error::Unusable;
use crate::http::{Connections, Counted, Identity};
use crate::turns::{Lane, Turns};

pub(crate) use calls::Calls;
pub use life::CredentialLife;
use lifecycle::{Decision, Lifecycle};
pub(crate) use source::CredentialSource;
use source::Obtained;

/// How long a renewal may take that is not prompt.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(15);
/// A renewal that takes no longer has a place among those that succeed: a thousand that take longer delay none of them.
const PROMPT: Duration = Duration::from_secs(4);
/// The same of the first credential of a cluster: whoever comes with a thousand that hang waits for them in turn.
const FIRST_PROMPT: Duration = Duration::from_secs(2);
/// The most bytes of an answer from a program or an issuer: as many as a kubeconfig in a Secret may have.
const MAX_ANSWER_BYTES: u64 = 128 << 10;

/// Proves this process's identity to a server.
#[derive(Clone, Default)]
pub(crate) struct Credential {
    /// The value of `Authorization`.
    header: Option<HeaderValue>,
    /// The client certificate for TLS.
    identity: Option<Arc<Identity>>,
}

/// What the renewals of all clusters share.
#[derive(Clone, Debug)]
pub(crate) struct Renewals {
    /// Bounds them.
    pub(crate) turns: Turns,
    /// Counts those by programs.
    pub(crate) calls: Calls,
}

/// Keeps one cluster's credential valid, while there are handles of it.
#[derive(Clone)]
pub(crate) struct Keeper {
    inner: Arc<Inner>,
    /// Stops the renewal under way with the last handle: nobody waits for it.
    _used: Arc<DropGuard>,
}

struct Inner {
    /// Where the cluster comes from, for people.
    origin: String,
    clock: Arc<dyn Clock>,
    renewals: Renewals,
    /// The life of the present credential, if it is known.
    life: watch::Sender<Option<CredentialLife>>,
    source: tokio::sync::Mutex<CredentialSource>,
    lifecycle: Mutex<Lifecycle<Credential>>,
    /// Notified at the end of each renewal.
    settled: watch::Sender<()>,
    /// Cancelled once nobody has a handle any more.
    unused: CancellationToken,
}

impl Keeper {
    /// Keeps the credential of `source`. Returns when it has the first one.
    ///
    /// # Errors
    /// [`Unusable`] when the source gives none.
    pub async fn start(
        origin: &str,
        source: CredentialSource,
        renewals: Renewals,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Arc<Unusable>> {
        let unused = CancellationToken::new();
        let inner = Arc::new(Inner {
            origin: origin.to_owned(),
            clock,
            renewals,
            life: watch::Sender::new(None),
            source: tokio::sync::Mutex::new(source),
            lifecycle: Mutex::new(Lifecycle::new()),
            settled: watch::Sender::new(()),
            unused: unused.clone(),
        });
        let this = Self { inner, _used: Arc::new(unused.drop_guard()) };
        this.show().await?;
        Ok(this)
    }

    /// The life of the present credential, now and later.
    pub fn life(&self) -> watch::Receiver<Option<CredentialLife>> {
        self.inner.life.subscribe()
    }

    /// The credential to use now, and its number. Waits for a renewal only if there is no valid one.
    async fn show(&self) -> Result<(Credential, u64), Arc<Unusable>> {
        let Inner { settled, clock, unused, .. } = &*self.inner;
        let mut settled = settled.subscribe();
        loop {
            let Decision { show, renew } =
                self.inner.with(|lifecycle| lifecycle.decide(clock.now()));
            if renew {
                let renewal = Arc::clone(&self.inner).renew();
                tokio::spawn(unused.clone().run_until_cancelled_owned(renewal));
            }
            if let Some(show) = show {
                return show;
            }
            // Never an error: the sender lives as long as `self`.
            let _ = settled.changed().await;
        }
    }

    /// A server refused a request with the credential of this number.
    fn refused(&self, number: u64) {
        let now = self.inner.clock.now();
        self.inner.with(|lifecycle| lifecycle.refused(number, now));
    }
}

impl Inner {
    /// Runs in a task of its own: the request that began it may be dropped, and others wait for its end.
    async fn renew(self: Arc<Self>) {
        let renewed = AssertUnwindSafe(self.obtain()).catch_unwind().await;
        let renewed = renewed.unwrap_or_else(|_| {
            let (origin, source) = (self.origin.clone(), "obtaining it panicked".into());
            Err(Unusable::Client { origin, source })
        });
        let now = self.clock.now();
        self.with(|lifecycle| match renewed {
            Ok(Obtained { credential, term, life }) => {
                lifecycle.renewed(credential, term, now);
                self.life.send_replace(life);
            }
            Err(error) => {
                let error = Arc::new(error);
                if lifecycle.failed(Arc::clone(&error), now) {
                    tracing::warn!("a credential could not be renewed: {}", error.reason());
                }
            }
        });
        self.settled.send_replace(());
    }

    async fn obtain(&self) -> Result<Obtained, Unusable> {
        let mut source = self.source.lock().await;
        let obtained = match source.is_fixed() {
            true => Some(source.obtain(&self.origin, &*self.clock).await),
            false => self.in_turn(&mut source).await,
        };
        let obtained =
            obtained.unwrap_or_else(|| Err(source.timeout(&self.origin, RENEWAL_TIMEOUT)));
        if source.is_program() {
            self.renewals.calls.count(obtained.as_ref().err());
        }
        obtained
    }

    /// What the source gives when it is its turn; nothing if that takes too long. The wait for a turn does not count for
    /// the source. It is bounded, because renewals are.
    async fn in_turn(&self, source: &mut CredentialSource) -> Option<Result<Obtained, Unusable>> {
        let Self { origin, clock, renewals: Renewals { turns, .. }, .. } = self;
        let lane = self.with(|lifecycle| lifecycle.lane(clock.now()));
        let prompt = if lane == Lane::First { FIRST_PROMPT } else { PROMPT };
        let runs_on = source.runs_on();
        let mut work = source.obtain(origin, &**clock).boxed();
        let obtained = turns.promptly(lane, prompt, &mut work).await;
        let (_place, work) = match obtained {
            Ok(obtained) => return Some(obtained),
            Err(Some(place)) => (place, work),
            // It is ended, and begun again. A question that an issuer has not begun to answer stands still: the token for
            // which it gives another may be good for one answer.
            Err(None) if runs_on.load(Ordering::Relaxed) => {
                drop(work);
                let place = turns.turn(Lane::Late).await;
                (place, source.obtain(origin, &**clock).boxed())
            }
            Err(None) => (turns.turn(Lane::Late).await, work),
        };
        tokio::time::timeout(RENEWAL_TIMEOUT, work).await.ok()
    }

    fn with<T>(&self, act: impl FnOnce(&mut Lifecycle<Credential>) -> T) -> T {
        act(&mut self.lifecycle.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Connections whose requests carry a credential.
#[derive(Clone)]
pub(crate) struct Authenticated {
    pub keeper: Keeper,
    pub connections: Connections,
}

impl Service<Request<Body>> for Authenticated {
    type Response = Response<Counted>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Counted>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The callers bound their requests, for each cluster.
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

/// Never prints the credential.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").finish_non_exhaustive()
    }
}
