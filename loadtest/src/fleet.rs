//! The clusters of a run: embedded API servers on loopback ports, and their kubeconfigs on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context;
use apiserver::Server;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

use crate::faults::Fault;
use crate::kubeconfigs::Kubeconfigs;
use crate::relay::Relay;
use crate::scenario::Scenario;

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
    /// Their servers.
    servers: Vec<Server>,
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
        let namespaces = [HOME_NAMESPACE.to_owned()];
        install(&home, namespaces, crds.iter()).await.context("prepare home cluster")?;

        let kubeconfigs = Kubeconfigs::new(dir.join("clusters"))?;
        let (mut clusters, mut servers) = (Vec::new(), Vec::new());
        for n in 1..=scenario.fleet.clusters {
            let name = format!("{MEASURED}{n:03}");
            let server = start(&name, scenario, crds).await?;
            clusters.push((name, server.client()));
            servers.push(server);
        }
        let cut = scenario.faults.iter().filter_map(|Fault { cluster, .. }| *cluster);
        let relays = relays(&servers, cut.collect()).await?;
        let fleet = Self { home, clusters, servers, home_kubeconfig, kubeconfigs, relays };
        for (number, ((name, _), server)) in (1..).zip(fleet.clusters.iter().zip(&fleet.servers)) {
            let relay = fleet.relays.get(&number);
            let port = relay.map_or(server.address().port(), Relay::port);
            fleet.kubeconfigs.add_numbered(name, server, port)?;
        }
        Ok(fleet)
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
    let server = Server::builder().name(name).workloads(true).garbage_collector(true).start();
    let server = server.await.with_context(|| format!("start {name}"))?;
    // A server needs a megabyte for those of controllers that do not run, and there may be ten thousand servers.
    let are_all_needed = !scenario.fleet.beside.is_empty();
    let needed = crds.iter().filter(|crd| are_all_needed || crd.spec.group == MEASURED_GROUP);
    let installed = install(&server, namespaces(scenario), needed).await;
    installed.with_context(|| format!("prepare {name}"))?;
    Ok(server)
}

async fn relays(
    servers: &[Server],
    numbers: BTreeSet<u32>,
) -> anyhow::Result<BTreeMap<u32, Relay>> {
    let mut relays = BTreeMap::new();
    for (number, server) in (1..).zip(servers) {
        if numbers.contains(&number) {
            let relay = Relay::start(server.address()).await;
            relays.insert(number, relay.context("start a relay to a cluster")?);
        }
    }
    Ok(relays)
}

async fn install(
    server: &Server,
    namespaces: impl IntoIterator<Item = String>,
    crds: impl Iterator<Item = &CustomResourceDefinition>,
) -> Result<(), kube::Error> {
    let create = PostParams::default();
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    try_join_all(crds.map(|crd| definitions.create(&create, crd))).await?;
    let api: Api<Namespace> = Api::all(server.client());
    for name in namespaces {
        let metadata = ObjectMeta { name: Some(name), ..ObjectMeta::default() };
        api.create(&create, &Namespace { metadata, ..Namespace::default() }).await?;
    }
    Ok(())
}
