//! The server from its clients' point of view, one module per topic.
//!
//! - `world`: a server, raw requests and watches for the other modules
//! - `crud`, `patch`, `deletion`: writes
//! - `lists`, `watches`: reads
//! - `custom`: custom resources
//! - `companions`, `pods`: the stand-ins for controllers, kubelets and the garbage collector
//! - `access`, `reviews`: users, their tokens and rights, and questions about them
//! - `eviction`: evictions and disruption budgets
//! - `portforward`: connections to Pods, and the programs in them
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
mod pods;
mod portforward;
mod reviews;
mod watches;
mod wire;
mod world;
