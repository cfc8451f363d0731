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

use crate::intake::{Intake, STREAM_KIB, Share};
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
const LENT_BYTES: usize = (STREAM_KIB as usize) << 10;

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
    large: Option<Box<Share>>,
}

/// The answer to a list.
pub(crate) struct PageBody {
    body: Body,
    bytes: BytesMut,
    max_bytes: usize,
    late: Pin<Box<Sleep>>,
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
        }
    }

    /// The next line, or how it ended. Cancel-safe.
    pub(crate) async fn line(
        &mut self,
        share: &mut Option<Share>,
        intake: &Intake,
    ) -> Result<Bytes, Ended> {
        loop {
            if !self.lines.are_taken() {
                let waited = hold(share.as_mut()).await;
                self.put_off(waited);
            }
            match self.lines.next_line() {
                Ok(Some(line)) => {
                    self.heard = true;
                    return Ok(line);
                }
                Ok(None) => {}
                Err(error) => return Err((End::Garbage, Some(error.to_string()))),
            }
            // The line before has been taken in when the next is asked for.
            if self.lines.partial_len() <= LARGE_LINE_BYTES {
                self.large = None;
            } else {
                let large = self.large.get_or_insert_with(|| Box::new(intake.large_line()));
                large.pass_on();
                let waited = large.hold().await;
                self.put_off(waited);
            }
            if std::mem::take(&mut self.heard) {
                self.idle.as_mut().reset(Instant::now() + IDLE_TIMEOUT);
            }
            if Instant::now() >= self.until {
                return Err((End::Closed, None));
            }
            let frame = next_frame(&mut self.body);
            let frame = lent_during(self.large.as_deref_mut(), lent_during(share.as_mut(), frame));
            let frame = tokio::select! {
                biased;
                frame = frame => frame,
                () = &mut self.idle => {
                    let why = format!("nothing heard for {}s", IDLE_TIMEOUT.as_secs());
                    return Err((End::Idle, Some(why)));
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
        let late = Box::pin(tokio::time::sleep(PAGE_TIMEOUT));
        Self { body, bytes: BytesMut::new(), max_bytes, late }
    }

    /// Bytes that have come.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// All of it, or how it ended. Cancel-safe. A page of which much has come keeps its share: it takes the
    /// memory, whether more comes or not.
    pub(crate) async fn read(&mut self, share: &mut Option<Share>) -> Result<Bytes, Ended> {
        loop {
            let waited = hold(share.as_mut()).await;
            put_off(&mut self.late, waited);
            let lender = share.as_mut().filter(|_| self.bytes.len() <= LENT_BYTES);
            let frame = tokio::select! {
                biased;
                frame = lent_during(lender, next_frame(&mut self.body)) => frame,
                () = &mut self.late => {
                    let seconds = PAGE_TIMEOUT.as_secs();
                    let why = format!("a page has not come to its end within {seconds}s");
                    return Err((End::Idle, Some(why)));
                }
            };
            let Some(chunk) = data(frame)? else { return Ok(self.bytes.split().freeze()) };
            if self.bytes.len() + chunk.len() > self.max_bytes {
                let why = format!("a page is longer than {} bytes", self.max_bytes);
                return Err((End::TooLarge, Some(why)));
            }
            self.bytes.extend_from_slice(&chunk);
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
