//! Who holds which shard: membership, planning, handover and the fence.

pub mod api;
pub mod config;
pub mod fleet;
pub mod handle;
pub mod lease;
pub mod status;

pub use config::{Config, ConfigError, LeaseTimings};
pub use fleet::Fleet;
pub use handle::{Departure, Error, Sharding};
pub use status::{HeldShard, Status};
