//! The server from its clients' point of view, one module per topic.
//!
//! - `world`: a server, raw requests and watches for the other modules
//! - `crud`, `patch`, `deletion`: writes
//! - `lists`, `watches`: reads
//! - `custom`: custom resources
//! - `companions`: the stand-ins for controllers and the garbage collector
//! - `access`, `reviews`: users, their tokens and rights, and questions about them
//! - `eviction`: evictions and disruption budgets
//! - `fuzz`: invalid requests of every kind
//! - `wire`: TLS, tokens, content types, discovery

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod companions;
mod crud;
mod custom;
mod deletion;
mod eviction;
mod fuzz;
mod lists;
mod patch;
mod reviews;
mod watches;
mod wire;
mod world;
