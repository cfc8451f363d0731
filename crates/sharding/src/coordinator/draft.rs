//! Drafts of maps: from the version that is replaced to the one that is desired.
//!
//! ```text
//!   Base ──start──▶ desired ── final facts ──▶ desired ── the plan ──▶ desired ──▶ Write
//! ```
//!
//! A [`Draft`] has exactly two versions of its map: the [`Base`], which never changes, and the desired
//! map, which every step replaces. The write follows from the two.

mod cover;
mod moved;
mod standing;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{ClusterName, Epoch, GroupName, GroupScope, MemberId, ShardId, single};

use super::View;
use super::base::Base;
use super::peers::Peers;
use super::written::Written;
use crate::api::ShardPath;
use crate::handover::{Entry, Facts};
use crate::planner::{Placement, PlanShard};
use crate::policy::Policies;
use crate::ranges::RangeChange;
use crate::record::{Kind, MapRecord, Object, Target, Write};
use crate::versions::UNREADABLE;
use crate::world::World;

pub(super) use moved::Causes;

/// The drafts of all maps.
pub(super) type Drafts<'a> = BTreeMap<&'a ClusterName, Draft<'a>>;
/// The members that may still act for shards of each group of scope `Fleet`.
#[derive(Default)]
pub(super) struct FleetHolders {
    known: Holders,
    /// The same in maps that the coordinator cannot read any more, as they last were: until their Leases are taken.
    unread: Holders,
    /// The clusters whose maps it has never read, or that others write: anybody may act for shards in them.
    hidden: Vec<ClusterName>,
    /// The clusters whose maps a write that is under way may still change ([`Written`]).
    unsettled: Vec<ClusterName>,
}
type Holders = BTreeMap<GroupName, BTreeSet<MemberId>>;

/// A map that the coordinator is about to write.
pub(super) struct Draft<'a> {
    /// The version that the write replaces.
    base: Base<'a>,
    /// The map as it should be.
    desired: Cow<'a, MapRecord>,
    goal: Goal,
    /// Whether shards without an owner get none for now.
    waits: bool,
    /// Whether somebody may act for its shards by a map that the coordinator does not know.
    is_unseen: bool,
    /// Whether it is written even if nothing changes.
    is_rewritten: bool,
    /// The shards that people have paused.
    paused: BTreeSet<ShardPath>,
    /// The shards that share uids with others.
    doubled: BTreeSet<ShardPath>,
    /// Its entries as the last plan left them, if nothing has changed since.
    before: Option<Arc<BTreeMap<ShardPath, Entry>>>,
}

/// What should become of a map.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goal {
    /// It stays.
    Keep,
    /// Its shards drain, and then it is deleted.
    Remove {
        /// Whether its epochs would survive the deletion: the coordinator's Lease carries the highest.
        is_durable: bool,
    },
}

/// Drafts of all maps that exist or should exist, except those in a version that the coordinator does
/// not speak.
pub(super) fn all<'a>(
    view: &View<'a>,
    peers: &Peers<'_>,
    unwanted: &BTreeSet<ClusterName>,
) -> Drafts<'a> {
    let (world, spoken) = (view.world, &peers.spoken);
    let clusters: BTreeSet<&ClusterName> =
        view.clusters.iter().chain(world.maps().keys()).collect();
    let is_spoken = |cluster: &&ClusterName| {
        world.maps().get(cluster).is_none_or(|map| spoken.mine.speaks(map.protocol))
    };
    clusters
        .into_iter()
        .filter(is_spoken)
        .filter_map(|cluster| {
            let base = Base::of(cluster, view);
            let desired = base.start(cluster, world, peers)?;
            let goal = match unwanted.contains(cluster) {
                true => Goal::Remove {
                    is_durable: world.durable_floor() >= Some(desired.highest_epoch()),
                },
                false => Goal::Keep,
            };
            let draft = Draft {
                base,
                desired,
                goal,
                waits: false,
                is_unseen: false,
                is_rewritten: false,
                paused: BTreeSet::new(),
                doubled: BTreeSet::new(),
                before: None,
            };
            Some((cluster, draft))
        })
        .collect()
}

/// Whether a group is to have shards in a cluster.
fn is_placed(group: &GroupName, cluster: &ClusterName, peers: &Peers<'_>) -> bool {
    peers.groups.contains_key(group) && single::lies_in(group, cluster)
}

/// Whether the shards of a split or merge still drain for it.
pub(super) fn is_under_way(drafts: &Drafts<'_>, change: &RangeChange) -> bool {
    let drains = |entry: &Entry| matches!(entry, Entry::Draining { target: Some(_), .. });
    drafts.get(&change.shard().cluster).is_some_and(|draft| {
        let entry = |part| draft.desired.entries.get(&ShardPath::from(part));
        draft.is_kept() && change.parts().iter().all(|part| entry(part).is_some_and(drains))
    })
}

/// Who may still act for shards of groups of scope `Fleet`.
pub(super) fn fleet_holders(
    drafts: &Drafts<'_>,
    peers: &Peers<'_>,
    world: &World,
    written: &Written,
) -> FleetHolders {
    let mut holders = FleetHolders::default();
    if !peers.groups.values().any(|traits| traits.scope == GroupScope::Fleet) {
        return holders;
    }
    let unread = world.maps().iter().filter(|(_, map)| !peers.spoken.mine.speaks(map.protocol));
    for (cluster, map) in unread {
        // One in a version that others speak may have changed hands since.
        let former = world.former_map(cluster).filter(|_| map.protocol == UNREADABLE);
        let Some(former) = former else {
            holders.hidden.push(cluster.clone());
            continue;
        };
        for (path, entry) in former.map.entries.iter() {
            let owner = entry.owner().filter(|owner| !peers.is_over(owner));
            if let Some(owner) = owner.filter(|_| peers.is_fleet_wide(&path.group)) {
                holders.unread.entry(path.group.clone()).or_default().insert(owner.clone());
            }
        }
    }
    for (&cluster, draft) in drafts {
        if draft.is_unseen {
            holders.hidden.push(cluster.clone());
        }
        let version = world.maps().get(cluster).map(|map| &map.version);
        if !written.is_settled(cluster, version) {
            holders.unsettled.push(cluster.clone());
        }
        for (path, entry) in draft.desired.entries.iter() {
            let Some(owner) = entry.owner().filter(|_| peers.is_fleet_wide(&path.group)) else {
                continue;
            };
            if !peers.facts(cluster, path, entry).owner_is_done() {
                holders.known.entry(path.group.clone()).or_default().insert(owner.clone());
            }
        }
    }
    holders
}

impl FleetHolders {
    /// Whether another member than `target` may still act for shards of a group, if that is one of scope `Fleet`.
    pub(super) fn has_another(
        &self,
        group: &GroupName,
        target: Option<&MemberId>,
        peers: &Peers<'_>,
    ) -> bool {
        let mut known = self.known.get(group).into_iter().flatten();
        let mut hidden = self.hidden.iter().chain(&self.unsettled);
        known.any(|holder| Some(holder) != target)
            || self.is_bound_to_another(group, target)
            || (peers.is_fleet_wide(group) && hidden.any(|cluster| single::lies_in(group, cluster)))
    }

    /// The clusters whose maps the coordinator must write itself before shards of these groups get a next owner.
    pub(super) fn unsettled<'h>(
        &'h self,
        groups: &'h BTreeSet<GroupName>,
    ) -> impl Iterator<Item = &'h ClusterName> {
        let clusters = self.unsettled.iter();
        let lie = move |cluster: &&ClusterName| {
            groups.iter().any(|group| single::lies_in(group, cluster))
        };
        clusters.filter(lie)
    }

    /// Whether another member than `target` may act for shards of a group in a map that nobody can read any more. It
    /// cannot hand them over.
    pub(super) fn is_bound_to_another(&self, group: &GroupName, target: Option<&MemberId>) -> bool {
        let mut unread = self.unread.get(group).into_iter().flatten();
        unread.any(|holder| Some(holder) != target)
    }
}

impl Draft<'_> {
    fn is_kept(&self) -> bool {
        self.goal == Goal::Keep
    }

    /// Whether home has no map, and none is on its way there.
    pub(super) fn is_absent(&self) -> bool {
        matches!(self.base, Base::Absent)
    }

    /// Shards without an owner get none for now: somebody may act for them by a map that the coordinator does not know.
    /// If there is none, none is made meanwhile, so that the next coordinator waits as well.
    pub(super) fn await_owners(&mut self) {
        (self.waits, self.is_unseen) = (true, true);
    }

    /// It is written even if nothing changes, so that no write which is under way replaces it any more.
    pub(super) fn rewrite(&mut self) {
        self.is_rewritten = true;
    }

    /// Whether it is the map as it is, as most are.
    fn is_untouched(&self) -> bool {
        self.base.map().is_some_and(|map| std::ptr::eq(map, &*self.desired))
    }

    /// Takes in the entries that the last plan left [settled](Self::settled). Nothing is there to bring up to date if
    /// they are the same, the map stays, and none of the members that are `over` owns one of its shards.
    pub(super) fn compare(
        &mut self,
        entries: &Arc<BTreeMap<ShardPath, Entry>>,
        over: &BTreeSet<&MemberId>,
    ) {
        let is_same = matches!(self.base, Base::Observed(_))
            && self.is_kept()
            && Arc::ptr_eq(entries, &self.desired.entries)
            && (over.is_empty() || !self.owners().any(|owner| over.contains(owner)));
        self.before = is_same.then(|| Arc::clone(entries));
    }

    /// Whether nothing has changed since the last plan, and this one has changed nothing so far.
    pub(super) fn is_as_before(&self) -> bool {
        self.before.as_ref().is_some_and(|before| Arc::ptr_eq(before, &self.desired.entries))
    }

    /// Its entries, if these are all its shards and each stays with its owner unless the plan moves it.
    pub(super) fn settled(&self, planned: &[PlanShard]) -> Option<Arc<BTreeMap<ShardPath, Entry>>> {
        let entries = &self.desired.entries;
        let is_settled = |shard: &PlanShard| matches!(shard.placement, Placement::Settled(_));
        let is_all = self.is_kept() && planned.len() == entries.len();
        (is_all && planned.iter().all(is_settled)).then(|| Arc::clone(entries))
    }

    /// Applies everything that is final, whatever the plan.
    pub(super) fn bring_up_to_date(
        &mut self,
        peers: &Peers<'_>,
        range_changes: &BTreeSet<RangeChange>,
        holders: &FleetHolders,
    ) {
        let cluster = self.desired.cluster.clone();
        let here = |change: &&RangeChange| change.shard().cluster == cluster;
        let mut waiting = BTreeSet::new();
        for change in range_changes.iter().filter(here) {
            if !self.complete(peers, change) {
                waiting.extend(change.parts());
            }
        }
        self.settle(peers, &waiting, holders);
        if self.is_kept() {
            self.remove_lost_groups(peers);
            self.keep_the_widest();
            self.add_missing(peers);
        } else {
            self.change_all(|_, entry| Some(entry.drain(None)));
        }
    }

    /// Drains the shards that people have paused: for nobody.
    pub(super) fn pause(&mut self, policies: &Policies) {
        if !policies.pause_any() {
            return;
        }
        let map = &self.desired;
        let is_paused = |path: &&ShardPath| policies.pause_in(map, path).is_some();
        let paused: BTreeSet<ShardPath> = map.entries.keys().filter(is_paused).cloned().collect();
        self.change_all(|path, entry| paused.contains(path).then(|| entry.drain(None)));
        self.paused = paused;
    }

    /// How many shards it has.
    pub(super) fn count(&self) -> usize {
        self.desired.entries.len()
    }

    /// Its shards, by all names that policies may know.
    pub(super) fn named_shards(&self) -> impl Iterator<Item = ShardId> {
        let entries = &self.desired.entries;
        self.desired.names().flat_map(|name| entries.keys().map(|path| path.in_cluster(name)))
    }

    fn settle(&mut self, peers: &Peers<'_>, waiting: &BTreeSet<ShardId>, holders: &FleetHolders) {
        let cluster = self.desired.cluster.clone();
        self.change_all(|path, entry| {
            let facts = peers.facts(&cluster, path, entry);
            if !facts.owner_is_done() {
                return None;
            }
            let target = entry.target().filter(|_| facts.target_eligible);
            if target.is_some() && waiting.contains(&path.in_cluster(&cluster)) {
                // Its other half is not free yet.
                return None;
            }
            // Another shard of its group is not free yet: meanwhile it has no owner. The one before waits for nothing,
            // and its Member gets room for further acknowledgements.
            let waits = target.is_some() && holders.has_another(&path.group, target, peers);
            let target_eligible = facts.target_eligible && !waits;
            Some(entry.settle(Facts { target_eligible, ..facts }))
        });
    }

    /// Completes a split or merge, if all its parts are free. The next owner is the one for which the
    /// parts drained.
    fn complete(&mut self, peers: &Peers<'_>, change: &RangeChange) -> bool {
        let cluster = self.desired.cluster.clone();
        let mut freed = Vec::new();
        let mut next_owner = None;
        for part in change.parts() {
            let path = ShardPath::from(&part);
            let Some(entry) = self.desired.entries.get(&path) else { return false };
            let facts = peers.facts(&cluster, &path, entry);
            let target = || entry.target().filter(|_| facts.target_eligible).cloned();
            next_owner = next_owner.or_else(target);
            freed.push((path, entry.settle(Facts { target_eligible: false, ..facts })));
        }
        let Some(made) = change.apply(&freed) else { return false };
        let desired = self.desired.to_mut();
        for (path, _) in &freed {
            desired.entries_mut().remove(path);
        }
        for (path, entry) in made {
            let entry = next_owner.as_ref().map_or(entry.clone(), |owner| entry.assign(owner));
            desired.entries_mut().insert(path, entry);
        }
        true
    }

    /// Drains the shards of groups that no member runs any more, or that have no place here, and
    /// removes those that are drained.
    fn remove_lost_groups(&mut self, peers: &Peers<'_>) {
        let cluster = self.desired.cluster.clone();
        let is_lost = |path: &ShardPath| !is_placed(&path.group, &cluster, peers);
        if !peers.groups_known || !self.desired.entries.keys().any(is_lost) {
            return;
        }
        let desired = self.desired.to_mut();
        let floor = &mut desired.epoch_floor;
        Arc::make_mut(&mut desired.entries).retain(|path, entry| {
            if !is_lost(path) {
                return true;
            }
            *entry = entry.drain(None);
            let stays = entry.owner().is_some();
            if !stays {
                *floor = (*floor).max(entry.epoch());
            }
            stays
        });
    }

    /// Replaces the entries that change, for which `change` gives something.
    fn change_all(&mut self, change: impl Fn(&ShardPath, &Entry) -> Option<Entry>) {
        let changed: Vec<(ShardPath, Entry)> = self
            .desired
            .entries
            .iter()
            .filter_map(|(path, entry)| {
                let next = change(path, entry)?;
                (next != *entry).then(|| (path.clone(), next))
            })
            .collect();
        if !changed.is_empty() {
            self.desired.to_mut().entries_mut().extend(changed);
        }
    }

    /// Puts the map into the version in use, once all owners of its shards speak that version.
    pub(super) fn use_protocol(&mut self, peers: &Peers<'_>, world: &World) {
        let in_use = peers.spoken.in_use;
        let mut owners = self.desired.entries.values().filter_map(Entry::owner);
        if self.desired.protocol != in_use && owners.all(|owner| peers.follows(world, owner)) {
            self.desired.to_mut().protocol = in_use;
        }
    }

    /// Raises the epochs of the owners that this draft names above the floor.
    pub(super) fn raise_epochs(&mut self, world: &World) {
        if self.is_untouched() {
            return;
        }
        let floor = world.highest_floor();
        let former = world.former_map(&self.desired.cluster).map(|former| &former.map);
        let before = self.base.map().or(former);
        let is_new = |path: &ShardPath, epoch: Epoch| {
            let known = before.and_then(|map| map.entries.get(path));
            known.is_none_or(|known| known.epoch() < epoch)
        };
        let raised: Vec<(ShardPath, Entry)> = self
            .desired
            .entries
            .iter()
            .filter(|(path, entry)| is_new(path, entry.epoch()))
            .filter_map(|(path, entry)| Some((path.clone(), entry.raised_above(floor)?)))
            .collect();
        if !raised.is_empty() {
            self.desired.to_mut().entries_mut().extend(raised);
        }
    }

    /// The owner of a shard.
    pub(super) fn owner(&self, path: &ShardPath) -> Option<&MemberId> {
        self.desired.entries.get(path)?.owner()
    }

    /// The owners of its shards.
    pub(super) fn owners(&self) -> impl Iterator<Item = &MemberId> {
        self.desired.entries.values().filter_map(Entry::owner)
    }

    /// The last owner of a shard without owner, if it had one until now.
    pub(super) fn last_owner(&self, shard: &ShardId) -> Option<&MemberId> {
        self.base.map()?.entries.get(&ShardPath::from(shard))?.owner()
    }

    /// Replaces the entry of a shard.
    pub(super) fn change(&mut self, path: &ShardPath, change: impl Fn(&Entry) -> Entry) {
        if let Some(next) = self.desired.entries.get(path).map(change) {
            self.desired.to_mut().entries_mut().insert(path.clone(), next);
        }
    }

    /// The shards to plan, with their placements and owners. Leaves out those that are paused, and those of
    /// groups and clusters that are being removed.
    pub(super) fn planned<'b>(
        &'b self,
        peers: &'b Peers<'_>,
    ) -> impl Iterator<Item = (ShardId, Placement, Option<&'b MemberId>)> + 'b {
        let cluster = &self.desired.cluster;
        let planned = |path: &ShardPath| {
            self.is_kept()
                && is_placed(&path.group, cluster, peers)
                && !self.paused.contains(path)
                && !self.doubled.contains(path)
        };
        let waits = |entry: &Entry| self.waits && entry.owner().is_none();
        let entries = self.desired.entries.iter();
        let entries = entries.filter(move |(path, entry)| planned(path) && !waits(entry));
        entries.map(|(path, entry)| {
            (path.in_cluster(&self.desired.cluster), self.placement(path, entry), entry.owner())
        })
    }

    fn placement(&self, path: &ShardPath, entry: &Entry) -> Placement {
        let Entry::Owned { owner, .. } = entry else {
            return match entry {
                Entry::Draining { owner, target, .. } => {
                    Placement::Moving { from: owner.clone(), to: target.clone() }
                }
                _ => Placement::Unowned,
            };
        };
        // What arrives with this very write is still moving: one step at a time.
        match self.base.map().map(|base| base.entries.get(path)) {
            Some(Some(Entry::Draining { owner: from, .. })) => {
                Placement::Moving { from: from.clone(), to: Some(owner.clone()) }
            }
            Some(None) => Placement::Moving { from: owner.clone(), to: Some(owner.clone()) },
            _ => Placement::Settled(owner.clone()),
        }
    }

    /// Whether no shard has an owner.
    pub(super) fn is_unowned(&self) -> bool {
        self.desired.is_unowned()
    }

    /// The epoch that must be durable before the map can be deleted; the lowest if it stays.
    pub(super) fn floor(&self) -> Epoch {
        let is_free = || self.base.map().is_some_and(MapRecord::is_unowned);
        if !self.is_kept() && is_free() { self.desired.highest_epoch() } else { Epoch::default() }
    }

    /// The write that makes the desired map from the base, if they differ. None while another write is
    /// under way.
    pub(super) fn into_write(self) -> Option<Write> {
        match self.base {
            Base::Pending(_) => None,
            // What is rewritten goes by the next plan: perhaps something keeps it, and it is never gone.
            Base::Observed(map)
                if !self.is_rewritten && self.goal.may_delete() && map.is_unowned() =>
            {
                let target = Target { kind: Kind::Map, name: map.cluster.as_str().to_owned() };
                Some(Write::Delete(target, map.version.clone()))
            }
            Base::Observed(map)
                if !self.is_rewritten && (self.is_untouched() || *map == *self.desired) =>
            {
                None
            }
            Base::Observed(_) => Some(Write::Replace(Object::Map(self.desired.into_owned()))),
            Base::Absent if self.desired.entries.is_empty() => None,
            Base::Absent if self.is_unseen => None,
            Base::Absent => Some(Write::Create(Object::Map(self.desired.into_owned()))),
        }
    }
}

impl Goal {
    fn may_delete(self) -> bool {
        self == Self::Remove { is_durable: true }
    }
}
