//! One cluster's part of a queue: the queues of its shards, and the keys that run.
//!
//! A cluster may have thousands of shards, so nothing that is done for one key or one shard looks at the others.

use std::collections::BTreeMap;
use std::time::Duration;

use hashbrown::HashTable;
use model::{ClusterName, Moment, ObjectKey, Range, ShardId};
use slab::Slab;

use super::by_range::containing;
use super::concurrency::{Pace, Progress};
use super::item::{Item, Local, Origin, Popped, Reason, Running, WakeUp};
use super::lines::{Lines, ReadyItem};
use super::priority::Priority;
use super::shard_queue::ShardQueue;
use super::status::{HeldShard, KeyStatus};
use super::turns::Turn;

/// The keys of one cluster. Their hashes are those of namespace and name.
#[derive(Debug)]
pub(super) struct ClusterQueue<T> {
    name: ClusterName,
    /// The shards that have a queue, and those of which keys still run.
    shards: Slab<Shard<T>>,
    /// Where each is. They are of one group, so a range is one shard.
    by_range: BTreeMap<Range, usize>,
    /// How many have a queue.
    held: usize,
    /// How many items wait in the queues.
    waiting: usize,
    /// The ready items of open shards.
    lines: Lines,
    running: HashTable<Running>,
    /// Its turn to give out a key, if it waits for one.
    pub(super) turn: Option<Turn>,
    pub(super) pace: Pace,
    pub(super) progress: Progress,
    /// Keys that came before less urgent ones, one after the other.
    urgent: u32,
}

/// A shard that has a queue, or of which keys still run.
#[derive(Debug)]
struct Shard<T> {
    id: ShardId,
    queue: Option<ShardQueue<T>>,
    /// How many of its keys run, whatever the epoch they were given out at.
    running: usize,
}

/// How long a key may wait for more urgent ones. After that it gets a part of the turns.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many urgent keys come before one that has waited for longer than that.
const URGENT_IN_A_ROW: u32 = 3;

impl<T: Clone> ClusterQueue<T> {
    pub(super) fn new(name: ClusterName) -> Self {
        Self {
            name,
            // Most clusters have one.
            shards: Slab::with_capacity(1),
            by_range: BTreeMap::new(),
            held: 0,
            waiting: 0,
            lines: Lines::default(),
            running: HashTable::new(),
            turn: None,
            pace: Pace::Unknown,
            progress: Progress::default(),
            urgent: 0,
        }
    }

    pub(super) fn name(&self) -> &ClusterName {
        &self.name
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// Whether a shard has a queue.
    pub(super) fn holds(&self) -> bool {
        self.held > 0
    }

    /// Whether a shard gives out keys.
    pub(super) fn has_open(&self) -> bool {
        self.queues().any(|(_, queue)| queue.opened().is_some())
    }

    /// Adds the queue of a shard whose range has none.
    pub(super) fn hold(&mut self, id: &ShardId, queue: ShardQueue<T>) {
        self.held += 1;
        let (id, queue) = (id.clone(), Some(queue));
        match self.by_range.get(&id.range).copied() {
            // Keys of it still run.
            Some(index) => {
                let shard = &mut self.shards[index];
                (shard.id, shard.queue) = (id, queue);
            }
            None => {
                let range = id.range;
                let index = self.shards.insert(Shard { id, queue, running: 0 });
                self.by_range.insert(range, index);
            }
        }
    }

    /// Lets the keys of a shard be given out, once it has a queue. Returns how many became ready by that.
    pub(super) fn open(&mut self, index: usize, now: Moment) -> u64 {
        let Some(queue) = self.queue_mut(index) else { return 0 };
        let gathered = queue.open(now);
        let ready: usize = gathered.ready().iter().sum();
        self.lines.append(gathered);
        ready as u64
    }

    /// Takes the queue of a shard out. What runs goes on.
    pub(super) fn close(&mut self, index: usize) -> Option<ShardQueue<T>> {
        let queue = self.shards.get_mut(index)?.queue.take()?;
        self.held -= 1;
        self.waiting -= queue.len();
        if queue.opened().is_some() {
            queue.priorities().for_each(|priority| self.lines.leave(priority));
            self.clear_stale();
        }
        self.forget_if_over(index);
        Some(queue)
    }

    /// Where a shard is.
    pub(super) fn index(&self, id: &ShardId) -> Option<usize> {
        self.by_range.get(&id.range).copied().filter(|index| self.shards[*index].id == *id)
    }

    /// The shard with a queue that has a range.
    pub(super) fn of_range(&self, range: Range) -> Option<usize> {
        self.by_range.get(&range).copied().filter(|index| self.queue(*index).is_some())
    }

    /// The shard with a queue that an object is in. Without a hash of its uid, only a shard over the whole
    /// cluster is sure to have it.
    pub(super) fn shard_of(&self, uid_hash: Option<u64>) -> Option<usize> {
        let Some(hash) = uid_hash else { return self.of_range(Range::WHOLE) };
        containing(&self.by_range, hash).copied().find(|index| self.queue(*index).is_some())
    }

    /// The queue of a shard.
    pub(super) fn queue(&self, index: usize) -> Option<&ShardQueue<T>> {
        self.shards.get(index)?.queue.as_ref()
    }

    /// The queue of a shard, to change.
    pub(super) fn queue_mut(&mut self, index: usize) -> Option<&mut ShardQueue<T>> {
        self.shards.get_mut(index)?.queue.as_mut()
    }

    /// The shard that a key came from, unless that queue was closed.
    pub(super) fn still(&self, from: Origin) -> Option<usize> {
        self.queue(from.shard).filter(|queue| queue.id == from.id).map(|_| from.shard)
    }

    /// The slot of a key in a shard that has a queue. Begins to wait if it does not.
    pub(super) fn slot(&mut self, index: usize, key: impl Into<Local>, hash: u64) -> u32 {
        let queue = self.queue_mut(index).expect("the caller found it");
        let (slot, begins) = queue.waits(key.into(), hash);
        self.waiting += usize::from(begins);
        slot
    }

    /// Makes an item ready, or raises its priority. Returns whether it became ready to be given out.
    pub(super) fn make_ready(
        &mut self,
        index: usize,
        slot: u32,
        reason: Reason,
        token: u64,
        now: Moment,
    ) -> bool {
        let Self { name, shards, lines, .. } = self;
        let queue = shards.get_mut(index).and_then(|shard| shard.queue.as_mut());
        let Some(queue) = queue else { return false };
        let shard = u32::try_from(index).expect("a u32 can number the shards");
        let place = ReadyItem { token, shard, slot };
        let became_ready = queue.make_ready((name, lines), place, reason, now);
        self.clear_stale();
        became_ready
    }

    /// Whether a key can be given out.
    pub(super) fn has_ready(&self) -> bool {
        !self.lines.is_empty()
    }

    /// How many items wait, ready or delayed.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether a key waits, in any shard.
    pub(super) fn is_waiting(&self, key: &ObjectKey, hash: u64) -> bool {
        self.queues().any(|(_, queue)| queue.slot(key, hash).is_some())
    }

    /// The shards that have a queue.
    fn queues(&self) -> impl Iterator<Item = (&ShardId, &ShardQueue<T>)> {
        self.shards.iter().filter_map(|(_, shard)| Some((&shard.id, shard.queue.as_ref()?)))
    }

    /// The ready keys of open shards, by priority.
    pub(super) fn depth(&self) -> [usize; 4] {
        self.lines.ready()
    }

    /// How many ready keys of the initial list each open shard has, if it has any.
    pub(super) fn initial(&self) -> impl Iterator<Item = (&ShardId, usize)> {
        let any = self.lines.ready()[Priority::Initial as usize] > 0;
        let queues = any.then(|| self.queues()).into_iter().flatten();
        queues.map(|(id, queue)| (id, queue.initial())).filter(|(_, initial)| *initial > 0)
    }

    /// Since when the oldest ready key is ready.
    pub(super) fn oldest(&self) -> Option<Moment> {
        self.lines.peek(|place| ready_since(&self.shards, place)).min()
    }

    /// The keys that run.
    pub(super) fn running(&self) -> &HashTable<Running> {
        &self.running
    }

    /// How many keys of a shard run, whatever the epoch they were given out at.
    pub(super) fn running_of(&self, id: &ShardId) -> usize {
        self.index(id).map_or(0, |index| self.shards[index].running)
    }

    /// The run of a key.
    pub(super) fn run<K>(&mut self, key: &K, hash: u64) -> Option<&mut Running>
    where
        Local: PartialEq<K>,
    {
        self.running.find_mut(hash, |running| running.is(key, hash))
    }

    /// Where a key stands.
    pub(super) fn look(&self, key: &ObjectKey, hash: u64, now: Moment) -> KeyStatus {
        let held = |(id, queue): (&ShardId, &ShardQueue<T>)| HeldShard {
            shard: id.clone(),
            epoch: queue.epoch,
            open: queue.opened().is_some(),
        };
        let mut status =
            KeyStatus { shards: self.queues().map(held).collect(), ..KeyStatus::default() };
        for (_, queue) in self.queues() {
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
        let (running, _) = found.ok()?.remove();
        let shard = running.from.shard;
        self.shards[shard].running -= 1;
        self.forget_if_over(shard);
        Some(running)
    }

    /// Takes out the next item: the most urgent of any shard, and of those the first that came. After a few
    /// urgent ones it is a less urgent one that has lost its patience, so that a steady stream of changes starves
    /// no retry. With it comes the index of its shard.
    pub(super) fn take(&mut self, now: Moment) -> Option<(usize, Item)> {
        let impatient = if self.urgent < URGENT_IN_A_ROW { None } else { self.impatient(now) };
        self.urgent = if impatient.is_some() { 0 } else { self.urgent.saturating_add(1) };
        let mut all = Priority::ALL.into_iter();
        let (priority, place) = match impatient {
            Some(found) => found,
            None => all.find_map(|priority| Some((priority, self.first(priority)?.1)))?,
        };
        self.lines.pop(priority);
        let index = place.shard as usize;
        let item = self.queue_mut(index)?.remove(place.slot);
        self.waiting -= 1;
        Some((index, item))
    }

    /// The less urgent item that has waited for longest, if that is too long, and its priority.
    fn impatient(&mut self, now: Moment) -> Option<(Priority, ReadyItem)> {
        let [_, lower @ ..] = Priority::ALL;
        let first = |priority| {
            let (since, place) = self.first(priority)?;
            Some((since, priority, place))
        };
        let firsts = lower.into_iter().filter_map(first);
        let (since, priority, place) =
            firsts.min_by_key(|(since, _, place)| (*since, place.token))?;
        (now.since(since) >= PATIENCE).then_some((priority, place))
    }

    /// Since when the first item of a line is ready, and its place.
    fn first(&mut self, priority: Priority) -> Option<(Moment, ReadyItem)> {
        let (shards, lines) = (&self.shards, &mut self.lines);
        let place = lines.front(priority, |place| ready_since(shards, place).is_some())?;
        Some((ready_since(shards, place)?, place))
    }

    /// Begins the run of an item taken from the shard at `index`. A key that runs already,
    /// because it was added to a second shard too, runs again when its present run has ended.
    pub(super) fn begin(&mut self, index: usize, item: Item, now: Moment) -> Option<Popped<T>> {
        let Item { key, hash, ready, since, failures, .. } = item;
        let Reason { priority, retry, span } = ready?;
        let queue = self.queue(index)?;
        let from = Origin { shard: index, id: queue.id };
        // A key that waited for its shard to open became ready then.
        let since = since.max(queue.opened().unwrap_or_default());
        let assignment = queue.assignment.clone();
        if let Some(running) = self.run(&key, hash) {
            running.run_again(from, Reason { priority, retry, span });
            return None;
        }
        let whole = key.clone().of(&self.name);
        let running = Running {
            key,
            hash,
            from,
            since: now,
            failures,
            escalates: retry || failures == 0,
            again: None,
        };
        self.running.insert_unique(hash, running, |running| running.hash);
        self.shards[index].running += 1;
        Some(Popped { key: whole, assignment, waited: now.since(since), span })
    }

    /// Clears the stale entries of the lines away once they are many.
    fn clear_stale(&mut self) {
        let (shards, lines) = (&self.shards, &mut self.lines);
        lines.clear_stale(|place| ready_since(shards, place).is_some());
    }

    /// Forgets a shard that has no queue and of which no key runs.
    fn forget_if_over(&mut self, index: usize) {
        let Shard { id, queue, running } = &self.shards[index];
        if queue.is_none() && *running == 0 {
            self.by_range.remove(&id.range);
            self.shards.remove(index);
        }
    }
}

/// Since when the item at a place may be given out, if it is ready there and its shard is open.
fn ready_since<T>(shards: &Slab<Shard<T>>, place: ReadyItem) -> Option<Moment> {
    shards.get(place.shard as usize)?.queue.as_ref()?.ready_since(place)
}

#[cfg(test)]
mod tests {
    use model::Epoch;
    use tracing::Span;

    use super::*;
    use crate::lines::KEPT;

    #[test]
    fn a_line_keeps_little_more_than_what_waits_in_it() {
        let mut cluster = ClusterQueue::new("east".parse().unwrap());
        let shard: ShardId = "east/g/0/1".parse().unwrap();
        cluster.hold(&shard, ShardQueue::new(1, Epoch(1), ()));
        let index = cluster.index(&shard).unwrap();
        cluster.open(index, Moment::default());
        let key = |name: &str| ObjectKey::new("east".parse().unwrap(), None, name);
        let mut tokens = 0..;
        let mut ready = |cluster: &mut ClusterQueue<()>, slot, priority| {
            let reason = Reason { priority, retry: false, span: Span::none() };
            let token = tokens.next().unwrap();
            cluster.make_ready(index, slot, reason, token, Moment::default());
        };
        let first = cluster.slot(index, &key("first"), 1);
        ready(&mut cluster, first, Priority::Initial);
        for _ in 0..20 * KEPT {
            // Each time it rises past the first one, it leaves entries behind it.
            let rising = cluster.slot(index, &key("rises"), 2);
            for priority in [Priority::Initial, Priority::Resync, Priority::Retry, Priority::Change]
            {
                ready(&mut cluster, rising, priority);
            }
            let (_, item) = cluster.take(Moment::default()).unwrap();
            assert_eq!(item.key.of(cluster.name()).name.as_ref(), "rises");
        }
        let entries = cluster.lines.entries();
        assert!(entries.iter().all(|entries| *entries <= 2 + KEPT), "{entries:?}");
        let (_, item) = cluster.take(Moment::default()).unwrap();
        assert_eq!((item.key.of(cluster.name()).name.as_ref(), cluster.waiting()), ("first", 0));
    }

    /// Even while another one goes on.
    #[test]
    fn a_closed_shard_leaves_few_entries_behind() {
        let mut cluster = ClusterQueue::new("east".parse().unwrap());
        let [stays, goes]: [ShardId; 2] =
            ["east/g/0/2", "east/g/1/2"].map(|shard| shard.parse().unwrap());
        let mut token = 0;
        let mut ready = |cluster: &mut ClusterQueue<()>, shard: &ShardId, name: usize| {
            let index = cluster.index(shard).unwrap();
            let key = ObjectKey::new(shard.cluster.clone(), None, &name.to_string());
            let slot = cluster.slot(index, &key, name as u64);
            let reason = Reason { priority: Priority::Change, retry: false, span: Span::none() };
            token += 1;
            cluster.make_ready(index, slot, reason, token, Moment::default());
        };
        let hold = |cluster: &mut ClusterQueue<()>, shard: &ShardId| {
            cluster.hold(shard, ShardQueue::new(1, Epoch(1), ()));
            let index = cluster.index(shard).unwrap();
            cluster.open(index, Moment::default());
        };
        hold(&mut cluster, &stays);
        ready(&mut cluster, &stays, 0);
        for _ in 0..9 {
            hold(&mut cluster, &goes);
            (1..=KEPT).for_each(|name| ready(&mut cluster, &goes, name));
            let index = cluster.index(&goes).unwrap();
            assert_eq!(cluster.close(index).unwrap().len(), KEPT);
            assert_eq!((cluster.depth(), cluster.waiting()), ([1, 0, 0, 0], 1));
            assert_eq!((cluster.shards.len(), cluster.by_range.len()), (1, 1));
            let entries = cluster.lines.entries();
            assert!(entries[0] <= 2 + KEPT, "{entries:?}");
        }
        let (_, item) = cluster.take(Moment::default()).unwrap();
        assert_eq!(item.key.of(cluster.name()).name.as_ref(), "0");
        assert!(cluster.take(Moment::default()).is_none() && !cluster.has_ready());
    }
}
