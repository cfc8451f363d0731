//! For which cluster a draft's map stands, and what it takes over from the map of the cluster's old name.

use std::collections::{BTreeMap, BTreeSet};

use model::{ClusterName, ClusterUid, Epoch, GroupName};

use super::{Base, Draft, Goal};
use crate::api::ShardPath;
use crate::handover::Entry;
use crate::policy::Policies;
use crate::problem;
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

    /// Takes over the shards of a renamed cluster, once nobody may act for one of them, and by which names people pause
    /// it. The old map stays until both are there.
    pub(in crate::coordinator) fn take_over(
        &mut self,
        before: &mut Draft<'_>,
        policies: &Policies,
    ) {
        if before.is_unowned() && self.is_unowned() && !covers(&self.desired, &before.desired) {
            let desired = self.desired.to_mut();
            desired.epoch_floor = desired.epoch_floor.max(before.desired.epoch_floor);
            inherit(desired.entries_mut(), &before.desired.entries);
        }
        let MapRecord { cluster, former, entries, .. } = &*before.desired;
        let pauses = |name: &&ClusterName| {
            policies.pause_of_former(name, &self.desired.cluster, entries.keys()).is_some()
        };
        let names = std::iter::once(cluster).chain(former).filter(pauses);
        let names: BTreeSet<ClusterName> = names.cloned().collect();
        let knows = |map: &MapRecord| names.is_subset(&map.former);
        let is_there =
            self.base.map().is_some_and(|map| covers(map, &before.desired) && knows(map));
        if !knows(&self.desired) {
            self.desired.to_mut().former.extend(names);
        }
        if let Goal::Remove { is_durable } = before.goal {
            before.goal = Goal::Remove { is_durable: is_durable && is_there };
        }
    }

    /// Forgets the former names by which people pause nothing any more that they do not pause by its name.
    pub(super) fn forget_former(&mut self, policies: &Policies) {
        let MapRecord { cluster, former, entries, .. } = &*self.desired;
        let is_gone =
            |name: &&ClusterName| policies.pause_of_former(name, cluster, entries.keys()).is_none();
        let gone: Vec<ClusterName> = former.iter().filter(is_gone).cloned().collect();
        if !gone.is_empty() {
            self.desired.to_mut().former.retain(|name| !gone.contains(name));
        }
    }

    /// What people should know of a pause that holds by a former name of the cluster.
    pub(in crate::coordinator) fn paused_by_former<'d>(
        &'d self,
        policies: &'d Policies,
    ) -> impl Iterator<Item = String> + 'd {
        let MapRecord { cluster, former, entries, .. } = &*self.desired;
        former.iter().filter_map(move |name| {
            let policy = policies.pause_of_former(name, cluster, entries.keys())?;
            Some(problem::paused_by_its_old_name(name, cluster, policy))
        })
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
