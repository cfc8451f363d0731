//! The home cluster as one member has observed it: Leases, Members, ShardMaps.
//!
//! Its inputs are watches and the answers to this member's own writes, in any order. It drops an
//! observation that is known to be older than what it has, so that no object goes back in time. It
//! stamps each change of a Lease with the observer's clock, by which liveness is judged. It decides
//! nothing.

mod agreement;
mod durations;
mod former;
mod index;
mod office;
mod sight;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::time::Duration;

use jiff::Timestamp;
use model::{ClusterName, ClusterUid, Epoch, MemberId, Moment, ShardId};

use crate::api::{MAX_SUCCEEDED, MemberContainer, ObjectVersion};
use crate::config::LeaseTimings;
use crate::death::{Deaths, Ended};
use crate::lease::{self, LeaseState, ObservedLease};
use crate::record::{Kind, MapRecord, MemberRecord, Object, Observation, Target};
use crate::tally::Tally;
use crate::versions::ProtocolVersions;

use durations::Durations;
pub(crate) use former::FormerMap;
use index::Index;
pub use sight::LeasesSeen;

/// The observed home cluster.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// The versions of the protocol in which maps can be read.
    speaks: ProtocolVersions,
    leases: BTreeMap<String, ObservedLease>,
    members: BTreeMap<MemberId, MemberRecord>,
    maps: BTreeMap<ClusterName, MapRecord>,
    /// What follows from the maps.
    index: Index,
    /// Maps that are gone or cannot be read any more, as they last were.
    former_maps: BTreeMap<ClusterName, FormerMap>,
    /// Whether a map is gone of which nothing is remembered.
    forgot_maps: bool,
    /// The former names of clusters that maps said, as the last map said it that stands for the cluster, or before it is
    /// one.
    former_names: BTreeMap<ClusterUid, BTreeSet<ClusterName>>,
    changed_maps: BTreeSet<ClusterName>,
    /// The highest epoch in any map that is gone: a new map begins above it, whatever became of the floor.
    highest_gone: Epoch,
    /// The highest epoch floor ever seen in the coordinator's Lease.
    highest_floor: Epoch,
    /// For how long members may act whose Leases are not seen.
    durations: Durations,
    /// Whose processes have ended for certain.
    deaths: Deaths,
    listed: BTreeSet<Kind>,
    leases_seen: LeasesSeen,
    /// Whether a list has shown all Leases since they are watched.
    lists_all: bool,
    first_maps: Option<sight::FirstMaps>,
    revision: u64,
    loads_revision: u64,
}

impl World {
    /// A home cluster of which nothing is observed yet, by a process in that container.
    pub(crate) fn of_process_in(container: Option<MemberContainer>) -> Self {
        Self { deaths: Deaths::known_to(container), ..Self::default() }
    }

    /// The same, by one that speaks these versions of the protocol.
    pub(crate) fn speaking(self, speaks: ProtocolVersions) -> Self {
        Self { speaks, ..self }
    }

    /// The same, by one whose own Lease lasts so long.
    pub(crate) fn of_lease(self, duration: Duration) -> Self {
        Self { durations: Durations::beside(duration), ..self }
    }

    /// Takes in which containers have ended.
    pub(crate) fn learn_of_ended(&mut self, ended: Vec<Ended>) {
        let Self { deaths, members, .. } = self;
        let containers = || members.values().filter_map(|member| member.spec.container.as_ref());
        deaths.learn(ended, |one| containers().any(|container| Ended::of(container) == *one));
    }

    /// Takes in what a watch shows.
    pub fn observe(&mut self, observation: Observation, now: Moment) {
        match observation {
            Observation::Applied(object) => self.apply(object, now),
            Observation::Deleted(object) => self.remove(&object.target(), Some(&object)),
            Observation::Listed(kind, resource, objects) => {
                self.replace(kind, &resource, objects, now)
            }
        }
        if self.knows_all_leases() {
            self.durations.see_all(&self.leases, now);
        }
    }

    /// Takes in an object that was read or just written.
    pub fn apply(&mut self, object: Object, now: Moment) {
        if self.holds_as_new(&object) {
            self.learn_answer(object);
            return;
        }
        match object {
            Object::Lease(record) => self.apply_lease(record, now),
            Object::Member(record) => {
                self.learn_of_ended(Ended::said_by(&record.spec));
                let known = self.members.insert(record.id.clone(), record.clone());
                let is_same =
                    known.as_ref().is_some_and(|known| known.spec.is_same_but_loads(&record.spec));
                self.revision += u64::from(!is_same);
                self.loads_revision +=
                    u64::from(known.is_none_or(|known| known.spec != record.spec));
            }
            Object::Map(record) => {
                self.remember_before(&record);
                self.remember_names(&record);
                self.changed_maps.insert(record.cluster.clone());
                let held = self.maps.get(&record.cluster);
                // What a map says no more, as one that somebody edited until nobody can read it, was named all the same.
                let named = held.map(MapRecord::highest_epoch);
                if let Some(named) = named.filter(|named| *named > record.highest_epoch()) {
                    self.highest_gone = self.highest_gone.max(named);
                }
                self.index.replace(held, Some(&record));
                self.maps.insert(record.cluster.clone(), record);
                self.revision += 1;
            }
        }
    }

    /// Takes in that this member took another's Lease by compare-and-swap.
    pub fn took(&mut self, name: &str) {
        if let Some(lease) = self.leases.get_mut(name) {
            lease.take();
            self.durations.took(name);
            self.revision += 1;
        }
    }

    /// Takes in that an object is gone. `last` is its last state, if known: the deletion of an earlier
    /// object of that name is ignored.
    pub fn remove(&mut self, target: &Target, last: Option<&Object>) {
        let Some(held) = self.version_of(target) else { return };
        if last.is_some_and(|last| !held.uid.is_empty() && last.version().uid != held.uid) {
            return;
        }
        match target.kind {
            Kind::Lease => drop(self.leases.remove(&target.name)),
            Kind::Member => self.members.retain(|id, _| id.as_str() != target.name),
            Kind::Map => self.forget_map(&target.name, last),
        }
        self.revision += 1;
    }

    /// All Leases, by name.
    pub fn leases(&self) -> &BTreeMap<String, ObservedLease> {
        &self.leases
    }

    /// A member's Lease.
    pub fn lease_of(&self, member: &MemberId) -> Option<&ObservedLease> {
        self.leases.get(&lease::member_lease_name(member))
    }

    /// The state of each member's Lease. That of a dead member has run out, however fresh it is.
    pub(crate) fn lease_states(
        &self,
        timings: LeaseTimings,
        now: Moment,
    ) -> impl Iterator<Item = (MemberId, LeaseState)> {
        self.leases.iter().filter_map(move |(name, lease)| {
            let member = lease::subject(name)?;
            let state = lease.state(&member, timings, now);
            let state = if self.is_dead(&member) { state.of_the_dead() } else { state };
            Some((member, state))
        })
    }

    /// Whether a member's process has ended for certain ([`crate::death`]).
    pub(crate) fn is_dead(&self, member: &MemberId) -> bool {
        let container = self.members.get(member).and_then(|member| member.spec.container.as_ref());
        container.is_some_and(|container| self.deaths.cover(container))
    }

    /// The tokens of the instances that this very process succeeds in the same container.
    pub(crate) fn succeeded(&self) -> Vec<String> {
        let containers = self.members.values().filter_map(|member| member.spec.container.as_ref());
        let succeeded = containers.filter(|container| self.deaths.succeed(container));
        let tokens: BTreeSet<_> = succeeded.map(|container| container.token.clone()).collect();
        tokens.into_iter().take(MAX_SUCCEEDED).collect()
    }

    /// How many members hold their Lease, as far as all Leases are known; else how many have a Member and are not
    /// known to be dead.
    pub(crate) fn holders(&self) -> usize {
        if !self.knows_all_leases() {
            return self.members.keys().filter(|member| !self.is_dead(member)).count();
        }
        self.leases.values().filter(|lease| lease.is_held()).count()
    }

    /// Since when, by the wall clock of who wrote it, the first of all shards that are being handed over is.
    pub(crate) fn oldest_move(&self) -> Option<Timestamp> {
        let moving = self.maps.values().flat_map(|map| {
            let moving = map.entries.iter().filter(|(_, entry)| entry.is_draining());
            moving.filter_map(|(path, _)| Some(map.moves.0.get(path)?.at.as_ref()?.0))
        });
        moving.min()
    }

    /// The shards that have no owner, over all maps.
    pub(crate) fn unowned_shards(&self) -> impl Iterator<Item = ShardId> {
        let unowned = |cluster: &ClusterName| {
            let map = &self.maps[cluster];
            let entries = map.entries.iter().filter(|(_, entry)| entry.owner().is_none());
            entries.map(|(path, _)| path.in_cluster(&map.cluster)).collect::<Vec<_>>()
        };
        self.index.unowned().iter().flat_map(unowned)
    }

    /// The highest epoch in any map that is gone.
    pub(crate) fn highest_gone(&self) -> Epoch {
        self.highest_gone
    }

    /// The owners of shards, over all maps, and how many each has.
    pub(crate) fn owners(&self) -> &BTreeMap<MemberId, usize> {
        self.index.owners()
    }

    /// The versions of the protocol in which maps are, as far as they can be read.
    pub(crate) fn protocols(&self) -> impl Iterator<Item = u32> {
        self.index.protocols()
    }

    /// The tally of the clusters that have a map.
    pub(crate) fn mapped(&self) -> Tally {
        self.index.mapped()
    }

    /// All Members.
    pub fn members(&self) -> &BTreeMap<MemberId, MemberRecord> {
        &self.members
    }

    /// All ShardMaps.
    pub fn maps(&self) -> &BTreeMap<ClusterName, MapRecord> {
        &self.maps
    }

    /// The highest epoch floor ever seen.
    pub(crate) fn highest_floor(&self) -> Epoch {
        self.highest_floor
    }

    /// The epoch from which new maps begin; `None` while the floor cannot be read.
    pub(crate) fn floor(&self) -> Option<Epoch> {
        let lease = self.leases.get(lease::COORDINATOR);
        let is_known = lease.is_none_or(|lease| lease.record.floor.known().is_some());
        is_known.then_some(self.highest_floor)
    }

    /// Whether a kind was listed at least once.
    pub(crate) fn has_listed(&self, kind: Kind) -> bool {
        self.listed.contains(&kind)
    }

    /// Whether each kind was listed at least once.
    pub(crate) fn is_synced(&self) -> bool {
        self.listed.len() == 3
    }

    /// Forgets all that was observed, because home's history changed. The floor never falls, who has ended never runs
    /// again, and what a cluster was called is true in any history.
    pub(crate) fn forget(&mut self) {
        let Self {
            speaks,
            maps,
            former_names,
            deaths,
            mut changed_maps,
            highest_floor,
            durations,
            revision,
            loads_revision,
            leases_seen,
            ..
        } = std::mem::take(self);
        changed_maps.extend(maps.into_keys());
        let revision = revision + 1;
        *self = Self {
            speaks,
            former_names,
            changed_maps,
            highest_floor,
            durations,
            deaths,
            revision,
            loads_revision,
            leases_seen,
            ..Self::default()
        };
    }

    /// How long a member may still act whose Lease nobody sees any more, counted from when it was gone: by the longest
    /// duration of those that may act at `now`, for members may differ in theirs.
    pub(crate) fn silence(&self, timings: LeaseTimings, now: Moment) -> Duration {
        LeaseTimings { duration: self.durations.longest(timings, now), ..timings }.silence()
    }

    /// Takes in that no owner may be named at that epoch, or below.
    pub(crate) fn raise_floor(&mut self, floor: Epoch) {
        self.highest_floor = self.highest_floor.max(floor);
    }

    /// Counts changes. The renewal of a Lease does not count, nor do loads.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Counts changes of Members, those of loads included.
    pub(crate) fn loads_revision(&self) -> u64 {
        self.loads_revision
    }

    /// When the state of a member's Lease changes next if nothing is heard.
    pub(crate) fn next_lease_state(&self, timings: LeaseTimings, now: Moment) -> Option<Moment> {
        let of_members = self.leases.iter().filter(|(name, _)| lease::subject(name).is_some());
        let moments =
            of_members.flat_map(|(_, lease)| [lease.suspect_at(timings), lease.expires(timings)]);
        moments.filter(|&at| at > now).min()
    }

    /// The clusters whose map changed since the last call.
    pub(crate) fn take_changed_maps(&mut self) -> BTreeSet<ClusterName> {
        std::mem::take(&mut self.changed_maps)
    }

    fn apply_lease(&mut self, record: lease::LeaseRecord, now: Moment) {
        let known = self.leases.get(&record.name);
        let passed_on = known.is_some_and(|known| known.record.holder != record.holder);
        let says =
            |record: &lease::LeaseRecord| (record.floor.clone(), record.installation.clone());
        let says_another = known.is_some_and(|known| says(&known.record) != says(&record));
        self.revision += u64::from(known.is_none() || passed_on || says_another);
        self.highest_floor = self.highest_floor.max(record.floor.known().unwrap_or_default());
        self.durations.see(&record, known, now);
        let seen = ObservedLease::seen(record, known, now);
        self.leases.insert(seen.record.name.clone(), seen);
    }

    fn replace(&mut self, kind: Kind, resource: &str, objects: Vec<Object>, now: Moment) {
        if kind == Kind::Map {
            self.doubt_former_maps();
        }
        let listed: BTreeSet<String> = objects.iter().map(|object| object.target().name).collect();
        for target in self.targets(kind) {
            // An object that was written after the list was read is missing for that reason only.
            let kept = self
                .version_of(&target)
                .is_none_or(|version| version.older_than(resource) || version.resource == resource);
            if !listed.contains(&target.name) && kept {
                self.remove(&target, None);
            }
        }
        for object in objects {
            self.apply(object, now);
        }
        self.listed(kind, listed.is_empty(), now);
    }

    /// The uid of an object; empty if there is none.
    pub(crate) fn uid_of(&self, target: &Target) -> &str {
        self.version_of(target).map_or("", |version| &version.uid)
    }

    fn targets(&self, kind: Kind) -> Vec<Target> {
        let names: Vec<String> = match kind {
            Kind::Lease => self.leases.keys().cloned().collect(),
            Kind::Member => self.members.keys().map(ToString::to_string).collect(),
            Kind::Map => self.maps.keys().map(ToString::to_string).collect(),
        };
        let targets = names.into_iter().map(|name| Target { kind, name });
        targets.filter(|target| self.leases_seen.shows(target)).collect()
    }

    pub(crate) fn version_of(&self, target: &Target) -> Option<&ObjectVersion> {
        match target.kind {
            Kind::Lease => self.leases.get(&target.name).map(|held| &held.record.version),
            Kind::Member => self.members.get(&target.name.parse().ok()?).map(|held| &held.version),
            Kind::Map => self.maps.get(&target.name.parse().ok()?).map(|held| &held.version),
        }
    }

    /// Whether this is no news: an older version than what is held, or the same (the event of our own
    /// write, or a relist, which is no sign of life either).
    fn holds_as_new(&self, object: &Object) -> bool {
        self.version_of(&object.target()).is_some_and(|held| {
            object.version().older_than(&held.resource) || object.version() == held
        })
    }
}

impl Hash for World {
    /// What decisions depend on: all but the revision, which only says that something changed.
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Constant for a process.
        let Self { speaks: _, .. } = self;
        let Self { leases, members, maps, former_maps, forgot_maps, former_names, .. } = self;
        let Self { changed_maps, highest_floor, listed, deaths, revision: _, highest_gone, .. } =
            self;
        let Self { index: _, loads_revision: _, leases_seen, lists_all, durations, .. } = self;
        (leases, members, maps, former_maps, changed_maps, highest_floor, listed).hash(state);
        (former_names, deaths, leases_seen, lists_all, highest_gone, forgot_maps).hash(state);
        durations.essence().for_each(|longer| longer.hash(state));
        self.first_maps.map(|first| first.essence(durations)).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::api::{MemberSpec, MoveCause, Moved, ObjectVersion, ShardPath};
    use crate::floor::Floor;
    use crate::handover::Entry;
    use crate::lease::LeaseRecord;

    fn at(s: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(s))
    }

    fn lease(member: &str, resource: u64) -> Object {
        let id = member.parse().unwrap();
        let mut record =
            LeaseRecord::new(lease::member_lease_name(&id), &id, Duration::from_secs(8));
        record.version = ObjectVersion::numbered(resource);
        Object::Lease(record)
    }

    fn map(epoch: u64, resource: u64) -> MapRecord {
        let mut record = MapRecord::new("east".parse().unwrap());
        let entry = Entry::Owned { owner: "m-1".parse().unwrap(), epoch: Epoch(epoch) };
        record.entries_mut().insert("tdset/0/1".parse().unwrap(), entry);
        record.version = ObjectVersion::numbered(resource);
        record
    }

    #[test]
    fn a_relist_is_no_sign_of_life_and_a_renewal_is() {
        let mut world = World::default();
        let me: MemberId = "m-1".parse().unwrap();
        world.apply(lease("m-1", 5), at(1));
        world.observe(Observation::Listed(Kind::Lease, "9".into(), vec![lease("m-1", 5)]), at(4));
        assert_eq!(world.lease_of(&me).unwrap().changed, at(1));
        world.apply(lease("m-1", 10), at(6));
        assert_eq!(world.lease_of(&me).unwrap().changed, at(6));
    }

    #[test]
    fn time_never_goes_back_for_one_object() {
        let mut world = World::default();
        world.apply(Object::Map(map(4, 20)), at(1));
        world.apply(Object::Map(map(3, 19)), at(2));
        let held = &world.maps()[&"east".parse::<ClusterName>().unwrap()];
        assert_eq!(held.version, ObjectVersion::numbered(20));
    }

    #[test]
    fn the_oldest_move_is_that_of_a_shard_that_is_still_handed_over() {
        let mut world = World::default();
        let owner: MemberId = "m-1".parse().unwrap();
        let mut record = map(1, 20);
        let moves = Arc::make_mut(&mut record.moves.0);
        for (path, second, is_draining) in
            [("a/0/1", 10, false), ("b/0/1", 30, true), ("c/0/1", 20, true)]
        {
            let path: ShardPath = path.parse().unwrap();
            let (owner, epoch, target) = (owner.clone(), Epoch(1), None);
            let entry = match is_draining {
                true => Entry::Draining { owner, epoch, target },
                false => Entry::Owned { owner, epoch },
            };
            Arc::make_mut(&mut record.entries).insert(path.clone(), entry);
            let at = Some(Time(Timestamp::from_second(second).unwrap()));
            moves.insert(path, Moved { why: MoveCause::Balance, at });
        }
        assert_eq!(world.oldest_move(), None);
        world.apply(Object::Map(record), at(1));
        assert_eq!(world.oldest_move().map(Timestamp::as_second), Some(20));
    }

    #[test]
    fn who_has_ended_is_remembered_when_all_else_is_forgotten() {
        let container = |token: &str| MemberContainer {
            pod_uid: "pod-1".into(),
            name: "leasehold".into(),
            boot_id: "boot".into(),
            token: token.into(),
            lock_id: Some("9:1".into()),
        };
        let member = |id: &MemberId, token: &str| {
            let mut spec = MemberSpec::new("m", Vec::new());
            spec.container = Some(container(token));
            Object::Member(MemberRecord {
                id: id.clone(),
                version: ObjectVersion::numbered(1),
                spec,
            })
        };
        let mut world = World::of_process_in(Some(container("own")));
        let elsewhere = MemberContainer { pod_uid: "pod-2".into(), ..container("other") };
        world.learn_of_ended(vec![Ended::of(&elsewhere)]);
        world.forget();
        for (id, token, is_dead) in [("m-1", "own", false), ("m-2", "before", true)] {
            let id = id.parse().unwrap();
            world.apply(member(&id, token), at(1));
            assert_eq!(world.is_dead(&id), is_dead, "{token}");
        }
        assert!(world.deaths.cover(&elsewhere));
    }

    #[test]
    fn a_list_shows_every_object_as_it_was_then_or_later() {
        let mut world = World::default();
        world.apply(Object::Map(map(4, 20)), at(1));
        world.apply(lease("m-1", 30), at(1));
        // The third is older as a whole: it says nothing.
        for (resource, shown, expect) in [
            ("20", 20, false),
            ("40", 35, false),
            ("19", 18, false),
            ("20", 18, true),
            ("40", 18, true),
        ] {
            let list = [Object::Map(map(4, shown))];
            assert_eq!(world.is_contradicted_by(resource, &list), expect, "{resource}, {shown}");
        }
        assert!(!world.is_contradicted_by("40", &[]), "it was deleted");
    }

    #[test]
    fn a_list_read_before_our_write_does_not_undo_it() {
        let mut world = World::default();
        let me: MemberId = "m-1".parse().unwrap();
        world.apply(lease("m-1", 12), at(1));
        world.observe(Observation::Listed(Kind::Lease, "11".into(), Vec::new()), at(2));
        assert!(world.lease_of(&me).is_some());
        world.observe(Observation::Listed(Kind::Lease, "13".into(), Vec::new()), at(3));
        assert!(world.lease_of(&me).is_none());
    }

    #[test]
    fn the_highest_floor_is_remembered_when_its_lease_goes() {
        let mut world = World::default();
        let coordinator = |floor, resource| {
            let me = "m-1".parse().unwrap();
            let name = lease::COORDINATOR.to_owned();
            let mut record = LeaseRecord::new(name, &me, Duration::from_secs(8));
            (record.floor, record.version) = (floor, ObjectVersion::numbered(resource));
            Object::Lease(record)
        };
        world.apply(coordinator(Floor::Known(Epoch(7)), 5), at(1));
        assert_eq!((world.durable_floor(), world.floor()), (Some(Epoch(7)), Some(Epoch(7))));
        world.apply(coordinator(Floor::Known(Epoch(3)), 6), at(1));
        assert_eq!((world.durable_floor(), world.floor()), (Some(Epoch(3)), Some(Epoch(7))));
        world.apply(coordinator(Floor::Unreadable("x".into()), 7), at(1));
        assert_eq!((world.durable_floor(), world.floor()), (None, None));
        world.observe(Observation::Listed(Kind::Lease, "9".into(), Vec::new()), at(2));
        assert_eq!((world.durable_floor(), world.floor()), (None, Some(Epoch(7))));
    }
}
