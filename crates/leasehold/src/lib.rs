//! Leasehold, the product: a multi-cluster sharded controller manager for Kubernetes.
//!
//! As a library, [`Manager`] runs controllers over the clusters of a [`config::Config`]; as a
//! binary, the same manager runs the built-in ones. In data order: [`args`] is the command line as
//! typed, [`config`] the file, validated; `assemble` puts the rooms together; [`manager`] runs
//! them; [`run`], [`status`], [`drain`], [`simulate`], [`crds`] and, with the feature `embedded`, `demo` and
//! `apiserver_cmd` are the subcommands.
//!
//! # Invariants
//! - Clusters, sharding and engine meet in `assemble` and nowhere else.
//! - Only [`clock`] reads clocks and draws randomness; [`run`] alone handles signals.

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
mod home;
mod inside;
pub mod journal;
mod liveness;
mod manager;
pub mod run;
pub mod simulate;
pub mod status;

pub use crate::crds::crds;
pub use crate::error::Error;
pub use crate::manager::Manager;
pub use controllers;
pub use sharding::Departure;
