//! The home cluster, for the commands that read a fleet or change something in it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use fleet::{Fleet, FleetEvent, Objects, ReadError, assemble};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};

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

impl HomeCluster {
    /// What tells this fleet from others: the uid of its namespace.
    ///
    /// # Errors
    /// When the home cluster refuses, or does not answer in time.
    pub async fn id(&self) -> anyhow::Result<String> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let found = namespaces.get(&self.namespace).await;
        let found =
            found.with_context(|| format!("read namespace {} of the home cluster", self.namespace));
        Ok(found?.metadata.uid.unwrap_or_default())
    }

    /// Reads the fleet.
    ///
    /// # Errors
    /// When the home cluster refuses, or does not answer in time.
    pub async fn fleet(&self) -> anyhow::Result<Fleet> {
        Ok(assemble(&self.objects().await?))
    }

    /// Reads what the fleet has told.
    pub(crate) async fn events(&self) -> anyhow::Result<Vec<FleetEvent>> {
        self.in_time(fleet::events(self.client.clone(), &self.namespace)).await
    }

    /// Reads the objects of the fleet.
    ///
    /// # Errors
    /// When the home cluster refuses, or does not answer in time.
    pub async fn objects(&self) -> anyhow::Result<Objects> {
        self.in_time(fleet::list(self.client.clone(), &self.namespace)).await
    }

    /// What was read, if home answers in time.
    async fn in_time<T>(
        &self,
        reading: impl Future<Output = Result<T, ReadError>>,
    ) -> anyhow::Result<T> {
        let shown = &self.shown;
        match tokio::time::timeout(TIMEOUT, reading).await {
            Ok(Ok(read)) => Ok(read),
            Ok(Err(error)) => {
                let why = model::error::chain(&error);
                anyhow::bail!("read the fleet from {shown}: {why}; fix: {}", error.fix())
            }
            Err(_) => anyhow::bail!(
                "read the fleet from {shown}: {}; fix: {}",
                silent(),
                model::error::remedy(None)
            ),
        }
    }
}

/// The error for a home cluster that does not answer in time.
pub(crate) fn silent() -> String {
    format!("the home cluster did not answer within {}s", TIMEOUT.as_secs())
}
