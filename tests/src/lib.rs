//! What integration tests stand on, and the runs against real components that `cargo test` leaves
//! out.
//!
//! - [`collector`]: an OTLP collector that keeps what it receives
//! - [`copy`]: a small controller for tests
//! - [`hostile`]: a cluster that misbehaves, and a replica beside it
//! - [`install`]: what clusters need before a test
//! - [`proxy`]: a connection that can be delayed, dropped, cut and counted
//! - [`world`]: fleets of managers over embedded clusters, simulated from a seed
//! - [`oracle`]: what must hold in a simulated run, a file for each rule
//! - [`soak`]: the simulation over many seeds
//! - `harness`: real processes: control planes, nodes and replicas
//! - [`real`]: checks against real Kubernetes components
//! - [`chaos`]: faults in a real fleet under load
//! - [`mod@bench`]: our engine beside controller-runtime and kube-rs
//! - [`dashboards`]: every query of the dashboards at a real Prometheus

pub mod bench;
pub mod chaos;
pub mod collector;
pub mod copy;
pub mod dashboards;
mod harness;
pub mod hostile;
pub mod install;
pub mod oracle;
pub mod proxy;
pub mod real;
pub mod soak;
pub mod world;
