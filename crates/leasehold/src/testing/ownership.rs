//! Ownership without a fleet: one member that holds its shards and never loses them.

use std::sync::Arc;
use std::time::Duration;

use model::{
    Epoch, FenceError, Hold, Holding, MemberId, Moment, OwnedShards, Ownership, Permit, Purpose,
    ShardId,
};
use tokio::sync::watch;

/// How long each permit lasts.
const VALID_FOR: Duration = Duration::from_secs(3_600);

/// Holds the shards it was made with, at one epoch.
#[derive(Debug)]
pub struct Sole {
    shards: watch::Sender<Arc<OwnedShards>>,
}

impl Sole {
    /// The member `member` with `shards` at `epoch`.
    pub fn of(member: MemberId, shards: impl IntoIterator<Item = ShardId>, epoch: Epoch) -> Self {
        let holding = Holding { epoch, hold: Hold::Active };
        let holdings = shards.into_iter().map(|shard| (shard, holding)).collect();
        Self { shards: watch::Sender::new(Arc::new(OwnedShards { member, holdings })) }
    }
}

impl Ownership for Sole {
    fn watch(&self) -> watch::Receiver<Arc<OwnedShards>> {
        self.shards.subscribe()
    }

    fn permit(
        &self,
        shard: &ShardId,
        epoch: Epoch,
        purpose: Purpose,
    ) -> Result<Permit, FenceError> {
        let now = Moment::default();
        self.shards.borrow().permit(shard, epoch, purpose, now + VALID_FOR, now)
    }

    fn acknowledge_drain(&self, _shard: &ShardId, _epoch: Epoch) {}
}
