//! How many keys may run at once over all clusters: fewer while runs make each other late.
//!
//! All runs share the time of one process, and often the machine of the API servers. If many more begin than can end,
//! each takes longer, until its write is too late for the Lease and it has to begin anew: the more that run, the less is
//! done. What limits the requests to one cluster (`upstream`) cannot see it, because each cluster has a few.
//!
//! Additive increase, multiplicative decrease (Chiu and Jain, 1989): a run is late if a write of it took more than a
//! second from its turn to its answer. The limit grows by a quarter of a run for each that is in time, while it is
//! used, and is halved, once in a second, while nearly all are late. So it comes to rest where writes take up to a
//! second, a quarter of what a Lease leaves them, and holds back no machine that is fast enough. A run that waits for
//! something other than its writes is not late, and one whose writes were not answered is not judged: its cluster may
//! hang.
//!
//! What is counted are runs that began less than a second ago. So clusters that hang, and services that are slow, use
//! nothing up for longer. Where most clusters are slow themselves, the limit falls though nothing is crowded, down to
//! [`LEAST`] runs that begin in a second; clusters that are quick have room of their own then (`turns`).
//!
//! # Invariants
//! - The limit is at least [`LEAST`] and at most the queue's own, if that is not less.
//! - What is counted is what runs and began less than a second ago, by a sixteenth of a second.

use std::time::Duration;

use model::Moment;

/// A write that takes longer is late.
pub(super) const LATE: Duration = Duration::from_secs(1);
/// A run that takes no longer is quick.
pub(super) const QUICK: Duration = Duration::from_millis(100);
/// The limit at first.
const FIRST: f64 = 128.0;
/// The lowest limit. A machine that ends fewer runs in a second makes them late in the end.
const LEAST: f64 = 32.0;
/// How many runs of quick clusters may come on top of those that are counted.
const SPARE: usize = 256;
/// How much a run that is in time adds.
const GROWTH: f64 = 0.25;
/// The share of late runs above which the limit is halved. If some are in time, it is clusters that are slow.
const MOST_LATE: f64 = 0.9;
/// Runs over which that share is taken.
const SAMPLES: f64 = 64.0;
/// In how many parts the second is divided in which a run is counted.
const PARTS: u64 = 16;
const PART_NANOS: u64 = LATE.as_nanos() as u64 / PARTS;

/// The limit, and what is counted against it.
#[derive(Debug)]
pub(super) struct Concurrency {
    limit: f64,
    most: f64,
    /// How many runs go on that began in each part of the last second.
    begun: [usize; PARTS as usize],
    /// How many these are.
    young: usize,
    /// The number of the last part.
    part: u64,
    /// The share of late runs among the last ones.
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

    /// How many may run that began less than a second ago.
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

    /// A run that began then ends now. Its slowest write `took` so long, if it can be judged.
    pub(super) fn end(&mut self, since: Moment, took: Option<Duration>, now: Moment) {
        self.look(now);
        if let Some(begun) = self.begun_at(since) {
            *begun -= 1;
            self.young -= 1;
        }
        let Some(is_late) = took.map(|took| took > LATE) else { return };
        self.late += (f64::from(u8::from(is_late)) - self.late) / SAMPLES;
        if !is_late && now.since(self.reached) <= LATE {
            self.limit = (self.limit + GROWTH).min(self.most);
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
        concurrency.begin(ms(500));
        assert!(!concurrency.has_room(false) && concurrency.has_room(true));
        assert_eq!(concurrency.next_room(), ms(1000), "a part before it is late");
        concurrency.look(ms(999));
        assert!(!concurrency.has_room(false));
        concurrency.look(ms(1000));
        assert!(concurrency.has_room(false));
        concurrency.end(ms(10), Some(LATE), ms(1010));
        assert_eq!(concurrency.young, 1, "not twice");
        concurrency.end(ms(500), None, ms(1010));
        assert_eq!(concurrency.young, 0);
    }

    #[test]
    fn it_is_halved_once_a_second_while_nearly_all_are_late() {
        let mut concurrency = Concurrency::new(1000);
        let mut judge = |count: usize, took: u64, now: u64| {
            for _ in 0..count {
                concurrency.begin(ms(now - took));
                concurrency.end(ms(now - took), Some(Duration::from_millis(took)), ms(now));
            }
            concurrency.limit()
        };
        assert_eq!(judge(1000, 1, 5000), 128, "one at a time needs no more");
        assert_eq!(judge(140, 1001, 6100), 128, "of the last ones, a tenth was in time");
        assert_eq!(judge(100, 1001, 6200), 64);
        assert_eq!(judge(1000, 1001, 7199), 64);
        assert_eq!(judge(1000, 1001, 7200), 32);
        assert_eq!(judge(1000, 1001, 9000), 32, "and no less");
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
                    concurrency.end(since, Some(now.since(since)), now);
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
                prop_assert!((young(937)..=young(1000)).contains(&concurrency.young));
                prop_assert!(concurrency.has_room(false) || concurrency.next_room() > now);
            }
        }
    }
}
