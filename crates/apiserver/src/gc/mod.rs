//! Garbage collection by owner, namespaces that are being deleted, Events that are old.
//!
//! An ordinary client of the server, off by default. In data order: `kinds` discovers what can be
//! followed, `shell` follows the metadata of all of it and feeds `graph`, which knows who owns whom
//! and decides (`Graph::decide`) object by object; `expiry` remembers when Events were last
//! touched; `shell` carries the decisions out.
//!
//! # Invariants
//! - Decisions are pure; only `shell` and `kinds` do IO, only `shell` reads a clock.
//! - Absence of an owner is proved by asking the server: the graph alone may lag.
//! - Every delete carries the uid it was decided for, every patch the resource version.
//! - Nothing is decided before every followed kind has been listed.

mod expiry;
mod graph;
mod kinds;
mod shell;

pub use shell::spawn;
