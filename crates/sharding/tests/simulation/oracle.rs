//! What must hold, judged from outside: commits of the store and dispatches of the members, each at
//! its time on the simulation's own clock.

use std::collections::BTreeMap;

use model::{Epoch, MemberId, ShardId};
use sharding::handover::Entry;
use sharding::lease;
use sharding::record::{MapRecord, Object};

use crate::server::Commit;

/// All that the oracles remember.
#[derive(Debug, Default)]
pub struct Oracle {
    /// The present dispatch of each shard: by whom, and when it ends at the latest.
    running: BTreeMap<ShardId, (MemberId, u64)>,
    /// The highest epoch each shard was ever owned at.
    epochs: BTreeMap<ShardId, Epoch>,
    owners: BTreeMap<ShardId, MemberId>,
    moves: usize,
}

impl Oracle {
    /// S1: dispatch intervals of different members never overlap.
    pub fn dispatched(&mut self, shard: &ShardId, member: &MemberId, now_us: u64, until_us: u64) {
        if let Some((other, end)) = self.running.get(shard) {
            assert!(
                other == member || *end <= now_us,
                "S1: {member} dispatches {shard} at {now_us} µs while {other} does until {end}"
            );
        }
        self.running.insert(shard.clone(), (member.clone(), until_us));
    }

    /// A reconcile ended, or was cancelled.
    pub fn ended(&mut self, shard: &ShardId, member: &MemberId, now_us: u64) {
        if let Some((running, end)) = self.running.get_mut(shard)
            && running == member
        {
            *end = (*end).min(now_us);
        }
    }

    /// S3 and S5 over everything the store accepts. `valid_until` gives, in real time, until when a
    /// member believes that it may act.
    pub fn committed(
        &mut self,
        commit: &Commit,
        now_us: u64,
        valid_until: impl Fn(&MemberId) -> Option<u64>,
    ) {
        match &commit.after {
            Some(Object::Map(map)) => self.check_map(map),
            Some(Object::Lease(record)) => {
                let Some(member) = lease::subject(&record.name) else { return };
                let taken = record.holder.as_deref().is_some_and(|h| h != member.as_str());
                if let (true, Some(valid_until)) = (taken, valid_until(&member)) {
                    assert!(
                        valid_until <= now_us,
                        "S5: the Lease of {member} is taken at {now_us} µs, it acts until {valid_until}"
                    );
                }
            }
            Some(Object::Member(_)) | None => self.check_removal(commit),
        }
    }

    /// How many shards each owner has, the owners in order of their names.
    pub fn owners(&self) -> Vec<usize> {
        let mut counts: BTreeMap<&MemberId, usize> = BTreeMap::new();
        for owner in self.owners.values() {
            *counts.entry(owner).or_default() += 1;
        }
        counts.into_values().collect()
    }

    /// How often a shard got an owner.
    pub fn moves(&self) -> usize {
        self.moves
    }

    /// S3: an owner is named at a higher epoch than any before, and stays at it.
    fn check_map(&mut self, map: &MapRecord) {
        for (path, entry) in &map.entries {
            let shard = path.in_cluster(&map.cluster);
            let highest = self.epochs.get(&shard).copied().unwrap_or_default();
            let epoch = entry.epoch();
            assert!(epoch >= highest, "S3: {shard} goes from epoch {highest} to {epoch}");
            let Some(owner) = entry.owner() else {
                self.owners.remove(&shard);
                continue;
            };
            let before = self.owners.insert(shard.clone(), owner.clone());
            if before.as_ref() != Some(owner) {
                assert!(epoch > highest, "S3: {shard} goes to {owner} at the old epoch {epoch}");
                assert!(matches!(entry, Entry::Owned { .. }), "{shard} begins as {entry:?}");
                self.moves += 1;
            }
            self.epochs.insert(shard, epoch);
        }
    }

    fn check_removal(&mut self, commit: &Commit) {
        if let (Some(Object::Map(map)), None) = (&commit.before, &commit.after) {
            for (path, entry) in &map.entries {
                assert_eq!(entry.owner(), None, "a map is deleted while {path} has an owner");
            }
        }
    }
}
