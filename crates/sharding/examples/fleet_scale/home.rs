//! The home cluster: a store of records with versions, the log that watches read, and what it all costs.

use std::collections::HashMap;
use std::rc::Rc;

use jiff::Timestamp;
use leasehold_sharding::api::ObjectVersion;
use leasehold_sharding::body::Body;
use leasehold_sharding::record::{Kind, Object, Observation, Target, Write, WriteOutcome};

/// What an event of a watch has around its object, in bytes.
const EVENT_FRAME: usize = 40;

/// The store.
#[derive(Default)]
pub struct Home {
    objects: HashMap<Target, Object>,
    log: Vec<Rc<Event>>,
    revision: u64,
    made: u64,
    pub costs: Costs,
}

/// One event, as each watch gets it.
pub struct Event {
    pub target: Target,
    pub observation: Observation,
    pub bytes: usize,
}

/// What went to and from home.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    pub writes: u64,
    pub written_bytes: u64,
    pub conflicts: u64,
    pub map_writes: u64,
    pub events: u64,
    pub event_bytes: u64,
    pub listed_bytes: u64,
}

impl Home {
    /// Carries out a write if its precondition holds.
    pub fn write(&mut self, write: Write) -> WriteOutcome {
        let target = write.target();
        let before = self.objects.get(&target);
        let expected = match &write {
            Write::Create(_) => None,
            Write::Replace(object) => Some(object.version()),
            Write::Delete(_, version) => Some(version),
        };
        self.costs.writes += 1;
        self.costs.map_writes += u64::from(target.kind == Kind::Map);
        if before.map(Object::version) != expected {
            self.costs.conflicts += 1;
            return WriteOutcome::Conflict(before.cloned());
        }
        self.revision += 1;
        let resource = self.revision.to_string();
        match write {
            Write::Create(mut object) => {
                self.made += 1;
                let uid = format!("00000000-0000-4000-8000-{:012}", self.made);
                object.set_version(ObjectVersion { uid, resource });
                self.put(target, object)
            }
            Write::Replace(mut object) => {
                let uid = object.version().uid.clone();
                object.set_version(ObjectVersion { uid, resource });
                self.put(target, object)
            }
            Write::Delete(..) => {
                if let Some(mut last) = self.objects.remove(&target) {
                    let uid = last.version().uid.clone();
                    last.set_version(ObjectVersion { uid, resource });
                    self.record(target, Observation::Deleted(last.clone()), bytes(last));
                }
                WriteOutcome::Done(None)
            }
        }
    }

    fn put(&mut self, target: Target, object: Object) -> WriteOutcome {
        let size = bytes(object.clone());
        self.costs.written_bytes += size as u64;
        self.objects.insert(target.clone(), object.clone());
        self.record(target, Observation::Applied(object.clone()), size);
        WriteOutcome::Done(Some(object))
    }

    fn record(&mut self, target: Target, observation: Observation, bytes: usize) {
        self.log.push(Rc::new(Event { target, observation, bytes: bytes + EVENT_FRAME }));
    }

    /// A complete list of those objects of a kind which a watch selects.
    pub fn list(&mut self, kind: Kind, selects: impl Fn(&Target) -> bool) -> Observation {
        let selected = self.objects.iter().filter(|(at, _)| at.kind == kind && selects(at));
        let mut objects: Vec<Object> = selected.map(|(_, object)| object.clone()).collect();
        objects.sort_by_cached_key(|object| object.target().name);
        self.costs.listed_bytes += objects.iter().cloned().map(bytes).sum::<usize>() as u64;
        Observation::Listed(kind, self.revision.to_string(), objects)
    }

    /// The log's end.
    pub fn end(&self) -> usize {
        self.log.len()
    }

    /// The event at a position of the log.
    pub fn event(&self, at: usize) -> Rc<Event> {
        Rc::clone(&self.log[at])
    }

    /// All objects.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        self.objects.values()
    }
}

fn bytes(object: Object) -> usize {
    let body = Body { namespace: "leasehold-system", owner: None, wall: Timestamp::UNIX_EPOCH };
    body.of(object).map_or(0, |body| body.len())
}

impl Costs {
    /// What was added since.
    pub fn since(self, before: Self) -> Self {
        Self {
            writes: self.writes - before.writes,
            written_bytes: self.written_bytes - before.written_bytes,
            conflicts: self.conflicts - before.conflicts,
            map_writes: self.map_writes - before.map_writes,
            events: self.events - before.events,
            event_bytes: self.event_bytes - before.event_bytes,
            listed_bytes: self.listed_bytes - before.listed_bytes,
        }
    }
}
