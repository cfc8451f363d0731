//! The console: pages for people who watch a fleet, live and read-only. `leasehold console` serves them on this
//! machine, and a replica's admin server at `/console`.
//!
//! | path, below [`PATH`] | shows |
//! |---|---|
//! | `/` | what is wrong, the members, the last moves |
//! | `/clusters?q=&page=` | each cluster: its shards, its owners, whether it is served |
//! | `/clusters/{name}`, `/members/{id}` | one of them with its shards |
//! | `/queues` | controllers, and the objects that run longest or fail most |
//! | `/object?object=` | one object explained |
//! | `/events` | what the fleet told |
//!
//! Pages are made here and need no script; a script of a few lines fetches them again while they are looked at.
//!
//! # Invariants
//! - Nothing here changes anything: every route is a `GET`.
//! - A page has a bound in rows, whatever the size of the fleet. Those for which all of it is looked through are made
//!   apart from the threads that work, a few at a time.
//! - Readers share what is read: home and replicas are asked for one page at a time, and rest for a while after
//!   ([`Source`]).
//! - What comes from a cluster is text, never markup, and pages run no script but their own.

#![deny(unreachable_pub)]

mod clusters;
mod events;
mod kept;
mod object;
mod overview;
mod page;
mod queues;
mod routes;
mod source;

pub use page::PATH;
pub use routes::router;
pub use source::{Answer, Said, Source};
