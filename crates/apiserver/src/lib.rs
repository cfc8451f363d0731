//! An embedded, wire-compatible, in-memory Kubernetes API server.
//!
//! It is the default cluster where none is at hand: demo, tests, simulation, laptop development.
//! Everything talks to it the ordinary way, over HTTP or through the same tower service in
//! process.

pub mod kinds;
pub mod status;

pub use kinds::KindInfo;
pub use status::{ApiError, FieldError};
