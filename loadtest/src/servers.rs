//! The embedded API server of a cluster.

use std::net::SocketAddr;

use anyhow::Context;
use apiserver::Server;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

/// A cluster that has started.
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// The load test's own client of it.
    pub client: Client,
    /// Of its administrator.
    pub kubeconfig: String,
    /// Where its server listens.
    pub address: SocketAddr,
}

impl Cluster {
    /// That of a server in this process.
    pub fn of(name: &str, server: &Server) -> Self {
        let (name, client) = (name.to_owned(), server.client());
        Self { name, client, kubeconfig: server.kubeconfig(), address: server.address() }
    }

    /// Its kubeconfig, with another port.
    pub fn at(&self, port: u16) -> String {
        let own = format!(":{}", self.address.port());
        self.kubeconfig.replace(&own, &format!(":{port}"))
    }
}

/// Starts a workload cluster with these namespaces and CRDs.
///
/// # Errors
/// If a port cannot be bound or an object not created.
pub async fn start(
    name: &str,
    namespaces: impl IntoIterator<Item = String>,
    crds: &[CustomResourceDefinition],
) -> anyhow::Result<Server> {
    let server = Server::builder().name(name).workloads(true).garbage_collector(true).start();
    let server = server.await.with_context(|| format!("start {name}"))?;
    install(&server, namespaces, crds).await.with_context(|| format!("prepare {name}"))?;
    Ok(server)
}

/// Creates namespaces and CRDs.
///
/// # Errors
/// If one cannot be created.
pub async fn install(
    server: &Server,
    namespaces: impl IntoIterator<Item = String>,
    crds: &[CustomResourceDefinition],
) -> Result<(), kube::Error> {
    let create = PostParams::default();
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    try_join_all(crds.iter().map(|crd| definitions.create(&create, crd))).await?;
    let api: Api<Namespace> = Api::all(server.client());
    for name in namespaces {
        let metadata = ObjectMeta { name: Some(name), ..ObjectMeta::default() };
        api.create(&create, &Namespace { metadata, ..Namespace::default() }).await?;
    }
    Ok(())
}
