//! Watches: one JSON line per event, until the client or the server ends it.
//!
//! A watch holds a cursor into the store's window and no queue of its own:
//!
//! ```text
//! initial events ─▶ ┌────────────────────────────────────────────┐
//! (then a bookmark) │ read events after cursor ─▶ filter ─▶ lines │─▶ body
//!                   └──── wait: change | bookmark | deadline ─────┘
//! ```
//!
//! # Invariants
//! 1. Events leave in revision order, each once; a bookmark at R follows every event up to R.
//! 2. A watch that falls behind the window ends with an `Expired` error, never with a gap.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::watch;
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;

use super::Call;
use super::answer::Body;
use super::encode::Encoder;
use super::options::{WatchOptions, WatchStart};
use super::read;
use crate::api::Api;
use crate::objects::{meta, set_meta};
use crate::selector::Selector;
use crate::status::ApiError;
use crate::store::{Event, EventKind, Key, Stored, append_watch_line, watch_line};

/// The shortest duration of a watch if the client does not say; the longest is twice that.
const MIN_LIFE: Duration = Duration::from_secs(30 * 60);
/// The time between bookmarks.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long before the end of a watch its last bookmark comes.
const FAREWELL: Duration = Duration::from_secs(2);
/// Events read from the store at once.
const BATCH: usize = 512;
/// Bytes of lines sent as one piece.
const CHUNK: usize = 64 << 10;

/// Answers a watch.
pub(super) async fn watch(api: &Arc<Api>, call: &Call) -> Result<Response<Body>, ApiError> {
    let encoder = read::encoder(call)?;
    let selector = read::selector(api, call)?;
    let options = WatchOptions::parse(&call.query)?;
    let scope =
        Scope { namespace: call.place.namespace.clone(), name: call.place.name.clone(), selector };
    let life = options.timeout.unwrap_or_else(|| MIN_LIFE + MIN_LIFE.mul_f64(api.rng().f64()));
    let mut watch = Watch {
        changed: api.store.subscribe(&call.resource.table),
        api: api.clone(),
        encoder,
        scope,
        cursor: 0,
        ready: VecDeque::new(),
        bookmarks: options.bookmarks,
        bookmark: Box::pin(tokio::time::sleep(first_bookmark(life))),
        deadline: Box::pin(tokio::time::sleep(life)),
        closed: api.watch_token(),
        ended: false,
    };
    if call.expire {
        watch.fail(&ApiError::expired("The resourceVersion for the provided watch is too old."));
    } else {
        watch.start(&options).await?;
    }
    Ok(response(watch))
}

/// At regular times, and once shortly before the end.
fn first_bookmark(life: Duration) -> Duration {
    BOOKMARK_EVERY.min(life.checked_sub(FAREWELL).unwrap_or(life))
}

fn response(watch: Watch) -> Response<Body> {
    let lines = stream::unfold(watch, |mut watch| async move {
        let chunk = watch.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(chunk)), watch))
    });
    let mut response = Response::new(StreamBody::new(lines).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Which objects a watch sees.
#[derive(Debug, Clone)]
struct Scope {
    namespace: Option<String>,
    name: Option<String>,
    selector: Selector,
}

impl Scope {
    fn covers(&self, key: &Key) -> bool {
        self.namespace.as_ref().is_none_or(|ns| *ns == key.namespace)
            && self.name.as_ref().is_none_or(|name| *name == key.name)
    }

    /// Whether an object of its namespace belongs to this watch.
    fn shows(&self, object: &Stored) -> bool {
        if self.name.is_none() && self.selector.is_empty() {
            return true;
        }
        let object = object.to_value();
        let named = self.name.as_ref().is_none_or(|name| meta(&object, "name") == name);
        named && self.selector.matches(&object)
    }

    /// What an event means for this watch. With a selector, an object is added when it begins to
    /// match, and deleted when it no longer does.
    fn sees(&self, event: &Event) -> Option<EventKind> {
        if !self.covers(&event.key) {
            return None;
        }
        if self.selector.is_empty() {
            return Some(event.kind);
        }
        let matched = |object: &Arc<Stored>| self.selector.matches(&object.to_value());
        let before = event.previous.as_ref().is_some_and(matched);
        let after = event.kind != EventKind::Deleted && matched(&event.object);
        match (before, after) {
            (false, false) => None,
            (false, true) => Some(EventKind::Added),
            (true, true) => Some(EventKind::Modified),
            (true, false) => Some(EventKind::Deleted),
        }
    }
}

struct Watch {
    api: Arc<Api>,
    encoder: Encoder,
    scope: Scope,
    /// Everything up to this revision has been delivered or is in `ready`.
    cursor: u64,
    changed: watch::Receiver<u64>,
    ready: VecDeque<Bytes>,
    bookmarks: bool,
    bookmark: Pin<Box<Sleep>>,
    deadline: Pin<Box<Sleep>>,
    closed: CancellationToken,
    ended: bool,
}

impl Watch {
    async fn start(&mut self, options: &WatchOptions) -> Result<(), ApiError> {
        match options.start {
            WatchStart::After(revision) => {
                self.cursor = revision;
                // The first read finds out whether the window still reaches back that far.
                self.read();
            }
            WatchStart::Now => self.cursor = self.api.store.revision(),
            WatchStart::State { at_least } => {
                read::wait_for(&self.api, at_least).await?;
                self.send_state(options.marks_initial_end);
            }
        }
        Ok(())
    }

    fn send_state(&mut self, mark_end: bool) {
        let table = &self.encoder.resource.table;
        let listed = self.api.store.list(table, self.scope.namespace.as_deref(), None, None);
        let Ok(snapshot) = listed else { return };
        let now = self.api.now();
        let mut chunk = Vec::new();
        for object in &snapshot.items {
            if self.scope.shows(object) {
                append_watch_line(&mut chunk, "ADDED", &self.encoder.stored(object, now));
                if chunk.len() >= CHUNK {
                    self.ready.push_back(std::mem::take(&mut chunk).into());
                }
            }
        }
        if mark_end {
            let bookmark = self.encoder.bookmark(snapshot.revision, true);
            append_watch_line(&mut chunk, "BOOKMARK", &bookmark);
        }
        if !chunk.is_empty() {
            self.ready.push_back(chunk.into());
        }
        self.cursor = snapshot.revision;
    }

    /// The next piece of the body; `None` ends it.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(chunk) = self.ready.pop_front() {
                return Some(chunk);
            }
            if self.ended {
                return None;
            }
            self.changed.borrow_and_update();
            self.read();
            if self.ready.is_empty() && !self.ended {
                self.wait().await;
            }
        }
    }

    async fn wait(&mut self) {
        tokio::select! {
            biased;
            () = self.closed.cancelled() => self.ended = true,
            () = &mut self.deadline => self.ended = true,
            changed = self.changed.changed() => self.ended = changed.is_err(),
            () = &mut self.bookmark => {
                let next = self.bookmark.deadline() + BOOKMARK_EVERY;
                let farewell = self.deadline.deadline() - FAREWELL;
                let last = self.bookmark.deadline() >= farewell;
                // After the last bookmark the next one would lie beyond the end.
                self.bookmark.as_mut().reset(if last { next } else { next.min(farewell) });
                self.send_bookmark();
            }
        }
    }

    fn send_bookmark(&mut self) {
        // Read first: the bookmark must not overtake an event.
        self.read();
        if self.bookmarks && !self.ended {
            let object = self.encoder.bookmark(self.cursor, false);
            self.ready.push_back(watch_line("BOOKMARK", &object));
        }
    }

    /// Reads the events since the cursor.
    fn read(&mut self) {
        loop {
            let table = &self.encoder.resource.table;
            match self.api.store.events_after(table, self.cursor, BATCH) {
                Err(gone) => {
                    return self.fail(&ApiError::too_old(self.cursor, gone.floor));
                }
                Ok(batch) => {
                    let more = batch.events.len() == BATCH;
                    self.cursor = batch.cursor;
                    self.take(&batch.events);
                    // A full chunk is sent before more is read.
                    if !more || !self.ready.is_empty() {
                        return;
                    }
                }
            }
        }
    }

    fn take(&mut self, events: &[Arc<Event>]) {
        let mut lines: Vec<Bytes> = events.iter().filter_map(|event| self.line(event)).collect();
        match lines.len() {
            0 => {}
            1 => self.ready.extend(lines.pop()),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK);
                for line in lines {
                    chunk.extend_from_slice(&line);
                    if chunk.len() >= CHUNK {
                        self.ready.push_back(std::mem::take(&mut chunk).into());
                    }
                }
                if !chunk.is_empty() {
                    self.ready.push_back(chunk.into());
                }
            }
        }
    }

    fn line(&self, event: &Event) -> Option<Bytes> {
        let kind = self.scope.sees(event)?;
        if kind == event.kind && self.encoder.is_verbatim() {
            return Some(event.line());
        }
        let now = self.api.now();
        let stopped_matching = kind == EventKind::Deleted && event.kind != EventKind::Deleted;
        let object = match event.previous.as_ref().filter(|_| stopped_matching) {
            None => self.encoder.stored(&event.object, now),
            Some(previous) => {
                let mut last = self.encoder.resource.served(previous.to_value());
                let revision = event.revision.to_string();
                set_meta(&mut last, "resourceVersion", Some(revision.into()));
                self.encoder.value(&last, now)
            }
        };
        Some(watch_line(kind.as_str(), &object))
    }

    fn fail(&mut self, error: &ApiError) {
        let status = error.to_status().to_string();
        self.ready.push_back(watch_line("ERROR", status.as_bytes()));
        self.ended = true;
    }
}
