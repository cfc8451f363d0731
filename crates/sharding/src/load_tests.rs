//! Laws about what a member reports of its load.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// How often members count.
const POLL: Duration = Duration::from_secs(5);

fn at(s: u64) -> Moment {
    Moment::from_origin(Duration::from_secs(s))
}

fn shard(n: usize) -> ShardId {
    format!("c{n}/g/0/1").parse().unwrap()
}

fn work(busy_ms: u64, events: u64, kib: u64) -> Work {
    let busy = Duration::from_millis(busy_ms);
    Work { busy, events, cached_bytes: kib * 1024, heaviest_permille: 250, ..Work::default() }
}

fn one(work: Work) -> BTreeMap<ShardId, Work> {
    BTreeMap::from([(shard(0), work)])
}

/// A member whose shards' loads the test sets, counted every five seconds.
#[derive(Default)]
struct Bench {
    load: LoadReporter,
    now: Moment,
    counts: BTreeMap<ShardId, Work>,
    writes: usize,
}

impl Bench {
    /// Lets time pass under these loads: per shard, busy ms/s, events/s, KiB.
    fn run(&mut self, seconds: u64, loads: &[(u64, u64, u64)]) {
        for _ in 0..seconds / POLL.as_secs() {
            self.now = self.now + POLL;
            let counts = std::mem::take(&mut self.counts);
            for (n, &(busy, events, kib)) in loads.iter().enumerate() {
                let before = counts.get(&shard(n)).copied().unwrap_or_default();
                let sum = Work {
                    busy: before.busy + Duration::from_millis(busy * POLL.as_secs()),
                    events: before.events + events * POLL.as_secs(),
                    cached_bytes: kib * 1024,
                    heaviest_permille: 250,
                    ..Work::default()
                };
                self.counts.insert(shard(n), sum);
            }
            let before = self.shown();
            self.load.measure(&self.counts, [].iter(), self.now);
            self.writes += usize::from(self.shown() != before);
        }
    }

    fn shown(&self) -> (u32, Vec<ShardLoad>) {
        (self.load.reported_busy(), self.load.reported().to_vec())
    }

    fn busy(&self) -> Vec<u32> {
        self.load.reported().iter().map(|load| load.busy).collect()
    }
}

#[test]
fn a_step_of_the_load_is_followed_within_minutes_and_few_writes() {
    let mut bench = Bench::default();
    bench.run(600, &[(1_000, 0, 0)]);
    assert_eq!((bench.busy(), bench.writes), (vec![1_000], 1));
    assert_eq!(bench.load.reported()[0].heaviest, Some(250));
    bench.run(600, &[(3_000, 0, 0)]);
    assert!(bench.busy()[0].abs_diff(3_000) <= 600, "{:?}", bench.busy());
    assert!(bench.writes <= 6, "{}", bench.writes);
    bench.run(600, &[(0, 0, 0)]);
    assert_eq!((bench.busy(), bench.load.reported_busy()), (vec![], 0));
}

#[test]
fn work_at_first_does_not_count() {
    let mut bench = Bench::default();
    bench.run(30, &[(50_000, 900, 0)]);
    bench.run(300, &[(0, 0, 0)]);
    assert_eq!(bench.writes, 0);
}

#[test]
fn shards_too_small_to_report_count_in_the_sum() {
    let mut bench = Bench::default();
    bench.run(60, &[(8, 0, 0); 100]);
    assert_eq!((bench.busy(), bench.load.reported_busy(), bench.writes), (vec![], 800, 1));
}

#[test]
fn a_shard_that_is_gone_is_no_longer_reported() {
    let mut bench = Bench::default();
    bench.run(60, &[(100, 0, 0), (200, 0, 0)]);
    assert_eq!(bench.busy(), [100, 200]);
    bench.run(15, &[(100, 0, 0)]);
    assert_eq!(bench.busy(), [100]);
}

#[test]
fn the_load_of_a_shard_moves_with_it() {
    let known =
        ShardLoad { shard: shard(0), busy: 700, heaviest: None, events: 0, cached: 0, waiting: 0 };
    let mut load = LoadReporter::default();
    load.measure(&one(work(0, 0, 0)), [known].iter(), at(5));
    assert_eq!(load.reported()[0].busy, 700);
    assert_eq!(load.reported()[0].heaviest, Some(700), "nobody knows that it can be divided");
    // The first list makes everything run once; that is not its load.
    load.measure(&one(work(90_000, 0, 0)), [].iter(), at(20));
    assert_eq!(load.reported()[0].busy, 700);
}

#[test]
fn restarted_counters_pauses_and_jumps_distort_nothing() {
    let mut load = LoadReporter::default();
    let mut count = |busy_ms, s| {
        load.measure(&one(work(busy_ms, 0, 0)), [].iter(), at(s));
        load.reported().first().map(|load| load.busy)
    };
    for s in 0..10 {
        count(s * 1_000 * 5, s * 5);
    }
    assert_eq!(count(50_000, 50), Some(1_000));
    // The counters restart.
    assert_eq!(count(0, 65), Some(1_000));
    assert_eq!(count(5_000, 70), Some(1_000));
    // Suspended for a day; an hour's work done in no time.
    assert_eq!(count(5_000, 86_400), Some(1_000));
    assert_eq!(count(3_600_000, 86_400), Some(1_000));
    // A clock that steps back.
    assert_eq!(count(3_600_000, 100), Some(1_000));
    assert_eq!(count(3_605_000, 105), Some(1_000));
    assert_eq!(count(3_615_000, 115), Some(1_000));
}

#[test]
fn only_the_highest_loads_are_reported_and_they_do_not_take_turns() {
    let mut bench = Bench::default();
    let mut loads = vec![(1_000, 0, 0); MAX_LOADS + 200];
    bench.run(60, &loads);
    let reported = bench.load.reported();
    let last = reported.iter().map(bytes_of).max().unwrap();
    let bytes: usize = reported.iter().map(bytes_of).sum();
    assert!(reported.len() <= MAX_LOADS && bytes <= MAX_LOAD_BYTES);
    let room = MAX_LOAD_BYTES - SUM_BYTES;
    assert!(reported.len() == MAX_LOADS || bytes + last > room, "there is room for more");
    let left_out = (0..loads.len()).find(|&n| reported.iter().all(|load| load.shard != shard(n)));
    let left_out = left_out.unwrap();
    let writes = bench.writes;
    // A little more than the reported ones.
    loads[left_out].0 = 1_100;
    bench.run(200, &loads);
    assert_eq!(bench.writes, writes);
    loads[left_out].0 = 5_000;
    bench.run(100, &loads);
    assert!(bench.load.reported().iter().any(|load| load.shard == shard(left_out)));
    assert!(bench.load.reported().iter().map(bytes_of).sum::<usize>() <= MAX_LOAD_BYTES);
}

#[test]
fn what_has_no_room_is_reported_in_sum() {
    let mut bench = Bench::default();
    // The first of them is busier: it has a place of its own.
    let mut loads = vec![(1_000, 0, 0); MAX_LOADS + 200];
    loads[0].0 = 2_000;
    bench.run(60, &loads);
    let (single, sums) = (bench.load.reported(), bench.load.reported_sums());
    let told: u64 = single.iter().map(|load| u64::from(load.busy)).sum();
    let rest: u64 = sums.iter().map(|load| u64::from(load.sum.busy)).sum();
    let all: u64 = loads.iter().map(|(busy, ..)| busy).sum();
    assert!(single.iter().any(|load| load.shard == shard(0)));
    assert!(sums.len() <= MAX_CLUSTER_LOADS, "{}", sums.len());
    let others = bench.load.reported_rest().map_or(0, |rest| u64::from(rest.busy));
    assert!(others > 0, "each shard is of another cluster: not all of them have room");
    assert!(
        (told + rest + others).abs_diff(all) <= all / 50,
        "{told} + {rest} + {others} of {all}"
    );
    let bytes = |sizes: &mut dyn Iterator<Item = usize>| sizes.sum::<usize>();
    let bytes = bytes(&mut single.iter().map(bytes_of)) + bytes(&mut sums.iter().map(bytes_of));
    assert!(bytes <= MAX_LOAD_BYTES, "{bytes}");
    // Once all of them have room, there are no sums.
    bench.run(600, &loads[..100]);
    assert_eq!((bench.load.reported().len(), bench.load.reported_sums().len()), (100, 0));
}

#[test]
fn rates_are_rounded_to_two_digits() {
    let table = [(0, 0), (9, 9), (99, 99), (104, 100), (105, 110), (998, 1_000), (12_345, 12_000)];
    for (rate, expect) in table {
        assert_eq!(rounded(rate), expect, "{rate}");
    }
    assert_eq!(rounded(u64::MAX), i64::MAX.unsigned_abs());
}

proptest! {
    /// For any counts at any times.
    #[test]
    fn the_report_changes_at_most_once_in_the_interval(
        history in prop::collection::vec(
            (prop::collection::vec((0..9u64, 0..100_000u64, 0..100_000u64, 0..100_000u64), 0..9), 0..20_000u64),
            1..200,
        ),
    ) {
        let mut load = LoadReporter::default();
        let mut now = Moment::default();
        let mut changed: Option<Moment> = None;
        for (counts, step_ms) in history {
            now = now + Duration::from_millis(step_ms);
            let counts = counts.into_iter().map(|(n, busy, events, kib)| (shard(n as usize), work(busy, events, kib)));
            let before = (load.reported_busy(), load.reported());
            load.measure(&counts.collect(), [].iter(), now);
            if before != (load.reported_busy(), load.reported()) {
                prop_assert!(changed.is_none_or(|at| now.since(at) >= REPORT_INTERVAL));
                changed = Some(now);
            }
        }
    }

    #[test]
    fn a_steady_load_is_reported_once(
        loads in prop::collection::vec((0..10_000u64, 0..1_000u64, 0..1_000_000u64), 1..20),
    ) {
        let mut bench = Bench::default();
        bench.run(3_600, &loads);
        let worth = loads.iter().any(|&(busy, events, kib)| busy > 10 || events > 0 || kib > 1024);
        let worth = worth || loads.iter().map(|load| load.0).sum::<u64>() > 10;
        prop_assert_eq!(bench.writes, usize::from(worth));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A member of an idle fleet: a few events, a small cache, hardly any work.
    #[test]
    fn an_idle_fleet_reports_nothing(
        shards in 1..30usize,
        noise in prop::collection::vec((0..3u64, 0..2u64, 0..1_000u64), 100),
    ) {
        let mut load = LoadReporter::default();
        let mut counts: BTreeMap<ShardId, Work> = BTreeMap::new();
        for poll in 0..200u64 {
            for n in 0..shards {
                let (busy, events, kib) = noise[(n + poll as usize) % noise.len()];
                let count = counts.entry(shard(n)).or_default();
                // Together they must stay below the minimum of the sum.
                let busy = if n < 10 { busy } else { 0 };
                count.busy += Duration::from_millis(busy);
                count.events += events;
                count.cached_bytes = kib * 1024;
            }
            load.measure(&counts, [].iter(), at(poll * 5));
            prop_assert!(load.reported().is_empty());
            prop_assert_eq!(load.reported_busy(), 0);
        }
    }

    /// A load that swings by a tenth around its mean is reported once, thanks to the threshold of a fifth.
    #[test]
    fn a_load_that_swings_a_little_is_reported_once(
        mean in 200..10_000u64,
        swings in prop::collection::vec(-100..=100i64, 200),
    ) {
        let mut bench = Bench::default();
        for swing in swings {
            let busy = mean.saturating_add_signed(mean as i64 * swing / 1_000);
            bench.run(5, &[(busy, 0, 0)]);
        }
        prop_assert_eq!(bench.writes, 1);
    }
}
