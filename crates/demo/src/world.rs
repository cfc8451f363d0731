//! The clusters of the demo: embedded API servers, their kubeconfigs, and what is installed before the
//! first replica starts. Shell.

use std::collections::BTreeMap;
use std::time::Duration;

use apiserver::WindowLimits;
use futures::future::{try_join, try_join_all};
use futures::{Stream, StreamExt, stream};
use install::InstallError;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, DynamicObject};
use kube::{Client, ResourceExt};
use model::ClusterName;

use crate::generate::{Change, Planned, namespaces, resource};
use crate::layout::{self, Layout, write_private};
use crate::ports::Ports;
use crate::standin;

/// The namespace of Leases, Members and ShardMaps: the replicas' default.
pub(crate) const HOME_NAMESPACE: &str = "leasehold-system";

/// The home cluster's name and context.
pub(crate) const HOME: &str = "home";

/// The first workload clusters; further ones are numbered.
const NAMES: [&str; 8] = ["east", "west", "north", "south", "central", "coast", "island", "valley"];

/// How many past events a server keeps for watches, for each kind. A watch that is further behind lists
/// again. All servers share one process, so the limit is low.
const WINDOW: WindowLimits = WindowLimits { events: 2_000, bytes: 8 << 20 };

/// How often a request of the demo itself is tried.
const ATTEMPTS: u32 = 4;
const RETRY: Duration = Duration::from_millis(250);

/// Objects that are applied at once.
const APPLY_AT_ONCE: usize = 16;

/// Why the clusters could not be started or prepared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorldError {
    /// An API server does not start.
    #[error("start the API server of cluster {cluster}")]
    Server {
        /// The cluster.
        cluster: String,
        /// What the server says.
        #[source]
        source: apiserver::Error,
    },
    /// A kubeconfig cannot be written.
    #[error("write kubeconfigs")]
    Files(#[source] layout::LayoutError),
    /// A kubeconfig of ours cannot be used.
    #[error("connect to cluster {cluster} with its own kubeconfig")]
    Connect {
        /// The cluster.
        cluster: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A request is refused.
    #[error("{what} in cluster {cluster}")]
    Request {
        /// The request.
        what: String,
        /// The cluster.
        cluster: String,
        /// What the server says.
        #[source]
        source: Box<kube::Error>,
    },
    /// A definition is refused or not served.
    #[error("prepare cluster {cluster}")]
    Install {
        /// The cluster.
        cluster: String,
        /// Why.
        #[source]
        source: InstallError,
    },
}

/// Every cluster, running.
#[derive(Debug)]
pub(crate) struct World {
    home: apiserver::Server,
    workload: Vec<apiserver::Server>,
}

/// Ordinary clients, made from the kubeconfigs that users get.
#[derive(Clone)]
pub(crate) struct Clients {
    /// The home cluster.
    pub home: Client,
    /// The workload clusters.
    pub workload: BTreeMap<ClusterName, Client>,
}

/// The names of the workload clusters.
pub(crate) fn names(count: u16) -> Vec<ClusterName> {
    let numbered = (NAMES.len() + 1..).map(|number| format!("cluster-{number}"));
    NAMES
        .iter()
        .map(|name| (*name).to_owned())
        .chain(numbered)
        .take(usize::from(count))
        .map(|name| name.parse().expect("the names of the demo's clusters are names"))
        .collect()
}

impl World {
    /// Starts an API server for the home cluster and for each workload cluster.
    ///
    /// # Errors
    /// A server does not start.
    pub(crate) async fn start(names: &[ClusterName], ports: &Ports) -> Result<Self, WorldError> {
        let home = server(HOME, ports.home, false);
        let workload = names
            .iter()
            .zip(&ports.clusters)
            .map(|(name, address)| server(name.as_str(), *address, true));
        let (home, workload) = try_join(home, try_join_all(workload)).await?;
        Ok(Self { home, workload })
    }

    /// Writes the kubeconfigs: all clusters in one, and each alone.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn write_kubeconfigs(
        &self,
        names: &[ClusterName],
        layout: &Layout,
    ) -> Result<(), WorldError> {
        let all: Vec<_> = std::iter::once(&self.home).chain(&self.workload).collect();
        let merged = apiserver::merge_kubeconfigs(&all);
        write_private(&layout.kubeconfig(), &merged).map_err(WorldError::Files)?;
        write_private(&layout.home(), &self.home.kubeconfig()).map_err(WorldError::Files)?;
        for (name, server) in names.iter().zip(&self.workload) {
            let path = layout.kubeconfigs().join(format!("{name}.yaml"));
            write_private(&path, &server.kubeconfig()).map_err(WorldError::Files)?;
        }
        Ok(())
    }

    /// Clients over TLS, made from those kubeconfigs.
    ///
    /// # Errors
    /// A kubeconfig of ours cannot be used.
    pub(crate) async fn clients(&self, names: &[ClusterName]) -> Result<Clients, WorldError> {
        let home = connect(HOME, &self.home.kubeconfig()).await?;
        let mut workload = BTreeMap::new();
        for (name, server) in names.iter().zip(&self.workload) {
            workload.insert(name.clone(), connect(name.as_str(), &server.kubeconfig()).await?);
        }
        Ok(Clients { home, workload })
    }

    /// Stops every server and releases the ports.
    pub(crate) async fn stop(self) {
        let servers = self.workload.into_iter().chain([self.home]);
        futures::future::join_all(servers.map(apiserver::Server::shutdown)).await;
    }
}

impl Clients {
    /// Installs the CRDs and creates the namespaces, in all clusters at once.
    ///
    /// # Errors
    /// A cluster refuses, or does not serve a CRD in time.
    pub(crate) async fn prepare(&self) -> Result<(), WorldError> {
        let home = async {
            install(HOME, &self.home, sharding::api::crds()).await?;
            let namespace = DynamicObject::new(HOME_NAMESPACE, &resource("", "v1", "Namespace"));
            create(HOME, &self.home, namespace).await
        };
        let workload = self.workload.iter().map(|(name, client)| async move {
            install(name.as_str(), client, controllers::crds()).await?;
            for namespace in namespaces() {
                create(name.as_str(), client, namespace).await?;
            }
            Ok(())
        });
        try_join(home, try_join_all(workload)).await.map(|_| ())
    }

    /// Applies every object, [`APPLY_AT_ONCE`] at a time; yields once for each.
    pub(crate) fn apply_all(
        self,
        planned: Vec<Planned>,
    ) -> impl Stream<Item = Result<(), WorldError>> + Send {
        stream::iter(planned)
            .map(move |planned| {
                let clients = self.clone();
                async move { clients.apply(planned).await }
            })
            .buffer_unordered(APPLY_AT_ONCE)
    }

    /// Creates one object in a workload cluster; one that exists counts as created.
    ///
    /// # Errors
    /// The cluster refuses it.
    pub(crate) async fn create(
        &self,
        cluster: &ClusterName,
        object: DynamicObject,
    ) -> Result<(), WorldError> {
        let Some(client) = self.workload.get(cluster) else { return Ok(()) };
        create(cluster.as_str(), client, object).await
    }

    async fn apply(&self, planned: Planned) -> Result<(), WorldError> {
        for manifest in planned.manifests {
            self.create(&planned.target.key.cluster, manifest).await?;
        }
        Ok(())
    }

    /// Makes a change.
    ///
    /// # Errors
    /// It is refused, or several attempts are not answered.
    pub(crate) async fn change(&self, change: &Change) -> Result<(), WorldError> {
        let key = &change.target.key;
        let Some(client) = self.workload.get(&key.cluster) else { return Ok(()) };
        let api = namespaced(client, key.namespace.as_deref(), &change.resource);
        let patch = Patch::Merge(&change.patch);
        let params = PatchParams::default();
        attempt(|| api.patch(&change.name, &params, &patch)).await.map(|_| ()).map_err(|source| {
            WorldError::Request {
                what: format!("patch {} {}", change.resource.kind, change.name),
                cluster: key.cluster.to_string(),
                source: Box::new(source),
            }
        })
    }

    /// Every object of one kind in a workload cluster.
    pub(crate) fn all(
        &self,
        cluster: &ClusterName,
        kind: &ApiResource,
    ) -> Option<Api<DynamicObject>> {
        Some(Api::all_with(self.workload.get(cluster)?.clone(), kind))
    }
}

async fn server(
    name: &str,
    address: std::net::SocketAddr,
    workloads: bool,
) -> Result<apiserver::Server, WorldError> {
    standin::programs(apiserver::Server::builder())
        .name(name)
        .bind(address)
        .workloads(workloads)
        .garbage_collector(workloads)
        .window(WINDOW)
        .start()
        .await
        .map_err(|source| WorldError::Server { cluster: name.to_owned(), source })
}

async fn connect(cluster: &str, kubeconfig: &str) -> Result<Client, WorldError> {
    let failed = |source| WorldError::Connect { cluster: cluster.to_owned(), source };
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).map_err(|e| failed(Box::new(e)))?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|e| failed(Box::new(e)))?;
    Client::try_from(config).map_err(|e| failed(Box::new(e)))
}

async fn install(
    cluster: &str,
    client: &Client,
    crds: Vec<CustomResourceDefinition>,
) -> Result<(), WorldError> {
    let installed = install::definitions(client, &crds).await;
    installed.map_err(|source| WorldError::Install { cluster: cluster.to_owned(), source })
}

/// Creates an object; one that exists already counts as created.
async fn create(cluster: &str, client: &Client, object: DynamicObject) -> Result<(), WorldError> {
    let kind = object.types.clone().unwrap_or_default();
    let (group, version) = kind.api_version.split_once('/').unwrap_or(("", &kind.api_version));
    let resource = resource(group, version, &kind.kind);
    let api = namespaced(client, object.metadata.namespace.as_deref(), &resource);
    let params = PostParams::default();
    match attempt(|| api.create(&params, &object)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(source) => Err(WorldError::Request {
            what: format!("create {} {}", kind.kind, object.name_any()),
            cluster: cluster.to_owned(),
            source: Box::new(source),
        }),
    }
}

fn namespaced(client: &Client, namespace: Option<&str>, kind: &ApiResource) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, kind),
        None => Api::all_with(client.clone(), kind),
    }
}

/// Repeats a request that was not answered; a refusal is final.
async fn attempt<T, F>(request: impl Fn() -> F) -> Result<T, kube::Error>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    for _ in 1..ATTEMPTS {
        match request().await {
            Err(kube::Error::Api(status)) if status.code < 500 && status.code != 429 => {
                return Err(kube::Error::Api(status));
            }
            Ok(value) => return Ok(value),
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
    request().await
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients").field("workload", &self.workload.keys()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_named_then_numbered() {
        let names: Vec<_> = names(10).iter().map(ToString::to_string).collect();
        assert_eq!(names[..3], ["east", "west", "north"]);
        assert_eq!(names[8..], ["cluster-9", "cluster-10"]);
    }
}
