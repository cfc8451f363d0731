//! HTTP requests with bodies from files and into files. The only file of this crate that opens
//! connections.

use std::io::SeekFrom;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{CONTENT_LENGTH, HeaderName, USER_AGENT};
use ::http::{Request, Response};
use bytes::Bytes;
use futures::TryStreamExt;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rusty_s3::Method;
use sdk::Gathered;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_util::io::ReaderStream;
use url::Url;

use super::super::digest::{CHUNK, Meter};
use super::super::{Digest, StoreError};
use super::answer::refusal;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How long an answer may take, and each part of it.
const ANSWER: Duration = Duration::from_secs(60);
/// The slowest upload, in bytes for each second.
const SLOWEST: u64 = 128 << 10;
/// The longest answer that is kept in memory, in bytes: a list of 1,000 keys has less.
const MAX_TEXT: u64 = 4 << 20;
/// The longest answer of a refusal that is read, in bytes.
const MAX_REFUSAL: usize = 64 << 10;

type Sent = BoxBody<Bytes, std::io::Error>;

/// Sends requests.
pub(super) struct Http(Client<HttpsConnector<HttpConnector>, Sent>);

/// The body of a request.
pub(super) enum Payload<'a> {
    Empty,
    Bytes(Bytes),
    /// A part of a file.
    File {
        file: &'a Path,
        offset: u64,
        length: u64,
    },
}

/// An answer of success.
pub(super) struct Answer(Response<Incoming>);

type What<'a> = (&'static str, &'a str);

impl Http {
    /// Trusts this authority (PEM), or those of the public web.
    pub(super) fn new(authority: Option<&str>) -> Result<Self, StoreError> {
        let mut http = HttpConnector::new();
        http.set_connect_timeout(Some(CONNECT));
        http.enforce_http(false);
        let builder = HttpsConnectorBuilder::new();
        let builder = match authority {
            None => builder.with_webpki_roots(),
            Some(authority) => {
                let config = crate::tls::trusting(authority).map_err(|_| StoreError::Invalid {
                    what: "key ca.crt of the destination's Secret".to_owned(),
                    problem: "store the certificate of the service's authority in PEM form",
                })?;
                builder.with_tls_config(Arc::unwrap_or_clone(config))
            }
        };
        let connector = builder.https_or_http().enable_http1().wrap_connector(http);
        Ok(Self(Client::builder(TokioExecutor::new()).build(connector)))
    }

    /// Sends one request.
    pub(super) async fn send(
        &self,
        what: What<'_>,
        method: Method,
        url: &Url,
        payload: &Payload<'_>,
    ) -> Result<Answer, StoreError> {
        let length = payload.length();
        let patience = ANSWER + Duration::from_secs(length / SLOWEST);
        let request = Request::builder()
            .method(method.to_str())
            .uri(url.as_str())
            .header(USER_AGENT, concat!("leasehold/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_LENGTH, length)
            .body(payload.body().await?);
        let request = request.map_err(|error| unanswered(what, error.to_string()))?;
        let answer = match timeout(patience, self.0.request(request)).await {
            Ok(Ok(answer)) => answer,
            // The URL is not quoted: it has the signature.
            Ok(Err(error)) => return Err(unanswered(what, sdk::error::chain(&error))),
            Err(_) => return Err(slow(what, patience)),
        };
        let status = answer.status();
        if status.is_success() {
            return Ok(Answer(answer));
        }
        let body = Gathered::new(answer.into_body(), MAX_REFUSAL).collect();
        let body = timeout(ANSWER, body).await.ok().and_then(Result::ok);
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        Err(refusal(what, status, &String::from_utf8_lossy(&body)))
    }
}

impl Payload<'_> {
    fn length(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { length, .. } => *length,
        }
    }

    async fn body(&self) -> Result<Sent, StoreError> {
        match self {
            Self::Empty => Ok(Empty::new().map_err(|never| match never {}).boxed()),
            Self::Bytes(bytes) => {
                Ok(Full::new(bytes.clone()).map_err(|never| match never {}).boxed())
            }
            Self::File { file, offset, length } => {
                let failed = StoreError::file("read", &file.display());
                let mut opened = File::open(file).await.map_err(&failed)?;
                opened.seek(SeekFrom::Start(*offset)).await.map_err(&failed)?;
                let stream = ReaderStream::with_capacity(opened.take(*length), CHUNK);
                Ok(BodyExt::boxed(StreamBody::new(stream.map_ok(Frame::data))))
            }
        }
    }
}

impl Answer {
    pub(super) fn header(&self, name: &HeaderName) -> Option<String> {
        Some(self.0.headers().get(name)?.to_str().ok()?.to_owned())
    }

    pub(super) async fn text(self, what: What<'_>) -> Result<String, StoreError> {
        let bytes = self.bytes(what, MAX_TEXT).await?;
        String::from_utf8(bytes).map_err(|_| unanswered(what, "the answer is no text".to_owned()))
    }

    pub(super) async fn bytes(self, what: What<'_>, limit: u64) -> Result<Vec<u8>, StoreError> {
        let mut bytes = Vec::new();
        let mut body = self.0.into_body();
        while let Some(chunk) = next(&mut body, what).await? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() as u64 > limit {
                return Err(long(what, limit));
            }
        }
        Ok(bytes)
    }

    /// Writes the body into a file, and gives its digest.
    pub(super) async fn save(
        self,
        what: What<'_>,
        file: &Path,
        limit: u64,
    ) -> Result<Digest, StoreError> {
        let failed = StoreError::file("write", &file.display());
        let mut target = File::create(file).await.map_err(&failed)?;
        let (mut meter, mut body) = (Meter::new(), self.0.into_body());
        while let Some(chunk) = next(&mut body, what).await? {
            meter.pass(&chunk);
            if meter.size() > limit {
                return Err(long(what, limit));
            }
            target.write_all(&chunk).await.map_err(&failed)?;
        }
        target.flush().await.map_err(&failed)?;
        Ok(meter.finish())
    }
}

/// The next part of a body.
async fn next(body: &mut Incoming, what: What<'_>) -> Result<Option<Bytes>, StoreError> {
    loop {
        let frame = match timeout(ANSWER, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => {
                return Err(unanswered(what, sdk::error::chain(&error)));
            }
            Ok(None) => return Ok(None),
            Err(_) => return Err(slow(what, ANSWER)),
        };
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
}

fn unanswered((operation, named): What<'_>, problem: String) -> StoreError {
    StoreError::Unanswered { operation, object: named.to_owned(), problem }
}

fn slow(what: What<'_>, patience: Duration) -> StoreError {
    unanswered(what, format!("no answer within {} s", patience.as_secs()))
}

fn long((_, named): What<'_>, limit: u64) -> StoreError {
    let problem = format!("it has more than {limit} bytes");
    StoreError::Damaged { object: named.to_owned(), problem }
}
