//! What the integration tests stand on.
//!
//! - [`clock`]: the wall clock on tokio's paused time
//! - [`sole`]: an [`model::Ownership`] that holds what it is given, always
//! - [`solo`]: one embedded cluster and one engine that holds all of it

pub mod clock;
pub mod sole;
pub mod solo;
