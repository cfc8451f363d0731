//! The engine: caches, queues and workers that run controllers over many clusters, for the shards
//! this member holds and no others.
//!
//! ```text
//!                 per (cluster, kind, scope)     per (controller, cluster, kind)   per controller
//!  API server ─▶ listwatch ▶ informer ▶ cache
//!                               └─ events ─────▶ feed: predicate, mapping ──keys─▶ queue ▶ runner ─▶ Reconciler
//!  Ownership ─▶ conductor: start, open, drain, stop ─────────────────────────────────▲──────▲         │
//!  API server ◀─ transport ◀─ gate ◀─ fence ◀──────────────────────────────────────────────────────────┘
//! ```
//!
//! A controller's author needs [`Controller`], [`Reconciler`] and [`Context`]. Whoever assembles a
//! manager needs [`Engine`].
//!
//! # Why a key is never dispatched by a member that does not own it
//! - Keys enter a queue only under a route, and a route is made only from a holding that
//!   [`model::Ownership`] published (`conductor`, `shards`).
//! - Keys leave it only while the route is open, which it is only for an active holding, and the
//!   runner then asks the fence before it begins (S1, `runner`).
//! - A drain closes the route, which drops what waits, and then waits for what runs; a run ends only
//!   when its future is gone and its writes are over. Only then is the drain acknowledged (S2,
//!   `conductor`, `fence`).
//! - A key that runs is not given out again, whatever happens to its shard meanwhile (S6, `queue`).
//! - Every write asks the fence again when it is sent, and ends with the Lease (`fence`).
//!
//! # Why a reconcile reads what it wrote
//! The next run of a key waits until the cache shows the writes of its last (`echo`).
//!
//! # Why no last change is lost
//! - An informer tells every subscriber of every change and waits for slow ones; a new list after a
//!   gap surfaces what was deleted in it (L2, `informer`, `listwatch`).
//! - A change of a key that runs makes it run again; a failure makes it retry; gaining a shard
//!   queues every object of it (`queue`, `conductor`).
//! - A shard opens only when everything it needs has been listed and told of; what was held before
//!   is followed meanwhile (`informer::extent`).
//!
//! # What is cached
//! - The objects that are reconciled here and their children, and of kinds that are mapped all:
//!   what somebody *claims* (`coverage`, `informer::claims`). Of others the uid is read, and nothing
//!   is decoded or stored.
//! - A tenure claims what its shard needs before it gathers keys, and every run holds its tenure. So
//!   a shard that is warming lists, while its present owner still works; and one that drains reads
//!   what it always did, until its last run has ended and the drain is acknowledged (S2).
//! - The filter of a server that can divide by uid saves traffic; it is never relied on
//!   (`informer::division`).
//!
//! # Why one cluster does not hold up another
//! - Every request waits for its turn at its own cluster's gate (`upstream`): budget, concurrency
//!   and circuit breaker are that cluster's alone, and so are the running keys it may have (`queue`).
//! - A reconcile in a cluster that is left alone fails at once and comes back with the cluster; its
//!   informers wait, and ask again first.
//!
//! # What is asked outside of Kubernetes
//! Passes a pace that all members share, a gate and the fence too (`external`); nobody waits for it
//! with a worker in hand.
//!
//! # What is not here
//! Who owns what (`sharding`), which clusters there are (`clusters`): both come in through `model`.

mod applied;
pub mod cache;
pub mod condition;
mod conductor;
pub mod controller;
mod coverage;
pub mod dispatch;
mod echo;
mod engine;
mod events;
pub mod external;
mod feed;
mod fence;
mod field;
mod finish;
mod gauges;
mod informer;
mod listwatch;
pub mod lookup;
pub mod mapping;
pub mod meter;
pub mod metrics;
mod object;
mod owner;
mod path;
#[cfg(feature = "planted")]
pub mod planted;
pub mod predicate;
pub mod queue;
mod reconcile;
mod registry;
mod runner;
mod selector;
mod shards;
pub mod stamp;
pub mod status;
mod tenure;
#[cfg(test)]
mod tests;
mod transport;
pub mod upstream;
mod writes;

pub use cache::{Index, Strip};
pub use controller::{Controller, ControllerSpec, Scope};
pub use dispatch::{Dispatch, DispatchObserver, Unobserved};
pub use engine::{Engine, EngineConfig, EngineError};
pub use events::Event;
pub use external::{External, ExternalError, ExternalFailure, ExternalLimits, Token, Verdict};
pub use fence::FencedError;
pub use lookup::{Lookup, NotWatched};
pub use meter::Meter;
pub use model::GroupScope;
pub use object::{Kind, Object};
pub use owner::{OwnerError, set_controller};
pub use reconcile::{Action, Context, ReconcileError, Reconciler, RetryClass};
pub use selector::{Selector, SelectorError};
pub use status::EngineStatus;
pub use upstream::{Upstream, UpstreamError, UpstreamLimits};
pub use writes::Lifecycle;
