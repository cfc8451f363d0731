//! What a member tells of the work that its shards cost it.
//!
//! ```text
//!   counts at moments ─▶ smoothed rates ─▶ told: rounded, seldom, only what changed
//!   (model::Work)        (Estimate)        (MemberSpec.loads, MemberSpec.busy)
//! ```
//!
//! It owns the estimates and what was told. It does not weigh shards against each other: that is
//! for whoever plans.
//!
//! # Invariants
//! - What is told changes at most once in [`TELL_INTERVAL`], and then only in what moved by more
//!   than a fifth and by more than its floor. A steady load is told once, an idle fleet never.
//! - At most [`MAX_LOADS`] shards and [`MAX_LOAD_BYTES`] are told, the costliest first; one that is
//!   told gives way only to one that costs a fifth more.
//! - A shard that is not measured any more is told no longer.
//! - Counters that begin anew, clocks that jump and pauses cost a sample and distort none.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::{Moment, ShardId, Work};

use crate::api::{MAX_LOADS, ShardLoad};

/// What is told changes at most once in this time.
pub const TELL_INTERVAL: Duration = Duration::from_secs(10);
/// What is told takes at most this much of the Member, which shall stay below 64 KiB.
pub const MAX_LOAD_BYTES: usize = 56 * 1024;
/// The time constant of the smoothing: a load that steps has moved by two thirds after it.
pub const SMOOTHING: Duration = Duration::from_secs(60);
/// What a shard costs at first is not counted: everything in it is listed and reconciled once,
/// which says nothing of what it will cost.
pub const SETTLE: Duration = Duration::from_secs(30);
/// Counts further apart tell of a pause, not of a load.
const MAX_GAP: Duration = Duration::from_secs(60);
/// Counts closer together tell mostly of how time is sliced.
const MIN_GAP: Duration = Duration::from_secs(1);
/// What changes by no more than this part of what was told is not told anew.
const TOLD_PART: u64 = 5;

/// Busy milliseconds per second, events per thousand seconds, cached KiB.
type Rates = [u64; 3];
/// Changes up to this size are not told, whatever part they are: a hundredth of a worker, an event
/// in two seconds, a MiB.
const FLOOR: Rates = [10, 500, 1024];

/// The load of one member.
#[derive(Clone, Debug, Default)]
pub struct Load {
    estimates: BTreeMap<ShardId, Estimate>,
    told: BTreeMap<ShardId, Rates>,
    told_busy: u64,
    told_at: Option<Moment>,
}

/// One shard's counts and what they amount to.
#[derive(Clone, Debug)]
struct Estimate {
    settled: Moment,
    counted: Moment,
    work: Work,
    /// Samples, weighted by their age; `weight` is the sum of the weights, so that the first
    /// sample counts in full instead of pulling up from zero.
    sum: [f64; 3],
    weight: f64,
}

impl Load {
    /// Takes in the work counted for every shard held.
    ///
    /// A shard held for the first time begins with what `elsewhere`, the loads that other members
    /// tell, says of it: what is known of a shard moves with it.
    pub fn measure<'a>(
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
        for (shard, estimate) in &mut self.estimates {
            estimate.sample(work[shard], now);
        }
        self.tell(now);
    }

    /// What is to be told of single shards, by name.
    pub fn told(&self) -> Vec<ShardLoad> {
        self.told.iter().map(|(shard, &rates)| load_of(shard, rates)).collect()
    }

    /// What is to be told of all shards together, those not worth telling included: milliseconds
    /// of work in each second.
    pub fn told_busy(&self) -> u32 {
        bounded(self.told_busy)
    }

    fn tell(&mut self, now: Moment) {
        if self.told_at.is_some_and(|at| now < at + TELL_INTERVAL) {
            return;
        }
        let rates: BTreeMap<&ShardId, Rates> = self
            .estimates
            .iter()
            .filter_map(|(shard, estimate)| Some((shard, estimate.rates()?)))
            .collect();
        let busy = rates.values().map(|[busy, ..]| busy).sum();
        let busy = told_of(Some([self.told_busy, 0, 0]), [busy, 0, 0]).map_or(0, |[busy, ..]| busy);
        let next = self.costliest(&rates);
        if busy != self.told_busy || next != self.told {
            (self.told, self.told_busy, self.told_at) = (next, busy, Some(now));
        }
    }

    /// What is worth telling.
    fn costliest(&self, rates: &BTreeMap<&ShardId, Rates>) -> BTreeMap<ShardId, Rates> {
        let mut worth: Vec<(&ShardId, Rates)> = rates
            .iter()
            .filter_map(|(&shard, &now)| {
                Some((shard, told_of(self.told.get(shard).copied(), now)?))
            })
            .collect();
        worth.sort_by_key(|&(shard, rates)| {
            let bonus = TOLD_PART + u64::from(self.told.contains_key(shard));
            (Reverse(cost(rates).saturating_mul(bonus)), shard)
        });
        let mut bytes = 0;
        let room = |&(shard, rates): &(&ShardId, Rates)| {
            bytes += bytes_of(&load_of(shard, rates));
            bytes <= MAX_LOAD_BYTES
        };
        let told = worth.into_iter().take(MAX_LOADS).take_while(room);
        told.map(|(shard, rates)| (shard.clone(), rates)).collect()
    }
}

impl Estimate {
    fn new(work: Work, known: Option<Rates>, now: Moment) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a load is no exact number")]
        let sum = known.unwrap_or_default().map(|rate| rate as f64);
        let weight = if known.is_some() { 1.0 } else { 0.0 };
        Self { settled: now + SETTLE, counted: now, work, sum, weight }
    }

    fn sample(&mut self, work: Work, now: Moment) {
        let gap = now.since(self.counted);
        let restarted = work.busy < self.work.busy || work.events < self.work.events;
        if now >= self.counted && !restarted && gap < MIN_GAP {
            return;
        }
        if gap >= MIN_GAP && gap <= MAX_GAP && !restarted && now >= self.settled {
            self.add(rates_between(self.work, work, gap), gap);
        }
        (self.counted, self.work) = (now, work);
    }

    fn add(&mut self, sample: [f64; 3], gap: Duration) {
        let keep = (-gap.as_secs_f64() / SMOOTHING.as_secs_f64()).exp();
        for (sum, sample) in self.sum.iter_mut().zip(sample) {
            *sum = *sum * keep + sample * (1.0 - keep);
        }
        self.weight = self.weight * keep + (1.0 - keep);
    }

    /// The smoothed rates; nothing before the first sample.
    fn rates(&self) -> Option<Rates> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "no rate is negative, and one past the type's end ends there"
        )]
        let mean = |sum: f64| (sum / self.weight).round() as u64;
        (self.weight > 0.0).then(|| self.sum.map(mean))
    }
}

fn rates_between(before: Work, after: Work, gap: Duration) -> [f64; 3] {
    let seconds = gap.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a load is no exact number")]
    let (events, cached) = ((after.events - before.events) as f64, after.cached_bytes as f64);
    let busy = after.busy.saturating_sub(before.busy).as_secs_f64();
    [busy * 1e3 / seconds, events * 1e3 / seconds, cached / 1024.0]
}

fn load_of(shard: &ShardId, [busy, events, cached]: Rates) -> ShardLoad {
    ShardLoad { shard: shard.clone(), busy: bounded(busy), events, cached }
}

/// What it takes in the Member, with the comma behind it.
fn bytes_of(load: &ShardLoad) -> usize {
    serde_json::to_string(load).map_or(0, |text| text.len() + 1)
}

fn rates_of(load: &ShardLoad) -> Rates {
    [load.busy.into(), load.events, load.cached]
}

/// What is to be told: what was told, if it is still about right, or else what is now, if it is
/// worth it.
fn told_of(told: Option<Rates>, now: Rates) -> Option<Rates> {
    let fresh = || moved(Rates::default(), now).then(|| now.map(rounded));
    told.filter(|&told| !moved(told, now)).or_else(fresh)
}

/// Whether a load is so far from what was told of it that it is worth telling.
fn moved(told: Rates, now: Rates) -> bool {
    let moved = |n: usize| now[n].abs_diff(told[n]) > FLOOR[n].max(told[n].div_ceil(TOLD_PART));
    (0..FLOOR.len()).any(moved)
}

/// For the choice of what to tell when there is too much: how many times its floor the most
/// remarkable rate is, in hundredths.
fn cost(rates: Rates) -> u64 {
    let times = |(rate, floor): (u64, u64)| rate.saturating_mul(100) / floor;
    rates.into_iter().zip(FLOOR).map(times).max().unwrap_or(0)
}

/// Two digits that count: more would be noise.
fn rounded(rate: u64) -> u64 {
    let step = 10u64.pow(rate.checked_ilog10().unwrap_or(0).saturating_sub(1));
    // The schema ends where signed numbers do.
    (rate.saturating_add(step / 2) / step * step).min(i64::MAX.unsigned_abs())
}

/// As the schema bounds it.
fn bounded(busy: u64) -> u32 {
    u32::try_from(busy).unwrap_or(u32::MAX).min(i32::MAX.unsigned_abs())
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
