//! Parses kubeconfigs: pure, from bytes to one [`Draft`] per context.
//!
//! A draft names the files that the context refers to. `file.rs` reads them.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use kube::config::{AuthInfo, Cluster, Context, Kubeconfig};
use model::ClusterName;

use crate::error::Unusable;
use crate::provider::{Access, Fingerprint};

/// The most contexts of one file.
const MAX_CONTEXTS: usize = 1024;

/// One context of a kubeconfig, before the files that it refers to are read.
#[derive(Debug)]
pub(crate) struct Draft {
    /// The name of its cluster.
    pub(crate) name: ClusterName,
    /// Where it comes from, for people.
    pub(crate) origin: Arc<str>,
    /// How to reach it, or why it cannot be reached.
    pub(crate) access: Result<(Access, Fingerprint), Arc<Unusable>>,
    /// The files that it refers to: field and absolute path.
    pub(crate) references: Vec<(&'static str, PathBuf)>,
}

/// Which contexts of a file to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Contexts {
    /// All.
    All,
    /// These, also if they are missing.
    Chosen(Vec<String>),
    /// Its `current-context`.
    Current,
}

/// Which credential programs a kubeconfig may run in its `exec` sections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plugins {
    /// None. For files that others may write, such as a mounted Secret: they must not run programs here,
    /// and a `tokenFile` must lie in the kubeconfig's own folder, so that no other file is sent to their
    /// server.
    Never,
    /// Those listed, by the name or path that the kubeconfig uses.
    Listed(Vec<String>),
    /// All: for a person's own kubeconfig.
    Any,
}

impl Default for Plugins {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

impl Plugins {
    fn allow(&self, command: &str) -> bool {
        match self {
            Self::Never => false,
            Self::Listed(commands) => commands.iter().any(|listed| listed == command),
            Self::Any => true,
        }
    }
}

/// Parses a kubeconfig, and makes relative references absolute against `path`'s folder.
///
/// # Errors
/// [`Unusable::Parse`], without values of the file in its text.
pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Kubeconfig, Unusable> {
    let broken = |problem: String| Unusable::Parse { path: path.to_owned(), problem };
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|e| broken(format!("not UTF-8: {e}")))?;
    // Snippets would copy lines of the file, with tokens, into logs.
    let options = serde_saphyr::options! { with_snippet: false };
    let documents: Vec<Kubeconfig> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|e| broken(redacted(&e.to_string())))?;
    let merged = documents
        .into_iter()
        .try_fold(Kubeconfig::default(), Kubeconfig::merge)
        .map_err(|e| broken(e.to_string()))?;
    Ok(absolute(merged, path.parent().unwrap_or(Path::new("."))))
}

/// One draft for each wanted context, usable or not.
pub(crate) fn drafts(
    path: &Path,
    config: &Kubeconfig,
    wanted: &Contexts,
    plugins: &Plugins,
) -> Vec<Draft> {
    let known: Vec<String> = config.contexts.iter().map(|c| c.name.clone()).collect();
    let whole = |error| vec![whole_file(path, error)];
    if known.is_empty() {
        return whole(Unusable::NoContexts { path: path.to_owned() });
    }
    if known.len() > MAX_CONTEXTS {
        return whole(Unusable::TooManyContexts { path: path.to_owned(), limit: MAX_CONTEXTS });
    }
    let names = match wanted {
        Contexts::All => known,
        Contexts::Chosen(names) => names.clone(),
        Contexts::Current => match &config.current_context {
            Some(name) => vec![name.clone()],
            None => return whole(Unusable::NoCurrentContext { path: path.to_owned(), known }),
        },
    };
    names.iter().map(|name| draft(path, config, name, plugins)).collect()
}

/// Name and origin of a file without usable contexts: those of the file itself.
pub(crate) fn nameless(path: &Path) -> (ClusterName, Arc<str>) {
    let stem = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy();
    (ClusterName::from_context(&stem), format!("kubeconfig {}", path.display()).into())
}

fn whole_file(path: &Path, error: Unusable) -> Draft {
    let (name, origin) = nameless(path);
    Draft { name, origin, access: Err(Arc::new(error)), references: Vec::new() }
}

/// Where a context of a file comes from, for people.
pub(crate) fn origin(path: &Path, context: &str) -> Arc<str> {
    format!("kubeconfig {}, context {context:?}", path.display()).into()
}

fn draft(path: &Path, config: &Kubeconfig, context: &str, plugins: &Plugins) -> Draft {
    let resolved = resolve(path, config, context, plugins);
    let references = resolved.as_ref().map(references).unwrap_or_default();
    Draft {
        name: ClusterName::from_context(context),
        origin: origin(path, context),
        access: resolved.map_err(Arc::new).map(|reduced| {
            // As a `Value`, whose maps are sorted, so that the same text has the same hash.
            let text =
                serde_json::to_value(&reduced).expect("a kubeconfig is plain data").to_string();
            let fingerprint = Fingerprint::of([text.as_bytes()]);
            (
                Access::Kubeconfig { kubeconfig: Arc::new(reduced), context: context.into() },
                fingerprint,
            )
        }),
        references,
    }
}

/// The kubeconfig reduced to one context and the entries it names.
fn resolve(
    path: &Path,
    config: &Kubeconfig,
    context: &str,
    plugins: &Plugins,
) -> Result<Kubeconfig, Unusable> {
    let entry =
        config.contexts.iter().find(|c| c.name == context).ok_or_else(|| Unusable::NoContext {
            path: path.to_owned(),
            context: context.to_owned(),
            known: config.contexts.iter().map(|c| c.name.clone()).collect(),
        })?;
    let dangling = |what, name: &str| Unusable::Dangling {
        path: path.to_owned(),
        context: context.to_owned(),
        what,
        name: name.to_owned(),
    };
    let Context { cluster, user, .. } = entry.context.clone().unwrap_or_default();
    let found = config.clusters.iter().find(|c| c.name == cluster);
    let cluster_entry = found.ok_or_else(|| dangling("cluster", &cluster))?;
    check_server(path, context, &cluster, cluster_entry.cluster.as_ref())?;
    let user_entry = match user.as_deref().filter(|name| !name.is_empty()) {
        None => None,
        Some(user) => Some(
            config
                .auth_infos
                .iter()
                .find(|u| u.name == user)
                .ok_or_else(|| dangling("user", user))?,
        ),
    };
    if let Some(info) = user_entry.and_then(|user| user.auth_info.as_ref()) {
        check_user(path, context, info, plugins)?;
    }
    Ok(Kubeconfig {
        clusters: vec![cluster_entry.clone()],
        auth_infos: user_entry.cloned().into_iter().collect(),
        contexts: vec![entry.clone()],
        current_context: Some(context.to_owned()),
        ..Kubeconfig::default()
    })
}

fn check_server(
    path: &Path,
    context: &str,
    name: &str,
    cluster: Option<&Cluster>,
) -> Result<(), Unusable> {
    let problem = match cluster.and_then(|c| c.server.as_deref()) {
        None | Some("") => "no server".to_owned(),
        Some(server) => match server.parse::<http::Uri>() {
            Ok(uri) if matches!(uri.scheme_str(), Some("https" | "http")) => return Ok(()),
            _ => format!("server {server:?}, which is not an https:// URL"),
        },
    };
    Err(Unusable::Server {
        path: path.to_owned(),
        context: context.to_owned(),
        cluster: name.to_owned(),
        problem,
    })
}

fn check_user(
    path: &Path,
    context: &str,
    info: &AuthInfo,
    plugins: &Plugins,
) -> Result<(), Unusable> {
    if let Some(exec) = &info.exec {
        let command = exec.command.as_deref().unwrap_or_default();
        if command.is_empty() {
            return Err(Unusable::Parse {
                path: path.to_owned(),
                problem: format!("context {context:?}: the user's exec section has no command"),
            });
        }
        if !plugins.allow(command) {
            return Err(Unusable::PluginNotAllowed {
                path: path.to_owned(),
                context: context.to_owned(),
                command: command.to_owned(),
                ever: *plugins != Plugins::Never,
            });
        }
    }
    if let (Plugins::Never, Some(file)) = (plugins, info.token_file.as_deref().map(Path::new)) {
        let within = path.parent().is_some_and(|folder| file.starts_with(folder));
        if !within || file.components().any(|part| part == Component::ParentDir) {
            return Err(Unusable::TokenFileOutside {
                path: path.to_owned(),
                context: context.to_owned(),
                file: file.to_owned(),
            });
        }
    }
    Ok(())
}

/// The files that a reduced kubeconfig refers to. Embedded data takes precedence over a file, as in
/// client-go. A `tokenFile` is not among them, because the client reads it again every minute.
fn references(reduced: &Kubeconfig) -> Vec<(&'static str, PathBuf)> {
    let mut found = Vec::new();
    let mut add = |field, file: &Option<String>, embedded: bool| {
        if let (Some(file), false) = (file, embedded) {
            found.push((field, PathBuf::from(file)));
        }
    };
    for cluster in reduced.clusters.iter().filter_map(|c| c.cluster.as_ref()) {
        let embedded = cluster.certificate_authority_data.is_some();
        add("certificate-authority", &cluster.certificate_authority, embedded);
    }
    for info in reduced.auth_infos.iter().filter_map(|u| u.auth_info.as_ref()) {
        let embedded = info.client_certificate_data.is_some();
        add("client-certificate", &info.client_certificate, embedded);
        add("client-key", &info.client_key, info.client_key_data.is_some());
    }
    found
}

/// Makes relative references absolute against `dir`, including commands that are paths.
fn absolute(mut config: Kubeconfig, dir: &Path) -> Kubeconfig {
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let fix = |file: &mut Option<String>| {
        if let Some(text) = file.as_deref().filter(|text| Path::new(text).is_relative()) {
            *file = Some(dir.join(text).to_string_lossy().into_owned());
        }
    };
    for cluster in config.clusters.iter_mut().filter_map(|c| c.cluster.as_mut()) {
        fix(&mut cluster.certificate_authority);
    }
    for info in config.auth_infos.iter_mut().filter_map(|u| u.auth_info.as_mut()) {
        fix(&mut info.client_certificate);
        fix(&mut info.client_key);
        fix(&mut info.token_file);
        if let Some(exec) = &mut info.exec
            && exec.command.as_deref().is_some_and(|c| c.contains(std::path::MAIN_SEPARATOR))
        {
            fix(&mut exec.command);
        }
    }
    config
}

/// The message without the text in double quotes: a parser quotes unexpected values, and one may be a
/// token in the wrong place.
fn redacted(message: &str) -> String {
    let mut quoted = false;
    let mut text = String::with_capacity(message.len());
    for c in message.chars() {
        if c == '"' {
            quoted = !quoted;
            text.push_str(if quoted { "\"…" } else { "\"" });
        } else if !quoted {
            text.push(if c.is_control() { ' ' } else { c });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
clusters:
- {name: a, cluster: {server: 'https://a:6443', certificate-authority: ca.crt}}
- {name: b, cluster: {server: 'https://b:6443'}}
- {name: bad, cluster: {server: 'b:6443:x'}}
- {name: none, cluster: {}}
users:
- {name: u, user: {token: sesame}}
- {name: plugin, user: {exec: {apiVersion: client.authentication.k8s.io/v1}}}
contexts:
- {name: a, context: {cluster: a, user: u}}
- {name: b, context: {cluster: b}}
- {name: lost-cluster, context: {cluster: z, user: u}}
- {name: lost-user, context: {cluster: a, user: z}}
- {name: bad-server, context: {cluster: bad}}
- {name: no-server, context: {cluster: none}}
- {name: no-command, context: {cluster: b, user: plugin}}
";

    fn read(text: &str, wanted: Contexts) -> Vec<Draft> {
        let path = Path::new("/k/config.yaml");
        match parse(path, text.as_bytes()) {
            Ok(config) => drafts(path, &config, &wanted, &Plugins::Any),
            Err(error) => vec![whole_file(path, error)],
        }
    }

    fn check(text: &str, wanted: Contexts, expect: &[(&str, &str)]) {
        let found: Vec<_> = read(text, wanted)
            .iter()
            .map(|d| match &d.access {
                Ok(_) => (d.name.to_string(), "ok".to_owned()),
                Err(error) => (d.name.to_string(), error.reason()),
            })
            .collect();
        assert_eq!(found.len(), expect.len(), "{found:#?}");
        for ((name, reason), (expect_name, expect_part)) in found.iter().zip(expect) {
            assert_eq!(name, expect_name);
            assert!(reason.contains(expect_part), "{reason}");
        }
    }

    #[test]
    fn every_context_stands_for_itself() {
        check(
            GOOD,
            Contexts::All,
            &[
                ("a", "ok"),
                ("b", "ok"),
                (
                    "lost-cluster",
                    "names cluster \"z\", which the file does not have; fix: add the cluster",
                ),
                ("lost-user", "names user \"z\""),
                ("bad-server", "server \"b:6443:x\", which is not an https:// URL; fix: set"),
                ("no-server", "cluster \"none\" has no server"),
                ("no-command", "exec section has no command"),
            ],
        );
    }

    #[test]
    fn a_token_file_of_a_folder_s_kubeconfig_lies_in_the_folder() {
        let check = |file: &str, plugins: &Plugins, expect: &str| {
            let text = format!(
                "clusters: [{{name: c, cluster: {{server: 'https://c'}}}}]\n\
                 users: [{{name: u, user: {{tokenFile: {file}}}}}]\n\
                 contexts: [{{name: east, context: {{cluster: c, user: u}}}}]\n"
            );
            let path = Path::new("/k/config.yaml");
            let config = parse(path, text.as_bytes()).unwrap();
            let found = drafts(path, &config, &Contexts::All, plugins);
            let reason = found[0].access.as_ref().err().map(|error| error.reason());
            assert!(reason.clone().unwrap_or_default().starts_with(expect), "{reason:?}");
            assert_eq!(reason.is_some(), !expect.is_empty(), "{reason:?}");
        };
        for inside in ["token", "./token", "tokens/east", "/k/token"] {
            check(inside, &Plugins::Never, "");
        }
        for outside in ["/run/secrets/token", "../token", "/k/../token", "/kk/token"] {
            check(
                outside,
                &Plugins::Never,
                "kubeconfig /k/config.yaml: context \"east\" would send the file /",
            );
            check(outside, &Plugins::default(), "");
        }
    }

    #[test]
    fn programs_run_only_where_they_are_allowed() {
        let text = |user: &str| {
            format!(
                "clusters: [{{name: c, cluster: {{server: 'https://c'}}}}]\n\
                 users: [{{name: u, user: {user}}}]\n\
                 contexts: [{{name: east, context: {{cluster: c, user: u}}}}]\n"
            )
        };
        let exec = text("{exec: {apiVersion: client.authentication.k8s.io/v1, command: aws}}");
        let relative = text("{exec: {command: ./login}}");
        let listed = |names: &[&str]| Plugins::Listed(names.iter().map(|n| (*n).into()).collect());
        for (text, plugins, expect) in [
            (&exec, listed(&["gke-gcloud-auth-plugin", "aws"]), ""),
            (&exec, Plugins::Any, ""),
            (
                &exec,
                Plugins::default(),
                "kubeconfig /k/config.yaml: context \"east\" would run \"aws\" for credentials, which \
                 is not allowed; fix: add \"aws\" to clusters.credentialPlugins",
            ),
            (&exec, listed(&["aw", "awss", "/bin/aws"]), "not allowed; fix: add \"aws\""),
            (&exec, Plugins::Never, "or name the file under clusters.kubeconfigs"),
            (&relative, listed(&["./login"]), "would run \"/k/./login\""),
            (&relative, listed(&["/k/./login"]), ""),
        ] {
            let path = Path::new("/k/config.yaml");
            let config = parse(path, text.as_bytes()).unwrap();
            let [draft] = &drafts(path, &config, &Contexts::All, &plugins)[..] else { panic!() };
            let reason = draft.access.as_ref().err().map_or(String::new(), |error| error.reason());
            assert_eq!(reason.is_empty(), expect.is_empty(), "{reason}");
            assert!(reason.contains(expect), "{reason}");
        }
    }

    #[test]
    fn choosing_contexts() {
        let chosen = |names: &[&str]| Contexts::Chosen(names.iter().map(|n| (*n).into()).collect());
        check(GOOD, chosen(&["b"]), &[("b", "ok")]);
        check(
            GOOD,
            chosen(&["a", "c"]),
            &[
                ("a", "ok"),
                ("c", "has no context \"c\"; fix: add it, or use one of its contexts: a, b"),
            ],
        );
        check(GOOD, Contexts::Current, &[("config", "no current-context")]);
        check("{}", Contexts::All, &[("config", "/k/config.yaml has no contexts")]);
        check("", Contexts::All, &[("config", "has no contexts")]);
    }

    #[test]
    fn broken_text_says_where_and_keeps_secrets() {
        for text in [
            "users:\n- name: u\n  user: {token: sesame\n",
            "users:\n- name: u\n  user: sesame\n",
            "sesame",
            "users:\n\t- sesame",
            "users: [{name: u, name: sesame}]",
        ] {
            let error = parse(Path::new("/k/config.yaml"), text.as_bytes()).unwrap_err();
            let reason = error.reason();
            assert!(reason.starts_with("/k/config.yaml is not a kubeconfig: "), "{reason}");
            assert!(!reason.contains("sesame") && !reason.contains('\n'), "{text:?}: {reason}");
        }
    }

    #[test]
    fn references_are_absolute_and_embedded_data_wins() {
        let drafts = read(GOOD, Contexts::Chosen(vec!["a".into()]));
        assert_eq!(drafts[0].references, [("certificate-authority", "/k/ca.crt".into())]);
        let embedded = GOOD.replace("ca.crt}", "ca.crt, certificate-authority-data: eA==}");
        assert_eq!(read(&embedded, Contexts::Chosen(vec!["a".into()]))[0].references, []);
    }

    #[test]
    fn only_the_changed_context_has_a_new_fingerprint() {
        let print = |text: &str| -> Vec<_> {
            let wanted = Contexts::Chosen(vec!["a".into(), "b".into()]);
            read(text, wanted).into_iter().map(|d| d.access.unwrap().1).collect()
        };
        let (old, new) = (print(GOOD), print(&GOOD.replace("sesame", "other")));
        assert_ne!(old[0], new[0]);
        assert_eq!(old[1], new[1]);
    }
}
