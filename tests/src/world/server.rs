//! The server of one cluster: an embedded API server that carries out the requests that reach it.
//!
//! It is the far end of the network, and runs on the world's own runtime, whose time is the
//! world's.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use apiserver::{InProcess, Server, WindowLimits};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use model::Clock;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tower::ServiceExt;

use super::history::{self, Applied, Event, History, ProcessId};
use super::link::{Answer, Broken, Pieces, piecemeal, whole};
use super::mailbox::Mailbox;
use super::timeline::Timeline;

/// How many events a server remembers of each kind: few, so that watches sometimes fall behind.
const WINDOW: WindowLimits = WindowLimits { events: 200, bytes: 1 << 20 };

/// The server of one cluster.
#[derive(Debug)]
pub struct SimServer {
    /// The cluster's number.
    pub number: usize,
    /// The embedded server.
    pub api: InProcess,
    /// When it comes back, if it is down.
    down_until_us: Mutex<u64>,
    timeline: Arc<Timeline>,
    history: History,
    arrivals: Arrivals,
}

/// A request that reaches a server.
#[derive(Debug)]
pub struct Call {
    /// The process that sent it.
    pub process: ProcessId,
    /// How it is recorded.
    pub sent: history::Request,
    /// When it was sent.
    pub sent_us: u64,
    /// When it arrives.
    pub arrives_us: u64,
    /// The request itself.
    pub request: Request<Bytes>,
    /// What happens to its answer.
    pub fate: AnswerFate,
    /// Where the answer goes; nowhere for the second arrival of a repeated request.
    pub reply: Option<oneshot::Sender<Answer>>,
}

/// What happens to an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerFate {
    /// It is sent.
    Sent,
    /// It is lost, because the connection breaks.
    Lost {
        /// When the connection breaks.
        at_us: u64,
    },
    /// The request is refused, and not carried out.
    Refused(u16),
}

/// Something on its way back to a process.
#[derive(Debug)]
pub struct Arrival {
    /// When it left the server.
    pub at_us: u64,
    /// The process that gets it.
    pub process: ProcessId,
    /// The cluster that sent it.
    pub cluster: usize,
    /// The request that it answers.
    pub id: u64,
    /// What is sent.
    pub load: Payload,
}

/// What is on its way back.
#[derive(Debug)]
pub enum Payload {
    /// An answer, or the beginning of one, or the error that replaces it.
    Answer(oneshot::Sender<Answer>, Answer),
    /// A piece of a watch, or the error that ends it.
    Piece(Pieces, Result<Bytes, Broken>),
    /// The end of a watch.
    End(Pieces),
}

/// What servers have sent and the world has not collected yet.
pub type Arrivals = Mailbox<Arrival>;

impl SimServer {
    /// The server of an empty cluster. Call it inside the world's runtime.
    pub fn new(
        number: usize,
        seed: u64,
        timeline: &Arc<Timeline>,
        history: &History,
        arrivals: &Arrivals,
    ) -> Self {
        let clock = Arc::clone(timeline);
        let api = Server::builder()
            .seed(seed)
            .window(WINDOW)
            .clock(Arc::new(move || clock.wall()))
            .in_process();
        Self {
            number,
            api,
            down_until_us: Mutex::default(),
            timeline: Arc::clone(timeline),
            history: history.clone(),
            arrivals: arrivals.clone(),
        }
    }

    /// Goes down until then, which breaks every connection.
    pub fn go_down(&self, until_us: u64) {
        *self.down_until_us.lock().unwrap_or_else(PoisonError::into_inner) = until_us;
        self.api.close_watches();
    }

    fn is_down(&self) -> bool {
        let until = *self.down_until_us.lock().unwrap_or_else(PoisonError::into_inner);
        self.timeline.world_us() < until
    }

    /// Carries out a request when it arrives. Spawn it on the world's runtime.
    pub async fn serve(self: Arc<Self>, mut call: Call) {
        let wait = call.arrives_us.saturating_sub(self.timeline.world_us());
        tokio::time::sleep(Duration::from_micros(wait)).await;
        if self.is_down() {
            return self.answer(&mut call, Err(Broken));
        }
        if let AnswerFate::Refused(status) = call.fate {
            return self.answer(&mut call, Ok(refusal(status)));
        }
        let answered = self.api.service().oneshot(call.request.clone().map(whole)).await;
        let Ok(answered) = answered else { return self.answer(&mut call, Err(Broken)) };
        if call.request.uri().query().is_some_and(|query| query.contains("watch=true")) {
            return self.stream(&mut call, answered).await;
        }
        let (parts, body) = answered.into_parts();
        let Ok(body) = body.collect().await;
        let body = body.to_bytes();
        if call.request.method() != Method::GET && parts.status.is_success() {
            self.record(&call, &body);
        }
        match call.fate {
            AnswerFate::Lost { at_us } => {
                let wait = at_us.saturating_sub(self.timeline.world_us());
                tokio::time::sleep(Duration::from_micros(wait)).await;
                self.answer(&mut call, Err(Broken));
            }
            _ => self.answer(&mut call, Ok(Response::from_parts(parts, whole(body)))),
        }
    }

    async fn stream<B>(&self, call: &mut Call, answered: Response<B>)
    where
        B: http_body::Body<Data = Bytes> + Unpin,
    {
        let (parts, mut body) = answered.into_parts();
        let (pieces, arriving) = piecemeal();
        self.answer(call, Ok(Response::from_parts(parts, arriving)));
        while let Some(frame) = body.frame().await {
            if pieces.is_closed() {
                return;
            }
            if let Some(bytes) = frame.ok().and_then(|frame| frame.into_data().ok()) {
                self.send(call, Payload::Piece(pieces.clone(), Ok(bytes)));
            }
        }
        // A server that goes down breaks its watches instead of ending them.
        if self.is_down() {
            self.send(call, Payload::Piece(pieces, Err(Broken)));
        } else {
            self.send(call, Payload::End(pieces));
        }
    }

    fn answer(&self, call: &mut Call, answer: Answer) {
        if let Some(reply) = call.reply.take() {
            self.send(call, Payload::Answer(reply, answer));
        }
    }

    fn send(&self, call: &Call, load: Payload) {
        let at_us = self.timeline.world_us();
        let (process, id) = (call.process, call.sent.id);
        self.arrivals.add(Arrival { at_us, process, cluster: self.number, id, load });
    }

    fn record(&self, call: &Call, answer: &[u8]) {
        let json = |bytes: &[u8]| serde_json::from_slice(bytes).unwrap_or(Value::Null);
        let applied = Applied {
            process: call.process,
            request: call.sent.clone(),
            sent_us: call.sent_us,
            body: json(call.request.body()),
            answer: json(answer),
        };
        self.history.add(self.timeline.world_us(), Event::Applied(Box::new(applied)));
    }
}

/// A refusal in the words of a real server.
fn refusal(status: u16) -> Response<super::link::AnswerBody> {
    let reason = match status {
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    let text = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "refused by the simulation", "reason": reason, "code": status,
    });
    let mut response = Response::new(whole(text.to_string().into()));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}
