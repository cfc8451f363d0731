//! What the integration tests stand on.
//!
//! - [`clock`]: the wall clock on tokio's paused time
//! - [`collector`]: an OTLP collector that keeps what it receives
//! - [`oracle`]: what must hold of a simulated run, a file for each rule
//! - [`soak`]: the simulation over many seeds
//! - [`sole`]: an [`model::Ownership`] that holds what it is given, always
//! - [`solo`]: one embedded cluster and one engine that holds all of it
//! - [`world`]: fleets of managers over embedded clusters, simulated under a seed

pub mod clock;
pub mod collector;
pub mod oracle;
pub mod soak;
pub mod sole;
pub mod solo;
pub mod world;
