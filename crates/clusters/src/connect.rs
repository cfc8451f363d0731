//! Making a client out of an [`Access`]. Shell: reads certificate files and runs credential plugins.
//!
//! Clients get a connect timeout and no read timeout: a watch may be silent for minutes, and who
//! sends a request knows its deadline. They do not retry by themselves either, for a retried write
//! could outlive the Lease it was permitted under.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kube::client::AuthError;
use kube::config::{ExecConfig, ExecInteractiveMode, KubeConfigOptions, Kubeconfig};
use tokio::sync::Semaphore;

use crate::error::Unusable;
use crate::file::{read_bounded, unreadable};
use crate::http;
use crate::kubeconfig::{self, Contexts, Plugins};
use crate::provider::Access;

/// How long a connection may take, TLS included.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a server may refuse to take more of a request.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a credential plugin may take.
pub const PLUGIN_TIMEOUT: Duration = Duration::from_secs(15);
/// The most credential plugins at once, those that hang included.
pub const MAX_PLUGINS: usize = 32;

/// The longest line of a plugin that a reason repeats, in characters.
const MAX_SAID_CHARS: usize = 300;

/// Makes clients.
#[derive(Clone, Debug)]
pub struct Connector {
    plugins: Arc<Semaphore>,
    role: Role,
}

/// What a cluster is to us, which says how it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Leases are kept there: requests share no connection.
    Home,
    /// Controllers work there: requests share connections where they can.
    Workload,
}

impl Connector {
    /// Makes clients of clusters of this role.
    pub fn new(role: Role) -> Self {
        Self { plugins: Arc::new(Semaphore::new(MAX_PLUGINS)), role }
    }

    /// A client for `access`, which comes from `origin`.
    ///
    /// # Errors
    /// [`Unusable`] when a certificate, key or credential plugin is not as it must be.
    pub async fn client(&self, origin: &str, access: &Access) -> Result<kube::Client, Unusable> {
        let (kubeconfig, context) = match access {
            Access::InCluster => {
                let config = kube::Config::incluster().map_err(Unusable::InCluster)?;
                return build(origin, config, self.role);
            }
            Access::Kubeconfig { kubeconfig, context } => (kubeconfig, context),
        };
        let mut kubeconfig = Kubeconfig::clone(kubeconfig);
        let plugin = plugin(&mut kubeconfig).map(|exec| {
            // Nobody sits at this process's terminal to answer a plugin.
            exec.interactive_mode = Some(ExecInteractiveMode::Never);
            (exec.command.clone().unwrap_or_default(), exec.install_hint.clone())
        });
        let options =
            KubeConfigOptions { context: Some(context.to_string()), ..Default::default() };
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(|e| refused(origin, e))?;
        match plugin {
            None => build(origin, config, self.role),
            Some((command, hint)) if find(&command).is_none() => {
                Err(Unusable::NoPlugin { origin: origin.to_owned(), command, hint })
            }
            Some((command, _)) => self.build_with_plugin(origin, command, config).await,
        }
    }

    /// The plugin runs, and blocks, while the client is being made.
    async fn build_with_plugin(
        &self,
        origin: &str,
        command: String,
        config: kube::Config,
    ) -> Result<kube::Client, Unusable> {
        let timeout =
            || Unusable::PluginTimeout { origin: origin.to_owned(), limit: PLUGIN_TIMEOUT };
        let plugins = Arc::clone(&self.plugins);
        let (owned, role) = (origin.to_owned(), self.role);
        let making = async {
            let place = plugins.acquire_owned().await.expect("the semaphore is never closed");
            let make = move || {
                // Held by the thread itself: a plugin that hangs keeps its place.
                let _place = place;
                build(&owned, config, role).map_err(|error| plugin_failed(error, command))
            };
            match tokio::task::spawn_blocking(make).await {
                Ok(made) => made,
                Err(error) => Err(refused(origin, error)),
            }
        };
        tokio::time::timeout(PLUGIN_TIMEOUT, making).await.map_err(|_| timeout())?
    }
}

/// A client for one context of a kubeconfig file, or for its current one: for the home cluster and
/// for tools. `plugins` are the programs that it may have run.
///
/// # Errors
/// [`Unusable`], which names file, cause and fix.
pub async fn client_from_kubeconfig(
    path: &Path,
    context: Option<&str>,
    plugins: &Plugins,
) -> Result<kube::Client, Arc<Unusable>> {
    let bytes = read_bounded(path).map_err(|source| unreadable(path, source))?;
    let config = kubeconfig::parse(path, &bytes)?;
    let wanted = context.map_or(Contexts::Current, |name| Contexts::Chosen(vec![name.to_owned()]));
    let draft = kubeconfig::drafts(path, &config, &wanted, plugins)
        .into_iter()
        .next()
        .expect("one context asked for gives one draft");
    let access = crate::file::source(&draft).access?;
    Ok(Connector::new(Role::Home).client(&draft.origin, &access).await?)
}

/// A client for the cluster this process runs in.
///
/// # Errors
/// [`Unusable::InCluster`] outside a Pod.
pub async fn client_in_cluster() -> Result<kube::Client, Unusable> {
    Connector::new(Role::Home).client("in-cluster", &Access::InCluster).await
}

fn build(origin: &str, mut config: kube::Config, role: Role) -> Result<kube::Client, Unusable> {
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = None;
    config.write_timeout = Some(WRITE_TIMEOUT);
    config.default_retry = false;
    let made = match role {
        Role::Home => kube::Client::try_from(config),
        Role::Workload => http::client(config),
    };
    made.map_err(|e| refused(origin, e))
}

fn refused(origin: &str, source: impl std::error::Error + Send + Sync + 'static) -> Unusable {
    Unusable::Client { origin: origin.to_owned(), source: Box::new(source) }
}

/// Says in our words what the client library says of a plugin that failed: its own words repeat all
/// that the plugin printed, which may be a credential.
fn plugin_failed(error: Unusable, command: String) -> Unusable {
    let Unusable::Client { origin, source } = error else { return error };
    match source.downcast::<kube::Error>().map(|error| *error) {
        Ok(kube::Error::Auth(AuthError::AuthExecRun { out, .. })) => {
            let said = String::from_utf8_lossy(&out.stderr);
            let said = said.trim().lines().next_back().unwrap_or("it wrote nothing to stderr");
            let said = said.chars().take(MAX_SAID_CHARS).collect();
            Unusable::PluginFailed { origin, command, status: out.status, said }
        }
        Ok(other) => refused(&origin, other),
        Err(source) => Unusable::Client { origin, source },
    }
}

fn plugin(kubeconfig: &mut Kubeconfig) -> Option<&mut ExecConfig> {
    kubeconfig.auth_infos.iter_mut().find_map(|user| user.auth_info.as_mut()?.exec.as_mut())
}

/// Where a command is, looked up as a shell would.
fn find(command: &str) -> Option<PathBuf> {
    if command.contains(std::path::MAIN_SEPARATOR) {
        return Some(PathBuf::from(command)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(command)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    async fn connect(user: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k.yaml");
        let text = format!(
            "clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1'}}}}]\n\
             users: [{{name: u, user: {user}}}]\n\
             contexts: [{{name: east, context: {{cluster: c, user: u}}}}]\n\
             current-context: east\n"
        );
        fs::write(&path, text).unwrap();
        match client_from_kubeconfig(&path, None, &Plugins::Any).await {
            Ok(_) => "ok".to_owned(),
            Err(error) => error.reason().replace(&dir.path().display().to_string(), "DIR"),
        }
    }

    async fn check(user: &str, expect: &str) {
        let found = connect(user).await;
        assert!(found.contains(expect), "{found}");
    }

    #[tokio::test]
    async fn credentials_good_and_bad() {
        check("{token: sesame}", "ok").await;
        check("{tokenFile: missing}", "DIR/missing").await;
        check(
            "{client-certificate-data: aGVsbG8=, client-key: k.pem}",
            "kubeconfig DIR/k.yaml, context \"east\": cannot read its client-key DIR/k.pem: \
             No such file or directory (os error 2); fix: put the file there, or embed it as \
             client-key-data",
        )
        .await;
        check("{client-certificate-data: '?'}", "cannot make a client").await;
    }

    #[tokio::test]
    async fn plugins_good_and_bad() {
        let exec = |rest: &str| {
            format!("{{exec: {{apiVersion: client.authentication.k8s.io/v1, {rest}}}}}")
        };
        check(
            &exec("command: no-such-plugin, installHint: brew install it"),
            "credential plugin \"no-such-plugin\" not found; fix: brew install it",
        )
        .await;
        check(&exec("command: /nowhere/p"), "\"/nowhere/p\" not found; fix: install it").await;
        check(
            &exec("command: sh, args: ['-c', 'echo sesame; echo log in first >&2; exit 3']"),
            "credential plugin \"sh\" failed with exit status: 3: log in first; fix: run it by hand",
        )
        .await;
        check(&exec("command: 'true'"), "cannot make a client").await;
        let answer = r#"{"kind":"ExecCredential","status":{"token":"t"}}"#;
        check(&exec(&format!("command: echo, args: ['{answer}']")), "ok").await;
    }
}
