//! Accepted writes, in order: who wrote what, when, and at which revision. For audits in tests.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

/// Writes remembered; older ones are dropped and counted.
pub const MAX_WRITES: usize = 100_000;

/// One accepted write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// When.
    pub time: Timestamp,
    /// `create`, `update`, `patch`, `apply` or `delete`.
    pub verb: &'static str,
    /// `plural.group`.
    pub resource: String,
    /// The subresource, or empty.
    pub subresource: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Object name.
    pub name: String,
    /// The client's `User-Agent`.
    pub user_agent: String,
    /// The write's revision.
    pub revision: u64,
}

/// The bounded list of writes.
#[derive(Debug, Default)]
pub struct History {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    writes: VecDeque<Write>,
    dropped: u64,
}

impl History {
    /// Remembers a write.
    pub fn record(&self, write: Write) {
        let mut inner = self.lock();
        if inner.writes.len() == MAX_WRITES {
            inner.writes.pop_front();
            inner.dropped += 1;
        }
        inner.writes.push_back(write);
    }

    /// The remembered writes, oldest first.
    pub fn writes(&self) -> Vec<Write> {
        self.lock().writes.iter().cloned().collect()
    }

    /// How many writes have been forgotten.
    pub fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
