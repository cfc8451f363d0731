//! What is wrong with a fleet and its clusters, and what to do: for `leasehold doctor`.
//!
//! ```text
//!  a cluster's client ─▶ server  version, clock         ─┐
//!                     ─▶ kinds   those that are watched  ├─▶ findings ─▶ Report
//!                     ─▶ rights  those that are needed   │
//!                     ─▶ sizing  how many objects        │
//!  a replica's answer ─▶ views                          ─┘
//! ```
//!
//! Reads, never writes: a review of rights is a question that is asked with POST. What servers say is cut and on
//! one line (`model::error::foreign`).

#![deny(unreachable_pub)]

mod answer;
mod kinds;
mod report;
mod rights;
mod server;
mod sizing;
mod views;

pub use kinds::{Wanted, look_for_kinds};
pub use report::{Finding, Level, Report};
pub use rights::{Right, review_rights, spelled_out};
pub use server::{OLDEST, ask_server, of_home_latency};
pub use sizing::{Place, count_objects, of_size};
pub use views::{
    of_clusters, of_home_credential, of_memory, of_queues, of_readiness, of_shards, of_status,
};
