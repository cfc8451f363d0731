//! Clusters that make trouble: some never answer, some are flooded with changes. Nothing is
//! measured in them.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use apiserver::Server;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::fleet::{self, Fleet};
use crate::generate::Made;
use crate::scenario::{Scenario, Troubles};
use crate::servers::Cluster;
use crate::tdset::Pods;

/// How often the flood checks which changes are due.
const TICK: Duration = Duration::from_millis(20);
/// The most changes of the flood that wait for an answer.
const MAX_IN_FLIGHT: usize = 64;

/// The clusters, until dropped.
pub struct Troublemakers {
    /// The kernel accepts connections, and nobody reads from them.
    silent: Vec<TcpListener>,
    flooded: Vec<Server>,
    objects: Vec<Made>,
    /// Changes of the flood that a server has answered.
    pub answered: u64,
}

impl Troublemakers {
    /// Starts the clusters and adds their kubeconfigs to the fleet's.
    ///
    /// # Errors
    /// If a port cannot be bound, a file not written or an object not created.
    pub async fn join(
        fleet: &Fleet,
        scenario: &Scenario,
        troubles: &Troubles,
        crds: &[CustomResourceDefinition],
    ) -> anyhow::Result<Self> {
        let mut all =
            Self { silent: Vec::new(), flooded: Vec::new(), objects: Vec::new(), answered: 0 };
        for n in 1..=troubles.flooded {
            let name = format!("flooded-{n:03}");
            let server = fleet::start(&name, scenario, crds).await?;
            let objects = fleet::namespaces(scenario).cycle().enumerate();
            let objects = objects.take(troubles.flooded_objects as usize);
            for (n, namespace) in objects {
                let made = Made::new(&server.client(), &name, &namespace, n, (Pods::ByTurns, 0));
                made.create().await.with_context(|| format!("create an object in {name}"))?;
                all.objects.push(made);
            }
            fleet.kubeconfigs.add(&name, &server.kubeconfig())?;
            all.flooded.push(server);
        }
        for n in 1..=troubles.dead {
            let name = format!("dead-{n:03}");
            let server = Server::builder().name(&name).start().await?;
            let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("bind a port")?;
            let port = silent.local_addr()?.port();
            fleet.kubeconfigs.add(&name, &Cluster::of(&name, &server).at(port))?;
            server.shutdown().await;
            all.silent.push(silent);
        }
        Ok(all)
    }

    /// How many clusters there are.
    pub fn len(&self) -> usize {
        self.silent.len() + self.flooded.len()
    }

    /// Changes objects at this rate, counted from `began`, until dropped. Slow answers make it slower: `answered` says
    /// how many changes there were.
    ///
    /// # Errors
    /// If a server refuses.
    pub async fn flood(&mut self, per_second: f64, began: Instant) -> anyhow::Result<()> {
        let permits = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
        let mut under_way: JoinSet<Result<i64, kube::Error>> = JoinSet::new();
        let mut tick = tokio::time::interval(TICK);
        let mut done = 0;
        let objects = self.objects.len();
        loop {
            tick.tick().await;
            let due = (per_second * began.elapsed().as_secs_f64()) as usize * self.flooded.len();
            while done < due {
                let permit = Arc::clone(&permits).acquire_owned().await?;
                self.answered += answers(&mut under_way)?;
                let made = self.objects[done % objects].changed();
                under_way.spawn(async move {
                    let result = made.update().await;
                    drop(permit);
                    result
                });
                done += 1;
            }
            self.answered += answers(&mut under_way)?;
        }
    }

    /// Stops every server.
    pub async fn stop(self) {
        for server in self.flooded {
            server.shutdown().await;
        }
    }
}

/// How many changes were answered since the last look.
fn answers(under_way: &mut JoinSet<Result<i64, kube::Error>>) -> anyhow::Result<u64> {
    let mut answered = 0;
    while let Some(finished) = under_way.try_join_next() {
        finished?.context("flood a cluster")?;
        answered += 1;
    }
    Ok(answered)
}
