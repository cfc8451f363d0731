//! Whether one more request may be sent to a cluster now: bucket, limit, breaker and the pauses that
//! the server asked for, put together. It has no clock, lock or task.
//!
//! # Invariants
//! - A request is admitted only while fewer are under way than the limit says. Requests sent before
//!   the breaker last opened do not count: they may hang for long, and must not block requests to a
//!   cluster that is back.
//! - None is admitted before the end of a `Retry-After`, the probe included.
//! - While the breaker is not closed, only its probe is admitted; after that the limit begins at 1,
//!   so that a cluster that is back is not overwhelmed.

use std::sync::Arc;
use std::time::Duration;

use model::{Bucket, Moment, Rate};

use super::UpstreamLimits;
use super::breaker::{Breaker, BreakerPhase, Standing};
use super::limit::Limit;
use super::outcome::{Outcome, UNANSWERED};
use super::waiting::Caller;

/// If the server asks for a longer pause than this, reconciles are refused instead of waiting.
const PATIENCE: Duration = Duration::from_secs(5);

/// Decides whether one more request may be sent.
#[derive(Debug)]
pub(crate) struct Guard {
    bucket: Bucket,
    limit: Limit,
    breaker: Breaker,
    first_pause: Duration,
    paused_until: Moment,
    pause_cause: Arc<str>,
    /// Requests under way that were sent since the breaker last opened.
    in_flight: usize,
    /// How often the breaker has opened.
    openings: u64,
    /// When anything was last heard.
    heard: Option<Moment>,
}

/// Permission to send one request. Must be given back with [`Guard::ended`].
#[derive(Debug)]
pub(crate) struct Pass {
    sent: Moment,
    probe: bool,
    openings: u64,
}

impl Pass {
    /// When it was given.
    pub(crate) fn sent(&self) -> Moment {
        self.sent
    }

    /// Whether the request is a probe, sent to see if the cluster answers at all.
    pub(crate) fn is_probe(&self) -> bool {
        self.probe
    }
}

/// Whether a request may be sent.
#[derive(Debug)]
pub(crate) enum Admit {
    /// Send it.
    Now(Pass),
    /// Ask again then.
    At(Moment),
    /// Ask again when a request has ended.
    Later,
}

/// Why a cluster is left alone, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The last failure.
    pub cause: Arc<str>,
    /// When it is asked again.
    pub until: Moment,
}

/// Where a guard stands.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Where its breaker stands.
    pub phase: BreakerPhase,
    /// Requests that may be under way at once.
    pub limit: usize,
    /// Requests under way.
    pub in_flight: usize,
    /// Why no request passes, while none does.
    pub closed_for: Option<Refusal>,
}

impl Guard {
    pub(crate) fn new(limits: &UpstreamLimits, rng: fastrand::Rng) -> Self {
        Self {
            bucket: Bucket::new(Rate::per_second(limits.requests_per_second, limits.burst)),
            limit: Limit::new(limits.max_concurrency),
            breaker: Breaker::new(limits.first_pause, limits.max_pause, rng),
            first_pause: limits.first_pause,
            paused_until: Moment::default(),
            pause_cause: Arc::from(""),
            in_flight: 0,
            openings: 0,
            heard: None,
        }
    }

    /// Whether one more may be sent.
    pub(crate) fn admit(&mut self, now: Moment) -> Admit {
        let probe = match self.breaker.standing(now) {
            Standing::Closed => false,
            Standing::Due => true,
            Standing::Probing => return Admit::Later,
            Standing::Until(moment) => return Admit::At(moment.max(self.paused_until)),
        };
        if now < self.paused_until {
            return Admit::At(self.paused_until);
        }
        if self.in_flight >= self.limit.current() {
            return Admit::Later;
        }
        let ready = self.bucket.ready_at(now);
        if ready > now {
            return Admit::At(ready);
        }
        self.bucket.take(1, now);
        if probe {
            self.breaker.begin_probe();
        }
        self.in_flight += 1;
        Admit::Now(Pass { sent: now, probe, openings: self.openings })
    }

    /// Why a reconcile's request is refused now, if it is: it would have to wait for long.
    pub(crate) fn refusal(&self, now: Moment) -> Option<Refusal> {
        let until = match self.breaker.standing(now) {
            Standing::Until(moment) => moment.max(self.paused_until),
            Standing::Probing => now + self.first_pause,
            Standing::Closed | Standing::Due if self.paused_until > now + PATIENCE => {
                let cause = Arc::clone(&self.pause_cause);
                return Some(Refusal { cause, until: self.paused_until });
            }
            Standing::Closed | Standing::Due => return None,
        };
        Some(Refusal { cause: self.breaker.cause(), until })
    }

    /// Takes a pass back: the request of `caller` ended with this outcome.
    pub(crate) fn ended(&mut self, pass: Pass, outcome: Outcome, caller: Caller, now: Moment) {
        let in_flight = self.in_flight;
        if pass.openings == self.openings {
            self.in_flight -= 1;
        }
        let took = now.since(pass.sent);
        match outcome {
            Outcome::Answered => {
                // How long a list or watch takes says nothing about load.
                let took = (caller == Caller::Reconcile).then_some(took);
                self.limit.answered(pass.sent, took, in_flight, now);
                self.heard(&pass, now);
            }
            Outcome::Overloaded { cause, retry_after } => {
                self.limit.refused(pass.sent, now);
                self.pause(retry_after, &cause, now);
                self.heard(&pass, now);
            }
            Outcome::Unavailable { cause, retry_after } => {
                self.limit.refused(pass.sent, now);
                self.pause(retry_after, &cause, now);
                self.failed(&pass, &cause, now);
            }
            Outcome::Unanswered { cause } => self.failed(&pass, &cause, now),
            Outcome::Dropped if took >= UNANSWERED && self.heard.is_none_or(|h| h < pass.sent) => {
                let cause = format!("no answer within {}ms", took.as_millis());
                self.failed(&pass, &cause, now);
            }
            Outcome::Dropped => self.breaker.dropped(pass.probe, now),
        }
    }

    /// The fastest answer to a reconcile.
    pub(crate) fn fastest(&self) -> Option<Duration> {
        self.limit.fastest()
    }

    pub(crate) fn reading(&self, now: Moment) -> Reading {
        let closed_for = self.refusal(now).or_else(|| {
            // Due, and nobody has come yet to be the probe.
            let open = self.breaker.phase() == BreakerPhase::Open;
            open.then(|| Refusal { cause: self.breaker.cause(), until: now })
        });
        Reading {
            phase: self.breaker.phase(),
            limit: self.limit.current(),
            in_flight: self.in_flight,
            closed_for,
        }
    }

    fn heard(&mut self, pass: &Pass, now: Moment) {
        self.heard = Some(now);
        self.breaker.answered(pass.probe);
    }

    fn failed(&mut self, pass: &Pass, cause: &str, now: Moment) {
        if self.breaker.failed(pass.sent, pass.probe, cause, now) {
            self.limit.collapse(now);
            self.openings += 1;
            self.in_flight = 0;
        }
    }

    fn pause(&mut self, retry_after: Option<Duration>, cause: &str, now: Moment) {
        let until = now + retry_after.unwrap_or_default();
        if until > self.paused_until.max(now) {
            self.paused_until = until;
            self.pause_cause = Arc::from(cause);
        }
    }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
