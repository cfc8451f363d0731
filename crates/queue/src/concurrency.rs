//! How many keys may run at once over all clusters: fewer while runs make each other late.
//!
//! All runs share the time of one process, and often the machine of the API servers. If many more begin than can end,
//! each takes longer, until its write is too late for the Lease and it has to begin anew: the more that run, the less is
//! done. What limits the requests to one cluster (`upstream`) cannot see it, because each cluster has a few.
//!
//! Additive increase, multiplicative decrease (Chiu and Jain, 1989): a write is late if its answer took more than half a
//! second. The limit grows by a quarter of a run for each write that is in time, while it is used, and is halved, once
//! in half a second, while nearly all are late. So it comes to rest where writes take about half a second, an eighth of
//! what a Lease leaves them, and holds back no machine that is fast enough. A run may wait for something other than its
//! writes as long as it likes. A write without an answer is not judged: its cluster may hang.
//!
//! What is counted are runs that are young: that began less than half a second ago. So clusters that hang, and services
//! that are slow, use nothing up for longer. Where most clusters are slow themselves, the limit falls though nothing is
//! crowded, down to [`LEAST`]; clusters that are quick have room of their own then (`turns`).
//!
//! # Invariants
//! - The limit is at least [`LEAST`] and at most the queue's own, if that is not less.
//! - What is counted is what runs and is young, by a sixteenth of that time.

use std::time::Duration;

use model::Moment;

use super::write_times::{Answered, LATE};

/// A run that takes no longer is quick.
pub(super) const QUICK: Duration = Duration::from_millis(100);
/// The limit at first.
const FIRST: f64 = 128.0;
/// The lowest limit. A machine that ends fewer runs in a second makes them late in the end.
const LEAST: f64 = 32.0;
/// How many runs of quick clusters may come on top of those that are counted.
const SPARE: usize = 256;
/// How much a write that is in time adds.
const GROWTH: f64 = 0.25;
/// The share of late writes above which the limit is halved. If some are in time, it is clusters that are slow.
const MOST_LATE: f64 = 0.9;
/// Writes over which that share is taken.
const SAMPLES: f64 = 64.0;
/// In how many parts the time is divided in which a run is young.
const PARTS: u64 = 16;
const PART_NANOS: u64 = LATE.as_nanos() as u64 / PARTS;

/// The limit, and what is counted against it.
#[derive(Debug)]
pub(super) struct Concurrency {
    limit: f64,
    most: f64,
    /// How many young runs began in each part of that time.
    begun: [usize; PARTS as usize],
    /// How many these are.
    young: usize,
    /// The number of the last part.
    part: u64,
    /// The share of late ones among the last writes.
    late: f64,
    /// When it was last halved.
    lowered: Moment,
    /// When it was last reached.
    reached: Moment,
}

impl Concurrency {
    /// A limit that never exceeds `most`.
    pub(super) fn new(most: usize) -> Self {
        let most = most as f64;
        Self {
            limit: FIRST.min(most),
            most,
            begun: [0; PARTS as usize],
            young: 0,
            part: PARTS,
            late: 0.0,
            lowered: Moment::default(),
            reached: Moment::default(),
        }
    }

    /// How many young runs there may be.
    pub(super) fn limit(&self) -> usize {
        // At least 1 and at most a usize, so nothing is lost but the fraction.
        self.limit as usize
    }

    /// Whether one more may run, or one of a quick cluster of which none runs.
    pub(super) fn has_room(&self, is_quick: bool) -> bool {
        self.young < self.limit() + if is_quick { SPARE } else { 0 }
    }

    /// When one more may run, whatever ends.
    pub(super) fn next_room(&self) -> Moment {
        let oldest = (0..PARTS).rev().find(|age| self.begun[slot(self.part - age)] > 0);
        let end = self.part - oldest.unwrap_or(0);
        Moment::from_origin(Duration::from_nanos(end.saturating_mul(PART_NANOS)))
    }

    /// Counts no more what is late by now.
    pub(super) fn look(&mut self, now: Moment) {
        let part = part(now);
        for passed in (self.part + 1..=part).take(PARTS as usize) {
            self.young -= std::mem::take(&mut self.begun[slot(passed)]);
        }
        self.part = self.part.max(part);
    }

    /// A run begins now.
    pub(super) fn begin(&mut self, now: Moment) {
        self.look(now);
        if let Some(begun) = self.begun_at(now) {
            *begun += 1;
            self.young += 1;
        }
        if self.young >= self.limit() {
            self.reached = now;
        }
    }

    /// How many runs go on that began in the same part as one of then, if they are counted.
    fn begun_at(&mut self, since: Moment) -> Option<&mut usize> {
        let part = part(since);
        (part + PARTS > self.part).then_some(&mut self.begun[slot(part)])
    }

    /// A run that began then ends now.
    pub(super) fn end(&mut self, since: Moment, now: Moment) {
        self.look(now);
        if let Some(begun) = self.begun_at(since) {
            *begun -= 1;
            self.young -= 1;
        }
    }

    /// Writes were answered.
    pub(super) fn wrote(&mut self, Answered { in_time, late }: Answered, now: Moment) {
        let kept = |count: u32| (1.0 - 1.0 / SAMPLES).powf(f64::from(count));
        self.late = 1.0 - (1.0 - self.late * kept(in_time)) * kept(late);
        if now.since(self.reached) <= LATE {
            self.limit = (self.limit + GROWTH * f64::from(in_time)).min(self.most);
        }
        if self.late > MOST_LATE && now.since(self.lowered) >= LATE {
            self.limit = (self.limit / 2.0).max(LEAST.min(self.most));
            self.lowered = now;
        }
    }
}

/// The number of the part of a moment. The first is [`PARTS`].
fn part(at: Moment) -> u64 {
    u64::try_from(at.since_origin().as_nanos() / u128::from(PART_NANOS)).unwrap_or(u64::MAX / 2)
        + PARTS
}

fn slot(part: u64) -> usize {
    (part % PARTS) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn ms(millis: u64) -> Moment {
        Moment::from_origin(Duration::from_millis(millis))
    }

    #[test]
    fn what_is_late_is_counted_no_more_and_then_there_is_room() {
        let mut concurrency = Concurrency::new(2);
        concurrency.begin(ms(10));
        concurrency.begin(ms(250));
        assert!(!concurrency.has_room(false) && concurrency.has_room(true));
        assert_eq!(concurrency.next_room(), ms(500), "a part before it is late");
        concurrency.look(ms(499));
        assert!(!concurrency.has_room(false));
        concurrency.look(ms(500));
        assert!(concurrency.has_room(false));
        concurrency.end(ms(10), ms(510));
        assert_eq!(concurrency.young, 1, "not twice");
        concurrency.end(ms(250), ms(510));
        assert_eq!(concurrency.young, 0);
    }

    #[test]
    fn it_is_halved_each_half_second_while_nearly_all_writes_are_late() {
        let mut concurrency = Concurrency::new(1000);
        let mut wrote = |in_time: u32, late: u32, now: u64| {
            concurrency.wrote(Answered { in_time, late }, ms(now));
            concurrency.limit()
        };
        assert_eq!(wrote(1000, 0, 5000), 128, "nobody needs more");
        assert_eq!(wrote(0, 140, 6100), 128, "of the last ones, a tenth was in time");
        assert_eq!(wrote(0, 100, 6200), 64);
        assert_eq!(wrote(0, 1000, 6699), 64);
        assert_eq!(wrote(0, 1000, 6700), 32);
        assert_eq!(wrote(0, 1000, 9000), 32, "and no less");
        (0..32).for_each(|_| concurrency.begin(ms(9100)));
        concurrency.wrote(Answered { in_time: 8, late: 0 }, ms(9200));
        assert_eq!(concurrency.limit(), 34, "and more where it is used");
    }

    proptest! {
        #[test]
        fn it_stays_within_its_bounds_and_counts_what_is_young(
            most in 1..300_usize,
            steps in prop::collection::vec((0..3_u8, 0..400_u64, any::<prop::sample::Index>()), 0..400),
        ) {
            let mut concurrency = Concurrency::new(most);
            let (mut now, mut running) = (ms(0), Vec::new());
            for (what, millis, which) in steps {
                now = now + Duration::from_millis(millis);
                if what == 0 && !running.is_empty() {
                    let since: Moment = running.swap_remove(which.index(running.len()));
                    concurrency.end(since, now);
                    concurrency.wrote(Answered { in_time: u32::from(millis < 100), late: 1 }, now);
                } else if concurrency.has_room(what == 1) {
                    concurrency.begin(now);
                    running.push(now);
                }
                concurrency.look(now);
                prop_assert!((1..=most).contains(&concurrency.limit()));
                let young = |least: u64| {
                    let least = Duration::from_millis(least);
                    running.iter().filter(|since| now.since(**since) < least).count()
                };
                prop_assert!((young(468)..=young(500)).contains(&concurrency.young));
                prop_assert!(concurrency.has_room(false) || concurrency.next_room() > now);
            }
        }
    }
}
