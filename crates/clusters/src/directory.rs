//! A folder of kubeconfigs: each file's contexts are clusters, which come and go with the file.
//!
//! It works for a mounted Secret as well as for people: it follows symlinks (Kubernetes swaps a Secret by
//! repointing `..data`) and ignores names that begin with a dot.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::file::WatchedFile;
use crate::kubeconfig::Contexts;
use crate::polled::{Look, Polled};
use crate::provider::{ClusterProvider, Snapshot};

/// The most files of one folder.
const MAX_FILES: usize = 4096;

/// The most entries of a folder that are read, including folders and hidden ones.
const MAX_ENTRIES: usize = 16 * MAX_FILES;

/// Every kubeconfig of a folder.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// The folder at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// As a provider that follows the folder's changes.
    pub fn provider(self) -> Box<dyn ClusterProvider> {
        Box::new(Polled::new(Folder { path: self.path, files: BTreeMap::new(), looked: false }))
    }
}

/// The folder and the files that count.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    files: BTreeMap<OsString, Entry>,
    /// Whether the folder was read before: files in its first read are accepted at once.
    looked: bool,
}

#[derive(Debug)]
struct Entry {
    file: WatchedFile,
    /// It was missing in the last read. If it is missing again, it is forgotten.
    missing: bool,
}

impl Look for Folder {
    fn label(&self) -> String {
        format!("directory {}", self.path.display())
    }

    fn look(&mut self) -> Snapshot {
        let mut problems: Vec<Arc<str>> = Vec::new();
        match names(&self.path) {
            Ok(mut names) => {
                if names.len() > MAX_FILES {
                    problems.push(too_many(&self.path, names.len()));
                    names.truncate(MAX_FILES);
                }
                self.update(&names);
            }
            // The known clusters stay: a folder that cannot be listed says nothing about them.
            Err(error) => problems.push(unlisted(&self.path, &error)),
        }
        let sources = self.files.values_mut().flat_map(|entry| entry.file.sources()).collect();
        Snapshot { sources, problems }
    }
}

impl Folder {
    fn update(&mut self, names: &[OsString]) {
        self.files.retain(|name, entry| {
            let there = names.binary_search(name).is_ok();
            let keep = there || !entry.missing;
            entry.missing = !there;
            keep
        });
        for name in names {
            if !self.files.contains_key(name) {
                let path = self.path.join(name);
                let file = if self.looked {
                    WatchedFile::cautious(path, Contexts::All)
                } else {
                    WatchedFile::new(path, Contexts::All)
                };
                self.files.insert(name.clone(), Entry { file, missing: false });
            }
        }
        self.looked = true;
    }
}

/// The names of the folder's files, sorted.
fn names(path: &Path) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)?.take(MAX_ENTRIES) {
        let name = entry?.file_name();
        let hidden = name.as_encoded_bytes().first() == Some(&b'.');
        // Follows symlinks: the file at their end counts. A dangling one is kept and reported.
        let folder = fs::metadata(path.join(&name)).is_ok_and(|meta| meta.is_dir());
        if !hidden && !folder {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn too_many(path: &Path, found: usize) -> Arc<str> {
    format!(
        "directory {} has {found} files, the first {MAX_FILES} count; fix: keep only kubeconfigs in it",
        path.display()
    )
    .into()
}

fn unlisted(path: &Path, error: &io::Error) -> Arc<str> {
    format!(
        "directory {} cannot be listed: {error}; fix: create it, or let this process read it",
        path.display()
    )
    .into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn config(context: &str, server: &str) -> String {
        format!(
            "clusters: [{{name: c, cluster: {{server: 'https://{server}:1'}}}}]\n\
             contexts: [{{name: {context}, context: {{cluster: c}}}}]\n"
        )
    }

    fn folder(path: &Path) -> Folder {
        Folder { path: path.to_owned(), files: BTreeMap::new(), looked: false }
    }

    /// Reads as often as a change needs to count, and lists the clusters.
    fn settle(folder: &mut Folder) -> String {
        folder.look();
        let snapshot = folder.look();
        let line = |s: &crate::Source| match s.access {
            Ok(_) => s.name.to_string(),
            Err(_) => format!("{}(down)", s.name),
        };
        snapshot.sources.iter().map(line).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn files_come_change_and_go() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let mut folder = folder(dir.path());
        assert_eq!(settle(&mut folder), "");
        fs::write(at("b.yaml"), config("west", "w")).unwrap();
        fs::write(at("a.yaml"), config("east", "e")).unwrap();
        fs::write(at(".hidden"), config("hidden", "h")).unwrap();
        fs::create_dir(at("sub")).unwrap();
        assert_eq!(settle(&mut folder), "east west");
        let before = folder.look();
        fs::write(at("b.yaml"), config("west", "other")).unwrap();
        assert_eq!(settle(&mut folder), "east west");
        let after = folder.look();
        assert_eq!(before.sources[0], after.sources[0]);
        assert_ne!(before.sources[1], after.sources[1]);
        fs::write(at("a.yaml"), "nonsense").unwrap();
        fs::remove_file(at("b.yaml")).unwrap();
        assert_eq!(settle(&mut folder), "east(down)");
    }

    #[test]
    fn a_mounted_secret_is_swapped_in_one_step() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let version = |name: &str, files: &[(&str, &str)]| {
            fs::create_dir(at(name)).unwrap();
            for (file, context) in files {
                fs::write(at(name).join(file), config(context, name)).unwrap();
            }
        };
        let point = |name: &str| {
            symlink(name, at("..tmp")).unwrap();
            fs::rename(at("..tmp"), at("..data")).unwrap();
        };
        version("..2026_1", &[("east", "east")]);
        point("..2026_1");
        symlink("..data/east", at("east")).unwrap();
        let mut folder = folder(dir.path());
        let first = folder.look();
        assert_eq!(first.sources.len(), 1);
        version("..2026_2", &[("east", "east"), ("west", "west")]);
        point("..2026_2");
        symlink("..data/west", at("west")).unwrap();
        assert_eq!(settle(&mut folder), "east west");
        assert_ne!(folder.look().sources[0], first.sources[0]);
    }

    #[test]
    fn a_folder_that_cannot_be_listed_keeps_what_was_known() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("clusters");
        fs::create_dir(&inner).unwrap();
        fs::write(inner.join("a"), config("east", "e")).unwrap();
        let mut folder = folder(&inner);
        assert_eq!(settle(&mut folder), "east");
        fs::rename(&inner, dir.path().join("away")).unwrap();
        let snapshot = folder.look();
        assert_eq!(snapshot.problems.len(), 1);
        assert!(snapshot.problems[0].contains("cannot be listed"), "{}", snapshot.problems[0]);
        assert_eq!(snapshot.sources.len(), 1);
    }
}
