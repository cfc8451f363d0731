//! The list-and-watch protocol as a state machine, without IO.
//!
//! ```text
//!            cannot, or breaks it              last page
//!   Streaming ──────────────▶ Paging ────────────────────────┐
//!    ▲  │  ▲  for an hour      ▲ │ 410: without limit        ▼
//!    │  │  └──── 410 ──────────┼─┼──────────────────────▶ Watching
//!    │  └── initial events end ┼─┼──────────────────────────▶ │ ▲
//!    └─────────────────────────┴─┴──── 410, gone ─────────────┘ └─ closed, lost: resume
//! ```
//!
//! Each end of a request is judged by its cause:
//!
//! | cause | what follows |
//! |---|---|
//! | 400, 406, 415 or 422 to a stream | the server cannot stream: pages, and a stream again after [`STREAM_AGAIN`] |
//! | a stream that broke after it began or made no progress, [`MAX_STREAM_BREAKS`] times in a row | the same |
//! | 429, 5xx, no connection | nothing about streams or versions: the same again, later |
//! | 410, or a version that the server does not have yet | list again |
//! | a watch that brings nothing, not even a bookmark, 2, 4, 8 times in a row | its version may be one that a restored server does not have yet, which it does not say: list again |
//! | a page that is too large | the same page with a quarter of the limit, which doubles again with each page |
//! | a continue token that repeats, or pages without objects | the list starts over |
//! | 400 or 422 to a watch | its version is the server's own and no good: list again |
//! | a version or continue token that no server means | garbage |
//!
//! # Invariants
//! - [`Machine::begin`] says when a list starts over. An object that was known before and has not come
//!   again by [`Progress::Synced`] is gone. So a delete in a gap is found (L2).
//! - The resourceVersion to resume from is always one that the server sent.
//! - Attempts without progress are spaced by a jittered, doubling wait; those after progress are not.
//!   Progress is a complete list, or a watch that had its time or lived for [`MAX_WAIT`]: a list that never ends
//!   is none, nor is a line before a failure.
//! - Lists that start over are spaced in the same way, whatever they brought: at most one in [`CALM`] follows
//!   at once.
//! - Pages that bring few objects follow each other at a bounded rate, whatever the server's own limit is.

use std::time::Duration;

use model::{Moment, doubled};

/// The wait after the first failed attempt, before jitter.
pub const FIRST_WAIT: Duration = Duration::from_millis(250);
/// The longest wait, before jitter.
pub const MAX_WAIT: Duration = Duration::from_secs(30);
/// The longest wait for a kind the server does not know: its definition may be applied any time.
pub const MAX_UNKNOWN_WAIT: Duration = Duration::from_secs(5);
/// A watch that ends sooner than this did not end by its timeout.
const MIN_WATCH: Duration = Duration::from_secs(1);
/// A list that starts over so long after the one before has nothing to do with it.
pub const CALM: Duration = Duration::from_secs(60);
/// Objects in a page of a list.
pub const PAGE_LIMIT: u32 = 500;
/// Pages in a row that say that there is more and bring no object.
pub const MAX_EMPTY_PAGES: u32 = 10;
/// Pages of a list that may bring little before it is slowed down.
const THIN_PAGES: u32 = 10;
/// The wait after a page if a list brings less than a tenth of what was asked for, all in all; four times as long if
/// it brings less than a hundredth. A server whose own limit is ten objects tells 100,000 of them in five minutes.
const THIN_WAIT: Duration = Duration::from_millis(25);
/// Streaming lists that may break in a row before pages are asked for instead.
pub const MAX_STREAM_BREAKS: u32 = 3;
/// How long pages are asked for from a server that cannot stream lists, or breaks them. It may be replaced
/// or configured anew meanwhile.
pub const STREAM_AGAIN: Duration = Duration::from_secs(3600);
/// The most bytes of a version, as the cache bounds those of objects.
const MAX_VERSION_BYTES: usize = 253;
/// The most bytes of a continue token: it holds a key.
const MAX_TOKEN_BYTES: usize = 8 << 10;
/// The server ends each watch after this long, and up to half a minute more, so that not all end
/// at once.
const WATCH_SECONDS: u32 = 260;

/// What to ask the server for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A watch that begins with all objects.
    Stream {
        /// After how long the server ends it.
        timeout_seconds: u32,
    },
    /// A page of a list.
    List {
        /// Where the page before ended; none for the first.
        continue_token: Option<String>,
        /// The most objects in it; none for all.
        limit: Option<u32>,
    },
    /// A watch from a version on.
    Watch {
        /// The version.
        resource_version: String,
        /// After how long the server ends it.
        timeout_seconds: u32,
    },
}

/// What a line of a watch says about the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal<'a> {
    /// An object, at this version.
    Change(&'a str),
    /// Everything up to a version has been sent.
    Bookmark {
        /// The version.
        resource_version: &'a str,
        /// Whether the initial events of a streaming list end here.
        initial_end: bool,
    },
}

/// What follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Go on reading.
    Continue,
    /// The list is complete: what it did not mention is gone. Go on reading (a stream) or begin
    /// the next request (pages).
    Synced,
    /// Drop the connection and start over.
    Restart(End),
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A page was read; the next request follows.
    Page,
    /// The server ended the watch.
    Closed,
    /// Nothing was heard for too long.
    Idle,
    /// The connection failed or broke.
    Lost,
    /// The server refused, with this status.
    Refused(u16),
    /// The server has no history from that version on: it is too old, or newer than the server's own.
    Expired,
    /// A line or page could not be understood.
    Garbage,
    /// A page is longer than it may be.
    TooLarge,
    /// A list goes on and brings nothing new.
    Endless,
    /// Whoever reads the answers panicked.
    Panicked,
}

impl End {
    /// The word for it in metrics.
    pub fn reason(self) -> &'static str {
        match self {
            End::Page => "page",
            End::Closed => "closed",
            End::Idle => "idle",
            End::Lost => "disconnected",
            End::Refused(_) => "refused",
            End::Expired => "expired",
            End::Garbage => "garbage",
            End::TooLarge => "too_large",
            End::Endless => "endless",
            End::Panicked => "panic",
        }
    }
}

/// The state of one list-and-watch.
#[derive(Debug)]
pub struct Machine {
    state: State,
    /// Until when lists are asked for in pages.
    paged_until: Moment,
    /// Objects in a page: fewer after one that was too large.
    page_limit: u32,
    pages: Pages,
    /// Whether the streaming list under way has brought anything.
    heard: bool,
    stream_breaks: u32,
    /// Attempts in a row that brought nothing.
    failures: u32,
    /// Lists in a row that started over within [`CALM`].
    relists: u32,
    /// Watches in a row of which nothing was heard.
    silent: u32,
    /// Garbage without progress in between.
    garbage: bool,
    unknown_kind: bool,
    began: Moment,
    /// When the last list began.
    listed: Moment,
    rng: fastrand::Rng,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// A list begins, in the way that suits then.
    Anew,
    Streaming,
    Paging {
        continue_token: Option<String>,
        limited: bool,
    },
    Watching {
        resource_version: String,
    },
}

/// What the pages of a list under way have brought.
#[derive(Debug, Default)]
struct Pages {
    count: u32,
    /// How many of them, in a row and at last, had no object.
    empty: u32,
    objects: usize,
    /// The most objects that they may have had.
    asked: usize,
}

impl Pages {
    fn read(&mut self, objects: usize, limit: u32) {
        self.count = self.count.saturating_add(1);
        self.empty = if objects == 0 { self.empty + 1 } else { 0 };
        self.objects += objects;
        self.asked += limit as usize;
    }

    /// How long to wait before the next.
    fn wait(&self) -> Duration {
        let brings_less = |part: usize| u32::from(self.objects * part < self.asked);
        if self.count <= THIN_PAGES {
            return Duration::ZERO;
        }
        THIN_WAIT * (brings_less(10) + 3 * brings_less(100))
    }
}

impl State {
    const FIRST_PAGE: Self = Self::Paging { continue_token: None, limited: true };
}

impl Machine {
    /// One that has asked for nothing yet.
    pub fn new(rng: fastrand::Rng) -> Self {
        Self {
            state: State::Anew,
            paged_until: Moment::default(),
            page_limit: PAGE_LIMIT,
            pages: Pages::default(),
            heard: false,
            stream_breaks: 0,
            failures: 0,
            relists: 0,
            silent: 0,
            garbage: false,
            unknown_kind: false,
            began: Moment::default(),
            listed: Moment::default(),
            rng,
        }
    }

    /// The next request, and whether a list starts over with it.
    pub fn begin(&mut self, now: Moment) -> (Request, bool) {
        self.began = now;
        if self.state == State::Anew {
            let paged = now < self.paged_until;
            self.state = if paged { State::FIRST_PAGE } else { State::Streaming };
        }
        let timeout_seconds = WATCH_SECONDS + self.rng.u32(0..30);
        let (request, anew) = match &self.state {
            State::Anew | State::Streaming => (Request::Stream { timeout_seconds }, true),
            State::Paging { continue_token, limited } => {
                let limit = limited.then_some(self.page_limit);
                let continue_token = continue_token.clone();
                let anew = continue_token.is_none();
                (Request::List { continue_token, limit }, anew)
            }
            State::Watching { resource_version } => {
                let resource_version = resource_version.clone();
                (Request::Watch { resource_version, timeout_seconds }, false)
            }
        };
        if anew {
            (self.listed, self.heard, self.pages) = (now, false, Pages::default());
        }
        (request, anew)
    }

    /// Lists everything again, because the wanted ranges have changed. The request under way is dropped.
    pub fn restart(&mut self) {
        self.state = State::Anew;
    }

    /// Asks for the next list in pages instead of a stream.
    pub fn page_next(&mut self) {
        if matches!(self.state, State::Anew | State::Streaming) {
            self.state = State::FIRST_PAGE;
        }
    }

    /// The version up to which everything was told; none while a list is under way.
    pub fn position(&self) -> Option<&str> {
        match &self.state {
            State::Watching { resource_version } => Some(resource_version),
            State::Anew | State::Streaming | State::Paging { .. } => None,
        }
    }

    /// Whether the changes after a list are followed, and the last one was understood.
    pub fn is_following(&self) -> bool {
        matches!(self.state, State::Watching { .. }) && !self.garbage
    }

    /// Takes in one line of a watch.
    pub fn line(&mut self, signal: Signal<'_>) -> Progress {
        let (Signal::Change(version) | Signal::Bookmark { resource_version: version, .. }) = signal;
        if !is_version(version) {
            return Progress::Restart(End::Garbage);
        }
        let State::Watching { resource_version } = &mut self.state else {
            self.heard = true;
            return match signal {
                Signal::Bookmark { resource_version, initial_end: true } => {
                    self.stream_breaks = 0;
                    self.complete(resource_version)
                }
                Signal::Bookmark { .. } | Signal::Change(_) => Progress::Continue,
            };
        };
        version.clone_into(resource_version);
        (self.garbage, self.silent) = (false, 0);
        Progress::Continue
    }

    /// Takes in one page of a list, with so many objects. The connection ends with it: report
    /// [`End::Page`], or what [`Progress::Restart`] says.
    pub fn page(&mut self, version: &str, next: Option<String>, objects: usize) -> Progress {
        if !is_version(version) || next.as_ref().is_some_and(|next| next.len() > MAX_TOKEN_BYTES) {
            return Progress::Restart(End::Garbage);
        }
        let (State::Paging { continue_token, .. }, Some(next)) = (&mut self.state, next) else {
            return self.complete(version);
        };
        self.pages.read(objects, self.page_limit);
        if continue_token.as_ref() == Some(&next) || self.pages.empty > MAX_EMPTY_PAGES {
            return Progress::Restart(End::Endless);
        }
        *continue_token = Some(next);
        self.page_limit = self.page_limit.saturating_mul(2).min(PAGE_LIMIT);
        Progress::Continue
    }

    /// Takes in how a request ended. Returns how long to wait before the next.
    pub fn end(&mut self, end: End, now: Moment) -> Duration {
        if end == End::Page {
            let is_last = matches!(self.state, State::Watching { .. });
            return if is_last { Duration::ZERO } else { self.pages.wait() };
        }
        let lived = now.since(self.began);
        let is_watching = matches!(self.state, State::Watching { .. });
        if is_watching && end == End::Closed && lived >= MIN_WATCH {
            // The watch had its time.
            self.failures = 0;
            return Duration::ZERO;
        }
        if is_watching && lived >= MAX_WAIT {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        self.unknown_kind = end == End::Refused(404) && !is_watching;
        let garbage_again = std::mem::replace(&mut self.garbage, end == End::Garbage);
        let is_forgotten = is_watching && end == End::Idle && self.is_forgotten();
        match (&mut self.state, end) {
            (State::Watching { .. }, End::Garbage) if garbage_again => {}
            // With the definition of the kind, all its objects are gone: a list shows it.
            (State::Watching { .. }, End::Expired | End::Refused(404)) => {}
            // What the server named is not what it takes, or no request can carry it.
            (State::Watching { .. }, End::Refused(400 | 422)) => {}
            (State::Watching { .. }, End::Panicked) => {}
            (State::Watching { .. }, End::Idle) if is_forgotten => {}
            (State::Watching { .. }, _) => return self.wait(self.failures),
            (State::Paging { continue_token: token @ Some(_), limited }, End::Expired) => {
                // The token expired between pages: take everything in one piece.
                (*token, *limited) = (None, false);
                return self.list_again(end, now);
            }
            (State::Paging { limited: true, .. }, End::TooLarge) if self.page_limit > 1 => {
                self.page_limit = (self.page_limit / 4).max(1);
                return self.wait(self.failures);
            }
            (State::Paging { limited: false, .. }, End::TooLarge) => {
                self.state = State::FIRST_PAGE;
                return self.list_again(end, now);
            }
            // The token is still good.
            (State::Paging { .. }, End::Refused(429)) => return self.wait(self.failures),
            (State::Streaming, End::Refused(400 | 406 | 415 | 422)) => {
                self.paged_until = now + STREAM_AGAIN;
                self.state = State::Anew;
                return Duration::ZERO;
            }
            (State::Streaming, End::Closed | End::Idle | End::Garbage | End::Endless) => {
                self.broke(now);
            }
            (State::Streaming, End::Lost) if self.heard => self.broke(now),
            _ => {}
        }
        self.state = State::Anew;
        self.list_again(end, now)
    }

    /// Counts a watch of which nothing was heard: after two, four, eight of them its version may be unknown.
    fn is_forgotten(&mut self) -> bool {
        self.silent = self.silent.saturating_add(1);
        self.silent > 1 && self.silent.is_power_of_two()
    }

    /// A streaming list broke after it began, or made no progress.
    fn broke(&mut self, now: Moment) {
        self.stream_breaks += 1;
        if self.stream_breaks >= MAX_STREAM_BREAKS {
            self.stream_breaks = 0;
            self.paged_until = now + STREAM_AGAIN;
        }
    }

    /// The list is complete: from this version on there is a watch.
    fn complete(&mut self, version: &str) -> Progress {
        self.failures = 0;
        self.garbage = false;
        self.state = State::Watching { resource_version: version.to_owned() };
        Progress::Synced
    }

    /// How long to wait before a list starts over. The first that a version's end causes follows at once.
    fn list_again(&mut self, end: End, now: Moment) -> Duration {
        if now.since(self.listed) >= CALM {
            self.relists = 0;
        }
        let before = self.relists;
        self.relists = self.relists.saturating_add(1);
        self.wait(if end == End::Expired { before } else { self.failures.max(before) })
    }

    /// Between half and all of the wait that so many failures double; none without a failure.
    fn wait(&mut self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
        let limit = if self.unknown_kind { MAX_UNKNOWN_WAIT } else { MAX_WAIT };
        let full = doubled(FIRST_WAIT, doublings, limit);
        full.mul_f64(0.5 + self.rng.f64() / 2.0)
    }
}

/// Whether it can be one: no server names none, or one that no request can carry.
fn is_version(text: &str) -> bool {
    (1..=MAX_VERSION_BYTES).contains(&text.len())
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
