//! Reads the bodies of answers: a stream, line by line, and a page.
//!
//! What a reader waits for by itself, its share, counts against no deadline of the server.
#![expect(clippy::disallowed_methods, reason = "a shell: deadlines of what it waits for")]

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use model::wire::{Answer as Body, WireError};
use tokio::time::{Instant, Sleep};

use crate::intake::{Intake, LENT_AFTER, STREAM_KIB, Share};
use crate::lines::{LARGE_LINE_BYTES, Lines};
use crate::machine::End;

/// A watch that brings no line for this long, not even a bookmark, is given up: servers send
/// one about each minute.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(150);
/// How long reading one page may take.
pub const PAGE_TIMEOUT: Duration = Duration::from_secs(120);
/// How long after its timeout a watch is ended that the server does not end.
const OVERTIME: Duration = Duration::from_secs(60);
/// A page lends its share as long as no more than this has come of it.
pub(crate) const LENT_BYTES: usize = (STREAM_KIB as usize) << 10;
/// Whatever others wait for, a large line or a page that keeps its share, has to bring so many bytes within
/// [`PACE_TIME`].
const PACE_BYTES: usize = 64 << 10;
/// The time that [`PACE_BYTES`] may take.
const PACE_TIME: Duration = Duration::from_secs(5);
/// How long a page that keeps its share has it among those that come in time.
const SLOW_AFTER: Duration = Duration::from_secs(10);
/// With so many bytes more of a line or a page, its reader is told.
const TOLD_BYTES: usize = 64 << 10;

/// How a body ended, with a text for people where it failed.
pub(crate) type Ended = (End, Option<String>);

/// The open answer to a watch.
pub(crate) struct Stream {
    body: Body,
    lines: Lines,
    idle: Pin<Box<Sleep>>,
    /// Whether a line has come since the last wait.
    heard: bool,
    /// When it has had its time.
    until: Instant,
    /// Leave to read a large line, while one is read.
    large: Option<Box<(Share, Pace)>>,
    /// Bytes of a line of which its reader was told last.
    told: usize,
    /// Bytes of the last line.
    last: usize,
    /// Whether a line of a list has brought no new object since the last wait until more may come.
    repeats: bool,
}

/// The answer to a list.
pub(crate) struct PageBody {
    body: Body,
    bytes: BytesMut,
    max_bytes: usize,
    late: Instant,
    pace: Pace,
    /// Until when it keeps its share as it is.
    kept_until: Option<Instant>,
    /// Bytes of which its reader was told last.
    told: usize,
}

/// Whether something goes on to come.
#[derive(Default)]
struct Pace {
    /// How much had come, and until when more has to.
    from: Option<(usize, Instant)>,
}

impl Pace {
    /// Until when more has to come than so many bytes.
    fn due(&mut self, bytes: usize) -> Instant {
        match self.from {
            Some((from, due)) if bytes < from + PACE_BYTES => due,
            _ => self.from.insert((bytes, Instant::now() + PACE_TIME)).1,
        }
    }
}

impl Stream {
    /// One that the server should end after `timeout`.
    pub(crate) fn new(body: Body, timeout: Duration) -> Self {
        Self {
            body,
            lines: Lines::default(),
            idle: Box::pin(tokio::time::sleep(IDLE_TIMEOUT)),
            heard: false,
            until: Instant::now() + timeout + OVERTIME,
            large: None,
            told: 0,
            last: 0,
            repeats: false,
        }
    }

    /// Bytes of a line whose end has not come.
    pub(crate) fn held_bytes(&self) -> usize {
        self.lines.partial_len()
    }

    /// The last line brought a list no new object: it counts like a change.
    pub(crate) fn repeats(&mut self, intake: &Intake) {
        self.repeats = true;
        intake.line(self.last);
    }

    /// The next line, or how it ended; none if more of a long one has come. Cancel-safe.
    pub(crate) async fn line(
        &mut self,
        share: &mut Option<Share>,
        intake: &Intake,
    ) -> Result<Option<Bytes>, Ended> {
        loop {
            if !self.lines.are_taken() {
                let waited = hold(share.as_mut()).await;
                self.put_off(waited);
            }
            match self.lines.next_line() {
                Ok(Some(line)) => {
                    (self.heard, self.told, self.last) = (true, 0, line.len());
                    if share.is_none() {
                        intake.line(self.last);
                    }
                    return Ok(Some(line));
                }
                Ok(None) => {}
                Err(error) => return Err((End::Garbage, Some(error.to_string()))),
            }
            let partial = self.lines.partial_len();
            if partial >= self.told + TOLD_BYTES {
                self.told = partial;
                return Ok(None);
            }
            // The line before has been taken in when the next is asked for.
            let waited = match share.as_mut() {
                None => intake.lines_may_come().await,
                // In a box, because it is rare.
                Some(share) if self.repeats => {
                    Box::pin(share.lent_during(intake.lines_may_come())).await
                }
                Some(_) => Duration::ZERO,
            };
            self.repeats = false;
            self.put_off(waited);
            if let Some(share) = share.as_mut() {
                share.pass_on();
            }
            let mut due = None;
            if partial <= LARGE_LINE_BYTES {
                self.large = None;
            } else {
                let new = || Box::new((intake.large_line(), Pace::default()));
                let (large, pace) = &mut **self.large.get_or_insert_with(new);
                large.pass_on();
                let waited = large.hold().await;
                if !waited.is_zero() {
                    *pace = Pace::default();
                }
                due = Some(pace.due(partial));
                self.put_off(waited);
            }
            if std::mem::take(&mut self.heard) {
                self.idle.as_mut().reset(Instant::now() + IDLE_TIMEOUT);
            }
            if Instant::now() >= self.until {
                return Err((End::Closed, None));
            }
            if let Some(due) = due {
                self.idle.as_mut().reset(due);
            }
            let large = self.large.as_mut().map(|large| &mut large.0);
            let frame = lent_during(large, lent_during(share.as_mut(), next_frame(&mut self.body)));
            let frame = tokio::select! {
                biased;
                frame = frame => frame,
                () = &mut self.idle => {
                    let silent = || format!("nothing heard for {}s", IDLE_TIMEOUT.as_secs());
                    return Err((End::Idle, Some(due.map_or_else(silent, |_| stalls("a line")))));
                }
            };
            match data(frame)? {
                None => return Err((End::Closed, None)),
                Some(chunk) => self.lines.push(chunk),
            }
        }
    }

    fn put_off(&mut self, waited: Duration) {
        self.until += waited;
        put_off(&mut self.idle, waited);
    }
}

impl PageBody {
    pub(crate) fn new(body: Body, max_bytes: usize) -> Self {
        let (late, pace) = (Instant::now() + PAGE_TIMEOUT, Pace::default());
        Self { body, bytes: BytesMut::new(), max_bytes, late, pace, kept_until: None, told: 0 }
    }

    /// Bytes that have come.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// All of it, or how it ended; none if more of it has come. Cancel-safe. A page of which much has come keeps its
    /// share: it takes the memory, whether more comes or not. So it has to go on, and one that comes slowly makes way.
    pub(crate) async fn read(
        &mut self,
        share: &mut Option<Share>,
        intake: &Intake,
    ) -> Result<Option<Bytes>, Ended> {
        loop {
            self.late += hold(share.as_mut()).await;
            let come = self.bytes.len();
            let is_kept = come > LENT_BYTES;
            let mut due = self.late;
            if is_kept {
                let until = || Instant::now() + SLOW_AFTER;
                let kept_until = *self.kept_until.get_or_insert_with(until);
                due = due.min(self.pace.due(come)).min(kept_until);
            }
            let lender = share.as_mut().filter(|_| !is_kept);
            let frame = lent_during(lender, next_frame(&mut self.body));
            let Ok(frame) = tokio::time::timeout_at(due, frame).await else {
                if self.kept_until == Some(due) {
                    self.kept_until = Some(Instant::now() + LENT_AFTER);
                    if share.as_mut().is_none_or(|share| intake.slows(share)) {
                        continue;
                    }
                    let seconds = SLOW_AFTER.as_secs();
                    let why = format!(
                        "a page has not come to its end within {seconds}s, and others wait: it is asked for again \
                         when there is time for slow ones"
                    );
                    return Err((End::Idle, Some(why)));
                }
                let seconds = PAGE_TIMEOUT.as_secs();
                let late = || format!("a page has not come to its end within {seconds}s");
                let why = if due == self.late { late() } else { stalls("a page") };
                return Err((End::Idle, Some(why)));
            };
            let Some(chunk) = data(frame)? else { return Ok(Some(self.bytes.split().freeze())) };
            if come + chunk.len() > self.max_bytes {
                let why = format!("a page is longer than {} bytes", self.max_bytes);
                return Err((End::TooLarge, Some(why)));
            }
            self.bytes.extend_from_slice(&chunk);
            if self.bytes.len() >= self.told + TOLD_BYTES {
                self.told = self.bytes.len();
                return Ok(None);
            }
        }
    }
}

/// The beginning of a body, at most this many bytes; what has come of it until it breaks, or takes too long.
pub(crate) async fn beginning(mut body: Body, max_bytes: usize) -> Bytes {
    let mut bytes = BytesMut::new();
    let read = async {
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(chunk) = frame.into_data() else { continue };
            let left = max_bytes - bytes.len();
            bytes.extend_from_slice(&chunk[..chunk.len().min(left)]);
            if chunk.len() >= left {
                return;
            }
        }
    };
    let _late = tokio::time::timeout(PAGE_TIMEOUT, read).await;
    bytes.freeze()
}

type NextFrame = Option<Result<Frame<Bytes>, WireError>>;

fn next_frame(body: &mut Body) -> impl Future<Output = NextFrame> {
    poll_fn(move |cx| Pin::new(&mut *body).poll_frame(cx))
}

/// The data of a frame; none at the end of the body.
fn data(frame: NextFrame) -> Result<Option<Bytes>, Ended> {
    match frame {
        None => Ok(None),
        Some(Ok(frame)) => Ok(Some(frame.into_data().unwrap_or_default())),
        Some(Err(error)) => Err((End::Lost, Some(model::error::chain(&*error)))),
    }
}

fn put_off(deadline: &mut Pin<Box<Sleep>>, by: Duration) {
    if !by.is_zero() {
        let later = deadline.deadline() + by;
        deadline.as_mut().reset(later);
    }
}

/// That too little more has come.
fn stalls(what: &str) -> String {
    let (kibibytes, seconds) = (PACE_BYTES >> 10, PACE_TIME.as_secs());
    format!("{what} stalls: less than {kibibytes} KiB of it came within {seconds}s")
}

/// Waits until a share is held; says how long that took.
pub(crate) async fn hold(share: Option<&mut Share>) -> Duration {
    match share {
        Some(share) => share.hold().await,
        None => Duration::ZERO,
    }
}

pub(crate) async fn lent_during<T>(share: Option<&mut Share>, wait: impl Future<Output = T>) -> T {
    match share {
        Some(share) => share.lent_during(wait).await,
        None => wait.await,
    }
}
