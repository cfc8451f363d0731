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
//! # Invariants
//! - **S3** Only [`Entry::assign`] and [`Entry::settle`] name a new owner, and both go to the next
//!   epoch; nothing lowers one (`epochs_rise_with_each_owner`).
//! - Nobody becomes owner while another may act: an owned entry leaves its owner only by way of
//!   `settle` (`an_owner_is_replaced_only_when_settled`).
//! - A drain is never taken back at the same epoch: an acknowledgement that is under way would then
//!   release a shard at work. A shard that is to stay where it is drains to its own owner and goes
//!   to the next epoch.

use model::{Epoch, MemberId};

use crate::api::{Phase, ShardEntry, ShardPath};
#[cfg(feature = "planted")]
use crate::planted::{self, Planted};

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
            #[cfg(feature = "planted")]
            _ if planted::is(Planted::SkipDrain) => Self::owned_next(to, self.epoch()),
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

    /// Owned by `owner` after an owner at `epoch`: the only way to an owner.
    fn owned_next(owner: &MemberId, epoch: Epoch) -> Self {
        #[cfg(feature = "planted")]
        if planted::is(Planted::KeepEpoch) {
            return Self::Owned { owner: owner.clone(), epoch };
        }
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(name: &str) -> MemberId {
        name.parse().unwrap()
    }

    /// Reads `U4`, `a4` (owned) and `a>b4`, `a>4` (draining).
    fn entry(text: &str) -> Entry {
        let (members, epoch) = text.split_at(text.len() - 1);
        let epoch = Epoch(epoch.parse().unwrap());
        match (members, members.split_once('>')) {
            ("U", _) => Entry::Unowned { epoch },
            (owner, None) => Entry::Owned { owner: id(owner), epoch },
            (_, Some((owner, target))) => {
                Entry::Draining { owner: id(owner), epoch, target: target.parse().ok() }
            }
        }
    }

    #[test]
    fn settling() {
        // facts: g = owner gone, k = acknowledged, t = target eligible
        for (before, facts, after) in [
            ("U4", "gkt", "U4"),
            ("a4", "", "a4"),
            ("a4", "kt", "a4"),
            ("a4", "g", "U4"),
            ("a>b4", "", "a>b4"),
            ("a>b4", "t", "a>b4"),
            ("a>b4", "k", "U4"),
            ("a>b4", "kt", "b5"),
            ("a>b4", "gt", "b5"),
            ("a>b4", "g", "U4"),
            ("a>4", "k", "U4"),
            ("a>4", "gk", "U4"),
            ("a>a4", "kt", "a5"),
        ] {
            let known = Facts {
                owner_gone: facts.contains('g'),
                acknowledged: facts.contains('k'),
                target_eligible: facts.contains('t'),
            };
            assert_eq!(entry(before).settle(known), entry(after), "{before} with {facts:?}");
        }
    }

    #[test]
    fn planned_changes() {
        for (before, to, after) in [
            ("U4", Some("b"), "b5"),
            ("a4", Some("b"), "a>b4"),
            ("a>b4", Some("c"), "a>c4"),
            ("a>4", Some("a"), "a>a4"),
        ] {
            let to = to.map(id).unwrap();
            assert_eq!(entry(before).assign(&to), entry(after), "{before}");
        }
        assert_eq!(entry("a4").drain(None), entry("a>4"));
        assert_eq!(entry("a>b4").drain(None), entry("a>4"));
        assert_eq!(entry("U4").drain(None), entry("U4"));
    }

    #[derive(Clone, Debug)]
    enum Change {
        Settle(Facts),
        Assign(u8),
        Drain(Option<u8>),
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            any::<(bool, bool, bool)>().prop_map(|(owner_gone, acknowledged, target_eligible)| {
                Change::Settle(Facts { owner_gone, acknowledged, target_eligible })
            }),
            (0..3u8).prop_map(Change::Assign),
            proptest::option::of(0..3u8).prop_map(Change::Drain),
        ]
    }

    fn apply(entry: &Entry, change: &Change) -> Entry {
        let member = |n: u8| id(["a", "b", "c"][usize::from(n)]);
        match change {
            Change::Settle(facts) => entry.settle(*facts),
            Change::Assign(to) => entry.assign(&member(*to)),
            Change::Drain(to) => entry.drain(to.map(member).as_ref()),
        }
    }

    proptest! {
        #[test]
        fn epochs_rise_with_each_owner(changes in proptest::collection::vec(change(), 0..40)) {
            let mut now = Entry::Unowned { epoch: Epoch(0) };
            let mut last_owned = now.epoch();
            for change in &changes {
                let next = apply(&now, change);
                prop_assert!(next.epoch() >= now.epoch());
                if let (Entry::Owned { .. }, true) = (&next, next != now) {
                    prop_assert_eq!(next.epoch(), last_owned.next());
                    last_owned = next.epoch();
                }
                now = next;
            }
        }

        #[test]
        fn an_owner_is_replaced_only_when_settled(
            changes in proptest::collection::vec(change(), 0..40),
        ) {
            let mut now = Entry::Unowned { epoch: Epoch(0) };
            for change in &changes {
                let next = apply(&now, change);
                if now.owner().is_some() && next.owner() != now.owner() {
                    let Change::Settle(facts) = change else {
                        return Err(TestCaseError::fail(format!("{now:?} by {change:?}")));
                    };
                    let drained = matches!(now, Entry::Draining { .. }) && facts.acknowledged;
                    prop_assert!(facts.owner_gone || drained);
                }
                now = next;
            }
        }

        #[test]
        fn an_entry_reads_back_as_written(changes in proptest::collection::vec(change(), 0..20)) {
            let path: ShardPath = "tdset/0/1".parse().unwrap();
            let entry = changes
                .iter()
                .fold(Entry::Unowned { epoch: Epoch(0) }, |entry, change| apply(&entry, change));
            prop_assert_eq!(Entry::read(&entry.write(&path)), entry);
        }
    }
}
