//! How long the writes of runs take.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A write that takes no longer is in time, however fast its cluster was before.
const IN_TIME: Duration = Duration::from_millis(250);
/// How many times as long as the fastest answer of its cluster it may take.
const TOLERANCE: u32 = 2;

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
    /// A write was answered, so long after it was sent, by a cluster whose fastest answer took so long. So one that is
    /// far away is not late.
    pub fn answered(&self, took: Duration, fastest: Option<Duration>) {
        let limit = IN_TIME.max(fastest.unwrap_or_default() * TOLERANCE);
        let counter = if took > limit { &self.late } else { &self.in_time };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_to_a_far_cluster_is_in_time_if_others_to_it_take_as_long() {
        let times = WriteTimes::default();
        let ms = Duration::from_millis;
        for (took, fastest) in [(250, None), (251, None), (251, Some(1)), (800, Some(400))] {
            times.answered(ms(took), fastest.map(ms));
        }
        let Answered { in_time, late } = times.take().unwrap();
        assert_eq!((in_time, late), (2, 2));
        assert!(times.take().is_none(), "nothing is counted twice");
    }
}
