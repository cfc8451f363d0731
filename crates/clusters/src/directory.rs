//! A folder of kubeconfigs: each file's contexts are clusters, which come and go with the file.
//!
//! Its authors are not those of the configuration, so it gets the trust of [`Trust::stranger`], a quota,
//! and, if the configuration says so, a prefix that keeps its clusters' names apart from all others.
//!
//! It works for a mounted Secret as well as for people: it follows symlinks (Kubernetes swaps a Secret by
//! repointing `..data`) and ignores names that begin with a dot.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::{ClusterName, Prefix};

use crate::file::WatchedFile;
use crate::kubeconfig::{Contexts, Origin};
use crate::polled::{Look, Polled};
use crate::provider::{ClusterProvider, Snapshot, Source};
use crate::terms::Terms;

/// The bytes that the clusters of a file may take, each on the average, whatever other files take. Where those take less,
/// it may be twice as much: all clusters of a folder have so many more together as its quota stands for.
const KEPT_BYTES_EACH: usize = 64 << 10;
/// And a file with one so many: some have a bundle of certificates in it.
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

    /// The same folder on these terms. Of its clusters, those that came first count, and of those that came at once, one
    /// of each file in turn.
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
    /// The clusters that count, by their file.
    counted: BTreeMap<OsString, BTreeSet<ClusterName>>,
    /// How often the folder was read: files in its first read are accepted at once.
    looks: u64,
}

/// Of each file, the places of its clusters that count.
type Chosen = BTreeMap<OsString, BTreeSet<usize>>;

#[derive(Debug)]
struct Entry {
    file: WatchedFile,
    /// How long it was in the last read, in bytes.
    len: u64,
    /// Since which look clusters of it count, if any do.
    counts_since: Option<u64>,
    /// It was missing in the last read. If it is missing again, it is forgotten.
    missing: bool,
}

impl Look for Folder {
    fn label(&self) -> String {
        format!("directory {}", self.of.path.display())
    }

    fn look(&mut self) -> Snapshot {
        let mut problems: Vec<Arc<str>> = Vec::new();
        let path = self.of.path.clone();
        match names(&path) {
            Ok(mut names) => {
                if names.len() > MAX_FILES {
                    problems.push(too_many(&path, names.len()));
                    names.sort_by_key(|(name, _)| !self.counted.contains_key(name));
                    names.truncate(MAX_FILES);
                    names.sort();
                }
                self.update(&names);
            }
            // The known clusters stay: a folder that cannot be listed says nothing about them.
            Err(error) => problems.push(unlisted(&path, &error)),
        }
        let read = self.read();
        let (chosen, are_all) = self.choose(&read);
        if !are_all || read.len() < self.files.len() {
            problems.push(beyond_quota(&path, self.of.terms.quota));
        }
        let sources = self.sources(&chosen);
        let is_partial = self.looks == 0 || self.files.values().any(|entry| entry.file.is_open());
        Snapshot { sources, problems, is_partial }
    }

    fn prefix(&self) -> Option<Prefix> {
        self.of.terms.prefix.clone()
    }
}

impl Folder {
    fn new(of: Directory) -> Self {
        Self { of, files: BTreeMap::new(), counted: BTreeMap::new(), looks: 0 }
    }

    /// Reads files, as many as may count: those of clusters that count already, and the small ones, before others.
    fn read(&mut self) -> BTreeSet<OsString> {
        let quota = self.of.terms.quota;
        let (mut read, mut bytes) = (BTreeSet::new(), 0);
        let mut files: Vec<_> = self.files.iter_mut().collect();
        files.sort_by_key(|(name, entry)| (!self.counted.contains_key(*name), entry.len));
        for (name, Entry { file, .. }) in files {
            if read.len() > quota || bytes > quota.saturating_mul(2 * KEPT_BYTES_EACH) {
                break;
            }
            file.read();
            bytes += file.bytes();
            read.insert(name.clone());
        }
        read
    }

    /// Decides which clusters of these files count: their places in the files. Whoever adds a file or a context takes
    /// nothing from those that count already, and the others come in turn, one of each file. Says too whether all count.
    fn choose(&mut self, read: &BTreeSet<OsString>) -> (Chosen, bool) {
        let mut before = std::mem::take(&mut self.counted);
        let mut found = Vec::new();
        for name in read {
            let (mut counted, mut turn) = (before.remove(name).unwrap_or_default(), 0);
            for (place, cluster) in self.files[name].file.names().enumerate() {
                let is_new = !counted.remove(cluster);
                turn += usize::from(is_new);
                found.push((if is_new { turn } else { 0 }, name, place, cluster));
            }
        }
        found.sort();
        let (all, mut chosen) = (found.len(), Chosen::new());
        found.truncate(self.of.terms.quota);
        for (_, name, place, cluster) in &found {
            chosen.entry(OsString::clone(name)).or_default().insert(*place);
            let counted = self.counted.entry(OsString::clone(name)).or_default();
            counted.insert(ClusterName::clone(cluster));
        }
        let are_all = found.len() == all;
        for (name, entry) in &mut self.files {
            let since = entry.counts_since.unwrap_or(self.looks);
            entry.counts_since = chosen.contains_key(name).then_some(since);
        }
        (chosen, are_all)
    }

    /// The clusters at these places. What they take beyond the bytes of each, newcomers take last.
    fn sources(&mut self, chosen: &Chosen) -> Vec<Source> {
        let mut spare = self.of.terms.quota.saturating_mul(KEPT_BYTES_EACH);
        let mut in_turn: Vec<_> = chosen.iter().collect();
        in_turn.sort_by_key(|(name, _)| self.files[*name].counts_since);
        let mut sources = BTreeMap::new();
        for (name, places) in in_turn {
            let own = places.len() * KEPT_BYTES_EACH;
            let most = (own + spare).min((2 * own).max(KEPT_BYTES_FILE));
            let mut left = most;
            let wanted = |place| places.contains(&place);
            let Some(Entry { file, .. }) = self.files.get_mut(name) else { continue };
            sources.insert(name, file.sources(wanted, &mut left));
            spare -= (most - left).saturating_sub(own);
        }
        sources.into_values().flatten().collect()
    }

    fn update(&mut self, names: &[(OsString, u64)]) {
        let len = |name: &OsString| {
            let at = names.binary_search_by(|(known, _)| known.cmp(name)).ok()?;
            Some(names[at].1)
        };
        self.files.retain(|name, entry| {
            let keep = len(name).is_some() || !entry.missing;
            (entry.missing, entry.len) = (len(name).is_none(), len(name).unwrap_or(entry.len));
            keep
        });
        for (name, len) in names {
            if !self.files.contains_key(name) {
                let Directory { path, terms } = &self.of;
                let (prefix, trust) = (terms.prefix.clone(), terms.trust());
                let origin = Origin { path: path.join(name), prefix, trust };
                let file = if self.looks > 0 {
                    WatchedFile::cautious(origin, Contexts::All)
                } else {
                    WatchedFile::new(origin, Contexts::All)
                };
                self.files.insert(
                    name.clone(),
                    Entry { file, len: *len, counts_since: None, missing: false },
                );
            }
        }
        self.looks += 1;
    }
}

/// The names of the folder's files, sorted, and their sizes.
fn names(path: &Path) -> io::Result<Vec<(OsString, u64)>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)?.take(MAX_ENTRIES) {
        let name = entry?.file_name();
        let hidden = name.as_encoded_bytes().first() == Some(&b'.');
        // Follows symlinks: the file at their end counts. A dangling one is kept and reported.
        let meta = fs::metadata(path.join(&name)).ok();
        if !hidden && !meta.as_ref().is_some_and(fs::Metadata::is_dir) {
            names.push((name, meta.map_or(0, |meta| meta.len())));
        }
    }
    names.sort();
    Ok(names)
}

fn too_many(path: &Path, found: usize) -> Arc<str> {
    format!(
        "directory {} has {found} files, {MAX_FILES} of them count; fix: keep only kubeconfigs in it",
        path.display()
    )
    .into()
}

fn beyond_quota(path: &Path, quota: usize) -> Arc<str> {
    format!(
        "directory {} has more clusters, or larger ones, than its quota of {quota} has room for, those that came \
         first count; fix: remove contexts, or raise maxClusters of that directory in the configuration",
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

    /// Contexts of these names, which share what one cluster entry says.
    fn contexts(names: impl Iterator<Item = String>, cluster: &str) -> String {
        let contexts: Vec<_> =
            names.map(|name| format!("{{name: {name}, context: {{cluster: c}}}}")).collect();
        format!(
            "clusters: [{{name: c, cluster: {{server: 'https://h:1'{cluster}}}}}]\n\
             contexts: [{}]\n",
            contexts.join(", ")
        )
    }

    fn with_quota(path: &Path, quota: usize) -> Folder {
        Folder::new(Directory::new(path).terms(Terms { quota, ..Terms::default() }))
    }

    #[test]
    fn who_adds_a_file_with_many_contexts_takes_nothing_from_a_cluster_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let mut folder = with_quota(dir.path(), 3);
        fs::write(dir.path().join("z.yaml"), config("plain", "z")).unwrap();
        assert_eq!(settle(&mut folder), "plain");
        let many = contexts((0..5).map(|n| format!("c{n}")), "");
        fs::write(dir.path().join("a.yaml"), many).unwrap();
        assert_eq!(settle(&mut folder), "c0 c1 plain");
        // A context of the same name is another cluster's.
        fs::write(dir.path().join("b.yaml"), config("plain", "b")).unwrap();
        assert_eq!(settle(&mut folder), "c0 c1 plain");
        fs::remove_file(dir.path().join("a.yaml")).unwrap();
        assert_eq!(settle(&mut folder), "plain plain");
        // Who starts knows no use, and gives each file its turn.
        fs::write(dir.path().join("c.yaml"), contexts((0..2000).map(|n| format!("c{n}")), ""))
            .unwrap();
        let many = contexts((0..5).map(|n| format!("c{n}")), "");
        fs::write(dir.path().join("a.yaml"), many).unwrap();
        fs::remove_file(dir.path().join("b.yaml")).unwrap();
        assert_eq!(settle(&mut with_quota(dir.path(), 3)), "c0 c(down) plain");
    }

    #[test]
    fn what_the_files_of_a_folder_take_together_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let own = contexts([name.to_owned()].into_iter(), ", certificate-authority: ca.crt");
            fs::write(dir.path().join(format!("{name}.yaml")), own).unwrap();
        };
        fs::write(dir.path().join("ca.crt"), vec![b'x'; 190_000]).unwrap();
        let mut folder = with_quota(dir.path(), 6);
        file("m");
        assert_eq!(settle(&mut folder), "ca(down) m");
        ["a", "b", "c"].iter().for_each(|name| file(name));
        assert_eq!(
            settle(&mut folder),
            "a b(down) c(down) ca(down) m",
            "two have room for that much"
        );
        fs::write(dir.path().join("ca.crt"), vec![b'x'; 40_000]).unwrap();
        assert_eq!(settle(&mut folder), "a b c ca(down) m");
    }

    #[test]
    fn what_one_file_takes_is_no_trouble_for_the_clusters_of_another() {
        let dir = tempfile::tempdir().unwrap();
        let greedy = contexts((0..40).map(|n| format!("c{n}")), ", certificate-authority: ca.crt");
        fs::write(dir.path().join("a.yaml"), greedy).unwrap();
        fs::write(dir.path().join("z.yaml"), config("plain", "z")).unwrap();
        fs::write(dir.path().join("ca.crt"), vec![b'x'; 200_000]).unwrap();
        let mut folder = with_quota(dir.path(), 100);
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
