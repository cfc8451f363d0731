//! A person's own kubeconfig: one file, or those of `$KUBECONFIG`, merged as `kubectl` merges them. Of entries with
//! one name the first file's counts, and of `current-context` the first that is set. Files that do not exist are
//! left out.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::{FutureExt, TryFutureExt};
use kube::config::{Cluster, Kubeconfig};
use model::Clock;

use crate::connect::Connecting;
use crate::error::Unusable;
use crate::file::{WatchedFile, source, unreadable};
use crate::following::client;
use crate::kubeconfig::{self, Contexts, Origin};
use crate::polled::{Look, Polled};
use crate::provider::{ClusterProvider, Snapshot};
use crate::reference::read_bounded;
use crate::trust::Trust;

/// Where the kubeconfig of whoever runs a command is. It may do everything, as with `kubectl`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnKubeconfig {
    /// At least one.
    paths: Vec<PathBuf>,
}

impl OwnKubeconfig {
    /// One file.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self { paths: vec![path.into()] }
    }

    /// The files of this value of `$KUBECONFIG`, or if it names none, the one in the home folder.
    pub fn named(variable: Option<&std::ffi::OsStr>, home: Option<&Path>) -> Option<Self> {
        let mut seen = BTreeSet::new();
        let files = variable.into_iter().flat_map(std::env::split_paths);
        let files = files.filter(|path| !path.as_os_str().is_empty() && seen.insert(path.clone()));
        let mut paths: Vec<PathBuf> = files.collect();
        if paths.is_empty() {
            paths.push(home?.join(".kube/config"));
        }
        Some(Self { paths })
    }

    /// The files, as messages name them.
    pub fn shown(&self) -> String {
        let paths: Vec<_> = self.paths.iter().map(|path| path.display().to_string()).collect();
        paths.join(", ")
    }

    /// All of it. The files that it names have absolute paths.
    ///
    /// # Errors
    /// If a file is not a kubeconfig or cannot be read, or if none exists.
    pub fn read(&self) -> Result<Kubeconfig, Unusable> {
        let mut all: Option<Kubeconfig> = None;
        let mut missing = None;
        for path in &self.paths {
            match read_bounded(path) {
                Ok(bytes) => {
                    let next = kubeconfig::parse(path, &bytes)?;
                    all = Some(match all {
                        Some(all) => merged(all, next),
                        None => next,
                    });
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    missing.get_or_insert_with(|| unreadable(path, error));
                }
                Err(error) => return Err(unreadable(path, error)),
            }
        }
        match (all, missing) {
            (Some(all), _) => Ok(all),
            (None, Some(missing)) => Err(missing),
            (None, None) => Ok(Kubeconfig::default()),
        }
    }

    /// One of its contexts, or the current one, and the cluster of it; none if there is no such context.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn cluster(&self, context: Option<&str>) -> Result<Option<(String, Cluster)>, Unusable> {
        let Kubeconfig { clusters, contexts, current_context, .. } = self.read()?;
        let Some(name) = context.map(str::to_owned).or(current_context) else { return Ok(None) };
        let context = contexts.into_iter().find(|found| found.name == name);
        let named = context.and_then(|found| found.context).map(|context| context.cluster);
        let cluster = clusters.into_iter().find(|found| Some(&found.name) == named.as_ref());
        Ok(cluster.and_then(|found| found.cluster).map(|cluster| (name, cluster)))
    }

    /// A client for one of its contexts, or for its current one. It follows changes of the files. Needs a tokio
    /// runtime.
    ///
    /// # Errors
    /// [`Unusable`], which names file, cause and fix.
    pub fn client(&self, context: Option<&str>, clock: Arc<dyn Clock>) -> Connecting<'static> {
        let wanted =
            context.map_or(Contexts::Current, |name| Contexts::Chosen(vec![name.to_owned()]));
        let path = self.paths.first().cloned().unwrap_or_default();
        let origin = Origin { path, prefix: None, trust: Trust::own() };
        let source: Box<dyn ClusterProvider> = match self.paths.as_slice() {
            [_] => Box::new(Polled::new(WatchedFile::new(origin, wanted))),
            _ => Box::new(Polled::new(Merged { own: self.clone(), origin, wanted })),
        };
        client(source, clock).map_ok(|followed| followed.client).boxed()
    }
}

/// `first`, with the entries of `next` that it does not have.
fn merged(mut first: Kubeconfig, next: Kubeconfig) -> Kubeconfig {
    add(&mut first.clusters, next.clusters, |entry| &entry.name);
    add(&mut first.auth_infos, next.auth_infos, |entry| &entry.name);
    add(&mut first.contexts, next.contexts, |entry| &entry.name);
    let is_set = |context: &String| !context.is_empty();
    first.current_context =
        first.current_context.filter(is_set).or(next.current_context.filter(is_set));
    first
}

fn add<T>(first: &mut Vec<T>, next: Vec<T>, name: fn(&T) -> &str) {
    for entry in next {
        if !first.iter().any(|known| name(known) == name(&entry)) {
            first.push(entry);
        }
    }
}

/// Several files, read again and again.
struct Merged {
    own: OwnKubeconfig,
    /// Of the first.
    origin: Origin,
    wanted: Contexts,
}

impl Look for Merged {
    fn label(&self) -> String {
        format!("kubeconfig {}", self.own.shown())
    }

    fn look(&mut self) -> Snapshot {
        let drafts = match self.own.read() {
            Ok(config) => kubeconfig::drafts(&self.origin, &config, &self.wanted),
            Err(error) => vec![self.origin.down_as_a_whole(error)],
        };
        Snapshot { sources: drafts.into_iter().map(source).collect(), ..Snapshot::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;

    use super::*;

    /// A kubeconfig with one context of this name, whose cluster and user have it too.
    fn kubeconfig(name: &str, server: &str, current: &str) -> String {
        format!(
            "current-context: '{current}'\n\
             clusters: [{{name: {name}, cluster: {{server: '{server}', certificate-authority: ca}}}}]\n\
             users: [{{name: {name}, user: {{tokenFile: token}}}}]\n\
             contexts: [{{name: {name}, context: {{cluster: {name}, user: {name}}}}}]\n"
        )
    }

    #[test]
    fn files_merge_as_kubectl_merges_them() {
        let dir = tempfile::tempdir().unwrap();
        let file = |folder: &str, text: &str| {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
            fs::write(dir.path().join(folder).join("config"), text).unwrap();
            dir.path().join(folder).join("config")
        };
        let first = file("a", &kubeconfig("east", "https://first", ""));
        let second = file("b", &kubeconfig("east", "https://second", "east"));
        let third = file("c", &kubeconfig("west", "https://third", "west"));
        let missing = dir.path().join("missing");
        let paths = [&missing, &first, &second, &third, &first].map(|path| path.as_os_str());
        let variable = std::env::join_paths(paths).unwrap();
        let own = OwnKubeconfig::named(Some(&variable), None).unwrap();
        assert_eq!(own.paths, [missing, first, second, third]);
        let all = own.read().unwrap();
        assert_eq!(all.current_context.as_deref(), Some("east"), "the first that is set");
        let server = |entry: &kube::config::NamedCluster| {
            let cluster = entry.cluster.clone().unwrap();
            (entry.name.clone(), cluster.server.unwrap(), cluster.certificate_authority.unwrap())
        };
        let ca = |folder: &str| dir.path().join(folder).join("ca").display().to_string();
        let servers: Vec<_> = all.clusters.iter().map(server).collect();
        let row = |name: &str, server: &str, folder| (name.into(), server.into(), ca(folder));
        assert_eq!(servers, [row("east", "https://first", "a"), row("west", "https://third", "c")]);
    }

    #[test]
    fn a_file_that_is_none_is_an_error_and_so_is_no_file_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let bad = dir.path().join("bad");
        fs::write(&bad, "clusters: {").unwrap();
        let good = dir.path().join("good");
        fs::write(&good, kubeconfig("east", "https://h", "east")).unwrap();
        let read = |paths: &[&Path]| {
            let own = OwnKubeconfig { paths: paths.iter().map(|&path| path.to_owned()).collect() };
            own.read().map(|_| ()).map_err(|error| error.reason())
        };
        assert!(read(&[&good, &bad]).unwrap_err().contains("bad is not a kubeconfig"));
        assert!(read(&[&dir.path().join("a"), &dir.path().join("b")]).unwrap_err().contains("/a"));
        assert_eq!(read(&[&dir.path().join("a"), &good]), Ok(()));
    }

    #[test]
    fn without_the_variable_it_is_the_one_in_the_home_folder() {
        let own = |variable: &str, home| OwnKubeconfig::named(Some(OsStr::new(variable)), home);
        let at_home = OwnKubeconfig::file("/home/alice/.kube/config");
        assert_eq!(own("", Some(Path::new("/home/alice"))), Some(at_home.clone()));
        assert_eq!(own(":", Some(Path::new("/home/alice"))), Some(at_home));
        assert_eq!(own("", None), None);
    }

    #[tokio::test]
    async fn a_context_may_be_in_one_file_and_its_cluster_in_another() {
        let dir = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
        fs::write(&first, "contexts: [{name: east, context: {cluster: c}}]\n").unwrap();
        fs::write(&second, "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n")
            .unwrap();
        let clock: Arc<dyn Clock> = Arc::new(model::ManualClock::new(jiff::Timestamp::UNIX_EPOCH));
        let own = OwnKubeconfig { paths: vec![first.clone(), second] };
        assert!(own.client(Some("east"), Arc::clone(&clock)).await.is_ok());
        let (context, cluster) = own.cluster(Some("east")).unwrap().unwrap();
        let server = cluster.server.as_deref();
        assert_eq!((&*context, server), ("east", Some("http://127.0.0.1:1")));
        assert!(own.cluster(None).unwrap().is_none(), "no current one");
        let unknown = own.client(Some("north"), Arc::clone(&clock)).await.err().unwrap();
        assert!(unknown.reason().contains("east"), "{}", unknown.reason());
        let alone = OwnKubeconfig::file(first).client(Some("east"), clock).await.err().unwrap();
        assert!(alone.reason().contains("names cluster \"c\""), "{}", alone.reason());
    }
}
