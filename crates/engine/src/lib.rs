//! The engine: informers, dispatch, fence and supervision. It runs controllers over many clusters,
//! for the shards this member holds and no others.
//!
//! ```text
//!               per (cluster, kind, scope)    per (controller, cluster, source)     per controller
//!  API server ─▶ listwatch ▶ informer ▶ cache
//!                               └─ events ──▶ handler: predicates, mapping ─keys─▶ queue ▶ runner ─▶ Reconcile
//!  Ownership ─▶ supervisor: start, open, drain, stop ───────────────────────────────▲───────▲            │
//!  API server ◀─ request: gate, fence, deadline, send, account ◀─────────────────────────────────────────┘
//! ```
//!
//! Authors of controllers use the crate `sdk`, which builds a [`ControllerSpec`] and gives its
//! reconciler a context. A program that assembles a manager needs [`Engine`].
//!
//! # Why a key is never dispatched by a member that does not own it
//! - Keys enter a queue only for a shard that is held, as [`model::Ownership`] published it
//!   (`supervisor`, `shards`).
//! - Keys leave the queue only while the shard is open, and it is open only while it is held as active.
//!   The runner then asks the fence before it begins (S1, `runner`).
//! - A drain closes the shard in the queue, which drops the waiting keys, and then waits for the running
//!   ones. A run ends only when its future is gone and its writes are over. The drain is acknowledged
//!   after that (S2, `drain`, `fence`).
//! - A key that runs is not handed out again, whatever happens to its shard meanwhile (S6, `queue`).
//! - Every write asks the fence again when it is sent, and ends with the Lease (`fence`).
//!
//! # Why a reconcile reads what it wrote
//! The next run of a key waits until the cache shows the writes of the last run (`expectations`).
//!
//! # Why no last change is lost
//! - An informer sends every subscriber every change and waits for slow ones; a new list after a gap
//!   shows what was deleted in the gap (L2, `informer`, crate `listwatch`).
//! - A key whose object changes during its run runs again; a failed run is retried; gaining a shard
//!   queues every object of it (`queue`, `supervisor`).
//! - A shard opens only when everything it needs has been listed and queued; what was held before
//!   is followed meanwhile (`extent`).
//!
//! # What is cached
//! - The objects that are reconciled here, their children, and all objects of mapped kinds: the objects
//!   in some range scope (crates `extent` and `informer`). Of other objects only the uid is read;
//!   they are neither decoded nor stored.
//! - An assignment requires the scopes of its shard before it collects keys, and every run holds its
//!   assignment. So a warming shard lists while its present owner still works, and a draining shard
//!   reads the same objects as before, until its last run has ended and the drain is acknowledged (S2).
//! - A server that can select by uid saves traffic, but nothing relies on its filter
//!   (`extent`).
//!
//! # Why one cluster does not hold up another
//! - Every request waits for its turn at its own cluster's gate (crate `upstream`): rate, concurrency
//!   and circuit breaker are that cluster's alone, and so are the running keys it may have (crate
//!   `queue`).
//! - While a cluster's circuit breaker is open, its reconciles fail at once and are retried when it
//!   closes; its informers wait, and ask again first.
//!
//! - What the caches of a cluster take is bounded for each cluster (crate `extent`). One that exceeds its budget is
//!   left alone for a while: its shards stop, and everything that is cached of it is dropped (`engagements`).
//!
//! # How a controller works in several clusters
//! One member holds the shards of all clusters of a controller with scope `Fleet`. A reconcile of a key
//! in one cluster may read and write in another, under the shards of both (`visit`), and a change in one
//! cluster may queue keys of others (`across`).
//!
//! # What else queues and runs
//! - Keys from outside of Kubernetes (`trigger`): for shards held here, within a bound.
//! - Work that runs once in the fleet (`single`): it has a shard of its own, in no cluster.
//!
//! # Services outside of Kubernetes
//! Calls to other services pass a pace that all members share, a gate, and the fence (`external`). A key
//! that waits for its turn holds no worker meanwhile.
//!
//! # What is not here
//! Who owns what (`sharding`) and which clusters exist (`clusters`): both come in through `model`.

/// Writes a line of which there may be one for each change of an object: at most a few at its level, the others
/// for those who look for details.
macro_rules! log_some {
    ($view:expr, $level:ident, $text:literal $(, $($field:tt)+)?) => {
        match $view.log_line($text) {
            Some(line) => tracing::$level!(more = line.more, $($($field)+,)? $text),
            None => tracing::debug!($($($field)+,)? $text),
        }
    };
}

mod across;
mod assigned;
mod assignment;
mod backlog;
mod dispatch;
mod drain;
mod engagements;
mod engine;
mod error;
mod expectations;
mod explaining;
mod external;
mod fence;
mod finish;
mod gauges;
mod handler;
#[cfg(test)]
mod idle;
mod informers;
mod large;
mod linger;
mod meter;
mod outside;
mod presence;
mod reconcile;
mod request;
mod resync;
mod run;
mod runner;
mod shards;
mod single;
mod source;
mod spec;
mod status;
mod supervisor;
mod time_slice;
mod trigger;
mod triggered;
mod view;
mod visit;
mod visitors;

pub use dispatch::{Dispatch, DispatchObserver, Unobserved};
pub use engine::{Engine, EngineConfig, EngineError};
pub use error::{ReconcileError, RetryClass};
pub use extent::{QuarantineStatus, ShardMode};
pub use external::{External, ExternalError, ExternalFailure, Token, Verdict};
pub use fence::FencedError;
#[cfg(feature = "testing")]
pub use informer::testing;
pub use informer::{Absence, InformerStatus, LogLine};
pub use listwatch::{Form, LENT_AFTER, LISTED_KIB, STREAM_KIB, Scope};
pub use meter::Meter;
pub use portforward::{DIAL_TIMEOUT, DialError, MAX_STREAMS, PodPort, PodStream};
pub use presence::AbsentSource;
pub use queue::{Priority, RateLimiter};
pub use reconcile::{Action, Reconcile};
pub use request::FencedClient;
pub use run::Run;
pub use single::{SingleRun, SingleSpec};
pub use source::{FleetMapping, Mapping, Predicate, Role, Source};
pub use spec::{ControllerSpec, MAX_WORKERS};
pub use status::{EngineStatus, Readiness};
pub use trigger::{Trigger, TriggerSources};
pub use view::{CacheView, FleetCaches, FleetView, NotWatched, Wanted};
pub use visit::InClusterError;
