//! A map in the making: everything that does not depend on a plan.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use model::{ClusterName, Epoch, GroupName, MemberId, ShardId, single};

use super::View;
use super::peers::{Peers, Speech};
use crate::api::{MAX_SHARDS, ShardPath};
use crate::handover::{Entry, Facts};
use crate::planner::Place;
#[cfg(feature = "planted")]
use crate::planted::{self, Planted};
use crate::ranges::Reshape;
use crate::record::{Kind, MapRecord, Object, Target, Write};
use crate::world::World;

/// The maps in the making.
pub(super) type Drafts<'a> = BTreeMap<&'a ClusterName, Draft<'a>>;
/// Who may still act for shards of the groups that are one for the whole fleet.
pub(super) type Holders = BTreeMap<GroupName, BTreeSet<MemberId>>;

/// A map in the making, next to what it was made from.
pub(super) struct Draft<'a> {
    base: Option<&'a MapRecord>,
    record: Cow<'a, MapRecord>,
    wanted: bool,
    /// Whether its epochs would outlive it: the coordinator's Lease carries the highest.
    is_durable: bool,
}

/// All maps there are or should be, but for those of a version that the coordinator does not speak.
pub(super) fn all<'a>(
    view: &View<'a>,
    speech: &Speech,
    unwanted: &BTreeSet<ClusterName>,
) -> Drafts<'a> {
    let world = view.world;
    let clusters: BTreeSet<&ClusterName> =
        view.clusters.iter().chain(world.maps().keys()).collect();
    let is_spoken = |cluster: &&ClusterName| {
        world.maps().get(cluster).is_none_or(|map| speech.mine.speaks(map.protocol))
    };
    clusters
        .into_iter()
        .filter(is_spoken)
        .filter_map(|cluster| {
            let base = view.pending.get(cluster).copied().or_else(|| world.maps().get(cluster));
            let record = base.map(Cow::Borrowed).or_else(|| begin(cluster, world, speech))?;
            let is_durable = world.durable_floor() >= Some(record.highest_epoch());
            let wanted = !unwanted.contains(cluster);
            Some((cluster, Draft { base, record, wanted, is_durable }))
        })
        .collect()
}

/// The map of a cluster that has none. It goes on from one that was deleted, if that is certain to be
/// how it was: seen at its deletion, or not deleted by a coordinator, which would have made its
/// epochs durable. Else it begins from the epoch floor, or not at all while that cannot be read.
fn begin<'a>(
    cluster: &ClusterName,
    world: &'a World,
    speech: &Speech,
) -> Option<Cow<'a, MapRecord>> {
    let (deleted, floor) = (world.deleted_map(cluster), world.floor());
    let known = deleted.filter(|deleted| {
        let is_certain =
            deleted.is_exact || floor.is_some_and(|floor| deleted.map.highest_epoch() > floor);
        is_certain && speech.mine.speaks(deleted.map.protocol)
    });
    if let Some(known) = known {
        return Some(Cow::Borrowed(&known.map));
    }
    let reached = deleted.map(|deleted| deleted.map.highest_epoch()).unwrap_or_default();
    let epoch_floor = floor?.max(reached);
    Some(Cow::Owned(MapRecord { epoch_floor, ..MapRecord::new(cluster.clone()) }))
}

/// Whether a group is to have shards in a cluster.
fn is_placed(group: &GroupName, cluster: &ClusterName, peers: &Peers<'_>) -> bool {
    peers.groups.contains_key(group) && single::lies_in(group, cluster)
}

/// Whether the shards of a split or merge still drain for it.
pub(super) fn is_under_way(drafts: &Drafts<'_>, reshape: &Reshape) -> bool {
    let drains = |entry: &Entry| matches!(entry, Entry::Draining { target: Some(_), .. });
    drafts.get(&reshape.shard().cluster).is_some_and(|draft| {
        let entry = |part| draft.record.entries.get(&ShardPath::from(part));
        draft.wanted && reshape.parts().iter().all(|part| entry(part).is_some_and(drains))
    })
}

/// See [`Holders`].
pub(super) fn fleet_holders(drafts: &Drafts<'_>, peers: &Peers<'_>) -> Holders {
    let mut holders = Holders::new();
    for (cluster, draft) in drafts {
        for (path, entry) in &draft.record.entries {
            let Some(owner) = entry.owner().filter(|_| peers.is_fleet_wide(&path.group)) else {
                continue;
            };
            if !peers.facts(cluster, path, entry).owner_is_done() {
                holders.entry(path.group.clone()).or_default().insert(owner.clone());
            }
        }
    }
    holders
}

impl Draft<'_> {
    /// Everything that is final, whatever the plan.
    pub(super) fn bring_up_to_date(
        &mut self,
        peers: &Peers<'_>,
        reshaping: &BTreeSet<Reshape>,
        holders: &Holders,
    ) {
        let cluster = self.record.cluster.clone();
        let here = |reshape: &&Reshape| reshape.shard().cluster == cluster;
        let mut waiting = BTreeSet::new();
        for reshape in reshaping.iter().filter(here) {
            if !self.reshape(peers, reshape) {
                waiting.extend(reshape.parts());
            }
        }
        self.settle(peers, &waiting, holders);
        if self.wanted {
            self.remove_lost_groups(peers);
            self.add_missing(peers);
        } else {
            self.change_all(|_, entry| entry.drain(None));
        }
    }

    fn settle(&mut self, peers: &Peers<'_>, waiting: &BTreeSet<ShardId>, holders: &Holders) {
        let cluster = self.record.cluster.clone();
        let other_holder = |path: &ShardPath, target: &MemberId| {
            let holders = holders.get(&path.group);
            holders.is_some_and(|holders| holders.iter().any(|holder| holder != target))
        };
        self.change_all(|path, entry| {
            let facts = peers.facts(&cluster, path, entry);
            let waits = match entry.target().filter(|_| facts.target_eligible) {
                // Its other half is not free yet, or another shard of its group is not.
                Some(target) => {
                    waiting.contains(&path.in_cluster(&cluster)) || other_holder(path, target)
                }
                None => false,
            };
            if waits { entry.clone() } else { entry.settle(facts) }
        });
    }

    /// Completes a split or merge, if all its parts are free. Its next owner is who was to have
    /// them.
    fn reshape(&mut self, peers: &Peers<'_>, reshape: &Reshape) -> bool {
        let cluster = self.record.cluster.clone();
        let mut freed = Vec::new();
        let mut heir = None;
        for part in reshape.parts() {
            let path = ShardPath::from(&part);
            let Some(entry) = self.record.entries.get(&path) else { return false };
            let facts = peers.facts(&cluster, &path, entry);
            heir = heir.or_else(|| entry.target().filter(|_| facts.target_eligible).cloned());
            freed.push((path, entry.settle(Facts { target_eligible: false, ..facts })));
        }
        let Some(made) = reshape.apply(&freed) else { return false };
        let record = self.record.to_mut();
        for (path, _) in &freed {
            record.entries.remove(path);
        }
        for (path, entry) in made {
            let entry = heir.as_ref().map_or(entry.clone(), |heir| entry.assign(heir));
            record.entries.insert(path, entry);
        }
        true
    }

    /// Drains the shards of groups that nobody runs any more, or that have no place here, and removes
    /// those that are drained.
    fn remove_lost_groups(&mut self, peers: &Peers<'_>) {
        let cluster = self.record.cluster.clone();
        let is_lost = |path: &ShardPath| !is_placed(&path.group, &cluster, peers);
        if !peers.groups_known || !self.record.entries.keys().any(is_lost) {
            return;
        }
        let record = self.record.to_mut();
        let floor = &mut record.epoch_floor;
        record.entries.retain(|path, entry| {
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

    fn add_missing(&mut self, peers: &Peers<'_>) {
        let known: BTreeSet<&GroupName> =
            self.record.entries.keys().map(|path| &path.group).collect();
        let cluster = &self.record.cluster;
        let wanted = peers.groups.keys().filter(|group| single::lies_in(group, cluster));
        let missing: Vec<GroupName> =
            wanted.filter(|group| !known.contains(group)).cloned().collect();
        for group in missing {
            if self.record.entries.len() < MAX_SHARDS {
                let epoch = self.record.epoch_floor;
                let path = ShardPath::whole(group);
                self.record.to_mut().entries.insert(path, Entry::Unowned { epoch });
            }
        }
    }

    /// Puts other entries in the place of those that change.
    fn change_all(&mut self, change: impl Fn(&ShardPath, &Entry) -> Entry) {
        let changed: Vec<(ShardPath, Entry)> = self
            .record
            .entries
            .iter()
            .filter_map(|(path, entry)| {
                let next = change(path, entry);
                (next != *entry).then(|| (path.clone(), next))
            })
            .collect();
        if !changed.is_empty() {
            self.record.to_mut().entries.extend(changed);
        }
    }

    /// Puts the map into the version in use, once all who own shards of it speak that.
    pub(super) fn speak(&mut self, peers: &Peers<'_>, world: &World) {
        let in_use = peers.speech.in_use;
        let mut owners = self.record.entries.values().filter_map(Entry::owner);
        if self.record.protocol != in_use && owners.all(|owner| peers.follows(world, owner)) {
            self.record.to_mut().protocol = in_use;
        }
    }

    /// Who owns a shard.
    pub(super) fn owner(&self, path: &ShardPath) -> Option<&MemberId> {
        self.record.entries.get(path)?.owner()
    }

    /// Puts another entry in the place of a shard's.
    pub(super) fn change(&mut self, path: &ShardPath, change: impl Fn(&Entry) -> Entry) {
        if let Some(next) = self.record.entries.get(path).map(change) {
            self.record.to_mut().entries.insert(path.clone(), next);
        }
    }

    /// The shards to plan, with their places and owners: those of groups on their way out, and of
    /// clusters, are not planned.
    pub(super) fn planned<'b>(
        &'b self,
        peers: &'b Peers<'_>,
    ) -> impl Iterator<Item = (ShardId, Place, Option<&'b MemberId>)> + 'b {
        let cluster = &self.record.cluster;
        let planned = |path: &ShardPath| self.wanted && is_placed(&path.group, cluster, peers);
        let entries = self.record.entries.iter().filter(move |(path, _)| planned(path));
        entries.map(|(path, entry)| {
            (path.in_cluster(&self.record.cluster), self.place(path, entry), entry.owner())
        })
    }

    fn place(&self, path: &ShardPath, entry: &Entry) -> Place {
        let Entry::Owned { owner, .. } = entry else {
            return match entry {
                Entry::Draining { owner, target, .. } => {
                    Place::Moving { from: owner.clone(), to: target.clone() }
                }
                _ => Place::Unowned,
            };
        };
        // What arrives with this very write is still on its way: one step at a time.
        match self.base.map(|base| base.entries.get(path)) {
            Some(Some(Entry::Draining { owner: from, .. })) => {
                Place::Moving { from: from.clone(), to: Some(owner.clone()) }
            }
            Some(None) => Place::Moving { from: owner.clone(), to: Some(owner.clone()) },
            _ => Place::Settled(owner.clone()),
        }
    }

    /// Whether no shard has an owner.
    pub(super) fn is_nobodys(&self) -> bool {
        self.record.is_nobodys()
    }

    /// Whether it has only to be deleted.
    fn is_over(&self) -> bool {
        !self.wanted && self.base.is_some_and(MapRecord::is_nobodys)
    }

    /// The epoch that must outlive the map before it can be deleted; the lowest if it stays.
    pub(super) fn floor(&self) -> Epoch {
        if self.is_over() { self.record.highest_epoch() } else { Epoch::default() }
    }

    /// The write that makes the map so, if it is not so already.
    pub(super) fn into_write(self) -> Option<Write> {
        if self.is_over() && self.is_durable {
            let name = self.record.cluster.as_str().to_owned();
            let version = self.record.version.clone();
            return Some(Write::Delete(Target { kind: Kind::Map, name }, version));
        }
        match self.base {
            Some(base) if *base == *self.record => None,
            #[cfg(feature = "planted")]
            Some(_) if planted::is(Planted::OverwriteMap) => {
                let version = crate::record::Version::default();
                Some(Write::Replace(Object::Map(MapRecord { version, ..self.record.into_owned() })))
            }
            Some(_) => Some(Write::Replace(Object::Map(self.record.into_owned()))),
            None if self.record.entries.is_empty() => None,
            None => Some(Write::Create(Object::Map(self.record.into_owned()))),
        }
    }
}
