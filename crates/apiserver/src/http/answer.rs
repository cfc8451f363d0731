//! Answers: Status errors, JSON bodies, warnings, compression.

use std::convert::Infallible;
use std::io::Write;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, VARY,
    WARNING,
};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde_json::Value;

use super::negotiate;
use crate::status::ApiError;

/// The body of every answer.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Bodies of at least this size are compressed for clients that accept it.
const GZIP_FROM: usize = 128 << 10;
/// Fast rather than small: answers pass a loopback or a local network.
const GZIP_LEVEL: u32 = 1;

/// A JSON answer of known length.
pub(crate) fn json(code: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    typed(code, "application/json", body)
}

/// A JSON answer from a value.
pub(crate) fn value(code: StatusCode, value: &Value) -> Response<Body> {
    json(code, value.to_string())
}

/// An answer of any media type.
pub(crate) fn typed(code: StatusCode, media_type: &str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = code;
    if let Ok(media_type) = HeaderValue::from_str(media_type) {
        response.headers_mut().insert(CONTENT_TYPE, media_type);
    }
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// An answer without a body.
pub(crate) fn empty(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(Full::default().boxed_unsync());
    *response.status_mut() = code;
    response
}

/// A Status for a failed request.
pub(crate) fn error(error: &ApiError) -> Response<Body> {
    let code = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = value(code, &error.to_status());
    if let Some(seconds) = error.retry_after_seconds() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Adds `Warning: 299` headers.
pub(crate) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for text in warnings {
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

/// Adds a header whose value may come from user data.
pub(crate) fn set(response: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// A large JSON answer, compressed if the client accepts it.
pub(crate) async fn large_json(headers: &HeaderMap, body: Vec<u8>) -> Response<Body> {
    if body.len() < GZIP_FROM || !negotiate::accepts_gzip(headers) {
        return json(StatusCode::OK, body);
    }
    let plain = Bytes::from(body);
    let source = plain.clone();
    let packed = tokio::task::spawn_blocking(move || gzip(&source)).await;
    match packed {
        Ok(Some(packed)) => {
            let mut response = json(StatusCode::OK, packed);
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
            response
        }
        // Compression is optional.
        _ => json(StatusCode::OK, plain),
    }
}

fn gzip(data: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(
        Vec::with_capacity(data.len() / 8),
        flate2::Compression::new(GZIP_LEVEL),
    );
    encoder.write_all(data).ok()?;
    encoder.finish().ok()
}
