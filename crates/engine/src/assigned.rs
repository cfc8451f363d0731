//! The assignments of one controller, for readers outside the supervisor: triggers, mappings across
//! clusters, and reconciles that work in several clusters.
//!
//! Only the supervisor writes here, in the step in which it begins or ends an assignment. A reader may
//! hold an assignment a little longer. That does no harm: the queue drops the keys of a closed shard,
//! and the fence refuses writes for a lost one.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use model::{ClusterName, ObjectKey, Range, Selector, ShardId};
use queue::Priority;
use tracing::Span;

use crate::assignment::{Assignment, AssignmentQueue, ClusterContext};
use crate::view::{CacheView, FleetCaches};
use cache::Entry;

/// The assignments of one controller, by cluster.
#[derive(Debug, Default)]
pub(crate) struct Assigned(RwLock<BTreeMap<ClusterName, Vec<Arc<Assignment>>>>);

impl Assigned {
    /// Adds an assignment. One of the same shard is replaced.
    pub(crate) fn begin(&self, assignment: &Arc<Assignment>) {
        let shard = &assignment.shard;
        let mut all = self.0.write().expect("no holder of this lock panics");
        let of_cluster = all.entry(shard.cluster.clone()).or_default();
        of_cluster.retain(|present| present.shard != *shard);
        of_cluster.push(Arc::clone(assignment));
    }

    /// Removes the assignment of a shard.
    pub(crate) fn end(&self, shard: &ShardId) {
        let mut all = self.0.write().expect("no holder of this lock panics");
        let Some(of_cluster) = all.get_mut(&shard.cluster) else { return };
        of_cluster.retain(|present| present.shard != *shard);
        if of_cluster.is_empty() {
            all.remove(&shard.cluster);
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<Assignment>> {
        self.read(|all| all.values().flatten().cloned().collect())
    }

    /// The one that covers a whole cluster.
    pub(crate) fn whole(&self, cluster: &ClusterName) -> Option<Arc<Assignment>> {
        self.read(|all| {
            let mut of_cluster = all.get(cluster)?.iter();
            of_cluster.find(|assignment| assignment.shard.range == Range::WHOLE).cloned()
        })
    }

    /// The controller's presence in a cluster: the newest, because what drains may have an earlier one.
    pub(crate) fn context(&self, cluster: &ClusterName) -> Option<Arc<ClusterContext>> {
        self.read(|all| Some(Arc::clone(&all.get(cluster)?.last()?.context)))
    }

    /// The cached primary object of a key.
    pub(crate) fn primary(&self, key: &ObjectKey) -> Option<Arc<Entry>> {
        let context = self.context(&key.cluster)?;
        context.primary().iter().find_map(|store| store.get(key.namespace.as_deref(), &key.name))
    }

    fn read<T>(&self, look: impl FnOnce(&BTreeMap<ClusterName, Vec<Arc<Assignment>>>) -> T) -> T {
        look(&self.0.read().expect("no holder of this lock panics"))
    }
}

impl FleetCaches for Assigned {
    fn clusters(&self) -> Vec<ClusterName> {
        self.read(|all| all.keys().cloned().collect())
    }

    fn caches(&self, cluster: &ClusterName) -> Option<Arc<CacheView>> {
        Some(Arc::clone(&self.context(cluster)?.view))
    }
}

/// Queues every primary object of an assignment.
pub(crate) async fn enqueue_all(
    queue: Arc<AssignmentQueue>,
    assignment: Arc<Assignment>,
    priority: Priority,
) {
    for store in assignment.context.primary() {
        let keys = assignment.keys(&store.list(None, &Selector::all()));
        queue.add(&keys, priority, &Span::none()).await;
    }
}
