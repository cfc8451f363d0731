//! Opens streams: the request that asks for the protocol, and its answer.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY};
use http::header::{SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use model::error::foreign;
use model::wire::{self, Answer, WireError};
use tokio::sync::Semaphore;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::{client::generate_key, derive_accept_key};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::{MayPass, PodPort, PodStream};

/// How long opening a stream may take, and so long again the wait for a slot.
pub const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// The most streams to Pods of one cluster that a replica has open at once.
pub const MAX_STREAMS: usize = 32;
/// The largest frame that is accepted, in bytes. Kubelets send up to 32 KiB.
const MAX_FRAME: usize = 1 << 20;
/// The most bytes of a refusal that are read.
const MAX_REFUSAL: usize = 64 << 10;

/// The longest name of an object, in bytes.
const MAX_NAME: usize = 253;

const PROTOCOL: &str = "v4.channel.k8s.io";

/// A stream that was not opened.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// What should be dialled is no Pod: in a path it would be another request.
    #[error("{port} was not dialled: its namespace or name cannot be one")]
    Name {
        /// What was dialled.
        port: PodPort,
    },
    /// As many streams are open as may be.
    #[error("{port} was not dialled within {}s: {MAX_STREAMS} streams to Pods of its cluster are open", DIAL_TIMEOUT.as_secs())]
    Busy {
        /// What was dialled.
        port: PodPort,
    },
    /// The request was not sent, or not answered.
    #[error("{port} was not dialled")]
    Unanswered {
        /// What was dialled.
        port: PodPort,
        /// Why.
        #[source]
        source: WireError,
    },
    /// The API server or the kubelet refused.
    #[error("{port} was not dialled: the server refuses")]
    Refused {
        /// What was dialled.
        port: PodPort,
        /// Its answer.
        #[source]
        source: kube::Error,
    },
    /// The answer is not that of a server that forwards ports.
    #[error(
        "{port} was not dialled: the API server, or a proxy before it, does not forward ports over WebSocket: {why}"
    )]
    Protocol {
        /// What was dialled.
        port: PodPort,
        /// What is wrong with the answer.
        why: &'static str,
    },
}

/// Opens a stream to a port of a Pod, with the request that `send` brings to the API server. It takes one of
/// `slots` as long as it is open.
///
/// # Errors
/// See [`DialError`].
pub async fn dial<F>(
    port: PodPort,
    slots: Arc<Semaphore>,
    may_pass: MayPass,
    send: impl FnOnce(Request<Body>) -> F + Send,
) -> Result<PodStream, DialError>
where
    F: Future<Output = Result<Response<Answer>, WireError>> + Send,
{
    if ![&port.namespace, &port.pod].into_iter().all(|name| is_name(name)) {
        let (namespace, pod) = (foreign(&port.namespace), foreign(&port.pod));
        return Err(DialError::Name { port: PodPort { namespace, pod, ..port } });
    }
    let busy = || DialError::Busy { port: port.clone() };
    let slot = tokio::time::timeout(DIAL_TIMEOUT, slots.acquire_owned()).await;
    let slot = slot.map_err(|_| busy())?.expect("nobody closes it");
    let key = generate_key();
    let unanswered = |source: WireError| DialError::Unanswered { port: port.clone(), source };
    let answer = send(request(&port, &key)).await.map_err(unanswered)?;
    let answer = accepted(&port, &key, answer).await?;
    let upgraded = hyper::upgrade::on(answer).await;
    let upgraded = upgraded.map_err(|error| unanswered(Box::new(error)))?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_FRAME))
        .max_frame_size(Some(MAX_FRAME))
        .max_write_buffer_size(2 * MAX_FRAME);
    let io = TokioIo::new(upgraded);
    let socket = WebSocketStream::from_raw_socket(io, Role::Client, Some(config)).await;
    Ok(PodStream::new(socket, may_pass, port, slot))
}

/// Whether a text can be the name of an object: letters, digits, dashes and dots, and not only dots.
fn is_name(text: &str) -> bool {
    let allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    text.len() <= MAX_NAME && text.starts_with(|c: char| c != '.') && text.bytes().all(allowed)
}

fn request(PodPort { namespace, pod, port }: &PodPort, key: &str) -> Request<Body> {
    let uri = format!("/api/v1/namespaces/{namespace}/pods/{pod}/portforward?ports={port}");
    Request::get(uri)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        .header(SEC_WEBSOCKET_KEY, key)
        .header(SEC_WEBSOCKET_PROTOCOL, PROTOCOL)
        .body(Body::empty())
        .expect("names are valid in a path")
}

/// The answer, if the server goes over to the protocol.
async fn accepted(
    port: &PodPort,
    key: &str,
    answer: Response<Answer>,
) -> Result<Response<Answer>, DialError> {
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let (status, text) = (answer.status(), beginning(answer.into_body()).await);
        return Err(DialError::Refused {
            port: port.clone(),
            source: wire::refusal(status, &text),
        });
    }
    let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
    let why = if header(SEC_WEBSOCKET_ACCEPT) != Some(&derive_accept_key(key.as_bytes())) {
        "it does not accept our key"
    } else if header(SEC_WEBSOCKET_PROTOCOL) != Some(PROTOCOL) {
        "it does not speak v4.channel.k8s.io"
    } else {
        return Ok(answer);
    };
    Err(DialError::Protocol { port: port.clone(), why })
}

/// The first bytes of an answer, up to [`MAX_REFUSAL`] or a little more.
async fn beginning(mut body: Answer) -> Vec<u8> {
    let mut text = Vec::new();
    while text.len() < MAX_REFUSAL {
        let Some(Ok(frame)) = body.frame().await else { break };
        text.extend_from_slice(frame.data_ref().map_or(&[], |data| data.as_ref()));
    }
    text
}
