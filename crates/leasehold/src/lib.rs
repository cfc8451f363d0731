//! Leasehold, the product: a multi-cluster sharded controller manager for Kubernetes.
//!
//! As a library, [`Manager`] runs controllers over the clusters of a [`config::Config`]; as a
//! binary, the same manager runs the built-in ones. Who writes controllers needs [`Controller`],
//! [`Reconciler`] and [`Context`], starts them with [`Local`] or [`Manager`], and tests them with
//! [`testing`]; [`migrating`] says what becomes of what other libraries have.
//!
//! Inside, in data order: [`args`] is the command line as
//! typed, [`config`] the file, validated; `assemble` puts the rooms together; `manager` runs
//! them; [`run`], [`status`], [`drain`], [`simulate`], [`mod@crds`] and, with the feature `embedded`, `demo` and
//! `apiserver_cmd` are the subcommands.
//!
//! # Invariants
//! - Clusters, sharding and engine meet in `assemble` and nowhere else.
//! - Only [`clock`] reads clocks and draws randomness; [`run`] alone handles signals.

mod alarms;
#[cfg(feature = "embedded")]
pub mod apiserver_cmd;
pub mod args;
mod assemble;
pub mod clock;
pub mod config;
pub mod crds;
#[cfg(feature = "embedded")]
pub mod demo;
pub mod drain;
mod error;
pub mod fleet;
mod home;
mod inside;
#[cfg(feature = "embedded")]
mod install;
pub mod journal;
mod liveness;
#[cfg(feature = "embedded")]
pub mod local;
mod manager;
pub mod run;
pub mod simulate;
pub mod status;
#[cfg(feature = "embedded")]
pub mod testing;

#[doc = include_str!("../MIGRATING.md")]
pub mod migrating {}

pub use crate::crds::crds;
pub use crate::error::Error;
#[cfg(feature = "embedded")]
pub use crate::install::InstallError;
#[cfg(feature = "embedded")]
pub use crate::local::Local;
pub use crate::manager::Manager;
pub use controllers;
pub use engine::{
    Action, Context, Controller, ControllerSpec, Event, GroupScope, Index, Lifecycle, Lookup,
    Object, OwnerError, ReconcileError, Reconciler, RetryClass, Scope, Selector, Strip, condition,
    mapping, predicate, set_controller,
};
pub use model::{ClusterName, ObjectKey};
pub use sharding::Departure;
