//! How much of all lists of a process may be under way at once, so that a start with many clusters
//! does not exhaust the memory; and how many changes and pages of one cluster are taken in, so that it does not take
//! every core.
//!
//! A list has a share of [`LISTED_KIB`] from its request until all of it is stored. A page is at most as long
//! as its share. A list whose cluster is slow or dead lends its share to others meanwhile and queues for it
//! again when data arrives: only a cluster's own shards wait for it. So does a stream that has had its turn. A page that
//! has begun to fill its share keeps it, but not for long: then it goes on among the few that come slowly, and its cluster
//! asks for further ones among these. Watches have no share. Shares are handed out first come, first served.
//!
//! Large lines, of lists and watches, are read a few at a time: others wait with what their connections have
//! read ahead. A line that does not come to its end within [`LENT_AFTER`] lets the others go first.
//!
//! One cluster has at most [`CLUSTER_KIB`] of all shares, one slow page and one large line, because it may fill them and
//! never come to an end. Lists in one piece, each of which may be as large as four pages, are read one at a time, beside the
//! others: nobody who asks for pages or streams waits for them.
#![expect(clippy::disallowed_methods, reason = "a shell: turns, and how long one was waited for")]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use model::{Bucket, Moment, Rate};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// KiB of lists under way at once, but for those in one piece.
pub const LISTED_KIB: usize = 96 << 10;
/// KiB of lists of one cluster under way at once, but for those in one piece.
pub const CLUSTER_KIB: usize = 16 << 10;
/// KiB of a streamed list: what its connection reads ahead, and the object being stored.
pub const STREAM_KIB: u32 = 512;
/// KiB of a page: 500 objects of 16 KB.
pub const PAGE_KIB: u32 = 8 << 10;
/// KiB of a list in one piece, or of a page with one object.
pub const WHOLE_KIB: u32 = 32 << 10;
/// KiB of pages that come slowly under way at once, one of each cluster.
pub const SLOW_KIB: usize = 2 * PAGE_KIB as usize;
/// How long a cluster asks for pages among those that come slowly.
const SLOW_FOR: Duration = Duration::from_secs(1800);
/// Large lines read at once.
pub const LARGE_LINES: usize = 4;
/// Large lines of one cluster read at once.
const CLUSTER_LARGE_LINES: usize = 1;
/// How long a list may bring nothing, all in all, before it lends its share, and how long a stream or a large line is
/// read before it is another's turn.
pub const LENT_AFTER: Duration = Duration::from_secs(1);
/// Lines of a cluster's watches, and those of its lists that bring no new object, that are taken in for each second, long
/// ones as several,
pub const LINES_PER_SECOND: u32 = 2_000;
/// and so many at once after a rest.
pub const LINES_AT_ONCE: u32 = 10_000;
/// The bytes of a line that count for one: 8 MiB come in a second, and 40 MiB at once.
const LINE_BYTES: usize = 4 << 10;
/// KiB of a cluster's pages that are taken in for each second. Of pages that a few bytes unfold to little may be kept,
/// so that no budget ends them,
const PAGED_PER_SECOND: u32 = 32 << 10;
/// and so many at once after a rest.
const PAGED_AT_ONCE: u32 = 256 << 10;
/// What one of them counts for.
const PAGED_TIME: Duration = Duration::from_nanos(1_000_000_000 / PAGED_PER_SECOND as u64);
/// What comes is counted once it is there, so one more comes than at once.
const LINES: Rate = Rate { interval: LINE_TIME, burst: LINES_AT_ONCE + 1 };
/// As [`LINES`].
const PAGES: Rate = Rate { interval: PAGED_TIME, burst: PAGED_AT_ONCE + 1 };
/// How long a cluster whose lines had to wait is said to be throttled: longer than the time between two scrapes.
const THROTTLED_FOR: Duration = Duration::from_secs(60);
/// What one of them counts for.
const LINE_TIME: Duration = Duration::from_nanos(1_000_000_000 / LINES_PER_SECOND as u64);

/// The budget that all lists share, and one cluster's part of it. Clones are the same budget and the same part.
#[derive(Clone, Debug)]
pub struct Intake {
    lists: Pool,
    /// Lists in one piece.
    whole: Pool,
    /// Pages that come slowly.
    slow: Pool,
    large_lines: Pool,
    /// Until when the cluster asks for pages among those that come slowly.
    slow_until: Arc<Mutex<Option<Instant>>>,
    lines: Flow,
    pages: Flow,
    /// Until when it is said that they had to wait.
    throttled_until: Arc<Mutex<Option<Instant>>>,
}

/// What comes of one cluster at a bounded rate. Clones share it.
#[derive(Clone, Debug)]
struct Flow {
    began: Instant,
    bucket: Arc<Mutex<Bucket>>,
}

impl Flow {
    fn new(rate: Rate) -> Self {
        Self { began: Instant::now(), bucket: Arc::new(Mutex::new(Bucket::new(rate))) }
    }

    fn now(&self) -> Moment {
        Moment::from_origin(self.began.elapsed())
    }

    /// Counts what has come.
    fn count(&self, tokens: u32) {
        lock(&self.bucket).take(tokens, self.now());
    }

    /// How long it takes until more may come.
    fn wait(&self) -> Duration {
        let now = self.now();
        now.until(lock(&self.bucket).ready_at(now))
    }
}

/// Why a cluster is throttled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Throttled {
    /// It changes more often than [`LINES_PER_SECOND`], or its changes are long.
    Changes,
    /// Its pages come slowly: they have few places.
    Pages,
}

impl Throttled {
    /// The value of a label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Changes => "changes",
            Self::Pages => "pages",
        }
    }
}

/// What all have together, and the most that one cluster may have of it.
#[derive(Clone, Debug)]
struct Pool {
    all: Arc<Semaphore>,
    part: Arc<Semaphore>,
}

/// One reader's share of a pool.
pub(crate) struct Share {
    pool: Pool,
    permits: u32,
    /// Whether it stays in its cluster's part when it is lent.
    keeps_part: bool,
    part: Option<OwnedSemaphorePermit>,
    state: State,
    /// How long it was waited since it is held, and since when it is.
    idle: Duration,
    waiting: Option<Instant>,
}

enum State {
    Lent,
    Queued(BoxFuture<'static, [OwnedSemaphorePermit; 2]>, Instant),
    Held(#[expect(dead_code, reason = "it is there to be dropped")] OwnedSemaphorePermit, Instant),
}

impl Pool {
    fn new(all: usize, part: usize) -> Self {
        let [all, part] = [all, part].map(|permits| Arc::new(Semaphore::new(permits)));
        Self { all, part }
    }

    /// The same, with a part for another cluster.
    fn with_part(&self, part: usize) -> Self {
        Self { all: Arc::clone(&self.all), part: Arc::new(Semaphore::new(part)) }
    }

    fn share(&self, permits: u32, keeps_part: bool) -> Share {
        let (part, state, idle, waiting) = (None, State::Lent, Duration::ZERO, None);
        Share { pool: self.clone(), permits, keeps_part, part, state, idle, waiting }
    }
}

impl Default for Intake {
    fn default() -> Self {
        Self {
            lists: Pool::new(LISTED_KIB, CLUSTER_KIB),
            whole: Pool::new(WHOLE_KIB as usize, WHOLE_KIB as usize),
            slow: Pool::new(SLOW_KIB, PAGE_KIB as usize),
            large_lines: Pool::new(LARGE_LINES, CLUSTER_LARGE_LINES),
            slow_until: Arc::default(),
            lines: Flow::new(LINES),
            pages: Flow::new(PAGES),
            throttled_until: Arc::default(),
        }
    }
}

impl Intake {
    /// The same budget, with a part for another cluster.
    #[must_use]
    pub fn of_another_cluster(&self) -> Self {
        Self {
            lists: self.lists.with_part(CLUSTER_KIB),
            whole: self.whole.with_part(WHOLE_KIB as usize),
            slow: self.slow.with_part(PAGE_KIB as usize),
            large_lines: self.large_lines.with_part(CLUSTER_LARGE_LINES),
            slow_until: Arc::default(),
            lines: Flow::new(LINES),
            pages: Flow::new(PAGES),
            throttled_until: Arc::default(),
        }
    }

    /// Why its cluster gets less than it asks for, in order.
    #[must_use]
    pub fn throttled(&self) -> Vec<Throttled> {
        let lasts = |until: &Mutex<Option<Instant>>| {
            lock(until).is_some_and(|until| Instant::now() < until)
        };
        let changes = lasts(&self.throttled_until).then_some(Throttled::Changes);
        changes.into_iter().chain(lasts(&self.slow_until).then_some(Throttled::Pages)).collect()
    }

    /// KiB that nobody holds.
    #[cfg(test)]
    pub(crate) fn free_kib(&self) -> usize {
        let all = [&self.lists, &self.whole, &self.slow];
        all.map(|pool| pool.all.available_permits()).iter().sum()
    }

    /// A list's share, not yet held.
    pub(crate) fn share(&self, kibibytes: u32) -> Share {
        let pool = match kibibytes {
            WHOLE_KIB => &self.whole,
            PAGE_KIB if lock(&self.slow_until).is_some_and(|until| Instant::now() < until) => {
                &self.slow
            }
            _ => &self.lists,
        };
        pool.share(kibibytes, false)
    }

    /// A page has been kept for long. It goes on in a share of those that come slowly, if there is one. Says whether it
    /// may go on: not if others may wait for the share that it has.
    pub(crate) fn slows(&self, page: &mut Share) -> bool {
        if page.permits != PAGE_KIB {
            return true;
        }
        *lock(&self.slow_until) = Some(Instant::now() + SLOW_FOR);
        page.moves_to(&self.slow) || page.pool.all.available_permits() > 0
    }

    /// Counts a page of so many bytes.
    pub(crate) fn page(&self, bytes: usize) {
        self.pages.count(u32::try_from(bytes >> 10).unwrap_or(u32::MAX));
    }

    /// How long it takes until another page may be asked for.
    pub(crate) fn page_in(&self) -> Duration {
        self.pages.wait()
    }

    /// Counts a line of a watch, or one of a list that brings no new object, of so many bytes.
    pub(crate) fn line(&self, bytes: usize) {
        self.lines.count(counts(bytes));
    }

    /// Waits until more of these lines may come; says how long that took.
    pub(crate) async fn lines_may_come(&self) -> Duration {
        let (wait, began) = (self.lines.wait(), Instant::now());
        if !wait.is_zero() {
            *lock(&self.throttled_until) = Some(began + wait + THROTTLED_FOR);
            tokio::time::sleep(wait).await;
        }
        began.elapsed()
    }

    /// Leave to read a large line, not yet given. What has been read of it stays in memory while it is lent.
    pub(crate) fn large_line(&self) -> Share {
        self.large_lines.share(1, true)
    }
}

impl Share {
    /// Waits until it is held; says how long that took. Cancel-safe: its place in the queue is kept.
    pub(crate) async fn hold(&mut self) -> Duration {
        let mut waited = Duration::ZERO;
        loop {
            match &mut self.state {
                State::Held(..) => return waited,
                State::Queued(permits, since) => {
                    let [part, all] = permits.await;
                    waited = since.elapsed();
                    self.part = Some(part);
                    self.state = State::Held(all, Instant::now());
                    (self.idle, self.waiting) = (Duration::ZERO, None);
                }
                State::Lent => {
                    let permits = acquired(self.pool.clone(), self.permits, self.part.take());
                    self.state = State::Queued(permits.boxed(), Instant::now());
                }
            }
        }
    }

    /// Lets others go first, if it has had its turn.
    pub(crate) fn pass_on(&mut self) {
        if matches!(self.state, State::Held(_, since) if since.elapsed() >= LENT_AFTER) {
            self.lend();
        }
    }

    /// Waits, and lends it out if that takes long, together with what was waited before. Cancel-safe if the wait is.
    pub(crate) async fn lent_during<T>(&mut self, wait: impl Future<Output = T>) -> T {
        let mut wait = std::pin::pin!(wait);
        if matches!(self.state, State::Held(..)) {
            let since = *self.waiting.get_or_insert_with(Instant::now);
            let until = since + LENT_AFTER.saturating_sub(self.idle);
            if let Ok(done) = tokio::time::timeout_at(until, &mut wait).await {
                self.idle += since.elapsed();
                self.waiting = None;
                return done;
            }
            self.lend();
        }
        wait.await
    }

    /// Exchanges what it holds for a share of another pool, if there is one. Returns whether it has that now.
    fn moves_to(&mut self, pool: &Pool) -> bool {
        if Arc::ptr_eq(&self.pool.all, &pool.all) {
            return true;
        }
        let acquire = |of: &Arc<Semaphore>| Arc::clone(of).try_acquire_many_owned(self.permits);
        let (Ok(part), Ok(all)) = (acquire(&pool.part), acquire(&pool.all)) else { return false };
        (self.pool, self.part) = (pool.clone(), Some(part));
        self.state = State::Held(all, Instant::now());
        true
    }

    fn lend(&mut self) {
        self.state = State::Lent;
        if !self.keeps_part {
            self.part = None;
        }
    }
}

/// For how many lines one of so many bytes counts.
fn counts(bytes: usize) -> u32 {
    u32::try_from(bytes / LINE_BYTES).unwrap_or(u32::MAX).max(1)
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The permits of a cluster's part and of all. First those of the part, so that nobody else waits for a cluster
/// that has its part.
async fn acquired(
    pool: Pool,
    permits: u32,
    part: Option<OwnedSemaphorePermit>,
) -> [OwnedSemaphorePermit; 2] {
    let acquire = async |semaphore: Arc<Semaphore>| {
        semaphore.acquire_many_owned(permits).await.expect("nobody closes it")
    };
    let part = match part {
        Some(part) => part,
        None => acquire(pool.part).await,
    };
    [part, acquire(pool.all).await]
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::timeout;

    use super::*;

    const PART: u32 = CLUSTER_KIB as u32;

    /// Shares of so many clusters, which take all there is, and one more.
    fn shares() -> (Vec<Share>, Share) {
        let intake = Intake::default();
        let share = || intake.of_another_cluster().share(PART);
        ((0..LISTED_KIB / CLUSTER_KIB).map(|_| share()).collect(), share())
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_there_is_waited_for_in_turn() {
        let (mut all, mut next) = shares();
        for share in &mut all {
            assert_eq!(share.hold().await, Duration::ZERO);
        }
        let mut last =
            Intake { lists: next.pool.with_part(CLUSTER_KIB), ..Intake::default() }.share(1);
        assert!(next.hold().now_or_never().is_none());
        assert!(last.hold().now_or_never().is_none());
        tokio::time::advance(LENT_AFTER).await;
        all.pop();
        assert_eq!(next.hold().await, LENT_AFTER);
        assert!(last.hold().now_or_never().is_none(), "one came before");
        drop(next);
        last.hold().await;
    }

    #[tokio::test(start_paused = true)]
    async fn one_cluster_has_a_part_and_others_do_not_wait_for_it() {
        let (cluster, mut read) = (Intake::default(), Vec::new());
        for _ in 0..3 {
            let mut share = cluster.share(PART);
            let is_first = read.is_empty();
            assert_eq!(share.hold().now_or_never().is_some(), is_first);
            let mut line = cluster.large_line();
            assert_eq!(line.hold().now_or_never().is_some(), is_first);
            read.push((share, line));
        }
        let other = cluster.of_another_cluster();
        assert!(other.share(PART).hold().now_or_never().is_some());
        assert!(other.large_line().hold().now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn lists_in_one_piece_hold_up_no_pages() {
        let intake = Intake::default();
        let mut whole: Vec<_> =
            (0..4).map(|_| intake.of_another_cluster().share(WHOLE_KIB)).collect();
        let held: Vec<_> =
            whole.iter_mut().map(|one| one.hold().now_or_never().is_some()).collect();
        assert_eq!(held, [true, false, false, false]);
        for kibibytes in [STREAM_KIB, PAGE_KIB] {
            let mut share = intake.of_another_cluster().share(kibibytes);
            assert!(share.hold().now_or_never().is_some());
        }
        drop(whole.remove(0));
        whole[0].hold().await;
    }

    #[tokio::test(start_paused = true)]
    async fn few_large_lines_are_read_at_once_and_each_has_its_turn() {
        let intake = Intake::default();
        let mut lines: Vec<_> =
            (0..LARGE_LINES).map(|_| intake.of_another_cluster().large_line()).collect();
        for line in &mut lines {
            line.hold().await;
            line.pass_on();
        }
        let own = intake.of_another_cluster();
        let mut next = own.large_line();
        assert!(next.hold().now_or_never().is_none(), "the others have just begun");
        tokio::time::advance(LENT_AFTER).await;
        lines[0].pass_on();
        next.hold().await;
        assert!(lines[0].hold().now_or_never().is_none());
        // What was read of it is still there.
        let waited = timeout(LENT_AFTER * 2, next.lent_during(pending::<()>())).await;
        assert!(waited.is_err());
        lines[0].hold().await;
        assert!(own.large_line().hold().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_line_of_a_watch_counts_for_several() {
        for (bytes, expect) in
            [(0, 1), (2 * LINE_BYTES - 1, 1), (2 * LINE_BYTES, 2), (4 << 20, 1024)]
        {
            assert_eq!(counts(bytes), expect, "{bytes} bytes");
        }
        let intake = Intake::default();
        for _ in 0..LINES_AT_ONCE / 50 {
            assert!(intake.lines_may_come().now_or_never().is_some());
            intake.line(50 * LINE_BYTES);
        }
        assert!(intake.lines_may_come().now_or_never().is_some());
        intake.line(50 * LINE_BYTES);
        assert!(intake.lines_may_come().await >= LINE_TIME * 50);
        assert_eq!(intake.throttled(), [Throttled::Changes]);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_long_lends_and_gets_it_back() {
        let intake = Intake::default();
        let [mut slow, mut other] = [0; 2].map(|_| intake.share(PART));
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
