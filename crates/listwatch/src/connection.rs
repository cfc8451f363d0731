//! The shell of list and watch: sends a request, reads the answer, waits. `machine` decides what an
//! answer means.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{ACCEPT, ACCEPT_ENCODING, HeaderValue};
use http::{Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use kube::api::{ListParams, WatchParams};
use kube::core::Request as UrlBuilder;
use model::wire::Answer as Body;
use model::{Kind, Wire};
use tokio::time::Sleep;

use crate::intake::{Intake, LargeLine, PAGE_KIB, STREAM_KIB, Share, WHOLE_KIB};
use crate::lines::{LARGE_LINE_BYTES, LineTooLong, Lines};
use crate::machine::{End, Request};
use crate::scope::{Form, Scope};
use crate::wire;

/// A watch on which nothing is heard for this long, not even a bookmark, is given up: servers send
/// one about each minute.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(150);
/// How long reading one page may take.
pub const PAGE_TIMEOUT: Duration = Duration::from_secs(120);
/// The largest refusal read.
const MAX_REFUSAL_BYTES: usize = 64 << 10;

/// Of a list, the metadata alone; whole objects from a server that cannot send that
/// (<https://kubernetes.io/docs/reference/using-api/api-concepts/#alternate-representations-of-resources>).
const METADATA_LIST: HeaderValue = HeaderValue::from_static(
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
);
/// The same of a watch.
const METADATA: HeaderValue = HeaderValue::from_static(
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
);

/// What came of a request.
#[derive(Debug)]
pub enum Arrival {
    /// The server began to answer a watch.
    Opened,
    /// A whole page.
    Page(Bytes),
    /// A whole line.
    Line(Bytes),
    /// It is over; with a text for people where it failed.
    End(End, Option<String>),
}

/// One list-and-watch's way to the server: at most one request at a time.
pub struct Connection {
    wire: Wire,
    kind: Kind,
    scope: Scope,
    form: Form,
    intake: Intake,
    /// Of a list, until all of it is stored.
    share: Option<Share>,
    state: State,
}

enum State {
    Waiting(Pin<Box<Sleep>>, Asked),
    Asking(BoxFuture<'static, Answer>),
    /// An answer waits to be taken in.
    Answered(Answer),
    Reading {
        body: Body,
        lines: Lines,
        idle: Pin<Box<Sleep>>,
        /// While a large line is read.
        large: Option<LargeLine>,
    },
    /// Over; nothing comes until the next [`Connection::request`].
    Over,
}

/// A request, and the `shardSelector` that goes with it.
#[derive(Clone)]
struct Asked(Request, Option<String>);

enum Answer {
    Stream(Body),
    Page(Bytes),
    Failed(End, String),
}

impl Connection {
    /// One that sends its requests through `wire`, and takes in lists as `intake` allows.
    pub fn new(wire: Wire, kind: Kind, scope: Scope, form: Form, intake: Intake) -> Self {
        Self { wire, kind, scope, form, intake, share: None, state: State::Over }
    }

    /// Sends a request after a wait, dropping one that may be under way.
    pub fn request(&mut self, request: Request, selector: Option<String>, after: Duration) {
        self.share = self.share_of(&request);
        self.state = State::Waiting(Box::pin(tokio::time::sleep(after)), Asked(request, selector));
    }

    /// Sends another request than the last, at once unless that one waits: then when it would have
    /// been sent.
    pub fn instead(&mut self, request: Request, selector: Option<String>) {
        let share = self.share_of(&request);
        match &mut self.state {
            State::Waiting(_, asked) => {
                *asked = Asked(request, selector);
                self.share = share;
            }
            _ => self.request(request, selector, Duration::ZERO),
        }
    }

    /// The list is stored; what comes is what changes.
    pub fn listed(&mut self) {
        self.share = None;
    }

    fn share_of(&self, request: &Request) -> Option<Share> {
        match request {
            Request::List { limit, .. } => Some(self.intake.share(page_kib(*limit))),
            Request::Stream { .. } => Some(self.intake.share(STREAM_KIB)),
            Request::Watch { .. } => None,
        }
    }

    /// What comes next. Cancel-safe: whatever was under way goes on with the next call.
    pub async fn next(&mut self) -> Arrival {
        loop {
            match &mut self.state {
                State::Waiting(sleep, request) => {
                    sleep.await;
                    hold(&mut self.share).await;
                    let request = request.clone();
                    self.state = State::Asking(self.ask(&request));
                }
                State::Asking(answer) => {
                    self.state = State::Answered(lent_during(&mut self.share, answer).await);
                }
                State::Answered(_) => {
                    hold(&mut self.share).await;
                    return self.answered();
                }
                State::Reading { body, lines, idle, large } => {
                    let read = read(body, lines, idle, &mut self.share, (&self.intake, large));
                    return match read.await {
                        Ok(line) => Arrival::Line(line),
                        Err((end, why)) => self.over(end, why),
                    };
                }
                State::Over => std::future::pending().await,
            }
        }
    }

    fn answered(&mut self) -> Arrival {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Answered(Answer::Stream(body)) => {
                let idle = Box::pin(tokio::time::sleep(IDLE_TIMEOUT));
                self.state = State::Reading { body, lines: Lines::default(), idle, large: None };
                Arrival::Opened
            }
            State::Answered(Answer::Page(bytes)) => Arrival::Page(bytes),
            State::Answered(Answer::Failed(end, why)) => Arrival::End(end, Some(why)),
            _ => unreachable!("it is called for an answer"),
        }
    }

    fn over(&mut self, end: End, why: Option<String>) -> Arrival {
        self.state = State::Over;
        Arrival::End(end, why)
    }

    fn ask(&self, Asked(request, selector): &Asked) -> BoxFuture<'static, Answer> {
        let max_bytes = match request {
            Request::List { limit, .. } => Some((page_kib(*limit) as usize) << 10),
            Request::Stream { .. } | Request::Watch { .. } => None,
        };
        let stream = max_bytes.is_none();
        let request = self.http_request(request);
        let request = match request.map(|request| selected(request, selector.as_deref())) {
            Ok(mut request) => {
                if self.form == Form::Metadata {
                    let accepted = if stream { METADATA } else { METADATA_LIST };
                    request.headers_mut().insert(ACCEPT, accepted);
                }
                request
            }
            Err(error) => {
                let why = model::error::chain(&error);
                return futures::future::ready(Answer::Failed(End::Refused(400), why)).boxed();
            }
        };
        let wire = self.wire.clone();
        let request = request.map(kube::client::Body::from);
        let answer = async move {
            let response = match wire.send(request).await {
                Ok(response) => response,
                Err(error) => return Answer::Failed(End::Lost, model::error::chain(&*error)),
            };
            match (response.status(), max_bytes) {
                (status, _) if !status.is_success() => refused(status, response).await,
                (_, None) => Answer::Stream(response.into_body()),
                (_, Some(max_bytes)) => page(response, max_bytes).await,
            }
        };
        answer.boxed()
    }

    fn http_request(
        &self,
        request: &Request,
    ) -> Result<http::Request<Vec<u8>>, kube::core::request::Error> {
        let url = UrlBuilder::new(self.kind.collection_path(self.scope.namespace.as_deref()));
        let labels = Some(self.scope.labels.to_string()).filter(|labels| !labels.is_empty());
        let fields = Some(self.scope.fields.clone()).filter(|fields| !fields.is_empty());
        let watch = |timeout_seconds: u32| WatchParams {
            label_selector: labels.clone(),
            field_selector: fields.clone(),
            timeout: Some(timeout_seconds),
            bookmarks: true,
            send_initial_events: false,
        };
        match request {
            Request::List { continue_token, limit } => url.list(&ListParams {
                label_selector: labels,
                field_selector: fields,
                limit: *limit,
                continue_token: continue_token.clone(),
                ..ListParams::default()
            }),
            Request::Stream { timeout_seconds } => {
                url.watch(&watch(*timeout_seconds).initial_events(), "").map(uncompressed)
            }
            Request::Watch { resource_version, timeout_seconds } => {
                url.watch(&watch(*timeout_seconds), resource_version).map(uncompressed)
            }
        }
    }
}

/// Adds a `shardSelector`.
fn selected(mut request: http::Request<Vec<u8>>, selector: Option<&str>) -> http::Request<Vec<u8>> {
    if let Some(selector) = selector {
        let uri = request.uri().to_string();
        let parameter = form_urlencoded::Serializer::new(String::new())
            .append_pair("shardSelector", selector)
            .finish();
        // Every such request has a query already, if only of an empty pair.
        let uri = format!("{uri}&{parameter}").parse();
        *request.uri_mut() = uri.expect("a valid query with one more pair is valid");
    }
    request
}

/// Servers from 1.37 on compress each watch event as a gzip member of its own, of which common
/// decoders read only the first.
fn uncompressed(mut request: http::Request<Vec<u8>>) -> http::Request<Vec<u8>> {
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    request
}

async fn refused(status: StatusCode, response: Response<Body>) -> Answer {
    let body = whole(response.into_body(), MAX_REFUSAL_BYTES);
    let body = match tokio::time::timeout(PAGE_TIMEOUT, body).await {
        Ok(Ok(body)) => body,
        _ => Bytes::new(),
    };
    let refusal = wire::refusal(status.as_u16(), &body);
    Answer::Failed(refusal.end(), refusal.to_string())
}

/// KiB of the share of a page, and of the page itself.
fn page_kib(limit: Option<u32>) -> u32 {
    match limit {
        Some(2..) => PAGE_KIB,
        // Everything in one piece, or one object, which may be large.
        None | Some(_) => WHOLE_KIB,
    }
}

async fn page(response: Response<Body>, max_bytes: usize) -> Answer {
    let body = whole(response.into_body(), max_bytes);
    match tokio::time::timeout(PAGE_TIMEOUT, body).await {
        Ok(Ok(body)) => Answer::Page(body),
        Ok(Err((end, why))) => Answer::Failed(end, why),
        Err(_) => {
            let why = format!("a page has not come to its end within {}s", PAGE_TIMEOUT.as_secs());
            Answer::Failed(End::Idle, why)
        }
    }
}

/// The whole of a body, if it has at most this many bytes; otherwise why not, for people.
async fn whole(mut body: Body, max_bytes: usize) -> Result<Bytes, (End, String)> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| (End::Lost, model::error::chain(&*error)))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > max_bytes {
            return Err((End::TooLarge, format!("a page is longer than {max_bytes} bytes")));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.freeze())
}

async fn hold(share: &mut Option<Share>) {
    if let Some(share) = share {
        share.hold().await;
    }
}

async fn lent_during<T>(share: &mut Option<Share>, wait: impl Future<Output = T>) -> T {
    match share {
        Some(share) => share.lent_during(wait).await,
        None => wait.await,
    }
}

/// The next line of a stream, or how it ended.
async fn read(
    body: &mut Body,
    lines: &mut Lines,
    idle: &mut Pin<Box<Sleep>>,
    share: &mut Option<Share>,
    (intake, large): (&Intake, &mut Option<LargeLine>),
) -> Result<Bytes, (End, Option<String>)> {
    loop {
        if !lines.are_taken() {
            hold(share).await;
        }
        match lines.next_line() {
            Ok(Some(line)) => return Ok(line),
            Ok(None) => {}
            Err(error @ LineTooLong) => return Err((End::Garbage, Some(error.to_string()))),
        }
        // The line before has been taken in when the next is asked for.
        let is_large = lines.partial_len() > LARGE_LINE_BYTES;
        if !is_large {
            *large = None;
        } else if large.is_none() {
            *large = Some(intake.large_line().await);
        }
        let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx));
        let frame = tokio::select! {
            biased;
            frame = lent_during(share, frame) => frame,
            () = &mut *idle => {
                let why = format!("nothing heard for {}s", IDLE_TIMEOUT.as_secs());
                return Err((End::Idle, Some(why)));
            }
        };
        match frame {
            None => return Err((End::Closed, None)),
            Some(Err(error)) => return Err((End::Lost, Some(model::error::chain(&*error)))),
            Some(Ok(frame)) => {
                idle.set(tokio::time::sleep(IDLE_TIMEOUT));
                if let Ok(chunk) = frame.into_data() {
                    lines.push(chunk);
                }
            }
        }
    }
}
