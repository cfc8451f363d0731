//! The gate before one upstream: a request waits here for its turn. `guard` and `waiting` decide;
//! this adds the clock, the lock and the waiting.
//!
//! # Invariants
//! - A waiter that is dropped leaves its place at once; a [`Ticket`] that is dropped counts as a
//!   request given up by its sender.
//! - The first waiter is woken at every change. Others need not be, except that all reconciles are
//!   woken when the cluster is left alone.
//! - There is one gate per upstream (for a cluster: per incarnation), and gates share nothing: a
//!   cluster that does not answer delays only its own requests.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use model::{Clock, ClusterName, Moment};
use tokio::sync::Notify;

use super::breaker::BreakerPhase;
use super::guard::{Admit, Guard, Pass, Reading};
use super::outcome::Outcome;
use super::status::UpstreamStatus;
use super::waiting::{Caller, WaitQueues, WaiterId};
use super::{Upstream, UpstreamError, UpstreamLimits};

/// How often a log is told that a breaker opens, at most.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// The gate before one upstream.
#[derive(Debug)]
pub struct Gate {
    upstream: Upstream,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    guard: Guard,
    waiting: WaitQueues<Arc<Notify>>,
    /// When a log was last told that the breaker opened.
    told: Option<Moment>,
    /// Whether it was told so, and not yet that it has closed.
    is_told: bool,
}

/// Permission to send one request. It ends when the head of the answer has come.
#[derive(Debug)]
pub struct Ticket {
    gate: Arc<Gate>,
    caller: Caller,
    /// For which cluster, where that matters.
    cluster: Option<ClusterName>,
    waited: Duration,
    /// Taken when the request ends.
    pass: Option<Pass>,
}

/// A place in a wait queue, given up when dropped.
struct Waiter<'a> {
    gate: &'a Gate,
    caller: Caller,
    cluster: Option<ClusterName>,
    id: WaiterId,
    woken: Arc<Notify>,
}

enum Step {
    Pass(Pass),
    Refused(UpstreamError),
    /// Until woken, or until that moment.
    Wait(Option<Moment>),
}

/// A change of the breaker that is worth a log line.
enum Transition {
    Opened,
    Closed,
}

// === impl Gate ===

impl Gate {
    /// A gate before an upstream of which nothing is known yet.
    pub fn new(
        upstream: Upstream,
        limits: &UpstreamLimits,
        clock: Arc<dyn Clock>,
        rng: fastrand::Rng,
    ) -> Arc<Self> {
        let (guard, waiting) = (Guard::new(limits, rng), WaitQueues::new());
        let state = State { guard, waiting, told: None, is_told: false };
        Arc::new(Self { upstream, clock, state: Mutex::new(state) })
    }

    /// The upstream behind it.
    pub fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// Waits for a turn. Cancel-safe.
    ///
    /// # Errors
    /// For a reconcile, if the cluster is left alone for now. An informer waits instead.
    pub async fn admit(self: &Arc<Self>, caller: Caller) -> Result<Ticket, UpstreamError> {
        self.admitted(caller, None).await
    }

    /// Waits for the turn of a reconcile of a cluster's key. Clusters share the places at a service: see `waiting`.
    /// Cancel-safe.
    ///
    /// # Errors
    /// If the upstream is left alone for now.
    pub async fn admit_for(
        self: &Arc<Self>,
        cluster: &ClusterName,
    ) -> Result<Ticket, UpstreamError> {
        let is_shared = matches!(self.upstream, Upstream::External(_));
        self.admitted(Caller::Reconcile, is_shared.then(|| cluster.clone())).await
    }

    async fn admitted(
        self: &Arc<Self>,
        caller: Caller,
        cluster: Option<ClusterName>,
    ) -> Result<Ticket, UpstreamError> {
        let began = self.clock.now();
        let waiter = self.join(caller, cluster.clone())?;
        loop {
            let now = self.clock.now();
            match self.step(&waiter, now) {
                Step::Pass(pass) => {
                    let (gate, waited) = (Arc::clone(self), now.since(began));
                    return Ok(Ticket { gate, caller, cluster, waited, pass: Some(pass) });
                }
                Step::Refused(error) => return Err(error),
                Step::Wait(None) => waiter.woken.notified().await,
                Step::Wait(Some(moment)) => tokio::select! {
                    biased;
                    () = waiter.woken.notified() => {}
                    () = self.clock.sleep_until(moment) => {}
                },
            }
        }
    }

    /// How long the fastest answer to a reconcile took.
    pub fn fastest(&self) -> Option<Duration> {
        self.state().guard.fastest()
    }

    /// Where it stands.
    pub fn reading(&self, now: Moment) -> Reading {
        self.state().guard.reading(now)
    }

    /// Where it stands, as a status of `cluster`.
    pub fn status(&self, cluster: ClusterName, now: Moment) -> UpstreamStatus {
        let state = self.state();
        let Reading { phase, limit, in_flight, closed_for } = state.guard.reading(now);
        let (cause, retry_seconds) = closed_for.map_or((None, None), |refusal| {
            let seconds = now.until(refusal.until).as_secs_f64();
            (Some(refusal.cause.to_string()), Some(seconds))
        });
        UpstreamStatus {
            cluster,
            breaker: phase,
            cause,
            retry_seconds,
            concurrency_limit: limit,
            in_flight,
            waiting: state.waiting.len(),
        }
    }

    fn join(
        &self,
        caller: Caller,
        cluster: Option<ClusterName>,
    ) -> Result<Waiter<'_>, UpstreamError> {
        let woken = Arc::new(Notify::new());
        let id = self.state().waiting.join((caller, &cluster), Arc::clone(&woken));
        let id = id.ok_or_else(|| UpstreamError::Crowded { upstream: self.upstream.clone() })?;
        Ok(Waiter { gate: self, caller, cluster, id, woken })
    }

    fn step(&self, waiter: &Waiter<'_>, now: Moment) -> Step {
        let mut state = self.state();
        if waiter.caller == Caller::Reconcile
            && let Some(refusal) = state.guard.refusal(now)
        {
            return Step::Refused(UpstreamError::LeftAlone {
                upstream: self.upstream.clone(),
                again_in: now.until(refusal.until),
                cause: refusal.cause,
            });
        }
        if state.waiting.first().is_none_or(|(id, _)| id != waiter.id) {
            return Step::Wait(None);
        }
        match state.guard.admit(now) {
            Admit::Now(pass) => {
                state.waiting.passed((waiter.caller, &waiter.cluster), waiter.id);
                state.wake(now);
                Step::Pass(pass)
            }
            Admit::At(moment) => Step::Wait(Some(moment)),
            Admit::Later => Step::Wait(None),
        }
    }

    fn ended(
        &self,
        pass: Pass,
        outcome: Outcome,
        (caller, cluster): (Caller, &Option<ClusterName>),
    ) {
        let now = self.clock.now();
        let mut state = self.state();
        state.waiting.ended((caller, cluster));
        state.guard.ended(pass, outcome, caller, now);
        let refusal = state.guard.refusal(now);
        let told = state.tells(now);
        state.wake(now);
        drop(state);
        let upstream = &self.upstream;
        match (told, refusal) {
            (Some(Transition::Opened), Some(refusal)) => {
                let retry_ms = now.until(refusal.until).as_millis();
                let error = &*refusal.cause;
                tracing::warn!(%upstream, error, retry_ms, "upstream fails, leaving it alone for now");
            }
            (Some(Transition::Closed), _) => tracing::info!(%upstream, "upstream answers again"),
            (None, Some(refusal)) => {
                let retry_ms = now.until(refusal.until).as_millis();
                tracing::debug!(%upstream, error = &*refusal.cause, retry_ms, "upstream left alone");
            }
            _ => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

impl State {
    /// What a log is told: that the breaker has opened, once in [`TOLD_EVERY`] however often it does, and then that it
    /// has closed.
    fn tells(&mut self, now: Moment) -> Option<Transition> {
        let is_closed = self.guard.reading(now).phase == BreakerPhase::Closed;
        let lately = self.told.is_some_and(|told| now.since(told) < TOLD_EVERY);
        if is_closed {
            return std::mem::take(&mut self.is_told).then_some(Transition::Closed);
        }
        if self.is_told || lately || self.guard.refusal(now).is_none() {
            return None;
        }
        (self.told, self.is_told) = (Some(now), true);
        Some(Transition::Opened)
    }

    /// Wakes the waiter that may go on, and those that have to be refused.
    fn wake(&self, now: Moment) {
        if self.guard.refusal(now).is_some() {
            self.waiting.reconciles().for_each(|woken| woken.notify_one());
        }
        if let Some((_, woken)) = self.waiting.first() {
            woken.notify_one();
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let now = self.gate.clock.now();
        let mut state = self.gate.state();
        state.waiting.leave((self.caller, &self.cluster), self.id);
        state.wake(now);
    }
}

// === impl Ticket ===

impl Ticket {
    /// How long the request waited for its turn.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// How long ago it was given.
    pub fn age(&self) -> Duration {
        let now = self.gate.clock.now();
        self.pass.as_ref().map_or(Duration::ZERO, |pass| now.since(pass.sent()))
    }

    /// Whether this is a probe: others wait to see whether the cluster answers it.
    pub fn is_probe(&self) -> bool {
        self.pass.as_ref().is_some_and(Pass::is_probe)
    }

    /// The request has ended with this outcome.
    pub fn ended(mut self, outcome: Outcome) {
        self.end(outcome);
    }

    fn end(&mut self, outcome: Outcome) {
        if let Some(pass) = self.pass.take() {
            self.gate.ended(pass, outcome, (self.caller, &self.cluster));
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.end(Outcome::Dropped);
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
