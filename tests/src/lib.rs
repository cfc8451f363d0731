//! What integration tests stand on, and the runs against real components that `cargo test` leaves
//! out.
//!
//! - [`collector`]: an OTLP collector that keeps what it receives
//! - [`world`]: fleets of managers over embedded clusters, simulated from a seed
//! - [`oracle`]: what must hold in a simulated run, a file for each rule
//! - [`soak`]: the simulation over many seeds
//! - `harness`: real processes: control planes, nodes, replicas, and a proxy between them
//! - [`real`]: checks against real Kubernetes components
//! - [`chaos`]: faults in a real fleet under load
//! - [`bench`]: our engine beside controller-runtime and kube-rs
//! - [`dashboards`]: every query of the dashboards at a real Prometheus

pub mod bench;
pub mod chaos;
pub mod collector;
pub mod dashboards;
mod harness;
pub mod oracle;
pub mod real;
pub mod soak;
pub mod world;
