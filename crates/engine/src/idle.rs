//! A member that holds nothing, for tests of what does not depend on shards.

use std::num::NonZeroU32;
use std::sync::Arc;

use model::{Epoch, FenceError, OwnedShards, Ownership, Permit, Purpose, ShardId};
use tokio::sync::watch;

#[derive(Debug)]
pub(crate) struct Idle;

impl Ownership for Idle {
    fn watch(&self) -> watch::Receiver<Arc<OwnedShards>> {
        watch::channel(Arc::new(OwnedShards::none("m-1".parse().unwrap()))).1
    }

    fn permit(&self, shard: &ShardId, _: Epoch, _: Purpose) -> Result<Permit, FenceError> {
        let (shard, member) = (shard.clone(), "m-1".parse().unwrap());
        Err(FenceError::LeaseExpired { shard, member })
    }

    fn members(&self) -> NonZeroU32 {
        NonZeroU32::MIN
    }

    fn acknowledge_drain(&self, _: &ShardId, _: Epoch) {}
}
