//! How long a shard had no owner at each change of owners. Pure.
//!
//! A gap begins when the old owner could last dispatch, at the earliest of these:
//!
//! | the old owner | could dispatch until |
//! |---|---|
//! | was told to drain | the ShardMap that says so |
//! | was killed or stopped | that moment |
//! | could not renew its Lease | its last renewal that arrived, plus duration, minus margin |
//!
//! It ends when the ShardMap that names the next owner was committed. The time until that owner's
//! first dispatch is reported separately; after a drain its informers have already synced.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::history::{Evidence, Life, Timings};
use crate::harness::ownership::Assignment;

/// One change of owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// As in `east/tdset/0/1`.
    pub shard: String,
    /// Whether the old owner was asked to drain, and did.
    pub drained: bool,
    /// When the old owner could last dispatch.
    pub from: Timestamp,
    /// When the next owner was named.
    pub until: Timestamp,
    /// When the next owner first dispatched, if it ever did.
    pub served: Option<Timestamp>,
}

impl Gap {
    /// How long nobody owned the shard.
    pub fn unowned(&self) -> Duration {
        span(self.from, self.until)
    }

    /// How long nobody dispatched for it; `None` if nobody has since.
    pub fn unserved(&self) -> Option<Duration> {
        self.served.map(|served| span(self.from, served))
    }
}

/// Every change of owners, in no particular order.
pub fn gaps(history: &Evidence, timings: Timings) -> Vec<Gap> {
    let mut gaps = Vec::new();
    for (shard, assignments) in &history.ownership.assignments {
        for pair in assignments.windows(2) {
            let [old, new] = pair else { continue };
            let (from, drained) = last_dispatch(old, history, timings);
            let served = history
                .dispatches
                .iter()
                .filter(|d| d.shard == *shard && d.epoch == new.epoch && d.member == new.owner)
                .map(|dispatch| dispatch.from)
                .min();
            gaps.push(Gap { shard: shard.clone(), drained, from, until: new.committed, served });
        }
    }
    gaps
}

/// When the owner could last dispatch in an assignment that has ended, and whether it could not
/// later because it was told to drain.
fn last_dispatch(old: &Assignment, history: &Evidence, timings: Timings) -> (Timestamp, bool) {
    let end = old.until.unwrap_or(Timestamp::MAX);
    let life = history.life(&old.owner);
    let halted = life.and_then(|life| halted(life, end));
    let expired = history
        .renewals
        .iter()
        .filter(|renewal| renewal.member == old.owner)
        .map(|renewal| renewal.at)
        .max()
        .map(|at| at + SignedDuration::try_from(timings.validity()).unwrap_or_default())
        .filter(|expired| *expired < end);
    let broken = [halted, expired].into_iter().flatten().min();
    match (old.draining, broken) {
        (Some(draining), None) => (draining, true),
        (Some(draining), Some(broken)) => (draining.min(broken), false),
        (None, broken) => (broken.unwrap_or(end), false),
    }
}

/// When a process was killed before `end`, or was stopped and did not run again before `end`.
fn halted(life: &Life, end: Timestamp) -> Option<Timestamp> {
    let stopped = life.pauses.iter().find(|(from, until)| *from < end && end < *until);
    let killed = Some(life.ended).filter(|ended| *ended < end);
    [stopped.map(|(from, _)| *from), killed].into_iter().flatten().min()
}

fn span(from: Timestamp, until: Timestamp) -> Duration {
    until.duration_since(from).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::fixture::{at, dispatch, history, life, renewal};

    const TIMINGS: Timings = Timings::DEFAULT;

    fn only(gaps: &[Gap]) -> (Duration, Option<Duration>, bool) {
        let [gap] = gaps else { panic!("{gaps:?}") };
        (gap.unowned(), gap.unserved(), gap.drained)
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_drain_lasts_from_the_map_that_asks_for_it() {
        let mut story = history("10 Owned a-x 1, 20 Draining a-x 1, 23 Owned b-x 2");
        story.lives = vec![life("a", &[], 99), life("b", &[], 99)];
        story.renewals = vec![renewal("a-x", 22)];
        story.dispatches = vec![dispatch("a-x", 1, 12, 21), dispatch("b-x", 2, 24, 25)];
        assert_eq!(only(&gaps(&story, TIMINGS)), (seconds(3), Some(seconds(4)), true));
    }

    #[test]
    fn what_stopped_the_owner_first_counts() {
        for (why, lives, renewed, expect) in [
            ("killed", vec![life("a", &[], 25)], 24, 15),
            ("stopped", vec![life("a", &[(27, 90)], 99)], 26, 13),
            ("stopped, but awake again", vec![life("a", &[(12, 15)], 99)], 24, 8),
            ("cut off", vec![life("a", &[], 99)], 24, 8),
            ("nothing known", vec![], 39, 0),
        ] {
            let mut story = history("10 Owned a-x 1, 40 Owned b-x 2");
            // Valid for 7.5 s after its last renewal, which is in whole seconds here.
            story.renewals = vec![renewal("a-x", renewed)];
            story.lives = lives;
            let (unowned, served, drained) = only(&gaps(&story, TIMINGS));
            assert_eq!((unowned.as_secs(), served, drained), (expect, None, false), "{why}");
        }
    }

    #[test]
    fn a_drain_that_a_crash_cut_short_does_not_count_as_one() {
        let mut story = history("10 Owned a-x 1, 20 Draining a-x 1, 30 Owned b-x 2");
        story.lives = vec![life("a", &[], 21)];
        assert_eq!(only(&gaps(&story, TIMINGS)), (seconds(10), None, false));
    }

    #[test]
    fn the_first_and_the_last_owner_make_no_gap() {
        assert_eq!(gaps(&history("10 Owned a-x 1, 30 Unowned - 1"), TIMINGS), []);
    }

    #[test]
    fn a_span_is_never_negative() {
        assert_eq!(span(at(10), at(13)), seconds(3));
        assert_eq!(span(at(13), at(10)), Duration::ZERO);
    }
}
