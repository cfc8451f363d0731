//! The conductor: the one task that owns what runs where. It follows ownership and clusters, has
//! [`Shards`] decide, and carries the steps out.
//!
//! # Invariants
//! - S1, S2: a shard's keys enter the queue only under a tenure made from a holding, leave it only
//!   while the queue's route for that tenure is open, and are run only under a permit for it.
//! - A shard's keys are given out to a controller only after each of its kinds holds all that the
//!   shard needs of it, and has told of it: a range gained later is listed first, too.
//! - What a shard needs stays cached until the last run of it has ended, and longer than until its
//!   successors here are started: a split, or a merge, lists nothing that was held.
//! - Everything of a shard is cancelled in the same step in which it is found to be lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{
    Clock, ClusterName, ClusterSet, ControllerName, Epoch, GroupName, MemberId, Moment, ObjectKey,
    OwnedShards, Ownership, ShardId,
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Span;

use crate::cache::{Entry, LocalKey};
use crate::controller::{ControllerSpec, Source};
use crate::feed::Feed;
use crate::informer::{Informer, Target};
use crate::lookup::CacheView;
use crate::meter::{Meter, Slices};
use crate::metrics::{ControllerMetrics, Metrics};
#[cfg(feature = "planted")]
use crate::planted::{self, Planted};
use crate::queue::core::Priority;
use crate::queue::{Routed, WorkQueue};
use crate::registry::Informers;
use crate::shards::{Shards, Step};
use crate::status::Board;
use crate::tenure::{Site, Tenure};
use crate::transport::Transport;
use crate::upstream::gate::Gate;
use crate::upstream::{Upstream, UpstreamLimits};

/// Reports of feeds that may be outstanding; feeds wait beyond it.
const REPORTS: usize = 256;

/// See the file's text.
pub(crate) struct Conductor {
    controllers: BTreeMap<ControllerName, Controller>,
    groups: BTreeMap<GroupName, Vec<ControllerName>>,
    ownership: Arc<dyn Ownership>,
    clusters: watch::Receiver<Arc<ClusterSet>>,
    clock: Arc<dyn Clock>,
    informers: Informers,
    meter: Meter,
    metrics: Metrics,
    board: Arc<Board>,
    upstream: UpstreamLimits,
    rng: fastrand::Rng,
    shards: Shards,
    engaged: BTreeMap<ClusterName, Engaged>,
    sites: BTreeMap<(ControllerName, ClusterName), SiteState>,
    tenures: BTreeMap<(ShardId, ControllerName), Tenure>,
    reports: mpsc::Sender<Synced>,
    reported: mpsc::Receiver<Synced>,
    /// Tenures that ended in this step. Their claims go when those of others have been made.
    ended: Vec<Tenure>,
    /// Drains under way.
    drains: TaskTracker,
    next_site: u64,
}

/// What the conductor works with.
pub(crate) struct Parts {
    pub(crate) ownership: Arc<dyn Ownership>,
    pub(crate) clusters: watch::Receiver<Arc<ClusterSet>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) informers: Informers,
    pub(crate) meter: Meter,
    pub(crate) metrics: Metrics,
    pub(crate) board: Arc<Board>,
    pub(crate) upstream: UpstreamLimits,
    pub(crate) rng: fastrand::Rng,
}

struct Controller {
    spec: ControllerSpec,
    queue: Arc<WorkQueue>,
    metrics: ControllerMetrics,
}

struct Engaged {
    incarnation: u64,
    transport: Transport,
    /// The same, for informers.
    client: kube::Client,
}

struct SiteState {
    id: u64,
    site: Arc<Site>,
    /// For each source, the number of the last claim that is met.
    met: Vec<u64>,
}

impl SiteState {
    /// Whether everything that a tenure claims is there.
    fn is_met(&self, tenure: &Tenure) -> bool {
        self.met.iter().zip(tenure.claims.iter()).all(|(met, claimed)| *met >= claimed.number())
    }
}

/// A feed has queued everything that the claims up to a number cover.
struct Synced {
    controller: ControllerName,
    cluster: ClusterName,
    site: u64,
    source: usize,
    met: u64,
}

impl std::fmt::Debug for Conductor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conductor").field("shards", &self.shards).finish_non_exhaustive()
    }
}

impl Conductor {
    pub(crate) fn new(
        controllers: impl Iterator<
            Item = (GroupName, ControllerSpec, Arc<WorkQueue>, ControllerMetrics),
        >,
        parts: Parts,
    ) -> Self {
        let Parts { ownership, clusters, clock, informers, meter, metrics, board, .. } = parts;
        let mut groups: BTreeMap<GroupName, Vec<ControllerName>> = BTreeMap::new();
        let mut by_name = BTreeMap::new();
        for (group, spec, queue, metrics) in controllers {
            groups.entry(group).or_default().push(spec.name.clone());
            by_name.insert(spec.name.clone(), Controller { spec, queue, metrics });
        }
        let (reports, reported) = mpsc::channel(REPORTS);
        Self {
            controllers: by_name,
            groups,
            ownership,
            clusters,
            clock,
            informers,
            meter,
            metrics,
            board,
            upstream: parts.upstream,
            rng: parts.rng,
            shards: Shards::default(),
            engaged: BTreeMap::new(),
            sites: BTreeMap::new(),
            tenures: BTreeMap::new(),
            reports,
            reported,
            ended: Vec::new(),
            drains: TaskTracker::new(),
            next_site: 0,
        }
    }

    /// Follows ownership and clusters until `shutdown`, then stops everything.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        let mut owned = self.ownership.watch();
        loop {
            let holdings = Arc::clone(&owned.borrow_and_update());
            let clusters = Arc::clone(&self.clusters.borrow_and_update());
            self.follow(&holdings, &clusters);
            self.board.set_running(true);
            loop {
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return self.shut_down().await,
                    Ok(()) = owned.changed() => break,
                    Ok(()) = self.clusters.changed() => break,
                    Some(synced) = self.reported.recv() => self.synced(&synced),
                }
            }
        }
    }

    fn follow(&mut self, owned: &OwnedShards, clusters: &ClusterSet) {
        let incarnations = clusters.engaged().map(|c| (c.name.clone(), c.incarnation)).collect();
        let groups: BTreeSet<_> = self.groups.keys().cloned().collect();
        let steps = self.shards.plan(owned, &incarnations, &groups);
        // Stops come first and still belong to the clusters as they were.
        let (stops, others): (Vec<_>, Vec<_>) =
            steps.into_iter().partition(|step| matches!(step, Step::Stop { .. }));
        self.carry_out(stops);
        self.engage(clusters);
        self.carry_out(others);
        self.ended.clear();
        for (name, controller) in &self.controllers {
            let sites = self.sites.keys().filter(|(site, _)| site == name).count();
            let running = sites * controller.spec.workers;
            controller.metrics.max_concurrent.set(i64::try_from(running).unwrap_or(i64::MAX));
        }
    }

    /// Makes the clients of newly engaged clusters and drops those of clusters that are gone.
    fn engage(&mut self, clusters: &ClusterSet) {
        let metrics = &self.metrics;
        self.engaged.retain(|name, engaged| {
            let present = clusters.get(name);
            if !clusters.clusters.contains_key(name) {
                metrics.forget_cluster(name);
            }
            present.is_some_and(|cluster| cluster.incarnation == engaged.incarnation)
        });
        for cluster in clusters.engaged() {
            self.engaged.entry(cluster.name.clone()).or_insert_with(|| {
                let (clock, rng) = (Arc::clone(&self.clock), self.rng.fork());
                let upstream = Upstream::Cluster(cluster.name.clone());
                let gate = Gate::new(upstream, &self.upstream, clock, rng);
                self.board.watch_gate(&cluster.name, &gate);
                let metrics = self.metrics.rest(&cluster.name);
                let clock = Arc::clone(&self.clock);
                let transport = Transport::new(cluster, gate, metrics, clock);
                let client = transport.client();
                Engaged { incarnation: cluster.incarnation, transport, client }
            });
        }
    }

    fn carry_out(&mut self, steps: Vec<Step>) {
        for step in steps {
            tracing::debug!(?step, "shard step");
            match step {
                Step::Start { shard, epoch, member } => self.start(&shard, epoch, &member),
                Step::Open { shard } => self.open(&shard),
                Step::Drain { shard, epoch, deadline } => self.drain(&shard, epoch, deadline),
                Step::Stop { shard } => self.stop(&shard),
            }
        }
    }

    fn start(&mut self, shard: &ShardId, epoch: Epoch, member: &MemberId) {
        let (slices, account) = self.meter.open(shard);
        for name in self.groups.get(&shard.group).cloned().unwrap_or_default() {
            let existing = self.sites.get(&(name.clone(), shard.cluster.clone()));
            let existing = existing.map(|state| Arc::clone(&state.site));
            let (site, begun) = match existing {
                Some(site) => (site, false),
                None => match self.make_site(&name, &shard.cluster) {
                    Some(site) => (site, true),
                    None => continue,
                },
            };
            let claims = site.claim(&self.controllers[&name].spec.sources, shard.range);
            let tenure = Tenure {
                member: member.clone(),
                shard: shard.clone(),
                epoch,
                site,
                claims,
                account: Arc::clone(&account),
                cancel: CancellationToken::new(),
            };
            let queue = Arc::clone(&self.controllers[&name].queue);
            queue.warm(tenure.clone());
            if begun {
                // The feeds will queue everything, now that there is a route for it.
                self.begin_feeds(&name, &shard.cluster, &slices);
            } else {
                tokio::spawn(enqueue_all(queue, tenure.clone()));
            }
            self.tenures.insert((shard.clone(), name), tenure);
        }
    }

    /// Acquires the informers of a controller in a cluster.
    fn make_site(&mut self, name: &ControllerName, cluster: &ClusterName) -> Option<Arc<Site>> {
        let engaged = self.engaged.get(cluster)?;
        let sources = &self.controllers[name].spec.sources;
        let informers: Vec<Arc<Informer>> = sources
            .iter()
            .map(|source| {
                let target = Target {
                    cluster: cluster.clone(),
                    incarnation: engaged.incarnation,
                    kind: source.kind.clone(),
                    scope: source.scope.clone(),
                };
                self.informers.acquire(target, &engaged.client)
            })
            .collect();
        let stores = sources.iter().zip(&informers);
        let stores =
            stores.map(|(source, informer)| (source.kind.clone(), informer.store().clone()));
        let view = CacheView::new(stores.collect());
        let site = Arc::new(Site::new(view, informers.clone(), engaged.transport.clone()));
        self.next_site += 1;
        let met = vec![0; sources.len()];
        let state = SiteState { id: self.next_site, site: Arc::clone(&site), met };
        self.sites.insert((name.clone(), cluster.clone()), state);
        Some(site)
    }

    fn begin_feeds(&self, name: &ControllerName, cluster: &ClusterName, slices: &Arc<Slices>) {
        let Some(state) = self.sites.get(&(name.clone(), cluster.clone())) else { return };
        let shared = state.site.informers.iter().map(|informer| informer.shared());
        slices.read_from(shared.map(|shared| (shared.target.clone(), shared.store.clone())));
        let controller = &self.controllers[name];
        let sources = controller.spec.sources.iter().zip(&state.site.informers);
        for (index, (source, informer)) in sources.enumerate() {
            let Source { kind, role, .. } = source;
            let feed = Feed {
                cluster: cluster.clone(),
                informer: Arc::clone(informer),
                role: role.clone(),
                view: Arc::clone(&state.site.view),
                primary: state.site.primary().clone(),
                queue: Arc::clone(&controller.queue),
                slices: Arc::clone(slices),
                clock: Arc::clone(&self.clock),
                latency: self.metrics.informer(cluster, kind).latency,
            };
            let (site, reports) = (state.id, self.reports.clone());
            let (controller, cluster) = (name.clone(), cluster.clone());
            let report = async move |met| {
                let (controller, cluster) = (controller.clone(), cluster.clone());
                let synced = Synced { controller, cluster, site, source: index, met };
                // Fails only if the conductor is gone, and then nobody waits for it.
                drop(reports.send(synced).await);
            };
            let stop = state.site.stop().clone();
            tokio::spawn(async move { stop.run_until_cancelled_owned(feed.run(report)).await });
        }
    }

    fn synced(&mut self, synced: &Synced) {
        let site = (synced.controller.clone(), synced.cluster.clone());
        let Some(state) = self.sites.get_mut(&site) else { return };
        if state.id != synced.site {
            return;
        }
        state.met[synced.source] = synced.met;
        let queue = &self.controllers[&synced.controller].queue;
        for ((shard, name), tenure) in &self.tenures {
            if *name == synced.controller
                && shard.cluster == synced.cluster
                && self.shards.is_active(shard)
                && state.is_met(tenure)
            {
                queue.open(tenure);
            }
        }
    }

    fn open(&self, shard: &ShardId) {
        for (name, tenure) in self.tenures_of(shard) {
            let site = self.sites.get(&(name.clone(), shard.cluster.clone()));
            if site.is_some_and(|state| state.is_met(tenure)) {
                self.controllers[name].queue.open(tenure);
            }
        }
    }

    fn tenures_of(&self, shard: &ShardId) -> impl Iterator<Item = (&ControllerName, &Tenure)> {
        let controllers = self.controllers.keys();
        let of_shard = move |name| {
            Some((name, self.tenures.get(&(shard.clone(), ControllerName::clone(name)))?))
        };
        controllers.filter_map(of_shard)
    }

    /// Closes dispatch and purges at once; the waiting happens on a task of its own.
    fn drain(&self, shard: &ShardId, epoch: Epoch, deadline: Moment) {
        let queues: Vec<_> = self.controllers.values().map(|c| Arc::clone(&c.queue)).collect();
        for queue in &queues {
            queue.close(shard);
        }
        let cancels = self.tenures_of(shard).map(|(_, tenure)| tenure.cancel.clone()).collect();
        let drain = Drain {
            shard: shard.clone(),
            epoch,
            deadline,
            clock: Arc::clone(&self.clock),
            queues,
            cancels,
            ownership: Arc::clone(&self.ownership),
        };
        self.drains.spawn(drain.run());
    }

    /// Cancels everything of a shard, and lets go of what only it needed.
    fn stop(&mut self, shard: &ShardId) {
        self.meter.close(shard);
        for (name, controller) in &self.controllers {
            controller.queue.close(shard);
            if let Some(tenure) = self.tenures.remove(&(shard.clone(), name.clone())) {
                #[cfg(feature = "planted")]
                if planted::is(Planted::RunOnWithoutShard) {
                    continue;
                }
                tenure.cancel.cancel();
                self.ended.push(tenure);
            }
        }
        let used: BTreeSet<_> = self.tenures.keys().map(|(s, name)| (name, &s.cluster)).collect();
        self.sites.retain(|(name, cluster), state| {
            let stays = used.contains(&(name, cluster));
            if !stays {
                state.site.stop().cancel();
            }
            stays
        });
    }

    async fn shut_down(mut self) {
        self.board.set_running(false);
        for shard in self.tenures.keys().map(|(shard, _)| shard.clone()).collect::<BTreeSet<_>>() {
            self.stop(&shard);
        }
        self.ended.clear();
        self.drains.close();
        self.drains.wait().await;
    }
}

/// A drain under way.
struct Drain {
    shard: ShardId,
    epoch: Epoch,
    deadline: Moment,
    clock: Arc<dyn Clock>,
    queues: Vec<Arc<WorkQueue>>,
    cancels: Vec<CancellationToken>,
    ownership: Arc<dyn Ownership>,
}

impl Drain {
    /// Waits for what runs, cancels it at the deadline, waits for its writes, acknowledges.
    async fn run(self) {
        let Self { shard, epoch, deadline, clock, queues, cancels, ownership } = self;
        let idle = async || {
            for queue in &queues {
                queue.idle(&shard).await;
            }
        };
        #[cfg(feature = "planted")]
        if planted::is(Planted::AcknowledgeEarly) {
            return ownership.acknowledge_drain(&shard, epoch);
        }
        let is_late = tokio::select! {
            biased;
            () = idle() => false,
            () = clock.sleep_until(deadline) => true,
        };
        if is_late {
            tracing::warn!(%shard, %epoch, "the drain is past its deadline, cancelling");
            for cancel in cancels {
                cancel.cancel();
            }
            // A key counts as running until its writes are done: this is the write barrier.
            idle().await;
        }
        ownership.acknowledge_drain(&shard, epoch);
        tracing::info!(%shard, %epoch, "drained");
    }
}

/// Queues every primary object of a shard whose feeds run already.
async fn enqueue_all(queue: Arc<WorkQueue>, tenure: Tenure) {
    let cluster = &tenure.shard.cluster;
    let all: Vec<Arc<Entry>> = tenure.site.primary().list(None, &crate::Selector::all());
    let ours = all.iter().filter(|entry| tenure.shard.range.contains(entry.header.hash()));
    let keys: Vec<Routed> = ours
        .map(|entry| {
            let LocalKey { namespace, name } = &entry.header.key;
            let key = ObjectKey::new(cluster.clone(), namespace.as_deref(), name);
            (key, Some(entry.header.hash()))
        })
        .collect();
    queue.add(&keys, Priority::Initial, &Span::none()).await;
}
