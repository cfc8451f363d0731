//! The engine: caches, queues and workers that run controllers over many clusters, for the shards
//! this member holds and no others.

pub mod cache;
mod conductor;
pub mod controller;
pub mod dispatch;
mod engine;
mod events;
mod feed;
mod fence;
mod gauges;
pub mod header;
mod informer;
mod listwatch;
pub mod lookup;
pub mod metrics;
mod object;
pub mod predicate;
pub mod queue;
mod reconcile;
mod registry;
mod runner;
mod selector;
mod shards;
pub mod status;
mod tenure;
#[cfg(test)]
mod tests;
mod transport;

pub use controller::{Controller, ControllerSpec, Scope};
pub use dispatch::{Dispatch, DispatchObserver, Unobserved};
pub use engine::{Engine, EngineConfig, EngineError};
pub use events::Event;
pub use fence::FencedError;
pub use lookup::{Lookup, NotWatched};
pub use object::{Kind, Object};
pub use reconcile::{Action, Context, ReconcileError, Reconciler, RetryClass};
pub use selector::{Selector, SelectorError};
pub use status::EngineStatus;
