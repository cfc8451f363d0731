//! Restarts of Pods when the content of a ConfigMap changes: what the controllers `configmonitor` and
//! `restart-pods` share.
//!
//! In data order: [`content`] reduces a ConfigMap to a digest; `record` decides whether that asks for a
//! restart, and `pending` of which Pods; `shell` takes one step at a time, each of which the controllers
//! record in their own places: it begins rollouts, which `follow` reads, and evicts the Pods that `evict`
//! names.

pub mod content;
mod evict;
mod follow;
mod pending;
mod record;
mod shell;

pub use pending::{Pending, PodRef, Workload, WorkloadKind};
pub use record::Record;

pub(crate) use content::hash;
pub(crate) use follow::Trouble;
pub(crate) use pending::{MAX_TARGETS, restartable};
pub(crate) use record::Decision;
pub(crate) use shell::{Advance, Outcome, Restarts, Then};

/// How long changes of content count as one, unless a user says otherwise.
pub(crate) const WINDOW: std::time::Duration = std::time::Duration::from_secs(5);
