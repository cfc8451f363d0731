//! One entry of a ShardMap, and how it may change.
//!
//! ```text
//!                        assign(B)
//!   Unowned(e) ────────────────────────────▶ Owned(B, e+1)
//!       ▲                                       │ drain(C)
//!       │ settled, no eligible target           ▼
//!       ├──────────────────────────── Draining(B→C, e+1) ──settled──▶ Owned(C, e+2)
//!       └── owner gone ── Owned(B, e+1)
//! ```
//!
//! *Settled* means that B acknowledged the drain of exactly this epoch in its Member object, or
//! that B is gone: its Lease was given back, or was taken by compare-and-swap after it ran out.
//!
//! A shard that nobody holds may be replaced by its halves, each `Unowned(e)`, and two halves that
//! nobody holds by the whole, `Unowned(max)`: the next owner of any part is at a higher epoch than
//! every owner before.
//!
//! # Invariants
//! - **S3** Only [`Entry::assign`] and [`Entry::settle`] name a new owner, and both go to the next
//!   epoch; nothing lowers one (`epochs_rise_with_each_owner`). [`Entry::split`] and
//!   [`Entry::merge`] keep that true of every uid, whichever shard it lies in
//!   (`a_keys_epochs_rise_with_each_owner_through_splits_and_merges`).
//! - Nobody becomes owner while another may act: an owned entry leaves its owner only by way of
//!   `settle` (`an_owner_is_replaced_only_when_settled`), and is neither split nor merged before.
//! - A drain is never taken back at the same epoch: an acknowledgement that is under way would then
//!   release a shard at work. A shard that is to stay where it is drains to its own owner and goes
//!   to the next epoch.

use model::{Epoch, MemberId};

use crate::api::{Phase, ShardEntry, ShardPath};

/// One shard of a ShardMap.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// Nobody may act.
    Unowned {
        /// The epoch of its last owner.
        epoch: Epoch,
    },
    /// `owner` may act.
    Owned {
        /// Who.
        owner: MemberId,
        /// At which epoch.
        epoch: Epoch,
    },
    /// `owner` finishes what it began; then `target` gets the shard.
    Draining {
        /// Who finishes.
        owner: MemberId,
        /// At which epoch.
        epoch: Epoch,
        /// Who gets it; nobody if it is to be removed or nobody can have it.
        target: Option<MemberId>,
    },
}

/// What is known of an entry's members when it is judged. Both facts about the owner are final:
/// once true of an epoch, they stay true, so a judgement from an old view is still right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The owner's Lease was given back or taken.
    pub owner_gone: bool,
    /// The owner acknowledged the drain of this shard at this epoch.
    pub acknowledged: bool,
    /// The target is alive and wants shards.
    pub target_eligible: bool,
}

impl Facts {
    /// Whether the owner will never act for the shard again at its epoch, if it drains.
    pub fn owner_is_done(self) -> bool {
        self.owner_gone || self.acknowledged
    }
}

impl Entry {
    /// The epoch of the present owner, or of the last.
    pub fn epoch(&self) -> Epoch {
        match self {
            Self::Unowned { epoch } | Self::Owned { epoch, .. } | Self::Draining { epoch, .. } => {
                *epoch
            }
        }
    }

    /// The present owner.
    pub fn owner(&self) -> Option<&MemberId> {
        match self {
            Self::Unowned { .. } => None,
            Self::Owned { owner, .. } | Self::Draining { owner, .. } => Some(owner),
        }
    }

    /// The next owner, if one is named.
    pub fn target(&self) -> Option<&MemberId> {
        match self {
            Self::Draining { target, .. } => target.as_ref(),
            _ => None,
        }
    }

    /// What follows from the facts, whatever the plan: a gone owner loses the shard, a finished
    /// drain hands it on.
    #[must_use]
    pub fn settle(&self, facts: Facts) -> Entry {
        let epoch = self.epoch();
        match self {
            Self::Owned { .. } if facts.owner_gone => Self::Unowned { epoch },
            Self::Draining { target, .. } if facts.owner_gone || facts.acknowledged => match target
            {
                Some(next) if facts.target_eligible => Self::owned_next(next, epoch),
                _ => Self::Unowned { epoch },
            },
            _ => self.clone(),
        }
    }

    /// The shard on its way to `to`: at once if nobody has it, else by draining. A drain under way
    /// only changes its target.
    #[must_use]
    pub fn assign(&self, to: &MemberId) -> Entry {
        match self {
            Self::Unowned { epoch } => Self::owned_next(to, *epoch),
            _ => self.drain(Some(to)),
        }
    }

    /// The shard on its way from its owner, to `to` or to nobody.
    #[must_use]
    pub fn drain(&self, to: Option<&MemberId>) -> Entry {
        match self {
            Self::Unowned { .. } => self.clone(),
            Self::Owned { owner, epoch } | Self::Draining { owner, epoch, .. } => {
                Self::Draining { owner: owner.clone(), epoch: *epoch, target: to.cloned() }
            }
        }
    }

    /// Either half of the shard, once nobody holds it: nobody's, at the epoch at which it was left.
    /// A shard that somebody holds has no halves.
    pub fn split(&self) -> Option<Entry> {
        matches!(self, Self::Unowned { .. }).then(|| self.clone())
    }

    /// The shard made of two halves, once nobody holds either: nobody's, at the higher epoch of the
    /// two, so that its next owner is later than every owner of any part.
    pub fn merge(&self, other: &Entry) -> Option<Entry> {
        match (self, other) {
            (Self::Unowned { epoch: low }, Self::Unowned { epoch: high }) => {
                Some(Self::Unowned { epoch: *low.max(high) })
            }
            _ => None,
        }
    }

    /// Owned by `owner` after an owner at `epoch`: the only way to an owner.
    fn owned_next(owner: &MemberId, epoch: Epoch) -> Self {
        Self::Owned { owner: owner.clone(), epoch: epoch.next() }
    }

    /// Reads an entry. One that names no owner where it should is nobody's: nobody can act on it.
    pub fn read(entry: &ShardEntry) -> Self {
        let epoch = entry.epoch;
        match (entry.phase, &entry.owner) {
            (Phase::Owned, Some(owner)) => Self::Owned { owner: owner.clone(), epoch },
            (Phase::Draining, Some(owner)) => {
                Self::Draining { owner: owner.clone(), epoch, target: entry.target.clone() }
            }
            (Phase::Unowned, _) | (_, None) => Self::Unowned { epoch },
        }
    }

    /// The entry as written, under its path.
    pub fn write(&self, path: &ShardPath) -> ShardEntry {
        ShardEntry {
            shard: path.clone(),
            epoch: self.epoch(),
            phase: match self {
                Self::Unowned { .. } => Phase::Unowned,
                Self::Owned { .. } => Phase::Owned,
                Self::Draining { .. } => Phase::Draining,
            },
            owner: self.owner().cloned(),
            target: self.target().cloned(),
        }
    }
}

#[cfg(test)]
#[path = "handover_tests.rs"]
mod tests;
