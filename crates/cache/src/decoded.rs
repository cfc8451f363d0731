//! A cache of decoded values, shared by all stores of a process, capped in bytes and emptied of what is
//! not used.
//!
//! ```text
//!   decoded ──▶ young ──── age, twice a minute ───▶ old ──── age ───▶ gone
//!                 ▲                                  │ │
//!                 └────────────── found ─────────────┘ └── the cap is met: one of it goes, any
//! ```
//!
//! What is worked on stays: what is read again within half a minute is not decoded again, up to the cap;
//! what is not is gone after a minute, so that the memory follows the work. Where more is read in turn
//! than the cap holds, a part of it stays, for what goes is drawn and not the oldest. Lists do not come
//! here: one of them would push out everything else.
//!
//! # Invariants
//! - At most the cap is held, by an estimate: [`WEIGHT`] bytes a byte of JSON, which is what
//!   `k8s-openapi`'s Pod takes; most types take less.
//! - A value is found only for the entry it was decoded from. The address of an entry names it: a
//!   slot holds a weak pointer, so no other entry can get that address.
//! - The lock is held for look-ups, never while something is decoded or dropped.

use std::any::{Any, TypeId};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use indexmap::IndexMap;

use super::entry::{DecodeError, Entry};
use model::Object;

/// What a cache of decoded values may hold, unless told otherwise, in bytes: some thousand objects that
/// are worked on at once. Beside the packed objects of a large fleet this is little.
pub const DECODED_BYTES: usize = 64 << 20;
/// How often what is not used grows older: after twice that it is gone.
pub const AGE_EVERY: Duration = Duration::from_secs(30);
/// Bytes a decoded value is taken to have for each byte of JSON.
const WEIGHT: usize = 4;
/// What a slot takes beside the value, the allocation of an entry that is gone included.
const SLOT: usize = 256;
/// No value gets more than this part of the cap.
const LARGEST: usize = 8;
/// Spreads what is drawn over all there is: 2^64 divided by the golden ratio, as in Fibonacci hashing.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// See the file's text.
#[derive(Debug)]
pub struct DecodedCache {
    cap: usize,
    generations: Mutex<Generations>,
}

type Slots = IndexMap<(usize, TypeId), Slot>;

#[derive(Debug, Default)]
struct Generations {
    young: Slots,
    old: Slots,
    bytes: usize,
    /// Counts what was drawn.
    drawn: u64,
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
        let slot = generations.old.swap_remove(&key)?;
        let value = Arc::clone(&slot.value);
        generations.young.insert(key, slot);
        Some(value)
    }

    fn insert(&self, key: (usize, TypeId), slot: Slot) {
        let mut gone = Vec::new();
        let mut generations = self.lock();
        while generations.bytes + slot.bytes > self.cap {
            match generations.draw() {
                Some(slot) => gone.push(slot),
                None => break,
            }
        }
        gone.extend(generations.insert(key, slot));
        drop(generations);
        drop(gone);
    }

    /// What was not used since the last time goes. To be called every [`AGE_EVERY`].
    pub fn age(&self) {
        let mut generations = self.lock();
        let gone = generations.age();
        drop(generations);
        drop(gone);
    }

    /// Bytes held, by the estimate.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }
}

impl Generations {
    /// Gives what it replaces, as when two have decoded the same.
    fn insert(&mut self, key: (usize, TypeId), slot: Slot) -> Option<Slot> {
        self.bytes += slot.bytes;
        let replaced = self.young.insert(key, slot);
        self.bytes -= replaced.as_ref().map_or(0, |slot| slot.bytes);
        replaced
    }

    /// Takes one out, of what was not used lately if there is any.
    fn draw(&mut self) -> Option<Slot> {
        let from = if self.old.is_empty() { &mut self.young } else { &mut self.old };
        let spread = (self.drawn.wrapping_mul(SPREAD) >> 32) as usize;
        let index = spread.checked_rem(from.len())?;
        self.drawn = self.drawn.wrapping_add(1);
        let (_, slot) = from.swap_remove_index(index)?;
        self.bytes -= slot.bytes;
        Some(slot)
    }

    /// The old are gone, and the young are old unless no store holds them any more.
    fn age(&mut self) -> (Slots, Vec<Slot>) {
        let mut aged = std::mem::take(&mut self.young);
        let dead = aged.extract_if(.., |_, slot| slot.entry.strong_count() == 0);
        let dead = dead.map(|(_, slot)| slot).collect();
        self.bytes = aged.values().map(|slot| slot.bytes).sum();
        (std::mem::replace(&mut self.old, aged), dead)
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
    fn what_is_used_stays_and_the_rest_is_gone_after_two_ages() {
        let cache = DecodedCache::new(1 << 20);
        let (used, idle) = (entry("used", 10), entry("idle", 10));
        let first: Arc<ConfigMap> = cache.get(&used).unwrap();
        let forgotten: Arc<ConfigMap> = cache.get(&idle).unwrap();
        let one = cache.bytes() / 2;
        for _ in 0..2 {
            cache.age();
            assert!(Arc::ptr_eq(&first, &cache.get(&used).unwrap()));
        }
        assert_eq!(cache.bytes(), one);
        assert!(!Arc::ptr_eq(&forgotten, &cache.get(&idle).unwrap()));
        cache.age();
        cache.age();
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn of_more_than_fits_that_is_read_in_turn_a_part_stays() {
        let cap = 1 << 20;
        let cache = DecodedCache::new(cap);
        let all: Vec<_> = (0..100).map(|n| entry(&format!("n-{n}"), 5_000)).collect();
        let round = || -> Vec<Arc<ConfigMap>> {
            all.iter().map(|entry| cache.get(entry).unwrap()).collect()
        };
        let mut last = round();
        let mut found = 0;
        for _ in 0..20 {
            let now = round();
            assert!(cache.bytes() <= cap && cache.bytes() > cap / 2, "{}", cache.bytes());
            found += last.iter().zip(&now).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
            last = now;
        }
        // Half of it fits; who drops the oldest finds none.
        assert!(found > 20 * 100 / 20, "{found}");
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
            assert!(cache.bytes() <= 1 << 20);
        }
        cache.age();
        assert_eq!(cache.bytes(), 0);
    }
}
