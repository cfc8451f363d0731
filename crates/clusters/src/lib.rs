//! From kubeconfigs to [`model::ClusterSet`]: which clusters there are, and a client for each.
//!
//! ```text
//!  KubeconfigFile ─┐ snapshots            ┌─▶ ClusterSet  (watch)
//!  Directory      ─┤
//!  Secrets        ─┼──────────▶ Registry ─┼─▶ Status      (watch)
//!  InCluster      ─┘  of sources   task   └─▶ leasehold_cluster_up{cluster}
//!                                  ▲  │ makes clients, asks servers who they are
//!                                  └──┘ (bounded, off the registry's own task), and marks them
//! ```
//!
//! Owns: reading kubeconfigs, naming clusters, making clients, saying which cluster each name is and why a
//! cluster has no client.
//! Does not own: what runs on a cluster, which of two names of one cluster is used, or whether the server
//! behind a client is healthy. A server that becomes unreachable stays engaged; only status and metrics
//! show it.
//!
//! # Invariants
//! - Trouble with one cluster never delays another: each client is made in a task of its own, a credential
//!   plugin that hangs occupies only its own place, and a file that changes all the time delays nobody.
//! - An engaged cluster's incarnation is higher than that of every cluster engaged before it.
//! - A name is engaged only when its server has said which cluster it is, or has said that it does not
//!   tell (S8). What it said is remembered for as long as the kubeconfig leads to the same server. A name
//!   behind which another cluster appears gets another incarnation.
//! - A cluster in which another fleet does the same is not engaged (S8, crate `marks`). One that takes no mark is.
//! - A kubeconfig may do only what the configuration allows its source ([`trust`]): programs, files outside
//!   of its folder, impersonation, servers without TLS or on this host. People who may write a mounted
//!   Secret must not run programs here, send this process's files to their server, or reach servers that
//!   only this process reaches.
//! - Whoever writes a Secret gets no more room for its cluster than the configuration allows (`budget`).
//! - A credential is renewed without a restart, by one renewal at a time. Requests wait for it only when
//!   there is no valid credential.
//! - Every answer is bounded in bytes, after decompression, and in time, whoever reads it (B1, `bounds`).
//! - Contents of kubeconfigs never reach a log: errors name file, position and cause, not values.

mod address;
mod bounds;
mod budget;
pub mod connect;
mod credentials;
mod directory;
mod entry;
mod error;
mod file;
mod following;
#[cfg(test)]
mod fuzz;
mod handshakes;
mod home;
mod http;
mod identity;
mod in_cluster;
mod kubeconfig;
mod merge;
mod metered;
mod own;
mod polled;
mod probe;
mod provider;
mod reference;
pub mod registry;
mod risk;
mod role;
mod secret;
mod secrets;
mod status;
mod terms;
pub mod trust;
mod turns;
mod up;

pub use credentials::CredentialLife;
pub use directory::Directory;
pub use error::Unusable;
pub use file::KubeconfigFile;
pub use following::{Followed, Following, client_from_kubeconfig, client_in_cluster};
pub use home::HomeSeries;
pub use in_cluster::InCluster;
pub use own::OwnKubeconfig;
pub use provider::{Access, ClusterProvider, Fingerprint, Snapshot, Source, budgeted};
pub use registry::{Clusters, Probing, Registry};
pub use risk::Risk;
pub use secret::LABEL;
pub use secrets::Secrets;
pub use status::{ClusterStatus, State, Status};
pub use terms::{DEFAULT_QUOTA, Terms};
pub use trust::{Plugin, Plugins, Trust};

/// The most clusters that one registry engages. Further ones are reported as problems.
const MAX_CLUSTERS: usize = 16_384;
