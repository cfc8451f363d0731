//! Answers to reconciles of one cluster: weighed before anybody decodes them, and large ones read a few at a time.
//! Whoever waits for its turn has read little, so a cluster that answers all workers with megabytes costs a few of
//! them; and only its own reconciles wait.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use cache::Weigher;
use http::{Method, Request};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use model::wire::{Answer, WireError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::PollSemaphore;
use writes::ResourcePath;

/// What is more is large: a few objects of a cluster are.
const LARGE_BYTES: usize = 256 << 10;
/// Large answers of a cluster that are read at once.
const MAX_LARGE: usize = 2;

/// The turns of the large answers of one cluster. Clones share them.
#[derive(Clone)]
pub(crate) struct LargeAnswers(Arc<Semaphore>);

impl Default for LargeAnswers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_LARGE)))
    }
}

impl LargeAnswers {
    /// The body of an answer. If it is large, it is read on when it is its turn. What would take too much once it
    /// is decoded breaks it off.
    pub(crate) fn in_turn(&self, weigher: Option<Weigher>, body: Answer) -> Answer {
        let turns = PollSemaphore::new(Arc::clone(&self.0));
        InTurn { body, weigher, passed: 0, turns, turn: None }.boxed_unsync()
    }
}

/// What weighs the answer to a request; none if it is a text that nobody decodes.
pub(crate) fn weigher<B>(request: &Request<B>) -> Option<Weigher> {
    let path = request.uri().path();
    let is_list = match ResourcePath::read(path) {
        Some(ResourcePath { subresource: Some("log" | "proxy"), .. }) => return None,
        Some(ResourcePath { name, .. }) => name.is_none() && *request.method() != Method::POST,
        // Discovery, or nothing of Kubernetes.
        None if path.starts_with("/api") => true,
        None => return None,
    };
    Some(Weigher::new(is_list))
}

struct InTurn {
    body: Answer,
    weigher: Option<Weigher>,
    /// Bytes that have passed.
    passed: usize,
    turns: PollSemaphore,
    /// Held until the body is dropped.
    turn: Option<OwnedSemaphorePermit>,
}

impl Body for InTurn {
    type Data = <Answer as Body>::Data;
    type Error = WireError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, WireError>>> {
        let this = &mut *self;
        if this.passed > LARGE_BYTES && this.turn.is_none() {
            this.turn = ready!(this.turns.poll_acquire(cx));
        }
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            this.passed += data.len();
            if let Some(Err(heavy)) = this.weigher.as_mut().map(|weigher| weigher.add(data)) {
                return Poll::Ready(Some(Err(heavy.into())));
            }
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::{FutureExt, StreamExt, stream};
    use http_body_util::StreamBody;

    use super::*;

    /// A body of 64 frames of 16 KiB that counts what is read of it, and then does not end.
    fn body(turns: &LargeAnswers) -> (Answer, Arc<AtomicUsize>) {
        let read = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&read);
        let frames = stream::iter(0..64).map(move |_| {
            count.fetch_add(16 << 10, Ordering::Relaxed);
            Ok::<_, WireError>(Frame::data(vec![b'x'; 16 << 10].into()))
        });
        let body = StreamBody::new(frames.chain(stream::pending())).boxed_unsync();
        (turns.in_turn(None, body), read)
    }

    #[tokio::test]
    async fn two_large_answers_are_read_at_once_and_others_wait_with_little() {
        let turns = LargeAnswers::default();
        let (mut reading, read): (Vec<_>, Vec<_>) =
            (0..4).map(|_| body(&turns)).map(|(body, read)| (body.collect().boxed(), read)).unzip();
        let poll = |reading: &mut Vec<_>| {
            for one in reading {
                assert!(FutureExt::now_or_never(one).is_none());
            }
            read.iter().map(|read| read.load(Ordering::Relaxed) >> 10).collect::<Vec<_>>()
        };
        assert_eq!(poll(&mut reading), [1024, 1024, 272, 272]);
        drop(reading.remove(0));
        assert_eq!(poll(&mut reading), [1024, 1024, 1024, 272]);
    }

    #[test]
    fn an_answer_is_weighed_as_what_was_asked_for() {
        for (method, path, expect) in [
            (Method::GET, "/api/v1/namespaces/web/pods", Some(true)),
            (Method::DELETE, "/api/v1/namespaces/web/pods", Some(true)),
            (Method::POST, "/api/v1/namespaces/web/pods", Some(false)),
            (Method::GET, "/api/v1/namespaces/web/pods/a", Some(false)),
            (Method::PATCH, "/api/v1/namespaces/web/pods/a/status", Some(false)),
            (Method::GET, "/apis/apps/v1", Some(true)),
            (Method::GET, "/api/v1/namespaces/web/pods/a/log", None),
            (Method::GET, "/api/v1/namespaces/web/services/a/proxy/metrics", None),
            (Method::GET, "/metrics", None),
        ] {
            let request = Request::builder().method(&method).uri(path).body(()).unwrap();
            let found = weigher(&request).map(|mut weigher| {
                let objects = "{},".repeat(20_000);
                weigher.add(objects.as_bytes()).is_ok()
            });
            assert_eq!(found, expect, "{method} {path}");
        }
    }
}
