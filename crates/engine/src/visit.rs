//! Visits: how a reconcile of scope `Fleet` reads and writes in clusters other than its key's.
//!
//! All shards of such a group are on one member, one for each cluster. A visit uses the controller's
//! own assignment of the other cluster's shard: its caches, its gate, its epoch.
//!
//! ```text
//!   reconcile of east/ns/a, under east/g@3
//!        ├─ reads, writes ───────────────▶ east: fence asks east/g@3
//!        └─ in_cluster(west) ─▶ visit ───▶ west: fence asks east/g@3 and west/g@7
//! ```
//!
//! # Invariants
//! - S1: a write in the other cluster asks the fence for both shards, the reconcile's own and the
//!   visited one, each at the epoch it had when the work began. So S1 holds for each shard by itself,
//!   even if two coordinators that overlap have split the group between members.
//! - S2: the drain of the visited shard waits for every visit. Past its deadline no write of a visit
//!   begins any more, and the drain waits for those under way. A visit begins only while the visited
//!   shard hands out keys, so none begins during its drain.
//! - A visit begins only when the caches of the other cluster hold everything that its shard needs.
//!   They keep it until the reconcile ends, because a visit holds the assignment.
//! - The next run of the key waits until the other cluster's caches show the writes of a visit.

use std::sync::{Arc, Mutex};

use futures::future;
use model::{ClusterName, GroupName, Moment};
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::assigned::Assigned;
use crate::assignment::{Assignment, AssignmentQueue, ClusterContext};
use crate::dispatch::Dispatch;
use crate::error::ReconcileError;
use crate::expectations::Expectation;
use crate::fence::Fence;
use crate::view::FleetCaches;

/// Another cluster that a reconcile cannot work in, or not now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InClusterError {
    /// The controller may only work in the cluster of its key. Terminal.
    #[error(
        "work in cluster {cluster}: only a controller of scope Fleet works in other clusters than its key's; declare it with group_scope(GroupScope::Fleet)"
    )]
    NotFleet {
        /// The cluster asked for.
        cluster: ClusterName,
    },
    /// This replica does not hold the group's shard of that cluster: the cluster is not configured, no
    /// client can be made for it, or the shard is on its way here. Transient.
    #[error(
        "work in cluster {cluster}: this replica does not hold the shard of group {group} there, or the cluster is not engaged"
    )]
    NotHeld {
        /// The cluster asked for.
        cluster: ClusterName,
        /// The group.
        group: GroupName,
    },
    /// The shard is held, but its caches are not complete yet, or it is changing owners. Transient.
    #[error(
        "work in cluster {cluster}: the shard of group {group} there is not open, its caches are being filled or it is changing owners"
    )]
    NotOpen {
        /// The cluster asked for.
        cluster: ClusterName,
        /// The group.
        group: GroupName,
    },
    /// The reconcile has ended, and its context was kept. Terminal.
    #[error("work in cluster {cluster}: the reconcile has ended")]
    Over {
        /// The cluster asked for.
        cluster: ClusterName,
    },
}

impl InClusterError {
    /// Whether a reconcile failed because a cluster is about to be at hand, which is no fault.
    pub(crate) fn is_passing(error: &ReconcileError) -> bool {
        let source = std::error::Error::source(error);
        let found = source.and_then(|source| source.downcast_ref::<Self>());
        matches!(found, Some(Self::NotOpen { .. }))
    }
}

impl From<InClusterError> for ReconcileError {
    fn from(error: InClusterError) -> Self {
        match error {
            InClusterError::NotFleet { .. } | InClusterError::Over { .. } => Self::terminal(error),
            InClusterError::NotHeld { .. } | InClusterError::NotOpen { .. } => {
                Self::transient(error)
            }
        }
    }
}

/// What a reconcile works with in one cluster.
pub(crate) type Means = (Dispatch, Arc<ClusterContext>, Fence);

/// The visits of one reconcile.
#[derive(Debug)]
pub(crate) struct Visits {
    /// What runs in the cluster of the key.
    origin: Means,
    assigned: Arc<Assigned>,
    queue: Arc<AssignmentQueue>,
    /// Nothing once the reconcile has ended.
    begun: Mutex<Option<Vec<Visit>>>,
}

/// One visit, until it is dropped.
#[derive(Debug)]
struct Visit {
    assignment: Arc<Assignment>,
    fence: Fence,
    _counted: TaskTrackerToken,
}

impl Visits {
    /// For a reconcile that has nothing but its own cluster yet.
    pub(crate) fn new(origin: Means, assigned: Arc<Assigned>, queue: Arc<AssignmentQueue>) -> Self {
        Self { origin, assigned, queue, begun: Mutex::new(Some(Vec::new())) }
    }

    /// The clusters that the controller has shards of here, in order of their names.
    pub(crate) fn clusters(&self) -> Vec<ClusterName> {
        self.assigned.clusters()
    }

    /// What the reconcile works with in a cluster: a visit, unless it is that of its key.
    pub(crate) fn begin(&self, cluster: &ClusterName) -> Result<Means, InClusterError> {
        let (dispatch, _, fence) = &self.origin;
        if *cluster == dispatch.shard.cluster {
            return Ok(self.origin.clone());
        }
        let mut begun = self.begun.lock().expect("no holder of this lock panics");
        let over = || InClusterError::Over { cluster: cluster.clone() };
        let begun = begun.as_mut().ok_or_else(over)?;
        if let Some(visit) = begun.iter().find(|visit| visit.assignment.shard.cluster == *cluster) {
            return Ok(visit.means(dispatch));
        }
        let group = || dispatch.shard.group.clone();
        let not_held = || InClusterError::NotHeld { cluster: cluster.clone(), group: group() };
        let assignment = self.assigned.whole(cluster).ok_or_else(not_held)?;
        // Counted first: a drain closes the shard in the queue before it waits for visits.
        let counted = assignment.visitors.enter();
        if !self.queue.is_open(&assignment.shard, assignment.epoch) {
            return Err(InClusterError::NotOpen { cluster: cluster.clone(), group: group() });
        }
        let fence = fence.visiting(dispatch, assignment.visitors.writes());
        let visit = Visit { assignment, fence, _counted: counted };
        let means = visit.means(dispatch);
        begun.push(visit);
        Ok(means)
    }

    /// Ends all visits once none of their writes is under way. Returns the writes that the caches do not
    /// show yet.
    pub(crate) async fn settle(&self, now: impl Fn() -> Moment) -> Vec<Expectation> {
        let begun = self.begun.lock().expect("no holder of this lock panics").take();
        let visits = begun.unwrap_or_default();
        future::join_all(visits.iter().map(|visit| visit.fence.settle())).await;
        let now = now();
        let unseen = visits.iter().flat_map(|Visit { assignment, fence, .. }| {
            let written = fence.take_written().into_iter();
            written.flat_map(|one| Expectation::of(one, &assignment.context.informers, now))
        });
        unseen.collect()
    }
}

impl Visit {
    fn means(&self, origin: &Dispatch) -> Means {
        let Assignment { shard, epoch, context, .. } = &*self.assignment;
        let dispatch = Dispatch { shard: shard.clone(), epoch: *epoch, ..origin.clone() };
        (dispatch, Arc::clone(context), self.fence.clone())
    }
}
