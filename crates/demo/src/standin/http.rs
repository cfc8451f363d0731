//! Serves the stand-ins on loopback. Shell.

use std::future::Future;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::Clock;
use tokio::net::TcpListener;

use super::sqs::{Answer, Sqs};

/// The prefix of the operation in `x-amz-target`.
const TARGET: &str = "AmazonSQS.";

#[derive(Clone)]
struct Standin {
    sqs: Arc<Mutex<Sqs>>,
    clock: Arc<dyn Clock>,
}

/// Serves a stand-in for SQS until `shutdown`.
///
/// # Errors
/// If connections cannot be accepted.
pub(crate) async fn serve(
    listener: TcpListener,
    sqs: Arc<Mutex<Sqs>>,
    clock: Arc<dyn Clock>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let router = Router::new().fallback(answer).with_state(Standin { sqs, clock });
    axum::serve(listener, router).with_graceful_shutdown(shutdown).await
}

async fn answer(State(standin): State<Standin>, headers: HeaderMap, body: Bytes) -> Response {
    let target = headers.get("x-amz-target").and_then(|target| target.to_str().ok());
    let Some(operation) = target.and_then(|target| target.strip_prefix(TARGET)) else {
        return (StatusCode::NOT_FOUND, "only the JSON protocol of SQS is supported here")
            .into_response();
    };
    let Ok(body) = serde_json::from_slice(&body) else {
        return (StatusCode::BAD_REQUEST, "no JSON").into_response();
    };
    let now = standin.clock.wall();
    let answer =
        standin.sqs.lock().expect("no holder of this lock panics").answer(operation, &body, now);
    response(&answer)
}

/// An answer in HTTP.
fn response(answer: &Answer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response =
        (status, [(header::CONTENT_TYPE, "application/x-amz-json-1.0")], answer.body.to_string())
            .into_response();
    let more = [
        ("x-amzn-query-error", answer.query_error.clone()),
        ("retry-after", answer.retry_after.map(|seconds| seconds.to_string())),
    ];
    for (name, value) in more {
        if let Some(value) = value.and_then(|value| value.parse().ok()) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}
