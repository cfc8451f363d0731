//! Garbage collection by owner, deletion of namespaces, expiry of Events.
//!
//! It is an ordinary client of the server, off by default. In data order: `kinds` discovers what
//! can be followed, `shell` follows the metadata of all kinds and feeds `graph`, which has the
//! owners and decides (`Graph::decide`) for each object; `expiry` remembers when Events were last
//! written; `shell` carries out the decisions.
//!
//! # Invariants
//! - Decisions are pure; only `shell` and `kinds` do IO, only `shell` reads a clock.
//! - The absence of an owner is checked at the server, because the graph may lag.
//! - Every delete has the uid for which it was decided, every patch the resource version.
//! - Nothing is decided before every followed kind was listed.

mod expiry;
mod graph;
mod kinds;
mod shell;

pub use shell::spawn;
