//! The listeners: a bounded number of connections, each bounded in time, each with TLS or without.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::Error;
use crate::places::{Place, Places};

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long a client may take for the head of a request, and stay silent between two of them.
const HEAD: Duration = Duration::from_secs(30);
/// The largest head of a request: a token fits.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// How long a connection is open at most.
const MAX_AGE: Duration = Duration::from_secs(600);
/// How long answers under way may take after the shutdown.
const LINGER: Duration = Duration::from_secs(2);
/// The pause after a failure of the listener, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Takes a port.
pub(crate) async fn take(key: &'static str, address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| Error::Bind {
        key,
        address,
        hint: hint(source.kind()),
        source,
    })
}

fn hint(kind: std::io::ErrorKind) -> &'static str {
    use std::io::ErrorKind::{AddrInUse, AddrNotAvailable, PermissionDenied};
    match kind {
        AddrInUse => {
            "another process has this port; stop it, or give another port (port 0 takes a free one)"
        }
        AddrNotAvailable => {
            "this host has no such address; give one of its own, or 0.0.0.0 for all of them"
        }
        PermissionDenied => "ports below 1024 need a privilege; give a higher one",
        _ => "give another address",
    }
}

/// Answers with `router` until `shutdown`, then lets requests finish for a moment.
pub(crate) async fn answer(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    shutdown: CancellationToken,
) {
    let places = Places::default();
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = shutdown.cancelled() => break,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let place = Arc::new(places.take(peer.ip()));
        let (tls, router, shutdown) = (tls.clone(), router.clone(), shutdown.clone());
        connections.spawn(async move {
            let connection = connection(stream, tls, router, Arc::clone(&place), shutdown);
            place.given_away.run_until_cancelled(connection).await;
        });
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    // Those that take longer end with the set.
    let _ = timeout(LINGER, ended).await;
}

/// Serves one connection. What goes wrong with it is its client's affair.
async fn connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Router,
    place: Arc<Place>,
    shutdown: CancellationToken,
) {
    match tls {
        None => requests(stream, router, place, shutdown).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = timeout(HANDSHAKE, tls.accept(stream)).await {
                requests(stream, router, place, shutdown).await;
            }
        }
    }
}

async fn requests(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    place: Arc<Place>,
    shutdown: CancellationToken,
) {
    let router = router.map_request(move |request: Request<Incoming>| {
        place.asks();
        request
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = shutdown.cancelled() => {}
        () = tokio::time::sleep(MAX_AGE) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(LINGER, connection).await;
}
