//! The manager's HTTP server for operators: probes, metrics and debug views.
//!
//! Owns the listener, the routes and their formats. Does not own the data: the code that assembles the
//! manager passes in read handles for readiness, metrics and debug views.
//!
//! | path | shows |
//! |---|---|
//! | `/livez` | that the process answers and the program's own liveness checks pass. Nothing of a cluster, so that trouble with one does not restart the process |
//! | `/readyz` | whether the manager's readiness checks and the program's own pass |
//! | `/healthz` | whether all checks pass |
//! | `/metrics` | Prometheus text |
//! | `/debug/{name}` | one view as JSON |
//! | `/` | the paths above |
//!
//! The first three list what fails, and with `?verbose` everything.
//!
//! # Invariants
//! - Nothing here waits for a cluster: a handler reads a snapshot and answers. A program's own checks
//!   are waited for, within a bound ([`Probe`]).
//! - Nothing here changes anything: every route is a `GET`.

mod probe;
mod readiness;
mod routes;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use crate::probe::{CHECK_TIMEOUT, Probe};
pub use crate::readiness::{Check, Readiness};
use crate::routes::router;

/// Returns whether the manager is ready now. Called at each probe, so it must only read.
pub type ReadyFn = Arc<dyn Fn() -> Readiness + Send + Sync>;

/// Returns one debug view as JSON. Called at each request, so it must only read.
pub type ViewFn = Arc<dyn Fn() -> serde_json::Value + Send + Sync>;

/// What the server shows.
#[derive(Clone)]
pub struct Admin {
    /// The series behind `/metrics`.
    pub registry: prometheus::Registry,
    /// The checks behind `/readyz`.
    pub ready: ReadyFn,
    /// Checks of readiness that the program brings along.
    pub readiness: Vec<Probe>,
    /// Checks of liveness that the program brings along.
    pub liveness: Vec<Probe>,
    /// The views behind `/debug/{name}`.
    pub debug: BTreeMap<&'static str, ViewFn>,
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
    #[error("listen on {address} for probes and metrics: {hint}")]
    Bind {
        /// The requested address.
        address: SocketAddr,
        /// What to do about it.
        hint: &'static str,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// Serving ended before the shutdown.
    #[error("serve probes and metrics")]
    Serve(#[source] std::io::Error),
}

/// Takes the port. Separate from [`serve`], so that a port in use is reported before anything starts.
///
/// # Errors
/// [`Error::Bind`], which names the address and what to do.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| Error::Bind {
        address,
        hint: bind_hint(source.kind()),
        source,
    })
}

fn bind_hint(kind: std::io::ErrorKind) -> &'static str {
    use std::io::ErrorKind::{AddrInUse, AddrNotAvailable, PermissionDenied};
    match kind {
        AddrInUse => {
            "another process has this port; stop it, or give admin.bind another port (port 0 takes a free one)"
        }
        AddrNotAvailable => {
            "this host has no such address; give admin.bind one of its own, or 0.0.0.0 for all of them"
        }
        PermissionDenied => "ports below 1024 need a privilege; give admin.bind a higher one",
        _ => "give admin.bind another address",
    }
}

/// How long answers under way may take after the shutdown.
const LINGER: Duration = Duration::from_secs(2);

/// Serves until `shutdown`, then finishes the requests under way, for at most two seconds.
///
/// # Errors
/// [`Error::Serve`] if the listener fails.
pub async fn serve(
    listener: TcpListener,
    admin: Admin,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, "probes and metrics are served");
    }
    let server = axum::serve(listener, router(admin))
        .with_graceful_shutdown(shutdown.clone().cancelled_owned())
        .into_future();
    let linger = async {
        shutdown.cancelled().await;
        tokio::time::sleep(LINGER).await;
    };
    tokio::select! {
        ended = server => ended.map_err(Error::Serve),
        () = linger => Ok(()),
    }
}
