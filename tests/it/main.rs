//! Integration tests, one binary. A module per subject:
//!
//! - `controllers`: the built-in controllers through the engine, over embedded API servers
//! - `tidy`: the rules the tree keeps

mod controllers;
mod tidy;
