//! One cluster with more objects than a member can reconcile in minutes: how it is divided while they wait.

use std::time::Duration;

use model::{Moment, Work};

use super::pipeline::{Changes, Fleet};
use super::*;
use crate::api::ShardLoad;
use crate::load::LoadReporter;
use crate::weight::WAITED;

/// What each member has: so many run at once.
const WORKERS: f64 = 16.0;
/// Objects that a member reconciles for the first time in a second.
const SPEED: f64 = 36.0;
/// What an object costs that is reconciled again, beside its first time: of a TDSet, 0.13 ms of processor time beside 1.9.
const AGAIN: f64 = 0.07;

/// The objects of a shard, and those of them that wait, in the order in which their queues were opened.
#[derive(Clone, Copy, Debug, Default)]
struct Backlog {
    opened: u64,
    objects: f64,
    /// Those that wait and were never reconciled, and those that wait to be reconciled again.
    new: f64,
    again: f64,
    counted: Work,
}

/// Members that reconcile what waits, first come, first served. A shard that moves, is split or merged has all its
/// objects listed and reconciled again.
struct Busy {
    fleet: Fleet,
    seconds: u64,
    backlogs: BTreeMap<(MemberId, ShardId), Backlog>,
    reporters: BTreeMap<MemberId, LoadReporter>,
}

impl Backlog {
    /// What all that waits costs, in seconds of one worker.
    fn cost(&self) -> f64 {
        (self.new + self.again * AGAIN) * WORKERS / SPEED
    }

    /// Takes so many seconds of a worker, and returns what is left of them.
    fn serve(&mut self, seconds: f64) -> f64 {
        let cost = self.cost();
        let served = if cost > 0.0 { (seconds / cost).min(1.0) } else { 1.0 };
        self.new *= 1.0 - served;
        self.again *= 1.0 - served;
        let spent = (cost * served).min(seconds);
        self.counted.busy += Duration::from_secs_f64(spent);
        seconds - spent
    }
}

impl Busy {
    fn new(members: usize, objects: f64) -> Self {
        let fleet = Fleet::new(members, 1);
        let reporters = (0..members).map(|n| (id(n), LoadReporter::default())).collect();
        let mut busy = Self { fleet, seconds: 0, backlogs: BTreeMap::new(), reporters };
        busy.plan();
        let whole = busy.fleet.shards.iter().next().unwrap();
        let key = (whole.1.clone().unwrap(), whole.0.clone());
        let backlog = Backlog { objects, new: objects, ..Backlog::default() };
        busy.backlogs.insert(key, backlog);
        busy
    }

    /// What the members say, and what the coordinator makes of it.
    fn plan(&mut self) -> Changes {
        let told = |member: &MemberId, shard: &ShardId| -> Option<ShardLoad> {
            let reported = self.reporters[member].reported();
            reported.iter().find(|load| load.shard == *shard).cloned()
        };
        let changes = self.fleet.round(told);
        let before = std::mem::take(&mut self.backlogs);
        for (shard, owner) in &self.fleet.shards {
            let owner = owner.clone().unwrap();
            let key = (owner, shard.clone());
            let same = before.get(&key).copied();
            let backlog = same.unwrap_or_else(|| {
                // Of the parts that it has of others, and of those that are parts of it.
                let width = |bits: u8| 0.5_f64.powi(i32::from(bits));
                let its = shard.range.bounds();
                let mut made = Backlog { opened: self.seconds, ..Backlog::default() };
                for ((_, other), backlog) in &before {
                    let theirs = other.range.bounds();
                    let overlaps = its.0 < theirs.1 && theirs.0 < its.1;
                    if overlaps {
                        let part = width(shard.range.bits()) / width(other.range.bits());
                        made.objects += backlog.objects * part.min(1.0);
                        made.new += backlog.new * part.min(1.0);
                    }
                }
                made.again = made.objects - made.new;
                made
            });
            self.backlogs.insert(key, backlog);
        }
        changes
    }

    /// A second passes.
    fn second(&mut self) {
        self.seconds += 1;
        for member in self.fleet.members.keys() {
            let mut its: Vec<&mut Backlog> = self
                .backlogs
                .iter_mut()
                .filter_map(|((owner, _), backlog)| (owner == member).then_some(backlog))
                .collect();
            its.sort_by_key(|backlog| backlog.opened);
            its.into_iter().fold(WORKERS, |left, backlog| backlog.serve(left));
        }
    }

    /// The members count what they did.
    fn measure(&mut self) {
        let now = Moment::from_origin(Duration::from_secs(self.seconds));
        let all: Vec<ShardLoad> =
            self.reporters.values().flat_map(|by| by.reported().to_vec()).collect();
        for (member, reporter) in &mut self.reporters {
            let its = self.backlogs.iter().filter(|((owner, _), _)| owner == member);
            let work = its.map(|((_, shard), backlog)| {
                let waiting = (backlog.new + backlog.again).ceil() as u64;
                (shard.clone(), Work { waiting, ..backlog.counted })
            });
            reporter.measure(&work.collect(), all.iter(), now);
        }
    }

    fn waits(&self) -> f64 {
        self.backlogs.values().map(Backlog::cost).sum()
    }

    /// So many seconds pass, or fewer if `until` holds before. Returns what changed.
    fn run(&mut self, seconds: u64, until: impl Fn(&Self) -> bool) -> Changes {
        let (mut all, end) = (Changes::default(), self.seconds + seconds);
        while self.seconds < end && !until(self) {
            self.second();
            if self.seconds.is_multiple_of(5) {
                self.measure();
            }
            if self.seconds.is_multiple_of(10) {
                let Changes { moves, splits, merges } = self.plan();
                all.moves += moves;
                all.splits += splits;
                all.merges += merges;
            }
        }
        all
    }
}

#[test]
fn a_backlog_is_divided_evenly_and_then_left_alone() {
    let mut busy = Busy::new(3, 50_000.0);
    let changes = busy.run(3_600, |busy| busy.waits() < 1.0);
    let (took, alone) = (busy.seconds as f64, 50_000.0 / SPEED);
    assert!(took < alone / 3.0 * 1.25, "{took} s, and {alone} s alone");
    assert!(changes.moves < 10 && changes.splits < 15 && changes.merges == 0, "{changes:?}");
    // When nothing waits any more, every range weighs the same.
    let after = busy.run(WAITED.as_secs() - 300, |_| false);
    assert!(after.moves < 3 && after.splits == 0 && after.merges == 0, "{after:?}");
    // It is idle: what was split is merged again, and what waits for that splits nothing.
    let merged = busy.run(3_600, |_| false);
    assert!(merged.splits == 0 && merged.moves < 5, "{merged:?}");
    assert_eq!(busy.fleet.shards.len(), 1);
}
