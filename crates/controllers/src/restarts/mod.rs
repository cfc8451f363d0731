//! Restarts of Pods when the content of a ConfigMap changes: what the controllers `configmonitor` and
//! `restart-pods` share.
//!
//! In data order: [`content`] reduces a ConfigMap to a hash; `pending` decides whether that asks for
//! a restart, and of which Pods; `shell` carries it out. The controllers record what is decided,
//! each in its own place.

pub mod content;
mod pending;
mod shell;

pub use pending::{Pending, PodRef, Workload, WorkloadKind};

pub(crate) use content::hash;
pub(crate) use pending::{Change, MAX_TARGETS, change, restartable};
pub(crate) use shell::Restarts;
