//! Making a client out of an [`Access`].
//!
//! Clients get a connect timeout and no read timeout: a watch may be silent for minutes, and who
//! sends a request knows its deadline. They do not retry by themselves either, for a retried write
//! could outlive the Lease it was permitted under.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use model::Clock;
use tokio::sync::Semaphore;

use crate::credentials::{self, Keeper};
use crate::error::Unusable;
use crate::file::{read_bounded, unreadable};
pub use crate::http::Way;
use crate::http::{self, Protocol};
use crate::kubeconfig::{self, Contexts, Plugins};
use crate::provider::Access;

/// How long a connection may take, TLS included.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a server may refuse to take more of a request.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// The most clusters whose credential is being renewed at once.
pub const MAX_RENEWALS: usize = 32;

/// Makes clients.
#[derive(Clone, Debug)]
pub struct Connector {
    renewals: Arc<Semaphore>,
    role: Role,
    clock: Arc<dyn Clock>,
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
    pub fn new(role: Role, clock: Arc<dyn Clock>) -> Self {
        Self { renewals: Arc::new(Semaphore::new(MAX_RENEWALS)), role, clock }
    }

    /// A client for `access`, which comes from `origin`.
    ///
    /// # Errors
    /// [`Unusable`] when a certificate, key or credential is not as it must be.
    pub async fn client(
        &self,
        origin: &str,
        access: &Access,
    ) -> Result<kube::Client, Arc<Unusable>> {
        Ok(self.way(origin, access).await?.client)
    }

    /// The same, and what is below the client.
    ///
    /// # Errors
    /// As [`Self::client`].
    pub async fn way(&self, origin: &str, access: &Access) -> Result<Way, Arc<Unusable>> {
        let mut config = match access {
            Access::InCluster => kube::Config::incluster().map_err(Unusable::InCluster)?,
            Access::Kubeconfig { kubeconfig, context } => {
                let options =
                    KubeConfigOptions { context: Some(context.to_string()), ..Default::default() };
                let config =
                    kube::Config::from_custom_kubeconfig(Kubeconfig::clone(kubeconfig), &options);
                config.await.map_err(|e| refused(origin, e))?
            }
        };
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = None;
        config.write_timeout = Some(WRITE_TIMEOUT);
        config.default_retry = false;
        let source = credentials::Source::of(origin, &mut config.auth_info)?;
        let (renewals, clock) = (Arc::clone(&self.renewals), Arc::clone(&self.clock));
        let keeper = Keeper::start(origin, source, renewals, clock).await?;
        let protocol = match self.role {
            Role::Home => Protocol::Http1,
            Role::Workload => Protocol::Any,
        };
        Ok(http::client(config, keeper, protocol).map_err(|e| refused(origin, e))?)
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
    clock: Arc<dyn Clock>,
) -> Result<kube::Client, Arc<Unusable>> {
    let bytes = read_bounded(path).map_err(|source| unreadable(path, source))?;
    let config = kubeconfig::parse(path, &bytes)?;
    let wanted = context.map_or(Contexts::Current, |name| Contexts::Chosen(vec![name.to_owned()]));
    let draft = kubeconfig::drafts(path, &config, &wanted, plugins)
        .into_iter()
        .next()
        .expect("one context asked for gives one draft");
    let access = crate::file::source(&draft).access?;
    Connector::new(Role::Home, clock).client(&draft.origin, &access).await
}

/// A client for the cluster this process runs in.
///
/// # Errors
/// [`Unusable::InCluster`] outside a Pod.
pub async fn client_in_cluster(clock: Arc<dyn Clock>) -> Result<kube::Client, Arc<Unusable>> {
    Connector::new(Role::Home, clock).client("in-cluster", &Access::InCluster).await
}

fn refused(origin: &str, source: impl std::error::Error + Send + Sync + 'static) -> Unusable {
    Unusable::Client { origin: origin.to_owned(), source: Box::new(source) }
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
        let clock = Arc::new(model::ManualClock::new(jiff::Timestamp::UNIX_EPOCH));
        match client_from_kubeconfig(&path, None, &Plugins::Any, clock).await {
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
        check(
            &exec("command: 'true'"),
            "credential plugin \"true\" gave no credential: it is not an ExecCredential in JSON",
        )
        .await;
        let answer = r#"{"kind":"ExecCredential","status":{"token":"t"}}"#;
        check(&exec(&format!("command: echo, args: ['{answer}']")), "ok").await;
    }
}
