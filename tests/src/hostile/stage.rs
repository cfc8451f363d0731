//! One replica, a home, a healthy cluster, and hostile ones: what it does while they misbehave, and afterwards.
//!
//! The replica has a process of its own, and hostile clusters have threads that yield to all others: they stand for
//! machines elsewhere, and what they take to send is not what the replica takes to read.

use std::cmp::Reverse;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use apiserver::Server;
use futures::future::{join_all, try_join_all};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Handle, Runtime};
use tokio_util::task::AbortOnDropHandle;

use super::mode::{Expected, Mode};
use super::pulse::{Pulse, Spread, want};
use super::replica::{Replica, ReplicaArgs};
use super::server::Hostile;
use super::strangers::Strangers;
use crate::copy::seen;
use crate::harness::wait::{Stopwatch, until};
use crate::install;

const NAMESPACE: &str = "leasehold-system";
/// Objects of each cluster.
const OBJECTS: usize = 5;
/// How long a change of the healthy cluster may take to be reconciled.
const CONVERGENCE: Duration = Duration::from_secs(30);
/// How long a cluster may take to be served again: a quarantine, a breaker's pause, a wait before a list.
const RECOVERY: Duration = Duration::from_secs(150);
/// How much the threads of hostile clusters yield to others: as much as the kernel knows.
const NICE: i32 = 19;
/// How often readiness is asked.
const READY_EVERY: Duration = Duration::from_millis(500);
/// Replicas among which [`weigh`] divides the modes.
const REPLICAS: usize = 5;

/// How a run is made.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program `harness`, which is the replica too.
    pub harness: PathBuf,
    /// How long clusters misbehave at least.
    pub observe: Duration,
    /// How many changes of the healthy cluster are measured before.
    pub changes: usize,
    /// What the replica's caches may keep of each cluster, in bytes.
    pub max_cache_bytes: usize,
}

/// What came of one mode.
#[derive(Clone, Debug)]
pub struct Row {
    /// The mode.
    pub mode: Mode,
    /// How much more memory of the replica was resident at most than before, in bytes; of all modes of a run together.
    pub growth_bytes: u64,
    /// What the hostile cluster was asked meanwhile.
    pub requests_per_second: f64,
    /// How long a change of the healthy cluster took.
    pub healthy_after: Option<Duration>,
    /// What its changes took in each round, while all clusters behaved and meanwhile.
    pub rounds: Vec<[Option<Spread>; 2]>,
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
    replica: Replica,
    _elsewhere: Elsewhere,
    _dir: tempfile::TempDir,
}

/// Threads that yield to all others.
struct Elsewhere(Option<Runtime>);

/// Lets clusters misbehave, each in one of these ways and all at once, and behave again.
///
/// # Errors
/// If the replica cannot be started, or does not serve the clusters before they misbehave.
pub async fn perform(modes: &[Mode], plan: &Plan) -> Result<Vec<Row>> {
    let mut stage = Stage::start(modes, plan).await?;
    stage.serves().await?;
    until(CONVERGENCE, "readiness", async || Ok(ready(stage.admin).await.then_some(()))).await?;
    let pulse = Pulse::start(stage.healthy.client());
    until(CONVERGENCE * 4 + plan.observe * 2, "changes of the healthy cluster", async || {
        Ok((pulse.changes() >= plan.changes).then_some(()))
    })
    .await?;
    let calm = pulse.changes();
    stage.replica.count_from_now()?;
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
    let growth_bytes = stage.replica.growth()?;
    let round = pulse.end(calm);
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
        rounds: vec![round],
        unready,
        asked: probes,
        reported: reported[index].clone(),
        recovered_after,
    });
    let rows = rows.collect();
    stage.replica.leave().await?;
    Ok(rows)
}

/// How much more memory of a replica is resident at most while one cluster misbehaves in each of these ways, in bytes.
/// Several replicas divide them: each looks at one after the other, and the cluster behaves again before the next.
///
/// # Errors
/// As [`perform`], or if a cluster is not served when it behaves again.
pub async fn weigh(modes: &[Mode], plan: &Plan) -> Result<Vec<(Mode, u64)>> {
    let groups = groups(modes);
    let weighed = groups.iter().map(|modes| one_by_one(modes, plan));
    Ok(try_join_all(weighed).await?.concat())
}

/// Divides modes so that each group takes about as long. The longest comes first: nothing was left before it.
fn groups(modes: &[Mode]) -> [Vec<Mode>; REPLICAS] {
    let mut modes = modes.to_vec();
    modes.sort_by_key(|mode| Reverse(mode.alone()));
    let mut groups: [(Duration, Vec<Mode>); REPLICAS] = Default::default();
    for mode in modes {
        let (takes, group) =
            groups.iter_mut().min_by_key(|(takes, _)| *takes).expect("there are some");
        *takes += mode.alone();
        group.push(mode);
    }
    groups.map(|(_, group)| group)
}

async fn one_by_one(modes: &[Mode], plan: &Plan) -> Result<Vec<(Mode, u64)>> {
    let mut stage = Stage::start(modes, plan).await?;
    stage.serves().await?;
    let mut weighed = Vec::new();
    for (mode, hostile) in &stage.hostile {
        stage.replica.count_from_now()?;
        let before = hostile.requests();
        hostile.turn(*mode);
        let asked = async || Ok((hostile.requests() > before).then_some(()));
        until(CONVERGENCE, "a request", asked).await.context(*mode)?;
        tokio::time::sleep(mode.alone()).await;
        weighed.push((*mode, stage.replica.growth()?));
        hostile.turn(Mode::Behaves);
    }
    let again = stage.hostile.iter().map(|(mode, hostile)| async move {
        served(&hostile.behind.client(), "after", RECOVERY).await.context(*mode)
    });
    try_join_all(again).await.context("when all behave again")?;
    stage.replica.leave().await?;
    Ok(weighed)
}

impl Stage {
    async fn start(modes: &[Mode], plan: &Plan) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let (_elsewhere, handle) = Elsewhere::start()?;
        let server =
            async |name: &str| Server::builder().name(name).bind("127.0.0.1:0").start().await;
        let (home, healthy) = (server("home").await?, server("healthy").await?);
        install::crds(&home.client(), leasehold::crds::home_crds()).await;
        install::namespace(&home.client(), NAMESPACE).await;
        let mut hostile = Vec::new();
        let mut clusters = vec![write(dir.path(), "healthy", &healthy.kubeconfig())?];
        for mode in modes {
            let cluster = handle.spawn(Hostile::start(*mode)).await??;
            clusters.push(write(dir.path(), &mode.to_string(), cluster.kubeconfig())?);
            hostile.push((*mode, cluster));
        }
        for client in hostile.iter().map(|(_, h)| h.behind.client()).chain([healthy.client()]) {
            want_all(&client, "before").await?;
        }
        let folder = dir.path().join("strangers");
        let strangers = handle.spawn(Strangers::start(folder.clone())).await??;
        // The port of home on another address of this machine: nobody else has it, while many stages begin at once.
        let admin = SocketAddr::from(([127, 0, 0, 2], home.address().port()));
        let home_path = write(dir.path(), "home", &home.kubeconfig())?;
        let max_cache_bytes = plan.max_cache_bytes;
        let args = ReplicaArgs { home: home_path, folder, admin, max_cache_bytes, clusters };
        let replica = Replica::start(&plan.harness, &args, dir.path())?;
        Ok(Self { home, healthy, hostile, strangers, admin, replica, _elsewhere, _dir: dir })
    }

    /// Waits until all clusters are served.
    async fn serves(&self) -> Result<()> {
        for client in self.clients() {
            served(&client, "before", CONVERGENCE).await.context("while all clusters behave")?;
        }
        Ok(())
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
}

impl Elsewhere {
    fn start() -> Result<(Self, Handle)> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .on_thread_start(|| {
                // Of this thread alone. What refuses it only makes a noisier measurement.
                let _refused = rustix::process::setpriority_process(None, NICE);
            })
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        Ok((Self(Some(runtime)), handle))
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        // A runtime that ends where others run may not wait for its threads.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

fn write(dir: &Path, name: &str, kubeconfig: &str) -> Result<PathBuf> {
    let path = dir.join(name);
    fs::write(&path, kubeconfig)?;
    Ok(path)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_all_modes_and_take_about_as_long() {
        let groups = groups(&Mode::ALL);
        let mut all = groups.concat();
        all.sort_unstable();
        assert_eq!(all, {
            let mut all = Mode::ALL;
            all.sort_unstable();
            all
        });
        let takes = groups.map(|group| group.into_iter().map(Mode::alone).sum::<Duration>());
        let (least, most) = (takes.iter().min(), takes.iter().max());
        assert!(*most.unwrap() - *least.unwrap() <= Duration::from_secs(3), "{takes:?}");
    }
}
