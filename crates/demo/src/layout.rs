//! The demo's directory: its files, and which demo may use it.
//!
//! ```text
//! .leasehold/demo/
//!   demo.lock               held while a demo runs; names its process
//!   kubeconfig              every cluster, a context each
//!   home.yaml               the home cluster alone
//!   kubeconfigs/east.yaml   each workload cluster alone; the replicas watch this folder
//!   replicas/replica-0/     config.yaml, log, one journal per start
//! ```
//!
//! A directory in use by a live demo is refused. What a dead one left is removed. A directory with other
//! files is not touched.

use std::fs::{self, File, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

const LOCK: &str = "demo.lock";

/// What a demo leaves, for the next one to remove.
const LEFT: [&str; 4] = ["kubeconfig", "home.yaml", "kubeconfigs", "replicas"];

/// The directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LayoutError {
    /// Another demo runs there.
    #[error("another demo (process {pid}) is using {}: stop it, or give this one another --dir and --port", dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// The process that uses it.
        pid: String,
    },
    /// It holds other files.
    #[error("{} holds {found:?}, which is not a file of a demo: give --dir a directory of its own", dir.display())]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// One of the files.
        found: String,
    },
    /// The system refuses.
    #[error("{what} {}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

/// The directory, held for as long as this lives.
#[derive(Debug)]
pub(crate) struct Layout {
    dir: PathBuf,
    /// Whether files of a dead demo were removed.
    pub cleared: bool,
    _lock: File,
}

impl Layout {
    /// Takes the directory and removes what a dead demo left in it.
    ///
    /// # Errors
    /// It is in use, it holds other files, or the system refuses.
    pub(crate) fn claim(dir: &Path) -> Result<Self, LayoutError> {
        let io = |what, path: &Path| {
            let path = path.to_owned();
            move |source| LayoutError::Io { what, path, source }
        };
        fs::create_dir_all(dir).map_err(io("create directory", dir))?;
        refuse_foreign(dir)?;
        let path = dir.join(LOCK);
        let mut lock = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(io("open", &path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                lock.read_to_string(&mut pid).map_err(io("read", &path))?;
                return Err(LayoutError::InUse { dir: dir.to_owned(), pid: pid.trim().to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(io("lock", &path)(source)),
        }
        let cleared = clear(dir)?;
        lock.set_len(0).map_err(io("write", &path))?;
        writeln!(lock, "{}", std::process::id()).map_err(io("write", &path))?;
        let layout = Self { dir: dir.to_owned(), cleared, _lock: lock };
        let folder = layout.kubeconfigs();
        fs::create_dir_all(&folder).map_err(io("create directory", &folder))?;
        Ok(layout)
    }

    /// The kubeconfig with every cluster.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// The kubeconfig of the home cluster.
    pub(crate) fn home(&self) -> PathBuf {
        self.dir.join("home.yaml")
    }

    /// The folder with the kubeconfigs of the workload clusters.
    pub(crate) fn kubeconfigs(&self) -> PathBuf {
        self.dir.join("kubeconfigs")
    }

    /// The folder of one replica.
    pub(crate) fn replica(&self, name: &str) -> PathBuf {
        self.dir.join("replicas").join(name)
    }
}

/// Writes a file that only its owner may read: kubeconfigs carry tokens.
///
/// # Errors
/// The system refuses.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), LayoutError> {
    let io = |source| LayoutError::Io { what: "write", path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(io)?;
    }
    let mut options = File::options();
    options.create(true).truncate(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).and_then(|mut file| file.write_all(text.as_bytes())).map_err(io)
}

fn refuse_foreign(dir: &Path) -> Result<(), LayoutError> {
    let io = |source| LayoutError::Io { what: "list directory", path: dir.to_owned(), source };
    for entry in fs::read_dir(dir).map_err(io)? {
        let found = entry.map_err(io)?.file_name().to_string_lossy().into_owned();
        if found != LOCK && !LEFT.contains(&found.as_str()) {
            return Err(LayoutError::Foreign { dir: dir.to_owned(), found });
        }
    }
    Ok(())
}

fn clear(dir: &Path) -> Result<bool, LayoutError> {
    let mut cleared = false;
    for name in LEFT {
        let path = dir.join(name);
        let Ok(found) = path.symlink_metadata() else { continue };
        let removed =
            if found.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(|source| LayoutError::Io { what: "remove", path, source })?;
        cleared = true;
    }
    Ok(cleared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_demo_keeps_its_directory_and_a_dead_one_loses_it() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("demo");
        let first = Layout::claim(&dir).unwrap();
        assert!(!first.cleared);
        write_private(&first.replica("replica-0").join("log"), "old").unwrap();

        let error = Layout::claim(&dir).unwrap_err().to_string();
        let expect = format!("another demo (process {}) is using", std::process::id());
        assert!(error.starts_with(&expect), "{error}");
        assert!(first.replica("replica-0").join("log").exists());

        drop(first);
        let second = Layout::claim(&dir).unwrap();
        assert!(second.cleared);
        assert!(!second.replica("replica-0").exists());
        assert!(second.kubeconfigs().is_dir());
    }

    #[test]
    fn a_directory_with_other_files_is_not_touched() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("thesis.tex"), "all my work").unwrap();
        fs::create_dir(temp.path().join("replicas")).unwrap();
        let error = Layout::claim(temp.path()).unwrap_err().to_string();
        assert!(error.contains("holds \"thesis.tex\", which is not a file of a demo"), "{error}");
        assert!(temp.path().join("replicas").exists());
    }

    #[cfg(unix)]
    #[test]
    fn kubeconfigs_are_for_their_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("kubeconfig");
        write_private(&path, "token").unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}
