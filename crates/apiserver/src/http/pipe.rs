//! A switch of protocols in process: the request goes over a connection in memory, since only a
//! connection can change its protocol. Both ends of it are those that a real one has.

use bytes::Bytes;
use http::header::{CONNECTION, UPGRADE};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{client, server};
use hyper_util::rt::TokioIo;

use super::access::Identity;
use super::answer::Body;
use super::{ApiService, BoxError, header};

/// How many bytes may be under way in each direction.
const BUFFER: usize = 64 << 10;

/// Whether a request wants a websocket and has no connection for it.
pub(super) fn needed<B>(request: &Request<B>) -> bool {
    let says = |name, word: &str| {
        header(request.headers(), name).split(',').any(|w| w.trim().eq_ignore_ascii_case(word))
    };
    request.method() == Method::GET
        && says(UPGRADE, "websocket")
        && says(CONNECTION, "upgrade")
        && request.extensions().get::<OnUpgrade>().is_none()
}

/// Serves a request over a connection of its own. Requests that switch have no body.
pub(super) async fn serve<B>(
    service: ApiService,
    request: Request<B>,
) -> Result<Response<Body>, BoxError> {
    let (near, far) = tokio::io::duplex(BUFFER);
    let (mut parts, _) = request.into_parts();
    let identity = parts.extensions.remove::<Identity>();
    let tasks = service.api.forwards.tasks.clone();
    let shutdown = service.api.shutdown_token();
    let handler = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().extend(identity.clone().map(extension).unwrap_or_default());
        service.clone().serve(request)
    });
    let serving = server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(far), handler)
        .with_upgrades();
    // Either end tells the other when it fails.
    tasks.spawn(shutdown.clone().run_until_cancelled_owned(serving));
    let (mut sender, connection) = client::conn::http1::handshake(TokioIo::new(near)).await?;
    tasks.spawn(shutdown.run_until_cancelled_owned(connection.with_upgrades()));

    if let Some(path) = parts.uri.path_and_query() {
        parts.uri = Uri::from(path.clone());
    }
    let request = Request::from_parts(parts, Empty::<Bytes>::new());
    let (parts, body) = sender.send_request(request).await?.into_parts();
    let body = match parts.status {
        StatusCode::SWITCHING_PROTOCOLS => Bytes::new(),
        _ => body.collect().await?.to_bytes(),
    };
    Ok(Response::from_parts(parts, Full::new(body).boxed_unsync()))
}

fn extension(identity: Identity) -> http::Extensions {
    let mut extensions = http::Extensions::new();
    extensions.insert(identity);
    extensions
}
