//! The kubeconfig of an embedded cluster, as a file for kubectl: where it may be written, and how.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context as _;

/// The first line of a kubeconfig of ours, which tells that it may be overwritten.
const MARK: &str = "# Written by `leasehold apiserver`; gone when it ends.\n";

/// Refuses to overwrite what somebody else wrote.
pub(crate) fn check_place(path: &Path) -> anyhow::Result<()> {
    match fs::read_to_string(path) {
        Ok(text) if text.starts_with(MARK) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Ok(_) => anyhow::bail!(
            "{} exists and is not a kubeconfig of this command; give another --kubeconfig",
            path.display()
        ),
        Err(error) => {
            Err(error).with_context(|| format!("{}: give another --kubeconfig", path.display()))
        }
    }
}

/// Readable by its owner alone: it holds a token.
pub(crate) fn write_kubeconfig(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    write!(file, "{MARK}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_of_somebody_else_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/kubeconfig");
        assert!(check_place(&path).is_ok());
        write_kubeconfig(&path, "a: b\n").unwrap();
        assert!(check_place(&path).is_ok());
        fs::write(&path, "clusters: []\n").unwrap();
        let error = check_place(&path).unwrap_err().to_string();
        assert!(error.contains("exists and is not a kubeconfig of this command"), "{error}");
    }
}
