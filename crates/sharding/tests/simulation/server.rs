//! The home cluster: a store of records with versions, and the log that watches read.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_sharding::api::ObjectVersion;
use leasehold_sharding::handover::Entry;
use leasehold_sharding::lease;
use leasehold_sharding::record::{
    Kind, MapRecord, Object, Observation, Target, Write, WriteOutcome,
};
use model::MemberId;

/// The store.
#[derive(Debug, Default)]
pub struct Server {
    objects: BTreeMap<Target, Object>,
    log: Vec<Observation>,
    revision: u64,
    /// The version before the first write in the log.
    first: u64,
    /// Counts the objects ever made, whatever became of them: no uid returns.
    made: u64,
}

/// What a write changed.
#[derive(Debug)]
pub struct Commit {
    pub before: Option<Object>,
    pub after: Option<Object>,
}

impl Server {
    /// Carries out a write if its precondition holds.
    pub fn write(&mut self, write: Write) -> (WriteOutcome, Option<Commit>) {
        let target = write.target();
        let before = self.objects.get(&target).cloned();
        let expected = match &write {
            Write::Create(_) => None,
            Write::Replace(object) => Some(object.version().clone()),
            Write::Delete(_, version) => Some(version.clone()),
        };
        if before.as_ref().map(Object::version) != expected.as_ref() {
            return (WriteOutcome::Conflict(before), None);
        }
        self.revision += 1;
        let after = match write {
            Write::Create(mut object) => {
                self.made += 1;
                let uid = format!("uid-{}", self.made);
                object.set_version(ObjectVersion { uid, resource: self.revision.to_string() });
                Some(object)
            }
            Write::Replace(mut object) => {
                let uid = object.version().uid.clone();
                object.set_version(ObjectVersion { uid, resource: self.revision.to_string() });
                Some(object)
            }
            Write::Delete(..) => None,
        };
        match (&after, &before) {
            (Some(object), _) => {
                self.objects.insert(target, object.clone());
                self.log.push(Observation::Applied(object.clone()));
            }
            (None, Some(last)) => {
                self.objects.remove(&target);
                let mut last = last.clone();
                let uid = last.version().uid.clone();
                last.set_version(ObjectVersion { uid, resource: self.revision.to_string() });
                self.log.push(Observation::Deleted(last));
            }
            (None, None) => {}
        }
        (WriteOutcome::Done(after.clone()), Some(Commit { before, after }))
    }

    /// A complete list of one kind, and its position in the log.
    pub fn list(&self, kind: Kind) -> Observation {
        let objects = self.objects.iter().filter(|(target, _)| target.kind == kind);
        let objects = objects.map(|(_, object)| object.clone()).collect();
        Observation::Listed(kind, self.revision.to_string(), objects)
    }

    /// The observations after a position in the log, and the end of the log.
    pub fn since(&self, position: usize) -> (Vec<Observation>, usize) {
        (self.log[position..].to_vec(), self.log.len())
    }

    /// Somebody puts back the data of a backup: the last writes never happened.
    pub fn restore(&mut self, lost_writes: usize) {
        self.log.truncate(self.log.len().saturating_sub(lost_writes));
        self.objects.clear();
        for event in &self.log {
            match event {
                Observation::Applied(object) => {
                    self.objects.insert(object.target(), object.clone());
                }
                Observation::Deleted(object) => drop(self.objects.remove(&object.target())),
                Observation::Listed(..) => {}
            }
        }
        self.revision = self.log.len() as u64 + self.first;
    }

    /// Somebody replaces the store by an empty one, which counts its versions from there.
    pub fn replace(&mut self, revision: u64) {
        self.log.clear();
        self.objects.clear();
        (self.first, self.revision) = (revision, revision);
    }

    /// The present maps.
    pub fn all_maps(&self) -> impl Iterator<Item = &MapRecord> {
        self.objects.values().filter_map(|object| match object {
            Object::Map(map) => Some(map),
            _ => None,
        })
    }

    /// The log's end.
    pub fn end(&self) -> usize {
        self.log.len()
    }

    /// How many ShardMaps there are.
    pub fn maps(&self) -> usize {
        self.objects.keys().filter(|target| target.kind == Kind::Map).count()
    }

    /// The owner of each shard that has one.
    pub fn owners(&self) -> impl Iterator<Item = &MemberId> {
        let maps = self.objects.values().filter_map(|object| match object {
            Object::Map(map) => Some(map),
            _ => None,
        });
        maps.flat_map(|map| map.entries.values()).filter_map(Entry::owner)
    }

    /// The versions of the protocol in which ShardMaps are written.
    pub fn protocols(&self) -> Vec<u32> {
        let maps = self.objects.values().filter_map(|object| match object {
            Object::Map(map) => Some(map.protocol),
            _ => None,
        });
        let protocols: BTreeSet<u32> = maps.collect();
        protocols.into_iter().collect()
    }

    /// The epoch floor that the coordinator's Lease carries.
    pub fn floor(&self) -> u64 {
        match self.get(Kind::Lease, lease::COORDINATOR) {
            Some(Object::Lease(lease)) => lease.floor.known().expect("nobody damages it").0,
            _ => 0,
        }
    }

    /// The present state of an object.
    pub fn get(&self, kind: Kind, name: &str) -> Option<&Object> {
        self.objects.get(&Target { kind, name: name.to_owned() })
    }

    /// All accepted writes, in order.
    pub fn history(&self) -> String {
        format!("{:?}", self.log)
    }
}
