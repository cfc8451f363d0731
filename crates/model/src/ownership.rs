//! Ownership: the shards of this member, and the fence that says whether it may act.
//!
//! Assignment says *should*; the fence says *may*. `sharding` implements [`Ownership`]; `engine` asks it
//! at each dispatch, before each poll of a reconcile, and again at each write.
//!
//! ```text
//!   (absent) ──▶ Warming ──▶ Active ──▶ Draining ──▶ (absent)
//!       └───────────────────────▲ └── Lease lost ───▶ (absent): cancel at once
//! ```

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::num::NonZeroU32;
use std::sync::Arc;

use tokio::sync::watch;

use crate::{Epoch, MemberId, Moment, ShardId};

/// How a member holds a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hold {
    /// This member is the next owner, and the present one drains: fill caches, dispatch nothing.
    Warming,
    /// Owned: dispatch.
    Active,
    /// Owned and being handed over: dispatch nothing more, finish running reconciles or cancel them after
    /// `deadline`, then acknowledge.
    Draining {
        /// When to cancel reconciles that still run, on this member's own clock.
        deadline: Moment,
    },
}

/// One shard that this member holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holding {
    /// Its epoch; for `Warming`, the epoch at which it will be owned.
    pub epoch: Epoch,
    /// How the member holds it.
    pub hold: Hold,
}

/// Every shard this member holds, as one snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnedShards {
    /// The member that holds them. It changes when a member that lost its Lease rejoins.
    pub member: MemberId,
    /// The shards. One that disappears without having been `Draining` was lost: its reconciles must be
    /// cancelled at once.
    pub holdings: BTreeMap<ShardId, Holding>,
}

/// What a permit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To start a reconcile: only for an active shard.
    Dispatch,
    /// To go on with a reconcile, at each poll of its future: for an active or draining shard.
    Run,
    /// To send a write of a running reconcile: for an active or draining shard.
    Write,
}

/// The permission to act now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit {
    /// When the member's Lease ends by its own clock. Nothing that is done under this permit may outlive
    /// it. A moment and not a duration: a process that is stopped between the permit and the act
    /// finds that the moment has passed.
    pub valid_until: Moment,
}

/// Why a member may not act.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FenceError {
    /// The Lease could not be renewed in time.
    #[error(
        "shard {shard} is fenced: the Lease of member {member} is no longer valid by its own clock"
    )]
    LeaseExpired {
        /// The shard.
        shard: ShardId,
        /// The member.
        member: MemberId,
    },
    /// Somebody else owns the shard, or nobody.
    #[error("shard {shard} is fenced: member {member} does not own it")]
    NotOwned {
        /// The shard.
        shard: ShardId,
        /// The member.
        member: MemberId,
    },
    /// The shard changed owners since the work began.
    #[error("shard {shard} is fenced: asked at epoch {asked}, owned at epoch {owned}")]
    StaleEpoch {
        /// The shard.
        shard: ShardId,
        /// The epoch the work began at.
        asked: Epoch,
        /// The epoch it is held at now.
        owned: Epoch,
    },
    /// The shard is being handed over, from this member or to it: nothing new may start.
    #[error("shard {shard} is fenced: it is changing owners, nothing new may start")]
    NotActive {
        /// The shard.
        shard: ShardId,
    },
}

/// The fence. `sharding` implements it, and `engine` asks it.
pub trait Ownership: Debug + Send + Sync + 'static {
    /// The shards held, now and at each change. Only the newest snapshot counts.
    fn watch(&self) -> watch::Receiver<Arc<OwnedShards>>;

    /// Whether this member may act for `shard` at `epoch`, at this moment.
    ///
    /// # Errors
    /// A [`FenceError`] with the reason; nothing may be dispatched or sent then.
    fn permit(&self, shard: &ShardId, epoch: Epoch, purpose: Purpose)
    -> Result<Permit, FenceError>;

    /// How many members are alive as far as this one knows, including itself. Of a limit for all members
    /// together, each may use one part in that number.
    fn members(&self) -> NonZeroU32;

    /// Reports that no work of `shard` at `epoch` is queued, delayed or in flight any more, and that no
    /// write of it is under way. Idempotent. Ignored for a shard that is not draining at `epoch`.
    fn acknowledge_drain(&self, shard: &ShardId, epoch: Epoch);
}

/// Stands in for an engine that runs nothing: acknowledges each drain as soon as it begins, until the
/// member ends.
pub async fn acknowledge_drains(ownership: impl Ownership) {
    let mut owned = ownership.watch();
    loop {
        let held = Arc::clone(&owned.borrow_and_update());
        for (shard, holding) in &held.holdings {
            if matches!(holding.hold, Hold::Draining { .. }) {
                ownership.acknowledge_drain(shard, holding.epoch);
            }
        }
        if owned.changed().await.is_err() {
            return;
        }
    }
}

impl OwnedShards {
    /// Holding nothing.
    pub fn none(member: MemberId) -> Self {
        Self { member, holdings: BTreeMap::new() }
    }

    /// The fence's decision, given the Lease's validity. Pure, so that simulation and model checking run
    /// the same code.
    ///
    /// # Errors
    /// See [`FenceError`].
    pub fn permit(
        &self,
        shard: &ShardId,
        epoch: Epoch,
        purpose: Purpose,
        valid_until: Moment,
        now: Moment,
    ) -> Result<Permit, FenceError> {
        if now >= valid_until {
            return Err(FenceError::LeaseExpired {
                shard: shard.clone(),
                member: self.member.clone(),
            });
        }
        let Some(holding) = self.holdings.get(shard) else {
            return Err(FenceError::NotOwned { shard: shard.clone(), member: self.member.clone() });
        };
        if holding.epoch != epoch {
            return Err(FenceError::StaleEpoch {
                shard: shard.clone(),
                asked: epoch,
                owned: holding.epoch,
            });
        }
        match (holding.hold, purpose) {
            (Hold::Active, _) | (Hold::Draining { .. }, Purpose::Run | Purpose::Write) => {
                Ok(Permit { valid_until })
            }
            (Hold::Warming, _) | (Hold::Draining { .. }, Purpose::Dispatch) => {
                Err(FenceError::NotActive { shard: shard.clone() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const EPOCH: Epoch = Epoch(4);

    fn ask(hold: Option<Hold>, epoch: Epoch, purpose: Purpose, now_s: u64) -> String {
        let shard: ShardId = "east/tdset/0/1".parse().unwrap();
        let mut owned = OwnedShards::none("m-1".parse().unwrap());
        if let Some(hold) = hold {
            owned.holdings.insert(shard.clone(), Holding { epoch: EPOCH, hold });
        }
        let at = |s| Moment::from_origin(Duration::from_secs(s));
        match owned.permit(&shard, epoch, purpose, at(10), at(now_s)) {
            Ok(permit) => format!("until {}", permit.valid_until.since_origin().as_secs()),
            Err(FenceError::LeaseExpired { .. }) => "expired".into(),
            Err(FenceError::NotOwned { .. }) => "not owned".into(),
            Err(FenceError::StaleEpoch { .. }) => "stale".into(),
            Err(FenceError::NotActive { .. }) => "not active".into(),
        }
    }

    #[test]
    fn the_fence() {
        use Purpose::{Dispatch, Run, Write};
        let draining = Hold::Draining { deadline: Moment::default() };
        for (hold, epoch, purpose, now, expect) in [
            (Some(Hold::Active), 4, Dispatch, 3, "until 10"),
            (Some(Hold::Active), 4, Run, 3, "until 10"),
            (Some(Hold::Active), 4, Write, 3, "until 10"),
            (Some(draining), 4, Dispatch, 3, "not active"),
            (Some(draining), 4, Run, 3, "until 10"),
            (Some(draining), 4, Write, 3, "until 10"),
            (Some(Hold::Warming), 4, Dispatch, 3, "not active"),
            (Some(Hold::Warming), 4, Run, 3, "not active"),
            (Some(Hold::Warming), 4, Write, 3, "not active"),
            (Some(Hold::Active), 3, Write, 3, "stale"),
            (Some(Hold::Active), 5, Write, 3, "stale"),
            (None, 4, Write, 3, "not owned"),
            (Some(Hold::Active), 4, Dispatch, 10, "expired"),
            (Some(Hold::Active), 4, Run, 10, "expired"),
            (Some(Hold::Active), 4, Write, 11, "expired"),
        ] {
            assert_eq!(
                ask(hold, Epoch(epoch), purpose, now),
                expect,
                "{hold:?} {epoch} {purpose:?}"
            );
        }
    }
}
