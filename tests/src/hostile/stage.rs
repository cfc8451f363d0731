//! One replica, a home, a healthy cluster, and hostile ones: what it does while they misbehave, and afterwards.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use apiserver::Server;
use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use leasehold::config::{ClusterSources, Config, DirectorySource, Home, KubeconfigSource, Risk};
use leasehold::{Departure, Manager};
use model::{Budget, Budgets};
use sdk::Controller;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::mode::{Expected, Mode};
use super::pulse::{Pulse, Spread, want};
use super::server::Hostile;
use super::strangers::Strangers;
use crate::copy::{Copy, seen};
use crate::harness::wait::{Stopwatch, until};
use crate::install;

/// Tells how many bytes this process has taken.
pub type Memory = fn() -> usize;

const NAMESPACE: &str = "leasehold-system";
/// Objects of each cluster.
const OBJECTS: usize = 5;
/// How long a change of the healthy cluster may take to be reconciled.
const CONVERGENCE: Duration = Duration::from_secs(30);
/// How long a cluster may take to be served again: a quarantine, a breaker's pause, a wait before a list.
const RECOVERY: Duration = Duration::from_secs(150);
/// How often memory is read.
const MEMORY_EVERY: Duration = Duration::from_millis(20);
/// How often readiness is asked.
const READY_EVERY: Duration = Duration::from_millis(500);

/// How a run is made.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How long clusters misbehave at least.
    pub observe: Duration,
    /// How many changes of the healthy cluster are measured before.
    pub changes: usize,
    /// What is kept of each cluster.
    pub budget: Budget,
}

/// What came of one mode.
#[derive(Clone, Debug)]
pub struct Row {
    /// The mode.
    pub mode: Mode,
    /// How much more memory the process took at most than before; of all modes of a run together.
    pub growth_bytes: usize,
    /// What the hostile cluster was asked meanwhile.
    pub requests_per_second: f64,
    /// How long a change of the healthy cluster took.
    pub healthy_after: Option<Duration>,
    /// What its changes took while all clusters behaved, and meanwhile.
    pub calm: Option<Spread>,
    /// See `calm`.
    pub meanwhile: Option<Spread>,
    /// How often the replica said that it was not ready, and how often it was asked.
    pub unready: usize,
    /// See `unready`.
    pub asked: usize,
    /// Why the cluster fails, as its member reports it.
    pub reported: Option<String>,
    /// How long the cluster took to be served when it behaved again.
    pub recovered_after: Option<Duration>,
}

struct Stage {
    home: Server,
    healthy: Server,
    hostile: Vec<(Mode, Hostile)>,
    strangers: Strangers,
    admin: SocketAddr,
    stop: CancellationToken,
    replica: JoinHandle<Result<Departure, leasehold::Error>>,
    _dir: tempfile::TempDir,
}

/// Lets clusters misbehave, each in one of these ways and all at once, and behave again.
///
/// # Errors
/// If the replica cannot be started, or does not serve the clusters before they misbehave.
pub async fn perform(modes: &[Mode], plan: Plan, memory: Memory) -> Result<Vec<Row>> {
    let stage = Stage::start(modes, plan.budget).await?;
    for client in stage.clients() {
        served(&client, "before", CONVERGENCE).await.context("while all clusters behave")?;
    }
    until(CONVERGENCE, "readiness", async || Ok(ready(stage.admin).await.then_some(()))).await?;
    let pulse = Pulse::start(stage.healthy.client());
    until(CONVERGENCE * 4, "changes of the healthy cluster", async || {
        Ok((pulse.changes() >= plan.changes).then_some(()))
    })
    .await?;
    let calm = pulse.changes();
    let peak = Peak::start(memory);
    let before: Vec<u64> = stage.hostile.iter().map(|(_, hostile)| hostile.requests()).collect();
    let began = Stopwatch::start();
    for (mode, hostile) in &stage.hostile {
        hostile.turn(*mode);
        if *mode == Mode::HangingCredentials {
            stage.strangers.come()?;
        }
    }
    let readiness = Readiness::start(stage.admin);
    let healthy_after = served(&stage.healthy.client(), "meanwhile", CONVERGENCE).await.ok();
    let reports = stage.hostile.iter().map(|(mode, hostile)| {
        let cluster = hostile.behind.name();
        stage.reported(*mode, cluster)
    });
    let reported = join_all(reports).await;
    tokio::time::sleep(plan.observe.saturating_sub(began.elapsed())).await;
    let lasted = began.elapsed().as_secs_f64();
    let asked: Vec<u64> = stage.hostile.iter().map(|(_, hostile)| hostile.requests()).collect();
    let growth_bytes = peak.growth();
    let [calm, meanwhile] = pulse.end(calm);
    let (unready, probes) = readiness.end();
    for (_, hostile) in &stage.hostile {
        hostile.turn(Mode::Behaves);
    }
    stage.strangers.go()?;
    let recoveries = stage.hostile.iter().map(|(_, hostile)| async {
        served(&hostile.behind.client(), "after", RECOVERY).await.ok()
    });
    let recoveries = join_all(recoveries).await;
    let outcomes = stage.hostile.iter().zip(recoveries).enumerate();
    let rows = outcomes.map(|(index, ((mode, _), recovered_after))| Row {
        mode: *mode,
        growth_bytes,
        requests_per_second: (asked[index] - before[index]) as f64 / lasted,
        healthy_after,
        calm,
        meanwhile,
        unready,
        asked: probes,
        reported: reported[index].clone(),
        recovered_after,
    });
    let rows = rows.collect();
    stage.end().await?;
    Ok(rows)
}

impl Stage {
    async fn start(modes: &[Mode], budget: Budget) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let server =
            async |name: &str| Server::builder().name(name).bind("127.0.0.1:0").start().await;
        let (home, healthy) = (server("home").await?, server("healthy").await?);
        install::crds(&home.client(), leasehold::crds::home_crds()).await;
        install::namespace(&home.client(), NAMESPACE).await;
        let mut hostile = Vec::new();
        let mut kubeconfigs = vec![write(dir.path(), "healthy", &healthy.kubeconfig())?];
        for mode in modes {
            let cluster = Hostile::start(&mode.to_string()).await?;
            kubeconfigs.push(write(dir.path(), &mode.to_string(), &cluster.kubeconfig())?);
            hostile.push((*mode, cluster));
        }
        for client in hostile.iter().map(|(_, h)| h.behind.client()).chain([healthy.client()]) {
            want_all(&client, "before").await?;
        }
        let path = dir.path().join("home");
        fs::write(&path, home.kubeconfig())?;
        let at_home = Home::Kubeconfig { path, context: None, allow: [Risk::Loopback].into() };
        let folder = dir.path().join("strangers");
        let strangers = Strangers::start(&folder).await?;
        let allow = [Risk::Loopback].into();
        let directories = vec![DirectorySource { allow, ..DirectorySource::new(folder) }];
        let sources = ClusterSources { kubeconfigs, directories, ..ClusterSources::default() };
        let mut config = Config::new(at_home, "replica", sources);
        config.budgets = Budgets { each: budget, ..Budgets::default() };
        // A port that was free a moment ago.
        let admin = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        config.admin = Some(admin.into());
        let copy = Controller::for_kind::<ConfigMap>("copy").reconciler(Copy::default());
        let stop = CancellationToken::new();
        let replica = tokio::spawn(Manager::new(config).controller(copy).run(stop.clone()));
        Ok(Self { home, healthy, hostile, strangers, admin, stop, replica, _dir: dir })
    }

    fn clients(&self) -> impl Iterator<Item = Client> {
        let hostile = self.hostile.iter().map(|(_, hostile)| hostile.behind.client());
        hostile.chain([self.healthy.client()])
    }

    /// Why the member says that this cluster fails. It is waited for where it is expected.
    async fn reported(&self, mode: Mode, cluster: &str) -> Option<String> {
        let expected = match mode.expected() {
            Expected::Reported(part) => part,
            Expected::Served | Expected::Patient => return self.reason(cluster).await,
        };
        let right = async || {
            let reason = self.reason(cluster).await;
            Ok(reason.filter(|reason| reason.contains(expected)))
        };
        match until(mode.patience(), "a report", right).await {
            Ok(reason) => Some(reason),
            Err(_) => self.reason(cluster).await,
        }
    }

    async fn reason(&self, cluster: &str) -> Option<String> {
        let fleet = fleet::read(self.home.client(), NAMESPACE).await.ok()?;
        let mut down = fleet.members.into_iter().flat_map(|member| member.down_clusters);
        down.find(|down| down.cluster.as_str() == cluster).map(|down| down.reason.to_string())
    }

    async fn end(self) -> Result<()> {
        self.stop.cancel();
        let departure = self.replica.await??;
        ensure!(departure == Departure::HandedOver, "the replica left without handing over");
        Ok(())
    }
}

fn write(dir: &Path, name: &str, kubeconfig: &str) -> Result<KubeconfigSource> {
    let path = dir.join(name);
    fs::write(&path, kubeconfig)?;
    let allow = [Risk::Loopback, Risk::PlainHttp].into();
    Ok(KubeconfigSource { path, allow, ..KubeconfigSource::default() })
}

/// Asks for a value in each object.
async fn want_all(client: &Client, value: &str) -> Result<()> {
    for n in 0..OBJECTS {
        want(client, &format!("map-{n}"), value).await?;
    }
    Ok(())
}

/// Asks for a value, and waits until the replica has reconciled it everywhere. Returns how long that took.
async fn served(client: &Client, value: &str, within: Duration) -> Result<Duration> {
    want_all(client, value).await?;
    let began = Stopwatch::start();
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    until(within, "every object to be reconciled", async || {
        let maps = api.list(&Default::default()).await?;
        let done = maps.items.iter().filter(|map| seen(map) == Some(value)).count();
        Ok((done == OBJECTS).then_some(()))
    })
    .await?;
    Ok(began.elapsed())
}

/// Whether `/readyz` says yes.
async fn ready(admin: SocketAddr) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(admin).await?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    ask.await.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// Watches how much memory the process takes.
struct Peak {
    before: usize,
    most: Arc<AtomicUsize>,
    _task: AbortOnDropHandle<()>,
}

impl Peak {
    fn start(memory: Memory) -> Self {
        let before = memory();
        let most = Arc::new(AtomicUsize::new(before));
        let noted = Arc::clone(&most);
        let task = tokio::spawn(async move {
            loop {
                noted.fetch_max(memory(), Ordering::Relaxed);
                tokio::time::sleep(MEMORY_EVERY).await;
            }
        });
        Self { before, most, _task: AbortOnDropHandle::new(task) }
    }

    fn growth(&self) -> usize {
        self.most.load(Ordering::Relaxed).saturating_sub(self.before)
    }
}

/// Asks again and again whether the replica is ready.
struct Readiness {
    unready: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
    _task: AbortOnDropHandle<()>,
}

impl Readiness {
    fn start(admin: SocketAddr) -> Self {
        let (unready, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (no, all) = (Arc::clone(&unready), Arc::clone(&asked));
        let task = tokio::spawn(async move {
            loop {
                let is_ready = ready(admin).await;
                all.fetch_add(1, Ordering::Relaxed);
                no.fetch_add(usize::from(!is_ready), Ordering::Relaxed);
                tokio::time::sleep(READY_EVERY).await;
            }
        });
        Self { unready, asked, _task: AbortOnDropHandle::new(task) }
    }

    fn end(self) -> (usize, usize) {
        (self.unready.load(Ordering::Relaxed), self.asked.load(Ordering::Relaxed))
    }
}
