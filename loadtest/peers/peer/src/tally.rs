//! Which trigger is being worked on, and how many objects were reconciled for it.
//!
//! # Invariants
//! - An object counts once for each trigger, however often it is reconciled.
//! - `done` is said once for each trigger, by whoever counts the last object.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::clock::Begin;
use crate::lines::{Line, say};

/// The count of one process. Triggers come one after another, each when the one before is done.
#[derive(Debug)]
pub struct Tally {
    trigger: AtomicU64,
    count: AtomicUsize,
    /// The trigger for which each object was counted last.
    counted: Vec<AtomicU64>,
    begin: Mutex<Option<Begin>>,
}

impl Tally {
    /// For so many objects.
    pub fn new(objects: usize) -> Self {
        let counted = (0..objects).map(|_| AtomicU64::new(0)).collect();
        Self {
            trigger: AtomicU64::new(0),
            count: AtomicUsize::new(0),
            counted,
            begin: Mutex::new(None),
        }
    }

    /// A trigger was seen; one that is older than another seen before changes nothing.
    pub fn begin(&self, trigger: u64) {
        let mut begin = self.begin.lock().expect("no holder of this lock panics");
        if trigger > self.trigger() {
            *begin = Some(Begin::now());
            self.count.store(0, Ordering::Relaxed);
            self.trigger.store(trigger, Ordering::Release);
        }
    }

    /// The trigger in work; 0 before the first.
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
            assert!(!done(0, trigger) && !done(0, trigger), "one object is not both");
            assert!(done(1, trigger), "now it is both");
            assert!(!done(1, trigger), "and it is said once");
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
    fn others_objects_do_not_count() {
        let tally = Tally::new(1);
        tally.begin(1);
        for name in ["bench-00001", "other", ""] {
            assert!(tally.count(name, 1).is_none(), "{name}");
        }
    }
}
