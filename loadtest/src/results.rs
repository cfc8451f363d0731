//! The files of results in the folder of a run. Those of the run before go when a run begins, so that none outlives a
//! run that failed.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, bail};

/// All that runs write for people and programs, and nothing else that is in their folders.
const FILES: [&str; 21] = [
    "report.json",
    "report.md",
    "report.html",
    "latency.svg",
    "changes.svg",
    "queued.svg",
    "shards.svg",
    "cpu.svg",
    "memory.svg",
    "series.svg",
    "tasks.svg",
    "open-files.svg",
    "curves.json",
    "curves.md",
    "curves.html",
    "p99.svg",
    "vary.md",
    "sizing.md",
    "rates.md",
    "rates.svg",
    UNFINISHED,
];

/// A result that is being written.
const UNFINISHED: &str = "unfinished";

/// What a table of `loadtest curves` came to.
#[derive(Default)]
pub struct Outcome {
    /// Its tables, as Markdown.
    pub tables: String,
    /// Its plots, as SVG images.
    pub plots: Vec<String>,
    /// What is wrong: why it was not run to its end, or which limit or goal was missed.
    pub wrong: Vec<String>,
}

/// Makes the folder, without results of a run before. It is this run's alone until what is returned is dropped.
///
/// # Errors
/// If it cannot be made, a file not removed, or it belongs to a run that is not over.
pub fn begin(folder: &Path) -> anyhow::Result<File> {
    std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let held = File::open(folder).with_context(|| format!("open {}", folder.display()))?;
    // Where a file system has no locks, nothing shows that a run is not over.
    if let Err(TryLockError::WouldBlock) = held.try_lock() {
        bail!(
            "{} is of a run that is not over: wait for its end, or give another --out",
            folder.display()
        );
    }
    for file in FILES.map(|name| folder.join(name)) {
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("remove {}", file.display()));
            }
            _ => {}
        }
    }
    Ok(held)
}

/// Writes a result. Nobody reads half of it, and who is ended meanwhile leaves the one before.
///
/// # Errors
/// If it cannot be written.
pub fn write(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> anyhow::Result<()> {
    debug_assert!(FILES.contains(&name), "{name} would outlive the next run");
    let (file, new) = (folder.join(name), folder.join(UNFINISHED));
    let written = std::fs::write(&new, content).and_then(|()| std::fs::rename(&new, &file));
    written.with_context(|| format!("write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::example;

    #[test]
    fn a_run_begins_without_the_results_of_the_run_before() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("basic");
        let held = begin(&folder).unwrap();
        let other = begin(&folder).unwrap_err().to_string();
        assert!(other.contains("is of a run that is not over"), "{other}");
        drop(held);
        std::fs::write(folder.join("home.yaml"), "").unwrap();
        crate::run::write(&example(&[]), &folder).unwrap();
        let names = || std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name());
        assert_eq!(names().count(), 10, "{:?}", names().collect::<Vec<_>>());
        std::fs::write(folder.join(UNFINISHED), "").unwrap();
        begin(&folder).unwrap();
        assert_eq!(names().collect::<Vec<_>>(), ["home.yaml"]);
    }

    #[test]
    fn a_result_is_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "curves.md", "first").unwrap();
        let before = File::open(dir.path().join("curves.md")).unwrap();
        write(dir.path(), "curves.md", "second").unwrap();
        // Who reads has one or the other.
        assert_eq!(std::io::read_to_string(before).unwrap(), "first");
        assert_eq!(std::fs::read_to_string(dir.path().join("curves.md")).unwrap(), "second");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
