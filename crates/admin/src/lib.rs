//! The manager's HTTP server for operators: probes, metrics and debug views.
//!
//! Owns the listener, the routes and their formats. Does not own the data: the code that assembles the
//! manager passes in read handles for readiness, metrics and debug views.
//!
//! | path | shows |
//! |---|---|
//! | `/livez` | that the process answers and the checks of liveness pass, the manager's and the program's own. Nothing of a cluster, so that trouble with one does not restart the process |
//! | `/readyz` | whether the manager's readiness checks and the program's own pass |
//! | `/healthz` | the same as `/livez`, as is the custom |
//! | `/metrics` | Prometheus text, or OpenMetrics for whoever accepts that while traces are exported |
//! | `/debug/{name}` | one view as JSON |
//! | `/debug/explain?object=` | how one object stands, as JSON |
//! | `/console` | pages for people, if there are any |
//! | `/` | the paths above |
//!
//! The first three list what fails, and with `?verbose` everything. Metrics and views are compressed with
//! gzip for whoever accepts that.
//!
//! Probes may have a port of their own, because a kubelet shows no token. With a [`Guard`] all else is
//! for those whom the cluster allows to `get` its path, and probes keep their reasons to themselves.
//!
//! # Invariants
//! - Nothing here waits for a cluster but the guard, within a bound: a handler reads a snapshot and
//!   answers. A program's own checks are waited for, within a bound ([`Probe`]).
//! - Nothing here changes anything: every route is a `GET`.
//! - Metrics and views are rendered on threads of their own, a few at a time. What slow clients have yet to take of
//!   them is bounded in bytes.
//! - Connections are bounded in number, for each client too, and in time.

mod certificate;
mod guard;
mod listen;
mod pages;
mod places;
mod probe;
mod readiness;
mod routes;
mod settings;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::certificate::Certificate;
pub use crate::certificate::CertificateError;
pub use crate::guard::{Guard, ReviewFn, Verdict};
pub use crate::places::MAX_FROM_ONE_ADDRESS;
pub use crate::probe::{CHECK_TIMEOUT, Probe};
pub use crate::readiness::{Check, Readiness};
use crate::routes::{everything, probes};
pub use crate::settings::{Settings, Tls};

/// Returns whether the manager is ready now. Called at each probe, so it must only read.
pub type ReadyFn = Arc<dyn Fn() -> Readiness + Send + Sync>;

/// Returns one debug view as JSON. Called at each request, so it must only read.
pub type ViewFn = Arc<dyn Fn() -> serde_json::Value + Send + Sync>;

/// Says as JSON how an object stands; `Err` says what is wrong with the question. Called at each request, so
/// it must only read.
pub type ExplainFn = Arc<dyn Fn(&str) -> Result<serde_json::Value, String> + Send + Sync>;

/// What the server shows.
#[derive(Clone)]
pub struct Admin {
    /// The series behind `/metrics`.
    pub registry: prometheus::Registry,
    /// The checks behind `/readyz`.
    pub ready: ReadyFn,
    /// Checks of readiness that the program brings along.
    pub readiness: Vec<Probe>,
    /// Checks of liveness: the manager's, and those that the program brings along.
    pub liveness: Vec<Probe>,
    /// The views behind `/debug/{name}`.
    pub debug: BTreeMap<&'static str, ViewFn>,
    /// The answer of `/debug/explain`.
    pub explain: ExplainFn,
    /// Pages for people, whose paths begin with `/console`.
    pub console: Option<axum::Router>,
    /// Who may read metrics, debug views and pages; without one, everybody.
    pub guard: Option<Guard>,
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("debug", &self.debug.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Why the server cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The port cannot be used.
    #[error("listen on {address}, {key} of the configuration: {hint}")]
    Bind {
        /// Where the configuration names it.
        key: &'static str,
        /// The requested address.
        address: SocketAddr,
        /// What to do about it.
        hint: &'static str,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The certificate cannot be used.
    #[error("serve TLS with admin.tls of the configuration")]
    Certificate(#[from] CertificateError),
}

/// The server with its ports taken.
#[derive(Debug)]
pub struct Bound {
    main: TcpListener,
    probes: Option<TcpListener>,
    tls: Option<Certificate>,
}

/// Takes the ports and reads the certificate. Separate from [`Bound::serve`], so that a port in use is
/// reported before anything starts.
///
/// # Errors
/// [`Error`], which names what to do.
pub async fn bind(settings: &Settings) -> Result<Bound, Error> {
    let main = listen::take("admin.bind", settings.bind).await?;
    let probes = match settings.probes {
        Some(address) => Some(listen::take("probes.bind", address).await?),
        None => None,
    };
    let tls = settings.tls.as_ref().map(Certificate::load).transpose()?;
    Ok(Bound { main, probes, tls })
}

impl Bound {
    /// Where metrics and debug views are served.
    ///
    /// # Errors
    /// Those of the system.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.main.local_addr()
    }

    /// Where probes are served, if by themselves.
    pub fn probes_address(&self) -> Option<SocketAddr> {
        self.probes.as_ref()?.local_addr().ok()
    }

    /// Serves until `shutdown`, then finishes the requests under way, for at most two seconds.
    ///
    /// # Errors
    /// [`Error::Certificate`] if TLS cannot be configured.
    ///
    /// It is in a box so that the server is compiled here, and not in each crate that awaits it.
    pub fn serve(
        self,
        admin: Admin,
        shutdown: CancellationToken,
    ) -> BoxFuture<'static, Result<(), Error>> {
        self.until(admin, shutdown).boxed()
    }

    async fn until(self, admin: Admin, shutdown: CancellationToken) -> Result<(), Error> {
        let probes_address = self.probes_address().map(tracing::field::display);
        if let Ok(address) = self.address() {
            let (tls, guarded) = (self.tls.is_some(), admin.guard.is_some());
            tracing::info!(
                %address, probes = probes_address, tls, guarded, "probes and metrics are served"
            );
        }
        let Self { main, probes: own, tls } = self;
        let acceptor: Option<TlsAcceptor> = tls.as_ref().map(Certificate::acceptor).transpose()?;
        let router = everything(&admin, own.is_some());
        let main = listen::answer(main, acceptor, router, shutdown.clone());
        let own = async {
            if let Some(listener) = own {
                listen::answer(listener, None, probes(&admin), shutdown.clone()).await;
            }
        };
        let follow = async {
            match tls {
                Some(certificate) => certificate.follow().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = async { tokio::join!(main, own) } => {}
            () = follow => {}
        }
        Ok(())
    }
}
