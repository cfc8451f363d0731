//! One shard's part of a cluster's queue: the items that wait, ready or delayed.
//!
//! An item has a slot in a slab from when its key begins to wait until the key is given out or the
//! shard is closed. Ready lines, and the index of delayed items of all shards, refer to slots.

use std::collections::VecDeque;

use hashbrown::HashTable;
use model::{Epoch, Moment, ObjectKey, Range, ShardId};
use slab::Slab;

use super::item::{Item, Reason, WakeUp, link, queue_span};
use super::priority::Priority;

/// An empty queue keeps the memory of at most this many items, and a line at most this many stale entries
/// beyond one for each ready item.
const KEPT: usize = 4096;

/// The keys of one shard, which is held at one epoch.
#[derive(Debug)]
pub(super) struct ShardQueue<T> {
    /// Unique over time: a shard that is lost and regained gets a new one.
    pub(super) id: u64,
    pub(super) shard: ShardId,
    pub(super) epoch: Epoch,
    /// Handed out with each key.
    pub(super) assignment: T,
    /// Since when keys are given out.
    opened: Option<Moment>,
    items: Slab<Item>,
    /// The slot of each key, by the key's hash.
    slots: HashTable<u32>,
    /// Tokens and slots of ready items, by priority. An item whose priority rose leaves a stale
    /// entry behind: its token differs.
    lines: [VecDeque<(u64, u32)>; 4],
    ready: [usize; 4],
}

impl<T> ShardQueue<T> {
    pub(super) fn new(id: u64, shard: ShardId, epoch: Epoch, assignment: T) -> Self {
        Self {
            id,
            shard,
            epoch,
            assignment,
            opened: None,
            items: Slab::new(),
            slots: HashTable::new(),
            lines: Default::default(),
            ready: [0; 4],
        }
    }

    /// Begins to give keys out. Returns how many became ready by that.
    pub(super) fn open(&mut self, now: Moment) -> u64 {
        if self.opened.is_some() {
            return 0;
        }
        self.opened = Some(now);
        self.ready.iter().sum::<usize>() as u64
    }

    /// Since when keys are given out.
    pub(super) fn opened(&self) -> Option<Moment> {
        self.opened
    }

    /// Whether an object is in the shard. Without a hash of its uid, only a shard over the whole
    /// cluster is sure to have it.
    pub(super) fn includes(&self, uid_hash: Option<u64>) -> bool {
        match uid_hash {
            Some(hash) => self.shard.range.contains(hash),
            None => self.shard.range == Range::WHOLE,
        }
    }

    /// Ready items by priority, those that wait for the shard to open included.
    pub(super) fn ready(&self) -> [usize; 4] {
        self.ready
    }

    /// Whether a key can be given out.
    pub(super) fn has_ready(&self) -> bool {
        self.opened.is_some() && self.ready.iter().any(|ready| *ready > 0)
    }

    /// Since when the oldest ready item is ready.
    pub(super) fn oldest(&self) -> Option<Moment> {
        let opened = self.opened?;
        let first = |line: &VecDeque<(u64, u32)>| {
            line.iter().find_map(|(token, slot)| self.ready_item(*slot, *token)).map(|i| i.since)
        };
        self.lines.iter().filter_map(first).min().map(|since| since.max(opened))
    }

    /// The entries of its items in the index of delayed items.
    pub(super) fn wake_ups(&self) -> impl Iterator<Item = WakeUp> {
        self.items.iter().filter_map(|(_, item)| item.wake_up)
    }

    /// How many items wait, ready or delayed.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// The slot of a key that waits.
    pub(super) fn slot(&self, key: &ObjectKey, hash: u64) -> Option<u32> {
        self.slots.find(hash, |slot| self.items[*slot as usize].is(key, hash)).copied()
    }

    /// The item of a key that waits.
    pub(super) fn item(&self, key: &ObjectKey, hash: u64) -> Option<&Item> {
        self.slot(key, hash).and_then(|slot| self.items.get(slot as usize))
    }

    /// The slot of a key that begins to wait.
    pub(super) fn insert(&mut self, key: ObjectKey, hash: u64) -> u32 {
        let slot = u32::try_from(self.items.insert(Item::new(key, hash)));
        let slot = slot.expect("fewer items wait than a u32 can number");
        self.slots.insert_unique(hash, slot, |slot| self.items[*slot as usize].hash);
        slot
    }

    /// Makes an item ready, or raises its priority. Returns whether it became ready to be given
    /// out.
    pub(super) fn make_ready(
        &mut self,
        slot: u32,
        reason: Reason,
        token: u64,
        now: Moment,
    ) -> bool {
        let item = &mut self.items[slot as usize];
        let priority = reason.priority;
        match &mut item.ready {
            Some(ready) => {
                ready.retry |= reason.retry;
                link(&mut ready.span, &reason.span, &item.key);
                if priority >= ready.priority {
                    return false;
                }
                let left = std::mem::replace(&mut ready.priority, priority);
                self.ready[left as usize] -= 1;
                item.token = token;
                self.clear_stale(left);
            }
            None => {
                let span = queue_span(&reason.span, &item.key);
                item.ready = Some(Reason { span, ..reason });
                item.since = now;
                item.token = token;
            }
        }
        self.ready[priority as usize] += 1;
        self.lines[priority as usize].push_back((token, slot));
        self.opened.is_some()
    }

    /// Delays an item until `wake_up`. Returns the wake-up that this replaces.
    pub(super) fn delay(
        &mut self,
        slot: u32,
        wake_up: WakeUp,
        wakes_as: Priority,
        failures: u32,
    ) -> Option<WakeUp> {
        let item = &mut self.items[slot as usize];
        item.failures = failures;
        item.wakes_as = wakes_as;
        item.wake_up.replace(wake_up)
    }

    /// Ends the delay of an item. Returns the priority it was to become ready at; `None` if the
    /// slot has no item that is delayed.
    pub(super) fn wake(&mut self, slot: u32) -> Option<Priority> {
        let item = self.items.get_mut(slot as usize)?;
        item.wake_up.take().map(|_| item.wakes_as)
    }

    /// Priority and token of the next ready item.
    pub(super) fn front(&mut self) -> Option<(Priority, u64)> {
        let first = |priority| Some((priority, self.first(priority)?.1));
        Priority::ALL.into_iter().find_map(first)
    }

    /// Of the items that are less urgent than changes, the one that has been ready for longest: since when,
    /// its token and its priority.
    pub(super) fn eldest(&mut self) -> Option<(Moment, u64, Priority)> {
        let [_, lower @ ..] = Priority::ALL;
        let first = |priority| self.first(priority).map(|(since, token)| (since, token, priority));
        lower.into_iter().filter_map(first).min()
    }

    /// Since when the first item of a line is ready, and its token. Clears stale entries away.
    fn first(&mut self, priority: Priority) -> Option<(Moment, u64)> {
        let opened = self.opened?;
        while let Some((token, slot)) = self.lines[priority as usize].front().copied() {
            if let Some(item) = self.ready_item(slot, token) {
                return Some((item.since.max(opened), token));
            }
            self.lines[priority as usize].pop_front();
        }
        None
    }

    /// Takes out the first item of a line.
    pub(super) fn take_first(&mut self, priority: Priority) -> Option<Item> {
        self.first(priority)?;
        let (_, slot) = self.lines[priority as usize].pop_front()?;
        self.ready[priority as usize] -= 1;
        let item = self.items.remove(slot as usize);
        let found = self.slots.find_entry(item.hash, |found| *found == slot);
        found.expect("an item has its slot in the table").remove();
        self.give_back();
        Some(item)
    }

    /// Clears the stale entries of a line away once they are many, wherever they are: what stands before them
    /// may wait for long.
    fn clear_stale(&mut self, priority: Priority) {
        let Self { items, lines, ready, .. } = self;
        let (line, ready) = (&mut lines[priority as usize], ready[priority as usize]);
        if line.len() > 2 * ready + KEPT {
            line.retain(|(token, slot)| ready_item(items, *slot, *token).is_some());
        }
    }

    /// Frees the memory of many items once none is left.
    fn give_back(&mut self) {
        if self.items.is_empty() && self.items.capacity() > KEPT {
            self.items = Slab::new();
            self.slots = HashTable::new();
            // Only stale entries are left in them.
            self.lines = Default::default();
        }
    }

    /// The item in a slot, if it is ready with this token.
    fn ready_item(&self, slot: u32, token: u64) -> Option<&Item> {
        ready_item(&self.items, slot, token)
    }
}

/// The item in a slot, if it is ready with this token.
fn ready_item(items: &Slab<Item>, slot: u32, token: u64) -> Option<&Item> {
    let item = items.get(slot as usize)?;
    (item.ready.is_some() && item.token == token).then_some(item)
}

#[cfg(test)]
mod tests {
    use tracing::Span;

    use super::*;

    #[test]
    fn a_line_keeps_little_more_than_what_waits_in_it() {
        let mut queue = ShardQueue::new(1, "east/g/0/1".parse().unwrap(), Epoch(1), ());
        queue.open(Moment::default());
        let key = |name: &str| ObjectKey::new("east".parse().unwrap(), None, name);
        let mut tokens = 0..;
        let mut ready = |queue: &mut ShardQueue<()>, slot, priority| {
            let reason = Reason { priority, retry: false, span: Span::none() };
            queue.make_ready(slot, reason, tokens.next().unwrap(), Moment::default());
        };
        let first = queue.insert(key("first"), 1);
        ready(&mut queue, first, Priority::Initial);
        for _ in 0..20 * KEPT {
            // Each time it rises past the first one, it leaves entries behind it.
            let rising = queue.insert(key("rises"), 2);
            for priority in [Priority::Initial, Priority::Resync, Priority::Retry, Priority::Change]
            {
                ready(&mut queue, rising, priority);
            }
            assert_eq!(&*queue.take_first(Priority::Change).unwrap().key.name, "rises");
        }
        let entries: Vec<_> = queue.lines.iter().map(VecDeque::len).collect();
        assert!(entries.iter().all(|entries| *entries <= 2 + KEPT), "{entries:?}");
        assert_eq!(&*queue.take_first(Priority::Initial).unwrap().key.name, "first");
    }
}
