//! One shard's part of a cluster's queue: the items that wait, ready or delayed.
//!
//! An item has a slot in a slab from when its key begins to wait until the key is given out or the
//! shard is closed. Ready lines, and the index of delayed items of all shards, refer to slots. Once the shard is open,
//! its ready items stand in the lines of its cluster.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use model::{ClusterName, Epoch, Moment, ObjectKey};
use slab::Slab;

use super::item::{Item, Local, Reason, WakeUp, link, queue_span};
use super::lines::{KEPT, Lines, ReadyItem};
use super::priority::Priority;

/// The keys of one shard, which is held at one epoch.
#[derive(Debug)]
pub(super) struct ShardQueue<T> {
    /// Unique over time: a shard that is lost and regained gets a new one.
    pub(super) id: u64,
    pub(super) epoch: Epoch,
    /// Handed out with each key.
    pub(super) assignment: T,
    /// Since when keys are given out.
    opened: Option<Moment>,
    items: Slab<Item>,
    /// The slot of each key, by the key's hash.
    slots: HashTable<u32>,
    /// The ready items, until it is open.
    gathered: Lines,
    /// How many ready items are of the initial list.
    initial: usize,
}

impl<T> ShardQueue<T> {
    pub(super) fn new(id: u64, epoch: Epoch, assignment: T) -> Self {
        Self {
            id,
            epoch,
            assignment,
            opened: None,
            items: Slab::new(),
            slots: HashTable::new(),
            gathered: Lines::default(),
            initial: 0,
        }
    }

    /// Begins to give keys out. Returns those that become ready by that, for the lines of the cluster.
    pub(super) fn open(&mut self, now: Moment) -> Lines {
        self.opened.get_or_insert(now);
        std::mem::take(&mut self.gathered)
    }

    /// Since when keys are given out.
    pub(super) fn opened(&self) -> Option<Moment> {
        self.opened
    }

    /// Since when the item at a place may be given out; `None` if it is not ready there any more, or its shard is not
    /// open.
    pub(super) fn ready_since(&self, place: ReadyItem) -> Option<Moment> {
        Some(ready_item(&self.items, place)?.since.max(self.opened?))
    }

    /// The priorities of its ready items.
    pub(super) fn priorities(&self) -> impl Iterator<Item = Priority> {
        self.items.iter().filter_map(|(_, item)| Some(item.ready.as_ref()?.priority))
    }

    /// The entries of its items in the index of delayed items.
    pub(super) fn wake_ups(&self) -> impl Iterator<Item = WakeUp> {
        self.items.iter().filter_map(|(_, item)| item.wake_up)
    }

    /// How many items of the initial list may be given out.
    pub(super) fn initial(&self) -> usize {
        if self.opened.is_some() { self.initial } else { 0 }
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

    /// The slot of a key, and whether it begins to wait.
    pub(super) fn waits(&mut self, key: Local, hash: u64) -> (u32, bool) {
        let items = &mut self.items;
        let is = |slot: &u32| items[*slot as usize].is(&key, hash);
        match self.slots.entry(hash, is, |slot| items[*slot as usize].hash) {
            Entry::Occupied(slot) => (*slot.get(), false),
            Entry::Vacant(place) => {
                let slot = u32::try_from(items.insert(Item::new(key, hash)));
                let slot = slot.expect("fewer items wait than a u32 can number");
                place.insert(slot);
                (slot, true)
            }
        }
    }

    /// Makes an item ready, or raises its priority, in its own lines or, once it is open, in those of its cluster.
    /// Returns whether it became ready to be given out.
    pub(super) fn make_ready(
        &mut self,
        (cluster, of_cluster): (&ClusterName, &mut Lines),
        place: ReadyItem,
        reason: Reason,
        now: Moment,
    ) -> bool {
        let is_open = self.opened.is_some();
        let lines = if is_open { of_cluster } else { &mut self.gathered };
        let item = &mut self.items[place.slot as usize];
        let priority = reason.priority;
        match &mut item.ready {
            Some(ready) => {
                ready.retry |= reason.retry;
                link(&mut ready.span, &reason.span, cluster, &item.key);
                if priority >= ready.priority {
                    return false;
                }
                let before = std::mem::replace(&mut ready.priority, priority);
                self.initial -= usize::from(before == Priority::Initial);
                lines.leave(before);
            }
            None => {
                let span = queue_span(&reason.span, cluster, &item.key);
                item.ready = Some(Reason { span, ..reason });
                item.since = now;
                self.initial += usize::from(priority == Priority::Initial);
            }
        }
        item.token = place.token;
        lines.push(priority, place);
        let items = &self.items;
        self.gathered.clear_stale(|place| ready_item(items, place).is_some());
        is_open
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

    /// Takes an item out.
    pub(super) fn remove(&mut self, slot: u32) -> Item {
        let item = self.items.remove(slot as usize);
        let found = self.slots.find_entry(item.hash, |found| *found == slot);
        found.expect("an item has its slot in the table").remove();
        let is_initial = |ready: &Reason| ready.priority == Priority::Initial;
        self.initial -= usize::from(item.ready.as_ref().is_some_and(is_initial));
        self.give_back();
        item
    }

    /// Frees the memory of many items once none is left.
    fn give_back(&mut self) {
        if self.items.is_empty() && self.items.capacity() > KEPT {
            self.items = Slab::new();
            self.slots = HashTable::new();
        }
    }
}

/// The item at a place, if it is ready there.
fn ready_item(items: &Slab<Item>, place: ReadyItem) -> Option<&Item> {
    let item = items.get(place.slot as usize)?;
    (item.ready.is_some() && item.token == place.token).then_some(item)
}
