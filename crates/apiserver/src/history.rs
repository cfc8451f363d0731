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
    /// Makes a write and adds it, if it was accepted. Whoever has seen what it did finds it here, because nobody can
    /// look in between.
    pub fn record<T>(&self, make: impl FnOnce() -> Option<(T, Write)>) -> Option<T> {
        let mut writes = self.lock();
        let (made, write) = make()?;
        if writes.len() == MAX_WRITES {
            writes.pop_front();
        }
        writes.push_back(write);
        Some(made)
    }

    /// The kept writes, oldest first.
    pub fn writes(&self) -> Vec<Write> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Write>> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_looks_between_a_write_and_its_record() {
        let history = History::default();
        let write = Write {
            time: Timestamp::UNIX_EPOCH,
            verb: "create",
            resource: "pods".to_owned(),
            subresource: String::new(),
            namespace: String::new(),
            name: "a".to_owned(),
            user_agent: String::new(),
            revision: 1,
        };
        let made = history.record(|| {
            assert!(history.writes.try_lock().is_err());
            Some((7, write.clone()))
        });
        assert_eq!((made, history.writes()), (Some(7), vec![write]));
        assert_eq!(history.record(|| None::<((), Write)>), None);
        assert_eq!(history.writes().len(), 1);
    }
}
