//! Counts the objects that were reconciled for the current trigger.
//!
//! # Invariants
//! - An object counts once for each trigger, however often it is reconciled.
//! - `done` is written once for each trigger, by whoever counts the last object.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::clock::Begin;
use crate::lines::{Line, say};

/// The count of one process. A trigger comes only after the one before is done.
#[derive(Debug)]
pub struct Tally {
    trigger: AtomicU64,
    count: AtomicUsize,
    /// The last trigger for which each object was counted.
    counted: Vec<AtomicU64>,
    begin: Mutex<Option<Begin>>,
}

impl Tally {
    /// A count of this many objects.
    pub fn new(objects: usize) -> Self {
        let counted = (0..objects).map(|_| AtomicU64::new(0)).collect();
        Self {
            trigger: AtomicU64::new(0),
            count: AtomicUsize::new(0),
            counted,
            begin: Mutex::new(None),
        }
    }

    /// A trigger was seen. One that is older than the current one changes nothing.
    pub fn begin(&self, trigger: u64) {
        let mut begin = self.begin.lock().expect("no holder of this lock panics");
        if trigger > self.trigger() {
            *begin = Some(Begin::now());
            self.count.store(0, Ordering::Relaxed);
            self.trigger.store(trigger, Ordering::Release);
        }
    }

    /// The current trigger; 0 before the first.
    pub fn trigger(&self) -> u64 {
        self.trigger.load(Ordering::Acquire)
    }

    /// An object was reconciled for `trigger`.
    pub fn record(&self, name: &str, trigger: u64) {
        if let Some(done) = self.count(name, trigger) {
            say(done);
        }
    }

    fn count(&self, name: &str, trigger: u64) -> Option<Line> {
        let index: usize = name.rsplit('-').next()?.parse().ok()?;
        if trigger == 0 || self.counted.get(index)?.swap(trigger, Ordering::Relaxed) == trigger {
            return None;
        }
        let count = 1 + self.count.fetch_add(1, Ordering::Relaxed);
        (count == self.counted.len()).then(|| {
            let begin = self.begin.lock().expect("no holder of this lock panics");
            let seconds = begin.map_or(0.0, |begin| begin.elapsed().as_secs_f64());
            Line::Done { trigger, count, seconds }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench;

    #[test]
    fn each_object_counts_once_for_each_trigger() {
        let tally = Tally::new(2);
        let done = |index, trigger| tally.count(&bench::name(index), trigger).is_some();
        assert!(!done(0, 0) && !done(1, 0), "before the first trigger");
        for trigger in [3, 4] {
            tally.begin(trigger);
            assert!(!done(0, trigger) && !done(0, trigger), "one of two objects, twice");
            assert!(done(1, trigger), "both objects");
            assert!(!done(1, trigger), "it is reported once");
        }
    }

    #[test]
    fn an_older_trigger_changes_nothing() {
        let tally = Tally::new(1);
        tally.begin(5);
        tally.begin(4);
        assert_eq!(tally.trigger(), 5);
    }

    #[test]
    fn unknown_objects_do_not_count() {
        let tally = Tally::new(1);
        tally.begin(1);
        for name in ["bench-00001", "other", ""] {
            assert!(tally.count(name, 1).is_none(), "{name}");
        }
    }
}
