//! The rules, judged from outside: by commits of the store and dispatches of the members, each at its
//! time on the simulation's own clock.
//!
//! They are judged per uid, not per shard. A few hashes stand for all uids: whatever shard such a hash
//! lies in, before and after splits and merges, it has one owner after the other.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_sharding::ProtocolVersions;
use leasehold_sharding::handover::Entry;
use leasehold_sharding::lease;
use leasehold_sharding::record::{MapRecord, Object};
use model::{ClusterName, Epoch, GroupName, MemberId, ShardId};

use crate::server::Commit;

/// The number of probed hashes, which are evenly spaced.
const PROBES: u64 = 16;

/// A hash of some object's uid, in one cluster and for one group.
type Probe = (ClusterName, GroupName, u64);

/// Who dispatches, under which name of the cluster, and the latest end.
#[derive(Debug)]
struct Dispatch {
    member: MemberId,
    name: ClusterName,
    end_us: u64,
}

/// All that the oracles remember.
#[derive(Debug, Default)]
pub struct Oracle {
    /// The present dispatch of each probe: the member, and the latest end.
    running: BTreeMap<Probe, Dispatch>,
    /// The clusters that have another name than themselves: name to cluster.
    pub clusters: BTreeMap<ClusterName, ClusterName>,
    /// The last owner of each probe, and its epoch, the highest so far.
    owned: BTreeMap<Probe, (Option<MemberId>, Epoch)>,
    /// The owner of each probe at the highest epoch ever, also in a history that home lost.
    reached: BTreeMap<Probe, (Option<MemberId>, Epoch)>,
    owners: BTreeMap<ShardId, MemberId>,
    dispatches: BTreeMap<ClusterName, usize>,
    moves: usize,
    splits: usize,
    merges: usize,
}

impl Oracle {
    /// S1 and S8: dispatch intervals of different members never overlap, nor do those under different
    /// names of a cluster.
    pub fn dispatched(&mut self, shard: &ShardId, member: &MemberId, now_us: u64, until_us: u64) {
        *self.dispatches.entry(shard.cluster.clone()).or_default() += 1;
        for probe in self.probes_of_cluster(shard) {
            if let Some(Dispatch { member: other, name, end_us }) = self.running.get(&probe) {
                assert!(
                    (other == member && *name == shard.cluster) || *end_us <= now_us,
                    "S1, S8: {member} dispatches {shard} at {now_us} µs while {other} does in {name} until {end_us}"
                );
            }
            let (member, name) = (member.clone(), shard.cluster.clone());
            self.running.insert(probe, Dispatch { member, name, end_us: until_us });
        }
    }

    /// A reconcile ended, or was cancelled.
    pub fn ended(&mut self, shard: &ShardId, member: &MemberId, now_us: u64) {
        for probe in self.probes_of_cluster(shard) {
            if let Some(running) = self.running.get_mut(&probe)
                && running.member == *member
                && running.name == shard.cluster
            {
                running.end_us = running.end_us.min(now_us);
            }
        }
    }

    /// The probes that lie in a shard, in the cluster for which its name stands.
    fn probes_of_cluster(&self, shard: &ShardId) -> Vec<Probe> {
        let cluster = self.clusters.get(&shard.cluster).unwrap_or(&shard.cluster);
        probes(shard).map(|(_, group, hash)| (cluster.clone(), group, hash)).collect()
    }

    /// S3 and S5 over everything that the store accepts. `valid_until` gives, in real time, until when a
    /// member believes that it may act.
    pub fn committed(
        &mut self,
        commit: &Commit,
        now_us: u64,
        valid_until: impl Fn(&MemberId) -> Option<u64>,
    ) {
        match &commit.after {
            Some(Object::Map(map)) => {
                self.check_map(map);
                if let Some(Object::Map(before)) = &commit.before {
                    self.count_reshapes(before, map);
                }
            }
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

    /// The store has another history: what its maps say now. No epoch returns for all that.
    pub fn history_changed<'a>(&mut self, maps: impl Iterator<Item = &'a MapRecord>) {
        self.owned.clear();
        self.owners.clear();
        for map in maps {
            for (path, entry) in map.entries.iter() {
                let shard = path.in_cluster(&map.cluster);
                for probe in probes(&shard) {
                    self.owned.insert(probe, (entry.owner().cloned(), entry.epoch()));
                }
                if let Some(owner) = entry.owner() {
                    self.owners.insert(shard, owner.clone());
                }
            }
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

    /// Only a member that speaks the version of a map replaces or deletes it, and every live owner in it
    /// speaks the new version. `speaks` gives the versions of live members.
    pub fn understood(
        commit: &Commit,
        writer: ProtocolVersions,
        speaks: impl Fn(&MemberId) -> Option<ProtocolVersions>,
    ) {
        if let Some(Object::Map(before)) = &commit.before {
            assert!(writer.speaks(before.protocol), "who speaks {writer} replaces {before:?}");
        }
        let Some(Object::Map(map)) = &commit.after else { return };
        for owner in map.entries.values().filter_map(Entry::owner) {
            let follows = speaks(owner).is_none_or(|versions| versions.speaks(map.protocol));
            let before = commit.before.as_ref();
            let stays =
                matches!(before, Some(Object::Map(before)) if before.protocol == map.protocol);
            assert!(follows || stays, "{owner} does not speak the version of {map:?}");
        }
    }

    /// How many reconciles of a cluster began.
    pub fn dispatches(&self, cluster: &str) -> usize {
        self.dispatches.iter().filter(|(name, _)| name.as_str() == cluster).map(|(_, n)| n).sum()
    }

    /// The highest epoch of a cluster.
    pub fn epoch(&self, cluster: &str) -> u64 {
        let of = self.owned.iter().filter(|((name, ..), _)| name.as_str() == cluster);
        of.map(|(_, (_, epoch))| epoch.0).max().unwrap_or_default()
    }

    /// How often a shard got an owner.
    pub fn moves(&self) -> usize {
        self.moves
    }

    /// How often a shard was split, and halves were merged.
    pub fn range_changes(&self) -> (usize, usize) {
        (self.splits, self.merges)
    }

    /// S3: each owner of a uid has a higher epoch than every owner before, and keeps it. Every uid is in
    /// exactly one shard.
    fn check_map(&mut self, map: &MapRecord) {
        let mut covered = BTreeSet::new();
        self.owners.retain(|shard, _| {
            shard.cluster != map.cluster || map.entries.contains_key(&shard.into())
        });
        for (path, entry) in map.entries.iter() {
            let shard = path.in_cluster(&map.cluster);
            for probe in probes(&shard) {
                self.check_probe(&shard, &probe, entry);
                assert!(covered.insert(probe), "{shard} overlaps another of {map:?}");
            }
            let Some(owner) = entry.owner() else {
                self.owners.remove(&shard);
                continue;
            };
            let before = self.owners.insert(shard, owner.clone());
            self.moves += usize::from(before.as_ref() != Some(owner));
        }
        let groups: BTreeSet<_> = map.entries.keys().map(|path| &path.group).collect();
        assert_eq!(covered.len() as u64, groups.len() as u64 * PROBES, "all of {map:?}");
    }

    fn check_probe(&mut self, shard: &ShardId, probe: &Probe, entry: &Entry) {
        let (before, highest) = self.owned.get(probe).cloned().unwrap_or_default();
        let epoch = entry.epoch();
        assert!(epoch >= highest, "S3: {shard} goes from epoch {highest} to {epoch}");
        let owner = entry.owner().cloned();
        if owner.is_some() && (&owner, epoch) != (&before, highest) {
            assert!(epoch > highest, "S3: {shard} goes to {owner:?} at the old epoch {epoch}");
            let now = (owner.clone(), epoch);
            let last = self.reached.insert(probe.clone(), now.clone()).unwrap_or_default();
            // Who owned it last may have it back as it was.
            let stays = now == last;
            assert!(epoch > last.1 || stays, "S3: {shard} goes to {now:?} after {last:?}");
            // Who has it again, in a map that is made anew, may have to drain it at once.
            let begins = owner == before || matches!(entry, Entry::Owned { .. });
            assert!(stays || begins, "{shard} begins as {entry:?}");
        }
        self.owned.insert(probe.clone(), (owner, epoch));
    }

    fn count_reshapes(&mut self, before: &MapRecord, after: &MapRecord) {
        for path in before.entries.keys().filter(|path| !after.entries.contains_key(path)) {
            let halves = path.range.halves().into_iter().flatten();
            let is_there = |range| {
                let group = path.group.clone();
                after.entries.contains_key(&leasehold_sharding::api::ShardPath { group, range })
            };
            self.splits += usize::from(halves.into_iter().all(is_there));
            // Counts one of the two halves that merge.
            let low = path.range.parent().and_then(|parent| parent.halves()).map(|[low, _]| low);
            let merged = path.range.parent().is_some_and(is_there);
            self.merges += usize::from(merged && low == Some(path.range));
        }
    }

    fn check_removal(&mut self, commit: &Commit) {
        if let (Some(Object::Map(map)), None) = (&commit.before, &commit.after) {
            for (path, entry) in map.entries.iter() {
                assert_eq!(entry.owner(), None, "a map is deleted while {path} has an owner");
            }
        }
    }
}

/// The probes that lie in a shard.
fn probes(shard: &ShardId) -> impl Iterator<Item = Probe> + '_ {
    let hashes = (0..PROBES).map(|probe| probe * (u64::MAX / PROBES + 1));
    let inside = hashes.filter(|&hash| shard.range.contains(hash));
    inside.map(|hash| (shard.cluster.clone(), shard.group.clone(), hash))
}
