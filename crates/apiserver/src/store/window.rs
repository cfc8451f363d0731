//! The bounded past of one table: its last events, each with the version it replaced.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::{EventKind, Gone, Key, Stored, WindowLimits};

/// One write, as watchers see it.
#[derive(Debug)]
pub struct Event {
    /// Revision of the write.
    pub revision: u64,
    /// What happened.
    pub kind: EventKind,
    /// The object's key.
    pub key: Key,
    /// The object after the write, or its last state for a delete.
    pub object: Arc<Stored>,
    /// The version before the write.
    pub previous: Option<Arc<Stored>>,
}

impl Event {
    pub(super) fn new(
        revision: u64,
        kind: EventKind,
        key: Key,
        object: Arc<Stored>,
        previous: Option<Arc<Stored>>,
    ) -> Self {
        Self { revision, kind, key, object, previous }
    }

    /// The event as a line of a watch, shared by all watchers that see it unchanged.
    pub fn line(&self) -> Bytes {
        self.object.line().clone()
    }

    /// How many bytes it keeps in memory.
    fn weight(&self) -> usize {
        self.object.line().len()
    }
}

/// The window. Its floor is the revision of the youngest event that left it.
#[derive(Debug)]
pub(super) struct Window {
    events: VecDeque<Arc<Event>>,
    limits: WindowLimits,
    bytes: usize,
    floor: u64,
}

impl Window {
    pub(super) fn new(limits: WindowLimits) -> Self {
        Self { events: VecDeque::new(), limits, bytes: 0, floor: 0 }
    }

    pub(super) fn push(&mut self, event: Arc<Event>) {
        self.bytes += event.weight();
        self.events.push_back(event);
        while self.events.len() > self.limits.events || self.bytes > self.limits.bytes {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= oldest.weight();
            self.floor = oldest.revision;
        }
    }

    pub(super) fn clear(&mut self, revision: u64) {
        self.events.clear();
        self.bytes = 0;
        self.floor = revision;
    }

    pub(super) fn after(&self, cursor: u64, limit: usize) -> Result<Vec<Arc<Event>>, Gone> {
        self.check(cursor)?;
        let start = self.events.partition_point(|e| e.revision <= cursor);
        Ok(self.events.range(start..).take(limit).cloned().collect())
    }

    /// For each object written after `revision`, the version it had at `revision`.
    pub(super) fn undo_after(
        &self,
        revision: u64,
    ) -> Result<BTreeMap<&Key, Option<&Arc<Stored>>>, Gone> {
        self.check(revision)?;
        let start = self.events.partition_point(|e| e.revision <= revision);
        let mut state = BTreeMap::new();
        for event in self.events.range(start..) {
            // The first event of a key after the revision has the version of that time.
            state.entry(&event.key).or_insert(event.previous.as_ref());
        }
        Ok(state)
    }

    fn check(&self, revision: u64) -> Result<(), Gone> {
        if revision < self.floor { Err(Gone { floor: self.floor }) } else { Ok(()) }
    }
}
