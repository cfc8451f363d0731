//! What a large fleet costs its home cluster: ten members share a thousand clusters of ten groups,
//! and the API server's audit log and metrics tell what they write while nothing happens, and when
//! two of them die.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use leasehold::clock::SystemClock;
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

use crate::real::control_plane::ControlPlane;
use crate::real::manager::NAMESPACE;
use crate::real::traffic::{self, Written};
use crate::real::wait::{self, Stopwatch};
use crate::real::{Scene, kubectl};

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
/// How long the fleet is watched doing nothing new.
const IDLE: Duration = Duration::from_secs(30);
/// How long after a shard was gained its load may still be told for the first time.
const TOLD_WITHIN: Duration = Duration::from_secs(60);
const SHARE_DEADLINE: Duration = Duration::from_secs(600);
/// Longer than by default, with the default's interval of renewal: all members share one machine
/// with the servers, and a Lease that runs out for want of processors would be no idleness.
const LEASE: Duration = Duration::from_secs(30);
/// The dead are shown for a minute after their Leases were taken.
const COLLECT_DEADLINE: Duration = Duration::from_secs(180);
/// A renewal comes at most a tenth before its interval ends.
const EARLIEST_PERMILLE: u32 = 900;

/// The fleet, on threads of its own: in a real one no member waits for another.
struct Fleet {
    // Taken by `drop`: a runtime must not end inside another by waiting.
    runtime: Option<Runtime>,
    clusters: watch::Sender<Arc<ClusterSet>>,
    members: Vec<Replica>,
}

/// Counters of shards that are all alike, at work without a pause.
#[derive(Debug, Default)]
struct Steady {
    owned: OnceLock<watch::Receiver<Arc<OwnedShards>>>,
}

/// A member with the least of an engine, which acknowledges each drain at once.
struct Replica {
    sharding: Sharding,
    _engine: AbortOnDropHandle<()>,
}

/// Does it.
pub async fn run(scene: &Scene) -> Result<()> {
    let home = ControlPlane::local(scene, "home").await?;
    home.kubectl.apply_path(&xtask::root().join("deploy/charts/leasehold/crds")).await?;
    home.kubectl.established().await?;
    home.kubectl.run(&["create", "namespace", NAMESPACE]).await?;

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

/// What one member holds, and what it holds that is on its way.
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

    /// Nobody connects to a workload cluster here, so any client will do.
    fn configure(&self, home: &ControlPlane, count: usize) -> Result<()> {
        let mut clusters = BTreeMap::new();
        for number in 0..count {
            let name: model::ClusterName = format!("cluster-{number:04}").parse()?;
            let cluster = Cluster::new(name.clone(), home.client.clone(), 1);
            clusters.insert(name, ClusterState::Engaged(cluster));
        }
        self.clusters.send_replace(Arc::new(ClusterSet { clusters }));
        Ok(())
    }

    /// Waits until the members hold so many shards together, and none is on its way.
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
        outcome.with_context(|| format!("at last: {last:?}"))
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

/// What a fleet writes whose work is steady: renewals, and nothing else.
async fn idle_cost(home: &ControlPlane, clusters: usize) -> Result<()> {
    // What the change of a moment ago leaves to be told is no idleness.
    quiet(home).await?;
    let resources = ["leases", "members", "shardmaps"];
    let mut before = [0.0; 3];
    for (bytes, resource) in before.iter_mut().zip(resources) {
        *bytes = traffic::body_bytes(&home.client, resource).await?;
    }
    let mut counted = [0; 3];
    for (count, resource) in counted.iter_mut().zip(resources) {
        *count = traffic::writes(&home.audit_log(), resource)?.len();
    }
    let watch = Stopwatch::start();
    tokio::time::sleep(IDLE).await;
    let seconds = watch.elapsed().as_secs_f64();
    println!("{clusters} clusters, idle for {seconds:.0} s:");
    let mut sum = 0.0;
    for ((resource, before), counted) in resources.into_iter().zip(before).zip(counted) {
        let all = traffic::writes(&home.audit_log(), resource)?;
        let fresh = &all[counted..];
        let bytes = (traffic::body_bytes(&home.client, resource).await? - before) / seconds;
        let rate = fresh.len() as f64 / seconds;
        println!("  {resource:10}{:5} writes, {rate:5.2}/s, {bytes:6.0} bytes/s", fresh.len());
        sum += bytes;
        if resource == "leases" {
            paced(fresh)?;
        } else {
            ensure!(fresh.is_empty(), "{} {resource} were written in an idle fleet", fresh.len());
        }
    }
    println!("  in all    {sum:.0} bytes/s");
    Ok(())
}

/// Waits until nothing but Leases was written for so long that nothing is left to be told.
async fn quiet(home: &ControlPlane) -> Result<()> {
    let mut last = (0, Stopwatch::start());
    wait::until(SHARE_DEADLINE, "the fleet to be idle", async || {
        let members = traffic::writes(&home.audit_log(), "members")?.len();
        let writes = members + traffic::writes(&home.audit_log(), "shardmaps")?.len();
        if writes != last.0 {
            last = (writes, Stopwatch::start());
        }
        Ok((last.1.elapsed() > TOLD_WITHIN).then_some(()))
    })
    .await
}

/// Each Lease was written no oftener than its interval of renewal has it: one for each member, and
/// the coordinator's. Over many renewals it does not matter how long each took to arrive.
fn paced(writes: &[Written]) -> Result<()> {
    let mut by_lease: BTreeMap<&str, Vec<Timestamp>> = BTreeMap::new();
    for write in writes {
        by_lease.entry(&write.name).or_default().push(write.at);
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

/// The largest object of each kind, as a client gets it, managedFields included.
async fn sizes(home: &ControlPlane) -> Result<()> {
    let kinds = [
        format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"),
        format!("/apis/leasehold.dev/v1alpha1/namespaces/{NAMESPACE}/members"),
        format!("/apis/leasehold.dev/v1alpha1/namespaces/{NAMESPACE}/shardmaps"),
    ];
    for path in kinds {
        let items = kubectl::list(&home.client, &path).await?;
        let sizes = items.iter().map(|item| item.to_string().len());
        let (largest, sum) = sizes.fold((0, 0), |(max, sum), size| (max.max(size), sum + size));
        let kind = path.rsplit('/').next().unwrap_or_default();
        println!("{kind}: {} objects, {sum} bytes, the largest {largest}", items.len());
        ensure!(largest <= MAX_OBJECT_BYTES, "one of {kind} has {largest} bytes");
    }
    Ok(())
}

/// No ShardMap was ever written as it was before.
fn only_changes(home: &ControlPlane) -> Result<()> {
    let writes = traffic::writes(&home.audit_log(), "shardmaps")?;
    let mut last: BTreeMap<&str, &Value> = BTreeMap::new();
    for write in writes.iter().filter(|write| write.verb != "delete") {
        let spec = &write.object["spec"];
        let before = last.insert(&write.name, spec);
        ensure!(before != Some(spec), "{} was written without a change", write.name);
    }
    println!("{} writes of {} ShardMaps, each a change", writes.len(), last.len());
    ensure!(last.len() == MANY_CLUSTERS, "{} clusters have a ShardMap", last.len());
    Ok(())
}

/// Members die; what they had is taken over by one write for each ShardMap, and after a while
/// nothing is left of them.
async fn deaths(home: &ControlPlane, fleet: &mut Fleet) -> Result<()> {
    let before = traffic::writes(&home.audit_log(), "shardmaps")?.len();
    fleet.members.truncate(MEMBERS - VICTIMS);
    let watch = Stopwatch::start();
    fleet.shares(MANY_CLUSTERS * GROUPS).await?;
    let writes = traffic::writes(&home.audit_log(), "shardmaps")?.len() - before;
    println!("{VICTIMS} members died; others had their shards after {watch}, {writes} writes");
    ensure!(
        writes <= MANY_CLUSTERS * VICTIMS,
        "{writes} writes are more than one for each ShardMap and victim"
    );
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases");
    let members = format!("/apis/leasehold.dev/v1alpha1/namespaces/{NAMESPACE}/members");
    let left = wait::until(COLLECT_DEADLINE, "the dead to be collected", async || {
        let leases = kubectl::list(&home.client, &leases).await?.len();
        let members = kubectl::list(&home.client, &members).await?.len();
        let alive = fleet.members.len();
        Ok((leases == alive + 1 && members == alive).then_some((leases, members)))
    })
    .await
    .context("Leases and Members of the dead stay")?;
    println!("{} Leases and {} Members are left after {watch}", left.0, left.1);
    only_changes(home)
}
