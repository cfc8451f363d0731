//! Installs missing Debian packages.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

/// A package, and a file that shows it is installed.
pub type Package = (&'static str, &'static str);

/// Installs those of `packages` that are missing; `what` needs them.
///
/// # Errors
/// If the machine has no apt-get, or it fails; the error names the packages.
pub fn install(what: &str, packages: &[Package]) -> Result<()> {
    let missing = packages.iter().filter(|(_, file)| !Path::new(file).exists());
    let missing: Vec<&str> = missing.map(|(package, _)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(", ");
    println!("installing the Debian packages {names} ...");
    let install = [&["install", "--no-install-recommends"][..], &missing].concat();
    if !(apt_get(&["update"]) && apt_get(&install)) {
        bail!("{what} needs {names}: install them with your system's package manager");
    }
    Ok(())
}

fn apt_get(arguments: &[&str]) -> bool {
    Command::new("apt-get")
        .args(["-qq", "--yes"])
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
