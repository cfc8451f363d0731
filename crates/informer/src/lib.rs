//! Informers: one task each keeps the cache of one (cluster, kind, namespace, selectors) true and
//! tells its subscribers what changed.
//!
//! The protocol is the crate `listwatch`, the objects are in a [`StoreWriter`]. An informer lives as
//! long as somebody holds its [`Informer`] handle; the engine shares them.
//!
//! It holds the objects that some range scope includes, and no others: see
//! the crate `extent`. One store serves all scopes, whatever the roles, ranges and groups
//! behind them, so no object is cached twice; a reader may find more in it than it asked for.
//!
//! | file | owns |
//! |---|---|
//! | `task` | the task: what each answer of the server changes, and who is told |
//! | `mailbox` | what waits for one subscriber |
//! | `scopes` | the range scopes that are needed, held by guards |
//! | `state`, `status` | what others may see of an informer |
//! | `log_lines` | how often a log is told the same of a cluster |
//! | `trainer` | the dictionary being trained on another thread |
//!
//! # Invariants
//! - After its replay a subscriber receives what changed, with the object as it knew it before. A slow subscriber
//!   loses nothing that it must act on, and holds up nobody: what waits of one object is one event
//!   (`mailbox`; L2).
//! - The store is changed before subscribers are told, so what they read is at least that new.
//! - [`Change::Synced`] comes after everything in the scopes up to its number. Events of an object
//!   before that have [`Priority::Initial`]. Changes of an object that was in a scope before are live,
//!   also while a list for other scopes is read (L2).
//! - [`Change::Absent`] is sent whenever the server begins to answer that the kind does not exist, and
//!   again when scopes are added meanwhile. Objects that are held stay: a refusal is no list.
//! - A delete carries the last known state, whether the deletion was seen or found by a new list. An
//!   object that leaves all ranges, because its owner changed, is reported as deleted; one that enters,
//!   as new. An object that is dropped because its scope ended still exists, so nothing is reported.
//! - What a scope includes stays in the store until the scope's guard is dropped. Assignments hold
//!   guards, and runs hold assignments, so a draining shard reads everything until its last run has
//!   ended.
//! - Everything that is kept counts against the budget of its cluster, what waits for subscribers too, and so does
//!   how much a list mentions. A streaming list that has many times as many lines as objects is given up.
//!   An informer of a cluster that is overdrawn ends; what it has kept goes with its readers.
//! - A panic ends no informer: it is told as a failure, and everything is listed again, after a wait.
//! - Only the partial metadata is read of an object in no scope: it is neither stored nor decoded.

#[cfg(test)]
mod excess_tests;
mod log_lines;
mod mailbox;
mod scopes;
mod state;
mod status;
mod task;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod trainer;

use std::sync::Arc;

use cache::{Entry, StoreWriter};
use listwatch::Intake;
use model::{Clock, Moment, Wire};
use queue::Priority;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use tracing::Span;

pub use self::log_lines::{LogLine, LogLines};
pub use self::mailbox::Subscription;
pub use self::scopes::ScopeGuard;
use self::scopes::Scopes;
pub use self::state::{Condition, InformerState, SYNC_PATIENCE, Target};
pub use self::status::{Absence, InformerStatus};
use self::task::Task;
use extent::{Account, RangeScope};
use metrics::InformerMetrics;

/// Subscribers that may be waiting to be admitted.
const ADMISSIONS: usize = 16;

/// What happened to an object.
#[derive(Clone, Debug)]
pub enum Change {
    /// An object is new, or another than it was.
    Upsert {
        /// As this subscriber knows it; none if it is new.
        old: Option<Arc<Entry>>,
        /// As it is.
        new: Arc<Entry>,
    },
    /// An object is gone.
    Delete {
        /// As it was known last.
        old: Arc<Entry>,
    },
    /// Everything that the scopes up to this number cover has been sent.
    Synced(u64),
    /// The kind does not exist; the scopes up to this number wait for it, except those met before.
    Absent(Absence, u64),
}

/// A change as sent to subscribers.
#[derive(Clone, Debug)]
pub struct Event {
    /// What happened.
    pub change: Change,
    /// How soon it concerns anybody.
    pub priority: Priority,
    /// When the server's line came.
    pub received: Moment,
    /// The `watch.event` span; disabled for the first list.
    pub span: Span,
}

/// A handle that keeps an informer running.
#[derive(Debug)]
pub struct Informer {
    state: Arc<InformerState>,
    scopes: Scopes,
    admissions: mpsc::Sender<mailbox::Sender>,
    /// What is kept of its cluster.
    account: Arc<Account>,
    _task: AbortOnDropHandle<()>,
}

// === impl Informer ===

impl Informer {
    /// Starts an informer. It holds nothing until a scope is required.
    #[must_use]
    pub fn start(
        target: Target,
        wire: Wire,
        intake: Intake,
        clock: Arc<dyn Clock>,
        metrics: InformerMetrics,
        rng: fastrand::Rng,
        (writer, account): (StoreWriter, &Arc<Account>),
    ) -> Arc<Self> {
        let state =
            Arc::new(InformerState::new(target, writer.store(), clock.now(), intake.clone()));
        let (admissions, waiting) = mpsc::channel(ADMISSIONS);
        let scopes = Scopes::default();
        let task = Task::new(
            Arc::clone(&state),
            (writer, account.part()),
            scopes.follow(),
            wire,
            waiting,
            intake,
            (clock, metrics, rng),
        );
        let task = AbortOnDropHandle::new(tokio::spawn(Box::new(task).run()));
        let account = Arc::clone(account);
        Arc::new(Self { state, scopes, admissions, account, _task: task })
    }

    /// Holds the objects of a scope from now until the guard is dropped.
    pub fn require(&self, scope: RangeScope) -> ScopeGuard {
        self.scopes.require(scope)
    }

    /// Subscribes: what the store holds comes first, then every change.
    pub async fn subscribe(&self) -> Subscription {
        let (sender, subscription) = mailbox::mailbox(&self.state, self.account.part());
        // Fails only if the task has ended; the subscription then ends as well.
        let _ = self.admissions.send(sender).await;
        subscription
    }

    /// What others may see of it.
    #[must_use]
    pub fn state(&self) -> &Arc<InformerState> {
        &self.state
    }
}
