//! Restarts of Pods when the content of a ConfigMap or Secret changes: what the controllers `configmonitor`
//! and `restart-pods` share.
//!
//! In data order: [`content`] reduces a ConfigMap or Secret to a digest, and `digests` remembers it for the
//! version that was read; `record` decides whether that asks for a
//! restart, and `pending` of which Pods; `shell` takes one step at a time, each of which the controllers
//! record in their own places: it begins rollouts, which `follow` reads, and evicts the Pods that `evict`
//! names. [`discovery`] says which workloads use what changed, and restart for it; `search` asks it of all of a
//! namespace.

pub mod content;
mod digests;
pub mod discovery;
mod evict;
mod follow;
mod pending;
mod record;
mod search;
pub(crate) mod settings;
mod shell;

pub use pending::{Pending, PodRef, Workload, WorkloadKind};
pub use record::Record;

pub(crate) use content::{Content, ContentKind, ContentRef, unnamed, without_annotations};
pub(crate) use digests::Digests;
pub(crate) use discovery::{Asker, Asking, Discovery};
pub(crate) use follow::Trouble;
pub(crate) use pending::{MAX_TARGETS, is_selectable, told};
pub(crate) use record::Decision;
pub(crate) use shell::{Advance, Outcome, Restarts, Then, UNREAD};

/// How long changes of content count as one, unless a user says otherwise.
pub(crate) const WINDOW: std::time::Duration = std::time::Duration::from_secs(5);
