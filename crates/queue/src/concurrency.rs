//! How many keys may run at once over all clusters: fewer while their writes make each other late.
//!
//! All runs share the time of one process, and often the machine of the API servers. If many more begin than can end,
//! each takes longer, until its write is too late for the Lease and it has to begin anew: the more that run, the less is
//! done. What limits the requests to one cluster (`upstream`) cannot see it, because each cluster has a few.
//!
//! Additive increase, multiplicative decrease (Chiu and Jain, 1989). The limit grows by a quarter of a run for each
//! write that is answered in time ([`WriteTimes`](super::WriteTimes)), while it is used, and is halved, once in half a
//! second, while most are late. So it comes to rest where writes take about a quarter of a second, a small part of what
//! a Lease leaves them, and holds back no machine that is fast enough. A write without an answer is not judged: its
//! cluster may hang.
//!
//! What is counted are the runs of clusters that get on: of which less than a second ago a write was answered, a run
//! ended well, or the first began. So clusters that hang, and services that are slow, use nothing up for longer. Where
//! most clusters become slow themselves, the limit falls though nothing is crowded, down to [`LEAST`]; clusters whose
//! writes are in time have room of their own then (`turns`).
//!
//! # Invariants
//! - The limit is at least [`LEAST`] and at most the queue's own, if that is not less.
//! - What is counted is what runs of the clusters that got on in the last [`PARTS`] parts of time.

use std::time::Duration;

use model::Moment;

/// The limit at first.
const FIRST: f64 = 128.0;
/// The lowest limit. A machine that can do less makes writes late in the end.
const LEAST: f64 = 32.0;
/// How much higher the limit is for quick clusters.
const SPARE_QUICK: usize = 192;
/// And for those whose pace is unknown, as all are at a start.
const SPARE_UNKNOWN: usize = 64;
/// How much a write that is in time adds.
const GROWTH: f64 = 0.25;
/// How often the limit is halved at most.
const PAUSE: Duration = Duration::from_millis(500);
/// The limit is used if it was reached within this time, in which all that was counted then is counted no more.
const USED: Duration = Duration::from_millis(1500);
/// The share of late writes above which it is halved. If more are in time, it is some clusters that are slow.
const MOST_LATE: f64 = 0.75;
/// Writes over which that share is taken.
const SAMPLES: f64 = 64.0;
/// How long a cluster is taken to get on. A run that fails after more shows that it is slow.
pub(super) const STILL: Duration = Duration::from_secs(1);
/// In how many parts this time is divided.
const PARTS: u64 = 16;
const PART_NANOS: u64 = STILL.as_nanos() as u64 / PARTS;

/// How a cluster of which no key runs has fared so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// None of its writes was answered yet.
    Unknown,
    /// Its last write was in time.
    Quick,
    /// It was late, or a run failed after a long time; or a key runs.
    Slow,
}

impl Pace {
    pub(super) const ALL: [Self; 3] = [Self::Unknown, Self::Quick, Self::Slow];
}

/// The limit, and what is counted against it.
#[derive(Debug)]
pub(super) struct Concurrency {
    limit: f64,
    most: f64,
    /// How many keys run of the clusters that got on in each part of time last.
    running: [usize; PARTS as usize],
    /// How many these are.
    counted: usize,
    /// The number of the present part.
    part: u64,
    /// The share of late ones among the last writes.
    late: f64,
    /// When the limit was last halved.
    lowered: Option<Moment>,
    /// When it was last reached.
    reached: Option<Moment>,
}

/// The number of the part in which a cluster got on last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress(u64);

impl Concurrency {
    /// A limit that never exceeds `most`.
    pub(super) fn new(most: usize) -> Self {
        let most = most as f64;
        Self {
            limit: FIRST.min(most),
            most,
            running: [0; PARTS as usize],
            counted: 0,
            part: PARTS,
            late: 0.0,
            lowered: None,
            reached: None,
        }
    }

    /// How many may run of clusters that get on.
    pub(super) fn limit(&self) -> usize {
        // At least 1 and at most a usize, so nothing is lost but the fraction.
        self.limit as usize
    }

    /// Whether a key of a cluster of that pace may run.
    pub(super) fn has_room(&self, pace: Pace) -> bool {
        let spare = match pace {
            Pace::Slow => 0,
            Pace::Unknown => SPARE_UNKNOWN,
            Pace::Quick => SPARE_QUICK,
        };
        self.counted < self.limit() + spare
    }

    /// When fewer are counted, though none ends.
    pub(super) fn next_room(&self) -> Moment {
        let oldest = (0..PARTS).rev().find(|age| self.running[slot(self.part - age)] > 0);
        let end = self.part - oldest.unwrap_or(0);
        Moment::from_origin(Duration::from_nanos(end.saturating_mul(PART_NANOS)))
    }

    /// Counts no more what does not get on.
    pub(super) fn look(&mut self, now: Moment) {
        let part = part(now);
        for passed in (self.part + 1..=part).take(PARTS as usize) {
            self.counted -= std::mem::take(&mut self.running[slot(passed)]);
        }
        self.part = self.part.max(part);
    }

    /// A run of a cluster begins, of which so many run.
    pub(super) fn begin(&mut self, progress: &mut Progress, running: usize, now: Moment) {
        self.look(now);
        if running == 0 {
            progress.0 = self.part;
        }
        self.add(*progress, 1);
        self.note_reached(now);
    }

    fn note_reached(&mut self, now: Moment) {
        if self.counted >= self.limit() {
            self.reached = Some(now);
        }
    }

    /// A run of a cluster ended, well or not, of which so many go on.
    pub(super) fn end(
        &mut self,
        progress: &mut Progress,
        running: usize,
        ended_well: bool,
        now: Moment,
    ) {
        self.look(now);
        self.remove(*progress, 1);
        if ended_well {
            self.got_on(progress, running, now);
        }
    }

    /// A cluster got on, of which so many run.
    pub(super) fn got_on(&mut self, progress: &mut Progress, running: usize, now: Moment) {
        self.look(now);
        self.remove(*progress, running);
        progress.0 = self.part;
        self.add(*progress, running);
    }

    fn add(&mut self, progress: Progress, runs: usize) {
        if progress.0 + PARTS > self.part {
            self.running[slot(progress.0)] += runs;
            self.counted += runs;
        }
    }

    fn remove(&mut self, progress: Progress, runs: usize) {
        if progress.0 + PARTS > self.part {
            self.running[slot(progress.0)] -= runs;
            self.counted -= runs;
        }
    }

    /// Writes were answered.
    pub(super) fn wrote(&mut self, in_time: u32, late: u32, now: Moment) {
        let kept = |count: u32| (1.0 - 1.0 / SAMPLES).powf(f64::from(count));
        self.late = 1.0 - (1.0 - self.late * kept(in_time)) * kept(late);
        self.note_reached(now);
        if self.reached.is_some_and(|reached| now.since(reached) <= USED) {
            self.limit = (self.limit + GROWTH * f64::from(in_time)).min(self.most);
        }
        let may_lower = self.lowered.is_none_or(|lowered| now.since(lowered) >= PAUSE);
        if self.late > MOST_LATE && may_lower {
            self.limit = (self.limit / 2.0).max(LEAST.min(self.most));
            self.lowered = Some(now);
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
    fn what_does_not_get_on_is_counted_no_more_and_then_there_is_room() {
        let mut concurrency = Concurrency::new(2);
        let [mut hangs, mut works] = [Progress::default(); 2];
        concurrency.begin(&mut hangs, 0, ms(10));
        concurrency.begin(&mut works, 0, ms(500));
        let room = |pace| concurrency.has_room(pace);
        assert!(!room(Pace::Slow) && room(Pace::Unknown) && room(Pace::Quick));
        assert_eq!(concurrency.next_room(), ms(1000), "a part before a second has passed");
        concurrency.look(ms(999));
        assert!(!concurrency.has_room(Pace::Slow));
        concurrency.look(ms(1000));
        assert!(concurrency.has_room(Pace::Slow));
        concurrency.begin(&mut works, 1, ms(1400));
        concurrency.end(&mut works, 1, true, ms(1400));
        concurrency.end(&mut hangs, 0, false, ms(2300));
        assert_eq!(concurrency.counted, 1, "it got on at 1400");
        concurrency.end(&mut works, 0, false, ms(2310));
        assert_eq!(concurrency.counted, 0);
    }

    #[test]
    fn it_is_halved_each_half_second_while_most_writes_are_late() {
        let mut concurrency = Concurrency::new(1000);
        let mut wrote = |in_time: u32, late: u32, now: u64| {
            concurrency.wrote(in_time, late, ms(now));
            concurrency.limit()
        };
        assert_eq!(wrote(1000, 0, 5000), 128, "nobody needs more");
        assert_eq!(wrote(0, 80, 6100), 128, "of the last ones, a quarter was in time");
        assert_eq!(wrote(0, 100, 6200), 64);
        assert_eq!(wrote(0, 1000, 6699), 64);
        assert_eq!(wrote(0, 1000, 6700), 32);
        assert_eq!(wrote(0, 1000, 9000), 32, "and no less");
        (0..32).for_each(|_| concurrency.begin(&mut Progress::default(), 0, ms(9100)));
        concurrency.wrote(8, 0, ms(9200));
        assert_eq!(concurrency.limit(), 34, "and more where it is used");
    }

    proptest! {
        #[test]
        fn it_stays_within_its_bounds_and_counts_what_gets_on(
            most in 1..300_usize,
            steps in prop::collection::vec((0..3_u8, 0..400_u64, 0..3_usize), 0..400),
        ) {
            let mut concurrency = Concurrency::new(most);
            let mut now = ms(0);
            // How many run of each cluster, and when it got on.
            let mut clusters = [(Progress::default(), 0_usize, now); 3];
            for (what, millis, which) in steps {
                now = now + Duration::from_millis(millis);
                let (progress, running, since) = &mut clusters[which];
                if what == 0 && *running > 0 {
                    *running -= 1;
                    let ended_well = millis < 200;
                    concurrency.end(progress, *running, ended_well, now);
                    concurrency.wrote(u32::from(ended_well), 1, now);
                    *since = if ended_well { now } else { *since };
                } else if concurrency.has_room(if what == 1 { Pace::Quick } else { Pace::Slow }) {
                    concurrency.begin(progress, *running, now);
                    *since = if *running == 0 { now } else { *since };
                    *running += 1;
                }
                concurrency.look(now);
                prop_assert!((1..=most).contains(&concurrency.limit()));
                let counted = |within: u64| {
                    let within = Duration::from_millis(within);
                    let counted = clusters.iter().filter(|(.., since)| now.since(*since) < within);
                    counted.map(|(_, running, _)| running).sum::<usize>()
                };
                prop_assert!((counted(937)..=counted(1000)).contains(&concurrency.counted));
                prop_assert!(concurrency.has_room(Pace::Slow) || concurrency.next_room() > now);
            }
        }
    }
}
