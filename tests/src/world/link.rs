//! The network's near end: what a process takes for the connection to a cluster.
//!
//! A request is put into the world's post and its answer awaited; body chunks of a watch arrive one
//! by one. Everything in between is the business of `network`.

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

use super::history::Process;
use super::mailbox::Mailbox;
use super::timeline::Timeline;

/// The connection broke.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("connection reset by the simulation")]
pub struct Broken;

/// The body of an answer as a process reads it.
pub type AnswerBody = UnsyncBoxBody<Bytes, Broken>;
/// What comes back for a request.
pub type Answer = Result<http::Response<AnswerBody>, Broken>;
/// The far end of a body that arrives piece by piece. Bounded by what one watch of a small world
/// can say.
pub type Pieces = UnboundedSender<Result<Bytes, Broken>>;

/// A request on its way.
#[derive(Debug)]
pub struct Outgoing {
    /// When it was sent, in the world's microseconds.
    pub at_us: u64,
    /// By whom.
    pub process: Process,
    /// To which cluster.
    pub cluster: usize,
    /// The request.
    pub request: http::Request<Bytes>,
    /// Where its answer goes.
    pub reply: oneshot::Sender<Answer>,
}

/// What processes have sent and the world has not yet taken.
pub type Post = Mailbox<Outgoing>;

/// One process's way to one cluster.
#[derive(Clone, Debug)]
pub struct Link {
    process: Process,
    cluster: usize,
    timeline: Arc<Timeline>,
    post: Post,
}

impl Link {
    /// A client whose requests go through a new link. Call it inside the process's runtime.
    pub fn client(
        process: Process,
        cluster: usize,
        timeline: &Arc<Timeline>,
        post: &Post,
    ) -> kube::Client {
        let (timeline, post) = (Arc::clone(timeline), post.clone());
        kube::Client::new(Self { process, cluster, timeline, post }, "default")
    }

    async fn exchange(
        self,
        request: http::Request<Body>,
    ) -> Result<http::Response<AnswerBody>, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let (reply, answer) = oneshot::channel();
        self.post.add(Outgoing {
            at_us: self.timeline.world_us(),
            process: self.process,
            cluster: self.cluster,
            request: http::Request::from_parts(parts, body),
            reply,
        });
        // A reply that is dropped is one that the network swallowed for good.
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

/// A body that is all there.
pub fn whole(bytes: Bytes) -> AnswerBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// A body that arrives piece by piece, and where to put the pieces.
pub fn piecemeal() -> (Pieces, AnswerBody) {
    let (pieces, arriving): (Pieces, UnboundedReceiver<_>) = unbounded();
    let frames = arriving.map(|piece: Result<Bytes, Broken>| piece.map(Frame::data));
    (pieces, StreamBody::new(frames).boxed_unsync())
}
