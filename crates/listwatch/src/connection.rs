//! The shell of list and watch: sends a request, reads the answer, waits. `machine` decides what an
//! answer means.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, HeaderValue};
use http::uri::InvalidUri;
use http::{Response, StatusCode};
use kube::api::{ListParams, WatchParams};
use kube::core::Request as UrlBuilder;
use model::error::{chain, foreign};
use model::wire::Answer as Body;
use model::{Kind, Wire};
use tokio::time::Sleep;

use crate::body::{LENT_BYTES, PageBody, Stream, beginning, hold, lent_during};
use crate::intake::{Intake, PAGE_KIB, STREAM_KIB, Share, WHOLE_KIB};
use crate::machine::{End, Request};
use crate::scope::{Form, Scope};
use crate::wire;

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
    /// More of a long line or page: see [`Connection::held_bytes`].
    More,
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
    Listing(PageBody),
    Watching(Stream),
    /// Over; nothing comes until the next [`Connection::request`].
    Over,
}

/// A request, and the `shardSelector` that goes with it.
#[derive(Clone)]
struct Asked(Request, Option<String>);

enum Answer {
    /// A stream that the server should end after this time.
    Stream(Body, Duration),
    /// A page of at most so many bytes.
    Page(Body, usize),
    Failed(End, String),
}

impl Connection {
    /// One that sends its requests through `wire`, and takes in lists as `intake` allows.
    pub fn new(wire: Wire, kind: Kind, scope: Scope, form: Form, intake: Intake) -> Self {
        Self { wire, kind, scope, form, intake, share: None, state: State::Over }
    }

    /// Sends a request after a wait, dropping one that may be under way. A page may have to wait longer.
    pub fn request(&mut self, request: Request, selector: Option<String>, after: Duration) {
        self.share = self.share_of(&request);
        let after = match request {
            Request::List { .. } => after.max(self.intake.page_in()),
            Request::Stream { .. } | Request::Watch { .. } => after,
        };
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

    /// The last line brought the list that is streamed no new object. Such lines come no faster than those of watches.
    pub fn repeats(&mut self) {
        if let State::Watching(stream) = &mut self.state {
            stream.repeats(&self.intake);
        }
    }

    /// Bytes of a line or page whose end has not come. Of a page no more than it may lend: beyond that, its share bounds it.
    pub fn held_bytes(&self) -> usize {
        match &self.state {
            State::Listing(page) => page.held_bytes().min(LENT_BYTES),
            State::Watching(stream) => stream.held_bytes(),
            State::Waiting(..) | State::Asking(_) | State::Answered(_) | State::Over => 0,
        }
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
                    hold(self.share.as_mut()).await;
                    let request = request.clone();
                    self.state = State::Asking(self.ask(&request));
                }
                State::Asking(answer) => {
                    let answer = lent_during(self.share.as_mut(), answer).await;
                    self.state = State::Answered(answer);
                }
                State::Answered(_) => {
                    hold(self.share.as_mut()).await;
                    match self.answered() {
                        Some(arrival) => return arrival,
                        None => continue,
                    }
                }
                State::Listing(page) => {
                    // In a box, because it is rare and every informer has room for it otherwise.
                    return match Box::pin(page.read(&mut self.share, &self.intake)).await {
                        Ok(Some(page)) => {
                            self.intake.page(page.len());
                            self.state = State::Over;
                            Arrival::Page(page)
                        }
                        Ok(None) => Arrival::More,
                        Err((end, why)) => self.over(end, why),
                    };
                }
                State::Watching(stream) => {
                    return match stream.line(&mut self.share, &self.intake).await {
                        Ok(Some(line)) => Arrival::Line(line),
                        Ok(None) => Arrival::More,
                        Err((end, why)) => self.over(end, why),
                    };
                }
                State::Over => std::future::pending().await,
            }
        }
    }

    /// Takes in an answer. What it says at once; of a page nothing.
    fn answered(&mut self) -> Option<Arrival> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Answered(Answer::Stream(body, timeout)) => {
                self.state = State::Watching(Stream::new(body, timeout));
                Some(Arrival::Opened)
            }
            State::Answered(Answer::Page(body, max_bytes)) => {
                self.state = State::Listing(PageBody::new(body, max_bytes));
                None
            }
            State::Answered(Answer::Failed(end, why)) => Some(Arrival::End(end, Some(why))),
            _ => unreachable!("it is called for an answer"),
        }
    }

    fn over(&mut self, end: End, why: Option<String>) -> Arrival {
        self.state = State::Over;
        Arrival::End(end, why)
    }

    fn ask(&self, Asked(request, selector): &Asked) -> BoxFuture<'static, Answer> {
        let asked = request.clone();
        let request = self.http_request(request).map_err(|error| chain(&error));
        let request = request.and_then(|request| {
            selected(request, selector.as_deref()).map_err(|error| chain(&error))
        });
        let mut request = match request {
            Ok(request) => request,
            // It says what the server would: it cannot answer such a request.
            Err(why) => {
                let why = format!("the request cannot be made: {why}");
                return futures::future::ready(Answer::Failed(End::Refused(400), why)).boxed();
            }
        };
        if self.form == Form::Metadata {
            let is_list = matches!(asked, Request::List { .. });
            let accepted = if is_list { METADATA_LIST } else { METADATA };
            request.headers_mut().insert(ACCEPT, accepted);
        }
        let wire = self.wire.clone();
        let request = request.map(kube::client::Body::from);
        let answer = async move {
            let response = match wire.send(request).await {
                Ok(response) => response,
                Err(error) => return Answer::Failed(End::Lost, chain(&*error)),
            };
            let status = response.status();
            if !status.is_success() {
                return refused(status, response).await;
            }
            let encoding = response.headers().get(CONTENT_ENCODING);
            if let Some(encoding) = encoding.filter(|encoding| *encoding != "identity") {
                let encoding = foreign(&String::from_utf8_lossy(encoding.as_bytes()));
                let why = format!(
                    "the server answers in the encoding {encoding:?}, which nobody asked for"
                );
                return Answer::Failed(End::Garbage, why);
            }
            match asked {
                Request::List { limit, .. } => {
                    Answer::Page(response.into_body(), (page_kib(limit) as usize) << 10)
                }
                Request::Stream { timeout_seconds } | Request::Watch { timeout_seconds, .. } => {
                    let timeout = Duration::from_secs(timeout_seconds.into());
                    Answer::Stream(response.into_body(), timeout)
                }
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
fn selected(
    mut request: http::Request<Vec<u8>>,
    selector: Option<&str>,
) -> Result<http::Request<Vec<u8>>, InvalidUri> {
    if let Some(selector) = selector {
        let parameter = form_urlencoded::Serializer::new(String::new())
            .append_pair("shardSelector", selector)
            .finish();
        // Every such request has a query already, if only of an empty pair.
        *request.uri_mut() = format!("{}&{parameter}", request.uri()).parse()?;
    }
    Ok(request)
}

/// Servers from 1.37 on compress each watch event as a gzip member of its own, of which common
/// decoders read only the first.
fn uncompressed(mut request: http::Request<Vec<u8>>) -> http::Request<Vec<u8>> {
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    request
}

async fn refused(status: StatusCode, response: Response<Body>) -> Answer {
    let body = beginning(response.into_body(), MAX_REFUSAL_BYTES).await;
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

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
