//! Answers to reconciles: weighed before anybody decodes them, and large ones read a few at a time, of one cluster and
//! of all together. Whoever waits for its turn has read little, so a cluster that answers all workers with megabytes
//! costs its part, a quarter of what all have, and others wait for it no longer than [`KEPT_FOR`].
//!
//! A turn ends with the body. What a reconcile then keeps of it, decoded, is bounded by the weigher for each answer,
//! and by the number of workers for all: if reconciles kept their turns until they end, one that waits for something
//! else would keep those of its cluster waiting, and one that reads two lists would wait for itself.
//!
//! A turn is for who reads. It is taken back from a body that is left alone, and its reader waits for another one
//! when it comes back. If the same reconcile waits for a further answer, that is at once for a body of which it has
//! all that has come, and for another one when its reader does not come within a moment of being woken. If others
//! may wait, it is after [`KEPT_FOR`].
//!
//! # Invariants
//! - No reconcile waits for bytes that it holds itself ([`Reads`]), of whatever clusters.
//! - A body whose reader waits for the server keeps its turn, whoever waits: else a server that stops in the middle
//!   of each answer would have them all read at once.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use cache::Weigher;
use futures::FutureExt;
use http::{Method, Request};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use model::wire::{Answer, WireError};
use model::{ClusterName, WeakMap};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::PollSemaphore;
use tokio_util::task::AbortOnDropHandle;
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
/// How long a reader that is woken may take to read on.
const COMES_WITHIN: Duration = Duration::from_millis(250);

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

/// The parts of clusters.
pub(crate) type LargeParts = WeakMap<ClusterName, Semaphore>;

impl Default for LargeAnswers {
    fn default() -> Self {
        let [all, part] = [ALL_MIB, CLUSTER_MIB].map(|most| Arc::new(Semaphore::new(most)));
        Self { all, part }
    }
}

impl LargeAnswers {
    /// Those of a cluster. What goes on since an earlier engagement of it has the same part.
    pub(crate) fn of(&self, cluster: &ClusterName, parts: &mut LargeParts) -> Self {
        let part = parts.get(cluster).unwrap_or_else(|| Self::default().part);
        parts.insert(cluster.clone(), &part);
        Self { all: Arc::clone(&self.all), part }
    }

    /// The body of an answer, among those that one reconcile reads. If it is large, it is read on when it is its
    /// turn. What would take too much once it is decoded breaks it off, and so does time if others wait.
    pub(crate) fn in_turn(&self, reads: Reads, expected: Expected, body: Answer) -> Answer {
        let (large, begun, late, asked) = (self.clone(), None, None, None);
        InTurn { body, expected, passed: 0, large, reads, begun, late, asked }.boxed_unsync()
    }
}

/// The large answers that one reconcile reads. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Reads(Arc<Mutex<Turns>>);

#[derive(Default)]
struct Turns {
    last: u64,
    /// By the number of the answer.
    of: BTreeMap<u64, Turn>,
}

/// What one answer has of a turn, or its places where it waits for one.
struct Turn {
    /// Of its cluster's part, which comes first, and of what all have.
    share: Option<OwnedSemaphorePermit>,
    whole: Option<OwnedSemaphorePermit>,
    part: PollSemaphore,
    all: PollSemaphore,
    waits: bool,
    /// Whom to wake while the reader reads on or waits for more; nobody while it is busy with what it has read.
    reader: Option<Waker>,
    /// How often the reader has come.
    visits: u64,
}

/// What an answer has given up.
type Given = (Option<OwnedSemaphorePermit>, Option<OwnedSemaphorePermit>, [PollSemaphore; 2]);

/// Answers whose readers were woken, by number, and how often each had come before.
type Asked = Vec<(u64, u64)>;

impl Reads {
    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.0.lock().expect("no holder of this lock panics")
    }

    /// One more answer is large. Returns its number.
    fn begin(&self, large: &LargeAnswers) -> u64 {
        let [part, all] = [&large.part, &large.all].map(|of| PollSemaphore::new(Arc::clone(of)));
        let (share, whole, waits, reader, visits) = (None, None, false, None, 0);
        let mut turns = self.turns();
        turns.last += 1;
        let number = turns.last;
        turns.of.insert(number, Turn { share, whole, part, all, waits, reader, visits });
        number
    }

    /// Looks at what an answer has, or changes it.
    fn with<T>(&self, number: u64, act: impl FnOnce(&mut Turn) -> T) -> T {
        act(self.turns().of.get_mut(&number).expect("it is there until its end"))
    }

    /// An answer is read no more.
    fn end(&self, number: u64) {
        let ended = self.turns().of.remove(&number);
        // Others are woken by this: not under the lock.
        drop(ended);
    }

    /// Wakes the readers of those answers that have something of a turn or wait for one.
    fn ask(&self, whose: impl Fn(u64) -> bool) -> Asked {
        let turns = self.turns();
        let held = turns.of.iter().filter(|(of, turn)| turn.is_held() && whose(**of));
        let (asked, readers): (Asked, Vec<_>) =
            held.map(|(of, turn)| ((*of, turn.visits), turn.reader.clone())).unzip();
        drop(turns);
        readers.into_iter().flatten().for_each(Waker::wake);
        asked
    }

    /// Takes back what those answers have of a turn, and their places where they wait. Returns whether any had
    /// something.
    fn take_back(&self, which: impl Fn(u64, &Turn) -> bool) -> bool {
        let mut turns = self.turns();
        let held = turns.of.iter_mut().filter(|(of, turn)| turn.is_held() && which(**of, turn));
        let taken: Vec<_> = held.map(|(_, turn)| turn.give_back()).collect();
        drop(turns);
        !taken.is_empty()
    }

    /// Takes the turn of an answer back each time that its reader does not come any more.
    async fn watch(self, number: u64) {
        loop {
            sleep(KEPT_FOR).await;
            let asked = self.ask(|of| of == number);
            sleep(COMES_WITHIN).await;
            self.take_back(|of, turn| asked.contains(&(of, turn.visits)));
        }
    }
}

impl Turn {
    fn is_held(&self) -> bool {
        self.waits || self.share.is_some() || self.whole.is_some()
    }

    /// The reader is here. Returns whom to wake no more.
    fn visit(&mut self, reader: Waker) -> Option<Waker> {
        self.visits += 1;
        self.reader.replace(reader)
    }

    /// Takes what it does not have, first of its cluster's part: nobody else waits for a cluster that has its part.
    /// Returns whether it had no turn before.
    fn poll(&mut self, mebibytes: u32, cx: &mut Context<'_>) -> Poll<bool> {
        let is_new = self.whole.is_none();
        self.waits = true;
        if self.share.is_none() {
            self.share = ready!(self.part.poll_acquire_many(cx, mebibytes));
        }
        if is_new {
            self.whole = ready!(self.all.poll_acquire_many(cx, mebibytes));
        }
        self.waits = false;
        Poll::Ready(is_new)
    }

    /// Gives up everything: others have it once what is returned is dropped.
    fn give_back(&mut self) -> Given {
        self.waits = false;
        let places = [&mut self.part, &mut self.all].map(|place| {
            let last = place.clone();
            std::mem::replace(place, last)
        });
        (self.share.take(), self.whole.take(), places)
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

type Part = Frame<<Answer as Body>::Data>;

struct InTurn {
    body: Answer,
    expected: Expected,
    /// Bytes that have passed.
    passed: usize,
    large: LargeAnswers,
    reads: Reads,
    /// Its number among those, once it is large, and what takes its turn back if it is left alone.
    begun: Option<(u64, AbortOnDropHandle<()>)>,
    /// When it is looked whether others wait for it.
    late: Option<Pin<Box<Sleep>>>,
    /// While it waits: the other answers of its reconcile, and until when their readers may come.
    asked: Option<(Pin<Box<Sleep>>, Asked)>,
}

impl InTurn {
    /// Its number, once it is large.
    fn begin(&mut self) -> u64 {
        let Self { reads, large, begun, .. } = self;
        let (number, _) = begun.get_or_insert_with(|| {
            let number = reads.begin(large);
            (number, AbortOnDropHandle::new(tokio::spawn(reads.clone().watch(number))))
        });
        *number
    }

    /// Waits for its turn.
    fn poll_turn(&mut self, number: u64, cx: &mut Context<'_>) -> Poll<()> {
        let mebibytes = self.expected.mebibytes;
        let mut polled = self.reads.with(number, |turn| turn.poll(mebibytes, cx));
        if polled.is_pending() && self.others_give_way(number, cx) {
            polled = self.reads.with(number, |turn| turn.poll(mebibytes, cx));
        }
        if ready!(polled) {
            self.late = Some(Box::pin(sleep(KEPT_FOR)));
        }
        self.asked = None;
        Poll::Ready(())
    }

    /// While it waits, the other answers of its reconcile keep what they have only if they are read on. Returns
    /// whether one gave something up.
    fn others_give_way(&mut self, number: u64, cx: &mut Context<'_>) -> bool {
        let reads = &self.reads;
        let mut gave = reads.take_back(|of, turn| of != number && turn.reader.is_none());
        loop {
            let (until, asked) = self.asked.get_or_insert_with(|| {
                (Box::pin(sleep(COMES_WITHIN)), reads.ask(|of| of != number))
            });
            if until.poll_unpin(cx).is_pending() {
                return gave;
            }
            gave |= reads.take_back(|of, turn| asked.contains(&(of, turn.visits)));
            self.asked = None;
        }
    }

    /// Whether it has had its time, and others may wait.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(late) = &mut self.late else { return false };
        while late.poll_unpin(cx).is_ready() {
            if self.large.all.available_permits() < LIST_MIB as usize {
                return true;
            }
            *late = Box::pin(sleep(KEPT_FOR));
        }
        false
    }

    /// Reads on, when it is its turn.
    fn poll_on(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Part, WireError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.passed += data.len();
            let weigher = self.expected.weigher.as_mut();
            if let Some(Err(heavy)) = weigher.map(|weigher| weigher.add(data)) {
                return Poll::Ready(Some(Err(heavy.into())));
            }
        }
        Poll::Ready(frame)
    }
}

impl Body for InTurn {
    type Data = <Answer as Body>::Data;
    type Error = WireError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Part, WireError>>> {
        let this = &mut *self;
        if this.passed <= LARGE_BYTES {
            return this.poll_on(cx);
        }
        let number = this.begin();
        let reader = cx.waker().clone();
        drop(this.reads.with(number, |turn| turn.visit(reader)));
        let polled = match this.poll_turn(number, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) if this.is_late(cx) => Poll::Ready(Some(Err(SlowAnswer.into()))),
            Poll::Ready(()) => this.poll_on(cx),
        };
        if polled.is_ready() {
            // It is busy with what has come.
            drop(this.reads.with(number, |turn| turn.reader.take()));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for InTurn {
    fn drop(&mut self) {
        if let Some((number, _)) = self.begun {
            self.reads.end(number);
        }
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

    /// A body of 64 frames of 16 KiB that then does not end, and how much of it was read.
    fn answer(turns: &LargeAnswers, reads: &Reads, path: &str) -> (Answer, Arc<AtomicUsize>) {
        let read = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&read);
        let frames = stream::iter(0..64).map(move |_| {
            count.fetch_add(16 << 10, Ordering::Relaxed);
            Ok::<_, WireError>(Frame::data(vec![b'x'; 16 << 10].into()))
        });
        let body = StreamBody::new(frames.chain(stream::pending())).boxed_unsync();
        let expected = Expected { weigher: None, ..expected(Method::GET, path) };
        (turns.in_turn(reads.clone(), expected, body), read)
    }

    /// Reads such a body to its end, among what a reconcile reads.
    fn read_with(turns: &LargeAnswers, reads: &Reads, path: &str) -> (Reading, Arc<AtomicUsize>) {
        let (body, read) = answer(turns, reads, path);
        (body.collect().boxed(), read)
    }

    /// The same in a reconcile of its own.
    fn read(turns: &LargeAnswers, path: &str) -> (Reading, Arc<AtomicUsize>) {
        read_with(turns, &Reads::default(), path)
    }

    /// Reads so many frames, of the 64.
    async fn read_some(body: &mut Answer, frames: usize) {
        for _ in 0..frames {
            body.frame().await.unwrap().unwrap();
        }
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
        let (turns, parts) = (LargeAnswers::default(), &mut LargeParts::default());
        let east: ClusterName = "east".parse().unwrap();
        // However often it is engaged anew meanwhile.
        let mut lists: Vec<_> = (0..3).map(|_| read(&turns.of(&east, parts), PODS)).collect();
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
        let another = || turns.of(&"o".parse().unwrap(), &mut LargeParts::default());
        let mut lists: Vec<_> = (0..4).map(|_| read(&another(), PODS)).collect();
        assert_eq!(poll(&mut lists), [1024; 4]);
        let mut next = [read(&another(), PODS)];
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

    const LOG: &str = "/api/v1/namespaces/web/pods/a/log";

    #[tokio::test(start_paused = true)]
    async fn a_reconcile_that_reads_a_part_of_one_answer_reads_the_next_at_once() {
        let (turns, reads) = (LargeAnswers::default(), Reads::default());
        let (mut log, of_log) = answer(&turns, &reads, LOG);
        read_some(&mut log, 20).await;
        let mut list = [read_with(&turns, &reads, PODS)];
        assert_eq!(poll(&mut list), [1024], "nothing is waited for");
        // It goes on when it has its turn again: the list waits for its server, and keeps it.
        let mut log = [(log.collect().boxed(), of_log)];
        assert_eq!(poll(&mut log), [320]);
        drop(list);
        assert_eq!(poll(&mut log), [1024]);
    }

    #[tokio::test(start_paused = true)]
    async fn two_answers_may_be_read_in_turns_frame_by_frame() {
        let (turns, reads) = (LargeAnswers::default(), Reads::default());
        let (mut one, _) = answer(&turns, &reads, PODS);
        let (mut other, _) = answer(&turns, &reads, PODS);
        let frame_by_frame = async {
            for _ in 0..64 {
                read_some(&mut one, 1).await;
                read_some(&mut other, 1).await;
            }
        };
        let read = tokio::time::timeout(COMES_WITHIN / 2, frame_by_frame).await;
        read.expect("nothing is waited for");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_its_reader_has_left_gives_way_and_one_that_is_read_does_not() {
        let (turns, reads) = (LargeAnswers::default(), Reads::default());
        let (mut log, _) = answer(&turns, &reads, LOG);
        read_some(&mut log, 64).await;
        assert!(log.frame().now_or_never().is_none(), "its server is slow");
        let mut lists = [read_with(&turns, &reads, PODS), read_with(&turns, &reads, PODS)];
        assert_eq!(poll(&mut lists), [272, 272]);
        sleep(2 * COMES_WITHIN).await;
        assert_eq!(poll(&mut lists), [1024, 272]);
        for _ in 0..3 {
            sleep(2 * COMES_WITHIN).await;
            assert_eq!(poll(&mut lists), [1024, 272], "the first is read on");
        }
    }

    /// Another task of the reconcile waits for its turn meanwhile.
    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_read_at_this_moment_does_not_give_way() {
        let (turns, reads) = (LargeAnswers::default(), Reads::default());
        let mut other = [read_with(&turns, &reads, PODS)];
        let frame = |_| Ok::<_, WireError>(Frame::data(vec![b'x'; 16 << 10].into()));
        let slow = stream::poll_fn(move |_| {
            assert_eq!(poll(&mut other), [272]);
            Poll::Pending
        });
        let body = StreamBody::new(stream::iter(0..20).map(frame).chain(slow)).boxed_unsync();
        let expected = Expected { weigher: None, ..expected(Method::GET, PODS) };
        let mut body = turns.in_turn(reads, expected, body);
        read_some(&mut body, 20).await;
        assert!(body.frame().now_or_never().is_none(), "its server is slow");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reconcile_that_holds_what_all_have_of_four_clusters_does_not_wait_for_itself() {
        let (turns, reads, mut parts) = (LargeAnswers::default(), Reads::default(), Vec::new());
        let another = || turns.of(&"o".parse().unwrap(), &mut LargeParts::default());
        for _ in 0..4 {
            let (mut body, _) = answer(&another(), &reads, PODS);
            read_some(&mut body, 20).await;
            parts.push(body);
        }
        let mut fifth = [read_with(&another(), &reads, PODS)];
        assert_eq!(poll(&mut fifth), [1024]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_waited_for_its_turn_and_was_left_gives_its_place_up() {
        let (turns, reads) = (LargeAnswers::default(), Reads::default());
        let first = read(&turns, PODS);
        let mut waiting = [first, read_with(&turns, &reads, PODS), read_with(&turns, &reads, PODS)];
        assert_eq!(poll(&mut waiting), [1024, 272, 272]);
        let [first, _left, third] = waiting;
        drop(first);
        let mut third = [third];
        assert_eq!(poll(&mut third), [272], "it is the turn of the other one");
        sleep(2 * COMES_WITHIN).await;
        assert_eq!(poll(&mut third), [1024]);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_keeps_an_answer_and_does_not_read_it_keeps_others_for_a_while_only() {
        let turns = LargeAnswers::default();
        let (mut kept, _) = answer(&turns, &Reads::default(), PODS);
        read_some(&mut kept, 20).await;
        let mut next = [read(&turns, PODS)];
        assert_eq!(poll(&mut next), [272]);
        sleep(KEPT_FOR + 2 * COMES_WITHIN).await;
        assert_eq!(poll(&mut next), [1024]);
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
