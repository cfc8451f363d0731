//! A folder of kubeconfigs: each file's contexts are clusters, which come and go with the file.
//!
//! Its authors are not those of the configuration, so it gets the trust of [`Trust::stranger`], a quota,
//! and, if the configuration says so, a prefix that keeps its clusters' names apart from all others.
//!
//! It works for a mounted Secret as well as for people: it follows symlinks (Kubernetes swaps a Secret by
//! repointing `..data`) and ignores names that begin with a dot.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Prefix;
use crate::file::WatchedFile;
use crate::kubeconfig::{Contexts, Origin};
use crate::polled::{Look, Polled};
use crate::provider::{ClusterProvider, Snapshot};
use crate::terms::Terms;

/// The bytes that the clusters of one file may take, each on the average.
const KEPT_BYTES_EACH: usize = 128 << 10;
/// And a file with one: some have a bundle of certificates in it.
const KEPT_BYTES_FILE: usize = 256 << 10;
/// The most files of one folder.
const MAX_FILES: usize = 16_384;

/// The most entries of a folder that are read, including folders and hidden ones.
const MAX_ENTRIES: usize = 16 * MAX_FILES;

/// Every kubeconfig of a folder.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
    terms: Terms,
}

impl Directory {
    /// The folder at `path`, on the default terms.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), terms: Terms::default() }
    }

    /// The same folder on these terms. Of its clusters, those of its first files count.
    #[must_use]
    pub fn terms(mut self, terms: Terms) -> Self {
        self.terms = terms;
        self
    }

    /// As a provider that follows the folder's changes.
    pub fn provider(self) -> Box<dyn ClusterProvider> {
        Box::new(Polled::new(Folder::new(self)))
    }
}

/// The folder and the files that count.
#[derive(Debug)]
struct Folder {
    of: Directory,
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
        format!("directory {}", self.of.path.display())
    }

    fn look(&mut self) -> Snapshot {
        let mut problems: Vec<Arc<str>> = Vec::new();
        let (path, quota) = (self.of.path.clone(), self.of.terms.quota);
        match names(&path) {
            Ok(mut names) => {
                if names.len() > MAX_FILES {
                    problems.push(too_many(&path, names.len()));
                    names.truncate(MAX_FILES);
                }
                self.update(&names);
            }
            // The known clusters stay: a folder that cannot be listed says nothing about them.
            Err(error) => problems.push(unlisted(&path, &error)),
        }
        let mut sources = Vec::new();
        for entry in self.files.values_mut() {
            sources.extend(entry.file.sources(room));
            if sources.len() > quota {
                break;
            }
        }
        if sources.len() > quota {
            sources.truncate(quota);
            problems.push(beyond_quota(&path, quota));
        }
        let is_partial = !self.looked || self.files.values().any(|entry| entry.file.is_open());
        Snapshot { sources, problems, is_partial }
    }

    fn prefix(&self) -> Option<Prefix> {
        self.of.terms.prefix.clone()
    }
}

impl Folder {
    fn new(of: Directory) -> Self {
        Self { of, files: BTreeMap::new(), looked: false }
    }

    fn update(&mut self, names: &[OsString]) {
        self.files.retain(|name, entry| {
            let there = names.binary_search(name).is_ok();
            let keep = there || !entry.missing;
            entry.missing = !there;
            keep
        });
        for name in names {
            if !self.files.contains_key(name) {
                let Directory { path, terms } = &self.of;
                let (prefix, trust) = (terms.prefix.clone(), terms.trust());
                let origin = Origin { path: path.join(name), prefix, trust };
                let file = if self.looked {
                    WatchedFile::cautious(origin, Contexts::All)
                } else {
                    WatchedFile::new(origin, Contexts::All)
                };
                self.files.insert(name.clone(), Entry { file, missing: false });
            }
        }
        self.looked = true;
    }
}

/// The bytes that so many clusters of one file may take, whatever those of others do.
fn room(clusters: usize) -> usize {
    clusters.saturating_mul(KEPT_BYTES_EACH).max(KEPT_BYTES_FILE)
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

fn beyond_quota(path: &Path, quota: usize) -> Arc<str> {
    format!(
        "directory {} has more than {quota} clusters, those of its first files count; fix: remove \
         contexts, or raise maxClusters of that directory in the configuration",
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
    use crate::provider::Source;

    fn config(context: &str, server: &str) -> String {
        format!(
            "clusters: [{{name: c, cluster: {{server: 'https://{server}:1'}}}}]\n\
             contexts: [{{name: {context}, context: {{cluster: c}}}}]\n"
        )
    }

    fn folder(path: &Path) -> Folder {
        Folder::new(Directory::new(path))
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

    /// As mounted Secrets with several keys have them.
    #[test]
    fn files_of_another_kind_name_no_clusters_that_nobody_has_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("east"), config("east", "e")).unwrap();
        for (name, text, is_partial) in [
            ("ca.crt", "-----BEGIN CERTIFICATE-----\nMIIB: x\n-----END CERTIFICATE-----\n", false),
            ("token", "eyJhbGciOi: [", false),
            ("notes.txt", "Clusters and contexts of team a: {ask them", false),
            ("broken", "contexts: [{name: west", true),
            ("broken.json", "{\"contexts\" : [{", true),
            ("broken", "clusters: []\ncontexts: []\n", true),
            ("broken.json", "{}", false),
        ] {
            fs::write(dir.path().join(name), text).unwrap();
            assert_eq!(folder(dir.path()).look().is_partial, is_partial, "{name}");
        }
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
    fn a_folder_has_no_more_clusters_than_its_quota() {
        let dir = tempfile::tempdir().unwrap();
        for (file, context) in [("a", "east"), ("b", "west"), ("c", "north")] {
            fs::write(dir.path().join(file), config(context, file)).unwrap();
        }
        let look = |quota| {
            let prefix = Some("team-a".parse().unwrap());
            let mut folder = Folder::new(Directory::new(dir.path()).terms(Terms {
                prefix,
                quota,
                ..Terms::default()
            }));
            (settle(&mut folder), folder.look().problems.len())
        };
        assert_eq!(look(3), ("team-a.east team-a.west team-a.north".to_owned(), 0));
        assert_eq!(look(2), ("team-a.east team-a.west".to_owned(), 1));
        assert_eq!(look(0), (String::new(), 1));
    }

    #[test]
    fn what_one_file_takes_is_no_trouble_for_the_clusters_of_another() {
        let dir = tempfile::tempdir().unwrap();
        let contexts: Vec<_> =
            (0..40).map(|n| format!("{{name: c{n}, context: {{cluster: c}}}}")).collect();
        let greedy = format!(
            "clusters: [{{name: c, cluster: {{server: 'https://h:1', certificate-authority: ca.crt}}}}]\n\
             contexts: [{}]\n",
            contexts.join(", ")
        );
        fs::write(dir.path().join("a.yaml"), greedy).unwrap();
        fs::write(dir.path().join("z.yaml"), config("plain", "z")).unwrap();
        fs::write(dir.path().join("ca.crt"), vec![b'x'; 200_000]).unwrap();
        let mut folder =
            Folder::new(Directory::new(dir.path()).terms(Terms { quota: 100, ..Terms::default() }));
        let settled = settle(&mut folder);
        assert!(settled.contains("(down)"), "it has its own bound: {settled}");
        assert!(settled.ends_with("plain"), "{settled}");
    }

    /// Every field that names a file, with links that lead outside of the folder.
    #[test]
    fn a_file_that_a_folder_s_kubeconfig_names_lies_in_the_folder() {
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let secret = elsewhere.path().join("secret");
        fs::write(&secret, "of another").unwrap();
        symlink(&secret, dir.path().join("link")).unwrap();
        symlink(elsewhere.path(), dir.path().join("folder")).unwrap();
        fs::write(dir.path().join("own"), "its own").unwrap();
        symlink("own", dir.path().join("own-link")).unwrap();
        let reason = |cluster: &str, user: &str| {
            let text = format!(
                "clusters: [{{name: c, cluster: {{server: 'https://h:1'{cluster}}}}}]\n\
                 users: [{{name: u, user: {{{user}}}}}]\n\
                 contexts: [{{name: east, context: {{cluster: c, user: u}}}}]\n"
            );
            fs::write(dir.path().join(".text"), &text).unwrap();
            fs::rename(dir.path().join(".text"), dir.path().join("kubeconfig")).unwrap();
            let snapshot = folder(dir.path()).look();
            let east = |source: &&Source| source.name.as_str() == "east";
            let source = snapshot.sources.iter().find(east).unwrap();
            source.access.as_ref().err().map(|error| error.reason()).unwrap_or_default()
        };
        let outside = secret.display().to_string();
        for file in [outside.as_str(), "../secret", "link", "folder/secret"] {
            for (cluster, user) in [
                (format!(", certificate-authority: '{file}'"), String::new()),
                (String::new(), format!("client-certificate: '{file}'")),
                (String::new(), format!("client-key: '{file}'")),
                (
                    String::new(),
                    format!(
                        "auth-provider: {{name: oidc, config: {{idp-certificate-authority: '{file}'}}}}"
                    ),
                ),
            ] {
                let reason = reason(&cluster, &user);
                assert!(reason.contains("outside of"), "{cluster}{user}: {reason:?}");
            }
        }
        for file in ["own", "./own", "own-link"] {
            assert_eq!(reason(&format!(", certificate-authority: {file}"), ""), "", "{file}");
        }
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
