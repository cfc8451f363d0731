//! An embedded, wire-compatible, in-memory Kubernetes API server.
//!
//! It is the default cluster where none is at hand: demo, tests, simulation, laptop development.
//! Everything talks to it the ordinary way, over HTTP or through the same tower service in
//! process.

mod follow;
pub mod gc;
pub mod kinds;
pub mod patch;
pub mod schema;
pub mod status;
pub mod table;
pub mod workloads;

pub use kinds::KindInfo;
pub use status::{ApiError, FieldError};
