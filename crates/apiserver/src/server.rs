//! The server: listens, terminates TLS, checks tokens, and runs the stand-ins.
//!
//! # Invariants
//! 1. A request with an unknown or expired token, or none, never reaches the API; probes need none,
//!    and are then anonymous.
//! 2. At most [`MAX_CONNECTIONS`] connections are open; more wait in the listener. Connections that
//!    have switched to another protocol do not count any more: they have a bound of their own.
//! 3. After [`Server::shutdown`] no part of the server runs any more: watches have ended,
//!    connections are closed, tasks are joined.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use ::http::{Request, Response, header};
use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::access::authenticator::Authenticator;
use crate::access::token::Signer;
use crate::access::user::User;
use crate::api::{Api, Settings};
use crate::clock::{self, Clock};
use crate::faults::{Faults, Hook};
use crate::history::Write;
use crate::http::{ApiService, Body, BoxError, Identity};
use crate::in_process::InProcess;
use crate::kubeconfig::{self, KubeconfigParts};
use crate::program::{Matcher, Processes, Program, Programs};
use crate::store::WindowLimits;
use crate::{gc, tls, workloads};

/// The most open connections.
pub const MAX_CONNECTIONS: usize = 4096;
/// How long the TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long connections may take to end after shutdown has begun.
const DRAIN: Duration = Duration::from_secs(2);
/// The most streams of one HTTP/2 connection.
const MAX_STREAMS: u32 = 1000;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be resolved, or the server cannot listen on it.
    #[error("listen on {address}")]
    Listen {
        /// The requested address.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// Certificates could not be made.
    #[error("prepare tls")]
    Tls(#[from] tls::TlsError),
}

/// The settings of a server.
#[derive(Clone)]
pub struct Builder {
    name: String,
    address: Result<SocketAddr, String>,
    token: Option<String>,
    workloads: bool,
    garbage_collector: bool,
    divides: bool,
    rbac: bool,
    faults: Option<Hook>,
    window: WindowLimits,
    clock: Clock,
    seed: Option<u64>,
    programs: Programs,
}

/// A running server. Dropping it stops it without waiting.
#[derive(Debug)]
pub struct Server {
    name: String,
    address: SocketAddr,
    token: String,
    authority: String,
    inner: InProcess,
    stand_ins: Vec<JoinHandle<()>>,
    listener: JoinHandle<()>,
}

// === impl Builder ===

impl Default for Builder {
    fn default() -> Self {
        Self {
            name: "leasehold".into(),
            address: Ok(SocketAddr::from(([127, 0, 0, 1], 0))),
            token: None,
            workloads: false,
            garbage_collector: false,
            divides: false,
            rbac: false,
            faults: None,
            window: WindowLimits::default(),
            clock: clock::system(),
            seed: None,
            programs: Programs::default(),
        }
    }
}

impl Builder {
    /// Name of cluster, user and context in the kubeconfig.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Where to listen; port 0 takes any free one.
    pub fn bind(mut self, address: impl ToSocketAddrs + std::fmt::Debug) -> Self {
        let text = format!("{address:?}");
        self.address = address.to_socket_addrs().ok().and_then(|mut a| a.next()).ok_or(text);
        self
    }

    /// The bearer token that clients must present; generated if absent.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Whether stand-ins run Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs and Pods, and
    /// provide volumes for claims.
    pub fn workloads(mut self, on: bool) -> Self {
        self.workloads = on;
        self
    }

    /// What runs in the containers that match, of Pods that the stand-ins run
    /// ([`Builder::workloads`]). The first that matches a container counts.
    pub fn program(mut self, matcher: Matcher, program: Arc<dyn Program>) -> Self {
        self.programs.add(matcher, program);
        self
    }

    /// Whether garbage is collected by owner, and namespaces finish their deletion.
    pub fn garbage_collector(mut self, on: bool) -> Self {
        self.garbage_collector = on;
        self
    }

    /// Whether it supports `shardSelector` (KEP-5866), like a real server with the feature
    /// ShardedListAndWatch; otherwise it ignores the selector.
    pub fn sharded_lists(mut self, on: bool) -> Self {
        self.divides = on;
        self
    }

    /// Whether requests need the rights that Roles and bindings give (`--authorization-mode=RBAC`);
    /// otherwise every valid token may do everything (`AlwaysAllow`).
    ///
    /// The server's own token is that of an administrator (`system:admin` in the group
    /// `system:masters`), who may do everything in either mode, as may callers in process. The token
    /// subresource of a ServiceAccount issues tokens for it.
    pub fn rbac(mut self, on: bool) -> Self {
        self.rbac = on;
        self
    }

    /// Faults from the start.
    pub fn faults(mut self, hook: Hook) -> Self {
        self.faults = Some(hook);
        self
    }

    /// How far back watches and paged lists can reach.
    pub fn window(mut self, limits: WindowLimits) -> Self {
        self.window = limits;
        self
    }

    /// The clock behind timestamps.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Makes uids, generated names and jitter repeatable.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Starts the server.
    ///
    /// # Errors
    /// The server cannot listen on the address, or certificates cannot be made.
    ///
    /// It is in a box so that the server is compiled here, and not in each crate that awaits it.
    pub fn start(self) -> BoxFuture<'static, Result<Server, Error>> {
        self.started().boxed()
    }

    async fn started(self) -> Result<Server, Error> {
        let address = self.address.clone().map_err(|address| {
            let source = std::io::Error::from(std::io::ErrorKind::InvalidInput);
            Error::Listen { address, source }
        })?;
        let listen = |source| Error::Listen { address: address.to_string(), source };
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let tls = tls::generate(address.ip())?;
        let mut rng = self.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        let token = self.token.clone().unwrap_or_else(|| format!("{:032x}", rng.u128(..)));
        let (name, clock) = (self.name.clone(), self.clock.clone());
        let runs = (self.workloads, self.garbage_collector);
        let inner = self.api(rng, Some(token.clone()));
        let acceptor = Acceptor {
            tls: TlsAcceptor::from(tls.config),
            service: inner.service(),
            authorization: format!("Bearer {token}").into(),
            shutdown: inner.shutdown().clone(),
            connections: TaskTracker::new(),
        };
        let listener = tokio::spawn(acceptor.run(listener));
        let mut server = Server {
            name,
            address,
            token,
            authority: tls.authority,
            inner,
            stand_ins: Vec::new(),
            listener,
        };
        let (workloads, garbage_collector) = runs;
        if workloads {
            let (processes, shutdown) =
                (server.inner.processes(), server.inner.shutdown().child_token());
            let handle = workloads::spawn(server.client(), clock.clone(), processes, shutdown);
            server.stand_ins.push(handle);
        }
        if garbage_collector {
            let handle = gc::spawn(server.client(), clock, server.inner.shutdown().child_token());
            server.stand_ins.push(handle);
        }
        Ok(server)
    }

    /// Only the API, for calls in process: it does not listen, and no stand-ins run.
    pub fn in_process(self) -> InProcess {
        let rng = self.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        self.api(rng, None)
    }

    fn api(self, rng: fastrand::Rng, token: Option<String>) -> InProcess {
        let shutdown = CancellationToken::new();
        let api = Api::new(Settings {
            window: self.window,
            clock: self.clock,
            rng,
            faults: Faults::new(self.faults),
            divides: self.divides,
            rbac: self.rbac,
            authenticator: Authenticator::new(Signer::new(self.seed), token),
            processes: Processes::new(self.programs),
            shutdown: shutdown.clone(),
        });
        InProcess::new(Arc::new(api), shutdown)
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

// === impl Server ===

impl Server {
    /// A server with everything optional off, on any free loopback port.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// A kubeconfig whose cluster, user and context have the server's name.
    pub fn kubeconfig(&self) -> String {
        merge_kubeconfigs(&[self])
    }

    fn kubeconfig_parts(&self) -> KubeconfigParts {
        KubeconfigParts {
            name: self.name.clone(),
            url: self.url(),
            authority: self.authority.clone(),
            token: self.token.clone(),
        }
    }

    /// A client that calls the API in process, without network, TLS or token.
    pub fn client(&self) -> kube::Client {
        self.inner.client()
    }

    /// The API as a tower service.
    pub fn service(&self) -> ApiService {
        self.inner.service()
    }

    /// The accepted writes, oldest first; only the most recent ones, if there were very many.
    pub fn history(&self) -> Vec<Write> {
        self.inner.history()
    }

    /// The newest revision.
    pub fn revision(&self) -> u64 {
        self.inner.revision()
    }

    /// Replaces the fault hook; `None` ends all faults.
    pub fn set_faults(&self, hook: Option<Hook>) {
        self.inner.set_faults(hook);
    }

    /// Ends every present watch, as a restart of a real server does.
    pub fn close_watches(&self) {
        self.inner.close_watches();
    }

    /// Forgets the past: older watches, pages and exact lists get a 410.
    pub fn compact(&self) {
        self.inner.compact();
    }

    /// Stops: ends watches, lets requests finish for a moment, and joins every task.
    pub async fn shutdown(mut self) {
        self.inner.shutdown().cancel();
        for handle in self.stand_ins.drain(..) {
            // A panic was already reported, and nothing is left to stop.
            let _ = handle.await;
        }
        let _ = self.listener.await;
        self.inner.forwards_ended().await;
    }
}

/// One kubeconfig with a context for each server; the first is current.
pub fn merge_kubeconfigs(servers: &[&Server]) -> String {
    let parts: Vec<KubeconfigParts> = servers.iter().map(|s| s.kubeconfig_parts()).collect();
    kubeconfig::render(&parts)
}

/// Accepts connections and serves their requests.
#[derive(Clone)]
struct Acceptor {
    tls: TlsAcceptor,
    service: ApiService,
    authorization: Arc<str>,
    shutdown: CancellationToken,
    connections: TaskTracker,
}

impl Acceptor {
    async fn run(self, listener: TcpListener) {
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let accept = async {
                let slot = slots.clone().acquire_owned().await;
                (slot, listener.accept().await)
            };
            let (slot, accepted) = tokio::select! {
                () = self.shutdown.cancelled() => break,
                accepted = accept => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    let serving = self.clone().serve(stream);
                    self.connections.spawn(async move {
                        serving.await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    // No file descriptors, or the client has gone away: the next connection may
                    // work.
                    tracing::warn!(%error, "accept a connection");
                    tokio::task::yield_now().await;
                }
            }
        }
        self.connections.close();
        self.connections.wait().await;
    }

    async fn serve(self, stream: TcpStream) {
        // Otherwise a watch event would wait for the acknowledgement of the one before.
        let _ = stream.set_nodelay(true);
        let shake = tokio::time::timeout(HANDSHAKE, self.tls.accept(stream));
        let stream = tokio::select! {
            () = self.shutdown.cancelled() => return,
            shaken = shake => match shaken {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return tracing::debug!(%error, "tls handshake"),
                Err(_) => return tracing::debug!("tls handshake took too long"),
            },
        };
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new());
        builder.http2().timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS);
        let gate = Gate { service: self.service, authorization: self.authorization };
        let handler = service_fn(move |request| gate.clone().handle(request));
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), handler);
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                match tokio::time::timeout(DRAIN, connection.as_mut()).await {
                    Ok(ended) => ended,
                    Err(_) => return,
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(error, "connection ended");
        }
    }
}

/// Passes on requests with a valid token, and says whose it is.
#[derive(Clone)]
struct Gate {
    service: ApiService,
    authorization: Arc<str>,
}

impl Gate {
    async fn handle(self, mut request: Request<Incoming>) -> Result<Response<Body>, BoxError> {
        let path = request.uri().path();
        let probe =
            ["/livez", "/readyz", "/healthz", "/version"].iter().any(|p| path.starts_with(p));
        let given = request.headers().get(header::AUTHORIZATION);
        // The service takes a request without a user for the administrator's.
        if given.is_none_or(|v| v.as_bytes() != self.authorization.as_bytes()) {
            let token = given.and_then(|value| bearer(value.to_str().ok()?));
            let user = match token.and_then(|token| self.service.user_of(token)) {
                Some(user) => user,
                None if probe => User::anonymous(),
                None => return Ok(crate::http::unauthorized(request.into_body()).await),
            };
            request.extensions_mut().insert(Identity(Arc::new(user)));
        }
        self.service.oneshot(request).await
    }
}

/// The token of an `Authorization` header.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}
