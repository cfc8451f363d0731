//! The objects and their history: a multi-version, in-memory store with one revision counter.
//!
//! Owns every stored object and a bounded window of past events per table. It knows nothing of
//! HTTP, kinds or rules: callers compute the new version of an object from the stored one, and
//! commit it only against that.
//!
//! ```text
//! writers ── commit(expected, change) ──▶ objects (newest)      ──▶ get, list
//!                                    └──▶ window (last N events) ──▶ watchers, lists of the past
//! ```
//!
//! # Invariants
//! 1. Revisions strictly increase, over all tables; an object's resourceVersion is the revision
//!    of its last write.
//! 2. A commit applies only to exactly the version it names, so no write is lost.
//! 3. The state at revision R is the newest state with every event after R undone. It is known
//!    for each R at or after the window's floor, and only for those.
//! 4. Watchers hold a cursor, not a buffer: what a slow watcher can miss is bounded by the
//!    window, and it learns that it missed something.
//! 5. The lock is held for memory work only, never across an await.

mod line;
mod object;
mod page;
mod window;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::watch;

pub use line::{EventKind, append_watch_line, watch_line};
pub use object::Stored;
pub use page::Continue;
pub use window::Event;
use window::Window;

/// Identity of a table: `plural.group`.
pub type TableId = Arc<str>;

/// The key of an object in its table, in the order of lists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Object name.
    pub name: String,
}

/// How much of the past each table keeps.
#[derive(Debug, Clone, Copy)]
pub struct WindowLimits {
    /// Events kept per table.
    pub events: usize,
    /// Bytes of JSON kept alive per table by its events.
    pub bytes: usize,
}

/// Events kept per table by default.
pub const DEFAULT_WINDOW_EVENTS: usize = 10_000;
/// Bytes of JSON kept per table by default.
pub const DEFAULT_WINDOW_BYTES: usize = 32 << 20;

impl Default for WindowLimits {
    fn default() -> Self {
        Self { events: DEFAULT_WINDOW_EVENTS, bytes: DEFAULT_WINDOW_BYTES }
    }
}

/// What a commit does to its object.
#[derive(Debug)]
pub enum Change {
    /// Stores this value; its resourceVersion is set here.
    Put(Value),
    /// Removes the object; the value is its last state as watchers will see it.
    Delete(Value),
}

/// The object has changed since the commit was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost;

/// The revision asked for is older than what the window holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone {
    /// Oldest revision still known.
    pub floor: u64,
}

/// The objects of a table, or one namespace of it, at one revision.
#[derive(Debug)]
pub struct Snapshot {
    /// The revision.
    pub revision: u64,
    /// In key order.
    pub items: Vec<Arc<Stored>>,
}

/// What happened in a table after a cursor.
#[derive(Debug)]
pub struct Batch {
    /// In revision order.
    pub events: Vec<Arc<Event>>,
    /// The next cursor: everything up to here has been delivered.
    pub cursor: u64,
}

/// The store. Shared by reference; every method is a short critical section.
#[derive(Debug)]
pub struct Store {
    inner: Mutex<Inner>,
    revision: watch::Sender<u64>,
}

#[derive(Debug)]
struct Inner {
    revision: u64,
    limits: WindowLimits,
    tables: HashMap<TableId, Table>,
}

#[derive(Debug)]
struct Table {
    objects: BTreeMap<Key, Arc<Stored>>,
    window: Window,
    changed: watch::Sender<u64>,
}

impl Table {
    fn new(limits: WindowLimits) -> Self {
        Self {
            objects: BTreeMap::new(),
            window: Window::new(limits),
            changed: watch::Sender::new(0),
        }
    }
}

// === impl Store ===

impl Store {
    /// An empty store at revision 1.
    pub fn new(limits: WindowLimits) -> Self {
        let inner = Inner { revision: 1, limits, tables: HashMap::new() };
        Self { inner: Mutex::new(inner), revision: watch::Sender::new(1) }
    }

    /// The newest revision.
    pub fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// Follows the newest revision.
    pub fn watch_revision(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// The newest version of an object.
    pub fn get(&self, table: &TableId, key: &Key) -> Option<Arc<Stored>> {
        self.lock().tables.get(table)?.objects.get(key).cloned()
    }

    /// The objects of a table, all or of one namespace, starting after a key, now or at a past
    /// revision.
    ///
    /// # Errors
    /// The revision lies before the window.
    pub fn list(
        &self,
        table: &TableId,
        namespace: Option<&str>,
        after: Option<&Key>,
        at: Option<u64>,
    ) -> Result<Snapshot, Gone> {
        let inner = self.lock();
        let revision = at.unwrap_or(inner.revision);
        let Some(table) = inner.tables.get(table) else {
            return Ok(Snapshot { revision, items: Vec::new() });
        };
        let wanted =
            |key: &Key| namespace.is_none_or(|ns| key.namespace == ns) && after < Some(key);
        let start = page::start(namespace, after);
        let newest = table
            .objects
            .range(start..)
            .take_while(|(key, _)| namespace.is_none_or(|ns| key.namespace == ns))
            .filter(|(key, _)| wanted(key));
        if revision >= inner.revision {
            return Ok(Snapshot { revision, items: newest.map(|(_, o)| o.clone()).collect() });
        }
        let undone = table.window.undo_after(revision)?;
        let mut state: BTreeMap<&Key, &Arc<Stored>> = newest.collect();
        for (key, previous) in undone.iter().filter(|(key, _)| wanted(key)) {
            match previous {
                Some(object) => state.insert(key, object),
                None => state.remove(key),
            };
        }
        Ok(Snapshot { revision, items: state.into_values().cloned().collect() })
    }

    /// Applies a change to exactly the version `expected` (`None`: the object must be absent).
    ///
    /// Returns the object as stored, or as it was last seen for a delete.
    ///
    /// # Errors
    /// The object has another version by now; decide again.
    pub fn commit(
        &self,
        table: &TableId,
        key: &Key,
        expected: Option<&Arc<Stored>>,
        change: Change,
    ) -> Result<Arc<Stored>, Lost> {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let limits = inner.limits;
        let entry = inner.tables.entry(table.clone()).or_insert_with(|| Table::new(limits));
        let current = entry.objects.get(key);
        if current.map(|o| o.revision()) != expected.map(|o| o.revision()) {
            return Err(Lost);
        }
        let previous = current.cloned();
        let revision = inner.revision + 1;
        let (kind, object) = match change {
            Change::Put(value) => {
                let kind = if previous.is_some() { EventKind::Modified } else { EventKind::Added };
                let object = Arc::new(Stored::new(value, revision, kind));
                entry.objects.insert(key.clone(), object.clone());
                (kind, object)
            }
            Change::Delete(value) => {
                entry.objects.remove(key);
                (EventKind::Deleted, Arc::new(Stored::new(value, revision, EventKind::Deleted)))
            }
        };
        inner.revision = revision;
        let event = Event::new(revision, kind, key.clone(), object.clone(), previous);
        entry.window.push(Arc::new(event));
        entry.changed.send_replace(revision);
        self.revision.send_replace(revision);
        Ok(object)
    }

    /// At most `limit` events of a table after `cursor`.
    ///
    /// # Errors
    /// Events after the cursor have already left the window.
    pub fn events_after(&self, table: &TableId, cursor: u64, limit: usize) -> Result<Batch, Gone> {
        let inner = self.lock();
        let Some(table) = inner.tables.get(table) else {
            return Ok(Batch { events: Vec::new(), cursor: inner.revision.max(cursor) });
        };
        let events = table.window.after(cursor, limit)?;
        let cursor = match events.last() {
            Some(last) if events.len() == limit => last.revision,
            _ => inner.revision.max(cursor),
        };
        Ok(Batch { events, cursor })
    }

    /// Notifies of each change of a table.
    pub fn subscribe(&self, table: &TableId) -> watch::Receiver<u64> {
        let mut inner = self.lock();
        let limits = inner.limits;
        let entry = inner.tables.entry(table.clone()).or_insert_with(|| Table::new(limits));
        entry.changed.subscribe()
    }

    /// Forgets every event: watches and lists that start before now get a 410, as after the
    /// compaction of a real store.
    pub fn compact(&self) {
        let mut inner = self.lock();
        let revision = inner.revision;
        for table in inner.tables.values_mut() {
            table.window.clear(revision);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every critical section leaves the maps consistent before anything in it can panic.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
