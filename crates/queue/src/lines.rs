//! Lines of ready items, one for each priority: those of a shard until it is open, and those of all open shards of a
//! cluster. So neither a key that is added nor one that is given out costs more where there are many shards.
//!
//! An item whose priority rose leaves a stale entry behind, and so does each item of a shard that was closed. Whoever
//! has the items says which entries are stale; they are cleared away at the front, and once they are many.

use std::collections::VecDeque;

use super::priority::Priority;

/// A line keeps the memory of at most this many items when it is empty, and at most this many stale entries beyond
/// one for each ready item.
pub(super) const KEPT: usize = 4096;

/// A ready item's place in a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadyItem {
    /// Unique over time: an item that is ready for another reason has another.
    pub(super) token: u64,
    /// The index of the shard in its cluster.
    pub(super) shard: u32,
    /// The slot of the item in its shard.
    pub(super) slot: u32,
}

/// The lines, and how many items in each are ready.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: [VecDeque<ReadyItem>; 4],
    ready: [usize; 4],
}

impl Lines {
    /// Ready items by priority.
    pub(super) fn ready(&self) -> [usize; 4] {
        self.ready
    }

    /// Whether no item is ready.
    pub(super) fn is_empty(&self) -> bool {
        self.ready == [0; 4]
    }

    /// Adds an item at the end of a line.
    pub(super) fn push(&mut self, priority: Priority, place: ReadyItem) {
        self.ready[priority as usize] += 1;
        self.lines[priority as usize].push_back(place);
    }

    /// Adds the items of other lines at the ends.
    pub(super) fn append(&mut self, others: Self) {
        for (line, mut other) in self.lines.iter_mut().zip(others.lines) {
            if line.is_empty() {
                *line = other;
            } else {
                line.append(&mut other);
            }
        }
        for (ready, other) in self.ready.iter_mut().zip(others.ready) {
            *ready += other;
        }
    }

    /// An item of a line is not ready any more, or at another priority. Its entry is stale.
    pub(super) fn leave(&mut self, priority: Priority) {
        self.ready[priority as usize] -= 1;
    }

    /// The first ready item of a line. Clears the stale entries before it away.
    pub(super) fn front(
        &mut self,
        priority: Priority,
        is_ready: impl Fn(ReadyItem) -> bool,
    ) -> Option<ReadyItem> {
        let line = &mut self.lines[priority as usize];
        while let Some(place) = line.front().copied() {
            if is_ready(place) {
                return Some(place);
            }
            line.pop_front();
        }
        None
    }

    /// Takes the first item out of a line: what [`Self::front`] returned.
    pub(super) fn pop(&mut self, priority: Priority) {
        if self.lines[priority as usize].pop_front().is_some() {
            self.ready[priority as usize] -= 1;
        }
        self.give_back();
    }

    /// The first that `look` finds in each line, without a change.
    pub(super) fn peek<R>(&self, look: impl Fn(ReadyItem) -> Option<R>) -> impl Iterator<Item = R> {
        self.lines.iter().filter_map(move |line| line.iter().copied().find_map(&look))
    }

    /// Clears the stale entries of a line away once they are many, wherever they are: what stands before them
    /// may wait for long.
    pub(super) fn clear_stale(&mut self, is_ready: impl Fn(ReadyItem) -> bool) {
        for (line, ready) in self.lines.iter_mut().zip(self.ready) {
            if line.len() > 2 * ready + KEPT {
                line.retain(|place| is_ready(*place));
            }
        }
        self.give_back();
    }

    /// Frees the memory of many items once none is ready. Only stale entries are left in the lines.
    fn give_back(&mut self) {
        if self.is_empty() && self.lines.iter().any(|line| line.capacity() > KEPT) {
            self.lines = Default::default();
        }
    }

    /// How many entries each line has, stale ones included.
    #[cfg(test)]
    pub(super) fn entries(&self) -> [usize; 4] {
        self.lines.each_ref().map(VecDeque::len)
    }
}
