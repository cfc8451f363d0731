//! The chores that tests and the test harness use too: generating files, and running cargo.

use std::path::{Path, PathBuf};
use std::process::Command;

pub mod codegen;
mod dashboards;
mod values;

/// The root of the workspace.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).expect("this crate lies two folders below the root").to_owned()
}

/// Cargo, as if started from a shell in the workspace.
///
/// `cargo run` describes the crate that runs in the environment. Build scripts that watch it, such
/// as ring's, would run again each time, and cargo would build again all that depends on them.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    for (key, _) in std::env::vars_os() {
        let name = key.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&key);
        }
    }
    command
}
