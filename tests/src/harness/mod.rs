//! Real processes for tests to look at, disturb and measure: control planes, nodes, embedded
//! servers and replicas of the product, with the tools they need.
//!
//! ```text
//! tools (built once) ─▶ scene (one temporary folder per run) ─▶ control planes, nodes, managers
//!                                                            └─▶ real, chaos, bench, dashboards
//! ```
//!
//! | file | what it does |
//! |---|---|
//! | `tools`, `builds`, `packages` | builds and installs what the runs need |
//! | `scene` | the folder of one run, and what happens to it at the end |
//! | `process`, `wait` | child processes; deadlines and the clock |
//! | `browser`, `prometheus` | pages in a real browser; metrics in a real Prometheus |
//! | `control_plane`, `pki`, `kubectl`, `helm`, `embedded` | API servers and their clients |
//! | `realm` | namespaces whose processes all end with the first |
//! | `node`, `image` | a node that runs real containers |
//! | `volumes`, `faults` | storage for its Pods; what happens to Pods, networks and disks |
//! | `servers`, `workload` | images of the servers that controllers run; checkers of what these answer |
//! | `kind` | a machine with podman and kind, whose network ends at itself |
//! | `manager`, `load` | replicas of the product, and changes for them to work on |
//! | `audit`, `ownership`, `home` | what audit logs and ShardMaps show |
//! | `table`, `quantiles` | pure: tables as text and Markdown; medians |
//!
//! # Invariants
//! - A value owns whatever a run starts, and removes it when dropped. A failure and Ctrl-C
//!   therefore leave as little behind as success does: nothing.
//! - Only free ports and fresh names are used, so several runs can take place side by side.
//! - `wait` alone reads a clock.

pub mod audit;
pub mod browser;
mod builds;
pub mod control_plane;
pub mod embedded;
pub mod faults;
pub mod helm;
pub mod home;
pub mod image;
pub mod kind;
pub mod kubectl;
pub mod load;
pub mod manager;
pub mod node;
pub mod ownership;
pub mod packages;
mod pki;
pub mod process;
pub mod prometheus;
pub mod quantiles;
mod realm;
pub mod scene;
pub mod servers;
pub mod table;
pub mod tools;
pub mod volumes;
pub mod wait;
pub mod workload;

use std::path::PathBuf;

pub use scene::Scene;

/// `tests/real`: Go modules, the node's files and the conformance sequences.
pub fn real_dir() -> PathBuf {
    xtask::root().join("tests/real")
}
