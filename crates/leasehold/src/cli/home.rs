//! The home cluster, for the commands that read a fleet or change something in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clusters::{OwnKubeconfig, Plugins};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};

use crate::assemble::home_client;
use crate::builtin;
use crate::clock::SystemClock;
use crate::config::Config;
use fleet::{self, Fleet, FleetEvent, Objects, ReadError, assemble};

/// How long the home cluster may take to answer.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
pub(super) const DEFAULT_NAMESPACE: &str = "leasehold-system";
const INSTALL: &str =
    "are the definitions installed? `leasehold crds --for home | kubectl apply -f -`";

/// Which home cluster.
#[derive(Debug, clap::Args)]
pub(super) struct HomeArgs {
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
pub(super) struct HomeCluster {
    pub(super) client: Client,
    pub(super) namespace: String,
}

impl HomeCluster {
    /// What tells this fleet from others: the uid of its namespace.
    pub(super) async fn id(&self) -> anyhow::Result<String> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let found = namespaces.get(&self.namespace).await;
        let found =
            found.with_context(|| format!("read namespace {} of the home cluster", self.namespace));
        Ok(found?.metadata.uid.unwrap_or_default())
    }

    /// Makes a client for the home cluster that the arguments name.
    pub(super) async fn named_by(args: &HomeArgs) -> anyhow::Result<Self> {
        let (client, named) = match &args.config {
            Some(path) => {
                let config = Config::load(path, &builtin::names())?;
                let client = home_client(&config, Plugins::Any, Arc::new(SystemClock)).await;
                (client, Some(config.namespace))
            }
            None => {
                let own = own_kubeconfig(args.kubeconfig.as_deref())?;
                (own.client(args.context.as_deref(), Arc::new(SystemClock)).await, None)
            }
        };
        let client = client.map_err(|unusable| anyhow::anyhow!("{}", unusable.reason()))?;
        let namespace = args.namespace.clone().or(named);
        Ok(Self { client, namespace: namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned()) })
    }

    /// Reads the fleet.
    pub(super) async fn fleet(&self) -> anyhow::Result<Fleet> {
        Ok(assemble(&self.objects().await?))
    }

    /// Reads what the fleet has told.
    pub(super) async fn events(&self) -> anyhow::Result<Vec<FleetEvent>> {
        in_time(fleet::events(self.client.clone(), &self.namespace)).await
    }

    /// Reads the objects of the fleet.
    pub(super) async fn objects(&self) -> anyhow::Result<Objects> {
        in_time(fleet::list(self.client.clone(), &self.namespace)).await
    }
}

/// What was read, if home answers in time.
async fn in_time<T>(reading: impl Future<Output = Result<T, ReadError>>) -> anyhow::Result<T> {
    match tokio::time::timeout(TIMEOUT, reading).await {
        Ok(Ok(read)) => Ok(read),
        Ok(Err(error)) => {
            let missing = model::error::chain(&error).contains("404");
            let context = if missing { INSTALL } else { "read the fleet" };
            Err(anyhow::Error::new(error).context(context))
        }
        Err(_) => anyhow::bail!(silent()),
    }
}

/// The error for a home cluster that does not answer in time.
pub(super) fn silent() -> String {
    format!("the home cluster did not answer within {}s", TIMEOUT.as_secs())
}

/// The kubeconfig of whoever runs the command: that of `--kubeconfig`, of `$KUBECONFIG`, or of the home folder.
pub(super) fn own_kubeconfig(given: Option<&Path>) -> anyhow::Result<OwnKubeconfig> {
    if let Some(path) = given {
        return Ok(OwnKubeconfig::file(path));
    }
    let (variable, folder) = (std::env::var_os("KUBECONFIG"), std::env::home_dir());
    OwnKubeconfig::named(variable.as_deref(), folder.as_deref())
        .context("no kubeconfig: give --kubeconfig, or set KUBECONFIG")
}
