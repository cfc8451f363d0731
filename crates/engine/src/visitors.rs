//! Who visits an assignment: reconciles of other clusters' keys, as a drain sees them. See
//! [`crate::visit`].

use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Who visits an assignment. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Visitors {
    /// Visits under way.
    visits: TaskTracker,
    /// Their writes under way. Closed when no further one may begin.
    writes: TaskTracker,
}

impl Visitors {
    /// Counts a visit until what is returned is dropped.
    pub(crate) fn enter(&self) -> TaskTrackerToken {
        self.visits.token()
    }

    /// Their writes, which a fence counts and begins none of once this is closed.
    pub(crate) fn writes(&self) -> &TaskTracker {
        &self.writes
    }

    /// Waits until every visit has ended. No visit may begin any more.
    pub(crate) async fn left(&self) {
        self.visits.close();
        self.visits.wait().await;
    }

    /// Lets no further write begin.
    pub(crate) fn stop(&self) {
        self.writes.close();
    }

    /// Lets no further write begin, and waits until none is under way.
    pub(crate) async fn settle(&self) {
        self.stop();
        self.writes.wait().await;
    }
}
