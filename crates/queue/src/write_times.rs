//! How long the writes of runs take.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A write that takes longer is late: an eighth of the time that a Lease leaves it.
pub(super) const LATE: Duration = Duration::from_millis(500);

/// Counts the writes that were answered. Those who write hardly ever wait for each other here.
#[derive(Debug, Default)]
pub struct WriteTimes {
    in_time: AtomicU32,
    late: AtomicU32,
}

/// How many writes were answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answered {
    /// In time.
    pub in_time: u32,
    /// Late.
    pub late: u32,
}

impl WriteTimes {
    /// A write was answered, so long after it was sent.
    pub fn answered(&self, took: Duration) {
        let counter = if took > LATE { &self.late } else { &self.in_time };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes what was counted since the last time, if there is something.
    pub(super) fn take(&self) -> Option<Answered> {
        let [in_time, late] = [&self.in_time, &self.late].map(|counter| {
            if counter.load(Ordering::Relaxed) > 0 { counter.swap(0, Ordering::Relaxed) } else { 0 }
        });
        (in_time > 0 || late > 0).then_some(Answered { in_time, late })
    }
}
