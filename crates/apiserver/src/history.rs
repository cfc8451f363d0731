//! Accepted writes in order: who wrote what when, and at which revision. For audits in tests.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

/// The most writes that are kept; older ones are dropped.
const MAX_WRITES: usize = 100_000;

/// One accepted write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// When it was accepted.
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

/// A bounded list of writes.
#[derive(Debug, Default)]
pub struct History {
    writes: Mutex<VecDeque<Write>>,
}

impl History {
    /// Adds a write.
    pub fn record(&self, write: Write) {
        let mut writes = self.lock();
        if writes.len() == MAX_WRITES {
            writes.pop_front();
        }
        writes.push_back(write);
    }

    /// The kept writes, oldest first.
    pub fn writes(&self) -> Vec<Write> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Write>> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
