//! Parses kubeconfigs: pure, from bytes to one [`Draft`] per context.
//!
//! A draft names the files that the context refers to. `file.rs` reads them.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use kube::config::{AuthInfo, Cluster, Context, Kubeconfig, NamedCluster};
use model::error::foreign;
use model::{ClusterName, Prefix};

use crate::error::Unusable;
use crate::provider::{Access, Fingerprint};
use crate::reference::{self, Looks, Reference};
use crate::trust::{Environment, Granted, Plugins, Refused, Trust};

/// The most contexts of one file.
const MAX_CONTEXTS: usize = 1024;
/// The most bytes that all contexts of one file take. Each has what it needs by itself, and many may share an entry or
/// a file: a thousand contexts with certificates and tokens of their own take five million.
pub(crate) const MAX_KEPT_BYTES: usize = 16 << 20;

/// One context of a kubeconfig, before the files that it refers to are read.
#[derive(Debug)]
pub(crate) struct Draft {
    /// The name of its cluster.
    pub(crate) name: ClusterName,
    /// Where it comes from, for people.
    pub(crate) origin: Arc<str>,
    /// How to reach it, or why it cannot be reached.
    pub(crate) access: Result<(Access, Fingerprint), Arc<Unusable>>,
    /// The files that it refers to.
    pub(crate) references: Vec<Reference>,
    /// The bytes that it takes, without those files.
    pub(crate) bytes: usize,
    /// How to reach it with what those files hold, when they were read last, and the bytes that this takes.
    pub(crate) made: Option<(Access, Fingerprint, usize)>,
    pub(crate) looks: Looks,
}

/// Where a kubeconfig lies, and what its author may do.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) path: PathBuf,
    /// What its clusters' names begin with.
    pub(crate) prefix: Option<Prefix>,
    pub(crate) trust: Trust,
}

/// Which contexts of a file to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Contexts {
    All,
    /// These, also if they are missing.
    Chosen(Vec<String>),
    /// Its `current-context`.
    Current,
}

/// Parses a kubeconfig, and makes relative references absolute against `path`'s folder.
///
/// # Errors
/// [`Unusable::Parse`], without values of the file in its text.
pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Kubeconfig, Unusable> {
    let broken = |problem: String| Unusable::Parse { path: path.to_owned(), problem };
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|e| broken(format!("not UTF-8: {e}")))?;
    // An alias repeats what it stands for: all in all, no more than is there is repeated.
    let budget = serde_saphyr::budget! { max_total_scalar_bytes: 2 * text.len() };
    let options = serde_saphyr::options! { budget: budget };
    let documents = serde_saphyr::from_multiple_with_options::<Kubeconfig>(text, options);
    // Snippets would copy lines of the file, with tokens, into logs.
    let documents =
        documents.map_err(|error| broken(redacted(&error.without_snippet().to_string())))?;
    let merged = documents.into_iter().try_fold(Kubeconfig::default(), Kubeconfig::merge);
    let merged = merged.map_err(|error| broken(error.to_string()))?;
    Ok(absolute(merged, path.parent().unwrap_or(Path::new("."))))
}

/// Whether a text that cannot be parsed may be a kubeconfig with a mistake in it, and not a certificate, a token or
/// notes: it has a field without which there are no clusters.
pub(crate) fn may_be_one(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    ["clusters", "contexts"].iter().any(|field| {
        let mut after = text.split(field).skip(1);
        after.any(|after| after.trim_start_matches(['"', '\'', ' ']).starts_with(':'))
    })
}

/// One draft for each wanted context, usable or not.
pub(crate) fn drafts(origin: &Origin, config: &Kubeconfig, wanted: &Contexts) -> Vec<Draft> {
    let path = || origin.path.clone();
    let known: Vec<String> = config.contexts.iter().map(|c| c.name.clone()).collect();
    let whole = |error| vec![origin.down_as_a_whole(error)];
    if known.is_empty() {
        return whole(Unusable::NoContexts { path: path() });
    }
    if known.len() > MAX_CONTEXTS {
        return whole(Unusable::TooManyContexts { path: path(), limit: MAX_CONTEXTS });
    }
    let names = match wanted {
        Contexts::All => known,
        Contexts::Chosen(names) => names.clone(),
        Contexts::Current => match &config.current_context {
            Some(name) => vec![name.clone()],
            None => return whole(Unusable::NoCurrentContext { path: path(), known }),
        },
    };
    let (mut drafts, mut kept) = (Vec::new(), 0);
    for name in &names {
        let draft = origin.draft(config, name);
        kept += draft.bytes;
        if kept > MAX_KEPT_BYTES {
            let origin = origin.nameless().1.to_string();
            return whole(Unusable::TooMuch { origin, limit_bytes: MAX_KEPT_BYTES });
        }
        drafts.push(draft);
    }
    drafts
}

impl Draft {
    /// A cluster that cannot be reached.
    pub(crate) fn down(name: ClusterName, origin: Arc<str>, error: Arc<Unusable>) -> Self {
        let (references, looks) = (Vec::new(), Looks::default());
        Self { name, origin, access: Err(error), references, bytes: 0, made: None, looks }
    }
}

impl Origin {
    /// Name and origin of a file without usable contexts: those of the file itself.
    pub(crate) fn nameless(&self) -> (ClusterName, Arc<str>) {
        let stem = self.path.file_stem().unwrap_or(self.path.as_os_str()).to_string_lossy();
        let origin = format!("kubeconfig {}", self.path.display());
        (model::cluster_name(self.prefix.as_ref(), &stem), foreign(&origin).into())
    }

    /// Name and origin of one of its contexts.
    pub(crate) fn named(&self, context: &str) -> (ClusterName, Arc<str>) {
        let origin = format!("kubeconfig {}, context {context:?}", self.path.display());
        (model::cluster_name(self.prefix.as_ref(), context), foreign(&origin).into())
    }

    pub(crate) fn down_as_a_whole(&self, error: Unusable) -> Draft {
        let (name, origin) = self.nameless();
        Draft::down(name, origin, Arc::new(error))
    }

    fn draft(&self, config: &Kubeconfig, context: &str) -> Draft {
        let (name, origin) = self.named(context);
        match self.resolve(config, context) {
            Ok((access, fingerprint, references, bytes)) => {
                let (access, looks) = (Ok((access, fingerprint)), Looks::default());
                Draft { name, origin, access, references, bytes, made: None, looks }
            }
            Err(error) => Draft::down(name, origin, Arc::new(error)),
        }
    }

    /// How to reach the cluster of a context, the files that it refers to, and the bytes that it takes without them.
    fn resolve(
        &self,
        config: &Kubeconfig,
        context: &str,
    ) -> Result<(Access, Fingerprint, Vec<Reference>, usize), Unusable> {
        let path = || self.path.clone();
        let entry = config.contexts.iter().find(|c| c.name == context);
        let entry = entry.ok_or_else(|| Unusable::NoContext {
            path: path(),
            context: context.to_owned(),
            known: config.contexts.iter().map(|c| c.name.clone()).collect(),
        })?;
        let dangling = |what, name: &str| Unusable::Dangling {
            path: path(),
            context: context.to_owned(),
            what,
            name: name.to_owned(),
        };
        let Context { cluster, user, .. } = entry.context.clone().unwrap_or_default();
        let found = config.clusters.iter().find(|c| c.name == cluster);
        let cluster_entry = found.ok_or_else(|| dangling("cluster", &cluster))?;
        let server = cluster_entry.cluster.clone().unwrap_or_default();
        self.check_server(context, &cluster, &server)?;
        let user_entry = match user.as_deref().filter(|name| !name.is_empty()) {
            None => None,
            Some(user) => {
                let found = config.auth_infos.iter().find(|u| u.name == user);
                Some(found.ok_or_else(|| dangling("user", user))?)
            }
        };
        let granted =
            self.grant(context, &server, user_entry.and_then(|u| u.auth_info.as_ref()))?;
        // What the context does not need is left out.
        let mut reduced = Kubeconfig {
            clusters: vec![NamedCluster {
                name: cluster,
                cluster: Some(server),
                ..NamedCluster::default()
            }],
            auth_infos: user_entry.cloned().into_iter().collect(),
            contexts: vec![entry.clone()],
            current_context: Some(context.to_owned()),
            ..Kubeconfig::default()
        };
        strip(&mut reduced);
        let references = reference::of(&reduced);
        for Reference { field, file } in &references {
            self.check_file(context, field, file)?;
        }
        // As a `Value`, whose maps are sorted, so that the same text has the same hash.
        let text = serde_json::to_value(&reduced).expect("a kubeconfig is plain data").to_string();
        let fingerprint = Fingerprint::of([text.as_bytes()]);
        let (kubeconfig, context) = (Arc::new(reduced), context.into());
        let granted = Arc::new(granted);
        let access = Access::Kubeconfig { kubeconfig, context, granted };
        Ok((access, fingerprint, references, text.len()))
    }

    fn check_server(&self, context: &str, name: &str, cluster: &Cluster) -> Result<(), Unusable> {
        let problem = match cluster.server.as_deref() {
            None | Some("") => "no server".to_owned(),
            Some(server) => match server.parse::<http::Uri>() {
                Ok(uri) if uri.authority().is_some_and(|host| host.as_str().contains('@')) => {
                    "a server with a user in its URL, who belongs under users".to_owned()
                }
                Ok(uri) if matches!(uri.scheme_str(), Some("https" | "http")) => return Ok(()),
                _ => {
                    // What precedes the host may be a password.
                    let host = server.rsplit('@').next().unwrap_or_default();
                    format!("server {host:?}, which is not an https:// URL")
                }
            },
        };
        Err(Unusable::Server {
            path: self.path.clone(),
            context: context.to_owned(),
            cluster: name.to_owned(),
            problem,
        })
    }

    /// What the source of the kubeconfig grants its clusters, if these entries ask for no more.
    fn grant(
        &self,
        context: &str,
        cluster: &Cluster,
        user: Option<&AuthInfo>,
    ) -> Result<Granted, Unusable> {
        if let Some(Refused { risk, what }) = self.trust.refused(cluster, user) {
            let (path, context) = (self.path.clone(), context.to_owned());
            return Err(Unusable::Refused { path, context, what, risk });
        }
        let environment = match user.and_then(|user| user.exec.as_ref()) {
            None => Environment::default(),
            Some(exec) => {
                let command = exec.command.clone().unwrap_or_default();
                if command.is_empty() {
                    return Err(Unusable::Parse {
                        path: self.path.clone(),
                        problem: format!(
                            "context {context:?}: the user's exec section has no command"
                        ),
                    });
                }
                self.trust.plugins.allow(exec).ok_or_else(|| Unusable::PluginNotAllowed {
                    path: self.path.clone(),
                    context: context.to_owned(),
                    command: foreign(&command),
                    ever: self.trust.plugins != Plugins::Never,
                })?
            }
        };
        if let Some(file) = user.and_then(|user| user.token_file.as_deref()) {
            self.check_file(context, "tokenFile", Path::new(file))?;
        }
        let within = self.trust.contained.then(|| self.path.clone());
        Ok(Granted { reach: self.trust.reach(), environment, within })
    }

    /// Whether a file may be read for this kubeconfig, as far as its path shows: links are followed when it
    /// is read.
    fn check_file(&self, context: &str, field: &'static str, file: &Path) -> Result<(), Unusable> {
        let within = self.path.parent().is_some_and(|folder| {
            let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
            file.starts_with(folder)
        });
        let climbs = file.components().any(|part| part == Component::ParentDir);
        if !self.trust.contained || within && !climbs {
            return Ok(());
        }
        Err(Unusable::Outside {
            origin: self.named(context).1.to_string(),
            field,
            file: file.to_owned(),
        })
    }
}

/// Drops what nothing reads, which may be large: the fields of other programs, and extensions but for those that
/// a credential program is told.
fn strip(reduced: &mut Kubeconfig) {
    let mut tells_program = false;
    for named in &mut reduced.auth_infos {
        named.other.clear();
        if let Some(user) = &mut named.auth_info {
            (user.extensions, user.other) = Default::default();
            tells_program |= user.exec.as_ref().is_some_and(|exec| exec.provide_cluster_info);
        }
    }
    for named in &mut reduced.contexts {
        named.other.clear();
        if let Some(context) = &mut named.context {
            (context.extensions, context.other) = Default::default();
        }
    }
    for cluster in reduced.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        cluster.other.clear();
        cluster.extensions.take_if(|_| !tells_program);
    }
}

/// Makes relative references absolute against `dir`, including commands that are paths.
fn absolute(mut config: Kubeconfig, dir: &Path) -> Kubeconfig {
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let fix = |file: &mut String| {
        if Path::new(file.as_str()).is_relative() {
            *file = dir.join(file.as_str()).to_string_lossy().into_owned();
        }
    };
    for cluster in config.clusters.iter_mut().filter_map(|c| c.cluster.as_mut()) {
        cluster.certificate_authority.iter_mut().for_each(fix);
    }
    for info in config.auth_infos.iter_mut().filter_map(|u| u.auth_info.as_mut()) {
        let files = [&mut info.client_certificate, &mut info.client_key, &mut info.token_file];
        files.into_iter().flatten().for_each(fix);
        let provider = info.auth_provider.as_mut();
        let authority = provider.and_then(|it| it.config.get_mut(reference::IDP_AUTHORITY));
        authority.into_iter().for_each(fix);
        let command = info.exec.as_mut().and_then(|exec| exec.command.as_mut());
        let is_path = |command: &&mut String| command.contains(std::path::MAIN_SEPARATOR);
        command.filter(is_path).into_iter().for_each(fix);
    }
    config
}

/// What is wrong and where, without values of the file: a parser repeats what it did not expect, and that may be a
/// token in the wrong place. It quotes values in several ways, or not at all, and they may have quotes in them. So
/// only the kind of the problem is kept, which comes first, and what the program itself has put in.
fn redacted(message: &str) -> String {
    let is_place = |text: &str| {
        let is_number = |word: &str| word.trim_end_matches(',').parse::<u64>().is_ok();
        text.split_whitespace()
            .all(|word| ["at", "line", "column"].contains(&word) || is_number(word))
    };
    let at = message.rfind(" at line ").filter(|at| is_place(&message[*at..]));
    let (what, place) = message.split_at(at.unwrap_or(message.len()));
    let kind = what.split([':', '"', '`', '\'', '[']).next().unwrap_or_default().trim_end();
    let own = match kind {
        "missing field" => &what[kind.len()..],
        "invalid type" | "invalid value" | "unknown variant" => {
            what.rfind(", expected ").map_or("", |at| &what[at..])
        }
        _ => "",
    };
    format!("{kind}{own}{place}")
}

#[cfg(test)]
#[path = "kubeconfig_tests.rs"]
mod tests;
