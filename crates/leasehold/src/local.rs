//! A program of controllers on this machine, started in one line: on an embedded cluster that it
//! brings along (feature `embedded`), or on any cluster of a kubeconfig.
//!
//! For development: everything that the controllers need is installed first, and one replica runs.
//! A program for production makes a [`Config`] and runs a [`Manager`].

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use clusters::{Plugins, install};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use sdk::ControllerSpec;
use telemetry::LogConfig;
use tokio_util::sync::CancellationToken;

use crate::clock::SystemClock;
use crate::config::{ClusterSources, Config, Home, KubeconfigSource};
use crate::crds::home_crds;
#[cfg(feature = "embedded")]
use crate::kubeconfig_file::{check_place, write_kubeconfig};
use crate::manager::Manager;
use crate::signals::stop_on_signal;

/// The command line of a program with [`Local`].
#[derive(Clone, Debug, Default, Parser)]
#[command(about = "Run these controllers on an embedded cluster, or on one of a kubeconfig.")]
pub struct LocalArgs {
    /// Run on a cluster of this kubeconfig instead of an embedded one. What the controllers need is
    /// installed there.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The kubeconfig's context; its current one unless given.
    #[arg(long, requires = "kubeconfig")]
    pub context: Option<String>,
    /// Where the embedded cluster's kubeconfig is written.
    #[arg(long, value_name = "FILE", default_value = ".leasehold/local/kubeconfig")]
    pub write_kubeconfig: PathBuf,
    /// Serve /metrics, probes and /debug here, as 127.0.0.1:8080.
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<std::net::SocketAddr>,
    /// End by itself after this long: 40s, 2m.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub limit: Option<Duration>,
}

/// Controllers and what they need in a cluster.
///
/// ```no_run
/// # use leasehold::{Action, Context, Controller, ObjectKey, ReconcileError, Reconciler};
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # struct Hello;
/// # impl Reconciler for Hello {
/// #     type Kind = ConfigMap;
/// #     async fn reconcile(&self, _: &Context, _: &ObjectKey) -> Result<Action, ReconcileError> {
/// #         Ok(Action::Done)
/// #     }
/// # }
/// # async fn start() -> anyhow::Result<()> {
/// let hello = Controller::for_kind::<ConfigMap>("hello").reconciler(Hello);
/// leasehold::Local::from_args().controller(hello).run().await
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing runs until `run`"]
pub struct Local {
    args: LocalArgs,
    crds: Vec<CustomResourceDefinition>,
    manifests: Vec<String>,
    controllers: Vec<ControllerSpec>,
}

impl Local {
    /// Reads the process's command line. The process ends if it is wrong or asks for help.
    pub fn from_args() -> Self {
        Self::new(LocalArgs::parse())
    }

    /// With these arguments instead of the process's command line.
    pub fn new(args: LocalArgs) -> Self {
        Self { args, crds: Vec::new(), manifests: Vec::new(), controllers: Vec::new() }
    }

    /// Installs a definition before the controllers start.
    pub fn crd(mut self, crd: CustomResourceDefinition) -> Self {
        self.crds.push(crd);
        self
    }

    /// Applies a manifest before the controllers start.
    pub fn manifest(mut self, text: impl Into<String>) -> Self {
        self.manifests.push(text.into());
        self
    }

    /// Runs a controller.
    pub fn controller(mut self, spec: ControllerSpec) -> Self {
        self.controllers.push(spec);
        self
    }

    /// Runs until SIGTERM, SIGINT or the time is up, then hands over. Installs the process's logging.
    ///
    /// # Errors
    /// If the cluster cannot be started or reached, something cannot be installed, or the manager
    /// fails.
    pub async fn run(self) -> anyhow::Result<()> {
        let _telemetry = telemetry::init(&LogConfig::default(), None)?;
        let cluster = match &self.args.kubeconfig {
            Some(path) => Cluster::given(path.clone(), self.args.context.clone()),
            None => Cluster::embedded(&self.args.write_kubeconfig).await?,
        };
        let config = cluster.config(self.args.admin)?;
        let Cluster { kubeconfig, context, .. } = &cluster;
        let (plugins, clock) = (Plugins::Any, Arc::new(SystemClock));
        let client =
            clusters::client_from_kubeconfig(kubeconfig, context.as_deref(), &plugins, clock);
        let client = client.await.context("connect to the cluster")?;
        install::namespace(&client, &config.namespace).await?;
        install::definitions(&client, &home_crds()).await?;
        install::definitions(&client, &self.crds).await?;
        for manifest in &self.manifests {
            install::manifest(&client, manifest).await?;
        }
        let mut manager = Manager::new(config);
        for spec in self.controllers {
            manager = manager.controller(spec);
        }
        let shutdown = CancellationToken::new();
        stop_on_signal(shutdown.clone())?;
        if let Some(limit) = self.args.limit {
            let shutdown = shutdown.clone();
            tokio::spawn(async move {
                tokio::time::sleep(limit).await;
                shutdown.cancel();
            });
        }
        let ended = manager.run(shutdown).await;
        cluster.end().await;
        ended.map(drop).map_err(Into::into)
    }
}

/// The cluster, which is both home and workload cluster.
struct Cluster {
    kubeconfig: PathBuf,
    context: Option<String>,
    #[cfg(feature = "embedded")]
    server: Option<apiserver::Server>,
}

impl Cluster {
    fn given(kubeconfig: PathBuf, context: Option<String>) -> Self {
        Self {
            kubeconfig,
            context,
            #[cfg(feature = "embedded")]
            server: None,
        }
    }

    #[cfg(feature = "embedded")]
    async fn embedded(path: &Path) -> anyhow::Result<Self> {
        check_place(path)?;
        let builder =
            apiserver::Server::builder().name("local").workloads(true).garbage_collector(true);
        let server = builder.start().await?;
        write_kubeconfig(path, &server.kubeconfig())
            .with_context(|| format!("write {}", path.display()))?;
        println!("An embedded cluster is at {}:", server.url());
        println!("  kubectl --kubeconfig {} get all -A", path.display());
        println!("Ctrl-C ends it, and everything in it is gone.");
        Ok(Self { kubeconfig: path.to_owned(), context: None, server: Some(server) })
    }

    #[cfg(not(feature = "embedded"))]
    async fn embedded(_: &Path) -> anyhow::Result<Self> {
        anyhow::bail!("no cluster to run on: give --kubeconfig, or build with feature `embedded`")
    }

    fn config(&self, admin: Option<std::net::SocketAddr>) -> anyhow::Result<Config> {
        let context = match &self.context {
            Some(context) => context.clone(),
            None => current_context(&self.kubeconfig)?,
        };
        let home =
            Home::Kubeconfig { path: self.kubeconfig.clone(), context: self.context.clone() };
        let source =
            KubeconfigSource { path: self.kubeconfig.clone(), contexts: Some(vec![context]) };
        // The person who runs this chose the kubeconfig.
        let credential_plugins = Plugins::Any;
        let kubeconfigs = vec![source];
        let sources =
            ClusterSources { kubeconfigs, credential_plugins, ..ClusterSources::default() };
        Ok(Config { admin, ..Config::new(home, "local", sources) })
    }

    async fn end(self) {
        #[cfg(feature = "embedded")]
        if let Some(server) = self.server {
            server.shutdown().await;
            // Its token and certificates are worth nothing any more.
            let _ = std::fs::remove_file(&self.kubeconfig);
        }
    }
}

fn current_context(path: &Path) -> anyhow::Result<String> {
    let kubeconfig = kube::config::Kubeconfig::read_from(path)
        .with_context(|| format!("read {}", path.display()))?;
    kubeconfig.current_context.with_context(|| {
        format!("{} names no current context; give one with --context", path.display())
    })
}

/// Reads `40s`, `2m`, `1m30s`.
fn duration(text: &str) -> Result<Duration, String> {
    let parsed: jiff::SignedDuration =
        text.parse().map_err(|_| "write it like 40s, 2m or 1m30s".to_owned())?;
    Duration::try_from(parsed).map_err(|_| "it must not be negative".to_owned())
}
