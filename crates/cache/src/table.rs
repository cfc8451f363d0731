//! A sorted table of pointers that is cheap to copy and cheap to change.
//!
//! The items lie in chunks of at most [`CHUNK`], each shared by the copies of the table. A change
//! copies one chunk if another table looks at it too, and none otherwise. So a reader takes a copy,
//! which is the list of chunks, and goes through it at leisure.
//!
//! # Invariants
//! - No chunk is empty, and their items ascend from the first chunk to the last.
//! - A chunk has room for at most [`SLACK`] items more than it holds, after a removal twice that.

use std::cmp::Ordering;
use std::sync::Arc;

use super::intern::ARC_COUNTS;

/// The most items in a chunk.
pub(super) const CHUNK: usize = 128;
/// Room that a chunk grows by.
const SLACK: usize = 8;

/// A sorted table of pointers.
#[derive(Clone, Debug)]
pub(super) struct Table<T> {
    chunks: Vec<Arc<Vec<T>>>,
    len: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }
}

impl<T: Clone> Table<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// The items from the first on that is not `before` what is sought.
    pub(super) fn from(&self, before: impl Fn(&T) -> bool) -> impl Iterator<Item = &T> {
        let all_before = |chunk: &Arc<Vec<T>>| chunk.last().is_some_and(&before);
        let first = self.chunks.partition_point(all_before);
        let skip = self.chunks.get(first).map_or(0, |chunk| chunk.partition_point(&before));
        self.chunks[first..].iter().flat_map(|chunk| chunk.iter()).skip(skip)
    }

    /// The item that `order` compares as equal.
    pub(super) fn get(&self, order: impl Fn(&T) -> Ordering) -> Option<&T> {
        let (chunk, found) = self.locate(&order);
        found.ok().map(|at| &self.chunks[chunk][at])
    }

    /// Puts an item in its place; returns the equal one it replaced.
    pub(super) fn insert(&mut self, item: T, order: impl Fn(&T) -> Ordering) -> Option<T> {
        let (chunk, found) = self.locate(&order);
        match found {
            Ok(at) => Some(std::mem::replace(&mut self.own(chunk, 0)[at], item)),
            Err(at) => {
                self.put(chunk, at, item);
                self.len += 1;
                None
            }
        }
    }

    /// Takes out the item that `order` compares as equal.
    pub(super) fn remove(&mut self, order: impl Fn(&T) -> Ordering) -> Option<T> {
        let (chunk, found) = self.locate(&order);
        let at = found.ok()?;
        let items = self.own(chunk, 0);
        let item = items.remove(at);
        if items.capacity() > items.len() + 2 * SLACK {
            items.shrink_to(items.len() + SLACK);
        }
        self.len -= 1;
        self.merge(chunk);
        Some(item)
    }

    /// Bytes of chunks and of the list of them.
    pub(super) fn heap_bytes(&self) -> usize {
        let chunk = |chunk: &Arc<Vec<T>>| {
            ARC_COUNTS + size_of::<Vec<T>>() + chunk.capacity() * size_of::<T>()
        };
        self.chunks.capacity() * size_of::<Arc<Vec<T>>>()
            + self.chunks.iter().map(chunk).sum::<usize>()
    }

    /// The chunk where an item is or belongs, and its place in it.
    fn locate(&self, order: &impl Fn(&T) -> Ordering) -> (usize, Result<usize, usize>) {
        let begins_at_or_before =
            |chunk: &Arc<Vec<T>>| chunk.first().is_some_and(|first| order(first).is_le());
        let chunk = self.chunks.partition_point(begins_at_or_before).saturating_sub(1);
        (chunk, self.chunks.get(chunk).map_or(Err(0), |items| items.binary_search_by(order)))
    }

    fn put(&mut self, mut chunk: usize, mut at: usize, item: T) {
        let full = self.chunks.get(chunk).is_none_or(|items| items.len() == CHUNK);
        if full
            && chunk + 1 >= self.chunks.len()
            && at == self.chunks.get(chunk).map_or(0, |c| c.len())
        {
            // Lists come in order: what is appended leaves full chunks behind.
            self.chunks.push(Arc::new(Vec::with_capacity(SLACK)));
            chunk = self.chunks.len() - 1;
            at = 0;
        } else if full {
            let items = self.own(chunk, 0);
            let tail = items.split_off(CHUNK / 2);
            items.shrink_to(CHUNK / 2 + SLACK);
            self.chunks.insert(chunk + 1, Arc::new(tail));
            if at > CHUNK / 2 {
                (chunk, at) = (chunk + 1, at - CHUNK / 2);
            }
        }
        let items = self.own(chunk, 1);
        if items.len() == items.capacity() {
            items.reserve_exact(SLACK);
        }
        items.insert(at, item);
    }

    /// Drops a chunk that became empty; joins one that became small with the next.
    fn merge(&mut self, chunk: usize) {
        let len = self.chunks[chunk].len();
        if len == 0 {
            self.chunks.remove(chunk);
        } else if len < CHUNK / 4
            && let Some(next) = self.chunks.get(chunk + 1)
            && len + next.len() <= CHUNK / 2
        {
            let next = self.chunks.remove(chunk + 1);
            let items = self.own(chunk, next.len());
            items.reserve_exact(next.len());
            items.extend_from_slice(&next);
        }
        if self.chunks.capacity() > 2 * self.chunks.len() + SLACK {
            self.chunks.shrink_to(self.chunks.len() + SLACK);
        }
    }

    /// A chunk that no other table looks at, with room for `more` items if it had to be copied.
    fn own(&mut self, chunk: usize, more: usize) -> &mut Vec<T> {
        let shared = &mut self.chunks[chunk];
        if Arc::get_mut(shared).is_none() {
            let mut copy = Vec::with_capacity(shared.len() + more);
            copy.extend_from_slice(shared);
            *shared = Arc::new(copy);
        }
        Arc::get_mut(shared).expect("it is a copy of our own if it was shared")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn check(table: &Table<u16>, model: &BTreeSet<u16>) {
        assert!(table.iter().eq(model.iter()));
        assert_eq!(table.len(), model.len());
        assert!(table.chunks.iter().all(|chunk| !chunk.is_empty() && chunk.len() <= CHUNK));
        let slack = |chunk: &Arc<Vec<u16>>| chunk.capacity() - chunk.len();
        assert!(table.chunks.iter().all(|chunk| slack(chunk) <= 2 * SLACK));
    }

    #[test]
    fn ascending_items_fill_their_chunks() {
        let mut table = Table::default();
        for item in 0..10 * CHUNK {
            assert!(table.insert(item, |other| other.cmp(&item)).is_none());
        }
        assert_eq!(table.chunks.len(), 10);
    }

    proptest! {
        #[test]
        fn a_table_is_an_ordered_set(steps in prop::collection::vec((0..4_u8, 0..700_u16), 0..3000)) {
            let (mut table, mut model) = (Table::default(), BTreeSet::new());
            let mut copies: Vec<(Table<u16>, BTreeSet<u16>)> = Vec::new();
            for (action, item) in steps {
                match action {
                    0 | 1 => {
                        let old = table.insert(item, |other| other.cmp(&item));
                        prop_assert_eq!(old.is_none(), model.insert(item));
                    }
                    2 => {
                        let old = table.remove(|other| other.cmp(&item));
                        prop_assert_eq!(old.is_some(), model.remove(&item));
                    }
                    _ => {
                        prop_assert!(table.from(|other| *other < item).eq(model.range(item..)));
                        prop_assert_eq!(table.get(|other| other.cmp(&item)), model.get(&item));
                        if copies.len() < 3 {
                            copies.push((table.clone(), model.clone()));
                        }
                    }
                }
            }
            check(&table, &model);
            for (copy, model) in &copies {
                prop_assert!(copy.iter().eq(model.iter()), "a copy does not change");
            }
        }
    }
}
