//! A drain under way: waits for what runs of a shard, then acknowledges.

use std::sync::Arc;

use model::{Clock, Epoch, Moment, Ownership, ShardId};

use crate::assignment::{Assignment, AssignmentQueue};

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
    pub(crate) ownership: Arc<dyn Ownership>,
}

impl Drain {
    /// Waits for what runs, cancels it at the deadline, waits for its writes, acknowledges.
    pub(crate) async fn run(self) {
        let Self { shard, epoch, deadline, clock, queues, assignments, ownership } = self;
        let idle = async || {
            for queue in &queues {
                queue.idle(&shard).await;
            }
        };
        let done = async {
            idle().await;
            for assignment in &assignments {
                assignment.visitors.left().await;
            }
        };
        let is_late = tokio::select! {
            biased;
            () = done => false,
            () = clock.sleep_until(deadline) => true,
        };
        if is_late {
            tracing::warn!(%shard, %epoch, "the drain is past its deadline, cancelling");
            for assignment in &assignments {
                assignment.cancel();
            }
            // A key counts as running until its writes are done: this is the write barrier.
            idle().await;
            for assignment in &assignments {
                assignment.visitors.settle().await;
            }
        }
        ownership.acknowledge_drain(&shard, epoch);
        tracing::info!(%shard, %epoch, "drained");
    }
}
