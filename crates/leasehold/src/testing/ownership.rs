//! Ownership without a fleet: a member that holds given shards and never loses its Lease.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use model::{
    Epoch, FenceError, Hold, Holding, MemberId, Moment, OwnedShards, Ownership, Permit, Purpose,
    ShardId,
};
use tokio::sync::watch;

/// When the Lease ends.
const NEVER: Moment = Moment::from_origin(Duration::MAX);

/// Holds the shards that it was created with, at one epoch, until that is changed.
#[derive(Debug)]
pub struct Sole {
    shards: watch::Sender<Arc<OwnedShards>>,
    acknowledged: watch::Sender<BTreeSet<(ShardId, Epoch)>>,
}

impl Sole {
    /// The member `member` with `shards` at `epoch`.
    pub fn of(member: MemberId, shards: impl IntoIterator<Item = ShardId>, epoch: Epoch) -> Self {
        let holding = Holding { epoch, hold: Hold::Active };
        let holdings = shards.into_iter().map(|shard| (shard, holding)).collect();
        let shards = watch::Sender::new(Arc::new(OwnedShards { member, holdings }));
        Self { shards, acknowledged: watch::Sender::default() }
    }

    /// Changes how a shard is held, or takes it away.
    pub fn hold(&self, shard: &ShardId, holding: Option<Holding>) {
        self.shards.send_modify(|owned| {
            let holdings = &mut Arc::make_mut(owned).holdings;
            match holding {
                Some(holding) => holdings.insert(shard.clone(), holding),
                None => holdings.remove(shard),
            };
        });
    }

    /// Waits until a drain has been acknowledged.
    pub async fn drained(&self, shard: &ShardId, epoch: Epoch) {
        let drain = (shard.clone(), epoch);
        let mut acknowledged = self.acknowledged.subscribe();
        let found = acknowledged.wait_for(|all| all.contains(&drain)).await;
        drop(found.expect("the sender is here"));
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
        self.shards.borrow().permit(shard, epoch, purpose, NEVER, Moment::default())
    }

    fn members(&self) -> NonZeroU32 {
        NonZeroU32::MIN
    }

    fn acknowledge_drain(&self, shard: &ShardId, epoch: Epoch) {
        self.acknowledged.send_modify(|all| {
            all.insert((shard.clone(), epoch));
        });
    }
}
