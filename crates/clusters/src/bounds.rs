//! How large and how slow an answer of a server may be, whoever reads it.
//!
//! ```text
//!   kube::Client, Wire ◀── Bounded ◀── gzip ◀── Authenticated ◀── Connections
//! ```
//!
//! The bound counts what reaches memory: it is above decompression. An answer that exceeds it ends with an
//! [`Excess`], its connection is dropped, and what was read goes with the request. What takes time to unfold and unfolds
//! to nothing is counted below decompression, and what is no part of an answer below that, for each connection (`metered`).
//!
//! | answer | bytes | time |
//! |---|---|---|
//! | `/version` and the probes | [`SMALL_BYTES`] | [`WHOLE_TIME`] |
//! | discovery | [`DISCOVERY_BYTES`] | [`WHOLE_TIME`] |
//! | a refusal | [`REFUSAL_BYTES`] | [`WHOLE_TIME`] |
//! | an object, and the answer to a write of one | [`OBJECT_BYTES`] | [`WHOLE_TIME`] |
//! | a log, and what is no object | [`TEXT_BYTES`] | [`WHOLE_TIME`] |
//! | a list | [`LIST_BYTES`] | [`LIST_TIME`] |
//! | a watch | [`LINE_BYTES`] for each line | [`LINE_TIME`] for each line |
//! | a log that is followed | none: its reader has to stop | none |
//!
//! Whoever gathers an answer keeps each of its parts, however small: one counts for [`PART_BYTES`] at least.
//!
//! Who knows better sets a lower bound of its own: `identity` for one answer, `listwatch` for pages and
//! lines, and the budget of a cluster for everything that is kept.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use kube::client::Body;
use tokio::time::Sleep;
use tower::{BoxError, Service};

/// The most bytes of `/version`, which are about 400, and of a probe.
pub(crate) const SMALL_BYTES: usize = 64 << 10;
/// The most bytes of discovery. One resource takes about 500 in the aggregated form, and 5,000 definitions
/// with three verbs and a status take 4 MiB.
pub(crate) const DISCOVERY_BYTES: usize = 8 << 20;
/// The most bytes of a refusal: a Status, or a page of a proxy.
pub(crate) const REFUSAL_BYTES: usize = 1 << 20;
/// The most bytes of an object, as of one in a cache, and of the answer to a write of one. API servers take 3 MiB of one,
/// and etcd stores 1.5 MiB by default.
pub(crate) const OBJECT_BYTES: usize = 4 << 20;
/// The most bytes of a log, of what a proxy passes on, and of all else that is no object.
pub(crate) const TEXT_BYTES: usize = 16 << 20;
/// The most bytes of a list or of one page of it: more than `listwatch` takes, which then asks for less.
pub(crate) const LIST_BYTES: usize = 33 << 20;
/// The most bytes of a line of a watch: more than `listwatch` takes, which says why it refuses a line.
pub(crate) const LINE_BYTES: usize = 17 << 20;
/// The most bytes that may come without unfolding to as many. Gzip makes nothing longer but for a few bytes, so a whole
/// answer may have little more of them than its bound, and one without an end goes on for as long as it says something.
pub(crate) const FOLDED_BYTES: usize = 1 << 20;
/// How long an answer may take from its head to its end.
pub(crate) const WHOLE_TIME: Duration = Duration::from_secs(120);
/// How long a list may take. Its reader has bounds of its own, and may wait for its turn in between.
pub(crate) const LIST_TIME: Duration = Duration::from_secs(600);
/// The least that a part of an answer counts for. Servers and proxies send kilobytes at once.
const PART_BYTES: usize = 256;
/// How long a line of a watch may take from its first byte to its last.
pub(crate) const LINE_TIME: Duration = Duration::from_secs(60);

/// An answer beyond its bound.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Excess {
    /// It is too long.
    #[error("the answer to {what} is longer than {limit} bytes")]
    Long { what: String, limit: usize },
    /// A line of it is too long.
    #[error("the answer to {what} has a line longer than {limit} bytes")]
    Line { what: String, limit: usize },
    /// It unfolds to next to nothing.
    #[error("the answer to {what} has {limit} bytes that unfold to nothing")]
    Folded { what: String, limit: usize },
    /// It, or a line of it, takes too long.
    #[error("the answer to {what} has not come to its end within {}s", limit.as_secs())]
    Slow { what: String, limit: Duration },
}

/// What an answer may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    /// All of it has at most so many bytes.
    Whole(usize),
    /// Each line has at most so many bytes.
    Lines(usize),
    /// It has no bound.
    Open,
}

impl Bound {
    /// The bound of a successful answer.
    fn of(method: &Method, path: &str, query: &str) -> Self {
        let asks = |key: &str| {
            query.split('&').any(|pair| {
                pair.strip_prefix(key).is_some_and(|rest| matches!(rest, "=true" | "=1" | "="))
            })
        };
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        if asks("watch") && *method == Method::GET {
            return Self::Lines(LINE_BYTES);
        }
        let within = match parts.as_slice() {
            ["version" | "healthz" | "livez" | "readyz", ..] => return Self::Whole(SMALL_BYTES),
            ["api"] | ["api", _] | ["apis"] | ["apis", _] | ["apis", _, _] => {
                return Self::Whole(DISCOVERY_BYTES);
            }
            ["api", _, within @ ..] | ["apis", _, _, within @ ..] => within,
            _ => return Self::Whole(TEXT_BYTES),
        };
        let of_kind = match within {
            // The namespaces themselves have no namespace.
            ["namespaces"] | ["namespaces", _] => within,
            ["namespaces", _, of_kind @ ..] => of_kind,
            _ => within,
        };
        match of_kind {
            [_, _, "log"] if asks("follow") => Self::Open,
            [_, _, "log" | "proxy", ..] if *method == Method::GET => Self::Whole(TEXT_BYTES),
            [_] if matches!(*method, Method::GET | Method::DELETE) => Self::Whole(LIST_BYTES),
            _ => Self::Whole(OBJECT_BYTES),
        }
    }

    /// The bound of an answer with this status.
    fn answered(self, status: StatusCode) -> Self {
        match (self, status) {
            (_, StatusCode::SWITCHING_PROTOCOLS) => Self::Open,
            (bound, status) if status.is_success() => bound,
            (Self::Whole(bytes), _) => Self::Whole(bytes.min(REFUSAL_BYTES)),
            _ => Self::Whole(REFUSAL_BYTES),
        }
    }
}

/// Bytes that have come and of which a reader has not got as many: of one answer, below decompression; or of a
/// connection, from its socket. It goes with the request to where they come, and with the answer to where they are read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unread(Arc<AtomicUsize>);

impl Unread {
    /// So many have come.
    pub(crate) fn come(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A reader has got so many.
    pub(crate) fn read(&self, bytes: usize) {
        let less = |left: usize| Some(left.saturating_sub(bytes));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    pub(crate) fn is_more_than(&self, limit: usize) -> bool {
        self.0.load(Ordering::Relaxed) > limit
    }
}

/// A service whose answers are bounded.
#[derive(Clone, Debug)]
pub(crate) struct WithBounds<S>(pub(crate) S);

impl<S, B> Service<Request<Body>> for WithBounds<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: HttpBody + Send + 'static,
{
    type Response = Response<Bounded<B>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let folded = Unread::default();
        request.extensions_mut().insert(folded.clone());
        let (method, uri) = (request.method(), request.uri());
        let bound = Bound::of(method, uri.path(), uri.query().unwrap_or_default());
        let what = format!("{method} {}", uri.path());
        let answer = self.0.call(request);
        async move {
            let answer = answer.await?;
            let bound = bound.answered(answer.status());
            Ok(answer.map(|body| Bounded { folded, ..Bounded::new(body, bound, what) }))
        }
        .boxed()
    }
}

/// The body of an answer, within its bound.
pub(crate) struct Bounded<B> {
    /// None once it has exceeded its bound.
    body: Option<Pin<Box<B>>>,
    bound: Bound,
    /// The request, for people.
    what: String,
    /// Bytes that have passed: of the line, if lines are bounded.
    passed: usize,
    /// Bytes that have come below decompression.
    folded: Unread,
    /// When it is too late, from the first wait on.
    late: Option<Pin<Box<Sleep>>>,
}

impl<B> Bounded<B> {
    fn new(body: B, bound: Bound, what: String) -> Self {
        let folded = Unread::default();
        Self { body: Some(Box::pin(body)), bound, what, passed: 0, folded, late: None }
    }

    /// Counts a part of the body.
    fn pass(&mut self, part: &[u8]) -> Result<(), Excess> {
        let what = || self.what.clone();
        self.folded.read(part.len());
        match self.bound {
            Bound::Open => Ok(()),
            Bound::Whole(limit) => {
                self.passed = self.passed.saturating_add(part.len().max(PART_BYTES));
                if self.passed > limit { Err(Excess::Long { what: what(), limit }) } else { Ok(()) }
            }
            Bound::Lines(limit) => {
                let first = memchr::memchr(b'\n', part).unwrap_or(part.len());
                // A part is what a connection has read at once: only lines at its ends can be long.
                let ended = memchr::memrchr(b'\n', part).map(|last| part.len() - last - 1);
                let longest = (self.passed + first).max(ended.unwrap_or_default());
                if longest > limit {
                    return Err(Excess::Line { what: what(), limit });
                }
                if let Some(rest) = ended {
                    self.late = None;
                    self.passed = rest;
                } else {
                    self.passed += part.len();
                }
                Ok(())
            }
        }
    }

    /// Checks the time while nothing comes, and how much has come for it. The clock runs from the first wait for the
    /// whole, or for the rest of a line.
    fn wait(&mut self, cx: &mut Context<'_>) -> Result<(), Excess> {
        if self.folded.is_more_than(FOLDED_BYTES) {
            return Err(Excess::Folded { what: self.what.clone(), limit: FOLDED_BYTES });
        }
        let limit = match self.bound {
            Bound::Whole(LIST_BYTES) => LIST_TIME,
            Bound::Whole(_) => WHOLE_TIME,
            Bound::Lines(_) if self.passed > 0 => LINE_TIME,
            Bound::Lines(_) | Bound::Open => return Ok(()),
        };
        let late = self.late.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        match late.poll_unpin(cx) {
            Poll::Ready(()) => Err(Excess::Slow { what: self.what.clone(), limit }),
            Poll::Pending => Ok(()),
        }
    }
}

impl<B> HttpBody for Bounded<B>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        let counted = match body.as_mut().poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let counted = this.pass(frame.data_ref().map_or(&[], |data| data));
                counted.map(|()| Poll::Ready(Some(Ok(frame))))
            }
            Poll::Ready(ended) => Ok(Poll::Ready(ended.map(|error| error.map_err(Into::into)))),
            Poll::Pending => this.wait(cx).map(|()| Poll::Pending),
        };
        counted.unwrap_or_else(|excess| {
            // It ends the stream, or its connection.
            this.body = None;
            Poll::Ready(Some(Err(excess.into())))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), |body| body.size_hint())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;

    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    #[test]
    fn an_answer_is_bounded_by_what_was_asked() {
        use Bound::{Lines, Open, Whole};
        for (path, query, expect) in [
            ("/version", "", Whole(SMALL_BYTES)),
            ("/readyz/etcd", "verbose", Whole(SMALL_BYTES)),
            ("/api", "", Whole(DISCOVERY_BYTES)),
            ("/api/v1", "", Whole(DISCOVERY_BYTES)),
            ("/apis/apps/v1/", "", Whole(DISCOVERY_BYTES)),
            ("/api/v1/namespaces", "limit=500", Whole(LIST_BYTES)),
            ("/api/v1/namespaces/kube-system", "", Whole(OBJECT_BYTES)),
            ("/api/v1/namespaces/web/pods", "", Whole(LIST_BYTES)),
            ("/api/v1/namespaces/web/pods/a", "", Whole(OBJECT_BYTES)),
            ("/api/v1/namespaces/web/pods/a/log", "", Whole(TEXT_BYTES)),
            ("/api/v1/namespaces/web/pods/a/proxy/metrics", "", Whole(TEXT_BYTES)),
            ("/api/v1/namespaces/web/pods/a/log", "tailLines=9&follow=true", Open),
            ("/api/v1/namespaces/web/pods/a/status", "follow=true", Whole(OBJECT_BYTES)),
            ("/apis/apps/v1/deployments", "", Whole(LIST_BYTES)),
            ("/apis/apps/v1/deployments", "&watch=true&timeoutSeconds=9", Lines(LINE_BYTES)),
            ("/apis/apps/v1/deployments", "watch=1", Lines(LINE_BYTES)),
            ("/apis/apps/v1/deployments", "watch=false&watchful=true", Whole(LIST_BYTES)),
            ("/apis/apps/v1/namespaces/web/deployments/a", "", Whole(OBJECT_BYTES)),
            ("/openapi/v3", "", Whole(TEXT_BYTES)),
            ("", "", Whole(TEXT_BYTES)),
        ] {
            assert_eq!(Bound::of(&Method::GET, path, query), expect, "{path}?{query}");
        }
        let (pods, pod) = ("/api/v1/namespaces/web/pods", "/api/v1/namespaces/web/pods/a");
        for (method, path, expect) in [
            (Method::PATCH, pod, OBJECT_BYTES),
            (Method::PUT, "/apis/apps/v1/namespaces/web/deployments/a/status", OBJECT_BYTES),
            (Method::POST, pods, OBJECT_BYTES),
            (Method::DELETE, pod, OBJECT_BYTES),
            (Method::DELETE, pods, LIST_BYTES),
        ] {
            let bound = Bound::of(&method, path, "watch=true");
            assert_eq!(bound, Whole(expect), "{method} {path}");
        }
        let refusal = Lines(LINE_BYTES).answered(StatusCode::FORBIDDEN);
        assert_eq!(refusal, Whole(REFUSAL_BYTES));
        let small = Whole(SMALL_BYTES).answered(StatusCode::FORBIDDEN);
        assert_eq!(small, Whole(SMALL_BYTES));
        assert_eq!(Whole(1).answered(StatusCode::SWITCHING_PROTOCOLS), Open);
    }

    /// A body of these parts, and then nothing more for ever.
    fn body(
        parts: Vec<Vec<u8>>,
        bound: Bound,
    ) -> Bounded<impl HttpBody<Data = Bytes, Error = Infallible>> {
        let mut parts = VecDeque::from(parts);
        let parts = futures::stream::poll_fn(move |_| match parts.pop_front() {
            Some(part) => Poll::Ready(Some(Ok(Frame::data(Bytes::from(part))))),
            None => Poll::Pending,
        });
        Bounded::new(StreamBody::new(parts), bound, "GET /x".to_owned())
    }

    /// Bytes that pass, and why no more do.
    async fn passes(parts: Vec<Vec<u8>>, bound: Bound) -> (usize, Option<Excess>) {
        let mut body = body(parts, bound);
        let mut passed = 0;
        loop {
            // The clock jumps to the next timer, and there is none later than this.
            let next = tokio::time::timeout(WHOLE_TIME * 2, body.frame()).await;
            match next {
                Ok(Some(Ok(frame))) => passed += frame.into_data().unwrap().len(),
                Ok(Some(Err(error))) => {
                    assert!(body.frame().await.is_none(), "nothing comes after an excess");
                    return (passed, Some(*error.downcast().unwrap()));
                }
                Ok(None) => panic!("the body does not end"),
                Err(_) => return (passed, None),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_byte_more_than_the_bound_ends_an_answer() {
        let what = || "GET /x".to_owned();
        let slow = Excess::Slow { what: what(), limit: WHOLE_TIME };
        let whole = Bound::Whole(1000);
        assert_eq!(passes(vec![vec![b'x'; 600], vec![b'x'; 400]], whole).await, (1000, Some(slow)));
        let long = || Some(Excess::Long { what: what(), limit: 1000 });
        assert_eq!(passes(vec![vec![b'x'; 600], vec![b'x'; 401]], whole).await, (600, long()));
        // What keeps the parts counts, too.
        assert_eq!(passes(vec![vec![b'x']; 1000], whole).await, (3, long()));
    }

    #[tokio::test(start_paused = true)]
    async fn lines_are_bounded_one_by_one_and_may_come_for_ever() {
        let line = |length: usize| [vec![b'x'; length], vec![b'\n']].concat();
        let lines = Bound::Lines(10);
        assert_eq!(passes(vec![line(10); 50], lines).await, (550, None));
        let long = || Some(Excess::Line { what: "GET /x".to_owned(), limit: 10 });
        assert_eq!(passes(vec![line(11)], lines).await, (0, long()));
        let parts = vec![vec![b'x'; 6], vec![b'x'; 5]];
        assert_eq!(passes(parts, lines).await, (6, long()));
        let parts = vec![[line(3), vec![b'x'; 8]].concat(), vec![b'x'; 3]];
        assert_eq!(passes(parts, lines).await, (12, long()));
        // A line that has begun must come to its end.
        let slow = Excess::Slow { what: "GET /x".to_owned(), limit: LINE_TIME };
        assert_eq!(passes(vec![line(3), vec![b'x']], lines).await, (5, Some(slow)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_trickles_ends_in_time() {
        let trickle = |line: &'static [u8]| {
            let parts = futures::stream::unfold((), move |()| async move {
                tokio::time::sleep(Duration::from_secs(7)).await;
                Some((Ok::<_, Infallible>(Frame::data(Bytes::from_static(line))), ()))
            });
            StreamBody::new(parts)
        };
        for (bound, limit) in
            [(Bound::Whole(SMALL_BYTES), WHOLE_TIME), (Bound::Lines(LINE_BYTES), LINE_TIME)]
        {
            let body = Bounded::new(trickle(b"x"), bound, "GET /x".to_owned()).collect();
            let ended = tokio::time::timeout(limit + Duration::from_secs(8), body).await;
            let error = ended.expect("in time").unwrap_err().downcast::<Excess>().unwrap();
            assert_eq!(*error, Excess::Slow { what: "GET /x".to_owned(), limit });
        }
        // Whole lines may come slowly.
        let body = Bounded::new(trickle(b"x\n"), Bound::Lines(9), "GET /x".to_owned()).collect();
        let hour = tokio::time::timeout(Duration::from_secs(3600), body).await;
        assert!(hour.is_err(), "it goes on");
    }
}
