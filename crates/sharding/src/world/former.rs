//! ShardMaps that are gone or cannot be read any more, as they last were.
//!
//! A coordinator that creates such a map again must not give away what its owners may still hold, and must not repeat
//! an epoch. And while nobody can read a map, its last owners may not have noticed that yet.
//!
//! # Why this is remembered, and not left in home
//! What a coordinator itself removes leaves a tombstone in home and nothing here: its shards have no owners by then, and
//! the one thing that the next map needs, its highest epoch, is durable in the coordinator's Lease ([`crate::floor`]).
//! Whoever deletes a map by hand leaves nothing in home, and its owners go on until their watches show it. A finalizer
//! would keep the object there, and namespaces that are deleted after the manager would never go. So a member remembers
//! who the owners were. They get their shards back at once, and nobody else does while they may act, however late
//! their watches are. Without this memory, each map that is deleted by hand would be unserved for one silence, and
//! after that a member whose watch is later than a silence would act beside the next owner.
//!
//! The memory counts at once only where the deletion itself was seen, with the last state. What changed unseen may
//! have had other owners, and what is not remembered any: a map in place of those is made after one silence
//! (`coordinator::unseen`). In that time, whoever acted sees that its map is gone.

use model::{ClusterName, ClusterUid, MemberId};

use super::World;
use crate::api::ObjectVersion;
use crate::handover::Entry;
use crate::record::{Kind, MapRecord, Object, Write};

/// How many such maps are remembered: all of a large fleet. Once there were more, every map that is absent counts as
/// one of which nothing is known.
const MAX_REMEMBERED: usize = 20_000;

/// The last readable state of a ShardMap.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FormerMap {
    pub(crate) map: MapRecord,
    /// Whether the map was exactly so when it was deleted, and was not seen to return since. A map that
    /// a list no longer shows may have changed unseen before its deletion, and so may one that could not be read.
    pub(crate) is_exact: bool,
}

impl World {
    /// The last readable state of a map that is gone, or that cannot be read any more.
    pub(crate) fn former_map(&self, cluster: &ClusterName) -> Option<&FormerMap> {
        self.former_maps.get(cluster)
    }

    /// The owners of shards in maps that cannot be read any more, as these last were.
    pub(crate) fn former_owners(&self) -> impl Iterator<Item = &MemberId> {
        let is_there = |(cluster, _): &(&ClusterName, _)| self.maps.contains_key(*cluster);
        let unread = self.former_maps.iter().filter(is_there);
        unread.flat_map(|(_, former)| former.map.entries.values()).filter_map(Entry::owner)
    }

    /// Whether a map went of which nothing is remembered.
    pub(crate) fn has_forgotten_maps(&self) -> bool {
        self.forgot_maps
    }

    /// All maps are listed: those that are gone may have returned and gone again meanwhile.
    pub(super) fn doubt_former_maps(&mut self) {
        self.former_maps.values_mut().for_each(|former| former.is_exact = false);
    }

    /// Takes in that a write has left no object. One that it deleted was as it is held, if it names that version.
    pub(crate) fn deleted_by(&mut self, write: &Write) {
        let target = write.target();
        let is_named = |map: &&MapRecord| matches!(write, Write::Delete(_, version) if *version == map.version);
        let cluster: Option<ClusterName> = target.name.parse().ok();
        let map = cluster.and_then(|cluster| self.maps.get(&cluster)).filter(is_named);
        let last = map.filter(|_| target.kind == Kind::Map).cloned().map(Object::Map);
        self.remove(&target, last.as_ref());
    }

    /// A map is about to become this one. What it was is kept if the new one cannot be read.
    pub(super) fn remember_before(&mut self, next: &MapRecord) {
        let cluster = &next.cluster;
        if self.reads(next) {
            self.former_maps.remove(cluster);
            return;
        }
        if let Some(map) = self.maps.get(cluster).filter(|held| self.reads(held)).cloned() {
            self.former_maps.insert(cluster.clone(), FormerMap { map, is_exact: false });
        } else if let Some(former) = self.former_maps.get_mut(cluster) {
            former.is_exact = false;
        }
    }

    /// The former names of a cluster that maps said, also maps that are gone.
    pub(crate) fn former_names(&self, uid: &ClusterUid) -> impl Iterator<Item = &ClusterName> {
        self.former_names.get(uid).into_iter().flatten()
    }

    /// A map is about to become this one. Of the cluster for which it stands, it says all names; of another one, further
    /// ones.
    pub(super) fn remember_names(&mut self, next: &MapRecord) {
        if let Some(uid) = &next.cluster_uid {
            self.former_names.remove(uid);
        }
        for (uid, name) in &next.former {
            if self.former_names.len() < MAX_REMEMBERED || self.former_names.contains_key(uid) {
                self.former_names.entry(uid.clone()).or_default().insert(name.clone());
            }
        }
    }

    /// An object came that is older than what is held. If that is a map which cannot be read, this may be a later state
    /// than the last one that could: the answer to a write may come after what a watch showed.
    pub(super) fn learn_answer(&mut self, object: Object) {
        let Object::Map(map) = object else { return };
        let is_later = |former: &FormerMap| former.map.version.older_than(&map.version.resource);
        let is_there = self.maps.contains_key(&map.cluster);
        if is_there && self.reads(&map) && self.former_maps.get(&map.cluster).is_some_and(is_later)
        {
            self.former_maps.insert(map.cluster.clone(), FormerMap { map, is_exact: false });
        }
    }

    /// A map is gone. `last` is its last state, if known.
    pub(super) fn forget_map(&mut self, name: &str, last: Option<&Object>) {
        let removed = name.parse().ok().and_then(|cluster| self.maps.remove_entry(&cluster));
        let Some((cluster, held)) = removed else { return };
        self.index.replace(Some(&held), None);
        let (mut map, is_exact) = match last {
            Some(Object::Map(last)) if !last.version.older_than(&held.version.resource) => {
                (last.clone(), true)
            }
            _ => (held, false),
        };
        map.version = ObjectVersion::default();
        let highest = map.highest_epoch();
        self.highest_gone = self.highest_gone.max(highest);
        // A map that a coordinator deleted had no owners, and its epochs were durable. One that went unseen may have got
        // owners before.
        let was_done = is_exact && map.is_unowned() && self.durable_floor() >= Some(highest);
        let has_room = self.former_maps.len() < MAX_REMEMBERED;
        if !self.reads(&map) {
            match self.former_maps.get_mut(&cluster) {
                Some(former) => former.map.version = ObjectVersion::default(),
                // Others may have read it, and act by it.
                None => self.forgot_maps = true,
            }
        } else if !was_done && has_room {
            self.former_maps.insert(cluster.clone(), FormerMap { map, is_exact });
        } else if !was_done {
            self.forgot_maps = true;
        }
        self.changed_maps.insert(cluster);
    }

    fn reads(&self, map: &MapRecord) -> bool {
        self.speaks.speaks(map.protocol)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::{Epoch, Moment};

    use super::*;
    use crate::record::Observation;
    use crate::versions::UNREADABLE;

    fn at(s: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(s))
    }

    fn map(epoch: u64, resource: u64) -> MapRecord {
        let mut record = MapRecord::new("east".parse().unwrap());
        let entry = Entry::Owned { owner: "m-1".parse().unwrap(), epoch: Epoch(epoch) };
        record.entries_mut().insert("tdset/0/1".parse().unwrap(), entry);
        record.version = ObjectVersion::numbered(resource);
        record
    }

    fn unreadable(resource: u64) -> Object {
        let MapRecord { version, cluster, .. } = map(0, resource);
        Object::Map(MapRecord { protocol: UNREADABLE, version, ..MapRecord::new(cluster) })
    }

    #[test]
    fn a_deleted_map_is_remembered_as_it_was() {
        let mut world = World::default();
        let east: ClusterName = "east".parse().unwrap();
        world.apply(Object::Map(map(4, 20)), at(1));
        world.observe(Observation::Deleted(Object::Map(map(5, 21))), at(2));
        assert!(world.maps().is_empty());
        let FormerMap { map, is_exact } = world.former_map(&east).unwrap();
        assert_eq!((map.highest_epoch(), *is_exact), (Epoch(5), true));
    }

    #[test]
    fn the_last_state_of_a_map_that_a_list_does_not_show_is_unknown() {
        let mut world = World::default();
        world.apply(Object::Map(map(4, 20)), at(1));
        world.observe(Observation::Listed(Kind::Map, "30".into(), Vec::new()), at(2));
        assert!(!world.former_map(&"east".parse().unwrap()).unwrap().is_exact);
        // After a list, what happened since is unknown also for a map whose deletion was seen.
        world.apply(Object::Map(map(4, 40)), at(3));
        world.observe(Observation::Deleted(Object::Map(map(5, 41))), at(3));
        world.observe(Observation::Listed(Kind::Map, "50".into(), Vec::new()), at(4));
        assert!(!world.former_map(&"east".parse().unwrap()).unwrap().is_exact);
    }

    #[test]
    fn what_is_not_remembered_for_want_of_room_is_known_to_be_missing() {
        let mut world = World::default();
        for n in 0..=MAX_REMEMBERED {
            assert!(!world.has_forgotten_maps(), "{n}");
            let cluster = format!("c{n}").parse().unwrap();
            let gone = Object::Map(MapRecord { cluster, ..map(1, 5) });
            world.apply(gone.clone(), at(1));
            world.remove(&gone.target(), Some(&gone));
        }
        assert!(world.has_forgotten_maps());
    }

    #[test]
    fn what_could_be_read_of_a_map_is_known_while_it_cannot() {
        let mut world = World::default();
        let east: ClusterName = "east".parse().unwrap();
        let epoch = |world: &World| world.former_map(&east).unwrap().map.highest_epoch().0;
        world.apply(Object::Map(map(4, 20)), at(1));
        assert_eq!(world.former_owners().count(), 0);
        world.apply(unreadable(30), at(2));
        assert_eq!((epoch(&world), world.former_owners().count()), (4, 1));
        // The answer to a write that was made before that.
        world.apply(Object::Map(map(5, 25)), at(3));
        world.apply(Object::Map(map(3, 15)), at(3));
        world.apply(unreadable(40), at(4));
        assert_eq!(epoch(&world), 5);
        // An earlier state of it is put back, or what follows.
        for (epoch, goes_back) in [(4, true), (5, false), (6, false)] {
            assert_eq!(world.goes_back(&Object::Map(map(epoch, 50))), goes_back, "{epoch}");
        }
        world.remove(&unreadable(40).target(), Some(&unreadable(41)));
        let FormerMap { map: former, is_exact } = world.former_map(&east).unwrap();
        assert_eq!((former.version.clone(), *is_exact), (ObjectVersion::default(), false));
        assert_eq!((epoch(&world), world.former_owners().count()), (5, 0));
        world.apply(Object::Map(map(6, 60)), at(5));
        assert_eq!(world.former_map(&east), None);
    }
}
