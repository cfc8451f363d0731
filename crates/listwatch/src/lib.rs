//! List and watch of one kind in one cluster.
//!
//! ```text
//!              Request                    HTTP                       bytes
//!   Machine ───────────▶ Connection ───────────────▶ API server ─────────────▶ Connection
//!      ▲                  after a wait,                                           │ Arrival
//!      │                  with an Intake share                                    ▼
//!      └──────────────────────────── Signal, End ◀──── the keeper of the objects ◀ wire
//! ```
//!
//! - `machine`: the protocol, without IO: what to request next, when a list is complete, when to start
//!   over, how long to wait.
//! - [`wire`]: what the bytes say: watch lines and list pages.
//! - `lines`: bytes to lines.
//! - `connection`: the shell that sends and waits; `body` reads the answers.
//! - `intake`: how much of all lists may be under way at once.
//! - `scope`: which objects of a kind are watched, and how much of each.
//!
//! A first list is requested as a stream (`sendInitialEvents`), and in pages if the server cannot do
//! that. Afterwards the watch goes on from the last resourceVersion seen, through disconnects. When the
//! server has forgotten that version (410), everything is listed again, and the caller learns which
//! objects the new list does not contain.
//!
//! # What is not here
//! The objects: the caller keeps them, and tells the [`Machine`] what arrived. The connection to the
//! cluster: requests go through a [`model::Wire`], whose owner decides when each is sent and counts it.

mod body;
mod connection;
#[cfg(test)]
mod fuzz;
mod intake;
mod lines;
mod machine;
mod scope;
pub mod wire;

pub use body::IDLE_TIMEOUT;
pub use connection::{Arrival, Connection};
pub use intake::{Intake, LENT_AFTER, LISTED_KIB, STREAM_KIB, Throttled};
pub use machine::{End, Machine, Progress, Request, Signal};
pub use scope::{Form, Scope};
