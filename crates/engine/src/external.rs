//! Calls to services outside of Kubernetes, such as the API of a cloud or a queue service. They are
//! paced, protected and fenced as requests to a cluster are.
//!
//! ```text
//!   reconcile ── External ──▶ pace: is it this key's turn? ──▶ gate ──▶ fence (writes) ──▶ the call
//!                               │ no: its moment                 │ fails, overloaded: left alone
//!                               ▼                                ▼
//!                             the key runs again then, and holds no worker meanwhile
//! ```
//!
//! The controller names an upstream after the unit for which its provider limits requests:
//! `sqs 123456789012 eu-west-1`, or an account's token. All reconciles of a process that use the same
//! name share its pace and its gate. The budget is the fleet's: each member takes its part of it, and a
//! larger part when another member leaves.
//!
//! # What a write to such an upstream can rely on
//! As with clusters: it is sent only while the shard is ours, it is given up when the Lease ends, a
//! drain waits for its end, and it goes on if its reconcile is dropped. But no upstream of this kind
//! refuses a stale writer, so a call that hangs in the network can take effect late. Every write must
//! therefore be harmless then: idempotent, by a deterministic name or [`Token`].

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use model::{Epoch, ShardId};
use tower::BoxError;
use tracing::Instrument;

use crate::dispatch::Dispatch;
use crate::error::ReconcileError;
use crate::fence::{Fence, FencedError};
use upstream::{MAX_RETRY_AFTER, Outcome, Service, Ticket, UpstreamError};

/// How long a call that changes nothing may take.
pub const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// What the end of a call says about its upstream, apart from its meaning for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It works: it answered, perhaps with a refusal of this one request.
    Answered,
    /// It is overloaded, or the account sends too many requests: HTTP 429, throttling.
    Overloaded {
        /// When it wants to be asked again; honoured up to a minute.
        retry_after: Option<Duration>,
    },
    /// It is gone or not ready: HTTP 502, 503, 504.
    Unavailable {
        /// When it wants to be asked again; honoured up to a minute.
        retry_after: Option<Duration>,
    },
    /// No answer came.
    Unanswered,
}

/// An error of a call to an upstream.
pub trait ExternalFailure: StdError + Send + Sync + 'static {
    /// What it says about the upstream.
    fn verdict(&self) -> Verdict;
}

/// Orders the writers of one shard in time: a later writer has a higher epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The shard of the write.
    pub shard: ShardId,
    /// Its epoch, which only one owner ever has.
    pub epoch: Epoch,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.shard, self.epoch)
    }
}

/// A call that failed. As a [`ReconcileError`] it is transient. If the call was held back, the key runs
/// again when its turn comes or the circuit breaker closes; its backoff does not grow, and no error is
/// counted.
#[derive(Debug, thiserror::Error)]
pub enum ExternalError<E: ExternalFailure> {
    /// Not made: it is not the key's turn, or the upstream's circuit breaker is open.
    #[error("{what} was held back")]
    HeldBack {
        /// What was to be done.
        what: &'static str,
        /// Why, and until when.
        #[source]
        source: UpstreamError,
    },
    /// Not made, or cut off: the shard is no longer ours.
    #[error(transparent)]
    Fenced(FencedError),
    /// No answer came in time. The call may have taken effect.
    #[error("{what} was not answered within {}s", .limit.as_secs())]
    TimedOut {
        /// What was to be done.
        what: &'static str,
        /// The time it had.
        limit: Duration,
    },
    /// The error of the upstream, or of the connection to it.
    #[error("{what} failed")]
    Failed {
        /// What was to be done.
        what: &'static str,
        /// The error.
        #[source]
        source: E,
    },
}

impl<E: ExternalFailure> ExternalError<E> {
    /// The upstream's own error, if it answered.
    pub fn failure(&self) -> Option<&E> {
        match self {
            Self::Failed { source, .. } => Some(source),
            _ => None,
        }
    }

    /// What happened to the upstream, in words that stay the same over attempts, if it is out of reach: it
    /// does not answer, fails, or is left alone because it did. A refusal is none, nor is a turn that comes
    /// later or a shard that is no longer ours.
    pub fn outage(&self) -> Option<String> {
        match self {
            Self::HeldBack { source: UpstreamError::LeftAlone { cause, .. }, .. } => {
                Some(cause.to_string())
            }
            Self::Failed { source, .. } => match source.verdict() {
                Verdict::Unavailable { .. } | Verdict::Unanswered => {
                    Some(model::error::chain(source))
                }
                Verdict::Answered | Verdict::Overloaded { .. } => None,
            },
            Self::TimedOut { .. } => Some(self.to_string()),
            Self::HeldBack { .. } | Self::Fenced(_) => None,
        }
    }

    fn unsent(what: &'static str, error: BoxError) -> Self {
        match error.downcast::<UpstreamError>() {
            Ok(source) => Self::HeldBack { what, source: *source },
            Err(error) => match error.downcast::<FencedError>() {
                Ok(fenced) => Self::Fenced(*fenced),
                Err(_) => unreachable!("a permit is refused by gate or fence"),
            },
        }
    }
}

impl<E: ExternalFailure> From<ExternalError<E>> for ReconcileError {
    fn from(error: ExternalError<E>) -> Self {
        Self::transient(error)
    }
}

/// The connection of one reconcile to one upstream. Clones share its turn.
#[derive(Clone)]
pub struct External {
    fence: Fence,
    dispatch: Dispatch,
    turn: Arc<Turn>,
}

/// A reconcile's turn at one upstream.
pub(crate) struct Turn {
    service: Arc<Service>,
    members: NonZeroU32,
    state: Mutex<TurnState>,
}

#[derive(Clone, Copy)]
enum TurnState {
    /// Not taken yet; it will be for this many requests.
    Ahead(u32),
    /// Taken; this many of its requests are left.
    Taken(u32),
}

impl External {
    pub(crate) fn new(fence: Fence, dispatch: Dispatch, turn: Arc<Turn>) -> Self {
        Self { fence, dispatch, turn }
    }

    /// Sets how many requests this reconcile will make there, so that its turn covers all of them. Call
    /// it before the first request; the default is 1. Unused requests are given back.
    #[must_use]
    pub fn expecting(self, requests: u32) -> Self {
        let mut state = self.turn.state();
        if let TurnState::Ahead(expected) = &mut *state {
            *expected = requests.max(1);
        }
        drop(state);
        self
    }

    /// Makes a call that changes nothing.
    ///
    /// # Errors
    /// See [`ExternalError`].
    pub async fn read<T, E: ExternalFailure>(
        &self,
        what: &'static str,
        call: impl Future<Output = Result<T, E>> + Send,
    ) -> Result<T, ExternalError<E>> {
        self.take_turn(what)?;
        let ticket = self.turn.service.gate().admit_for(&self.dispatch.key.cluster).await;
        let ticket = ticket.map_err(|source| ExternalError::HeldBack { what, source })?;
        let timed = tokio::time::timeout(READ_TIMEOUT, call.instrument(self.span(what)));
        self.judged(what, ticket, READ_TIMEOUT, timed.await.ok())
    }

    /// Makes a call that may change something: only while the shard is ours, and to its end even if the
    /// reconcile is dropped. `call` gets a token with which an upstream may be able to refuse a late
    /// writer.
    ///
    /// # Errors
    /// See [`ExternalError`].
    pub async fn write<T, E, F>(
        &self,
        what: &'static str,
        call: impl FnOnce(Token) -> F,
    ) -> Result<T, ExternalError<E>>
    where
        T: Send + 'static,
        E: ExternalFailure,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        self.take_turn(what)?;
        let permit = self.fence.admit(&self.dispatch, self.turn.service.gate(), &what).await;
        let (ticket, permit) = permit.map_err(|error| ExternalError::unsent(what, error))?;
        let Dispatch { shard, epoch, .. } = &self.dispatch;
        let limit = permit.limit();
        let call = call(Token { shard: shard.clone(), epoch: *epoch });
        let answer = permit.act(call.instrument(self.span(what))).await;
        self.judged(what, ticket, limit, answer)
    }

    fn take_turn<E: ExternalFailure>(&self, what: &'static str) -> Result<(), ExternalError<E>> {
        let Turn { service, members, .. } = &*self.turn;
        let mut state = self.turn.state();
        match *state {
            TurnState::Ahead(requests) => {
                let asker = (self.dispatch.controller.clone(), self.dispatch.key.clone());
                let turn = service.turn(&asker, requests, *members);
                turn.map_err(|source| ExternalError::HeldBack { what, source })?;
                *state = TurnState::Taken(requests - 1);
            }
            TurnState::Taken(0) => service.spend(*members),
            TurnState::Taken(left) => *state = TurnState::Taken(left - 1),
        }
        Ok(())
    }

    fn judged<T, E: ExternalFailure>(
        &self,
        what: &'static str,
        ticket: Ticket,
        limit: Duration,
        answer: Option<Result<T, E>>,
    ) -> Result<T, ExternalError<E>> {
        let outcome = match &answer {
            Some(Ok(_)) => Outcome::Answered,
            Some(Err(error)) => outcome(error),
            None => Outcome::Unanswered { cause: format!("no answer to {what}") },
        };
        self.turn.service.count(&outcome, &ticket);
        ticket.ended(outcome);
        match answer {
            Some(answer) => answer.map_err(|source| ExternalError::Failed { what, source }),
            None => Err(ExternalError::TimedOut { what, limit }),
        }
    }

    fn span(&self, what: &'static str) -> tracing::Span {
        let upstream = self.turn.service.gate().upstream();
        tracing::info_span!("external", %upstream, what, otel.kind = "client")
    }
}

impl Turn {
    pub(crate) fn new(service: Arc<Service>, members: NonZeroU32) -> Self {
        Self { service, members, state: Mutex::new(TurnState::Ahead(1)) }
    }

    /// At whom.
    pub(crate) fn is_at(&self, name: &str) -> bool {
        self.service.is_named(name)
    }

    fn state(&self) -> MutexGuard<'_, TurnState> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let TurnState::Taken(left @ 1..) = *self.state() {
            self.service.give_back(left, self.members);
        }
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("gate", self.service.gate()).finish_non_exhaustive()
    }
}

impl fmt::Debug for External {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("External").field("gate", self.turn.service.gate()).finish_non_exhaustive()
    }
}

fn outcome(error: &impl ExternalFailure) -> Outcome {
    let cause = || model::error::chain(error);
    let bounded = |retry_after: Option<Duration>| retry_after.map(|d| d.min(MAX_RETRY_AFTER));
    match error.verdict() {
        Verdict::Answered => Outcome::Answered,
        Verdict::Overloaded { retry_after } => {
            Outcome::Overloaded { cause: cause(), retry_after: bounded(retry_after) }
        }
        Verdict::Unavailable { retry_after } => {
            Outcome::Unavailable { cause: cause(), retry_after: bounded(retry_after) }
        }
        Verdict::Unanswered => Outcome::Unanswered { cause: cause() },
    }
}
