//! One cluster's part of a queue: the queues of its shards, and the keys that run.

use std::time::Duration;

use hashbrown::HashTable;
use model::{Moment, ObjectKey, ShardId};

use super::item::{Item, Popped, Reason, Running, WakeUp};
use super::priority::Priority;
use super::shard_queue::ShardQueue;
use super::status::{HeldShard, KeyStatus};

/// The keys of one cluster. Their hashes are those of namespace and name.
#[derive(Debug)]
pub(super) struct ClusterQueue<T> {
    pub(super) shards: Vec<ShardQueue<T>>,
    running: HashTable<Running>,
    /// The shards that keys ran for so far. A cluster has few, and with them here a running key
    /// need not hold a counted reference to its shard.
    ran: Vec<ShardId>,
    /// Whether the cluster waits for its turn to give out a key.
    pub(super) has_turn: bool,
    /// Keys that came before less urgent ones, one after the other.
    urgent: u32,
}

/// How long a key may wait for more urgent ones. After that it gets a part of the turns.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many urgent keys come before one that has waited for longer than that.
const URGENT_IN_A_ROW: u32 = 3;

impl<T: Clone> ClusterQueue<T> {
    pub(super) fn new() -> Self {
        Self {
            shards: Vec::new(),
            running: HashTable::new(),
            ran: Vec::new(),
            has_turn: false,
            urgent: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shards.is_empty() && self.running.is_empty()
    }

    /// The queue of a shard, by the queue's id.
    pub(super) fn shard(&mut self, id: u64) -> Option<&mut ShardQueue<T>> {
        self.shards.iter_mut().find(|shard| shard.id == id)
    }

    /// Adds the ready keys of open shards to `sum`, by priority.
    pub(super) fn depth(&self, mut sum: [usize; 4]) -> [usize; 4] {
        for shard in self.shards.iter().filter(|shard| shard.opened().is_some()) {
            for (sum, ready) in sum.iter_mut().zip(shard.ready()) {
                *sum += ready;
            }
        }
        sum
    }

    /// The keys that run.
    pub(super) fn running(&self) -> &HashTable<Running> {
        &self.running
    }

    /// How many keys of a shard run, whatever the epoch they were given out at.
    pub(super) fn running_of(&self, shard: &ShardId) -> usize {
        let of = self.ran.iter().position(|ran| ran == shard);
        of.map_or(0, |of| self.running.iter().filter(|running| running.shard == of).count())
    }

    /// The run of a key.
    pub(super) fn run(&mut self, key: &ObjectKey, hash: u64) -> Option<&mut Running> {
        self.running.find_mut(hash, |running| running.is(key, hash))
    }

    /// Where a key stands.
    pub(super) fn look(&self, key: &ObjectKey, hash: u64, now: Moment) -> KeyStatus {
        let held = |queue: &ShardQueue<T>| HeldShard {
            shard: queue.shard.clone(),
            epoch: queue.epoch,
            open: queue.opened().is_some(),
        };
        let mut status =
            KeyStatus { shards: self.shards.iter().map(held).collect(), ..KeyStatus::default() };
        for queue in &self.shards {
            let Some(item) = queue.item(key, hash) else { continue };
            let since = item.since.max(queue.opened().unwrap_or_default());
            let ready = item.ready.as_ref().map(|_| now.since(since).as_secs_f64());
            let at = |(nanos, _): WakeUp| Moment::from_origin(Duration::from_nanos(nanos));
            status.ready_seconds = ready;
            status.delayed_seconds = item.wake_up.map(|due| now.until(at(due)).as_secs_f64());
            status.failures = item.failures;
        }
        if let Some(run) = self.running.find(hash, |running| running.is(key, hash)) {
            status.running_seconds = Some(now.since(run.since).as_secs_f64());
            status.runs_again = run.again.is_some();
            status.failures = run.failures;
        }
        status
    }

    /// Takes out the run of a key, which has ended.
    pub(super) fn end(&mut self, key: &ObjectKey, hash: u64) -> Option<Running> {
        let found = self.running.find_entry(hash, |running| running.is(key, hash));
        found.ok().map(|entry| entry.remove().0)
    }

    /// Takes out the next item: the most urgent of any shard, and of those the first that came. After a few
    /// urgent ones it is a less urgent one that has lost its patience, so that a steady stream of changes starves
    /// no retry. With it comes the index of its shard's queue.
    pub(super) fn take(&mut self, now: Moment) -> Option<(usize, Item)> {
        let impatient = if self.urgent < URGENT_IN_A_ROW { None } else { self.impatient(now) };
        let (priority, index) = match impatient {
            Some(next) => {
                self.urgent = 0;
                next
            }
            None => {
                self.urgent = self.urgent.saturating_add(1);
                self.most_urgent()?
            }
        };
        Some((index, self.shards[index].take_first(priority)?))
    }

    fn most_urgent(&mut self) -> Option<(Priority, usize)> {
        let front = |(index, shard): (usize, &mut ShardQueue<T>)| Some((shard.front()?, index));
        let ((priority, _), index) = self.shards.iter_mut().enumerate().filter_map(front).min()?;
        Some((priority, index))
    }

    /// The less urgent item that has waited for longest, if that is too long.
    fn impatient(&mut self, now: Moment) -> Option<(Priority, usize)> {
        let eldest = |(index, shard): (usize, &mut ShardQueue<T>)| Some((shard.eldest()?, index));
        let ((since, _, priority), index) =
            self.shards.iter_mut().enumerate().filter_map(eldest).min()?;
        (now.since(since) >= PATIENCE).then_some((priority, index))
    }

    /// Begins the run of an item taken from the shard queue at `index`. A key that runs already,
    /// because it was added to a second shard too, runs again when its present run has ended.
    pub(super) fn begin(&mut self, index: usize, item: Item, now: Moment) -> Option<Popped<T>> {
        let Item { key, hash, ready, since, failures, .. } = item;
        let Reason { priority, retry, span } = ready?;
        let from = self.shards[index].id;
        if let Some(running) = self.run(&key, hash) {
            running.run_again(from, Reason { priority, retry, span });
            return None;
        }
        let running = Running {
            key: key.clone(),
            hash,
            from,
            shard: self.number(index),
            since: now,
            failures,
            escalates: retry || failures == 0,
            again: None,
        };
        self.running.insert_unique(hash, running, |running| running.hash);
        let shard = &self.shards[index];
        // A key that waited for its shard to open became ready then.
        let since = since.max(shard.opened().unwrap_or_default());
        let assignment = shard.assignment.clone();
        Some(Popped { key, assignment, waited: now.since(since), span })
    }

    /// The number, among those that keys ran for, of the shard at `index`.
    fn number(&mut self, index: usize) -> usize {
        let shard = &self.shards[index].shard;
        self.ran.iter().position(|ran| ran == shard).unwrap_or_else(|| {
            self.ran.push(shard.clone());
            self.ran.len() - 1
        })
    }
}
