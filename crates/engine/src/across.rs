//! Mappings across clusters: an object of one cluster concerns keys of others. Those of objects that
//! are cached already are queued here; the event handlers queue those of later changes.
//!
//! A key of another cluster may name an object that does not exist there. Opening a shard queues only
//! the primary objects that exist, so nothing else would queue such a key. The caches are scanned at
//! two moments:
//! - *A cluster opens*: its caches are complete. Each of its objects is mapped, for all clusters.
//! - *A cluster is gained*: it can have keys from now on. Each object of the open clusters is mapped,
//!   for that cluster.
//!
//! # Why no key is missed (L2)
//! The supervisor reports both, one step after the other. Take an object of one cluster and a key of
//! another. If the first opened before the second was gained, the second scan queues the key; else the
//! first scan does. A later change is in the cache before the handlers receive it: either the scan saw
//! the change, or the handler maps it when there is a queue for the key.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use cache::{Entry, is_name};
use model::{ClusterName, ObjectKey, Selector, WeakMap};
use queue::{HashedKey, Priority};
use tracing::Span;

use crate::assigned::Assigned;
use crate::assignment::{Assignment, AssignmentQueue};
use crate::backlog::{Backlog, SETTLE_EVERY};
use crate::source::{FleetMapping, Role, Source};
use crate::view::{FleetCaches, FleetView};

/// The mappings across clusters of one controller.
#[derive(Clone)]
pub(crate) struct Across {
    /// Each mapping with the index of its source.
    mappings: Arc<[(usize, FleetMapping)]>,
    assigned: Arc<Assigned>,
    queue: Arc<AssignmentQueue>,
    /// What the keys are charged to that the objects of each cluster name, while its handlers run.
    backlogs: Arc<Mutex<WeakMap<ClusterName, Backlog>>>,
    looks: Arc<Mutex<Looks>>,
}

/// The gained clusters for which the objects of an open shard are still to be mapped, by the address of its assignment:
/// the next one, with other caches, may have its epoch too. For each entry there is one task, which holds the assignment.
type Looks = BTreeMap<usize, BTreeSet<ClusterName>>;

impl Across {
    /// Those of a controller with these sources, if it has any.
    pub(crate) fn of(
        sources: &[Source],
        assigned: &Arc<Assigned>,
        queue: &Arc<AssignmentQueue>,
    ) -> Option<Self> {
        let mappings =
            sources.iter().enumerate().filter_map(|(index, source)| match &source.role {
                Role::Across(mapping) => Some((index, Arc::clone(mapping))),
                _ => None,
            });
        let mappings: Arc<[_]> = mappings.collect();
        let (assigned, queue) = (Arc::clone(assigned), Arc::clone(queue));
        let (backlogs, looks) = (Arc::default(), Arc::default());
        (!mappings.is_empty()).then_some(Self { mappings, assigned, queue, backlogs, looks })
    }

    /// The handlers of a cluster begin, and charge its keys to this.
    pub(crate) fn begin(&self, cluster: &ClusterName, backlog: &Arc<Backlog>) {
        let mut all = self.backlogs.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(cluster.clone(), backlog);
    }

    /// What the keys of a cluster are charged to, while its handlers run.
    fn backlog(&self, cluster: &ClusterName) -> Option<Arc<Backlog>> {
        let all = self.backlogs.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(cluster)
    }

    /// The caches of a cluster are complete: queues what its objects concern.
    pub(crate) async fn opened(self, assignment: Arc<Assignment>) {
        self.look(&assignment, |_| true).await;
        self.settle(&assignment.shard.cluster).await;
    }

    /// Clusters were gained: queues what the objects of open clusters concern there. One whose objects name much
    /// elsewhere goes on slowly: none waits for another, and it looks at its objects once at a time.
    pub(crate) async fn gained(self, clusters: BTreeSet<ClusterName>) {
        for assignment in self.assigned.all() {
            if self.queue.is_open(&assignment.shard, assignment.epoch)
                && self.wants(&assignment, &clusters)
            {
                let this = self.clone();
                tokio::spawn(async move {
                    while let Some(clusters) = this.next_wanted(&assignment) {
                        this.look(&assignment, |key| clusters.contains(&key.cluster)).await;
                    }
                    this.settle(&assignment.shard.cluster).await;
                });
            }
        }
    }

    /// Notes that the objects of this shard should be mapped for these clusters. Whether no task does so yet.
    fn wants(&self, assignment: &Arc<Assignment>, clusters: &BTreeSet<ClusterName>) -> bool {
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let of = Arc::as_ptr(assignment).addr();
        let is_first = !looks.contains_key(&of);
        looks.entry(of).or_default().extend(clusters.iter().cloned());
        is_first
    }

    /// The clusters for which the objects of this shard should be mapped now; if there are none, its task ends.
    fn next_wanted(&self, assignment: &Arc<Assignment>) -> Option<BTreeSet<ClusterName>> {
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let of = Arc::as_ptr(assignment).addr();
        let wanted = std::mem::take(looks.get_mut(&of)?);
        if wanted.is_empty() {
            looks.remove(&of);
        }
        (!wanted.is_empty()).then_some(wanted)
    }

    /// Gives back what the keys were charged for, when they are done. The handlers may have nothing to do until then.
    async fn settle(&self, cluster: &ClusterName) {
        while let Some(backlog) = self.backlog(cluster)
            && backlog.is_charged()
            && backlog.begin_settling()
        {
            tokio::time::sleep(SETTLE_EVERY).await;
            backlog.end_settling();
        }
    }

    async fn look(&self, assignment: &Assignment, wanted: impl Fn(&ObjectKey) -> bool) {
        let cluster = &assignment.shard.cluster;
        for (index, mapping) in self.mappings.iter() {
            let store = assignment.context.informers[*index].state().store.clone();
            for entry in store.list(None, &Selector::all()) {
                let mut keys = keys(mapping, &entry, cluster, &self.assigned);
                keys.retain(|(key, _)| wanted(key));
                // Its handlers have ended: so has this.
                let Some(backlog) = self.backlog(cluster) else { return };
                if backlog.add(&keys, Priority::Initial, &Span::none()).await.is_err() {
                    return;
                }
                // A mapping looks at as many objects as it likes. The tasks of other clusters need the thread too.
                tokio::task::yield_now().await;
            }
        }
    }
}

/// The keys that an object of `cluster` concerns.
pub(crate) fn keys(
    mapping: &FleetMapping,
    entry: &Entry,
    cluster: &ClusterName,
    assigned: &Assigned,
) -> Vec<HashedKey> {
    let view = FleetView::new(cluster, assigned);
    // The mapping is the user's code: its panic must not end the calling task.
    let Ok(named) = catch_unwind(AssertUnwindSafe(|| mapping(entry, &view))) else {
        let name = &entry.header.key.name;
        if let Some(view) = assigned.caches(cluster) {
            log_some!(view, error, "a mapping panicked; the change is not followed up", %cluster, %name);
        }
        return Vec::new();
    };
    // An object may name anything, as long as it is itself. Nothing has such a name but what can be a name.
    let can_be =
        |key: &ObjectKey| is_name(&key.name) && key.namespace.as_deref().is_none_or(is_name);
    let hashed = |key: ObjectKey| {
        let hash = assigned.primary(&key).map(|entry| entry.header.hash());
        (key, hash)
    };
    named.into_iter().filter(can_be).map(hashed).collect()
}
