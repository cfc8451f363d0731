//! The connections to a cluster: to a workload cluster over HTTP/2 if the server speaks it, else over
//! HTTP/1.1.
//!
//! ```text
//!   Wire ▶ bounds ▶ base URI ▶ gzip ▶ Authenticated ▶ Connections ─┬▶ connection 1: up to 64 streams
//!                                                                  └▶ connection 2, when 1 is full
//! ```
//!
//! A watch keeps a stream open as long as it lives, and servers limit the streams of a connection
//! (kube-apiserver: 100, proxies often 128). Another request would wait inside the connection until a
//! watch ends. So the next connection opens before that limit.
//!
//! A silent connection is checked with PING, because HTTP/2 does not detect a dead connection by opening
//! the next. Its requests fail within [`PING_EVERY`] and [`PING_TIMEOUT`], and later ones use a new
//! connection.
//!
//! The home cluster uses HTTP/1.1: when the renewal of a Lease is not answered in time, its connection is
//! dropped, and the next attempt gets a new one at once.
//!
//! A request to change the protocol (`Upgrade`) gets an HTTP/1.1 connection of its own: HTTP/2 has no such
//! request.
//!
//! New connections use a renewed client certificate. Requests and watches under way end on the old ones.
//!
//! All work of a connection to a workload cluster is in one task ([`one_task`]): as tasks of their own, its parts
//! would wake each other over threads for each request. Those to the home cluster keep theirs: a long list there
//! must not delay the renewal of a Lease.

mod one_task;
mod opening;

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::UPGRADE;
use http::uri::Scheme;
use http::{Request, Response, Uri};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::{Bytes, Incoming};
use hyper_rustls::{DefaultServerNameResolver, FixedServerNameResolver, ResolveServerName};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt};
use rustls::ClientConfig;
use rustls::client::Resumption;
use tokio::task::coop;
use tower::BoxError;

use self::one_task::OneTask;
use self::opening::Opener;
use crate::address::Dialer;
use crate::bounds::{FOLDED_BYTES, Unread};
use crate::metered::HTTP2_BYTES;

/// Streams on one connection before the next opens.
const STREAMS_PER_CONNECTION: usize = 64;
/// The most connections to a server. Beyond it, connections get more streams.
const MAX_CONNECTIONS: usize = 64;
/// How often a connection is checked.
const PING_EVERY: Duration = Duration::from_secs(10);
/// How long its answer may take.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// The flow-control window of a stream, in bytes: a stream that nobody reads holds this much.
const STREAM_WINDOW: u32 = 256 << 10;
/// The window of a connection: that of all its streams, so that unread ones do not stop others. It is no
/// larger, because the library bounds by it what many small frames cost beside their bytes.
const CONNECTION_WINDOW: u32 = STREAMS_PER_CONNECTION as u32 * STREAM_WINDOW;
// What waits in it for readers breaks no connection.
const _: () = assert!(CONNECTION_WINDOW as usize + (4 << 20) <= HTTP2_BYTES);
/// What a part of an answer takes beside its bytes: the heads of its chunk or frame and of its record.
const PART_BYTES: usize = 64;
/// The most bytes that a connection of HTTP/1.1 reads ahead, also of a head that does not end. Heads have one or two
/// thousand.
const READ_AHEAD_BYTES: usize = 32 << 10;

/// The protocol of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Only HTTP/1.1: requests share no connection.
    Http1,
    /// HTTP/2 if the server speaks it.
    Any,
}

/// A client certificate and its key, in PEM.
#[derive(PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Opens connections to a server.
type RawConnector = TimeoutConnector<Opener>;

/// Opens connections as `config` says, by `dialer`, with `identity` in place of its own client certificate.
///
/// # Errors
/// When certificates cannot be used.
fn raw_connector(
    config: &kube::Config,
    identity: Option<&Identity>,
    protocol: Protocol,
    dialer: Dialer,
) -> Result<RawConnector, kube::Error> {
    if config.proxy_url.is_some() {
        // The library's own error would repeat the URL, which may hold a password.
        let what = "proxies (the cluster's proxy-url, $HTTPS_PROXY) are not supported";
        return Err(kube::Error::Service(what.into()));
    }
    let mut tls = tls_config(config, identity)?;
    // As in client-go. A server could have eight tickets kept, each with its certificates: a megabyte for each cluster.
    tls.resumption = Resumption::disabled();
    if protocol == Protocol::Any {
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    }
    let names: Arc<dyn ResolveServerName + Send + Sync> = match &config.tls_server_name {
        Some(name) => Arc::new(FixedServerNameResolver::new(
            name.clone().try_into().map_err(|error| kube::Error::Service(Box::new(error)))?,
        )),
        None => Arc::new(DefaultServerNameResolver::default()),
    };
    let mut connector = TimeoutConnector::new(Opener { dialer, tls: Arc::new(tls), names });
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    Ok(connector)
}

/// How to speak TLS with the server of `config`, with `identity` in place of its own client certificate.
fn tls_config(
    config: &kube::Config,
    identity: Option<&Identity>,
) -> Result<ClientConfig, kube::Error> {
    let mut config = config.clone();
    if let Some(Identity { certificate, key }) = identity {
        config.auth_info.client_certificate_data = Some(STANDARD.encode(certificate));
        config.auth_info.client_key_data = Some(STANDARD.encode(key).into());
    }
    if config.root_cert.is_some() || config.root_cert_file.is_some() {
        return config.rustls_client_config();
    }
    // Without it, the library would load the system's authorities for this server alone.
    config.root_cert = Some(Vec::new());
    let own = config.rustls_client_config()?;
    if config.accept_invalid_certs || config.cluster_url.scheme() != Some(&Scheme::HTTPS) {
        return Ok(own);
    }
    let mut tls = ClientConfig::clone(&*system()?);
    tls.client_auth_cert_resolver = own.client_auth_cert_resolver;
    Ok(tls)
}

/// Trusts the system's authorities. All servers without an authority of their own share them: they take
/// some 100 KB, and milliseconds to load. As in client-go, changes of them need a restart.
fn system() -> Result<Arc<ClientConfig>, kube::Error> {
    static SYSTEM: Mutex<Option<Arc<ClientConfig>>> = Mutex::new(None);
    let mut system = SYSTEM.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(system) = &*system {
        return Ok(Arc::clone(system));
    }
    let loaded = Arc::new(kube::Config::new(Uri::default()).rustls_client_config()?);
    *system = Some(Arc::clone(&loaded));
    Ok(loaded)
}

/// The connections to one server.
#[derive(Clone)]
pub(crate) struct Connections(Arc<Inner>);

struct Inner {
    config: kube::Config,
    protocol: Protocol,
    dialer: Dialer,
    open: Mutex<Open>,
}

/// The open connections.
struct Open {
    connector: RawConnector,
    /// For requests that change the protocol, from the first of them on.
    upgrading: Option<Connection>,
    /// The client certificate that they use.
    identity: Option<Arc<Identity>>,
    connections: Vec<Connection>,
}

/// One connection, which reconnects when necessary. On HTTP/1.1, one for each request under way.
#[derive(Clone)]
struct Connection {
    client: Arc<legacy::Client<RawConnector, Body>>,
    streams: Arc<AtomicUsize>,
}

impl Connections {
    pub(crate) fn new(
        config: kube::Config,
        protocol: Protocol,
        dialer: Dialer,
    ) -> Result<Self, kube::Error> {
        let open = Mutex::new(Open::new(&config, None, protocol, dialer.clone())?);
        Ok(Self(Arc::new(Inner { config, protocol, dialer, open })))
    }

    /// Sends a request over a connection with that client certificate.
    pub(crate) async fn send(
        &self,
        request: Request<Body>,
        identity: Option<&Arc<Identity>>,
    ) -> Result<Response<Counted>, BoxError> {
        let (connection, mut stream) =
            self.choose(identity, request.headers().contains_key(UPGRADE))?;
        let folded = request.extensions().get::<Unread>().cloned();
        let response = connection.client.request(request).await?;
        stream.unread = response.extensions().get::<Unread>().cloned();
        Ok(response.map(|body| Counted { body, folded, stream }))
    }

    /// The first connection with room, or the least busy one; one of its own for an upgrade.
    fn choose(
        &self,
        identity: Option<&Arc<Identity>>,
        upgrade: bool,
    ) -> Result<(Connection, Stream), kube::Error> {
        let mut open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.identity.as_ref() != identity {
            let Inner { config, protocol, dialer, .. } = &*self.0;
            *open = Open::new(config, identity.cloned(), *protocol, dialer.clone())?;
        }
        if upgrade {
            let Inner { config, dialer, .. } = &*self.0;
            let connection = match &open.upgrading {
                Some(connection) => connection.clone(),
                None => {
                    let (own, protocol) = (open.identity.as_deref(), Protocol::Http1);
                    let dialer = dialer.clone().without_limit();
                    let connector = raw_connector(config, own, protocol, dialer)?;
                    open.upgrading.insert(Connection::new(connector, protocol)).clone()
                }
            };
            let stream = Stream::open(&connection.streams);
            return Ok((connection, stream));
        }
        let connections = &open.connections;
        let index = choose(connections.iter().map(|c| c.streams.load(Ordering::Relaxed)));
        if index == connections.len() {
            let connection = Connection::new(open.connector.clone(), self.0.protocol);
            open.connections.push(connection);
        }
        let connection = open.connections[index].clone();
        let stream = Stream::open(&connection.streams);
        Ok((connection, stream))
    }
}

impl Open {
    /// None yet, with that client certificate.
    fn new(
        config: &kube::Config,
        identity: Option<Arc<Identity>>,
        protocol: Protocol,
        dialer: Dialer,
    ) -> Result<Self, kube::Error> {
        let connector = raw_connector(config, identity.as_deref(), protocol, dialer)?;
        Ok(Self { connector, upgrading: None, identity, connections: Vec::new() })
    }
}

impl Connection {
    fn new(connector: RawConnector, protocol: Protocol) -> Self {
        Self { client: Arc::new(builder(protocol).build(connector)), streams: Arc::default() }
    }
}

/// The index of the connection for the next request, by the open streams of each; the one after the last
/// for a new connection.
fn choose(streams: impl ExactSizeIterator<Item = usize> + Clone) -> usize {
    let room = streams.clone().position(|streams| streams < STREAMS_PER_CONNECTION);
    let new = (streams.len() < MAX_CONNECTIONS).then_some(streams.len());
    let least = || streams.enumerate().min_by_key(|(_, streams)| *streams);
    room.or(new).or_else(|| least().map(|(index, _)| index)).unwrap_or_default()
}

fn builder(protocol: Protocol) -> legacy::Builder {
    let mut builder = match protocol {
        Protocol::Http1 => legacy::Client::builder(TokioExecutor::new()),
        Protocol::Any => legacy::Client::builder(OneTask::default()),
    };
    builder
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .http1_max_buf_size(READ_AHEAD_BYTES)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_TIMEOUT);
    builder
}

/// One open stream, counted.
struct Stream {
    open: Arc<AtomicUsize>,
    /// Counts what comes over its connection.
    unread: Option<Unread>,
}

impl Stream {
    fn open(streams: &Arc<AtomicUsize>) -> Self {
        streams.fetch_add(1, Ordering::Relaxed);
        Self { open: Arc::clone(streams), unread: None }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        // The head of an answer, and what has come of it that nobody reads any more.
        self.unread.iter().for_each(|unread| unread.read(STREAM_WINDOW as usize));
    }
}

/// The body of an answer. Its stream is open until it is dropped.
pub(crate) struct Counted {
    body: Incoming,
    /// Counts what comes, for whoever bounds what it unfolds to.
    folded: Option<Unread>,
    stream: Stream,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        if this.folded.as_ref().is_some_and(|folded| folded.is_more_than(FOLDED_BYTES)) {
            // Whoever bounds it ends it now.
            return Poll::Pending;
        }
        // What unfolds it reads on until it has something: others have their turn, deadlines too.
        let turn = ready!(coop::poll_proceed(cx));
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        turn.made_progress();
        if let Some(Ok(frame)) = &frame {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            this.folded.iter().for_each(|folded| folded.come(bytes));
            this.stream.unread.iter().for_each(|unread| unread.read(bytes + PART_BYTES));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::{StreamExt, stream};
    use http_body_util::{BodyExt, StreamBody};
    use hyper::service::service_fn;
    use hyper_util::client::legacy::connect::HttpConnector;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::address::lookups;
    use crate::role::Role;
    use crate::trust::Trust;

    /// Serves one HTTP/2 connection, until the task ends. The answer to `/N/M` is N frames of M bytes.
    async fn serve() -> (String, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let service = service_fn(async |request: Request<Incoming>| {
                let mut numbers = request.uri().path()[1..].split('/').map(|one| one.parse());
                let [count, bytes] = [(); 2].map(|()| numbers.next().unwrap().unwrap());
                let frames = stream::iter(0..count)
                    .map(move |_: usize| Frame::data(Bytes::from(vec![b'x'; bytes])));
                let frames = frames.map(Ok::<_, Infallible>);
                Ok::<_, Infallible>(Response::new(StreamBody::new(frames)))
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
        (address, task)
    }

    fn client() -> legacy::Client<HttpConnector, Body> {
        builder(Protocol::Any).http2_only(true).build(HttpConnector::new())
    }

    /// A request for a path, whose answer nobody reads yet.
    async fn unread(
        client: &legacy::Client<HttpConnector, Body>,
        address: &str,
        path: &str,
    ) -> Response<Incoming> {
        let request = Request::get(format!("{address}{path}")).body(Body::empty());
        client.request(request.unwrap()).await.unwrap()
    }

    /// A frame costs a few hundred bytes here, however few are in it: 100,000 of them more than the window.
    #[tokio::test]
    async fn a_connection_with_many_small_frames_that_nobody_reads_ends() {
        let (address, server) = serve().await;
        let client = client();
        let _answer = unread(&client, &address, "/100000/1").await;
        server.await.unwrap();
    }

    #[tokio::test]
    async fn streams_that_nobody_reads_do_not_stop_another_on_their_connection() {
        let (address, _server) = serve().await;
        let client = client();
        let mut unread_ones = Vec::new();
        for _ in 1..STREAMS_PER_CONNECTION {
            unread_ones.push(unread(&client, &address, "/64/16384").await);
        }
        let read = unread(&client, &address, "/1/1").await.into_body().collect().await.unwrap();
        assert_eq!(read.to_bytes().len(), 1);
    }

    /// Sends `answer` to the first request, and then `more` until nobody takes it or 64 MiB are taken. Returns its
    /// address, and whether somebody took all of that.
    async fn flood(answer: &'static str, more: &'static str) -> (String, JoinHandle<bool>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _asked = stream.read(&mut [0; 1024]).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            let piece = more.repeat((64 << 10) / more.len());
            for _ in 0..1024 {
                if stream.write_all(piece.as_bytes()).await.is_err() {
                    return false;
                }
            }
            true
        });
        (address, task)
    }

    #[tokio::test]
    async fn a_server_may_send_much_as_an_answer_and_little_beside_it() {
        let long = "HTTP/1.1 200 OK\r\ncontent-length: 8388608\r\n\r\n";
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n";
        for (answer, more, expect) in [
            (long, "x", "8388608 bytes"),
            ("", "HTTP/1.1 103 X\r\n\r\n", "more than 1048576 bytes that are no part of an answer"),
            ("HTTP/1.1 200 OK\r\n", "x: y\r\n", "message head is too large"),
            (chunked, "x: y\r\n", "chunk trailers"),
        ] {
            let (address, server) = flood(answer, more).await;
            let dialer = Dialer::new(Trust::own().reach(), lookups(Role::Workload));
            let config = kube::Config::new(address.parse().unwrap());
            let connections = Connections::new(config, Protocol::Any, dialer).unwrap();
            let request = Request::get(address).body(Body::empty()).unwrap();
            let came = match connections.send(request, None).await {
                Ok(answer) => match answer.into_body().collect().await {
                    Ok(body) => format!("{} bytes", body.to_bytes().len()),
                    Err(error) => model::error::chain(&error),
                },
                Err(error) => model::error::chain(&*error),
            };
            assert!(came.contains(expect), "{came}");
            drop(connections);
            assert!(!server.await.unwrap(), "{expect}");
        }
    }

    #[test]
    fn servers_without_an_authority_share_the_systems() {
        let of = |url: &str| kube::Config::new(url.parse().unwrap());
        // Fails where the system has none; servers that need none are usable all the same.
        let loaded = system();
        assert_eq!(tls_config(&of("https://one:6443"), None).is_ok(), loaded.is_ok());
        assert!(tls_config(&of("http://one:8080"), None).is_ok());
        let mut blind = of("https://one:6443");
        blind.accept_invalid_certs = true;
        assert!(tls_config(&blind, None).is_ok());
        if let Ok(loaded) = loaded {
            assert!(Arc::ptr_eq(&loaded, &system().unwrap()), "loaded once");
        }
    }

    /// What a server gives for that would be kept for each cluster, however much it is.
    #[tokio::test]
    async fn no_session_is_resumed() {
        use tokio_rustls::rustls::{HandshakeKind, ServerConfig, crypto, pki_types};
        let pair = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.self_signed(&pair).unwrap();
        let key = pki_types::PrivateKeyDer::Pkcs8(pair.serialize_der().into());
        let tls = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("https://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let mut kinds = Vec::new();
            for _ in 0..2 {
                let (stream, _) = listener.accept().await.unwrap();
                let mut stream = acceptor.accept(stream).await.unwrap();
                let _asked = stream.read(&mut [0; 1024]).await.unwrap();
                kinds.push(stream.get_ref().1.handshake_kind());
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                stream.write_all(answer).await.unwrap();
                let _ended = stream.shutdown().await;
            }
            kinds
        });
        let mut config = kube::Config::new(address.parse().unwrap());
        config.accept_invalid_certs = true;
        let dialer = Dialer::new(Trust::own().reach(), lookups(Role::Workload));
        let connections = Connections::new(config, Protocol::Any, dialer).unwrap();
        for _ in 0..2 {
            let request = Request::get(&address).body(Body::empty()).unwrap();
            let answer = connections.send(request, None).await.unwrap();
            answer.into_body().collect().await.unwrap();
        }
        assert_eq!(server.await.unwrap(), [Some(HandshakeKind::Full); 2]);
    }

    #[test]
    fn a_connection_is_filled_before_the_next_is_opened() {
        let full = STREAMS_PER_CONNECTION;
        for (streams, expect) in [
            (vec![], 0),
            (vec![20], 0),
            (vec![full], 1),
            (vec![full, full + 3], 2),
            (vec![full, full - 1, 0], 1),
        ] {
            assert_eq!(choose(streams.iter().copied()), expect, "{streams:?}");
        }
        let mut all = vec![full + 1; MAX_CONNECTIONS];
        all[7] = full;
        assert_eq!(choose(all.into_iter()), 7, "no more connections: the least busy");
    }

    #[test]
    fn a_stream_counts_while_it_is_open() {
        let streams = Arc::default();
        let (one, two) = (Stream::open(&streams), Stream::open(&streams));
        assert_eq!(streams.load(Ordering::Relaxed), 2);
        drop(one);
        drop(two);
        assert_eq!(streams.load(Ordering::Relaxed), 0);
    }
}
