//! What a member reports about the load of its shards.
//!
//! ```text
//!   counts at moments ─▶ smoothed rates ─▶ report: rounded, rare, only what changed
//!   (model::Work)        (Estimate)        (MemberSpec.loads, MemberSpec.busy)
//! ```
//!
//! Owns the estimates and the last report. Does not compare shards with each other: the planner does.
//!
//! # Invariants
//! - The report changes at most once in [`REPORT_INTERVAL`], and only where a load moved by more than a
//!   fifth, or the part of the heaviest object in it by a twentieth of the load, and by more than its
//!   minimum. A steady load is reported once, an idle fleet never.
//! - A report has at most [`MAX_LOADS`] shards and [`MAX_LOAD_BYTES`], the highest loads first. A shard
//!   in the report gives way only to one whose load is a fifth higher. If there are more, a part of these
//!   bytes is for the sums of the others, by cluster, and what has no room there either is one sum.
//! - A shard that is no longer measured is no longer reported.
//! - While keys of a shard's initial list wait, what is done for it says nothing about its later load, and is not
//!   counted. Once the member needs longer than [`LONG`] for all of these that wait, they are reported by themselves
//!   until none does: as a load that lasts no longer. Otherwise the planner would weigh two equal backlogs by which of
//!   them is served, and later remember when each was.
//! - A restart of the counters, a clock that jumps and a pause cost one sample and distort none.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::{ClusterName, Moment, ShardId, Work};
use serde::Serialize;

use crate::api::{ClusterLoad, LoadSum, MAX_CLUSTER_LOADS, MAX_LOADS, ShardLoad, Shared};

/// The report changes at most once in this time.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// How much of the Member the report takes at most: the Member must stay below 64 KiB.
pub(crate) const MAX_LOAD_BYTES: usize = 56 * 1024;
/// How much of that is for the sums by cluster, if they are needed.
const SUM_BYTES: usize = 16 * 1024;
/// The time constant of the smoothing: after it, an estimate has followed two thirds of a step.
const SMOOTHING: Duration = Duration::from_secs(60);
/// How long the load of a shard does not count after the last of its initial list was taken, or after it was gained:
/// at first all its objects are listed and reconciled once, which says nothing about its later load.
const WARM_UP: Duration = Duration::from_secs(30);
/// What waits of initial lists begins to count if the member needs longer for it. What waits for less is done soon after
/// it could have moved, and what has moved waits again.
const LONG: Duration = Duration::from_secs(120);
/// Then it counts as much as doing it in this time would.
const BACKLOG: Duration = Duration::from_secs(60);
/// Counts further apart than this show a pause, not a load.
const MAX_GAP: Duration = Duration::from_secs(60);
/// Counts closer together than this mostly show how time is sliced.
const MIN_GAP: Duration = Duration::from_secs(1);
/// A change of no more than this part of the reported load is not reported.
const CHANGE_PART: u64 = 5;

/// Busy milliseconds per second, events per thousand seconds, cached KiB, busy milliseconds per second that what waits
/// would take, and those of the heaviest object.
type Rates = [u64; 5];
const BUSY: usize = 0;
const WAITING: usize = 3;
const HEAVIEST: usize = 4;
/// A change of the heaviest object by no more than this part of the load is not reported.
const HEAVIEST_PART: u64 = 20;
/// Changes up to this size are not reported, whatever part they are: a hundredth of a worker, an event
/// in two seconds, a MiB. What waits and the heaviest object are only estimates: a tenth and a twentieth of a worker.
const MIN_CHANGE: Rates = [10, 500, 1024, 100, 50];

/// Measures the load of one member's shards and decides what to report.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadReporter {
    estimates: BTreeMap<ShardId, Estimate>,
    reported: BTreeMap<ShardId, Rates>,
    /// The sums of the loads that are worth reporting and have no room, by cluster.
    sums: BTreeMap<ClusterName, Rates>,
    /// The sum of those for which there is no room by cluster.
    rest: Option<Rates>,
    /// What is reported, as it is written.
    written: (Shared<ShardLoad>, Shared<ClusterLoad>),
    pace: Pace,
    reported_busy: u64,
    reported_at: Option<Moment>,
}

/// The counts and the smoothed rates of one shard.
#[derive(Clone, Debug)]
struct Estimate {
    gained: Moment,
    counts_from: Moment,
    counted: Moment,
    work: Work,
    /// Busy milliseconds per second that what waits would take, from when the member needs long for it until nothing does.
    waiting: u64,
    /// Samples, weighted by their age. `weight` is the sum of the weights, so that the first sample
    /// counts in full instead of rising from zero.
    sum: [f64; 5],
    weight: f64,
}

/// At what pace the member takes keys of initial lists: sums, of which what is older counts less.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// Seconds for which shards were busy of which such keys waited: with what these keys caused.
    busy: f64,
    taken: f64,
    seconds: f64,
    counted: Option<Moment>,
}

/// The loads worth reporting: by shard, by cluster, and all the others.
struct Highest {
    shards: BTreeMap<ShardId, Rates>,
    sums: BTreeMap<ClusterName, Rates>,
    rest: Option<Rates>,
}

impl LoadReporter {
    /// Takes in the work counted for every shard held.
    ///
    /// A shard that is new here begins with its load in `elsewhere`, the loads that other members
    /// report. So the load of a shard moves with it.
    pub(crate) fn measure<'a>(
        &mut self,
        work: &BTreeMap<ShardId, Work>,
        elsewhere: impl Iterator<Item = &'a ShardLoad>,
        now: Moment,
    ) {
        self.estimates.retain(|shard, _| work.contains_key(shard));
        let fresh: BTreeSet<&ShardId> =
            work.keys().filter(|shard| !self.estimates.contains_key(*shard)).collect();
        if !fresh.is_empty() {
            let known = elsewhere.filter(|load| fresh.contains(&load.shard));
            let known: BTreeMap<_, _> = known.map(|load| (&load.shard, rates_of(load))).collect();
            for shard in fresh {
                let estimate = Estimate::new(work[shard], known.get(shard).copied(), now);
                self.estimates.insert(shard.clone(), estimate);
            }
        }
        self.count_waiting(work, now);
        for (shard, estimate) in &mut self.estimates {
            estimate.sample(work[shard], now);
        }
        self.report(now);
    }

    /// What waits counts if the member needs long for it at the pace of the last minute.
    fn count_waiting(&mut self, work: &BTreeMap<ShardId, Work>, now: Moment) {
        let (mut busy, mut taken, mut waiting) = (Duration::ZERO, 0, 0);
        for (shard, estimate) in &self.estimates {
            let (before, now) = (estimate.work, work[shard]);
            if before.waiting > 0 {
                busy += now.busy.saturating_sub(before.busy);
                taken += before.waiting.saturating_sub(now.waiting);
            }
            waiting += now.waiting;
        }
        self.pace.add(busy, taken, now);
        let is_behind = self.pace.needs_longer(waiting, LONG);
        for (shard, estimate) in &mut self.estimates {
            let begins = is_behind && now >= estimate.gained + WARM_UP;
            let counts = begins || estimate.waiting > 0;
            estimate.waiting = if counts { self.pace.load_of(work[shard].waiting) } else { 0 };
        }
    }

    /// The loads of single shards to report, by name.
    pub(crate) fn reported(&self) -> Shared<ShardLoad> {
        self.written.0.clone()
    }

    /// The sums of further loads to report, by name of the cluster.
    pub(crate) fn reported_sums(&self) -> Shared<ClusterLoad> {
        self.written.1.clone()
    }

    /// The sum of what is in neither of them.
    pub(crate) fn reported_rest(&self) -> Option<LoadSum> {
        self.rest.map(sum_of)
    }

    /// The work for all shards together to report, in milliseconds per second. Includes shards that
    /// are not reported by themselves.
    pub(crate) fn reported_busy(&self) -> u32 {
        bounded(self.reported_busy)
    }

    fn report(&mut self, now: Moment) {
        if self.reported_at.is_some_and(|at| now < at + REPORT_INTERVAL) {
            return;
        }
        let rates: BTreeMap<&ShardId, Rates> = self
            .estimates
            .iter()
            .filter_map(|(shard, estimate)| Some((shard, estimate.rates()?)))
            .collect();
        let busy = rates.values().map(|[busy, ..]| busy).sum();
        let busy = reported_rates(Some([self.reported_busy, 0, 0, 0, 0]), [busy, 0, 0, 0, 0])
            .map_or(0, |[busy, ..]| busy);
        let Highest { shards: next, sums, rest } = self.highest(&rates);
        let is_same = next == self.reported && sums == self.sums && rest == self.rest;
        if busy != self.reported_busy || !is_same {
            let loads = next.iter().map(|(shard, &rates)| load_of(shard, rates)).collect();
            self.written = (loads, sums.iter().map(|(name, &sum)| of_cluster(name, sum)).collect());
            (self.reported, self.sums, self.rest) = (next, sums, rest);
            (self.reported_busy, self.reported_at) = (busy, Some(now));
        }
    }

    /// The loads worth reporting, and the sums of those that have no room.
    fn highest(&self, rates: &BTreeMap<&ShardId, Rates>) -> Highest {
        let mut worth: Vec<(&ShardId, Rates)> = rates
            .iter()
            .filter_map(|(&shard, &now)| {
                Some((shard, reported_rates(self.reported.get(shard).copied(), now)?))
            })
            .collect();
        worth.sort_by_key(|&(shard, rates)| {
            let bonus = CHANGE_PART + u64::from(self.reported.contains_key(shard));
            (Reverse(cost(rates).saturating_mul(bonus)), shard)
        });
        let sizes = worth.iter().map(|&(shard, rates)| bytes_of(&load_of(shard, rates)));
        let sizes: Vec<usize> = sizes.collect();
        let mut fit = that_fit(&sizes, MAX_LOADS, MAX_LOAD_BYTES);
        if fit < worth.len() {
            fit = that_fit(&sizes, MAX_LOADS, MAX_LOAD_BYTES - SUM_BYTES);
        }
        let (sums, rest) = self.sums(&worth[fit..]);
        worth.truncate(fit);
        let shards = worth.into_iter().map(|(shard, rates)| (shard.clone(), rates)).collect();
        Highest { shards, sums, rest }
    }

    /// The sums of these loads by cluster, the highest first as far as there is room, and the sum of the others.
    fn sums(&self, loads: &[(&ShardId, Rates)]) -> (BTreeMap<ClusterName, Rates>, Option<Rates>) {
        let mut sums: BTreeMap<&ClusterName, Rates> = BTreeMap::new();
        for (shard, rates) in loads {
            add(sums.entry(&shard.cluster).or_default(), rates);
        }
        let mut sums: Vec<(&ClusterName, Rates)> = sums
            .into_iter()
            .filter_map(|(name, now)| {
                Some((name, reported_rates(self.sums.get(name).copied(), now)?))
            })
            .collect();
        sums.sort_by_key(|&(name, rates)| (Reverse(cost(rates)), name));
        let sizes = sums.iter().map(|&(name, rates)| bytes_of(&of_cluster(name, rates)));
        let fit = that_fit(&sizes.collect::<Vec<_>>(), MAX_CLUSTER_LOADS, SUM_BYTES);
        let mut rest = Rates::default();
        sums.drain(fit..).for_each(|(_, rates)| add(&mut rest, &rates));
        let sums = sums.into_iter().map(|(name, rates)| (name.clone(), rates)).collect();
        (sums, reported_rates(self.rest, rest))
    }
}

impl Pace {
    fn add(&mut self, busy: Duration, taken: u64, now: Moment) {
        let gap = now.since(self.counted.replace(now).unwrap_or(now));
        let keep = (-gap.as_secs_f64() / SMOOTHING.as_secs_f64()).exp();
        #[expect(clippy::cast_precision_loss, reason = "a pace is no exact number")]
        let taken = taken as f64;
        self.busy = self.busy * keep + busy.as_secs_f64();
        self.taken = self.taken * keep + taken;
        self.seconds = self.seconds * keep + gap.as_secs_f64();
    }

    /// Whether so many keys need longer than that; no, if it is not known yet.
    fn needs_longer(&self, keys: u64, than: Duration) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "a pace is no exact number")]
        let needed = keys as f64 * self.seconds;
        self.taken > 0.0 && needed > than.as_secs_f64() * self.taken
    }

    /// How many milliseconds in each second they would take if they were to be done in a minute.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "no rate is negative, and one beyond the type's maximum becomes the maximum"
    )]
    fn load_of(&self, keys: u64) -> u64 {
        let cost = if self.taken > 0.0 { self.busy / self.taken } else { 0.0 };
        (keys as f64 * cost * 1e3 / BACKLOG.as_secs_f64()).round() as u64
    }
}

impl Estimate {
    fn new(work: Work, known: Option<Rates>, now: Moment) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a load is no exact number")]
        let sum = known.unwrap_or_default().map(|rate| rate as f64);
        let weight = if known.is_some() { 1.0 } else { 0.0 };
        let (gained, counts_from) = (now, now + WARM_UP);
        Self { gained, counts_from, counted: now, work, waiting: 0, sum, weight }
    }

    fn sample(&mut self, work: Work, now: Moment) {
        let gap = now.since(self.counted);
        let restarted = work.busy < self.work.busy || work.events < self.work.events;
        if now >= self.counted && !restarted && gap < MIN_GAP {
            return;
        }
        if work.waiting > 0 || self.work.waiting > 0 {
            self.counts_from = now + WARM_UP;
        }
        if gap >= MIN_GAP && gap <= MAX_GAP && !restarted && now >= self.counts_from {
            self.add(rates_between(self.work, work, gap), gap);
        }
        (self.counted, self.work) = (now, work);
    }

    fn add(&mut self, sample: [f64; 5], gap: Duration) {
        let keep = (-gap.as_secs_f64() / SMOOTHING.as_secs_f64()).exp();
        for (sum, sample) in self.sum.iter_mut().zip(sample) {
            *sum = *sum * keep + sample * (1.0 - keep);
        }
        self.weight = self.weight * keep + (1.0 - keep);
    }

    /// The smoothed rates, and what waits; `None` before the first sample if nothing does.
    fn rates(&self) -> Option<Rates> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "no rate is negative, and one beyond the type's maximum becomes the maximum"
        )]
        let mean = |sum: f64| (sum / self.weight).round() as u64;
        let mut rates = if self.weight > 0.0 { self.sum.map(mean) } else { Rates::default() };
        rates[WAITING] = self.waiting;
        (self.weight > 0.0 || self.waiting > 0).then_some(rates)
    }
}

fn rates_between(before: Work, after: Work, gap: Duration) -> [f64; 5] {
    let seconds = gap.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a load is no exact number")]
    let (events, cached) = ((after.events - before.events) as f64, after.cached_bytes as f64);
    let busy = after.busy.saturating_sub(before.busy).as_secs_f64();
    let heaviest = busy * f64::from(after.heaviest_permille.min(1_000));
    [busy * 1e3 / seconds, events * 1e3 / seconds, cached / 1024.0, 0.0, heaviest / seconds]
}

fn add(sum: &mut Rates, rates: &Rates) {
    sum.iter_mut().zip(rates).for_each(|(sum, rate)| *sum = sum.saturating_add(*rate));
}

fn load_of(shard: &ShardId, [busy, events, cached, waiting, heaviest]: Rates) -> ShardLoad {
    let (heaviest, waiting) = (Some(bounded(heaviest)), bounded(waiting));
    ShardLoad { shard: shard.clone(), busy: bounded(busy), heaviest, events, cached, waiting }
}

fn of_cluster(cluster: &ClusterName, sum: Rates) -> ClusterLoad {
    ClusterLoad { cluster: cluster.clone(), sum: sum_of(sum) }
}

fn sum_of([busy, events, cached, ..]: Rates) -> LoadSum {
    LoadSum { busy: bounded(busy), events, cached }
}

/// How many bytes it takes in the Member, with its comma.
fn bytes_of(load: &impl Serialize) -> usize {
    serde_json::to_string(load).map_or(0, |text| text.len() + 1)
}

/// How many of the first of these sizes there is room for.
fn that_fit(sizes: &[usize], most: usize, bytes: usize) -> usize {
    let mut sum = 0;
    let fits = |size: &&usize| {
        sum += **size;
        sum <= bytes
    };
    sizes.iter().take(most).take_while(fits).count()
}

/// The rates that another member reports. What it does not measure may be of one object.
fn rates_of(load: &ShardLoad) -> Rates {
    let heaviest = load.heaviest.unwrap_or(load.busy);
    [load.busy.into(), load.events, load.cached, 0, heaviest.into()]
}

/// The rates to report: those already reported if they are about right, else the present ones if they
/// are worth it.
fn reported_rates(reported: Option<Rates>, now: Rates) -> Option<Rates> {
    let fresh = || moved(Rates::default(), now).then(|| now.map(rounded));
    reported.filter(|&reported| !moved(reported, now)).or_else(fresh)
}

/// Whether a load is so far from the reported one that it is worth reporting.
fn moved(reported: Rates, now: Rates) -> bool {
    let moved = |n: usize| {
        now[n].abs_diff(reported[n]) > MIN_CHANGE[n].max(reported[n].div_ceil(CHANGE_PART))
    };
    (0..HEAVIEST).any(moved) || heaviest_moved(reported, now)
}

/// Whether the heaviest object takes another part of the load than reported.
fn heaviest_moved(reported: Rates, now: Rates) -> bool {
    let (busy, then) = (u128::from(now[BUSY]), u128::from(reported[BUSY].max(1)));
    let as_reported = u128::from(reported[HEAVIEST]) * busy / then;
    let least = u128::from(MIN_CHANGE[HEAVIEST].max(now[BUSY] / HEAVIEST_PART));
    u128::from(now[HEAVIEST]).abs_diff(as_reported) > least
}

/// Ranks loads when there are too many: the highest ratio of a rate to its minimum, in hundredths.
fn cost(rates: Rates) -> u64 {
    let times = |(rate, least): (u64, u64)| rate.saturating_mul(100) / least;
    rates.into_iter().zip(MIN_CHANGE).map(times).max().unwrap_or(0)
}

/// The first two digits of a rate: more would be noise.
fn rounded(rate: u64) -> u64 {
    let step = 10u64.pow(rate.checked_ilog10().unwrap_or(0).saturating_sub(1));
    // The schema allows signed numbers only.
    (rate.saturating_add(step / 2) / step * step).min(i64::MAX.unsigned_abs())
}

/// The number within the bound of the schema.
fn bounded(busy: u64) -> u32 {
    u32::try_from(busy).unwrap_or(u32::MAX).min(i32::MAX.unsigned_abs())
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
