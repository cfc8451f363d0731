//! How much of all lists of a process may be under way at once, so that a start with many clusters
//! does not exhaust the memory.
//!
//! A list has a share of [`LISTED_KIB`] from its request until all of it is stored. A page is at most as long
//! as its share. A list whose cluster is slow or dead lends its share to others meanwhile and queues for it
//! again when data arrives: only a cluster's own shards wait for it. Watches have no share. Shares are handed
//! out first come, first served.
//!
//! Large lines, of lists and watches, are read a few at a time: others wait with what their connections have
//! read ahead.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// KiB of lists under way at once.
pub const LISTED_KIB: usize = 128 << 10;
/// KiB of a streamed list: what its connection reads ahead, and the object being stored.
pub const STREAM_KIB: u32 = 512;
/// KiB of a page: 500 objects of 16 KB.
pub const PAGE_KIB: u32 = 8 << 10;
/// KiB of a list in one piece, or of a page with one object.
pub const WHOLE_KIB: u32 = 32 << 10;
/// Large lines read at once.
pub const LARGE_LINES: usize = 4;
/// How long a list may bring nothing before it lends its share.
pub const LENT_AFTER: Duration = Duration::from_secs(1);

/// The budget that all lists share. Clones are the same budget.
#[derive(Clone, Debug)]
pub struct Intake {
    kibibytes: Arc<Semaphore>,
    large_lines: Arc<Semaphore>,
}

/// Leave to read a large line, until it is dropped.
pub(crate) struct LargeLine(
    #[expect(dead_code, reason = "it is there to be dropped")] OwnedSemaphorePermit,
);

/// One list's part.
pub(crate) struct Share {
    intake: Intake,
    kibibytes: u32,
    state: State,
}

enum State {
    Lent,
    Queued(BoxFuture<'static, OwnedSemaphorePermit>),
    Held(#[expect(dead_code, reason = "it is there to be dropped")] OwnedSemaphorePermit),
}

impl Default for Intake {
    fn default() -> Self {
        let [kibibytes, large_lines] =
            [LISTED_KIB, LARGE_LINES].map(|permits| Arc::new(Semaphore::new(permits)));
        Self { kibibytes, large_lines }
    }
}

impl Intake {
    /// A part of it, not yet held.
    pub(crate) fn share(&self, kibibytes: u32) -> Share {
        Share { intake: self.clone(), kibibytes, state: State::Lent }
    }

    /// Waits until few others read a large line.
    pub(crate) async fn large_line(&self) -> LargeLine {
        let permit = Arc::clone(&self.large_lines).acquire_owned().await;
        LargeLine(permit.expect("nobody closes it"))
    }
}

impl Share {
    /// Waits until it is held. Cancel-safe: its place in the queue is kept.
    pub(crate) async fn hold(&mut self) {
        loop {
            match &mut self.state {
                State::Held(_) => return,
                State::Queued(permit) => self.state = State::Held(permit.await),
                State::Lent => {
                    let semaphore = Arc::clone(&self.intake.kibibytes);
                    let permit = semaphore.acquire_many_owned(self.kibibytes);
                    let permit = async { permit.await.expect("nobody closes it") };
                    self.state = State::Queued(permit.boxed());
                }
            }
        }
    }

    /// Waits, and lends it out if that takes long. Cancel-safe if the wait is.
    pub(crate) async fn lent_during<T>(&mut self, wait: impl Future<Output = T>) -> T {
        let mut wait = std::pin::pin!(wait);
        if matches!(self.state, State::Held(_)) {
            if let Ok(done) = tokio::time::timeout(LENT_AFTER, &mut wait).await {
                return done;
            }
            self.state = State::Lent;
        }
        wait.await
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_not_there_is_waited_for_in_turn() {
        let intake = Intake::default();
        let whole = u32::try_from(LISTED_KIB).unwrap();
        let [mut first, mut second, mut third] = [whole, 1, 1].map(|kib| intake.share(kib));
        first.hold().await;
        assert!(second.hold().now_or_never().is_none());
        assert!(third.hold().now_or_never().is_none());
        drop(first);
        let mut all = intake.share(whole);
        assert!(all.hold().now_or_never().is_none(), "two came before");
        second.hold().await;
        third.hold().await;
        drop((second, third));
        all.hold().await;
    }

    #[tokio::test(start_paused = true)]
    async fn few_large_lines_are_read_at_once() {
        let intake = Intake::default();
        let mut read = Vec::new();
        for _ in 0..LARGE_LINES {
            read.push(intake.large_line().await);
        }
        assert!(intake.large_line().now_or_never().is_none());
        read.pop();
        intake.large_line().await;
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_long_lends_and_gets_it_back() {
        let intake = Intake::default();
        let [mut slow, mut other] =
            [0; 2].map(|_| intake.share(u32::try_from(LISTED_KIB).unwrap()));
        slow.hold().await;
        slow.lent_during(ready(())).await;
        assert!(other.hold().now_or_never().is_none(), "not for a wait that is none");
        let waited = timeout(LENT_AFTER * 2, slow.lent_during(pending::<()>())).await;
        assert!(waited.is_err());
        other.hold().await;
        assert!(slow.hold().now_or_never().is_none());
        drop(other);
        slow.hold().await;
    }
}
