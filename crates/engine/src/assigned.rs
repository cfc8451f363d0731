//! The assignments of one controller, for readers outside the supervisor: triggers, mappings across
//! clusters, and reconciles that work in several clusters.
//!
//! Only the supervisor writes here, in the step in which it begins or ends an assignment. A reader may
//! hold an assignment a little longer. That does no harm: the queue drops the keys of a closed shard,
//! and the fence refuses writes for a lost one.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use model::{ClusterName, ObjectKey, Range, Selector, ShardId};
use queue::{Priority, containing};
use tracing::Span;

use crate::assignment::{Assignment, AssignmentQueue, ClusterContext, keys};
use crate::view::{CacheView, FleetCaches};
use cache::Entry;

/// The assignments of one controller.
#[derive(Debug, Default)]
pub(crate) struct Assigned(RwLock<All>);

#[derive(Debug, Default)]
struct All {
    /// By cluster, and there in the order in which they began.
    in_order: BTreeMap<(ClusterName, u64), Arc<Assignment>>,
    /// The number of each. A controller's shards are of one group, so a range of a cluster is one shard.
    numbers: BTreeMap<(ClusterName, Range), u64>,
    last: u64,
}

impl All {
    fn take(&mut self, shard: &ShardId) {
        let range = (shard.cluster.clone(), shard.range);
        let Some(number) = self.numbers.get(&range).copied() else { return };
        let place = (shard.cluster.clone(), number);
        if self.in_order.get(&place).is_some_and(|present| present.shard == *shard) {
            self.in_order.remove(&place);
            self.numbers.remove(&range);
        }
    }
}

impl Assigned {
    /// Adds an assignment. One of the same shard is replaced.
    pub(crate) fn begin(&self, assignment: &Arc<Assignment>) {
        let shard = &assignment.shard;
        let mut all = self.0.write().expect("no holder of this lock panics");
        all.take(shard);
        all.last += 1;
        let number = all.last;
        all.numbers.insert((shard.cluster.clone(), shard.range), number);
        all.in_order.insert((shard.cluster.clone(), number), Arc::clone(assignment));
    }

    /// Removes the assignment of a shard.
    pub(crate) fn end(&self, shard: &ShardId) {
        self.0.write().expect("no holder of this lock panics").take(shard);
    }

    /// All of them, those of a cluster one after the other.
    pub(crate) fn all(&self) -> Vec<Arc<Assignment>> {
        self.read(|all| all.in_order.values().cloned().collect())
    }

    /// The one that covers a whole cluster.
    pub(crate) fn whole(&self, cluster: &ClusterName) -> Option<Arc<Assignment>> {
        self.read(|all| {
            let number = *all.numbers.get(&(cluster.clone(), Range::WHOLE))?;
            all.in_order.get(&(cluster.clone(), number)).cloned()
        })
    }

    /// The controller's presence in a cluster: the newest, because what drains may have an earlier one.
    pub(crate) fn context(&self, cluster: &ClusterName) -> Option<Arc<ClusterContext>> {
        self.read(|all| {
            let of_cluster = (cluster.clone(), 0)..=(cluster.clone(), u64::MAX);
            let (_, newest) = all.in_order.range(of_cluster).next_back()?;
            Some(Arc::clone(&newest.context))
        })
    }

    /// The cached primary object of a key.
    pub(crate) fn primary(&self, key: &ObjectKey) -> Option<Arc<Entry>> {
        let context = self.context(&key.cluster)?;
        context.primary().iter().find_map(|store| store.get(key.namespace.as_deref(), &key.name))
    }

    fn read<T>(&self, look: impl FnOnce(&All) -> T) -> T {
        look(&self.0.read().expect("no holder of this lock panics"))
    }
}

impl FleetCaches for Assigned {
    fn clusters(&self) -> Vec<ClusterName> {
        self.read(|all| {
            let mut clusters: Vec<_> = all.in_order.keys().map(|(c, _)| c.clone()).collect();
            clusters.dedup();
            clusters
        })
    }

    fn caches(&self, cluster: &ClusterName) -> Option<Arc<CacheView>> {
        Some(Arc::clone(&self.context(cluster)?.view))
    }
}

/// Queues every primary object of assignments that share a cluster's caches, which are read once for all of them.
pub(crate) async fn enqueue_all(
    queue: Arc<AssignmentQueue>,
    assignments: Vec<Arc<Assignment>>,
    priority: Priority,
) {
    let Some(first) = assignments.first() else { return };
    let by_range: BTreeMap<_, ()> =
        assignments.iter().map(|assignment| (assignment.shard.range, ())).collect();
    let is_ours = |hash| containing(&by_range, hash).next().is_some();
    for store in first.context.primary() {
        let entries = store.list(None, &Selector::all());
        let keys = keys(&first.shard.cluster, &entries, is_ours);
        queue.add(&keys, priority, &Span::none()).await;
    }
}

#[cfg(test)]
mod tests {
    use model::testing::PausedClock;
    use model::{Clock, Cluster, Epoch};
    use tokio_util::sync::CancellationToken;
    use upstream::{Gate, Upstream, UpstreamLimits};

    use super::*;
    use crate::large::LargeAnswers;
    use crate::meter::Meter;
    use crate::request::ClusterClient;
    use crate::visitors::Visitors;
    use informer::testing::server;
    use metrics::Metrics;

    /// A controller without sources in a cluster.
    fn context(cluster: &ClusterName, clock: &Arc<dyn Clock>) -> Arc<ClusterContext> {
        let metrics = Metrics::new(&prometheus::Registry::new(), Arc::default()).unwrap();
        let (client, _) = server();
        let of = Cluster::new(cluster.clone(), client, 1);
        let (upstream, rng) = (Upstream::Cluster(cluster.clone()), fastrand::Rng::with_seed(1));
        let gate = Gate::new(upstream, &UpstreamLimits::default(), Arc::clone(clock), rng);
        let (rest, large) = (metrics.rest(cluster), LargeAnswers::default());
        let client = ClusterClient::new(&of, gate, rest, Arc::clone(clock), false, large);
        let series = metrics.clusters.hold(cluster);
        Arc::new(ClusterContext::new(&[], Vec::new(), client, series, Arc::default(), clock))
    }

    fn assignment(
        shard: &ShardId,
        epoch: u64,
        context: &Arc<ClusterContext>,
        meter: &Meter,
    ) -> Arc<Assignment> {
        Arc::new(Assignment {
            member: "m-1".parse().unwrap(),
            shard: shard.clone(),
            epoch: Epoch(epoch),
            context: Arc::clone(context),
            scopes: Arc::new([]),
            meter: meter.open(shard).1,
            cancel: CancellationToken::new(),
            visitors: Visitors::default(),
        })
    }

    /// What a list would answer, in which one of the same shard is replaced and the last is the newest.
    #[tokio::test(start_paused = true)]
    async fn assignments_are_found_as_in_a_list() {
        let clock: Arc<dyn Clock> = PausedClock::new();
        let meter = Meter::new(Arc::clone(&clock));
        let names: [ClusterName; 2] = ["east", "west"].map(|name| name.parse().unwrap());
        let contexts = [0, 0, 1, 1].map(|at: usize| (at, context(&names[at], &clock)));
        let (assigned, mut list) = (Assigned::default(), Vec::<Arc<Assignment>>::new());
        let mut rng = fastrand::Rng::with_seed(1);
        for epoch in 0..2_000 {
            let (of, context) = &contexts[rng.usize(..4)];
            let bits = rng.u8(..4);
            let range = Range::new(rng.u32(..1 << bits), bits).unwrap();
            let shard = ShardId { cluster: names[*of].clone(), group: "g".parse().unwrap(), range };
            list.retain(|present| present.shard != shard);
            if rng.bool() {
                let assignment = assignment(&shard, epoch, context, &meter);
                assigned.begin(&assignment);
                list.push(assignment);
            } else {
                assigned.end(&shard);
            }
            let mut all = Vec::new();
            for name in &names {
                let of_cluster = || list.iter().filter(move |one| one.shard.cluster == *name);
                all.extend(of_cluster().map(|one| one.epoch));
                let newest = of_cluster().next_back().map(|one| Arc::as_ptr(&one.context));
                assert_eq!(assigned.context(name).map(|one| Arc::as_ptr(&one)), newest);
                let whole = of_cluster().find(|one| one.shard.range == Range::WHOLE);
                let found = assigned.whole(name).map(|one| one.epoch);
                assert_eq!(found, whole.map(|one| one.epoch));
                assert_eq!(assigned.clusters().contains(name), newest.is_some());
            }
            let found: Vec<_> = assigned.all().iter().map(|one| one.epoch).collect();
            assert_eq!(found, all);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ten_thousand_ranges_of_a_cluster_begin_and_end() {
        let clock: Arc<dyn Clock> = PausedClock::new();
        let meter = Meter::new(Arc::clone(&clock));
        let cluster: ClusterName = "east".parse().unwrap();
        let context = context(&cluster, &clock);
        let assigned = Assigned::default();
        let shard = |index| ShardId {
            cluster: cluster.clone(),
            group: "g".parse().unwrap(),
            range: Range::new(index, 14).unwrap(),
        };
        for index in 0..10_000 {
            assigned.begin(&assignment(&shard(index), 1, &context, &meter));
        }
        assert_eq!((assigned.all().len(), assigned.clusters()), (10_000, vec![cluster.clone()]));
        for index in 0..10_000 {
            assigned.end(&shard(index));
        }
        assert!(assigned.all().is_empty() && assigned.context(&cluster).is_none());
    }
}
