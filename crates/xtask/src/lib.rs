//! The chores whose results tests check: what is generated, and the rules the tree keeps.
//!
//! The command line is in `main.rs`, one file per sub-command.

use std::path::{Path, PathBuf};

pub mod codegen;

/// The root of the workspace.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).expect("this crate lies two folders below the root").to_owned()
}
