//! List and watch over a cluster's raw client.
//!
//! - [`machine`]: the protocol, pure: what to request next, when a list is complete, when to start
//!   over, how long to wait.
//! - [`wire`]: what the bytes say: watch lines and list pages.
//! - [`lines`]: bytes to lines.
//! - [`connection`]: the shell that sends, reads and waits.
//! - [`intake`]: how much of all lists may be under way at once.
//!
//! A first list is requested as a stream (`sendInitialEvents`), and in pages if the server refuses
//! that. Afterwards the watch goes on from the last resourceVersion seen, through disconnects. When the
//! server has forgotten that version (410), everything is listed again, and the informer learns which
//! objects the new list does not contain.

pub(crate) mod connection;
pub(crate) mod intake;
pub(crate) mod lines;
pub(crate) mod machine;
pub(crate) mod wire;
