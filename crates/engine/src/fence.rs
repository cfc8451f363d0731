//! The fence of one dispatch: whether its code may run on, whether a write may be sent and until when,
//! and whether one is still under way.
//!
//! # Invariants
//! - [`Fence::run`] asks [`Ownership`] before each poll of the reconciler's future and drops it once
//!   that refuses. So no line of it runs after the Lease has ended by our clock, not even in a process
//!   that was stopped and wakes (S1). What this cannot prevent: that it is stopped between that
//!   check and the next await, which nobody can interrupt, and what tasks do that a reconciler spawns.
//! - Every write asks [`Ownership`] when its turn at the gate has come, not only when it begins to
//!   wait, and is given up when the Lease ends, by our clock (S5).
//! - A write counts as under way until it has ended, even if its reconcile was dropped before;
//!   [`Fence::settle`] waits for it (S2).
//! - After [`Fence::settle`] no further write begins, and the streams to Pods are cut.

use std::fmt::Display;
use std::future::poll_fn;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Poll;
use std::time::Duration;

use model::{Clock, Epoch, FenceError, Moment, Ownership, Purpose, ShardId, Validity};
use portforward::Line;
use prometheus::IntCounter;
use queue::WriteTimes;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tower::BoxError;
use tracing::Instrument;
use upstream::{Gate, Ticket, UpstreamError};

use crate::dispatch::Dispatch;
use crate::finish::to_its_end;
use crate::large::Reads;
use writes::Written;

/// The longest a single write may take, however long the Lease is valid.
pub const MAX_WRITE_TIME: Duration = Duration::from_secs(30);
/// With less time than this no write begins: a server counts its part of it in whole milliseconds.
const MIN_WRITE_TIME: Duration = Duration::from_millis(1);
/// Writes of one reconcile that the next one waits to see in the cache.
const MAX_WRITTEN: usize = 64;

/// A write that the fence refused or cut off. Found in the source chain of the [`kube::Error`] that
/// a fenced client returns.
#[derive(Debug, thiserror::Error)]
pub enum FencedError {
    /// Not sent.
    #[error("{what} was not sent")]
    Refused {
        /// The request: its method and path, or what a controller calls it.
        what: String,
        /// Why the member may not act.
        #[source]
        source: FenceError,
    },
    /// Not sent: its reconcile has ended, but its client was kept.
    #[error("{what} was not sent: its reconcile has ended")]
    Over {
        /// The request.
        what: String,
    },
    /// Sent, and not answered while the permit was valid. It may or may not have taken effect.
    #[error("{what} was not answered within {}ms, all that the Lease allows", .limit.as_millis())]
    TimedOut {
        /// The request.
        what: String,
        /// The time it was given.
        limit: Duration,
    },
}

/// The fence of one dispatch. Clones share it.
#[derive(Clone)]
pub(crate) struct Fence(Arc<Inner>);

struct Inner {
    ownership: Arc<dyn Ownership>,
    clock: Arc<dyn Clock>,
    /// Writes under way.
    writes: TaskTracker,
    over: AtomicBool,
    /// What was written and how, for the next reconcile of the key.
    written: Mutex<Vec<Written>>,
    /// What is told how long the writes take.
    times: Arc<WriteTimes>,
    /// The streams to Pods, to be cut at the end.
    lines: Mutex<Vec<Weak<Line>>>,
    /// The large answers that the reconcile reads, of all clusters in which it works.
    reads: Reads,
    rejected: IntCounter,
    visit: Option<Visit>,
}

/// What a write in a cluster other than the key's needs besides that cluster's shard.
struct Visit {
    /// The shard that the reconcile runs under, and its epoch.
    origin: (ShardId, Epoch),
    /// All such writes under the visited assignment; closed when it has to end.
    writes: TaskTracker,
}

/// Permission to write once. Its dispatch ends only after it is given back.
pub(crate) struct WritePermit {
    deadline: Moment,
    clock: Arc<dyn Clock>,
    /// Of the dispatch, and of the visited assignment.
    tokens: (TaskTrackerToken, Option<TaskTrackerToken>),
}

// === impl Fence ===

impl Fence {
    pub(crate) fn new(
        ownership: Arc<dyn Ownership>,
        clock: Arc<dyn Clock>,
        rejected: IntCounter,
        times: Arc<WriteTimes>,
    ) -> Self {
        Self::make(ownership, clock, rejected, times, None, Reads::default())
    }

    /// The fence of what a reconcile writes in another cluster, where `writes` are counted too. Writes
    /// by a dispatch of the visited shard ask for that of `origin` as well.
    pub(crate) fn visiting(&self, origin: &Dispatch, writes: &TaskTracker) -> Self {
        let Inner { ownership, clock, rejected, times, reads, .. } = &*self.0;
        let origin = (origin.shard.clone(), origin.epoch);
        let visit = Some(Visit { origin, writes: writes.clone() });
        let (ownership, clock) = (Arc::clone(ownership), Arc::clone(clock));
        Self::make(ownership, clock, rejected.clone(), Arc::clone(times), visit, reads.clone())
    }

    fn make(
        ownership: Arc<dyn Ownership>,
        clock: Arc<dyn Clock>,
        rejected: IntCounter,
        times: Arc<WriteTimes>,
        visit: Option<Visit>,
        reads: Reads,
    ) -> Self {
        let (writes, over) = (TaskTracker::new(), AtomicBool::new(false));
        let (written, lines) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Inner {
            ownership,
            clock,
            writes,
            over,
            written,
            times,
            lines,
            reads,
            rejected,
            visit,
        }))
    }

    /// The time in which the shard of `dispatch` is held, with the cluster's label value.
    pub(crate) fn validity(&self, dispatch: &Dispatch, label: String) -> Validity {
        let ownership = Arc::clone(&self.0.ownership);
        Validity::new(ownership, dispatch.shard.clone(), dispatch.epoch, label)
    }

    /// The large answers that the reconcile reads.
    pub(crate) fn reads(&self) -> &Reads {
        &self.0.reads
    }

    /// How many members are alive.
    pub(crate) fn members(&self) -> NonZeroU32 {
        self.0.ownership.members()
    }

    /// Waits for the turn of a write by `dispatch` at `gate`, as long as the write may be sent at all.
    /// Then asks again whether it may be sent.
    pub(crate) async fn admit(
        &self,
        dispatch: &Dispatch,
        gate: &Arc<Gate>,
        what: &impl Display,
    ) -> Result<(Ticket, WritePermit), BoxError> {
        let limit = self.0.clock.now().until(self.permit(dispatch, what)?);
        let turn = tokio::time::timeout(limit, gate.admit_for(&dispatch.key.cluster)).await;
        let upstream = gate.upstream();
        let ticket =
            turn.map_err(|_| UpstreamError::NoTurn { upstream: upstream.clone(), limit })??;
        // Counted first: code that stops further writes then waits for those that are counted.
        let visited = self.0.visit.as_ref().map(|visit| visit.writes.token());
        let tokens = (self.0.writes.token(), visited);
        let deadline = self.permit(dispatch, what)?;
        Ok((ticket, WritePermit { deadline, clock: Arc::clone(&self.0.clock), tokens }))
    }

    /// Whether a write may be sent now, and until when it may take.
    fn permit(&self, dispatch: &Dispatch, what: &impl Display) -> Result<Moment, FencedError> {
        if self.0.over.load(Ordering::SeqCst) {
            return Err(self.refused(FencedError::Over { what: what.to_string() }));
        }
        let now = self.0.clock.now();
        let valid_until = self.valid_until(dispatch).and_then(|valid_until| {
            let Dispatch { shard, member, .. } = dispatch;
            let expired =
                || FenceError::LeaseExpired { shard: shard.clone(), member: member.clone() };
            if now.until(valid_until) < MIN_WRITE_TIME { Err(expired()) } else { Ok(valid_until) }
        });
        match valid_until {
            Ok(valid_until) => Ok(valid_until.min(now + MAX_WRITE_TIME)),
            Err(source) => {
                Err(self.refused(FencedError::Refused { what: what.to_string(), source }))
            }
        }
    }

    /// Whether a byte may pass on a stream to `what` now.
    pub(crate) fn ask(&self, dispatch: &Dispatch, what: &impl Display) -> Result<(), FencedError> {
        self.permit(dispatch, what).map(drop)
    }

    /// Cuts this stream when the dispatch ends, or now if it has.
    pub(crate) fn hold(&self, line: &Arc<Line>) {
        let mut lines = self.lines();
        lines.retain(|line| line.strong_count() > 0);
        lines.push(Arc::downgrade(line));
        drop(lines);
        if self.0.over.load(Ordering::SeqCst) {
            line.cut();
        }
    }

    fn lines(&self) -> MutexGuard<'_, Vec<Weak<Line>>> {
        self.0.lines.lock().expect("no holder of this lock panics")
    }

    /// Until when this member may act for every shard that the write needs.
    fn valid_until(&self, dispatch: &Dispatch) -> Result<Moment, FenceError> {
        let ownership = &self.0.ownership;
        let permit = ownership.permit(&dispatch.shard, dispatch.epoch, Purpose::Write)?;
        let Some(Visit { origin: (shard, epoch), writes }) = &self.0.visit else {
            return Ok(permit.valid_until);
        };
        if writes.is_closed() {
            return Err(FenceError::NotActive { shard: dispatch.shard.clone() });
        }
        let origin = ownership.permit(shard, *epoch, Purpose::Write)?;
        Ok(permit.valid_until.min(origin.valid_until))
    }

    /// Runs `work`, the code of `dispatch`, as long as the fence allows it; `None` once it refuses. Notes
    /// in `ran` when it last let it run: never, if nothing is there.
    pub(crate) async fn run<T>(
        &self,
        dispatch: &Dispatch,
        ran: &mut Option<Moment>,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let Inner { ownership, clock, .. } = &*self.0;
        let mut work = pin!(work);
        poll_fn(|cx| {
            let now = clock.now();
            if let Err(refusal) = ownership.permit(&dispatch.shard, dispatch.epoch, Purpose::Run) {
                tracing::debug!(key = %dispatch.key, error = %refusal, "runs no further");
                return Poll::Ready(None);
            }
            *ran = Some(now);
            work.as_mut().poll(cx).map(Some)
        })
        .await
    }

    fn refused(&self, error: FencedError) -> FencedError {
        self.0.rejected.inc();
        tracing::warn!(error = model::error::chain(&error), "a write was fenced");
        error
    }

    /// A write of `dispatch` was answered, so long after it was sent, by a cluster whose fastest answer took so long.
    pub(crate) fn answered(&self, dispatch: &Dispatch, took: Duration, fastest: Option<Duration>) {
        self.0.times.answered(&dispatch.key.cluster, took, fastest);
    }

    /// Remembers what a write did, up to the last [`MAX_WRITTEN`].
    pub(crate) fn record(&self, one: Written) {
        let mut written = self.0.written.lock().expect("no holder of this lock panics");
        if written.len() == MAX_WRITTEN {
            written.remove(0);
        }
        written.push(one);
    }

    /// What was written, as far as the answers show.
    pub(crate) fn take_written(&self) -> Vec<Written> {
        std::mem::take(&mut self.0.written.lock().expect("no holder of this lock panics"))
    }

    /// Lets no further write begin, cuts the streams to Pods, and waits until no write is under way.
    pub(crate) async fn settle(&self) {
        self.0.over.store(true, Ordering::SeqCst);
        self.lines().drain(..).filter_map(|line| line.upgrade()).for_each(|line| line.cut());
        self.0.writes.close();
        self.0.writes.wait().await;
    }
}

// === impl WritePermit ===

impl WritePermit {
    /// How long the write may take, from now on.
    pub(crate) fn limit(&self) -> Duration {
        self.clock.now().until(self.deadline)
    }

    /// Does `work`, to its end even if this future is dropped, and gives it up when the permit has run
    /// out. It uses our clock: timers stand still while the machine is suspended, the Lease does not.
    pub(crate) async fn act<T: Send + 'static>(
        self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let Self { deadline, clock, tokens } = self;
        let act = async move {
            // Given back when the work has ended, and not when its reconcile has.
            let _tokens = tokens;
            before(&*clock, deadline, work).await
        };
        to_its_end(act.in_current_span()).await
    }
}

/// The output of `work`, if it ends before `deadline`. After the deadline, `work` is not polled once
/// more: a process that was suspended sends nothing when it wakes, not even what it was about to.
async fn before<T>(
    clock: &dyn Clock,
    deadline: Moment,
    work: impl Future<Output = T>,
) -> Option<T> {
    let (mut work, mut late) = (pin!(work), clock.sleep_until(deadline));
    poll_fn(|cx| {
        if clock.now() >= deadline {
            return Poll::Ready(None);
        }
        match work.as_mut().poll(cx) {
            // It waits: only then is a timer of use.
            Poll::Pending => late.as_mut().poll(cx).map(|()| None),
            Poll::Ready(done) => Poll::Ready(Some(done)),
        }
    })
    .await
}

impl std::fmt::Debug for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fence").finish_non_exhaustive()
    }
}
