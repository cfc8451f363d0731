//! Integration tests, one binary. A module per subject:
//!
//! - `controllers`: the built-in controllers through the engine, over embedded API servers
//! - `manager`: replicas as a library user runs them, over embedded API servers
//! - `sharding`: members over an embedded home cluster: share, leave, crash, fence
//! - `tidy`: the rules the tree keeps

mod controllers;
mod manager;
#[cfg(test)]
mod sharding;
mod tidy;
