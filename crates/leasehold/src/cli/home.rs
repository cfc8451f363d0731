//! The home cluster, for the commands that read a fleet or change something in it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clusters::{Plugins, Risk, Trust};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};

use crate::builtin;
use crate::clock::SystemClock;
use crate::config::{Config, Home};
use fleet::{self, Fleet, Objects, assemble};

/// How long the home cluster may take to answer.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_NAMESPACE: &str = "leasehold-system";
const INSTALL: &str =
    "are the definitions installed? `leasehold crds --for home | kubectl apply -f -`";

/// Which home cluster.
#[derive(Debug, clap::Args)]
pub(super) struct HomeArgs {
    /// Take home cluster and namespace from a manager's configuration file.
    #[arg(long, short, value_name = "FILE", conflicts_with_all = ["kubeconfig", "context"])]
    pub config: Option<PathBuf>,
    /// The home cluster's kubeconfig. Default: $KUBECONFIG, else ~/.kube/config.
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
        let (home, namespace) = target(args)?;
        let client = connect(&home).await?;
        let namespace = args.namespace.clone().or(namespace);
        Ok(Self { client, namespace: namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned()) })
    }

    /// Reads the fleet.
    pub(super) async fn fleet(&self) -> anyhow::Result<Fleet> {
        Ok(assemble(&self.objects().await?))
    }

    /// Reads the objects of the fleet.
    pub(super) async fn objects(&self) -> anyhow::Result<Objects> {
        let listed = fleet::list(self.client.clone(), &self.namespace);
        match tokio::time::timeout(TIMEOUT, listed).await {
            Ok(Ok(objects)) => Ok(objects),
            Ok(Err(error)) => {
                let missing = model::error::chain(&error).contains("404");
                let context = if missing { INSTALL } else { "read the fleet" };
                Err(anyhow::Error::new(error).context(context))
            }
            Err(_) => anyhow::bail!(silent()),
        }
    }
}

/// The error for a home cluster that does not answer in time.
pub(super) fn silent() -> String {
    format!("the home cluster did not answer within {}s", TIMEOUT.as_secs())
}

/// The home cluster to reach, and the namespace if a configuration file names it.
fn target(args: &HomeArgs) -> anyhow::Result<(Home, Option<String>)> {
    if let Some(path) = &args.config {
        let config = Config::load(path, &builtin::names())?;
        return Ok((config.home, Some(config.namespace)));
    }
    let path = match &args.kubeconfig {
        Some(path) => path.clone(),
        None => default_kubeconfig().context("no kubeconfig: give --config or --kubeconfig")?,
    };
    let allow = Risk::ALL.into();
    Ok((Home::Kubeconfig { path, context: args.context.clone(), allow }, None))
}

pub(super) fn default_kubeconfig() -> Option<PathBuf> {
    let named = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty());
    match named {
        Some(value) => std::env::split_paths(&value).next(),
        None => Some(std::env::home_dir()?.join(".kube/config")),
    }
}

async fn connect(home: &Home) -> anyhow::Result<Client> {
    let clock = Arc::new(SystemClock);
    let client = match home {
        Home::InCluster => clusters::client_in_cluster(clock).await,
        Home::Kubeconfig { path, context, allow } => {
            let (plugins, allowed) = (Plugins::Any, allow.clone());
            let trust = Trust { plugins, allowed, contained: false };
            clusters::client_from_kubeconfig(path, context.as_deref(), trust, clock).await
        }
    };
    client.map_err(|unusable| anyhow::anyhow!("{}", unusable.reason()))
}
