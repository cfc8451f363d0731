//! A stand-in for etcd: what runs in the Pods of an EtcdCluster on the demo's API servers. Members of one
//! server find each other in memory; clients reach each through its Pod, over TLS or without, as its
//! arguments say. Shell.
//!
//! There are no keys and values, no users and no snapshots: only what shows a cluster's life.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use apiserver::{Exit, Process, Program, Start, State};
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::answer::{Answer, answer};
use self::cluster::{Clusters, Id};
use self::launch::Launch;
use super::tls;

mod answer;
mod cluster;
mod launch;
#[cfg(test)]
mod tests;

/// How many bytes of a connection may be under way in each direction.
const BUFFER: usize = 64 << 10;
/// The largest request, in bytes.
const MAX_REQUEST: usize = 1 << 20;

/// Every etcd of one API server.
#[derive(Clone, Default)]
pub(super) struct Etcd(Arc<Mutex<Shared>>);

/// The clusters, and who is told when something changes for a member that runs.
#[derive(Default)]
struct Shared {
    clusters: Clusters,
    told: Vec<(Id, watch::Sender<State>)>,
}

/// A member that runs, or that did not start.
struct Running {
    etcd: Etcd,
    me: Option<Id>,
    launch: Launch,
    tls: Option<TlsAcceptor>,
    state: watch::Receiver<State>,
    ended: CancellationToken,
    _end: DropGuard,
}

impl Program for Etcd {
    fn start(&self, start: &Start) -> Arc<dyn Process> {
        let launch = Launch::read(start);
        let tls = match launch.client.1 {
            true => tls::acceptor(launch.tls(), &start.files).map(Some),
            false => Ok(None),
        };
        let started = tls.and_then(|tls| Ok((self.lock().clusters.start(&launch)?, tls)));
        let (sender, state) = watch::channel(State::Running { ready: false });
        let (me, tls) = match started {
            Ok((me, tls)) => {
                self.lock().told.push((me, sender));
                (Some(me), tls)
            }
            Err(message) => {
                // Whoever follows the state reads it before it waits for another.
                sender.send_replace(State::Exited(Exit { code: 1, message }));
                (None, None)
            }
        };
        self.lock().tell();
        let ended = CancellationToken::new();
        let end = ended.clone().drop_guard();
        Arc::new(Running { etcd: self.clone(), me, launch, tls, state, ended, _end: end })
    }
}

impl Etcd {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, me: Id, get: bool, path: &str, body: &[u8]) -> Answer {
        let mut state = self.lock();
        let answer = answer(&mut state.clusters, me, get, path, body);
        state.tell();
        answer
    }
}

impl Shared {
    /// Tells each member what has become of it.
    fn tell(&mut self) {
        let Self { clusters, told } = self;
        for (me, sender) in told {
            let now = match clusters.of(*me) {
                Some(cluster) => State::Running { ready: cluster.leader != 0 },
                None => {
                    let message = "the member has been permanently removed from the cluster".into();
                    State::Exited(Exit { code: 1, message })
                }
            };
            sender.send_if_modified(|state| {
                let changed = *state != now;
                *state = now;
                changed
            });
        }
    }
}

impl Process for Running {
    fn connect(&self, port: u16) -> Option<DuplexStream> {
        let me = self.me?;
        let (near, far) = tokio::io::duplex(BUFFER);
        let (etcd, ended) = (self.etcd.clone(), self.ended.clone());
        if port == self.launch.client.0 {
            match self.tls.clone() {
                None => drop(tokio::spawn(ended.run_until_cancelled_owned(serve(etcd, me, far)))),
                Some(tls) => drop(tokio::spawn(ended.run_until_cancelled_owned(async move {
                    match tls.accept(far).await {
                        Ok(stream) => serve(etcd, me, stream).await,
                        Err(error) => tracing::debug!(%error, "etcd's stand-in: tls handshake"),
                    }
                }))),
            }
        } else if Some(port) == self.launch.metrics {
            tokio::spawn(ended.run_until_cancelled_owned(serve(etcd, me, far)));
        } else if port != self.launch.peer {
            return None;
        }
        Some(near)
    }

    fn state(&self) -> Option<watch::Receiver<State>> {
        Some(self.state.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(me) = self.me else { return };
        let mut state = self.etcd.lock();
        state.told.retain(|(member, _)| *member != me);
        state.clusters.stop(me);
        state.tell();
    }
}

/// Serves one connection.
async fn serve<S>(etcd: Etcd, me: Id, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handler = service_fn(move |request: Request<Incoming>| {
        let etcd = etcd.clone();
        async move { Ok::<_, Infallible>(respond(&etcd, me, request).await) }
    });
    if let Err(error) = http1::Builder::new().serve_connection(TokioIo::new(stream), handler).await
    {
        tracing::debug!(%error, "etcd's stand-in: a connection ended");
    }
}

async fn respond(etcd: &Etcd, me: Id, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let answer = match Limited::new(body, MAX_REQUEST).collect().await {
        Ok(body) => {
            etcd.answer(me, parts.method == Method::GET, parts.uri.path(), &body.to_bytes())
        }
        Err(_) => Answer { code: 413, body: String::new() },
    };
    let mut response = Response::new(Full::from(answer.body));
    *response.status_mut() = http::StatusCode::from_u16(answer.code).unwrap_or_default();
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}

impl std::fmt::Debug for Etcd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Etcd").finish_non_exhaustive()
    }
}
