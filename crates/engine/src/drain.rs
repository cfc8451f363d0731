//! A drain under way: waits for the shard's running reconciles, then acknowledges.

use std::sync::Arc;

use model::{Clock, Epoch, Moment, Ownership, ShardId};

use crate::assignment::{Assignment, AssignmentQueue};
use crate::single::Ending;

/// A drain under way.
pub(crate) struct Drain {
    pub(crate) shard: ShardId,
    pub(crate) epoch: Epoch,
    pub(crate) deadline: Moment,
    pub(crate) clock: Arc<dyn Clock>,
    /// The queues of all controllers, closed for the shard.
    pub(crate) queues: Vec<Arc<AssignmentQueue>>,
    /// What runs for the shard.
    pub(crate) assignments: Vec<Arc<Assignment>>,
    /// The single work that runs for it, told to stop.
    pub(crate) single: Option<Ending>,
    pub(crate) ownership: Arc<dyn Ownership>,
}

impl Drain {
    /// Waits for what runs, cancels it at the deadline, waits for its writes, acknowledges.
    pub(crate) async fn run(self) {
        let Self { shard, epoch, deadline, clock, ownership, .. } = &self;
        let is_late = tokio::select! {
            biased;
            () = self.done() => false,
            () = clock.sleep_until(*deadline) => true,
        };
        if is_late {
            tracing::warn!(%shard, %epoch, "the drain is past its deadline, cancelling");
            for assignment in &self.assignments {
                assignment.cancel();
            }
            if let Some(single) = &self.single {
                single.cancel();
            }
            self.settled().await;
        }
        ownership.acknowledge_drain(shard, *epoch);
        tracing::info!(%shard, %epoch, "drained");
    }

    /// Waits for everything that runs.
    async fn done(&self) {
        self.idle().await;
        for assignment in &self.assignments {
            assignment.visitors.left().await;
        }
    }

    /// Waits for the writes of what was cancelled.
    async fn settled(&self) {
        self.idle().await;
        for assignment in &self.assignments {
            assignment.visitors.settle().await;
        }
    }

    /// Waits for what runs under the shard itself. It counts as running until its writes are done: this
    /// is the write barrier.
    async fn idle(&self) {
        for queue in &self.queues {
            queue.idle(&self.shard).await;
        }
        if let Some(single) = &self.single {
            single.over().await;
        }
    }
}
