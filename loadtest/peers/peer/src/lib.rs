//! What the small controllers in Rust share that `cargo xtask bench` compares: the kind they
//! reconcile, their command line, and their protocol with the harness.
//!
//! ```text
//! harness ── lines on standard input: count, heap, trigger N ──▶ peer
//!         ◀── JSON lines on standard output: ready, done, started, counted, heap ──
//! ```
//!
//! A peer ends when its standard input does. The same protocol in Go is in
//! `loadtest/peers/controller-runtime/`.
//!
//! # Invariants
//! - Counting costs every peer the same, and little: a few atomic operations for each reconcile and
//!   each allocation, by an allocator of its own.
//! - `clock` alone reads clocks.

mod args;
pub mod bare;
pub mod bench;
pub mod clock;
pub mod lines;
pub mod tally;

pub use args::{Args, Mode};
pub use tally::Tally;
