//! The fleet under test: a home cluster and workload clusters on real API servers with audit logs,
//! more workload clusters on embedded servers, and replicas that come and go.

mod look;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::future::{join_all, try_join_all};
use serde_json::Value;

use super::agreement::{self, OwnView};
use super::replica::{self, HOME, Remains, Replica, Server};
use super::sampler::Sampler;
use crate::harness::control_plane::{ControlPlane, Spec};
use crate::harness::embedded::Embedded;
use crate::harness::load::{self, LoadTarget};
use crate::harness::{Scene, home, wait};

/// How long a fleet may take to settle: two Leases, on a slow machine.
const SETTLE_DEADLINE: Duration = Duration::from_secs(90);
/// The most replicas of one run. Each is a user of its own.
const MAX_REPLICAS: usize = 2000;
/// How many TDSets each cluster has.
const SETS: usize = 6;

/// What the fleet consists of.
#[derive(Debug)]
pub struct FleetSpec<'a> {
    /// Workload clusters on real API servers.
    pub real: &'a [&'a str],
    /// How many workload clusters are on embedded API servers.
    pub embedded: usize,
    /// Whether workload clusters get CRDs and TDSets.
    pub has_sets: bool,
    /// The command line of a replica, up to its `--config`.
    pub program: Vec<PathBuf>,
    /// The controllers' section of its configuration.
    pub controllers: Value,
}

/// The fleet. Dropping it stops everything.
pub struct Fleet<'a> {
    scene: &'a Scene,
    /// The home cluster.
    pub home: ControlPlane,
    /// Workload clusters with audit logs.
    pub real: Vec<ControlPlane>,
    /// Workload clusters without audit logs.
    pub embedded: Vec<Embedded>,
    /// The running replicas, the oldest first.
    pub replicas: Vec<Replica>,
    /// What the replicas left behind that have ended.
    pub past: Vec<Remains>,
    /// Reads their metrics.
    pub sampler: Sampler,
    program: Vec<PathBuf>,
    controllers: Value,
    started: usize,
    /// How often home's tokens were renewed.
    renewals: usize,
}

impl<'a> Fleet<'a> {
    /// Starts the clusters. There are no replicas yet.
    pub async fn prepare(scene: &'a Scene, plan: FleetSpec<'_>) -> Result<Self> {
        let names: Vec<String> = (0..plan.embedded).map(|n| format!("embedded-{n:02}")).collect();
        let planes = [HOME].into_iter().chain(plan.real.iter().copied());
        let (mut real, embedded) = tokio::try_join!(
            try_join_all(planes.map(|name| control_plane(scene, name))),
            try_join_all(names.iter().map(|name| Embedded::start(scene, name, false))),
        )?;
        let this = Self {
            scene,
            home: real.remove(0),
            real,
            embedded,
            replicas: Vec::new(),
            past: Vec::new(),
            sampler: Sampler::start(),
            program: plan.program,
            controllers: plan.controllers,
            started: 0,
            renewals: 0,
        };
        this.install(plan.has_sets).await?;
        Ok(this)
    }

    /// Installs CRDs, namespaces and TDSets.
    async fn install(&self, has_sets: bool) -> Result<()> {
        home::install(&self.home.kubectl).await?;
        let workload = self.real.iter().map(|plane| &plane.kubectl);
        let workload = workload.chain(self.embedded.iter().map(|server| &server.kubectl));
        let manifests = load::manifests(SETS, "example.test/web:1");
        for kubectl in workload.filter(|_| has_sets) {
            home::install_crds(kubectl).await?;
            kubectl.apply(&manifests).await?;
        }
        Ok(())
    }

    /// The TDSets that a load can change.
    pub fn targets(&self) -> Vec<LoadTarget> {
        let real = self.real.iter().map(|plane| LoadTarget::new(plane, SETS, false));
        let embedded = self.embedded.iter().map(|server| LoadTarget {
            cluster: server.name.clone(),
            client: server.client.clone(),
            sets: SETS,
            alive: false,
        });
        real.chain(embedded).collect()
    }

    /// How many workload clusters there are.
    pub fn clusters(&self) -> usize {
        self.real.len() + self.embedded.len()
    }

    /// The folder of the replica that is started next.
    pub fn next_dir(&self) -> PathBuf {
        self.scene.dir().join(identity(self.started))
    }

    /// Starts another replica.
    pub async fn start(&mut self) -> Result<()> {
        let (program, arguments) = self.program.split_first().context("no program to run")?;
        let mut command = Command::new(program);
        command.args(arguments);
        self.start_as(command).await
    }

    /// Starts another replica as `command`.
    pub async fn start_as(&mut self, command: Command) -> Result<()> {
        let identity = identity(self.started);
        let plane = |plane: &ControlPlane| Server {
            name: plane.name().to_owned(),
            kubeconfig: plane.kubeconfig.clone(),
            token: Some(identity.clone()),
        };
        let embedded = self.embedded.iter().map(|server| Server {
            name: server.name.clone(),
            kubeconfig: server.kubeconfig.clone(),
            token: None,
        });
        let real = self.real.iter().map(plane);
        let servers: Vec<Server> =
            [self.home_of(&identity)].into_iter().chain(real).chain(embedded).collect();
        self.started += 1;
        let replica =
            Replica::start(self.scene, &identity, command, &servers, &self.controllers).await?;
        self.replicas.push(replica);
        self.follow();
        Ok(())
    }

    /// Home, as a replica reaches it.
    fn home_of(&self, identity: &str) -> Server {
        Server {
            name: HOME.to_owned(),
            kubeconfig: self.home.kubeconfig.clone(),
            token: Some(token(identity, self.renewals)),
        }
    }

    /// Starts home again with another certificate authority and other tokens, and then writes the replicas'
    /// kubeconfigs of it anew.
    pub async fn renew_home(&mut self) -> Result<()> {
        self.renewals += 1;
        self.home.renew_certificates(&users(self.renewals)).await?;
        let rewrite = |replica: &Replica| replica.rewrite(&self.home_of(replica.identity()));
        self.replicas.iter().try_for_each(rewrite)
    }

    /// Kills replicas with SIGKILL, as simultaneously as possible.
    pub fn kill(&mut self, indices: &[usize]) {
        let mut indices = indices.to_vec();
        indices.sort_unstable();
        indices.dedup();
        for index in indices.into_iter().rev() {
            let remains = self.replicas.remove(index).kill();
            self.past.push(remains);
        }
        self.follow();
    }

    /// Asks a replica to leave and waits until it has.
    pub async fn dismiss(&mut self, index: usize) -> Result<()> {
        let replica = self.replicas.remove(index);
        self.follow();
        let remains = replica.leave().await?;
        self.past.push(remains);
        Ok(())
    }

    /// Starts or dismisses replicas until there are `count`, and waits until the fleet settles.
    pub async fn restore(&mut self, count: usize) -> Result<()> {
        while self.replicas.len() < count {
            self.start().await?;
        }
        while self.replicas.len() > count {
            self.dismiss(self.replicas.len() - 1).await?;
        }
        self.settle().await
    }

    /// Waits until every shard has an owner that is running and says so itself.
    pub async fn settle(&mut self) -> Result<()> {
        let mut last = String::new();
        let outcome = wait::until(SETTLE_DEADLINE, "the fleet to settle", async || {
            self.replicas.iter_mut().try_for_each(Replica::check_alive)?;
            let reports = join_all(self.replicas.iter().map(async |replica| OwnView {
                identity: replica.identity().to_owned(),
                said: replica::own_view(replica.admin()).await,
            }));
            let unsettled = match (self.entries().await, reports.await) {
                (Ok(entries), reports) => agreement::unsettled(&entries, self.clusters(), &reports),
                // The fault may have hit the home cluster.
                (Err(error), _) => Some(format!("{error:#}")),
            };
            last = unsettled.clone().unwrap_or_default();
            Ok(unsettled.is_none().then_some(()))
        })
        .await;
        outcome.or_else(|error| bail!("{error:#}; last seen: {last}"))
    }

    /// As [`untrue_status`](Self::untrue_status), as soon as home tells the fleet's state: an API server that
    /// started again is ready before it serves all that ours defines.
    pub async fn untrue_status_of_home(&self) -> Result<Option<String>> {
        let told = async || Ok(self.untrue_status().await.ok());
        wait::until(SETTLE_DEADLINE, "home to tell the state of the fleet", told).await
    }

    fn follow(&self) {
        let source = |replica: &Replica| (replica.identity().to_owned(), replica.admin().clone());
        self.sampler.follow(self.replicas.iter().map(source).collect());
    }
}

async fn control_plane(scene: &Scene, name: &str) -> Result<ControlPlane> {
    let spec = Spec { tokens: &users(0), ..Spec::local(name) };
    ControlPlane::start(scene, &spec).await
}

/// Every replica as a user with a token, for the token file of an API server.
fn users(renewals: usize) -> Vec<String> {
    let user = |identity: String| {
        format!("{},{identity},{identity},system:masters", token(&identity, renewals))
    };
    (0..MAX_REPLICAS).map(identity).map(user).collect()
}

/// The token of a replica: its identity, and how often tokens were renewed.
fn token(identity: &str, renewals: usize) -> String {
    match renewals {
        0 => identity.to_owned(),
        renewals => format!("{identity}-renewed-{renewals}"),
    }
}

fn identity(number: usize) -> String {
    format!("replica-{number}")
}
