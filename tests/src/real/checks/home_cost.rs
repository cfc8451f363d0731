//! What a large fleet costs its home cluster: ten members share a thousand clusters of ten groups.
//! The API server's audit log and metrics show what they write while nothing changes, and when two
//! of them die.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use kube::Client;
use leasehold::clock::SystemClock;
use loadtest::scrape;
use model::ownership::acknowledge_drains;
use model::{
    Clock, Cluster, ClusterName, ClusterSet, ClusterState, Hold, OwnedShards, Ownership, ShardId,
    Work, Workload,
};
use serde_json::Value;
use sharding::{Config, LeaseTimings, Sharding};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::harness::audit::{self, AuditEvent};
use crate::harness::control_plane::ControlPlane;
use crate::harness::wait::{self, Stopwatch};
use crate::harness::{Scene, home, kubectl};

const MEMBERS: usize = 10;
const GROUPS: usize = 10;
const FEW_CLUSTERS: usize = 10;
const MANY_CLUSTERS: usize = 1_000;
/// How many members die.
const VICTIMS: usize = 2;

/// The work in each shard.
const BUSY_MS_PER_SECOND: u64 = 20;
const CACHED_BYTES: u64 = 20 << 20;

/// No object may be larger, as the server stores it.
const MAX_OBJECT_BYTES: usize = 64 * 1024;
/// How long the idle fleet is watched.
const IDLE: Duration = Duration::from_secs(30);
/// How long after a member gained a shard it may report the shard's load for the first time.
const REPORTED_WITHIN: Duration = Duration::from_secs(60);
const SHARE_DEADLINE: Duration = Duration::from_secs(600);
/// Longer than by default, with the default renewal interval: all members share one machine with
/// the servers, and no Lease must expire because its processors are busy.
const LEASE: Duration = Duration::from_secs(30);
/// Dead members are shown for a minute after their Leases were taken.
const COLLECT_DEADLINE: Duration = Duration::from_secs(180);
/// A renewal may come a tenth of its interval early, but no more.
const EARLIEST_PERMILLE: u32 = 900;
/// Bytes of request bodies, by resource and verb. Alpha in Kubernetes, on by default.
const BODY_BYTES: &str = "apiserver_request_body_size_bytes_sum";

/// The fleet, on its own threads: in a real one no member waits for another.
struct Fleet {
    // Taken by `drop`, because one runtime must not wait inside another for its end.
    runtime: Option<Runtime>,
    clusters: watch::Sender<Arc<ClusterSet>>,
    members: Vec<Replica>,
}

/// Counters of shards that all have the same steady load.
#[derive(Debug, Default)]
struct Steady {
    owned: OnceLock<watch::Receiver<Arc<OwnedShards>>>,
}

/// A member with a minimal engine, which acknowledges each drain at once.
struct Replica {
    sharding: Sharding,
    _engine: AbortOnDropHandle<()>,
}

/// Runs the check.
pub async fn run(scene: &Scene) -> Result<()> {
    let home = ControlPlane::local(scene, "home").await?;
    home::install(&home.kubectl).await?;

    let mut fleet = Fleet::start(&home)?;
    for clusters in [FEW_CLUSTERS, MANY_CLUSTERS] {
        let watch = Stopwatch::start();
        fleet.configure(&home, clusters)?;
        fleet.shares(clusters * GROUPS).await?;
        println!("{MEMBERS} members share {} shards after {watch}", clusters * GROUPS);
        idle_cost(&home, clusters).await?;
    }
    sizes(&home).await?;
    only_changes(&home)?;
    deaths(&home, &mut fleet).await?;
    Ok(())
}

/// How many shards a member holds, and how many of them are being handed over.
#[derive(Debug)]
struct Held {
    active: usize,
    moving: usize,
}

impl Fleet {
    fn start(home: &ControlPlane) -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let clusters = watch::channel(Arc::new(ClusterSet::default())).0;
        let mut members = Vec::new();
        {
            let _here = runtime.enter();
            for number in 0..MEMBERS {
                members.push(Replica::start(home, number, clusters.subscribe())?);
            }
        }
        Ok(Self { runtime: Some(runtime), clusters, members })
    }

    /// Configures clusters. Nobody connects to a workload cluster here, so any client will do.
    fn configure(&self, home: &ControlPlane, count: usize) -> Result<()> {
        let mut clusters = BTreeMap::new();
        for number in 0..count {
            let name: model::ClusterName = format!("cluster-{number:04}").parse()?;
            let cluster = Cluster::new(name.clone(), home.client.clone(), 1);
            clusters.insert(name, ClusterState::Engaged(cluster));
        }
        self.clusters.send_replace(Arc::new(ClusterSet { clusters, ..ClusterSet::default() }));
        Ok(())
    }

    /// Waits until the members together hold this many shards, and none is being handed over.
    async fn shares(&self, shards: usize) -> Result<()> {
        let mut last = Vec::new();
        let what = format!("{shards} shards to be held");
        let outcome = wait::until(SHARE_DEADLINE, &what, async || {
            last = self.members.iter().map(Replica::held).collect();
            let settled = last.iter().all(|held: &Held| held.moving == 0);
            let held: usize = last.iter().map(|held| held.active).sum();
            Ok((settled && held == shards).then_some(()))
        })
        .await;
        outcome.with_context(|| format!("last seen: {last:?}"))
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Workload for Steady {
    fn measure(&self) -> BTreeMap<ShardId, Work> {
        let Some(owned) = self.owned.get() else { return BTreeMap::new() };
        let seconds = SystemClock.now().since_origin().as_secs();
        let work = Work {
            busy: Duration::from_millis(seconds * BUSY_MS_PER_SECOND),
            events: seconds,
            cached_bytes: CACHED_BYTES,
            heaviest_permille: 0,
            waiting: 0,
        };
        owned.borrow().holdings.keys().map(|shard| (shard.clone(), work)).collect()
    }

    fn failing(&self) -> BTreeMap<ClusterName, Arc<str>> {
        BTreeMap::new()
    }
}

impl Replica {
    fn start(
        home: &ControlPlane,
        number: usize,
        clusters: watch::Receiver<Arc<ClusterSet>>,
    ) -> Result<Self> {
        let groups = (0..GROUPS).map(|n| format!("group-{n}").parse());
        let groups = groups.collect::<Result<BTreeSet<_>, _>>()?;
        let mut config = Config::new(&format!("replica-{number}"), groups, number as u64);
        config.lease.duration = LEASE;
        let work = Arc::new(Steady::default());
        let sharding = Sharding::spawn(
            home.client.clone(),
            config,
            clusters,
            Arc::clone(&work) as Arc<dyn Workload>,
            Arc::new(SystemClock),
            &prometheus::Registry::new(),
        )?;
        work.owned.get_or_init(|| sharding.watch());
        let engine = AbortOnDropHandle::new(tokio::spawn(acknowledge_drains(sharding.clone())));
        Ok(Self { sharding, _engine: engine })
    }

    fn held(&self) -> Held {
        let owned = self.sharding.watch();
        let owned = owned.borrow();
        let active = owned.holdings.values().filter(|held| held.hold == Hold::Active).count();
        Held { active, moving: owned.holdings.len() - active }
    }
}

/// The home's audit log so far.
struct Log(Vec<AuditEvent>);

impl Log {
    fn of(home: &ControlPlane) -> Result<Self> {
        Ok(Self(audit::read(&home.audit_log())?))
    }

    /// The committed writes to objects of one resource in the fleet's namespace.
    fn writes(&self, resource: &str) -> Vec<&AuditEvent> {
        audit::committed(&self.0, resource, home::NAMESPACE).collect()
    }
}

/// What a fleet writes whose load is steady: renewals, and nothing else.
async fn idle_cost(home: &ControlPlane, clusters: usize) -> Result<()> {
    // Wait until the members have reported the change of a moment ago.
    quiet(home).await?;
    let resources = ["leases", "members", "shardmaps"];
    let mut before = [0.0; 3];
    for (bytes, resource) in before.iter_mut().zip(resources) {
        *bytes = body_bytes(&home.client, resource).await?;
    }
    let log = Log::of(home)?;
    let counted = resources.map(|resource| log.writes(resource).len());
    let watch = Stopwatch::start();
    tokio::time::sleep(IDLE).await;
    let seconds = watch.elapsed().as_secs_f64();
    println!("{clusters} clusters, idle for {seconds:.0} s:");
    let mut sum = 0.0;
    for ((resource, before), counted) in resources.into_iter().zip(before).zip(counted) {
        let log = Log::of(home)?;
        let fresh = log.writes(resource).split_off(counted);
        let bytes = (body_bytes(&home.client, resource).await? - before) / seconds;
        let rate = fresh.len() as f64 / seconds;
        println!("  {resource:10}{:5} writes, {rate:5.2}/s, {bytes:6.0} bytes/s", fresh.len());
        sum += bytes;
        if resource == "leases" {
            paced(&fresh)?;
        } else {
            ensure!(fresh.is_empty(), "an idle fleet wrote {} {resource}", fresh.len());
        }
    }
    println!("  in all    {sum:.0} bytes/s");
    Ok(())
}

/// How many bytes of request bodies the server has received so far in writes to a resource,
/// including the Lease of the server itself.
async fn body_bytes(client: &Client, resource: &str) -> Result<f64> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    let text = client.request_text(request).await.context("GET /metrics")?;
    ensure!(text.contains(BODY_BYTES), "the server has no metric {BODY_BYTES}");
    Ok(scrape::sums_by(&text, BODY_BYTES, "resource").remove(resource).unwrap_or_default())
}

/// Waits until only Leases have been written for so long that no load is left to report.
async fn quiet(home: &ControlPlane) -> Result<()> {
    let mut last = (0, Stopwatch::start());
    wait::until(SHARE_DEADLINE, "the fleet to be idle", async || {
        let log = Log::of(home)?;
        let writes = log.writes("members").len() + log.writes("shardmaps").len();
        if writes != last.0 {
            last = (writes, Stopwatch::start());
        }
        Ok((last.1.elapsed() > REPORTED_WITHIN).then_some(()))
    })
    .await
}

/// No Lease, neither those of the members nor the coordinator's, was written more often than its
/// renewal interval allows. Over many renewals it does not matter how long each took to arrive.
fn paced(writes: &[&AuditEvent]) -> Result<()> {
    let mut by_lease: BTreeMap<&str, Vec<Timestamp>> = BTreeMap::new();
    for write in writes {
        by_lease.entry(write.name()).or_default().push(write.received);
    }
    ensure!(by_lease.len() == MEMBERS + 1, "{} Leases were written", by_lease.len());
    let earliest = LeaseTimings::default().renew_interval * EARLIEST_PERMILLE / 1_000;
    for (lease, times) in by_lease {
        let [first, .., last] = times[..] else { continue };
        let span = Duration::try_from(last.duration_since(first))?;
        let most = span.div_duration_f64(earliest) + 2.0;
        ensure!(
            (times.len() as f64) <= most,
            "{lease} was renewed {} times in {span:?}",
            times.len()
        );
    }
    Ok(())
}

/// No object is large, as a client gets it, with its managedFields.
async fn sizes(home: &ControlPlane) -> Result<()> {
    for kind in ["leases", "members", "shardmaps"] {
        let items = kubectl::list(&home.client, &home::path(kind)).await?;
        let sizes = items.iter().map(|item| item.to_string().len());
        let (largest, sum) = sizes.fold((0, 0), |(max, sum), size| (max.max(size), sum + size));
        println!("{kind}: {} objects, {sum} bytes, the largest {largest}", items.len());
        ensure!(largest <= MAX_OBJECT_BYTES, "one of {kind} has {largest} bytes");
    }
    Ok(())
}

/// No ShardMap was ever written without a change.
fn only_changes(home: &ControlPlane) -> Result<()> {
    let log = Log::of(home)?;
    let writes = log.writes("shardmaps");
    let mut last: BTreeMap<&str, &Value> = BTreeMap::new();
    for write in writes.iter().filter(|write| write.verb != "delete") {
        let spec = &write.object()["spec"];
        let before = last.insert(write.name(), spec);
        ensure!(before != Some(spec), "{} was written without a change", write.name());
    }
    println!("{} writes of {} ShardMaps, each a change", writes.len(), last.len());
    ensure!(last.len() == MANY_CLUSTERS, "{} clusters have a ShardMap", last.len());
    Ok(())
}

/// Members die. Others take over their shards with one write for each ShardMap, and after a while
/// the Leases and Members of the dead are gone.
async fn deaths(home: &ControlPlane, fleet: &mut Fleet) -> Result<()> {
    let before = Log::of(home)?.writes("shardmaps").len();
    fleet.members.truncate(MEMBERS - VICTIMS);
    let watch = Stopwatch::start();
    fleet.shares(MANY_CLUSTERS * GROUPS).await?;
    let writes = Log::of(home)?.writes("shardmaps").len() - before;
    println!("{VICTIMS} members died; others had their shards after {watch}, {writes} writes");
    ensure!(
        writes <= MANY_CLUSTERS * VICTIMS,
        "{writes} writes are more than one for each ShardMap and victim"
    );
    let left = wait::until(COLLECT_DEADLINE, "the dead to be collected", async || {
        let leases = kubectl::list(&home.client, &home::path("leases")).await?.len();
        let members = kubectl::list(&home.client, &home::path("members")).await?.len();
        let alive = fleet.members.len();
        Ok((leases == alive + 1 && members == alive).then_some((leases, members)))
    })
    .await
    .context("Leases and Members of dead members remain")?;
    println!("{} Leases and {} Members are left after {watch}", left.0, left.1);
    only_changes(home)
}
