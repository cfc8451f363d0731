//! Who holds which shard, according to ShardMaps, and how long the shards of a killed replica had no
//! owner.
//!
//! Pure: fed with ShardMaps as they are seen; `now` is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::{ClusterName, Epoch, MemberId, Moment, ShardId};
use sharding::api::{Phase, ShardMap};

/// One shard as its ShardMap shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// Its epoch.
    pub epoch: Epoch,
    /// Its phase.
    pub phase: Phase,
    /// Its owner.
    pub owner: Option<MemberId>,
}

/// Every shard, and the gaps that a killed replica left.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    shards: BTreeMap<ShardId, Held>,
    gaps: BTreeMap<ShardId, Gap>,
    moves: u64,
}

/// One shard whose owner was killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// The epoch of the owner that was killed.
    epoch: Epoch,
    killed_at: Moment,
    owned_again: Option<(Moment, MemberId)>,
}

impl Holdings {
    /// Takes in the ShardMap of one cluster.
    pub(crate) fn apply(&mut self, cluster: &ClusterName, map: &ShardMap, now: Moment) {
        for entry in &map.spec.shards {
            let shard = entry.shard.in_cluster(cluster);
            let held = Held { epoch: entry.epoch, phase: entry.phase, owner: entry.owner.clone() };
            if let (Some(gap), Phase::Owned, Some(owner)) =
                (self.gaps.get_mut(&shard), held.phase, &held.owner)
                && gap.epoch < held.epoch
            {
                gap.owned_again.get_or_insert_with(|| (now, owner.clone()));
            }
            let before = self.shards.insert(shard, held.clone());
            let moved = before.is_some_and(|before| {
                before.owner != held.owner && before.owner.is_some() && held.owner.is_some()
            });
            self.moves += u64::from(moved);
        }
    }

    /// Notes that the replica `identity` was killed; returns the clusters that lost their owner.
    pub(crate) fn killed(&mut self, identity: &str, now: Moment) -> BTreeSet<ClusterName> {
        let lost = self.shards.iter().filter(|(_, held)| is_of(held.owner.as_ref(), identity));
        for (shard, held) in lost {
            let gap = Gap { epoch: held.epoch, killed_at: now, owned_again: None };
            self.gaps.insert(shard.clone(), gap);
        }
        self.gaps.keys().map(|shard| shard.cluster.clone()).collect()
    }

    /// The shards of a replica, as `cluster/group`, with the range where there is more than one.
    pub(crate) fn of(&self, identity: &str) -> Vec<String> {
        self.shards
            .iter()
            .filter(|(_, held)| is_of(held.owner.as_ref(), identity))
            .map(|(shard, held)| {
                let draining = if held.phase == Phase::Draining { " (draining)" } else { "" };
                format!("{}{draining}", short(shard))
            })
            .collect()
    }

    /// How many shards a replica has.
    pub(crate) fn count(&self, identity: &str) -> usize {
        self.shards.values().filter(|held| is_of(held.owner.as_ref(), identity)).count()
    }

    /// Shards in all.
    pub(crate) fn len(&self) -> usize {
        self.shards.len()
    }

    /// Shards without an owner, including those of a killed replica until another has them.
    pub(crate) fn unowned(&self) -> usize {
        let orphaned =
            |shard: &ShardId| self.gaps.get(shard).is_some_and(|gap| gap.owned_again.is_none());
        self.shards.iter().filter(|(shard, held)| held.owner.is_none() || orphaned(shard)).count()
    }

    /// Changes of a shard's owner seen so far.
    pub(crate) fn moves(&self) -> u64 {
        self.moves
    }

    /// When the last shard of the killed replica got an owner again, if all of them have one.
    pub(crate) fn whole_again(&self) -> Option<Moment> {
        let mut last = None;
        for gap in self.gaps.values() {
            last = last.max(Some(gap.owned_again.as_ref()?.0));
        }
        last
    }

    /// The shards that the killed replica left: each with the time without an owner and the next owner;
    /// `None` while there is none.
    pub(crate) fn gaps(&self) -> Vec<(String, Option<(Duration, MemberId)>)> {
        let closed = |gap: &Gap| {
            let (at, owner) = gap.owned_again.clone()?;
            Some((at.since(gap.killed_at), owner))
        };
        self.gaps.iter().map(|(shard, gap)| (short(shard), closed(gap))).collect()
    }
}

/// Whether a member is an incarnation of the replica `identity`: the identity and a random suffix.
pub(crate) fn is_of(member: Option<&MemberId>, identity: &str) -> bool {
    let suffix = member
        .and_then(|member| member.as_str().strip_prefix(identity))
        .and_then(|rest| rest.strip_prefix('-'));
    suffix.is_some_and(|suffix| !suffix.contains('-'))
}

/// `east/tdset`, or with its range where the group is split.
fn short(shard: &ShardId) -> String {
    let text = shard.to_string();
    text.strip_suffix("/0/1").map(str::to_owned).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_origin(Duration::from_millis(ms))
    }

    fn map(entries: &str) -> ShardMap {
        let entries: Vec<_> = entries
            .split(", ")
            .map(|entry| {
                let [shard, epoch, phase, owner] = entry.split(' ').collect::<Vec<_>>()[..] else {
                    panic!("{entry}")
                };
                let mut value = serde_json::json!({
                    "shard": shard, "epoch": epoch.parse::<u64>().unwrap(), "phase": phase,
                });
                if owner != "-" {
                    value["owner"] = owner.into();
                }
                value
            })
            .collect();
        serde_json::from_value(serde_json::json!({
            "apiVersion": "leasehold.dev/v1alpha1", "kind": "ShardMap",
            "metadata": {"name": "east"}, "spec": {"shards": entries},
        }))
        .unwrap()
    }

    fn east() -> ClusterName {
        "east".parse().unwrap()
    }

    #[test]
    fn a_gap_lasts_from_the_kill_until_another_epoch_is_owned() {
        let mut holdings = Holdings::default();
        let whole = "tdset/0/1 3 Owned replica-1-aa, other/0/1 5 Owned replica-10-bb";
        holdings.apply(&east(), &map(whole), at(0));
        assert_eq!(holdings.of("replica-1"), ["east/tdset"]);
        assert_eq!(holdings.of("replica-10"), ["east/other"]);
        assert_eq!((holdings.unowned(), holdings.whole_again()), (0, None));

        assert_eq!(holdings.killed("replica-1", at(1000)), [east()].into());
        assert_eq!(holdings.unowned(), 1, "the ShardMap still names the dead");

        let unchanged = "tdset/0/1 3 Owned replica-1-aa, other/0/1 6 Owned replica-2-cc";
        holdings.apply(&east(), &map(unchanged), at(2000));
        assert_eq!((holdings.unowned(), holdings.moves()), (1, 1));
        assert_eq!(holdings.gaps(), [("east/tdset".to_owned(), None)]);

        let nobody = "tdset/0/1 3 Unowned -, other/0/1 6 Owned replica-2-cc";
        holdings.apply(&east(), &map(nobody), at(3000));
        assert_eq!(holdings.unowned(), 1);

        let taken = "tdset/0/1 4 Owned replica-2-cc, other/0/1 6 Owned replica-2-cc";
        holdings.apply(&east(), &map(taken), at(9500));
        holdings.apply(&east(), &map(taken), at(9900));
        assert_eq!((holdings.unowned(), holdings.whole_again()), (0, Some(at(9500))));
        let owner = "replica-2-cc".parse().unwrap();
        let gap = Duration::from_millis(8500);
        assert_eq!(holdings.gaps(), [("east/tdset".to_owned(), Some((gap, owner)))]);
    }

    #[test]
    fn a_killed_replica_that_held_nothing_leaves_no_gap() {
        let mut holdings = Holdings::default();
        holdings.apply(&east(), &map("tdset/0/1 3 Owned replica-1-aa"), at(0));
        assert!(holdings.killed("replica-2", at(1)).is_empty());
        assert_eq!((holdings.gaps().len(), holdings.unowned()), (0, 0));
    }
}
