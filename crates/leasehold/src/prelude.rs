//! The public API in one place: what a program of controllers imports.
//!
//! ```
//! use leasehold::prelude::*;
//! ```
//!
//! In the order of use: a [`Reconciler`] works on one key with its [`Context`]; a [`Controller`]
//! says for which kind it runs and which changes trigger it ([`mapping`], [`predicate`]); a [`Manager`]
//! runs controllers, and every [`Runnable`] beside them, over the clusters of a [`Config`]. During
//! development [`Local`] takes the place of the manager.

// What an author of controllers writes against.
pub use sdk::{
    Action, AnyObject, ApplyConflict, ApplyOptions, ClusterName, Context, Controller,
    ControllerSpec, Event, EventRecorder, External, ExternalError, ExternalLimits, FencedError,
    FleetLookup, GroupScope, InClusterError, Index, Kind, Lifecycle, Lookup, Object, ObjectKey,
    OwnerError, Priority, RateLimiter, ReconcileError, Reconciler, RetryClass, Scope, Selector,
    ShardId, Token, Transform, Trigger, UpstreamError, Watch, condition, label_value, mapping,
    predicate, rbac, schema, set_controller,
};

// What runs it.
pub use crate::config::{
    AdminServer, ClusterSources, Config, DirectorySource, Home, KubeconfigSource, Risk,
    SecretSource,
};
#[cfg(feature = "local")]
pub use crate::local::Local;
pub use crate::manager::Manager;
pub use crate::runnable::{Runnable, RunnableContext};
pub use sharding::Departure;
pub use tokio_util::sync::CancellationToken;
