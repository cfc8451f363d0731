//! What an author of controllers uses: [`Controller`], [`Reconciler`] and [`Context`], with
//! predicates, mappings, errors, finalizers, Events and conditions. [`schema`] and [`rbac`] help with
//! what is installed beside a controller: its CRD and its rights. Built-in controllers and users'
//! controllers use only this crate.
//!
//! ```text
//!  watched objects ─▶ predicate ─▶ mapping ─▶ keys ─▶ Reconciler::reconcile(ctx, key)
//!                                                       │ reads: ctx.get, list, indexed (cache)
//!                                                       │ writes: ctx.apply, patch_status, ... (fenced)
//!                                                       ▼
//!                                              Ok(Action) or Err(ReconcileError)
//! ```
//!
//! The crate `engine` runs controllers: a program that assembles a manager gives it the
//! [`ControllerSpec`] that [`Controller::reconciler`] returns.

pub mod access;
mod across;
mod applied;
mod apply;
mod bulk;
pub mod condition;
mod context;
mod controller;
mod digest;
mod dynamic;
mod events;
mod finalizers;
mod label;
mod lookup;
pub mod mapping;
mod owner;
mod pod;
pub mod predicate;
pub mod quantity;
pub mod rbac;
mod reconciler;
pub mod refusal;
mod remembered;
pub mod schema;
mod spread;
mod status;
#[cfg(test)]
mod tests;
mod trigger;
mod watch;
mod writes;

pub use across::{ClusterLookup, FleetLookup};
pub use apply::{ApplyConflict, ApplyOptions, ConflictingField};
pub use cache::{Index, Transform};
pub use context::Context;
pub use controller::{Controller, DEFAULT_TIMEOUT, DEFAULT_WORKERS, MIN_RESYNC};
pub use engine::{
    Action, ControllerSpec, External, ExternalError, ExternalFailure, FencedError, InClusterError,
    PodStream, Priority, RateLimiter, ReconcileError, RetryClass, Scope, Token, Trigger, Verdict,
};
pub use events::{Event, EventRecorder};
pub use finalizers::Lifecycle;
pub use label::{is_object_name, label_value};
pub use lookup::Lookup;
pub use model::{
    AnyObject, Clock, ClusterName, ClusterUid, ControllerName, Epoch, Gathered, GroupName,
    GroupScope, Kind, Object, ObjectKey, Selector, SelectorError, ShardId, Validity, error,
    uid_hash,
};
pub use owner::{OwnerError, controlled_by, set_controller};
pub use pod::PodAddress;
pub use reconciler::Reconciler;
pub use spread::spread;
pub use upstream::{ExternalLimits, Upstream, UpstreamError};
pub use watch::Watch;
