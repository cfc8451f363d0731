//! From kubeconfigs to [`model::ClusterSet`]: which clusters there are, and a client for each.
//!
//! ```text
//!  KubeconfigFile ─┐ snapshots            ┌─▶ ClusterSet  (watch)
//!  Directory      ─┼──────────▶ Registry ─┼─▶ Status      (watch)
//!  InCluster      ─┘  of sources   task   └─▶ leasehold_cluster_up{cluster}
//!                                  ▲  │ makes clients, asks servers whether they answer
//!                                  └──┘ (bounded, off the registry's own task)
//! ```
//!
//! Owns: reading kubeconfigs, naming clusters, making clients, saying why a cluster has none.
//! Does not own: what runs on a cluster, nor whether the server behind a client is well; an
//! unreachable server stays engaged and shows only in status and metric.
//!
//! # Invariants
//! - One cluster's trouble never delays another's: each client is made in its own task, a credential
//!   plugin that hangs holds only its own place, and a file that changes without end settles alone.
//! - An engaged cluster's incarnation is higher than that of every cluster engaged before it.
//! - A kubeconfig has only those programs run that the configuration lists, and one of a folder none;
//!   nor is a token file of one of a folder read that lies outside of it: who may write a Secret that is
//!   mounted must not run programs here, nor have this process's own token sent to a server of theirs.
//! - A credential is renewed without a restart, and at most once at a time; requests wait for that only
//!   when there is nothing to show.
//! - Contents of kubeconfigs never reach a log: errors name file, place and cause, not values.

pub mod connect;
pub mod credentials;
pub mod directory;
pub(crate) mod entry;
pub mod error;
pub mod file;
mod http;
pub mod in_cluster;
#[cfg(feature = "install")]
pub mod install;
pub mod kubeconfig;
pub mod merge;
pub mod polled;
pub mod probe;
pub mod provider;
pub mod registry;
pub mod status;

pub use connect::{client_from_kubeconfig, client_in_cluster};
pub use directory::Directory;
pub use error::Unusable;
pub use file::KubeconfigFile;
pub use in_cluster::InCluster;
pub use kubeconfig::Plugins;
pub use polled::POLL_INTERVAL;
pub use provider::{Access, ClusterProvider, Fingerprint, Snapshot, Source};
pub use registry::{Clusters, Probing, Registry};
pub use status::{ClusterStatus, State, Status};

/// The most clusters one registry engages; further ones are reported and left out.
pub const MAX_CLUSTERS: usize = 4096;
