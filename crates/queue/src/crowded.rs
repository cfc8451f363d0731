//! What becomes of keys when more are ready than the machine can reconcile: simulations of a queue whose runs share
//! the time of one processor.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use model::{ClusterName, Epoch, Moment, ObjectKey, ShardId};
use tracing::Span;

use super::core::{Limits, Queue};
use super::item::Outcome;
use super::priority::Priority;
use super::rate_limiter::RateLimiter;
use super::write_times::WriteTimes;

const LIMITS: Limits = Limits { per_cluster: 8, total: 4096 };
/// Within this a write is answered while a Lease lasts; what the limit of concurrency aims at is far less.
const IN_TIME: Duration = Duration::from_millis(2500);

/// What a run does.
#[derive(Clone, Copy)]
enum Run {
    /// So many writes, one after another. Each takes its turn on the processor that all share, and so long beside that.
    /// With none, it takes a twentieth of a turn.
    Shares(u32, Duration),
    /// Its server takes so long to answer its write.
    Writes(Duration),
    /// So does a server that is far away, always.
    Far(Duration),
    /// It waits for something else, so long, and its write is answered soon.
    Waits(Duration),
    /// It hangs until its write is too late.
    Hangs,
}

/// How long the fastest answers took, of clusters that are not far.
const FASTEST: Duration = Duration::from_millis(20);
/// How long a run that hangs takes to fail.
const TOO_LATE: Duration = Duration::from_secs(4);

/// What goes on.
struct Going {
    key: ObjectKey,
    run: Run,
    /// Writes that come after this one.
    left: u32,
    sent: Moment,
}

struct World {
    queue: Queue<()>,
    now: Moment,
    /// How long the processor takes for a write.
    each: Duration,
    /// Until when the processor is busy.
    busy: Moment,
    /// What runs, by when its present write ends.
    running: BTreeMap<(Moment, u64), Going>,
    /// What a run of a cluster does, if it is not like those of others.
    unlike: BTreeMap<ClusterName, Run>,
    /// What the first, second, third... run does, over and over.
    usual: Vec<Run>,
    begun: usize,
    times: WriteTimes,
    sent: u64,
    ended: usize,
    /// How long each write took, and when it ended.
    written: Vec<(Moment, Duration)>,
    /// The longest that a key of each cluster waited.
    waited: BTreeMap<ClusterName, Duration>,
}

fn name(cluster: usize) -> ClusterName {
    format!("c{cluster}").parse().unwrap()
}

impl World {
    fn new(clusters: usize, per_second: u32, usual: &[Run]) -> Self {
        let mut queue = Queue::new(LIMITS, RateLimiter::default(), fastrand::Rng::with_seed(1));
        for cluster in (0..clusters).map(name) {
            let (group, range) = ("g".parse().unwrap(), model::Range::WHOLE);
            let shard = ShardId { cluster, group, range };
            queue.warm(&shard, Epoch(1), ());
            queue.open(&shard, Epoch(1), Moment::default());
        }
        Self {
            queue,
            now: Moment::default(),
            each: Duration::from_secs(1) / per_second,
            busy: Moment::default(),
            running: BTreeMap::new(),
            unlike: BTreeMap::new(),
            usual: usual.to_vec(),
            begun: 0,
            times: WriteTimes::default(),
            sent: 0,
            ended: 0,
            written: Vec::new(),
            waited: BTreeMap::new(),
        }
    }

    fn add(&mut self, cluster: usize, keys: usize, priority: Priority) {
        for number in 0..keys {
            let key = ObjectKey::new(name(cluster), None, &format!("k{number}"));
            self.queue.add(&key, None, priority, &Span::none(), self.now);
        }
    }

    /// Begins what may begin now.
    fn begin(&mut self) {
        while let Some(popped) = self.queue.pop(self.now) {
            let cluster = &popped.key.cluster;
            let longest = self.waited.entry(cluster.clone()).or_default();
            *longest = popped.waited.max(*longest);
            let usual = self.usual[self.begun % self.usual.len()];
            self.begun += 1;
            let run = *self.unlike.get(cluster).unwrap_or(&usual);
            let left = if let Run::Shares(writes, _) = run { writes.saturating_sub(1) } else { 0 };
            self.send(Going { key: popped.key, run, left, sent: self.now });
        }
    }

    fn send(&mut self, going: Going) {
        let end = match going.run {
            Run::Shares(writes, beside) => {
                let each = if writes == 0 { self.each / 20 } else { self.each };
                self.busy = self.busy.max(self.now) + each;
                self.busy + beside
            }
            Run::Writes(long) | Run::Far(long) | Run::Waits(long) => self.now + long,
            Run::Hangs => self.now + TOO_LATE,
        };
        self.sent += 1;
        self.running.insert((end, self.sent), Going { sent: self.now, ..going });
    }

    /// Goes on until `end`, or until nothing is left to do.
    fn run(&mut self, end: Moment) {
        loop {
            self.begin();
            let next = self.running.first_key_value().map(|((at, _), _)| *at);
            let next = next.into_iter().chain(self.queue.next_due()).min();
            let Some(next) = next.filter(|next| *next < end) else { return };
            self.now = next;
            while let Some(first) = self.running.first_entry()
                && first.key().0 <= self.now
            {
                let going = first.remove();
                self.answered(going);
            }
        }
    }

    fn answered(&mut self, going: Going) {
        let took = match going.run {
            Run::Shares(0, _) | Run::Hangs => None,
            Run::Shares(..) | Run::Writes(_) | Run::Far(_) => Some(self.now.since(going.sent)),
            Run::Waits(_) => Some(Duration::from_millis(20)),
        };
        if let Some(took) = took {
            self.written.push((self.now, took));
            let fastest = if let Run::Far(long) = going.run { long } else { FASTEST };
            self.times.answered(&going.key.cluster, took, Some(fastest));
            self.queue.wrote(&self.times.take(), self.now);
        }
        if going.left > 0 {
            return self.send(Going { left: going.left - 1, ..going });
        }
        let outcome = if matches!(going.run, Run::Hangs) { Outcome::Failed } else { Outcome::Done };
        self.queue.finish(&going.key, outcome, self.now);
        self.ended += usize::from(outcome == Outcome::Done);
    }

    /// The longest write that was answered since then.
    fn longest(&self, since: Moment) -> Duration {
        let late = self.written.iter().filter(|(ended, _)| *ended >= since);
        late.map(|(_, took)| *took).max().unwrap_or_default()
    }
}

const fn at(seconds: u64) -> Moment {
    Moment::from_origin(Duration::from_secs(seconds))
}

/// A replica starts, and 18,000 keys of 900 clusters are ready at once. Each has three writes to make, and is then
/// reconciled twice for what it wrote, with nothing to do.
#[test]
fn a_start_does_not_make_writes_too_late() {
    for per_second in [100, 300, 700, 2_000] {
        let beside = Duration::from_millis(20);
        let [writes, looks] = [3, 0].map(|writes| Run::Shares(writes, beside));
        let mut world = World::new(900, per_second, &[writes, looks, looks]);
        for turn in 0..3 {
            (0..900).for_each(|cluster| world.add(cluster, 20, Priority::Initial));
            world.run(at(1000 * (turn + 1)));
        }
        assert_eq!(world.ended, 3 * 18_000);
        let longest = world.longest(Moment::default());
        assert!(longest < IN_TIME, "with {per_second} a second, one took {longest:?}");
    }
}

/// The limit keeps no processor idle while keys are ready.
#[test]
fn a_start_keeps_the_processor_busy() {
    for per_second in [100, 700, 2_000] {
        let mut world = World::new(900, per_second, &[Run::Shares(3, Duration::from_millis(20))]);
        (0..900).for_each(|cluster| world.add(cluster, 20, Priority::Initial));
        world.run(at(1000));
        let (whole, least) = (world.now.since_origin(), world.each * 3 * 18_000);
        assert!(whole < least.mul_f64(1.02) + Duration::from_millis(200), "{whole:?}, {least:?}");
    }
}

/// A run takes 50 ms, of which the processor works 50 us.
#[test]
fn a_fast_machine_is_soon_used_whole() {
    let mut world = World::new(900, 20_000, &[Run::Shares(1, Duration::from_millis(50))]);
    (0..900).for_each(|cluster| world.add(cluster, 40, Priority::Initial));
    world.run(at(1000));
    assert_eq!(world.ended, 36_000);
    let whole = world.now.since_origin();
    assert!(whole < Duration::from_secs(4), "{whole:?}, if it works all the time 1.8 s");
}

/// Keys come all the time, and then the machine has a thirtieth of its speed.
#[test]
fn a_machine_that_becomes_slow_does_less_at_once() {
    let mut world = World::new(900, 20_000, &[Run::Shares(1, Duration::from_millis(20))]);
    let second = |world: &mut World, second: u64| {
        (0..900).for_each(|cluster| world.add(cluster, 20, Priority::Change));
        world.run(at(second + 1));
    };
    (0..10).for_each(|number| second(&mut world, number));
    assert!(world.ended > 100_000, "{}", world.ended);
    world.each *= 30;
    (10..40).for_each(|number| second(&mut world, number));
    let longest = world.longest(at(20));
    assert!(longest < IN_TIME, "{longest:?}");
}

/// Of 900 clusters, 300 begin to hang and 300 become slow, and all of these have keys all the time. The others are
/// quick, and have keys from time to time.
#[test]
fn clusters_that_are_slow_or_hang_delay_no_quick_one() {
    let mut world = World::new(900, 20_000, &[Run::Shares(1, Duration::from_millis(20))]);
    let second = |world: &mut World, second: u64, bad: Range<usize>| {
        for cluster in 0..900 {
            if bad.contains(&cluster) {
                world.add(cluster, 20, Priority::Change);
            } else if (cluster + second as usize).is_multiple_of(10) {
                world.add(cluster, 2, Priority::Change);
            }
        }
        world.run(at(second + 1));
    };
    let longest = |world: &mut World| {
        let waited = std::mem::take(&mut world.waited);
        (600..900).filter_map(|cluster| waited.get(&name(cluster)).copied()).max()
    };
    (0..5).for_each(|number| second(&mut world, number, 0..0));
    for cluster in 0..600 {
        let slow = Run::Writes(Duration::from_millis(1500));
        world.unlike.insert(name(cluster), if cluster < 300 { Run::Hangs } else { slow });
    }
    second(&mut world, 5, 0..600);
    assert!(longest(&mut world) < Some(Duration::from_secs(1)), "until the others are known");
    (6..15).for_each(|number| second(&mut world, number, 0..600));
    assert!(longest(&mut world) < Some(Duration::from_secs(1)), "while some had no key yet");
    (15..60).for_each(|number| second(&mut world, number, 0..600));
    let longest = longest(&mut world);
    assert!(longest < Some(Duration::from_millis(50)), "{longest:?}");
}

/// Nor those that are far away, or take a while for another reason.
#[test]
fn clusters_that_are_slow_or_hang_delay_no_far_one() {
    for usual in [Run::Writes(Duration::from_millis(150)), Run::Far(Duration::from_millis(600))] {
        let mut world = World::new(900, 20_000, &[usual]);
        for second in 0..40_u64 {
            for cluster in 0..900 {
                if cluster < 600 && second >= 12 {
                    let slow = Run::Writes(Duration::from_millis(1500));
                    world
                        .unlike
                        .insert(name(cluster), if cluster < 300 { Run::Hangs } else { slow });
                    world.add(cluster, 20, Priority::Change);
                } else if (cluster + second as usize).is_multiple_of(10) {
                    world.add(cluster, 1, Priority::Change);
                }
            }
            if second == 15 {
                world.waited.clear();
            }
            world.run(at(second + 1));
        }
        let waited = (600..900).filter_map(|cluster| world.waited.get(&name(cluster)));
        let longest = waited.max();
        assert!(longest < Some(&Duration::from_millis(200)), "{longest:?}");
    }
}

/// Each run of a controller takes three seconds, because a service does, and writes at its end.
#[test]
fn a_controller_that_waits_for_a_service_runs_as_many_as_it_may() {
    let mut world = World::new(900, 20_000, &[Run::Waits(Duration::from_secs(3))]);
    (0..900).for_each(|cluster| world.add(cluster, 100, Priority::Initial));
    world.run(at(60));
    let before = world.ended;
    world.run(at(70));
    let (each, most) = (world.ended - before, 4096 * 10 / 3);
    assert!(each > most * 9 / 10, "{each} of {most} in ten seconds");
}

/// Whoever asks after a key that waits for this reason is told.
#[test]
fn a_key_that_waits_until_fewer_run_says_so() {
    let mut world = World::new(900, 100, &[Run::Shares(1, Duration::from_millis(20))]);
    (0..900).for_each(|cluster| world.add(cluster, 2, Priority::Initial));
    let key = |cluster, number| ObjectKey::new(name(cluster), None, &format!("k{number}"));
    world.run(Moment::from_origin(Duration::from_millis(1)));
    let crowded = |cluster, number| world.queue.look(&key(cluster, number), world.now).crowded;
    assert_eq!([crowded(0, 0), crowded(0, 1), crowded(899, 0)], [None, Some(128), Some(128)]);
}
