//! The near end of the network: what a process uses as its connection to a cluster.
//!
//! It puts a request into the world's outbox and waits for the answer; the pieces of a watch arrive
//! one by one. `network` does everything in between.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::{FutureExt, StreamExt};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use tokio::sync::oneshot;
use tower::{BoxError, Service};

use super::history::ProcessId;
use super::mailbox::Mailbox;
use super::timeline::Timeline;

/// The connection broke.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("connection reset by the simulation")]
pub struct Broken;

/// The body of an answer as a process reads it.
pub type AnswerBody = UnsyncBoxBody<Bytes, Broken>;
/// The answer to a request.
pub type Answer = Result<http::Response<AnswerBody>, Broken>;
/// The sending end of a body that arrives piece by piece. Bounded by the events of one watch in a
/// small world.
pub type Pieces = UnboundedSender<Result<Bytes, Broken>>;

/// A request on its way.
#[derive(Debug)]
pub struct Outgoing {
    /// When it was sent, in the world's microseconds.
    pub at_us: u64,
    /// When it leaves the machine: later, if that slept meanwhile.
    pub leaves_us: u64,
    /// The process that sent it.
    pub process: ProcessId,
    /// The cluster that gets it.
    pub cluster: usize,
    /// The request.
    pub request: http::Request<Bytes>,
    /// Where its answer goes.
    pub reply: oneshot::Sender<Answer>,
}

/// What processes have sent and the world has not collected yet.
pub type Outbox = Mailbox<Outgoing>;

/// The connection of a process to a cluster.
#[derive(Clone, Debug)]
pub struct Link {
    process: ProcessId,
    cluster: usize,
    timeline: Arc<Timeline>,
    outbox: Outbox,
}

impl Link {
    /// A client whose requests go through a new link. Call it inside the process's runtime.
    pub fn client(
        process: ProcessId,
        cluster: usize,
        timeline: &Arc<Timeline>,
        outbox: &Outbox,
    ) -> kube::Client {
        let (timeline, outbox) = (Arc::clone(timeline), outbox.clone());
        kube::Client::new(Self { process, cluster, timeline, outbox }, "default")
    }

    async fn exchange(
        self,
        request: http::Request<Body>,
    ) -> Result<http::Response<AnswerBody>, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let (reply, answer) = oneshot::channel();
        let at_us = self.timeline.world_us();
        self.outbox.add(Outgoing {
            at_us,
            leaves_us: at_us,
            process: self.process,
            cluster: self.cluster,
            request: http::Request::from_parts(parts, body),
            reply,
        });
        // The network drops the reply if the answer is lost for good.
        Ok(answer.await.unwrap_or(Err(Broken))?)
    }
}

impl Service<http::Request<Body>> for Link {
    type Response = http::Response<AnswerBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        self.clone().exchange(request).boxed()
    }
}

/// A complete body.
pub fn whole(bytes: Bytes) -> AnswerBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// A body that arrives piece by piece, and the sender of the pieces.
pub fn piecemeal() -> (Pieces, AnswerBody) {
    let (pieces, arriving): (Pieces, UnboundedReceiver<_>) = unbounded();
    let frames = arriving.map(|piece: Result<Bytes, Broken>| piece.map(Frame::data));
    (pieces, StreamBody::new(frames).boxed_unsync())
}
