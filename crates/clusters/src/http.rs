//! The connections to a cluster. To a workload cluster: HTTP/2 where the server speaks it, HTTP/1.1
//! otherwise.
//!
//! ```text
//!   kube::Client ▶ base URI ▶ gzip ▶ Authenticated ▶ Connections ─┬▶ connection 1: up to 64 streams
//!                                                                 └▶ connection 2, when 1 is full
//! ```
//!
//! A watch keeps a stream open for as long as it lives, and servers accept so many streams on a
//! connection (kube-apiserver: 100, proxies often 128). A further request would wait inside the
//! connection until a watch ends, so the next connection is opened before that.
//!
//! A connection that says nothing is asked (PING), for on HTTP/2 a dead one is not found out by
//! opening the next: within [`PING_EVERY`] and [`PING_TIMEOUT`] its requests fail, and the next ones
//! go over a new connection.
//!
//! The home cluster is reached over HTTP/1.1: there each renewal of a Lease that is not answered in
//! time leaves its connection behind, and the next attempt has a new one at once.
//!
//! A client certificate that is renewed is shown by new connections; what is under way on the old
//! ones, watches above all, ends there.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt};
use model::Wire;
use tower::{BoxError, ServiceBuilder, ServiceExt};
use tower_http::decompression::DecompressionLayer;

use crate::credentials::{Authenticated, Identity, Keeper};

/// Streams on one connection before the next is opened.
pub const STREAMS_PER_CONNECTION: usize = 64;
/// The most connections to a server; beyond it they are shared by more streams.
pub const MAX_CONNECTIONS: usize = 64;
/// How often a connection is asked whether it is alive.
pub const PING_EVERY: Duration = Duration::from_secs(10);
/// How long it may take to answer.
pub const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// What may be under way to us on one stream, in bytes: a stream that nobody reads holds so much.
const STREAM_WINDOW: u32 = 256 << 10;
/// The same for a connection. The largest there is: streams that nobody reads must not stop others.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.1 alone: requests share no connection.
    Http1,
    /// HTTP/2 where the server speaks it.
    Any,
}

/// The way to a cluster.
#[derive(Clone)]
pub struct Way {
    /// A client of its own.
    pub client: kube::Client,
    /// The same below a client.
    pub wire: Wire,
}

/// A client whose requests show what `keeper` keeps.
///
/// # Errors
/// When certificates of `config` cannot be used.
pub(crate) fn client(
    config: kube::Config,
    keeper: Keeper,
    protocol: Protocol,
) -> Result<Way, kube::Error> {
    let base = config.base_uri_layer();
    let gzip =
        DecompressionLayer::new().no_br().no_deflate().no_zstd().gzip(!config.disable_compression);
    let headers = config.extra_headers_layer()?;
    let namespace = config.default_namespace.clone();
    let service = ServiceBuilder::new()
        .layer(base)
        .layer(gzip)
        .layer(headers)
        .service(Authenticated::new(keeper, Connections::new(config, protocol)?));
    let client = ClientBuilder::new(service.clone(), namespace).build();
    let wire = Wire::new(move |request| {
        let answer = service.clone().oneshot(request);
        async { Ok(answer.await?.map(BodyExt::boxed_unsync)) }.boxed()
    });
    Ok(Way { client, wire })
}

pub(crate) type Connector = TimeoutConnector<HttpsConnector<HttpConnector>>;

/// What opens connections by `config`, and shows `identity` instead of the certificate it may have.
///
/// # Errors
/// When certificates cannot be used.
pub(crate) fn connector(
    config: &kube::Config,
    identity: Option<&Identity>,
    protocol: Protocol,
) -> Result<Connector, kube::Error> {
    if config.proxy_url.is_some() {
        // Its own connector knows which proxies there are features for, and says so.
        return Err(kube::Client::try_from(config.clone()).err().unwrap_or_else(no_proxy));
    }
    let tls = match identity {
        None => config.rustls_client_config()?,
        Some(Identity { certificate, key }) => {
            let mut config = config.clone();
            config.auth_info.client_certificate_data = Some(STANDARD.encode(certificate));
            config.auth_info.client_key_data = Some(STANDARD.encode(key).into());
            config.rustls_client_config()?
        }
    };
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    let mut https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name =
            name.clone().try_into().map_err(|error| kube::Error::Service(Box::new(error)))?;
        https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let mut connector = TimeoutConnector::new(match protocol {
        Protocol::Http1 => https.enable_http1().wrap_connector(http),
        Protocol::Any => https.enable_all_versions().wrap_connector(http),
    });
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    Ok(connector)
}

fn no_proxy() -> kube::Error {
    kube::Error::Service("proxies are not supported".into())
}

/// The connections to one server.
#[derive(Clone)]
pub(crate) struct Connections(Arc<Inner>);

struct Inner {
    config: kube::Config,
    protocol: Protocol,
    open: Mutex<Open>,
}

/// The connections that requests are given.
struct Open {
    connector: Connector,
    /// What they show.
    identity: Option<Arc<Identity>>,
    lanes: Vec<Lane>,
}

/// One connection, as often as it is made anew; on HTTP/1.1 one for each request under way.
#[derive(Clone)]
struct Lane {
    client: legacy::Client<Connector, Body>,
    streams: Arc<AtomicUsize>,
}

impl Connections {
    fn new(config: kube::Config, protocol: Protocol) -> Result<Self, kube::Error> {
        let connector = connector(&config, None, protocol)?;
        let open = Mutex::new(Open { connector, identity: None, lanes: Vec::new() });
        Ok(Self(Arc::new(Inner { config, protocol, open })))
    }

    /// Sends a request over a connection that shows `identity`.
    pub(crate) async fn send(
        &self,
        request: Request<Body>,
        identity: Option<&Arc<Identity>>,
    ) -> Result<Response<Counted>, BoxError> {
        let (lane, stream) = self.lane(identity)?;
        let response = lane.client.request(request).await?;
        Ok(response.map(|body| Counted { body, _stream: stream }))
    }

    /// The first connection with room, or the least busy one.
    fn lane(&self, identity: Option<&Arc<Identity>>) -> Result<(Lane, Stream), kube::Error> {
        let mut open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.identity.as_ref() != identity {
            open.connector = connector(&self.0.config, identity.map(Arc::as_ref), self.0.protocol)?;
            open.identity = identity.cloned();
            open.lanes.clear();
        }
        let lanes = &open.lanes;
        let index = choose(lanes.iter().map(|lane| lane.streams.load(Ordering::Relaxed)));
        if index == lanes.len() {
            let client = legacy(open.connector.clone());
            open.lanes.push(Lane { client, streams: Arc::default() });
        }
        let lane = open.lanes[index].clone();
        let stream = Stream::open(&lane.streams);
        Ok((lane, stream))
    }
}

/// Which connection the next request takes, by the streams that are open on each; the one after the
/// last for a new one.
fn choose(streams: impl ExactSizeIterator<Item = usize> + Clone) -> usize {
    let room = streams.clone().position(|streams| streams < STREAMS_PER_CONNECTION);
    let new = (streams.len() < MAX_CONNECTIONS).then_some(streams.len());
    let least = || streams.enumerate().min_by_key(|(_, streams)| *streams);
    room.or(new).or_else(|| least().map(|(index, _)| index)).unwrap_or_default()
}

fn legacy(connector: Connector) -> legacy::Client<Connector, Body> {
    legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .build(connector)
}

/// One open stream, counted.
struct Stream(Arc<AtomicUsize>);

impl Stream {
    fn open(streams: &Arc<AtomicUsize>) -> Self {
        streams.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(streams))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of an answer, whose stream is open until it is dropped.
pub(crate) struct Counted {
    body: Incoming,
    _stream: Stream,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
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
    use super::*;

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
