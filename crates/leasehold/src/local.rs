//! A program of controllers on this machine, started in one line: on embedded clusters that it starts
//! itself (feature `embedded`), or on any clusters of a kubeconfig.
//!
//! For development: everything that the controllers need is installed first, and one replica runs.
//! A program for production builds a [`Config`] and runs a [`Manager`].

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use clusters::{Plugins, Risk, Trust};
use futures::FutureExt;
use futures::future::BoxFuture;
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
#[command(about = "Run these controllers on embedded clusters, or on those of a kubeconfig.")]
pub struct LocalArgs {
    /// Run on clusters of this kubeconfig instead of embedded ones. What the controllers need is
    /// installed there.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig; its current one unless given. Several are several clusters, of
    /// which the first keeps the Leases.
    #[arg(long = "context", value_name = "CONTEXT", requires = "kubeconfig")]
    pub contexts: Vec<String>,
    /// Where the embedded cluster's kubeconfig is written.
    #[arg(long, value_name = "FILE", default_value = ".leasehold/local/kubeconfig")]
    pub write_kubeconfig: PathBuf,
    /// Serve /metrics, probes and /debug here, as 127.0.0.1:8080.
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<std::net::SocketAddr>,
    /// End by itself after this long: 40s, 2m.
    #[arg(long = "for", value_name = "DURATION", value_parser = model::duration)]
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
    /// The embedded clusters, the home cluster first.
    clusters: Vec<String>,
    crds: Vec<CustomResourceDefinition>,
    manifests: Vec<String>,
    controllers: Vec<ControllerSpec>,
}

impl Local {
    /// Reads the process's command line. The process ends if it is invalid or asks for help.
    pub fn from_args() -> Self {
        Self::new(LocalArgs::parse())
    }

    /// With these arguments instead of the process's command line.
    pub fn new(args: LocalArgs) -> Self {
        let clusters = vec!["local".to_owned()];
        let (crds, manifests, controllers) = (Vec::new(), Vec::new(), Vec::new());
        Self { args, clusters, crds, manifests, controllers }
    }

    /// Starts embedded clusters of these names, instead of one. The first also keeps the Leases, and gets
    /// the manifests.
    pub fn clusters(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.clusters = names.into_iter().map(Into::into).collect();
        self
    }

    /// Installs a definition in every cluster before the controllers start.
    pub fn crd(mut self, crd: CustomResourceDefinition) -> Self {
        self.crds.push(crd);
        self
    }

    /// Applies a manifest in the first cluster before the controllers start.
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
    ///
    /// It is in a box so that all of it is compiled here, and not in each program that awaits it.
    pub fn run(self) -> BoxFuture<'static, anyhow::Result<()>> {
        self.until_told().boxed()
    }

    async fn until_told(self) -> anyhow::Result<()> {
        let _telemetry = telemetry::init(&LogConfig::default(), None)?;
        let clusters = match &self.args.kubeconfig {
            Some(path) => Clusters::given(path.clone(), self.args.contexts.clone())?,
            None => Clusters::embedded(&self.args.write_kubeconfig, &self.clusters).await?,
        };
        let config = clusters.config(self.args.admin);
        for (index, context) in clusters.contexts.iter().enumerate() {
            let (trust, clock) = (Trust::own(), Arc::new(SystemClock));
            let path = &clusters.kubeconfig;
            let client = clusters::client_from_kubeconfig(path, Some(context), trust, clock);
            let client =
                client.await.with_context(|| format!("connect to cluster {context}"))?.client;
            install::definitions(&client, &self.crds).await?;
            if index == 0 {
                install::namespace(&client, &config.namespace).await?;
                install::definitions(&client, &home_crds()).await?;
                for manifest in &self.manifests {
                    install::manifest(&client, manifest).await?;
                }
            }
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
        clusters.end().await;
        ended.map(drop).map_err(Into::into)
    }
}

/// The workload clusters. The first is home, too.
struct Clusters {
    kubeconfig: PathBuf,
    /// At least one.
    contexts: Vec<String>,
    #[cfg(feature = "embedded")]
    servers: Vec<apiserver::Server>,
}

impl Clusters {
    fn given(kubeconfig: PathBuf, mut contexts: Vec<String>) -> anyhow::Result<Self> {
        if contexts.is_empty() {
            contexts.push(current_context(&kubeconfig)?);
        }
        Ok(Self {
            kubeconfig,
            contexts,
            #[cfg(feature = "embedded")]
            servers: Vec::new(),
        })
    }

    #[cfg(feature = "embedded")]
    async fn embedded(path: &Path, names: &[String]) -> anyhow::Result<Self> {
        anyhow::ensure!(!names.is_empty(), "no cluster to run on: name one");
        check_place(path)?;
        let mut servers = Vec::new();
        for name in names {
            let builder = apiserver::Server::builder().name(name);
            servers.push(builder.workloads(true).garbage_collector(true).start().await?);
        }
        let all: Vec<_> = servers.iter().collect();
        write_kubeconfig(path, &apiserver::merge_kubeconfigs(&all))
            .with_context(|| format!("write {}", path.display()))?;
        use std::io::Write as _;
        let mut out = std::io::stdout();
        // That nobody reads it is no reason to end.
        for server in &servers {
            let (url, path, name) = (server.url(), path.display(), server.name());
            let _ = writeln!(out, "An embedded cluster is at {url}:");
            let _ = writeln!(out, "  kubectl --kubeconfig {path} --context {name} get all -A");
        }
        let _ = writeln!(out, "Ctrl-C ends what was started here, and everything in it is gone.");
        let (kubeconfig, contexts) = (path.to_owned(), names.to_vec());
        Ok(Self { kubeconfig, contexts, servers })
    }

    #[cfg(not(feature = "embedded"))]
    async fn embedded(_: &Path, _: &[String]) -> anyhow::Result<Self> {
        anyhow::bail!("no cluster to run on: give --kubeconfig, or build with feature `embedded`")
    }

    fn config(&self, admin: Option<std::net::SocketAddr>) -> Config {
        let context = Some(self.contexts[0].clone());
        // The person who runs this chose the kubeconfig.
        let (allow, credential_plugins) = (BTreeSet::from(Risk::ALL), Plugins::Any);
        let path = self.kubeconfig.clone();
        let home = Home::Kubeconfig { path: path.clone(), context, allow: allow.clone() };
        let contexts = Some(self.contexts.clone());
        let kubeconfigs = vec![KubeconfigSource { path, contexts, allow, budget: None }];
        let sources =
            ClusterSources { kubeconfigs, credential_plugins, ..ClusterSources::default() };
        Config { admin: admin.map(Into::into), ..Config::new(home, "local", sources) }
    }

    async fn end(self) {
        #[cfg(feature = "embedded")]
        if !self.servers.is_empty() {
            for server in self.servers {
                server.shutdown().await;
            }
            // Its tokens and certificates are of no use any more.
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
