//! Why a kubeconfig cannot be used, and what to do about it.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use crate::risk::Risk;

/// A kubeconfig, or a context of one, that gives no client. `origin` is where the cluster comes from.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant's text explains its fields")]
pub enum Unusable {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The file is too large for a kubeconfig.
    #[error("{} is larger than {limit_bytes} bytes", path.display())]
    TooLarge { path: PathBuf, limit_bytes: u64 },
    /// The file is no YAML or no kubeconfig. The text contains no values of the file.
    #[error("{} is not a kubeconfig: {problem}", path.display())]
    Parse { path: PathBuf, problem: String },
    /// The file has no contexts.
    #[error("{} has no contexts", path.display())]
    NoContexts { path: PathBuf },
    /// The file has more contexts than the limit.
    #[error("{} has more than {limit} contexts", path.display())]
    TooManyContexts { path: PathBuf, limit: usize },
    /// The contexts share so much that the file would take many times its size, or more than others have left of that.
    #[error(
        "{origin}: the contexts there take more than {limit_bytes} bytes, each with all that it needs"
    )]
    TooMuch { origin: String, limit_bytes: usize },
    /// No context was chosen, and the file names no current one of those that are `known`.
    #[error("{} has no current-context and none was chosen", path.display())]
    NoCurrentContext { path: PathBuf, known: Vec<String> },
    /// The chosen context is none of those that are `known`.
    #[error("{} has no context {context:?}", path.display())]
    NoContext { path: PathBuf, context: String, known: Vec<String> },
    /// The context names a `cluster` or `user` that does not exist.
    #[error("{}: context {context:?} names {what} {name:?}, which the file does not have", path.display())]
    Dangling { path: PathBuf, context: String, what: &'static str, name: String },
    /// The cluster entry has no server, or one that is not a URL.
    #[error("{}: context {context:?}: cluster {cluster:?} has {problem}", path.display())]
    Server { path: PathBuf, context: String, cluster: String, problem: String },
    /// A file that the kubeconfig refers to cannot be read.
    #[error("{origin}: cannot read its {field} {}", file.display())]
    Reference { origin: String, field: &'static str, file: PathBuf, source: io::Error },
    /// A context would run a credential program that is not allowed. If `ever`, the configuration could allow it.
    #[error(
        "kubeconfig {}: context {context:?} would run {command:?} for credentials, which is not allowed",
        path.display()
    )]
    PluginNotAllowed { path: PathBuf, context: String, command: String, ever: bool },
    /// A context names a file that its author may not be able to read.
    #[error("{origin}: its {field} {} lies outside of the kubeconfig's folder", file.display())]
    Outside { origin: String, field: &'static str, file: PathBuf },
    /// A context asks for something that the configuration does not allow its source.
    #[error("kubeconfig {}: context {context:?} {what}, which is not allowed", path.display())]
    Refused { path: PathBuf, context: String, what: String, risk: Risk },
    /// The credential plugin is not on this machine. `hint` is the `installHint` of the kubeconfig.
    #[error("{origin}: credential plugin {command:?} not found")]
    NoPlugin { origin: String, command: String, hint: Option<String> },
    /// The credential plugin failed. The last line it wrote to standard error is what it `said`.
    #[error("{origin}: credential plugin {command:?} failed with {status}: {said}")]
    PluginFailed { origin: String, command: String, status: ExitStatus, said: String },
    /// The credential plugin did not end in time.
    #[error("{origin}: its credential plugin gave no answer within {}s", limit.as_secs())]
    PluginTimeout { origin: String, limit: Duration },
    /// The credential plugin gave another answer than a credential. The text does not repeat what it printed.
    #[error("{origin}: credential plugin {command:?} gave no credential: {problem}")]
    PluginAnswer { origin: String, command: String, problem: String },
    /// The `auth-provider` is not supported.
    #[error("{origin}: auth-provider {name:?} is not supported")]
    Provider { origin: String, name: String },
    /// The OpenID Connect issuer gave no token. The text has no secret.
    #[error("{origin}: OpenID Connect issuer {issuer:?} gave no token: {problem}")]
    Issuer { origin: String, issuer: String, problem: String },
    /// The client library refused the settings.
    #[error("{origin}: cannot make a client")]
    Client { origin: String, source: Box<dyn std::error::Error + Send + Sync> },
    /// The process does not run in a Pod, or the Pod has no ServiceAccount.
    #[error("in-cluster: cannot read the Pod's ServiceAccount")]
    InCluster(#[source] kube::config::InClusterError),
}

impl Unusable {
    /// What the operator can do.
    pub fn fix(&self) -> String {
        match self {
            Self::Read { .. } => "create the file, or let this process read it".into(),
            Self::TooLarge { .. } => {
                "keep only kubeconfigs here, and large certificates in files of their own".into()
            }
            Self::Parse { .. } => {
                "correct the file; `kubectl config view` shows how it reads".into()
            }
            Self::NoContexts { .. } => "add a context with `kubectl config set-context`".into(),
            Self::TooManyContexts { .. } => "split the file".into(),
            Self::TooMuch { .. } => {
                "make smaller what many contexts share, such as a file of certificates".into()
            }
            Self::NoCurrentContext { known, .. } => {
                format!("choose one of its contexts: {}", list(known))
            }
            Self::NoContext { known, .. } if known.is_empty() => "add the context".into(),
            Self::NoContext { known, .. } => {
                format!("add it, or use one of its contexts: {}", list(known))
            }
            Self::Dangling { what, .. } => format!("add the {what}, or correct the context"),
            Self::Server { .. } => "set the cluster's server, as in https://host:6443".into(),
            Self::Reference { field, .. } => {
                format!("put the file there, or embed it as {field}-data")
            }
            Self::PluginNotAllowed { command, ever: true, .. } => format!(
                "list {{command: {command:?}, args: [...], env: {{...}}}} with all its arguments and \
                 variables under clusters.credentialPlugins in the configuration, or use a token, a \
                 tokenFile or a client certificate"
            ),
            Self::PluginNotAllowed { ever: false, .. } => {
                "use a token, a tokenFile or a client certificate, or name the file under \
                 clusters.kubeconfigs: people who may write into a folder must not run programs here"
                    .into()
            }
            Self::Outside { .. } => {
                "put the file beside the kubeconfig, or name the kubeconfig under \
                 clusters.kubeconfigs: people who may write into a folder must not be able to send \
                 this process's own files anywhere"
                    .into()
            }
            Self::Refused { risk, .. } => format!(
                "change the kubeconfig, or, if its author may do that, write allow: [{risk}] where \
                 the configuration names the kubeconfig, its folder or its Secrets"
            ),
            Self::NoPlugin { hint: Some(hint), .. } => hint.trim().to_owned(),
            Self::NoPlugin { .. } => "install it on the PATH of this process".into(),
            Self::PluginFailed { .. } => "run it by hand and do what it asks for".into(),
            Self::PluginTimeout { .. } => "run it by hand; it must not wait for a person".into(),
            Self::PluginAnswer { .. } => {
                "run it by hand; it must print an ExecCredential, as `kubectl` expects".into()
            }
            Self::Provider { .. } => {
                "use an exec section, as `kubectl` of 1.26 and later demands: for \"gcp\" the program \
                 gke-gcloud-auth-plugin, for \"azure\" kubelogin"
                    .into()
            }
            Self::Issuer { .. } => {
                "log in again, and put the new id-token and refresh-token into the kubeconfig".into()
            }
            Self::Client { .. } => "correct the credentials in the kubeconfig".into(),
            Self::InCluster(_) => {
                "run in a Pod with a mounted ServiceAccount token, or give a kubeconfig".into()
            }
        }
    }

    /// Cause and fix in one line, for logs and status.
    pub fn reason(&self) -> String {
        let text = format!("{}; fix: {}", model::error::chain(self), self.fix());
        // Names of contexts, clusters and files may be anything.
        model::error::foreign_to(&text, MAX_REASON_CHARS)
    }
}

/// The most characters of a reason.
const MAX_REASON_CHARS: usize = 2000;
/// The most names of a list in a message.
const SHOWN_NAMES: usize = 8;

fn list(names: &[String]) -> String {
    let shown = names.iter().take(SHOWN_NAMES);
    let mut text = shown.map(|name| model::error::foreign(name)).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN_NAMES {
        text.push_str(&format!(" and {} more", names.len() - SHOWN_NAMES));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_names_file_cause_and_fix_once() {
        let error = Unusable::Reference {
            origin: "kubeconfig east.yaml, context \"east\"".into(),
            field: "certificate-authority",
            file: "/etc/ca.crt".into(),
            source: io::Error::from(io::ErrorKind::NotFound),
        };
        assert_eq!(
            error.reason(),
            "kubeconfig east.yaml, context \"east\": cannot read its certificate-authority /etc/ca.crt: \
             entity not found; fix: put the file there, or embed it as certificate-authority-data"
        );
    }

    #[test]
    fn a_reason_is_one_line_and_short_whatever_the_names() {
        let long = || format!("{}\n{}", "x".repeat(100), "y".repeat(100_000));
        for error in [
            Unusable::NoCurrentContext { path: "k".into(), known: vec![long(); 8] },
            Unusable::NoContext { path: "k".into(), context: long(), known: vec![long()] },
            Unusable::Dangling { path: "k".into(), context: long(), what: "cluster", name: long() },
        ] {
            let reason = error.reason();
            assert!(reason.len() < 10_000 && !reason.contains('\n'), "{} bytes", reason.len());
        }
    }

    #[test]
    fn long_lists_are_cut() {
        let known: Vec<_> = (0..10).map(|n| format!("c{n}")).collect();
        let error = Unusable::NoCurrentContext { path: "k".into(), known };
        assert!(error.fix().ends_with("c6, c7 and 2 more"), "{}", error.fix());
    }
}
