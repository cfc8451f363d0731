//! Values by key, as long as somebody else keeps them.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::ops::RangeBounds;
use std::sync::{Arc, Weak};

/// So many more may be added than twice those that were kept, before those are removed that nobody keeps.
const UNSWEPT: usize = 64;

/// Finds values by key, and keeps none of them alive. It has at most some more than twice as many entries as there were
/// values that somebody kept.
#[derive(Debug)]
pub struct WeakMap<K, V> {
    values: BTreeMap<K, Weak<V>>,
    /// How many there were when those were removed that nobody keeps.
    swept: usize,
}

impl<K: Ord, V> WeakMap<K, V> {
    /// Adds a value, in place of an earlier one.
    pub fn insert(&mut self, key: K, value: &Arc<V>) {
        if self.values.len() >= 2 * self.swept + UNSWEPT {
            self.values.retain(|_, value| value.strong_count() > 0);
            self.swept = self.values.len();
        }
        self.values.insert(key, Arc::downgrade(value));
    }

    /// The value of a key, if somebody keeps it.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<Arc<V>>
    where
        K: Borrow<Q>,
    {
        self.values.get(key)?.upgrade()
    }

    /// The values that somebody keeps, ordered by key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, Arc<V>)> {
        self.values.iter().filter_map(|(key, value)| Some((key, value.upgrade()?)))
    }

    /// The entries of these keys, also those whose value nobody keeps any more.
    pub fn range(&self, keys: impl RangeBounds<K>) -> Range<'_, K, Weak<V>> {
        self.values.range(keys)
    }
}

impl<K, V> Default for WeakMap<K, V> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), swept: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_there_as_long_as_somebody_keeps_them_and_then_take_no_room() {
        let mut map = WeakMap::default();
        let kept = Arc::new(0);
        map.insert(0, &kept);
        for key in 1..10_000 {
            map.insert(key, &Arc::new(key));
            assert_eq!(map.get(&key), None);
        }
        assert!(map.range(..).count() <= 2 + UNSWEPT);
        assert_eq!(map.iter().collect::<Vec<_>>(), [(&0, kept)]);
    }
}
