//! The clusters of a run: embedded API servers on loopback ports, and their kubeconfigs on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context;
use apiserver::Server;
use futures::future::{join_all, try_join_all};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;

use crate::faults::Fault;
use crate::hosts::{self, Host};
use crate::kubeconfigs::Kubeconfigs;
use crate::relay::Relay;
use crate::scenario::Scenario;
use crate::servers::{self, Cluster, install};

/// The namespace of Leases and ShardMaps in the home cluster.
pub const HOME_NAMESPACE: &str = "leasehold-system";

/// The API group of the measured controller's objects.
const MEASURED_GROUP: &str = "schedule.rs";

/// The prefix of the names of the clusters that are measured.
pub const MEASURED: &str = "cluster-";

/// Every API server of the run.
pub struct Fleet {
    /// The home cluster.
    home: Server,
    /// The workload clusters, by name.
    pub clusters: Vec<(String, Client)>,
    /// Their servers, in this process or in others.
    servers: Vec<Server>,
    hosts: Vec<Host>,
    /// The home cluster's kubeconfig.
    pub home_kubeconfig: PathBuf,
    /// The kubeconfigs of the workload clusters.
    pub kubeconfigs: Kubeconfigs,
    /// What the managers reach clusters through that a fault cuts off, by their numbers.
    relays: BTreeMap<u32, Relay>,
}

/// The namespaces that objects are spread over, the same in each cluster.
pub fn namespaces(scenario: &Scenario) -> impl Iterator<Item = String> + Clone {
    (0..scenario.objects.namespaces).map(|n| format!("load-{n:03}"))
}

impl Fleet {
    /// Starts every server, writes kubeconfigs below `dir` and installs namespaces and CRDs.
    ///
    /// # Errors
    /// If a port cannot be bound, a file not written or an object not created.
    pub async fn start(
        scenario: &Scenario,
        dir: &Path,
        crds: &[CustomResourceDefinition],
    ) -> anyhow::Result<Self> {
        let home = Server::builder().name("home").start().await.context("start home cluster")?;
        let home_kubeconfig = dir.join("home.yaml");
        std::fs::write(&home_kubeconfig, home.kubeconfig())
            .with_context(|| format!("write {}", home_kubeconfig.display()))?;
        install(&home, [HOME_NAMESPACE.to_owned()], crds).await.context("prepare home cluster")?;

        let kubeconfigs = Kubeconfigs::new(dir.join("clusters"))?;
        let names: Vec<_> =
            (1..=scenario.fleet.clusters).map(|n| format!("{MEASURED}{n:03}")).collect();
        let (mut all, mut servers, mut hosts) = (Vec::new(), Vec::new(), Vec::new());
        // One replica may take the place of another.
        let parts = hosts::divided(&names, scenario.fleet.replicas as usize + 1)?;
        let parts = parts.into_iter().map(|names| {
            Host::start(names, namespaces(scenario).collect(), needed(scenario, crds))
        });
        for (host, clusters) in try_join_all(parts).await? {
            all.extend(clusters);
            hosts.push(host);
        }
        for name in names.iter().filter(|_| hosts.is_empty()) {
            let server = start(name, scenario, crds).await?;
            all.push(Cluster::of(name, &server));
            servers.push(server);
        }
        let cut = scenario.faults.iter().filter_map(|Fault { cluster, .. }| *cluster);
        let relays = relays(&all, cut.collect()).await?;
        for (number, cluster) in (1..).zip(&all) {
            let relay = relays.get(&number);
            let port = relay.map_or(cluster.address.port(), Relay::port);
            kubeconfigs.add_numbered(&cluster.name, cluster.client.clone(), cluster.at(port))?;
        }
        let clusters = all.into_iter().map(|cluster| (cluster.name, cluster.client)).collect();
        Ok(Self { home, clusters, servers, hosts, home_kubeconfig, kubeconfigs, relays })
    }

    /// Cuts a cluster off from the managers, or lets them reach it again. One that no fault of the
    /// scenario names cannot be cut.
    pub fn set_cut(&self, cluster: u32, cut: bool) {
        if let Some(relay) = self.relays.get(&cluster) {
            relay.set_cut(cut);
        }
    }

    /// Stops every server and closes its port.
    pub async fn stop(self) {
        for server in self.servers {
            server.shutdown().await;
        }
        join_all(self.hosts.into_iter().map(Host::stop)).await;
        self.home.shutdown().await;
    }
}

/// Starts a workload cluster with the namespaces and CRDs of the scenario.
///
/// # Errors
/// If a port cannot be bound or an object not created.
pub async fn start(
    name: &str,
    scenario: &Scenario,
    crds: &[CustomResourceDefinition],
) -> anyhow::Result<Server> {
    servers::start(name, namespaces(scenario), &needed(scenario, crds)).await
}

/// Those of controllers that run. A server needs a megabyte for the others, and there may be ten thousand servers.
fn needed(scenario: &Scenario, crds: &[CustomResourceDefinition]) -> Vec<CustomResourceDefinition> {
    let are_all_needed = !scenario.fleet.beside.is_empty();
    let needed = crds.iter().filter(|crd| are_all_needed || crd.spec.group == MEASURED_GROUP);
    needed.cloned().collect()
}

async fn relays(
    clusters: &[Cluster],
    numbers: BTreeSet<u32>,
) -> anyhow::Result<BTreeMap<u32, Relay>> {
    let mut relays = BTreeMap::new();
    for (number, cluster) in (1..).zip(clusters) {
        if numbers.contains(&number) {
            let relay = Relay::start(cluster.address).await;
            relays.insert(number, relay.context("start a relay to a cluster")?);
        }
    }
    Ok(relays)
}
