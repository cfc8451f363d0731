//! Who holds which shard: membership, planning, handover and the fence.
pub mod api;
pub mod config;
pub mod coordinator;
pub mod election;
pub mod fleet;
pub mod handle;
pub mod handover;
pub mod lease;
pub mod ledger;
pub mod member;
mod metrics;
pub mod node;
pub mod outbox;
pub mod ownership;
pub mod planner;
pub mod problem;
pub mod record;
mod shell;
pub mod status;
pub mod world;

pub use config::{Config, ConfigError, LeaseTimings};
pub use fleet::Fleet;
pub use handle::{Departure, Error, Sharding};
pub use status::{HeldShard, Status};
