//! The home cluster, for the commands that read a fleet or change something in it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clock::SystemClock;
use fleet::{Fleet, FleetEvents, Objects, ReadError, assemble};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use model::Clock;

/// How long the home cluster may take to answer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// The namespace that a fleet uses if nobody says otherwise.
pub const DEFAULT_NAMESPACE: &str = "leasehold-system";

/// Which home cluster.
#[derive(Debug, clap::Args)]
pub struct HomeArgs {
    /// Take home cluster and namespace from a manager's configuration file.
    #[arg(long, short, value_name = "FILE", conflicts_with_all = ["kubeconfig", "context"])]
    pub config: Option<PathBuf>,
    /// The home cluster's kubeconfig. Default: the files of $KUBECONFIG, merged, else ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The home cluster's context. Default: the kubeconfig's current one.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The namespace of Leases, Members and ShardMaps. Default: the configuration file's, else
    /// leasehold-system.
    #[arg(long, short, value_name = "NAME")]
    pub namespace: Option<String>,
}

/// A home cluster and the namespace that one installation uses there.
#[derive(Clone)]
pub struct HomeCluster {
    /// A client for it.
    pub client: Client,
    /// The namespace.
    pub namespace: String,
    /// Which cluster it is, as messages name it: by its context, kubeconfig and server.
    pub shown: String,
}

impl HomeArgs {
    /// The flags by which another command finds the same fleet, each after a space.
    pub fn flags(&self) -> String {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let given = [
            ("--config", path(&self.config)),
            ("--kubeconfig", path(&self.kubeconfig)),
            ("--context", self.context.clone()),
            ("--namespace", self.namespace.clone()),
        ];
        let flag =
            |(flag, value): (&str, Option<String>)| Some(format!(" {flag} {}", quoted(&value?)));
        given.into_iter().filter_map(flag).collect()
    }
}

/// A word as a shell reads it back.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

impl HomeCluster {
    /// What tells this fleet from others: the uid of its namespace.
    ///
    /// # Errors
    /// When the home cluster refuses, or does not answer in time.
    pub async fn id(&self) -> anyhow::Result<String> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let what = format!("read namespace {} of {}", self.namespace, self.shown);
        let found = in_time(&what, namespaces.get(&self.namespace)).await?;
        Ok(found.with_context(|| what)?.metadata.uid.unwrap_or_default())
    }

    /// Reads the fleet, and listens for members that seem silent. One of which home knows nothing is empty.
    ///
    /// # Errors
    /// When the home cluster refuses, or does not answer in time.
    pub async fn fleet(&self) -> anyhow::Result<Fleet> {
        let mut fleet = assemble(&self.objects().await?);
        let now = SystemClock.wall();
        self.read(fleet::listen(&self.client, &self.namespace, &mut fleet, now).await)?;
        Ok(fleet)
    }

    /// Reads a fleet that there is.
    ///
    /// # Errors
    /// The same, and when home knows nothing of a fleet.
    pub(crate) async fn known_fleet(&self) -> anyhow::Result<Fleet> {
        let fleet = self.fleet().await?;
        self.knows(&fleet)?;
        Ok(fleet)
    }

    /// # Errors
    /// When home knows nothing of this fleet: with what to do.
    pub(crate) fn knows(&self, fleet: &Fleet) -> anyhow::Result<()> {
        let Self { namespace, shown, .. } = self;
        anyhow::ensure!(
            !fleet.is_absent(),
            "no fleet in namespace {namespace} of {shown}: there are neither Members nor ShardMaps; fix: name its \
             namespace with --namespace, or its home cluster with --context or --kubeconfig; if it was just \
             installed, see why no replica runs: kubectl --namespace {namespace} get pods"
        );
        Ok(())
    }

    /// Reads what the fleet has told.
    pub(crate) async fn events(&self) -> anyhow::Result<FleetEvents> {
        self.read(fleet::events(self.client.clone(), &self.namespace).await)
    }

    /// Reads the objects of the fleet.
    ///
    /// # Errors
    /// When the home cluster refuses, or does not answer in time.
    pub async fn objects(&self) -> anyhow::Result<Objects> {
        self.read(fleet::list(self.client.clone(), &self.namespace).await)
    }

    /// What was read. Each page of it had its bound in time.
    ///
    /// # Errors
    /// When it was not: with what to do.
    pub(crate) fn read<T>(&self, read: Result<T, ReadError>) -> anyhow::Result<T> {
        read.map_err(|error| {
            let (shown, why) = (&self.shown, model::error::chain(&error));
            anyhow::anyhow!("read the fleet from {shown}: {why}; fix: {}", error.fix())
        })
    }
}

/// What comes of something that asks a cluster for one answer.
///
/// # Errors
/// If there is none in time: the cluster accepts requests and does not answer, or something in between swallows them.
pub async fn in_time<T>(what: &str, asking: impl Future<Output = T>) -> anyhow::Result<T> {
    within(TIMEOUT, what, asking).await
}

/// What comes of something that asks a cluster, within `limit`.
///
/// # Errors
/// If that is too short.
pub async fn within<T>(
    limit: Duration,
    what: &str,
    asking: impl Future<Output = T>,
) -> anyhow::Result<T> {
    let (seconds, fix) = (limit.as_secs(), model::error::remedy(None));
    let answer = tokio::time::timeout(limit, asking).await;
    answer.map_err(|_| anyhow::anyhow!("{what}: no answer within {seconds}s; fix: {fix}"))
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use tower::service_fn;

    use super::*;

    /// A home that accepts requests and does not answer.
    fn silent() -> HomeCluster {
        type Answer = Result<Response<Body>, http::Error>;
        let service = service_fn(|_: Request<Body>| std::future::pending::<Answer>());
        let client = Client::new(service, "default");
        HomeCluster { client, namespace: "lh".into(), shown: "https://home".into() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_home_that_does_not_answer_is_named_after_a_while() {
        let home = silent();
        for error in [home.id().await.unwrap_err(), home.fleet().await.unwrap_err()] {
            let text = error.to_string();
            assert!(text.contains("https://home") && text.contains("within 10s"), "{text}");
            assert!(text.contains("; fix: see whether the server runs"), "{text}");
        }
    }

    #[tokio::test]
    async fn a_namespace_without_a_fleet_is_an_error_that_names_both() {
        let text = silent().knows(&Fleet::default()).unwrap_err().to_string();
        assert!(text.starts_with("no fleet in namespace lh of https://home: "), "{text}");
        assert!(text.contains("; fix: name its namespace with --namespace"), "{text}");
    }

    #[test]
    fn other_commands_find_the_same_fleet() {
        let mut args = HomeArgs { config: None, kubeconfig: None, context: None, namespace: None };
        assert_eq!(args.flags(), "");
        args.kubeconfig = Some("my home/it's".into());
        args.context = Some("admin@home".into());
        args.namespace = Some("lh".into());
        let expect = r"
 --kubeconfig 'my home/it'\''s' --context admin@home --namespace lh";
        assert_eq!(args.flags(), expect.trim_start_matches('\n'));
    }
}
