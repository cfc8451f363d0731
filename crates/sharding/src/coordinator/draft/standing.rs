//! For which cluster a draft's map stands, and what it takes over from the map of the cluster's old name.

use std::collections::BTreeMap;

use model::{ClusterName, ClusterUid, Epoch, GroupName, ShardId};

use super::{Base, Draft, Goal};
use crate::api::ShardPath;
use crate::handover::Entry;
use crate::policy::Policies;
use crate::record::MapRecord;

impl Draft<'_> {
    /// The name of the cluster.
    pub(in crate::coordinator) fn cluster(&self) -> &ClusterName {
        &self.desired.cluster
    }

    /// What a map said that was deleted counts no more: its cluster may have another name by now.
    pub(in crate::coordinator) fn forget_deleted(&mut self) {
        if matches!(self.base, Base::Absent) && self.desired.cluster_uid.is_some() {
            self.desired.to_mut().cluster_uid = None;
        }
    }

    /// The map stands for that cluster from now on, unless it stands for one already.
    pub(in crate::coordinator) fn stand_for(&mut self, uid: &ClusterUid) {
        if self.is_kept() && self.desired.cluster_uid.is_none() {
            self.desired.to_mut().cluster_uid = Some(uid.clone());
        }
    }

    /// Shards without an owner get none for now.
    pub(in crate::coordinator) fn wait(&mut self) {
        self.waits = true;
    }

    /// The map stands for another cluster than those who have it configured say. If that one `is_lost`, the map
    /// stands for none as soon as nobody may act for a shard of it.
    pub(in crate::coordinator) fn dispute(&mut self, is_lost: bool) {
        self.wait();
        if is_lost && self.is_unowned() {
            self.desired.to_mut().cluster_uid = None;
        }
    }

    /// Takes over the shards of a renamed cluster, once nobody may act for one of them. The old map stays
    /// until this is there.
    pub(in crate::coordinator) fn take_over(&mut self, before: &mut Draft<'_>) {
        if before.is_unowned() && self.is_unowned() && !covers(&self.desired, &before.desired) {
            let desired = self.desired.to_mut();
            desired.epoch_floor = desired.epoch_floor.max(before.desired.epoch_floor);
            inherit(desired.entries_mut(), &before.desired.entries);
        }
        let is_there = self.base.map().is_some_and(|map| covers(map, &before.desired));
        if let Goal::Remove { is_durable } = before.goal {
            before.goal = Goal::Remove { is_durable: is_durable && is_there };
        }
    }

    /// Keeps the map of a renamed cluster as long as people pause shards of it by its old name and not by the `new`
    /// one: these names are all that a policy knows. Returns such a policy.
    pub(in crate::coordinator) fn keep_while_paused<'p>(
        &mut self,
        new: &ClusterName,
        policies: &'p Policies,
    ) -> Option<&'p str> {
        let policy = self.shards().find_map(|shard| {
            let policy = policies.pause_of(&shard)?;
            let renamed = ShardId { cluster: new.clone(), ..shard };
            policies.pause_of(&renamed).is_none().then_some(policy)
        })?;
        self.goal = Goal::Remove { is_durable: false };
        Some(policy)
    }
}

/// Whether a map has each of these shards, at its epoch or a higher one.
fn covers(map: &MapRecord, before: &MapRecord) -> bool {
    before.entries.iter().all(|(path, old)| map.lowest_over(path) >= Some(old.epoch()))
}

/// Puts the shards of groups in place of others of the same groups, none at a lower epoch than those.
fn inherit(entries: &mut BTreeMap<ShardPath, Entry>, before: &BTreeMap<ShardPath, Entry>) {
    let mut highest: BTreeMap<GroupName, Epoch> = BTreeMap::new();
    for (path, entry) in entries.iter() {
        let known = highest.entry(path.group.clone()).or_default();
        *known = entry.epoch().max(*known);
    }
    entries.retain(|path, _| !before.keys().any(|old| old.group == path.group));
    entries.extend(before.iter().map(|(path, old)| {
        let least = highest.get(&path.group).copied().unwrap_or_default();
        (path.clone(), Entry::Unowned { epoch: old.epoch().max(least) })
    }));
}
