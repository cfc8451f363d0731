//! A cache of decoded values, shared by all stores of a process, capped in bytes and emptied of what is
//! not used.
//!
//! Values in use stay: one that is read again within half a minute is not decoded again, up to the
//! cap. One that is not read for a minute is dropped, so that the memory follows the work. Where more
//! is read in turn than the cap holds, a part of it stays (`quick_cache` evicts by S3-FIFO). Lists do
//! not come here: one of them would push out everything else.
//!
//! # Invariants
//! - At most the cap is held, as the allocator counts it ([`Allocated`]), or else by an estimate: four bytes a byte of
//!   JSON, which is what `k8s-openapi`'s Pod takes, and more for each object within (`weight`); most types take a
//!   fraction of that. The cap follows what the stores hold packed, so that a replica with a third of a fleet takes a
//!   third of the memory.
//! - A cluster that has more than its share keeps nothing more while that would push out values of others.
//! - A value is found only for the entry it was decoded from. The address of an entry names it: a
//!   slot holds a weak pointer, so no other entry can get that address.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use model::Object;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use super::entry::{DecodeError, Entry};

/// What a cache of decoded values may hold at most, by default, in bytes: some thousand objects that
/// are worked on at once. Beside the packed objects of a large fleet this is little.
pub const DECODED_BYTES: usize = 64 << 20;
/// What it may hold at least, however little is packed: some thousand values of a few KiB, or one of a MiB of JSON.
const DECODED_BYTES_LEAST: usize = 32 << 20;
/// How often values grow older: one that was not read between two calls of [`DecodedCache::age`] is
/// dropped.
pub const AGE_EVERY: Duration = Duration::from_secs(30);
/// What a slot takes beside the value, the allocation of an entry that is gone included.
const SLOT: usize = 256;
/// Parts of the cache with a lock each. No value gets more than one part's share of the cap, and as much is left free
/// by clusters that have more than theirs.
const PARTS: usize = 8;
/// The share of the cap that a cluster has whatever others do: one of so many.
const CLUSTERS: usize = 4;
/// A value's usual size, in bytes: says how many slots to expect.
const USUAL_BYTES: usize = 16 << 10;

/// Bytes that the calling thread has allocated and not freed, as its allocator counts them; below zero if it has freed
/// what others allocated.
pub type Allocated = fn() -> i64;

/// Keeps decoded values while they are used.
pub struct DecodedCache {
    most: usize,
    /// Weighs a value by what decoding it allocates.
    allocated: Option<Allocated>,
    /// What may be held now.
    cap: AtomicUsize,
    slots: Cache<Key, Slot, ByBytes>,
    /// Counts the calls of [`Self::age`].
    age: AtomicU32,
}

/// What one cluster keeps in a [`DecodedCache`]. Clones share it.
#[derive(Clone, Debug)]
pub struct DecodedPart {
    cache: Arc<DecodedCache>,
    /// Bytes of its values.
    held: Arc<AtomicUsize>,
}

/// The address of an entry, and the type it was decoded as.
type Key = (usize, TypeId);

#[derive(Clone)]
struct Slot {
    entry: Weak<Entry>,
    value: Arc<dyn Any + Send + Sync>,
    place: Arc<Place>,
}

/// What a value takes of its part, until it goes.
struct Place {
    bytes: usize,
    held: Arc<AtomicUsize>,
    /// The age at which it was read last.
    read_at: AtomicU32,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<Key, Slot> for ByBytes {
    fn weight(&self, _: &Key, slot: &Slot) -> u64 {
        slot.place.bytes as u64
    }
}

impl DecodedCache {
    /// A cache that holds at most `most` bytes, by its estimate. Zero holds nothing.
    pub fn new(most: usize) -> Self {
        Self::weighing(most, None)
    }

    /// A cache that holds at most `most` bytes: as the allocator counts them, if it does.
    pub fn weighing(most: usize, allocated: Option<Allocated>) -> Self {
        let options = OptionsBuilder::new()
            .shards(PARTS)
            .estimated_items_capacity(most / USUAL_BYTES)
            .weight_capacity(most as u64)
            .build()
            .expect("both capacities are set");
        let (hasher, lifecycle) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
        let slots = Cache::with_options(options, ByBytes, hasher, lifecycle);
        Self { most, allocated, cap: AtomicUsize::new(most), slots, age: AtomicU32::new(0) }
    }

    /// From now on it holds no more than what the stores hold packed, or 32 MiB if that is less.
    pub fn follow(&self, packed: usize) {
        let cap = packed.max(DECODED_BYTES_LEAST).min(self.most);
        self.cap.store(cap, Ordering::Relaxed);
        self.slots.set_capacity(cap as u64);
    }

    /// Drops what was not read since the call before, and what no store holds any more. To be called
    /// every [`AGE_EVERY`].
    pub fn age(&self) {
        let before = self.age.fetch_add(1, Ordering::Relaxed);
        self.slots.retain(|_, slot| {
            slot.entry.strong_count() > 0 && slot.place.read_at.load(Ordering::Relaxed) == before
        });
    }

    /// Bytes held, counted or estimated.
    pub fn bytes(&self) -> usize {
        usize::try_from(self.slots.weight()).unwrap_or(usize::MAX)
    }
}

/// The part of another cluster.
impl From<Arc<DecodedCache>> for DecodedPart {
    fn from(cache: Arc<DecodedCache>) -> Self {
        Self { cache, held: Arc::default() }
    }
}

impl DecodedPart {
    /// The entry's object, decoded now or before.
    ///
    /// # Errors
    /// When it does not fit `K`.
    pub(super) fn get<K: Object>(&self, entry: &Arc<Entry>) -> Result<Arc<K>, DecodeError> {
        let key = (Arc::as_ptr(entry).addr(), TypeId::of::<K>());
        let now = self.cache.age.load(Ordering::Relaxed);
        if let Some(slot) = self.cache.slots.get(&key) {
            slot.place.read_at.store(now, Ordering::Relaxed);
            if let Ok(value) = slot.value.downcast::<K>() {
                return Ok(value);
            }
        }
        let (value, weight): (Arc<K>, _) = self.decode(entry)?;
        let bytes = SLOT + weight;
        if self.keeps(bytes) {
            self.held.fetch_add(bytes, Ordering::Relaxed);
            let (held, read_at) = (Arc::clone(&self.held), AtomicU32::new(now));
            let place = Arc::new(Place { bytes, held, read_at });
            let slot = Slot { entry: Arc::downgrade(entry), value: Arc::clone(&value) as _, place };
            self.cache.slots.insert(key, slot);
        }
        Ok(value)
    }

    /// Decodes an entry. With the value comes what it takes.
    fn decode<K: Object>(&self, entry: &Entry) -> Result<(Arc<K>, usize), DecodeError> {
        let Some(allocated) = self.cache.allocated else {
            let (value, bytes) = entry.decode_weighed()?;
            return Ok((Arc::new(value), bytes));
        };
        let before = allocated();
        let value = Arc::new(entry.decode()?);
        // What is unpacked into is kept by each thread. If it has shrunk meanwhile, that says nothing of the value.
        let bytes = usize::try_from(allocated() - before).unwrap_or_default();
        Ok((value, bytes.max(size_of::<K>())))
    }

    /// Whether another value of so many bytes is kept.
    fn keeps(&self, bytes: usize) -> bool {
        let cap = self.cache.cap.load(Ordering::Relaxed);
        let own = self.held.load(Ordering::Relaxed);
        if bytes > cap / PARTS {
            return false;
        }
        if own + bytes <= cap / CLUSTERS {
            return true;
        }
        // A cluster that is alone pushes out only its own.
        let all = self.cache.bytes();
        all <= own || all + bytes <= cap - cap / PARTS
    }

    /// Whether both are of one cluster.
    pub fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.held, &other.held)
    }
}

impl fmt::Debug for DecodedCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecodedCache").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use k8s_openapi::api::core::v1::ConfigMap;

    use super::super::StoreWriter;
    use super::*;

    fn raw(name: &str, data: usize) -> String {
        let text = "x".repeat(data);
        format!(
            r#"{{"metadata":{{"name":"{name}","uid":"u","resourceVersion":"1"}},"data":{{"a":"{text}"}}}}"#
        )
    }

    fn entry(name: &str, data: usize) -> Arc<Entry> {
        StoreWriter::default().parse(&raw(name, data)).unwrap()
    }

    /// A cache, and the part of a cluster.
    fn cache(most: usize) -> (Arc<DecodedCache>, DecodedPart) {
        let cache = Arc::new(DecodedCache::new(most));
        (Arc::clone(&cache), cache.into())
    }

    #[test]
    fn a_value_is_decoded_once_and_for_its_entry_only() {
        let (_, part) = cache(1 << 20);
        let (a, b) = (entry("a", 10), entry("b", 10));
        let first: Arc<ConfigMap> = part.get(&a).unwrap();
        assert!(Arc::ptr_eq(&first, &part.get(&a).unwrap()));
        assert_eq!(part.get::<ConfigMap>(&b).unwrap().metadata.name.as_deref(), Some("b"));
    }

    #[test]
    fn what_is_used_stays_and_the_rest_is_gone_after_two_ages() {
        let (cache, part) = cache(1 << 20);
        let (used, idle) = (entry("used", 10), entry("idle", 10));
        let first: Arc<ConfigMap> = part.get(&used).unwrap();
        let forgotten: Arc<ConfigMap> = part.get(&idle).unwrap();
        let one = cache.bytes() / 2;
        for _ in 0..2 {
            cache.age();
            assert!(Arc::ptr_eq(&first, &part.get(&used).unwrap()));
        }
        assert_eq!(cache.bytes(), one);
        assert!(!Arc::ptr_eq(&forgotten, &part.get(&idle).unwrap()));
        cache.age();
        cache.age();
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn of_more_than_fits_that_is_read_in_turn_a_part_stays() {
        let cap = 1 << 20;
        let (cache, part) = cache(cap);
        let all: Vec<_> = (0..100).map(|n| entry(&format!("n-{n}"), 5_000)).collect();
        let round = || -> Vec<Arc<ConfigMap>> {
            all.iter().map(|entry| part.get(entry).unwrap()).collect()
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

    /// The other reads more than all of the cap, again and again.
    #[test]
    fn a_cluster_with_more_than_its_share_pushes_out_nothing_of_others() {
        let (cap, bytes) = (8 << 20, 4_500);
        let (cache, part) = cache(cap);
        let other = DecodedPart::from(Arc::clone(&cache));
        let mut writer = StoreWriter::default();
        let mut several = |name: &str, number: usize| -> Vec<Arc<Entry>> {
            let names = (0..number).map(|n| format!("{name}-{n}"));
            names.map(|name| writer.parse(&raw(&name, 1_000)).unwrap()).collect()
        };
        let read = |part: &DecodedPart, entries: &[Arc<Entry>]| -> Vec<Arc<ConfigMap>> {
            entries.iter().map(|entry| part.get(entry).unwrap()).collect()
        };
        let (few, many) = (several("few", cap / 10 / bytes), several("many", 3 * cap / bytes));
        let first = read(&part, &few);
        for entry in &many {
            for _ in 0..3 {
                other.get::<ConfigMap>(entry).unwrap();
            }
        }
        let again = read(&part, &few);
        let found = first.iter().zip(&again).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
        assert!(found > few.len() * 9 / 10, "{found} of {}", few.len());
        assert!(cache.bytes() > cap * 3 / 4, "it has what the others leave: {}", cache.bytes());
        let held = |part: &DecodedPart| part.held.load(Ordering::Relaxed);
        assert_eq!(held(&part) + held(&other), cache.bytes(), "what was pushed out is not counted");
        cache.age();
        cache.age();
        assert_eq!((held(&part), held(&other)), (0, 0));
    }

    #[test]
    fn large_values_and_a_cap_of_zero_are_not_kept() {
        let (large, small) = (entry("large", 100_000), entry("small", 1));
        let (all, part) = cache(1 << 20);
        part.get::<ConfigMap>(&large).unwrap();
        let (none, part) = cache(0);
        part.get::<ConfigMap>(&small).unwrap();
        assert_eq!((all.bytes(), none.bytes()), (0, 0));
    }

    #[test]
    fn the_cap_follows_what_is_packed() {
        let (cache, part) = cache(128 << 20);
        let all: Vec<_> = (0..3_200).map(|n| entry(&format!("n-{n}"), 10_000)).collect();
        let held = |packed: usize| {
            cache.follow(packed);
            all.iter().for_each(|entry| drop(part.get::<ConfigMap>(entry).unwrap()));
            cache.bytes() >> 20
        };
        assert!((116..=128).contains(&held(1 << 30)), "the most, of 132 MiB that are read");
        assert!((52..=64).contains(&held(64 << 20)));
        assert!((24..=32).contains(&held(1)), "the least");
    }

    thread_local! {
        /// What the allocator has counted, and what it counts for each question.
        static COUNTED: Cell<(i64, i64)> = const { Cell::new((0, 0)) };
    }

    fn counted() -> i64 {
        let (sum, each) = COUNTED.get();
        COUNTED.set((sum + each, each));
        sum + each
    }

    #[test]
    fn values_weigh_what_the_allocator_counts() {
        let cache = Arc::new(DecodedCache::weighing(1 << 20, Some(counted)));
        let part = DecodedPart::from(Arc::clone(&cache));
        let held = |name: &str, each: i64| {
            COUNTED.set((-1_000, each));
            let before = cache.bytes();
            part.get::<ConfigMap>(&entry(name, 10)).unwrap();
            cache.bytes() - before
        };
        assert_eq!(held("counted", 3_000), SLOT + 3_000);
        assert_eq!(held("too-large-for-a-part", 200_000), 0);
        let least = SLOT + size_of::<ConfigMap>();
        assert_eq!(held("freed-more", -5_000), least);
    }

    #[test]
    fn what_no_store_holds_does_not_grow_old() {
        let (cache, part) = cache(1 << 20);
        for round in 0..1000 {
            part.get::<ConfigMap>(&entry(&format!("n-{round}"), 1000)).unwrap();
            assert!(cache.bytes() <= 1 << 20);
        }
        cache.age();
        assert_eq!(cache.bytes(), 0);
    }
}
