//! The list-and-watch protocol as a state machine, without IO.
//!
//! ```text
//!                 refused                       last page
//!   Streaming ──────────────▶ Paging ────────────────────────┐
//!    ▲  │  ▲                   ▲ │ 410: without limit        ▼
//!    │  │  └──── 410 ──────────┼─┼──────────────────────▶ Watching
//!    │  └── initial events end ┼─┼──────────────────────────▶ │ ▲
//!    └─────────────────────────┴─┴──── 410, gone ─────────────┘ └─ closed, lost: resume
//! ```
//!
//! # Invariants
//! - [`Machine::begin`] says when a list starts over. An object that was known before and has not come
//!   again by [`Progress::Synced`] is gone. So a delete in a gap is found (L2).
//! - The resourceVersion to resume from is always one that the server sent.
//! - Attempts without progress are spaced by a jittered, doubling wait; those after progress are not.

use std::time::Duration;

use model::Moment;

/// The wait after the first failed attempt, before jitter.
pub const FIRST_WAIT: Duration = Duration::from_millis(250);
/// The longest wait, before jitter.
pub const MAX_WAIT: Duration = Duration::from_secs(30);
/// The longest wait for a kind the server does not know: its definition may be applied any time.
pub const MAX_UNKNOWN_WAIT: Duration = Duration::from_secs(5);
/// A watch that ends sooner than this did not end by its timeout.
const MIN_WATCH: Duration = Duration::from_secs(1);
/// Objects in a page of a list.
pub const PAGE_LIMIT: u32 = 500;
/// Streaming lists that may break before pages are asked for instead.
const MAX_STREAM_BREAKS: u32 = 3;
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
    /// The server ends the watch.
    Error {
        /// The status.
        code: u16,
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
    /// A page was read; the next request follows at once.
    Page,
    /// The server ended the watch.
    Closed,
    /// Nothing was heard for too long.
    Idle,
    /// The connection failed or broke.
    Lost,
    /// The server refused, with this status.
    Refused(u16),
    /// The version is too old.
    Expired,
    /// A line or page could not be understood.
    Garbage,
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
        }
    }
}

/// The state of one list-and-watch.
#[derive(Debug)]
pub struct Machine {
    state: State,
    /// The server cannot stream lists, or breaks them.
    paged: bool,
    stream_breaks: u32,
    /// Attempts in a row that brought nothing.
    failures: u32,
    /// Garbage without progress in between.
    garbage: bool,
    unknown_kind: bool,
    began: Moment,
    rng: fastrand::Rng,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Streaming,
    Paging { continue_token: Option<String>, limited: bool },
    Watching { resource_version: String },
}

impl Machine {
    /// One that has asked for nothing yet.
    pub fn new(rng: fastrand::Rng) -> Self {
        Self {
            state: State::Streaming,
            paged: false,
            stream_breaks: 0,
            failures: 0,
            garbage: false,
            unknown_kind: false,
            began: Moment::default(),
            rng,
        }
    }

    /// The next request, and whether a list starts over with it.
    pub fn begin(&mut self, now: Moment) -> (Request, bool) {
        self.began = now;
        let timeout_seconds = WATCH_SECONDS + self.rng.u32(0..30);
        match &self.state {
            State::Streaming => (Request::Stream { timeout_seconds }, true),
            State::Paging { continue_token, limited } => {
                let limit = limited.then_some(PAGE_LIMIT);
                let continue_token = continue_token.clone();
                let anew = continue_token.is_none();
                (Request::List { continue_token, limit }, anew)
            }
            State::Watching { resource_version } => {
                let resource_version = resource_version.clone();
                (Request::Watch { resource_version, timeout_seconds }, false)
            }
        }
    }

    /// Lists everything again, because the wanted ranges have changed. The request under way is dropped.
    pub fn restart(&mut self) {
        self.state = self.first();
    }

    /// Asks for the next list in pages instead of a stream.
    pub fn page_next(&mut self) {
        if self.state == State::Streaming {
            self.state = State::Paging { continue_token: None, limited: true };
        }
    }

    /// The version up to which everything was told; none while a list is under way.
    pub fn position(&self) -> Option<&str> {
        match &self.state {
            State::Watching { resource_version } => Some(resource_version),
            State::Streaming | State::Paging { .. } => None,
        }
    }

    /// Takes in one line of a watch.
    pub fn line(&mut self, signal: Signal<'_>) -> Progress {
        match signal {
            Signal::Change(version) => {
                self.progress();
                if let State::Watching { resource_version } = &mut self.state {
                    version.clone_into(resource_version);
                }
                Progress::Continue
            }
            Signal::Bookmark { resource_version: version, initial_end } => {
                self.progress();
                let first = self.state == State::Streaming;
                if first && !initial_end {
                    return Progress::Continue;
                }
                self.stream_breaks = 0;
                self.state = State::Watching { resource_version: version.to_owned() };
                if first { Progress::Synced } else { Progress::Continue }
            }
            Signal::Error { code: 410 } => Progress::Restart(End::Expired),
            Signal::Error { code } => Progress::Restart(End::Refused(code)),
        }
    }

    /// Takes in one page of a list. The connection ends with it: report [`End::Page`].
    pub fn page(&mut self, version: &str, next: Option<String>) -> Progress {
        self.progress();
        match (&mut self.state, next) {
            (State::Paging { continue_token, .. }, Some(next)) => {
                *continue_token = Some(next);
                Progress::Continue
            }
            (state, _) => {
                *state = State::Watching { resource_version: version.to_owned() };
                Progress::Synced
            }
        }
    }

    /// Takes in how a request ended. Returns how long to wait before the next.
    pub fn end(&mut self, end: End, now: Moment) -> Duration {
        let lived = now.since(self.began);
        self.unknown_kind = end == End::Refused(404);
        match end {
            End::Page => return Duration::ZERO,
            // The watch had its time.
            End::Closed if self.is_watching() && lived >= MIN_WATCH => {
                self.failures = 0;
                return Duration::ZERO;
            }
            End::Expired => {
                let had_progress = self.failures == 0;
                self.relist();
                if had_progress {
                    self.failures = 1;
                    return Duration::ZERO;
                }
            }
            // The definition of the kind is gone, and with it all objects; or the server's history
            // does not reach our version (504 with ResourceVersionTooLarge), as after a restore.
            End::Refused(404 | 504) if self.is_watching() => self.relist(),
            End::Refused(400 | 406 | 415 | 422) if self.state == State::Streaming => {
                self.paged = true;
                self.relist();
                return Duration::ZERO;
            }
            End::Garbage if self.is_watching() && self.garbage => self.relist(),
            _ if self.state == State::Streaming && end != End::Refused(404) => {
                // A server that is down breaks streams too, but then pages serve as well.
                self.stream_breaks += 1;
                self.paged |= self.stream_breaks >= MAX_STREAM_BREAKS;
                self.relist();
            }
            // A list that broke between pages starts over, because its token may be bad.
            _ if !self.is_watching() => self.relist(),
            _ => {}
        }
        self.garbage = end == End::Garbage;
        self.failures = self.failures.saturating_add(1);
        self.wait()
    }

    fn is_watching(&self) -> bool {
        matches!(self.state, State::Watching { .. })
    }

    /// Something came that had not come before.
    fn progress(&mut self) {
        self.failures = 0;
        self.garbage = false;
    }

    fn relist(&mut self) {
        self.state = match &self.state {
            // The token expired between pages: take everything in one piece.
            State::Paging { continue_token: Some(_), .. } => {
                State::Paging { continue_token: None, limited: false }
            }
            State::Paging { limited, .. } => {
                State::Paging { continue_token: None, limited: *limited }
            }
            _ => self.first(),
        };
    }

    /// How a list begins.
    fn first(&self) -> State {
        if self.paged {
            State::Paging { continue_token: None, limited: true }
        } else {
            State::Streaming
        }
    }

    /// Between half and all of the doubled wait.
    fn wait(&mut self) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(16);
        let limit = if self.unknown_kind { MAX_UNKNOWN_WAIT } else { MAX_WAIT };
        let full = FIRST_WAIT.saturating_mul(1 << doublings).min(limit);
        full.mul_f64(0.5 + self.rng.f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_origin(Duration::from_millis(millis))
    }

    /// Plays a script against a machine and writes down what it does.
    ///
    /// `change N`, `bookmark N`, `end N` (initial events end), `error N`, `garbage` are lines;
    /// `page N` and `page N next` are pages; `closed`, `lost`, `idle`, `status N` end a request;
    /// `pass MS` lets time go by; `restart` and `paged` ask for a list.
    fn play(script: &str) -> String {
        let mut machine = Machine::new(fastrand::Rng::with_seed(1));
        let mut now = 0;
        let mut log = Vec::new();
        let begin = |machine: &mut Machine, now: u64, log: &mut Vec<String>| {
            let (request, anew) = machine.begin(at(now));
            log.push(match request {
                Request::Stream { .. } => "stream".to_owned(),
                Request::List { continue_token, limit } => {
                    let token = continue_token.unwrap_or_default();
                    format!("list[{token}]{}", if limit.is_some() { "" } else { "all" })
                }
                Request::Watch { resource_version, .. } => format!("watch@{resource_version}"),
            });
            if anew {
                log.push("anew".into());
            }
        };
        begin(&mut machine, now, &mut log);
        for step in script.split(", ") {
            let mut words = step.split(' ');
            let (word, arg) = (words.next().unwrap(), words.next().unwrap_or_default());
            let verdict = match word {
                "pass" => {
                    now += arg.parse::<u64>().unwrap();
                    continue;
                }
                "restart" | "paged" => {
                    machine.restart();
                    if word == "paged" {
                        machine.page_next();
                    }
                    begin(&mut machine, now, &mut log);
                    continue;
                }
                "change" => machine.line(Signal::Change(arg)),
                "bookmark" => {
                    machine.line(Signal::Bookmark { resource_version: arg, initial_end: false })
                }
                "end" => {
                    machine.line(Signal::Bookmark { resource_version: arg, initial_end: true })
                }
                "error" => machine.line(Signal::Error { code: arg.parse().unwrap() }),
                "garbage" => Progress::Restart(End::Garbage),
                "page" => {
                    let verdict = machine.page(arg, words.next().map(str::to_owned));
                    if verdict == Progress::Synced {
                        log.push("synced".into());
                    }
                    Progress::Restart(End::Page)
                }
                "closed" => Progress::Restart(End::Closed),
                "lost" => Progress::Restart(End::Lost),
                "idle" => Progress::Restart(End::Idle),
                "status" => Progress::Restart(End::Refused(arg.parse().unwrap())),
                other => panic!("{other}"),
            };
            match verdict {
                Progress::Continue => {}
                Progress::Synced => log.push("synced".into()),
                Progress::Restart(end) => {
                    let wait = machine.end(end, at(now));
                    if !wait.is_zero() {
                        log.push("wait".into());
                    }
                    begin(&mut machine, now, &mut log);
                }
            }
        }
        log.join(" ")
    }

    #[test]
    fn the_protocol() {
        for (script, expect) in [
            // The ordinary course: a streamed list, a watch that ends by its timeout and resumes.
            ("change 3, end 5, change 7, pass 5000, closed", "stream anew synced watch@7"),
            ("end 5, bookmark 9, pass 5000, closed", "stream anew synced watch@9"),
            (
                "end 5, change 6, lost, change 8, lost",
                "stream anew synced wait watch@6 wait watch@8",
            ),
            ("end 5, pass 200000, idle", "stream anew synced wait watch@5"),
            // A watch that the server closes at once is not asked for in a hot loop.
            ("end 5, closed, closed", "stream anew synced wait watch@5 wait watch@5"),
            // Too old: list again at once; too old again: with a pause.
            (
                "end 5, change 6, error 410, error 410",
                "stream anew synced stream anew wait stream anew",
            ),
            (
                "end 5, pass 5000, closed, error 410, end 9",
                "stream anew synced watch@5 stream anew synced",
            ),
            // The server refuses to stream: pages, then a watch; later lists are paged at once.
            (
                "status 422, page 4 tok, page 4, error 410",
                "stream anew list[] anew list[tok] synced watch@4 list[] anew",
            ),
            // A stream that breaks starts over; one that always breaks gives way to pages.
            (
                "change 3, lost, change 3, closed, idle",
                "stream anew wait stream anew wait stream anew wait list[] anew",
            ),
            // The kind is not known yet, or no more.
            (
                "status 404, status 404, status 404, status 404",
                "stream anew wait stream anew wait stream anew wait stream anew wait stream anew",
            ),
            ("end 5, status 404", "stream anew synced wait stream anew"),
            // Overload and refusal keep the place.
            (
                "end 5, status 429, status 500, status 403",
                "stream anew synced wait watch@5 wait watch@5 wait watch@5",
            ),
            ("end 5, status 504", "stream anew synced wait stream anew"),
            // Something else is wanted: a list starts over at once, whatever was under way.
            (
                "end 5, change 6, restart, change 3, restart, end 9, closed",
                "stream anew synced stream anew stream anew synced wait watch@9",
            ),
            (
                "end 5, paged, page 6 tok, restart, end 7, paged, page 8",
                "stream anew synced list[] anew list[tok] stream anew synced list[] anew synced watch@8",
            ),
            ("status 422, page 4 tok, restart", "stream anew list[] anew list[tok] list[] anew"),
            // Garbage: resume; garbage at the same place: list again.
            ("end 5, garbage, garbage", "stream anew synced wait watch@5 wait stream anew"),
            ("end 5, garbage, change 6, garbage", "stream anew synced wait watch@5 wait watch@6"),
        ] {
            assert_eq!(play(script), expect, "{script}");
        }
    }

    #[test]
    fn an_expired_token_asks_for_everything_in_one_piece() {
        assert_eq!(
            play("status 422, page 4 tok, error 410, page 6"),
            "stream anew list[] anew list[tok] list[]all anew synced watch@6"
        );
    }

    #[test]
    fn waits_double_with_jitter_up_to_their_limit() {
        let mut machine = Machine::new(fastrand::Rng::with_seed(7));
        for attempt in 0..12_u32 {
            machine.begin(at(0));
            let wait = machine.end(End::Lost, at(0));
            let full = FIRST_WAIT.saturating_mul(1 << attempt).min(MAX_WAIT);
            assert!(wait >= full / 2 && wait <= full, "{attempt}: {wait:?}");
        }
        for _ in 0..3 {
            assert!(machine.end(End::Refused(404), at(0)) <= MAX_UNKNOWN_WAIT);
        }
        machine.page("1", None);
        machine.begin(at(0));
        assert!(machine.end(End::Lost, at(0)) <= FIRST_WAIT, "progress forgets the failures");
    }
}
