//! What Debian has and a chore needs: installed where it is missing.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

/// A package and a file by which it is known to be there.
pub type Package = (&'static str, &'static str);

/// Installs those of `packages` that are missing; `who` needs them.
///
/// # Errors
/// If the machine has no apt-get, or it does not succeed; the error names the packages.
pub fn install(who: &str, packages: &[Package]) -> Result<()> {
    let missing: Vec<&str> = packages
        .iter()
        .filter(|(_, file)| !Path::new(file).exists())
        .map(|(package, _)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("installing Debian's {} ...", missing.join(", "));
    let install = [&["install", "--no-install-recommends"][..], &missing].concat();
    if !(apt_get(&["update"]) && apt_get(&install)) {
        bail!(
            "{who} needs {}: install them with your system's package manager",
            missing.join(", ")
        );
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
