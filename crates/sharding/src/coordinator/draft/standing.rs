//! For which cluster a draft's map stands, and what it takes over from the map of the cluster's old name.
//!
//! Which cluster had which name is never unlearned (`MapRecord::former`, `World::former_names`): a map says it before
//! another one says it no more, and until no policy can pause anything by it.

use std::collections::BTreeMap;

use model::{ClusterName, ClusterUid, Epoch, GroupName};

use super::{Base, Draft, Goal};
use crate::api::ShardPath;
use crate::coordinator::View;
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
    /// stands for none as soon as nobody may act for a shard of it, and says which one had its name.
    pub(in crate::coordinator) fn dispute(&mut self, is_lost: bool) {
        self.wait();
        if is_lost && self.is_unowned() {
            let desired = self.desired.to_mut();
            let before = desired.cluster_uid.take().map(|uid| (uid, desired.cluster.clone()));
            desired.former.extend(before);
        }
    }

    /// Takes over the shards of a renamed cluster, once nobody may act for one of them, and by which names people may
    /// have paused it. The old map stays until home has both.
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
        let MapRecord { cluster, cluster_uid, former, .. } = &*before.desired;
        let own = cluster_uid.iter().map(|uid| (uid.clone(), cluster.clone()));
        let all = own.chain(former.iter().cloned());
        let former: Vec<_> = all.filter(|(uid, name)| self.needs(uid, name, policies)).collect();
        let knows = |map: &MapRecord| former.iter().all(|known| map.former.contains(known));
        let is_there =
            matches!(self.base, Base::Observed(map) if covers(map, &before.desired) && knows(map));
        if !knows(&self.desired) {
            self.desired.to_mut().former.extend(former);
        }
        if let Goal::Remove { is_durable } = before.goal {
            before.goal = Goal::Remove { is_durable: is_durable && is_there };
        }
    }

    /// Says the former names of its cluster that any map said, and no more those that no policy can need, nor those of
    /// another cluster that has a map.
    pub(in crate::coordinator) fn follow_names(&mut self, view: &View<'_>) {
        let (world, policies) = (view.world, view.policies);
        let MapRecord { cluster, cluster_uid, former, .. } = &*self.desired;
        let known = cluster_uid.iter().flat_map(|uid| {
            let names = world.former_names(uid).filter(|name| *name != cluster);
            names.map(|name| (uid.clone(), name.clone())).filter(|one| !former.contains(one))
        });
        let known: Vec<_> = known.filter(|(uid, name)| self.needs(uid, name, policies)).collect();
        let has_another = |uid: &ClusterUid| {
            let mut others = world.maps().values().filter(|map| map.cluster != *cluster);
            cluster_uid.as_ref().is_some_and(|own| own != uid)
                && others.any(|map| map.cluster_uid.as_ref() == Some(uid))
        };
        let is_over = |(uid, name): &&(ClusterUid, ClusterName)| {
            has_another(uid) || !self.needs(uid, name, policies)
        };
        let over: Vec<_> = former.iter().filter(is_over).cloned().collect();
        if !(known.is_empty() && over.is_empty()) {
            let former = &mut self.desired.to_mut().former;
            former.retain(|one| !over.contains(one));
            former.extend(known);
        }
    }

    /// Whether a policy may pause something by a name that a cluster had. If the map stands for that one, it is not
    /// needed for what the same policy pauses by its name as well.
    fn needs(&self, uid: &ClusterUid, name: &ClusterName, policies: &Policies) -> bool {
        let MapRecord { cluster, cluster_uid, entries, .. } = &*self.desired;
        let pauses = if cluster_uid.as_ref() == Some(uid) {
            policies.pause_of_former(name, cluster, entries.keys()).is_some()
        } else {
            entries.keys().any(|path| policies.pause_of(&path.in_cluster(name)).is_some())
        };
        pauses || policies.may_lack()
    }

    /// What people should know of a pause that holds by a former name of the cluster.
    pub(in crate::coordinator) fn paused_by_former<'d>(
        &'d self,
        policies: &'d Policies,
    ) -> impl Iterator<Item = String> + 'd {
        let MapRecord { cluster, entries, .. } = &*self.desired;
        self.desired.names().skip(1).filter_map(move |name| {
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
