//! What is wrong with a fleet and its clusters, and what to do: for `leasehold doctor`.
//!
//! ```text
//!  a cluster's client ─▶ server  version, clock         ─┐
//!                     ─▶ kinds   those that are watched  ├─▶ findings ─▶ Report
//!                     ─▶ rights  those that are needed   │
//!  a replica's answer ─▶ views                          ─┘
//! ```
//!
//! Reads, never writes: a review of rights is a question that is asked with POST. What servers say is cut and on
//! one line (`model::error::foreign`).

#![deny(unreachable_pub)]

mod kinds;
mod report;
mod rights;
mod server;
mod views;

pub use kinds::{Wanted, kinds};
pub use report::{Finding, Level, Report};
pub use rights::{MAX_REVIEWS, Right, rights, wanted};
pub use server::{MAX_SKEW, OLDEST, server};
pub use views::{clusters, memory, queues};
