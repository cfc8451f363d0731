//! Stand-ins for what the built-in controllers manage outside of Kubernetes: enough of each to show
//! and test a controller on a laptop.
//!
//! The part that decides is pure: requests and `now` in, answers out. A shell serves it on loopback.

pub mod http;
pub mod sqs;
