//! How long the writes of runs take.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use model::ClusterName;

/// A write that takes no longer is in time, however fast its cluster was before.
const IN_TIME: Duration = Duration::from_millis(250);
/// How many times as long as the fastest answer of its cluster it may take.
const TOLERANCE: u32 = 2;

/// Gathers the writes that were answered, until somebody has the queue.
#[derive(Debug, Default)]
pub struct WriteTimes {
    /// Whether there are some: the queue looks each time that somebody has it.
    has_some: AtomicBool,
    answered: Mutex<Vec<Answered>>,
}

/// A write that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// By which cluster.
    pub cluster: ClusterName,
    /// Whether too late.
    pub is_late: bool,
}

impl WriteTimes {
    /// A write was answered, so long after it was sent, by a cluster whose fastest answer took so long. So one that is
    /// far away is not late.
    pub fn answered(&self, cluster: &ClusterName, took: Duration, fastest: Option<Duration>) {
        let is_late = took > IN_TIME.max(fastest.unwrap_or_default() * TOLERANCE);
        let mut answered = self.gathered();
        answered.push(Answered { cluster: cluster.clone(), is_late });
        self.has_some.store(true, Ordering::Relaxed);
    }

    /// Takes those that were answered since the last time.
    pub(super) fn take(&self) -> Vec<Answered> {
        if !self.has_some.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut answered = self.gathered();
        self.has_some.store(false, Ordering::Relaxed);
        std::mem::take(&mut answered)
    }

    fn gathered(&self) -> MutexGuard<'_, Vec<Answered>> {
        self.answered.lock().expect("no holder of this lock panics")
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
            times.answered(&"east".parse().unwrap(), ms(took), fastest.map(ms));
        }
        let late: Vec<_> = times.take().iter().map(|answered| answered.is_late).collect();
        assert_eq!(late, [false, true, true, false]);
        assert_eq!(times.take(), [], "nothing is counted twice");
    }
}
