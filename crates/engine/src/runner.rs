//! The runner of one controller: takes keys from its queue and reconciles them, many at once. It starts a task for
//! each key that it takes. When the task has reconciled its key, it takes the next one that is ready, and ends if
//! there is none. A new task for each key would cost two more wake-ups.
//!
//! # Invariants
//! - A reconcile begins only after the fence allowed it for the assignment that came with its key (S1).
//!   The key counts as running from before the fence is asked until the reconcile and its writes have
//!   ended. A drain closes the queue and then waits for running keys, so it waits for this one,
//!   whichever came first (S2).
//! - The fence is asked again before each poll of the reconcile, the first included: a process that was
//!   stopped and wakes after its Lease runs no line of it ([`Fence::run`]).
//! - A reconcile has ended when its future is gone *and* none of its writes is under way.
//! - A reconcile begins only when the cache shows what the last one of its key wrote, or after a limited
//!   wait (`expectations`). A drain does not wait for that.
//! - A panic, a timeout or a lost shard ends only the one reconcile. A panic of what is dropped with it does so too:
//!   its writes are waited for whichever way it ends.
//! - No key is taken once the runner stops.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use model::{Clock, GroupScope, Moment, ObjectKey, Ownership, Purpose, panic_text, uid_hash};
use prometheus::IntCounter;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use crate::assigned::Assigned;
use crate::assignment::{Assignment, AssignmentQueue, ClusterContext};
use crate::dispatch::{Dispatch, DispatchObserver};
use crate::error::{ReconcileError, RetryClass};
use crate::expectations::{Expectation, Expectations};
use crate::fence::Fence;
use crate::reconcile::Action;
use crate::run::Run;
use crate::spec::ControllerSpec;
use crate::time_slice::TimeSlice;
use crate::view::CacheView;
use crate::visit::{InClusterError, Visits};
use metrics::{ControllerMetrics, ReconcileResult};
use queue::{Outcome, Popped};
use upstream::{Services, UpstreamError};

/// Reconciles of one controller that may run at once over all clusters, at most. Waiting for a server costs
/// memory only, so this is high: clusters that hang must not use it up. While reconciles make each other late, the
/// queue runs fewer.
pub const MAX_RUNNING: usize = 4096;
/// The most by which a key that was left alone comes back later than the first: as long as the longest usual pause.
const MOST_APART_MS: u64 = 30_000;

/// What the runs of one controller share.
pub(crate) struct Runner {
    pub(crate) spec: ControllerSpec,
    pub(crate) queue: Arc<AssignmentQueue>,
    pub(crate) ownership: Arc<dyn Ownership>,
    pub(crate) observer: Arc<dyn DispatchObserver>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: ControllerMetrics,
    pub(crate) fence_rejected: IntCounter,
    pub(crate) reconcile_ids: Arc<AtomicU64>,
    /// The services outside of Kubernetes.
    pub(crate) services: Arc<Services>,
    /// What the reconciles wrote that the caches do not show yet.
    pub(crate) expectations: Expectations,
    /// The controller's assignments, for reconciles that work in several clusters.
    pub(crate) assigned: Arc<Assigned>,
}

/// A key that runs. Dropping this finishes the key: whatever happens to its task, a drain never waits
/// for a key that nothing runs.
struct Running<'a> {
    queue: &'a AssignmentQueue,
    key: &'a ObjectKey,
    outcome: Outcome,
    is_finished: bool,
}

impl Running<'_> {
    /// Finishes the key, and takes the next one that is ready.
    fn next(mut self) -> Option<Popped<Arc<Assignment>>> {
        self.is_finished = true;
        self.queue.finish_and_take(self.key, self.outcome)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.queue.finish(self.key, self.outcome);
        }
    }
}

/// How a reconcile ended.
enum Ended {
    Ok(Action),
    Failed(ReconcileError),
    Panicked(String),
    TimedOut,
    Cancelled,
    /// The fence let it run no further.
    Fenced,
}

impl Runner {
    /// Runs until `stop`, then until the last reconcile has ended. Cancel the assignments to hurry it.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let runner = Arc::new(self);
        let mut runs = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(_) = runs.join_next() => {}
                popped = runner.queue.next() => {
                    runs.spawn(Arc::clone(&runner).work(popped, stop.clone()));
                }
            }
        }
        while runs.join_next().await.is_some() {}
    }

    /// This key, and then each next one that is ready.
    async fn work(self: Arc<Self>, first: Popped<Arc<Assignment>>, stop: CancellationToken) {
        let (mut next, mut slice) = (Some(first), TimeSlice::new(&*self.clock));
        while let Some(Popped { key, assignment, waited, span }) = next {
            let mut run = Running {
                queue: &self.queue,
                key: &key,
                outcome: Outcome::Failed,
                is_finished: false,
            };
            run.outcome = slice.run(pin!(self.one(&key, &assignment, waited, span))).await;
            next = if stop.is_cancelled() { None } else { run.next() };
        }
    }

    /// One key from dispatch to its outcome.
    async fn one(
        &self,
        key: &ObjectKey,
        assignment: &Assignment,
        waited: Duration,
        queued: Span,
    ) -> Outcome {
        assignment.context.series.dispatched(waited);
        if !self.caught_up(key, assignment).await {
            return Outcome::Refused;
        }
        let Assignment { member, shard, epoch, .. } = assignment;
        let permit = self.ownership.permit(shard, *epoch, Purpose::Dispatch);
        if let Err(refusal) = permit {
            tracing::debug!(%key, error = %refusal, "not dispatched");
            return Outcome::Refused;
        }
        let dispatch = Dispatch {
            member: member.clone(),
            shard: shard.clone(),
            epoch: *epoch,
            controller: self.spec.name.clone(),
            key: key.clone(),
        };
        let span = self.span(&dispatch, &queued);
        // The wait is over; its span ends with this last handle.
        drop(queued);
        self.metrics.active.inc();
        let outcome = self.reconcile(&dispatch, assignment).instrument(span).await;
        self.metrics.active.dec();
        outcome
    }

    /// Waits until the cache shows what the last reconcile of the key wrote, within bounds. Returns
    /// whether the shard is still ours.
    async fn caught_up(&self, key: &ObjectKey, assignment: &Assignment) -> bool {
        let expected = self.expectations.take(key);
        if expected.is_empty() {
            return true;
        }
        let wait = async {
            let mut met = true;
            for expectation in &expected {
                met &= expectation.met(self.clock.now()).await;
            }
            met
        };
        tokio::select! {
            biased;
            met = wait => {
                if !met {
                    self.metrics.stale.inc();
                    tracing::debug!(%key, "the cache does not show yet what was written last");
                }
                true
            }
            () = self.queue.closed(&assignment.shard, assignment.epoch) => false,
            () = assignment.cancel.cancelled() => false,
        }
    }

    fn span(&self, dispatch: &Dispatch, queued: &Span) -> Span {
        let id = self.reconcile_ids.fetch_add(1, Ordering::Relaxed);
        tracing::info_span!(
            parent: queued,
            "reconcile",
            cluster = %dispatch.key.cluster,
            controller = %dispatch.controller,
            key = %dispatch.key,
            shard = %dispatch.shard,
            epoch = dispatch.epoch.0,
            reconcile_id = id,
            result = Empty,
        )
    }

    async fn reconcile(&self, dispatch: &Dispatch, assignment: &Assignment) -> Outcome {
        let Assignment { context, cancel, meter, .. } = assignment;
        let _busy = meter.begin(&dispatch.key, &*self.clock);
        let (ownership, clock) = (Arc::clone(&self.ownership), Arc::clone(&self.clock));
        let writes = Arc::clone(self.queue.writes());
        let fence = Fence::new(ownership, clock, self.fence_rejected.clone(), writes);
        let visits = self.visits(dispatch, context, &fence);
        let run = Run::new(
            dispatch.clone(),
            context,
            Arc::clone(&self.clock),
            fence.clone(),
            Arc::clone(&self.services),
            visits.clone(),
        );
        let started = self.clock.now();
        let mut ran = None;
        let ended = self.guarded(run, (dispatch, &fence, &mut ran), cancel).await;
        let mut elsewhere = Vec::new();
        if let Some(visits) = visits {
            elsewhere = visits.settle(|| self.clock.now()).await;
        }
        fence.settle().await;
        if let Some(ran) = ran {
            self.observer.finished(dispatch, ran);
        }
        let now = self.clock.now();
        let written = fence.take_written();
        let unseen =
            written.into_iter().flat_map(|one| Expectation::of(one, &context.informers, now));
        self.expectations.expect(&dispatch.key, unseen.chain(elsewhere).collect(), now);
        let took = self.clock.now().since(started);
        let conclude = |ended: Ended| {
            self.remember(&dispatch.key, &ended);
            self.outcome(&dispatch.key, context, ended, took)
        };
        // An error is the user's code, too, which runs when it is shown or dropped.
        catch_unwind(AssertUnwindSafe(|| conclude(ended)))
            .unwrap_or_else(|panic| conclude(Ended::Panicked(panic_text(&*panic))))
    }

    /// Access to other clusters, if the controller may work there.
    fn visits(
        &self,
        dispatch: &Dispatch,
        context: &Arc<ClusterContext>,
        fence: &Fence,
    ) -> Option<Arc<Visits>> {
        if self.spec.group_scope != GroupScope::Fleet {
            return None;
        }
        let origin = (dispatch.clone(), Arc::clone(context), fence.clone());
        Some(Arc::new(Visits::new(origin, Arc::clone(&self.assigned), Arc::clone(&self.queue))))
    }

    /// Runs the user's code under the fence and catches its panics, those of what is dropped when it is cancelled
    /// included.
    async fn guarded(
        &self,
        run: Run,
        (dispatch, fence, ran): (&Dispatch, &Fence, &mut Option<Moment>),
        cancel: &CancellationToken,
    ) -> Ended {
        let work = async {
            self.observer.started(dispatch);
            self.spec.reconcile.reconcile(run).await
        };
        let run = fence.run(dispatch, ran, work);
        let ended = async {
            tokio::select! {
                biased;
                () = cancel.cancelled() => Ended::Cancelled,
                result = tokio::time::timeout(self.spec.timeout, run) => match result {
                    Ok(Some(Ok(action))) => Ended::Ok(action),
                    Ok(Some(Err(error))) => Ended::Failed(error),
                    Ok(None) => Ended::Fenced,
                    Err(_) => Ended::TimedOut,
                },
            }
        };
        let ended = AssertUnwindSafe(ended).catch_unwind().await;
        ended.unwrap_or_else(|panic| Ended::Panicked(panic_text(&*panic)))
    }

    /// Keeps why a key failed, for whoever asks, until it does not.
    fn remember(&self, key: &ObjectKey, ended: &Ended) {
        let (result, error) = match ended {
            Ended::Ok(_) => return self.queue.succeeded(key),
            Ended::Failed(error) if UpstreamError::among(error).is_some() => {
                ("held back", model::error::chain(error))
            }
            Ended::Failed(error) => {
                let result = match error.class() {
                    RetryClass::Transient => "failed",
                    RetryClass::Terminal => "failed for good",
                    RetryClass::Conflict => "met a conflict",
                };
                (result, model::error::chain(error))
            }
            Ended::Panicked(panic) => ("panicked", panic.clone()),
            Ended::TimedOut => {
                ("timed out", format!("it took longer than {}s", self.spec.timeout.as_secs()))
            }
            Ended::Cancelled | Ended::Fenced => return,
        };
        self.queue.failed(key, result, &error);
    }

    /// Counts and logs how a reconcile ended. Returns what the queue does next.
    fn outcome(
        &self,
        key: &ObjectKey,
        context: &ClusterContext,
        ended: Ended,
        took: Duration,
    ) -> Outcome {
        let (result, outcome) = match ended {
            Ended::Ok(Action::Done) => (ReconcileResult::Success, Outcome::Done),
            Ended::Ok(Action::RequeueAfter(delay)) => {
                let priority = self.spec.requeue_priority;
                (ReconcileResult::RequeueAfter, Outcome::Requeue { after: delay, priority })
            }
            Ended::Failed(error) => self.failed(key, &context.view, &error),
            Ended::Panicked(panic) => {
                self.metrics.panics.inc();
                log_some!(context.view, error, "reconcile panicked, retrying", panic);
                (ReconcileResult::Error, Outcome::Failed)
            }
            Ended::TimedOut => {
                self.metrics.timeouts.inc();
                let timeout_ms = self.spec.timeout.as_millis();
                log_some!(context.view, warn, "reconcile timed out, retrying", timeout_ms);
                (ReconcileResult::Error, Outcome::Failed)
            }
            Ended::Cancelled => {
                Span::current().record("result", "cancelled");
                tracing::info!("reconcile cancelled, its shard is no longer ours");
                return Outcome::Done;
            }
            Ended::Fenced => {
                Span::current().record("result", "fenced");
                tracing::info!("reconcile dropped, the fence lets it run no further");
                return Outcome::Refused;
            }
        };
        if result == ReconcileResult::Error {
            self.metrics.errors.inc();
        }
        Span::current().record("result", result.label());
        self.metrics.observe(&context.series, result, took);
        outcome
    }

    fn failed(
        &self,
        key: &ObjectKey,
        view: &CacheView,
        error: &ReconcileError,
    ) -> (ReconcileResult, Outcome) {
        let text = model::error::chain(error);
        let retry = error.retry_delay().map_or(Outcome::Failed, Outcome::RetryAfter);
        match error.class() {
            RetryClass::Transient => {
                if let Some(held) = UpstreamError::among(error) {
                    // No error of the controller's, and the gate says it once for all keys.
                    tracing::debug!(error = text, "reconcile held back");
                    let again_in = match held {
                        UpstreamError::LeftAlone { again_in, .. } => {
                            *again_in + apart(key, self.queue.waiting(&key.cluster))
                        }
                        other => other.again_in(),
                    };
                    return (ReconcileResult::RequeueAfter, Outcome::Held(again_in));
                }
                if InClusterError::is_passing(error) {
                    tracing::debug!(error = text, "reconcile waits for another cluster, retrying");
                    return (ReconcileResult::Requeue, Outcome::Failed);
                }
                log_some!(view, warn, "reconcile failed, retrying", error = text);
                (ReconcileResult::Error, retry)
            }
            RetryClass::Terminal => {
                self.metrics.terminal_errors.inc();
                let error = text;
                log_some!(view, error, "reconcile failed, not retrying until a change", error);
                (ReconcileResult::Error, Outcome::Done)
            }
            RetryClass::Conflict => {
                tracing::debug!(error = text, "reconcile met a conflict, retrying");
                (ReconcileResult::Requeue, retry)
            }
        }
    }
}

/// How much later than the first of its cluster a key comes back that was left alone, if so many keys of it wait: about
/// a thousand come in a second. If all came at once, after each pause, a cluster with many keys would take the CPU of
/// the others. Keys that wait for something else count too, so there is a limit.
fn apart(key: &ObjectKey, waiting: usize) -> Duration {
    let most = (waiting as u64).min(MOST_APART_MS);
    Duration::from_millis(uid_hash(&key.to_string()) % (most + 1))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn keys_come_back_apart_whatever_their_names_and_soon_however_many_wait() {
        let key = |number: usize| {
            ObjectKey::new("east".parse().unwrap(), Some(&format!("ns-{number}")), "same")
        };
        let delays: BTreeSet<_> = (0..1000).map(|number| apart(&key(number), 1000)).collect();
        assert!(delays.len() > 500, "{} of 1000", delays.len());
        let latest = (0..1000).map(|number| apart(&key(number), 1_000_000)).max();
        assert!(latest <= Some(Duration::from_millis(MOST_APART_MS)), "{latest:?}");
    }
}
