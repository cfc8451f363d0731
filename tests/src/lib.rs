//! What the integration tests stand on.
//!
//! - [`collector`]: an OTLP collector that keeps what it receives
//! - [`oracle`]: what must hold of a simulated run, a file for each rule
//! - [`soak`]: the simulation over many seeds
//! - [`world`]: fleets of managers over embedded clusters, simulated under a seed

pub mod collector;
pub mod oracle;
pub mod soak;
pub mod world;
