//! The engine: caches, queues and workers that run controllers over many clusters, for the shards
//! this member holds and no others.

pub mod cache;
pub mod controller;
pub mod dispatch;
mod engine;
mod events;
mod fence;
pub mod header;
pub mod lookup;
pub mod metrics;
mod object;
pub mod predicate;
mod reconcile;
mod selector;
pub mod status;
mod transport;

pub use controller::{Controller, ControllerSpec, Scope};
pub use dispatch::{Dispatch, DispatchObserver, Unobserved};
pub use engine::{Engine, EngineConfig, EngineError, EngineStatus};
pub use events::Event;
pub use fence::FencedError;
pub use lookup::{Lookup, NotWatched};
pub use object::{Kind, Object};
pub use reconcile::{Action, Context, ReconcileError, Reconciler, RetryClass};
pub use selector::{Selector, SelectorError};
