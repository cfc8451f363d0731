//! Answers to reconciles: weighed before anybody decodes them, and large ones read a few at a time, of one cluster and
//! of all together. Whoever waits for its turn has read little, so a cluster that answers all workers with megabytes
//! costs its part, a quarter of what all have, and others wait for it no longer than [`KEPT_FOR`].
//!
//! A turn ends with the body. What a reconcile then keeps of it, decoded, is bounded by the weigher for each answer,
//! and by the number of workers for all: if reconciles kept their turns until they end, one that waits for something
//! else would keep those of its cluster waiting, and one that reads two lists would wait for itself.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use cache::Weigher;
use futures::FutureExt;
use http::{Method, Request};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use model::wire::{Answer, WireError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tokio_util::sync::PollSemaphore;
use writes::ResourcePath;

/// What is more is large: a few objects of a cluster are.
const LARGE_BYTES: usize = 256 << 10;
/// MiB that a list may have, as the connection to a cluster bounds it (crate `clusters`),
const LIST_MIB: u32 = 33;
/// an object,
const OBJECT_MIB: u32 = 4;
/// and a log, or what else is no object.
const TEXT_MIB: u32 = 16;
/// MiB of the large answers of one cluster that are read at once: one list, or eight objects.
const CLUSTER_MIB: usize = LIST_MIB as usize;
/// MiB of the large answers of all clusters that are read at once.
const ALL_MIB: usize = 4 * CLUSTER_MIB;
/// How long one is read while others may wait for their turn.
const KEPT_FOR: Duration = Duration::from_secs(30);

/// A large answer that others may have waited for long enough.
#[derive(Debug, thiserror::Error)]
#[error(
    "the answer has not come to its end within {}s, and others may wait for their turn; fix: ask for less at once, \
     in pages with a limit, or see why the server is slow",
    KEPT_FOR.as_secs()
)]
struct SlowAnswer;

/// The turns of the large answers of one cluster, among those of all. Clones share them.
#[derive(Clone)]
pub(crate) struct LargeAnswers {
    all: Arc<Semaphore>,
    part: Arc<Semaphore>,
}

impl Default for LargeAnswers {
    fn default() -> Self {
        let [all, part] = [ALL_MIB, CLUSTER_MIB].map(|most| Arc::new(Semaphore::new(most)));
        Self { all, part }
    }
}

impl LargeAnswers {
    /// Those of another cluster.
    pub(crate) fn of_another_cluster(&self) -> Self {
        Self { all: Arc::clone(&self.all), ..Self::default() }
    }

    /// The body of an answer. If it is large, it is read on when it is its turn. What would take too much once it
    /// is decoded breaks it off, and so does time if others wait.
    pub(crate) fn in_turn(&self, expected: Expected, body: Answer) -> Answer {
        let [all, part] = [&self.all, &self.part].map(|of| PollSemaphore::new(Arc::clone(of)));
        InTurn { body, expected, passed: 0, all, part, share: None, turn: None }.boxed_unsync()
    }
}

/// What the answer to a request may be.
pub(crate) struct Expected {
    /// None of a text that nobody decodes.
    weigher: Option<Weigher>,
    mebibytes: u32,
}

impl Expected {
    /// Of this request.
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        let path = request.uri().path();
        let is_list = match ResourcePath::read(path) {
            Some(ResourcePath { subresource: Some("log" | "proxy"), .. }) => None,
            Some(ResourcePath { name, .. }) => {
                Some(name.is_none() && *request.method() != Method::POST)
            }
            // Discovery, or nothing of Kubernetes.
            None => path.starts_with("/api").then_some(true),
        };
        let mebibytes = match is_list {
            Some(true) => LIST_MIB,
            Some(false) => OBJECT_MIB,
            None => TEXT_MIB,
        };
        Self { weigher: is_list.map(Weigher::new), mebibytes }
    }
}

struct InTurn {
    body: Answer,
    expected: Expected,
    /// Bytes that have passed.
    passed: usize,
    all: PollSemaphore,
    part: PollSemaphore,
    /// Of its cluster's part. Held until the body is dropped, as is the turn.
    share: Option<OwnedSemaphorePermit>,
    /// With it, when it is looked whether others wait.
    turn: Option<(OwnedSemaphorePermit, Pin<Box<Sleep>>)>,
}

impl InTurn {
    /// Waits for its turn, first among those of its cluster: nobody else waits for a cluster that has its part.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mebibytes = self.expected.mebibytes;
        if self.share.is_none() {
            self.share = ready!(self.part.poll_acquire_many(cx, mebibytes));
        }
        if self.turn.is_none() {
            let turn = ready!(self.all.poll_acquire_many(cx, mebibytes));
            self.turn = turn.map(|turn| (turn, Box::pin(tokio::time::sleep(KEPT_FOR))));
        }
        Poll::Ready(())
    }

    /// Whether it has had its time, and others may wait.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        let Some((_, late)) = &mut self.turn else { return false };
        while late.poll_unpin(cx).is_ready() {
            if self.all.available_permits() < LIST_MIB as usize {
                return true;
            }
            *late = Box::pin(tokio::time::sleep(KEPT_FOR));
        }
        false
    }
}

impl Body for InTurn {
    type Data = <Answer as Body>::Data;
    type Error = WireError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, WireError>>> {
        let this = &mut *self;
        if this.passed > LARGE_BYTES {
            ready!(this.poll_turn(cx));
            if this.is_late(cx) {
                return Poll::Ready(Some(Err(SlowAnswer.into())));
            }
        }
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            this.passed += data.len();
            let weigher = this.expected.weigher.as_mut();
            if let Some(Err(heavy)) = weigher.map(|weigher| weigher.add(data)) {
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

    use futures::future::BoxFuture;
    use futures::{StreamExt, stream};
    use http_body_util::{Collected, StreamBody};

    use super::*;

    fn expected(method: Method, path: &str) -> Expected {
        Expected::of(&Request::builder().method(method).uri(path).body(()).unwrap())
    }

    type Reading = BoxFuture<'static, Result<Collected<<Answer as Body>::Data>, WireError>>;

    /// Reads a body of 64 frames of 16 KiB that then does not end, and counts what is read of it.
    fn read(turns: &LargeAnswers, path: &str) -> (Reading, Arc<AtomicUsize>) {
        let read = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&read);
        let frames = stream::iter(0..64).map(move |_| {
            count.fetch_add(16 << 10, Ordering::Relaxed);
            Ok::<_, WireError>(Frame::data(vec![b'x'; 16 << 10].into()))
        });
        let body = StreamBody::new(frames.chain(stream::pending())).boxed_unsync();
        let expected = Expected { weigher: None, ..expected(Method::GET, path) };
        (turns.in_turn(expected, body).collect().boxed(), read)
    }

    /// Lets all read on. How many KiB have been read of each.
    fn poll(all: &mut [(Reading, Arc<AtomicUsize>)]) -> Vec<usize> {
        for (reading, _) in &mut *all {
            assert!(reading.now_or_never().is_none());
        }
        all.iter().map(|(_, read)| read.load(Ordering::Relaxed) >> 10).collect()
    }

    const PODS: &str = "/api/v1/namespaces/web/pods";
    const POD: &str = "/api/v1/namespaces/web/pods/a";

    #[tokio::test(start_paused = true)]
    async fn of_a_cluster_one_list_or_eight_objects_are_read_at_once_and_others_wait_with_little() {
        let turns = LargeAnswers::default();
        let mut lists: Vec<_> = (0..3).map(|_| read(&turns, PODS)).collect();
        assert_eq!(poll(&mut lists), [1024, 272, 272]);
        drop(lists.remove(0));
        assert_eq!(poll(&mut lists), [1024, 272]);
        drop(lists);
        let mut objects: Vec<_> = (0..9).map(|_| read(&turns, POD)).collect();
        let read = poll(&mut objects);
        assert_eq!((&read[..8], read[8]), (&[1024; 8][..], 272));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_has_a_quarter_and_keeps_it_from_others_for_a_while_only() {
        let turns = LargeAnswers::default();
        let of_another = || read(&turns.of_another_cluster(), PODS);
        let mut lists: Vec<_> = (0..4).map(|_| of_another()).collect();
        assert_eq!(poll(&mut lists), [1024; 4]);
        let mut next = [of_another()];
        assert_eq!(poll(&mut next), [272]);
        let (first, _) = lists.remove(0);
        let error = first.await.unwrap_err();
        assert!(error.to_string().contains("others may wait for their turn; fix: "), "{error}");
        assert_eq!(poll(&mut next), [1024]);
        drop(next);
        // Nobody waits.
        tokio::time::sleep(2 * KEPT_FOR).await;
        assert_eq!(poll(&mut lists), [1024; 3]);
    }

    #[test]
    fn an_answer_is_weighed_as_what_was_asked_for() {
        for (method, path, expect) in [
            (Method::GET, PODS, Some(true)),
            (Method::DELETE, PODS, Some(true)),
            (Method::POST, PODS, Some(false)),
            (Method::GET, POD, Some(false)),
            (Method::PATCH, "/api/v1/namespaces/web/pods/a/status", Some(false)),
            (Method::GET, "/apis/apps/v1", Some(true)),
            (Method::GET, "/api/v1/namespaces/web/pods/a/log", None),
            (Method::GET, "/api/v1/namespaces/web/services/a/proxy/metrics", None),
            (Method::GET, "/metrics", None),
        ] {
            let Expected { weigher, mebibytes } = expected(method.clone(), path);
            let found = weigher.map(|mut weigher| {
                let objects = "{},".repeat(20_000);
                weigher.add(objects.as_bytes()).is_ok()
            });
            assert_eq!(found, expect, "{method} {path}");
            let most = expect.map_or(16, |is_list| if is_list { 33 } else { 4 });
            assert_eq!(mebibytes, most, "{method} {path}");
        }
    }
}
