//! A cache of decoded values, shared by all stores of a process and capped in bytes.
//!
//! It has two generations. What is decoded or found goes into the young one; when that has half the
//! cap, it becomes the old one, and what was old is gone. So what is used stays, and each step is one
//! look-up. Lists do not come here: one of them would push out everything else.
//!
//! # Invariants
//! - At most the cap is held, by an estimate: [`WEIGHT`] bytes a byte of JSON, which is what
//!   `k8s-openapi`'s Pod takes; most types take less.
//! - A value is found only for the entry it was decoded from. The address of an entry names it: a
//!   slot holds a weak pointer, so no other entry can get that address.
//! - The lock is held for look-ups, never while something is decoded or dropped.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use super::entry::{DecodeError, Entry};
use crate::object::Object;

/// What a cache of decoded values may hold, unless told otherwise, in bytes: enough for what is read
/// again soon, as an object is that was just written, or by all of its namespace. A larger one would
/// come to more than the packed objects of a large fleet.
pub const DECODED_BYTES: usize = 4 << 20;
/// Bytes a decoded value is taken to have for each byte of JSON.
const WEIGHT: usize = 4;
/// What a slot takes beside the value, the allocation of an entry that is gone included.
const SLOT: usize = 256;
/// No value gets more than this part of the cap.
const LARGEST: usize = 8;

/// See the file's text.
#[derive(Debug)]
pub struct DecodedCache {
    cap: usize,
    generations: Mutex<Generations>,
}

type Slots = HashMap<(usize, TypeId), Slot>;

#[derive(Debug, Default)]
struct Generations {
    young: Slots,
    old: Slots,
    young_bytes: usize,
    old_bytes: usize,
}

#[derive(Debug)]
struct Slot {
    entry: Weak<Entry>,
    value: Arc<dyn Any + Send + Sync>,
    bytes: usize,
}

impl DecodedCache {
    /// A cache that holds at most `cap` bytes, by its estimate. Zero holds nothing.
    pub fn new(cap: usize) -> Self {
        Self { cap, generations: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.generations.lock().expect("no holder of this lock panics")
    }

    /// The entry's object, decoded now or before.
    ///
    /// # Errors
    /// When it does not fit `K`.
    pub fn get<K: Object>(&self, entry: &Arc<Entry>) -> Result<Arc<K>, DecodeError> {
        let key = (Arc::as_ptr(entry).addr(), TypeId::of::<K>());
        if let Some(value) = self.find(key).and_then(|value| value.downcast::<K>().ok()) {
            return Ok(value);
        }
        let value: Arc<K> = Arc::new(entry.decode()?);
        let bytes = SLOT + WEIGHT * entry.json_len();
        if bytes <= self.cap / LARGEST {
            let slot = Slot { entry: Arc::downgrade(entry), value: Arc::clone(&value) as _, bytes };
            self.insert(key, slot);
        }
        Ok(value)
    }

    fn find(&self, key: (usize, TypeId)) -> Option<Arc<dyn Any + Send + Sync>> {
        let mut generations = self.lock();
        if let Some(slot) = generations.young.get(&key) {
            return Some(Arc::clone(&slot.value));
        }
        let slot = generations.old.remove(&key)?;
        generations.old_bytes -= slot.bytes;
        let value = Arc::clone(&slot.value);
        let gone = generations.insert(key, slot, self.cap);
        drop(generations);
        drop(gone);
        Some(value)
    }

    fn insert(&self, key: (usize, TypeId), slot: Slot) {
        let gone = self.lock().insert(key, slot, self.cap);
        drop(gone);
    }

    /// Bytes held, by the estimate.
    pub fn bytes(&self) -> usize {
        let generations = self.lock();
        generations.young_bytes + generations.old_bytes
    }
}

impl Generations {
    /// Puts a slot into the young generation. Gives what goes, to be dropped without the lock.
    fn insert(&mut self, key: (usize, TypeId), slot: Slot, cap: usize) -> (Slots, Option<Slot>) {
        let mut gone = Slots::new();
        if self.young_bytes + slot.bytes > cap / 2 {
            // What no store holds any more need not grow old.
            let mut aged = std::mem::take(&mut self.young);
            let dead = aged.extract_if(|_, slot| slot.entry.strong_count() == 0).collect();
            self.old_bytes = aged.values().map(|slot| slot.bytes).sum();
            gone = std::mem::replace(&mut self.old, aged);
            gone.extend::<Slots>(dead);
            self.young_bytes = 0;
        }
        self.young_bytes += slot.bytes;
        let replaced = self.young.insert(key, slot);
        self.young_bytes -= replaced.as_ref().map_or(0, |slot| slot.bytes);
        (gone, replaced)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::super::StoreWriter;
    use super::*;

    fn entry(name: &str, data: usize) -> Arc<Entry> {
        let text = "x".repeat(data);
        let raw = format!(
            r#"{{"metadata":{{"name":"{name}","uid":"u","resourceVersion":"1"}},"data":{{"a":"{text}"}}}}"#
        );
        StoreWriter::default().parse(&raw).unwrap()
    }

    #[test]
    fn a_value_is_decoded_once_and_for_its_entry_only() {
        let cache = DecodedCache::new(1 << 20);
        let (a, b) = (entry("a", 10), entry("b", 10));
        let first: Arc<ConfigMap> = cache.get(&a).unwrap();
        assert!(Arc::ptr_eq(&first, &cache.get(&a).unwrap()));
        assert_eq!(cache.get::<ConfigMap>(&b).unwrap().metadata.name.as_deref(), Some("b"));
    }

    #[test]
    fn what_is_used_stays_and_the_cap_holds() {
        let cap = 1 << 20;
        let cache = DecodedCache::new(cap);
        let used = entry("used", 10);
        let first: Arc<ConfigMap> = cache.get(&used).unwrap();
        let others: Vec<_> = (0..100).map(|n| entry(&format!("other-{n}"), 10_000)).collect();
        for other in &others {
            cache.get::<ConfigMap>(other).unwrap();
            assert!(cache.bytes() <= cap);
            assert!(Arc::ptr_eq(&first, &cache.get(&used).unwrap()), "in use all the time");
        }
        assert!(cache.bytes() > cap / 4);
    }

    #[test]
    fn large_values_and_a_cap_of_zero_are_not_kept() {
        let (large, small) = (entry("large", 100_000), entry("small", 1));
        let cache = DecodedCache::new(1 << 20);
        cache.get::<ConfigMap>(&large).unwrap();
        let none = DecodedCache::new(0);
        none.get::<ConfigMap>(&small).unwrap();
        assert_eq!((cache.bytes(), none.bytes()), (0, 0));
    }

    #[test]
    fn what_no_store_holds_does_not_grow_old() {
        let cache = DecodedCache::new(1 << 20);
        for round in 0..1000 {
            cache.get::<ConfigMap>(&entry(&format!("n-{round}"), 1000)).unwrap();
        }
        assert!(cache.lock().old.is_empty());
        assert!(cache.bytes() <= 1 << 19);
    }
}
