//! Ownership that permits what it should refuse, or hides from the engine what it knows.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use model::{Epoch, FenceError, Hold, Moment, OwnedShards, Ownership, Permit, Purpose, ShardId};
use tokio::sync::watch;

/// How late the engine learns that a shard is lost.
const DELAY: Duration = Duration::from_secs(10);
/// When a Lease ends that nobody asks for.
const NEVER: Moment = Moment::from_origin(Duration::MAX);

/// Permits what it should refuse.
#[derive(Debug)]
pub(super) struct Lenient(pub(super) Arc<dyn Ownership>, pub(super) Leniency);

/// What a [`Lenient`] fence permits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Leniency {
    /// These purposes, always.
    Always(&'static [Purpose]),
    /// What is right, without an end.
    Forever,
}

impl Ownership for Lenient {
    fn watch(&self) -> watch::Receiver<Arc<OwnedShards>> {
        self.0.watch()
    }

    fn permit(
        &self,
        shard: &ShardId,
        epoch: Epoch,
        purpose: Purpose,
    ) -> Result<Permit, FenceError> {
        let endless = Permit { valid_until: NEVER };
        match self.1 {
            Leniency::Always(purposes) if purposes.contains(&purpose) => Ok(endless),
            Leniency::Always(_) => self.0.permit(shard, epoch, purpose),
            Leniency::Forever => self.0.permit(shard, epoch, purpose).map(|_| endless),
        }
    }

    fn members(&self) -> NonZeroU32 {
        self.0.members()
    }

    fn acknowledge_drain(&self, shard: &ShardId, epoch: Epoch) {
        self.0.acknowledge_drain(shard, epoch);
    }
}

/// Does something before it shows the engine what the member holds now.
#[derive(Debug)]
pub(super) struct Relay {
    ownership: Arc<dyn Ownership>,
    shown: watch::Receiver<Arc<OwnedShards>>,
}

/// What a [`Relay`] does first.
#[derive(Clone, Copy, Debug)]
pub(super) enum First {
    /// Acknowledges the drains.
    Acknowledge,
    /// Waits, if a shard is lost.
    Wait,
}

impl Relay {
    /// Begins to relay. Call it inside the process's runtime.
    pub(super) fn start(ownership: Arc<dyn Ownership>, first: First) -> Self {
        let mut owned = ownership.watch();
        let held = Arc::clone(&owned.borrow_and_update());
        let (shows, shown) = watch::channel(held);
        let acknowledges = Arc::clone(&ownership);
        tokio::spawn(async move {
            while owned.changed().await.is_ok() {
                let held = Arc::clone(&owned.borrow_and_update());
                match first {
                    First::Acknowledge => acknowledge(&*acknowledges, &held),
                    First::Wait if loses(&shows.borrow(), &held) => {
                        tokio::time::sleep(DELAY).await;
                    }
                    First::Wait => {}
                }
                let held = Arc::clone(&owned.borrow_and_update());
                shows.send_replace(held);
            }
        });
        Self { ownership, shown }
    }
}

fn acknowledge(ownership: &dyn Ownership, held: &OwnedShards) {
    for (shard, holding) in &held.holdings {
        if matches!(holding.hold, Hold::Draining { .. }) {
            ownership.acknowledge_drain(shard, holding.epoch);
        }
    }
}

/// Whether an active shard is gone, and was not drained before.
fn loses(before: &OwnedShards, now: &OwnedShards) -> bool {
    let mut active = before.holdings.iter().filter(|(_, holding)| holding.hold == Hold::Active);
    active.any(|(shard, holding)| {
        let epoch = now.holdings.get(shard).map(|holding| holding.epoch);
        before.member != now.member || epoch != Some(holding.epoch)
    })
}

impl Ownership for Relay {
    fn watch(&self) -> watch::Receiver<Arc<OwnedShards>> {
        self.shown.clone()
    }

    fn permit(
        &self,
        shard: &ShardId,
        epoch: Epoch,
        purpose: Purpose,
    ) -> Result<Permit, FenceError> {
        self.ownership.permit(shard, epoch, purpose)
    }

    fn members(&self) -> NonZeroU32 {
        self.ownership.members()
    }

    fn acknowledge_drain(&self, shard: &ShardId, epoch: Epoch) {
        self.ownership.acknowledge_drain(shard, epoch);
    }
}
