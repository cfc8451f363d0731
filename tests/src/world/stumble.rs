//! A fence at which a machine can stop: between the check and the act that it allows.
//!
//! A program sees no difference between a check that took an hour and an hour between the check and
//! what follows. So the machine sleeps inside the check, after its answer has been decided.

use std::num::NonZeroU32;
use std::sync::Arc;

use model::{Epoch, FenceError, OwnedShards, Ownership, Permit, Purpose, ShardId};
use tokio::sync::watch;

use super::timeline::Timeline;

/// `ownership`, of a machine that stops after a check when its timeline says so.
pub(super) fn stumbling(
    ownership: Arc<dyn Ownership>,
    timeline: &Arc<Timeline>,
) -> Arc<dyn Ownership> {
    Arc::new(Stumbling { ownership, timeline: Arc::clone(timeline) })
}

#[derive(Debug)]
struct Stumbling {
    ownership: Arc<dyn Ownership>,
    timeline: Arc<Timeline>,
}

impl Ownership for Stumbling {
    fn watch(&self) -> watch::Receiver<Arc<OwnedShards>> {
        self.ownership.watch()
    }

    fn permit(
        &self,
        shard: &ShardId,
        epoch: Epoch,
        purpose: Purpose,
    ) -> Result<Permit, FenceError> {
        let permit = self.ownership.permit(shard, epoch, purpose)?;
        self.timeline.pass(purpose);
        Ok(permit)
    }

    fn members(&self) -> NonZeroU32 {
        self.ownership.members()
    }

    fn acknowledge_drain(&self, shard: &ShardId, epoch: Epoch) {
        self.ownership.acknowledge_drain(shard, epoch);
    }
}
