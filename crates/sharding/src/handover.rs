//! One entry of a ShardMap, and how it may change.
//!
//! ```text
//!                        assign(B)
//!   Unowned(e) ────────────────────────────▶ Owned(B, e+1)
//!       ▲                                       │ drain(C)
//!       │ settled, no eligible target           ▼
//!       ├──────────────────────────── Draining(B→C, e+1) ──settled──▶ Owned(C, e+2)
//!       └── settled ── Owned(B, e+1)
//! ```
//!
//! *Settled* means that B acknowledged the drain of exactly this epoch in its Member object, or
//! that B is gone: it gave its Lease back, or the coordinator took the Lease by compare-and-swap after
//! it ran out. A member may acknowledge a drain that nobody asked for: it may not act on the shard
//! ([`crate::identity`]).
//!
//! An unowned shard may be replaced by its halves, each `Unowned(e)`, and two unowned halves by the
//! whole, `Unowned(max)`. So the next owner of any part has a higher epoch than every owner before.
//!
//! # Invariants
//! - **S3** Only `Entry::assign` and `Entry::settle` name a new owner, and both go to the next
//!   epoch. Nothing lowers an epoch (`epochs_rise_with_each_owner`). `Entry::split` and
//!   `Entry::merge` keep this true for every uid, whichever shard it lies in
//!   (`a_keys_epochs_rise_with_each_owner_through_splits_and_merges`).
//! - Nobody becomes owner while another may act: only `settle` takes a shard from its owner
//!   (`an_owner_is_replaced_only_when_settled`), and no shard is split or merged before that.
//! - A drain is never taken back at the same epoch, because an acknowledgement under way would then
//!   release a shard at work. A shard that should stay drains to its own owner and goes to the next
//!   epoch.

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
        /// The owner.
        owner: MemberId,
        /// Its epoch.
        epoch: Epoch,
    },
    /// `owner` finishes what it began; then `target` gets the shard.
    Draining {
        /// The owner that finishes.
        owner: MemberId,
        /// Its epoch.
        epoch: Epoch,
        /// The next owner; `None` if the shard will be removed or no member can take it.
        target: Option<MemberId>,
    },
}

/// What the coordinator knows about the members of an entry. Both facts about the owner are final:
/// once true for an epoch, they stay true. So a decision from an old view is still right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The owner gave its Lease back, or the Lease was taken.
    pub(crate) owner_gone: bool,
    /// The owner acknowledged the drain of this shard at this epoch.
    pub(crate) acknowledged: bool,
    /// The target is alive and wants shards.
    pub(crate) target_eligible: bool,
}

impl Facts {
    /// Whether the owner of the shard will never act for it again at its epoch.
    pub(crate) fn owner_is_done(self) -> bool {
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

    /// Whether its owner starts nothing new.
    pub(crate) fn is_draining(&self) -> bool {
        matches!(self, Self::Draining { .. })
    }

    pub(crate) fn target(&self) -> Option<&MemberId> {
        match self {
            Self::Draining { target, .. } => target.as_ref(),
            _ => None,
        }
    }

    /// What follows from the facts, whatever the plan: a gone owner loses the shard, and a finished
    /// drain hands it over.
    #[must_use]
    pub(crate) fn settle(&self, facts: Facts) -> Entry {
        let epoch = self.epoch();
        match self {
            Self::Owned { .. } if facts.owner_is_done() => Self::Unowned { epoch },
            Self::Draining { target, .. } if facts.owner_is_done() => match target {
                Some(next) if facts.target_eligible => Self::owned_next(next, epoch),
                _ => Self::Unowned { epoch },
            },
            _ => self.clone(),
        }
    }

    /// Gives the shard to `to`: at once if it is unowned, else through a drain. A drain under way only
    /// changes its target.
    #[must_use]
    pub(crate) fn assign(&self, to: &MemberId) -> Entry {
        match self {
            Self::Unowned { epoch } => Self::owned_next(to, *epoch),
            _ => self.drain(Some(to)),
        }
    }

    /// Takes the shard from its owner through a drain, for `to` or for nobody.
    #[must_use]
    pub(crate) fn drain(&self, to: Option<&MemberId>) -> Entry {
        match self {
            Self::Unowned { .. } => self.clone(),
            Self::Owned { owner, epoch } | Self::Draining { owner, epoch, .. } => {
                Self::Draining { owner: owner.clone(), epoch: *epoch, target: to.cloned() }
            }
        }
    }

    /// Either half of the shard: unowned, at the epoch of its last owner. `None` if the shard has an
    /// owner.
    pub(crate) fn split(&self) -> Option<Entry> {
        matches!(self, Self::Unowned { .. }).then(|| self.clone())
    }

    /// The shard that two halves merge into: unowned, at the higher epoch of the two, so that its next
    /// owner has a higher epoch than every owner of a part. `None` if a half has an owner.
    pub(crate) fn merge(&self, other: &Entry) -> Option<Entry> {
        match (self, other) {
            (Self::Unowned { epoch: low }, Self::Unowned { epoch: high }) => {
                Some(Self::Unowned { epoch: *low.max(high) })
            }
            _ => None,
        }
    }

    /// An entry that names its owner for the first time, with the epoch after `floor` instead. `None` if
    /// it names nobody.
    pub(crate) fn raised_above(&self, floor: Epoch) -> Option<Entry> {
        match self {
            Self::Owned { owner, epoch } if *epoch <= floor => Some(Self::owned_next(owner, floor)),
            _ => None,
        }
    }

    /// The same owner at the epoch after `floor`, in a map that is made anew. `None` if it names nobody.
    pub(crate) fn kept_above(&self, floor: Epoch) -> Option<Entry> {
        self.owner().map(|owner| Self::owned_next(owner, floor.max(self.epoch())))
    }

    /// Owned by `owner`, after an owner at `epoch`. No other code makes an owner.
    fn owned_next(owner: &MemberId, epoch: Epoch) -> Self {
        Self::Owned { owner: owner.clone(), epoch: epoch.next() }
    }

    /// Reads an entry. One that lacks the owner it should name is unowned, because nobody can act on it.
    pub(crate) fn read(entry: &ShardEntry) -> Self {
        let epoch = entry.epoch;
        match (entry.phase, &entry.owner) {
            (Phase::Owned, Some(owner)) => Self::Owned { owner: owner.clone(), epoch },
            (Phase::Draining, Some(owner)) => {
                Self::Draining { owner: owner.clone(), epoch, target: entry.target.clone() }
            }
            (Phase::Unowned, _) | (_, None) => Self::Unowned { epoch },
        }
    }

    /// The entry in the form of a ShardMap, under its path.
    pub(crate) fn write(&self, path: &ShardPath) -> ShardEntry {
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
            moved: None,
        }
    }
}

#[cfg(test)]
#[path = "handover_tests.rs"]
mod tests;
