//! A drain under way: waits for what runs of a shard, then acknowledges.

use std::sync::Arc;

use model::{Clock, Epoch, Moment, Ownership, ShardId};
use tokio_util::sync::CancellationToken;

use crate::assignment::AssignmentQueue;

/// A drain under way.
pub(crate) struct Drain {
    pub(crate) shard: ShardId,
    pub(crate) epoch: Epoch,
    pub(crate) deadline: Moment,
    pub(crate) clock: Arc<dyn Clock>,
    /// The queues of all controllers, closed for the shard.
    pub(crate) queues: Vec<Arc<AssignmentQueue>>,
    /// Cancel what runs for the shard.
    pub(crate) cancels: Vec<CancellationToken>,
    pub(crate) ownership: Arc<dyn Ownership>,
}

impl Drain {
    /// Waits for what runs, cancels it at the deadline, waits for its writes, acknowledges.
    pub(crate) async fn run(self) {
        let Self { shard, epoch, deadline, clock, queues, cancels, ownership } = self;
        let idle = async || {
            for queue in &queues {
                queue.idle(&shard).await;
            }
        };
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
