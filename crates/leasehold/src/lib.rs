//! Leasehold, the product: a multi-cluster sharded controller manager for Kubernetes.
//!
//! As a library, a [`Manager`] runs controllers over the clusters of a [`config::Config`]; as a
//! binary, the same manager runs the built-in ones. [`prelude`] re-exports the public API: an author
//! of controllers needs [`Controller`], [`Reconciler`] and [`Context`], starts them with a [`Manager`],
//! or with [`Local`] while developing, and tests them with [`testing`]. [`migrating`] lists the
//! counterparts of other libraries' features.
//!
//! # Features
//! | feature | brings |
//! |---|---|
//! | none | [`Manager`], [`config`], [`journal`]: the library |
//! | `local` | [`Local`]: starts a program of controllers in one line, on a cluster of a kubeconfig |
//! | `embedded` | an API server in the process, for `Local` and for the command `apiserver` |
//! | `testing` | [`testing`]: a cluster in the test's process |
//! | `otlp` | traces to an OpenTelemetry collector |
//! | `blogpost`, `configmonitor`, `etcd`, `memcached`, `mysql`, `restart-pods`, `sqs`, `tdset`, `tunnel` | a built-in controller each; `controllers` is all of them, and `builtin`, which each brings, none |
//! | `console` | pages about the fleet at `/console` of the admin server |
//! | `cli` | the binary, with `console` |
//! | `demo` | the command `demo` |
//! | `jemalloc` | jemalloc as the program's allocator, which counts what is kept decoded; takes `make` to build |
//!
//! All but `sqs` and `jemalloc` are on by default. A program with controllers of its own should rather depend on
//! `leasehold = { default-features = false }`, and add `testing` in its dev-dependencies.
//!
//! # Inside
//! In data order: [`config`] reads and validates the file; `assemble` connects clusters, sharding and
//! engine; `manager` runs them; `cli` holds the subcommands.
//!
//! # Invariants
//! - Clusters, sharding and engine meet in `assemble` and nowhere else.
//! - Only [`clock`] reads clocks and draws randomness.

#![deny(unreachable_pub)]
// It panics when the reader of a pipe has seen enough.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod assemble;
mod builtin;
#[cfg(feature = "cli")]
pub mod cli;
pub mod config;
pub mod crds;
mod error;
mod inside;
#[cfg(feature = "embedded")]
mod kubeconfig_file;
mod liveness;
#[cfg(feature = "local")]
pub mod local;
mod manager;
#[cfg(feature = "console")]
mod pages;
pub mod prelude;
mod review;
mod runnable;
mod series;
#[cfg(feature = "local")]
mod signals;
#[cfg(feature = "testing")]
pub mod testing;
mod workload;

#[doc = include_str!("../MIGRATING.md")]
pub mod migrating {}

/// The clocks of the system.
pub use ::clock;
/// The journal of dispatches.
pub use ::journal;

pub use crate::crds::crds;
pub use crate::error::Error;
pub use crate::prelude::*;
/// The built-in controllers. Their Rust types follow the controllers and may change in any version.
#[cfg(feature = "builtin")]
pub use controllers;
/// Everything for authors of controllers; the [`prelude`] has what most of them need.
pub use sdk;
