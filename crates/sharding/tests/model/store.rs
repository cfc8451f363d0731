//! The home cluster: objects with versions, and writes bound to them, as in a Kubernetes API server.
//! Like there, a replacement that names no version succeeds. The oracles check that no member sends
//! one.

use std::collections::BTreeMap;

use leasehold_sharding::api::{ObjectVersion, ShardPath};
use leasehold_sharding::lease::{self, LeaseRecord};
use leasehold_sharding::record::{Kind, Object, Observation, Target, Write, WriteOutcome};
use model::{Epoch, MemberId};

/// The first resourceVersion. All have this many digits, by which the canonical form of a state
/// recognises them.
pub const FIRST_VERSION: u64 = 1_000_000_000_000;
/// The most objects. A version counts all writes in its higher digits, so that versions rise from write to
/// write as etcd's do, and has the object's number in the lower ones.
pub const OBJECTS: u64 = 1_000;

/// The store.
#[derive(Clone, Debug, Default)]
pub struct Store {
    pub objects: BTreeMap<Target, Object>,
    /// For each object ever written: its number, and how often it was written. All versions rise, so it
    /// matters only which of one object's versions are the older ones, and writes to different objects lead
    /// to the same state in any order.
    written: BTreeMap<Target, (u64, u64)>,
    /// The last change of each kind: what lists from a cache that lags do not show yet.
    pub last: BTreeMap<Kind, Last>,
    /// The highest epoch of each shard there ever was.
    pub epochs: BTreeMap<ShardPath, Epoch>,
}

/// The last change of a kind.
#[derive(Clone, Debug, Hash)]
pub struct Last {
    before: Option<Object>,
    event: Observation,
    /// The version that it gave.
    resource: String,
}

/// What a write changed.
#[derive(Debug)]
pub struct Commit {
    /// The version to which the write was bound; `None` for a creation.
    pub expected: Option<ObjectVersion>,
    pub before: Option<Object>,
    pub after: Option<Object>,
}

impl Store {
    /// Carries out a write if its precondition holds.
    pub fn write(&mut self, write: Write) -> (WriteOutcome, Option<Commit>) {
        let target = write.target();
        let (kind, before) = (target.kind, self.objects.get(&target).cloned());
        let expected = expected(&write);
        if !is_met(expected.as_ref(), before.as_ref()) {
            return (WriteOutcome::Conflict(before), None);
        }
        let after = match write {
            Write::Create(object) | Write::Replace(object) => Some(object),
            Write::Delete(..) => None,
        };
        let version = self.next_version(&target, before.as_ref());
        let after = after.map(|object| stored(object, version.clone()));
        match &after {
            Some(object) => drop(self.objects.insert(target, object.clone())),
            None => drop(self.objects.remove(&target)),
        }
        let outcome = WriteOutcome::Done(after.clone());
        let commit = Commit { expected, before, after };
        if let Some(event) = event(&commit) {
            let last = Last { before: commit.before.clone(), event, resource: version.resource };
            self.last.insert(kind, last);
        }
        (outcome, Some(commit))
    }

    /// Remembers the epochs in what was written.
    pub fn remember(&mut self, commit: &Commit) {
        let Some(Object::Map(map)) = &commit.after else { return };
        for (path, entry) in map.entries.iter() {
            let highest = self.epochs.entry(path.clone()).or_default();
            *highest = entry.epoch().max(*highest);
        }
    }

    /// Whether a write could still succeed: versions never return.
    pub fn may_accept(&self, write: &Write) -> bool {
        is_met(expected(write).as_ref(), self.objects.get(&write.target()))
    }

    /// A complete list of one kind, read and delivered at once.
    pub fn list(&self, kind: Kind) -> Observation {
        let objects = self.objects.iter().filter(|(target, _)| target.kind == kind);
        let objects = objects.map(|(_, object)| object.clone()).collect();
        Observation::Listed(kind, u64::MAX.to_string(), objects)
    }

    /// A list of one kind as it was before its last change, and the event of that change, which a watch from
    /// there delivers. None if there was no change.
    pub fn list_from_lagging_cache(&self, kind: Kind) -> Option<(Observation, Observation)> {
        let Last { before, event, resource } = self.last.get(&kind)?;
        let (Observation::Applied(changed) | Observation::Deleted(changed)) = event else {
            return None;
        };
        let target = changed.target();
        let objects = self.objects.iter().filter(|(t, _)| t.kind == kind && **t != target);
        let objects = objects.map(|(_, object)| object).chain(before).cloned().collect();
        let resource = resource.parse::<u64>().expect("the store counts versions") - 1;
        let list = Observation::Listed(kind, resource.to_string(), objects);
        Some((list, event.clone()))
    }

    /// A member's Lease.
    pub fn lease_of(&self, member: &MemberId) -> Option<&LeaseRecord> {
        let target = Target { kind: Kind::Lease, name: lease::member_lease_name(member) };
        match self.objects.get(&target) {
            Some(Object::Lease(record)) => Some(record),
            _ => None,
        }
    }

    fn next_version(&mut self, target: &Target, before: Option<&Object>) -> ObjectVersion {
        let number = self.written.len() as u64;
        let (number, count) = self.written.entry(target.clone()).or_insert((number, 0));
        *count += 1;
        let uid = match before {
            Some(object) => object.version().uid.clone(),
            None => format!("uid-{number}-{count}"),
        };
        let (number, writes) =
            (*number, self.written.values().map(|(_, count)| count).sum::<u64>());
        let resource = (FIRST_VERSION + writes * OBJECTS + number).to_string();
        ObjectVersion { uid, resource }
    }
}

/// The event of a commit in the watches.
pub fn event(commit: &Commit) -> Option<Observation> {
    match (&commit.before, &commit.after) {
        (_, Some(object)) => Some(Observation::Applied(object.clone())),
        (Some(last), None) => Some(Observation::Deleted(last.clone())),
        (None, None) => None,
    }
}

fn expected(write: &Write) -> Option<ObjectVersion> {
    match write {
        Write::Create(_) => None,
        Write::Replace(object) => Some(object.version().clone()),
        Write::Delete(_, version) => Some(version.clone()),
    }
}

fn is_met(expected: Option<&ObjectVersion>, found: Option<&Object>) -> bool {
    match (expected, found) {
        (None, None) => true,
        (Some(expected), Some(found)) => {
            *expected == ObjectVersion::default() || expected == found.version()
        }
        _ => false,
    }
}

/// The object as stored. Without the transitions of a Lease, which are for people and only count up.
fn stored(mut object: Object, version: ObjectVersion) -> Object {
    object.set_version(version);
    if let Object::Lease(lease) = &mut object {
        lease.transitions = 0;
    }
    object
}
