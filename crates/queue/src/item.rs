//! One key's life in a queue: an [`Item`] while it waits, for a [`Reason`]; [`Popped`] when it is
//! handed out; [`Running`] until an [`Outcome`] ends the run.

use std::sync::Arc;
use std::time::Duration;

use model::{ClusterName, Moment, ObjectKey};
use tracing::Span;

use super::priority::Priority;

/// When a delay ends, in nanoseconds since the clock's origin, and a number that makes it unique: the
/// order in which delayed items become ready. With a million items, integers compare markedly faster
/// than moments.
pub(super) type WakeUp = (u64, u64);

/// A key among those of its cluster. Threads that share the name of a cluster wait for each other whenever one of them
/// counts a reference to it, so a queue has it once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Local {
    namespace: Option<Arc<str>>,
    name: Arc<str>,
}

/// A key that waits in a shard's queue: ready, delayed, or both.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) key: Local,
    /// The hash of its key, computed once, when it is added.
    pub(super) hash: u64,
    /// Why it is ready, if it is.
    pub(super) ready: Option<Reason>,
    /// Since when it is ready.
    pub(super) since: Moment,
    /// Identifies its place in a ready line; older places of it are stale.
    pub(super) token: u64,
    /// When its delay ends, if it is delayed.
    pub(super) wake_up: Option<WakeUp>,
    /// The priority it becomes ready at when its delay ends.
    pub(super) wakes_as: Priority,
    /// Failures in a row.
    pub(super) failures: u32,
}

/// A key that is being reconciled.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) key: Local,
    pub(super) hash: u64,
    /// The shard queue it was taken from.
    pub(super) from: Origin,
    pub(super) since: Moment,
    /// Failures in a row before this run.
    pub(super) failures: u32,
    /// Whether a failure of this run raises the backoff.
    pub(super) escalates: bool,
    /// Why it must run again, and from which shard queue, if it was added meanwhile.
    pub(super) again: Option<(Origin, Reason)>,
}

/// The shard queue that a key came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    /// The index of its shard in the cluster queue. Another may have it once this one is closed.
    pub(super) shard: usize,
    /// The id of the shard queue.
    pub(super) id: u64,
}

/// How a run ended, as far as the queue cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing more to do.
    Done,
    /// Run it again.
    Requeue {
        /// After this long.
        after: Duration,
        /// At this priority.
        priority: Priority,
    },
    /// It failed: retry after the rate limiter's delay.
    Failed,
    /// It failed: retry after this delay instead of the rate limiter's. The failure still counts
    /// towards the delay of the next one.
    RetryAfter(Duration),
    /// It did not run, because the fence refused.
    Refused,
    /// It could not be done, because its cluster's circuit breaker is open: again after this long.
    Held(Duration),
}

/// A key that is handed out, to run and then to finish.
#[derive(Debug)]
pub struct Popped<T> {
    /// The key.
    pub key: ObjectKey,
    /// The assignment under which its shard is held.
    pub assignment: T,
    /// How long it was ready.
    pub waited: Duration,
    /// The span of its wait, a child of what caused it.
    pub span: Span,
}

/// Why a key should be reconciled.
#[derive(Debug)]
pub(super) struct Reason {
    pub(super) priority: Priority,
    /// Whether a retry came due.
    pub(super) retry: bool,
    /// The span of the cause; of an item that is ready, the span of its wait.
    pub(super) span: Span,
}

impl From<&ObjectKey> for Local {
    fn from(key: &ObjectKey) -> Self {
        Self { namespace: key.namespace.clone(), name: Arc::clone(&key.name) }
    }
}

impl Local {
    /// The key, whole.
    pub(super) fn of(self, cluster: &ClusterName) -> ObjectKey {
        ObjectKey { cluster: cluster.clone(), namespace: self.namespace, name: self.name }
    }
}

/// Of keys of its cluster.
impl PartialEq<ObjectKey> for Local {
    fn eq(&self, key: &ObjectKey) -> bool {
        self.name == key.name && self.namespace == key.namespace
    }
}

impl Item {
    pub(super) fn new(key: Local, hash: u64) -> Self {
        Self {
            key,
            hash,
            ready: None,
            since: Moment::default(),
            token: 0,
            wake_up: None,
            wakes_as: Priority::Retry,
            failures: 0,
        }
    }

    pub(super) fn is<K>(&self, key: &K, hash: u64) -> bool
    where
        Local: PartialEq<K>,
    {
        self.hash == hash && self.key == *key
    }
}

impl Running {
    pub(super) fn is<K>(&self, key: &K, hash: u64) -> bool
    where
        Local: PartialEq<K>,
    {
        self.hash == hash && self.key == *key
    }

    /// Failures in a row once this run has ended.
    pub(super) fn failures_after(&self, outcome: Outcome) -> u32 {
        match outcome {
            Outcome::Done | Outcome::Requeue { .. } => 0,
            Outcome::Failed | Outcome::RetryAfter(_) if self.escalates => {
                self.failures.saturating_add(1)
            }
            _ => self.failures,
        }
    }

    /// Notes that the key must run again, from that shard queue.
    pub(super) fn run_again(&mut self, from: Origin, reason: Reason) {
        match &mut self.again {
            Some((present, earlier)) => {
                *present = from;
                earlier.priority = earlier.priority.min(reason.priority);
                earlier.retry |= reason.retry;
                if earlier.span.is_disabled() {
                    earlier.span = reason.span;
                }
            }
            None => self.again = Some((from, reason)),
        }
    }
}

/// The span of a key's wait. Without a cause there is none: the initial list makes no traces.
pub(super) fn queue_span(cause: &Span, cluster: &ClusterName, key: &Local) -> Span {
    if cause.is_disabled() {
        return Span::none();
    }
    tracing::info_span!(
        parent: cause,
        "queue",
        cluster = %cluster,
        key = %key.clone().of(cluster),
        otel.kind = "internal",
    )
}

/// Adds a second cause to a wait: the trace of the first cause goes on and links to the second.
///
/// Only the span of a wait ever links to others, and only to causes, which link to none: the
/// exporter locks both ends of a link, so a span that links to itself, or two that link to each
/// other, would stop the thread for good.
pub(super) fn link(waiting: &mut Span, cause: &Span, cluster: &ClusterName, key: &Local) {
    if waiting.is_disabled() {
        *waiting = queue_span(cause, cluster, key);
    } else {
        waiting.follows_from(cause.id());
    }
}
