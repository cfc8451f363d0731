//! The bounded past of one table: its last events, each with the version it replaced.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::{Gone, Key, Stored, WindowLimits};

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It was created.
    Added,
    /// It changed.
    Modified,
    /// It was removed.
    Deleted,
}

impl EventKind {
    /// Its word in the watch protocol.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

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

/// One line of a watch.
pub fn watch_line(kind: &str, object: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(object.len() + 32);
    append_watch_line(&mut out, kind, object);
    Bytes::from(out)
}

/// Appends one line of a watch.
pub fn append_watch_line(out: &mut Vec<u8>, kind: &str, object: &[u8]) {
    line_start(out, kind);
    out.extend_from_slice(object);
    out.extend_from_slice(LINE_END);
}

/// The text before the object in a line of a watch.
pub(super) fn line_start(out: &mut Vec<u8>, kind: &str) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
}

/// The text after the object.
pub(super) const LINE_END: &[u8] = b"}\n";

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
