//! The read handle on a store, and the tables behind it.

use std::cell::{Cell, OnceCell};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use super::codec::Decoder;
use super::decoded::DecodedPart;
use super::entry::{DecodeError, Entry};
use super::header::{Indexed, Labels, LocalKey, Uid};
use super::options::StoreOptions;
use super::plan::Payload;
use super::table::Table;
use model::Object;
use model::Selector;

/// A read handle on the objects of one kind, as one informer sees them.
#[derive(Clone, Debug)]
pub struct Store(pub(super) Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    objects: RwLock<Arc<Objects>>,
    pub(super) options: StoreOptions,
    decoded: DecodedPart,
}

/// An index was asked for that was not declared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read index {0:?} of a cache: no controller declares it for that kind")]
pub struct NoIndex(pub String);

/// What a store takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheBytes {
    /// Objects: headers and packed JSON.
    pub entries: usize,
    /// The tables that find them.
    pub tables: usize,
    /// Parts that objects share: namespaces, labels, owners, index values.
    pub shared: usize,
    /// Dictionaries. They are zstd's, outside of Rust's allocator.
    pub dictionaries: usize,
}

impl CacheBytes {
    /// All of it.
    pub fn total(&self) -> usize {
        self.entries + self.tables + self.shared + self.dictionaries
    }
}

/// How much is in a store. Kept as objects come and go, so that asking costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSize {
    /// Objects.
    pub objects: usize,
    /// Bytes of objects, of what they share, and of their places in the first table. The other tables and
    /// dictionaries, which are few and bounded, are left out.
    pub cache_bytes: usize,
    /// Bytes of the objects' JSON, unpacked.
    pub json_bytes: usize,
}

/// The tables. A reader's copy does not change.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    pub(super) by_key: Table<Arc<Entry>>,
    /// Those with a controlling owner, by its uid, then by key.
    by_owner: Table<Arc<Entry>>,
    /// By index, value, then key.
    by_index: Table<Posting>,
    pub(super) payload: Payload,
    entry_bytes: usize,
    pub(super) shared_bytes: usize,
    pub(super) encoder_bytes: usize,
    /// Every generation that may still have entries.
    pub(super) generations: Vec<Weak<Decoder>>,
}

/// One value of one entry in one index.
#[derive(Clone, Debug)]
struct Posting {
    entry: Arc<Entry>,
    /// Its place in the header's values.
    at: u16,
}

impl Posting {
    fn order(&self, index: u16, value: &str) -> Ordering {
        let indexed = &self.entry.header.indexed()[usize::from(self.at)];
        indexed.index.cmp(&index).then_with(|| (*indexed.value).cmp(value))
    }

    /// Compares with the posting of a value of the object with that key.
    fn place(&self, indexed: &Indexed, key: &LocalKey) -> Ordering {
        let order = self.order(indexed.index, &indexed.value);
        order.then_with(|| self.entry.header.key.cmp(key))
    }
}

impl Store {
    pub(super) fn new(options: StoreOptions, decoded: DecodedPart) -> Self {
        Self(Arc::new(Shared { objects: RwLock::default(), options, decoded }))
    }

    fn read(&self) -> RwLockReadGuard<'_, Arc<Objects>> {
        self.0.objects.read().expect("no holder of this lock panics")
    }

    fn write(&self) -> RwLockWriteGuard<'_, Arc<Objects>> {
        self.0.objects.write().expect("no holder of this lock panics")
    }

    /// The tables as they are now.
    pub(super) fn snapshot(&self) -> Arc<Objects> {
        Arc::clone(&self.read())
    }

    /// Changes the tables. Only the one writer calls this, so nothing changes between the copy and
    /// the swap where a reader still looks at the tables.
    pub(super) fn edit<T>(&self, change: impl FnOnce(&mut Objects) -> T) -> T {
        let mut held = self.write();
        if let Some(objects) = Arc::get_mut(&mut held) {
            return change(objects);
        }
        let shared = Arc::clone(&held);
        drop(held);
        let mut copy = Objects::clone(&shared);
        drop(shared);
        let outcome = change(&mut copy);
        let copy = Arc::new(copy);
        let old = std::mem::replace(&mut *self.write(), copy);
        drop(old);
        outcome
    }

    /// One object.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<Entry>> {
        let objects = self.read();
        objects.by_key.get(|entry| entry.header.key.order(namespace, name)).map(Arc::clone)
    }

    /// Where decoded values are kept.
    pub fn decoded(&self) -> &DecodedPart {
        &self.0.decoded
    }

    /// One object, decoded now or before: see [`DecodedPart`].
    ///
    /// # Errors
    /// When it does not fit `K`.
    pub fn get_decoded<K: Object>(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<K>>, DecodeError> {
        self.get(namespace, name).map(|entry| self.0.decoded.get(&entry)).transpose()
    }

    /// The objects of a namespace (of all, for `None`) that a selector selects, ordered by
    /// namespace and name. Served from the headers of one snapshot.
    pub fn list(&self, namespace: Option<&str>, selector: &Selector) -> Vec<Arc<Entry>> {
        let objects = self.snapshot();
        match namespace {
            None => select(objects.by_key.iter(), selector, holds_of),
            Some(namespace) => {
                let of =
                    |entry: &&Arc<Entry>| entry.header.key.namespace.as_deref() == Some(namespace);
                let before =
                    |entry: &Arc<Entry>| entry.header.key.namespace.as_deref() < Some(namespace);
                select(objects.by_key.from(before).take_while(of), selector, holds_of)
            }
        }
    }

    /// At most `at_most` objects, ordered by namespace and name: those that follow `key`, or the
    /// first for `None`.
    pub fn after(&self, key: Option<&LocalKey>, at_most: usize) -> Vec<Arc<Entry>> {
        let objects = self.snapshot();
        let before = |entry: &Arc<Entry>| key.is_some_and(|key| entry.header.key <= *key);
        objects.by_key.from(before).take(at_most).map(Arc::clone).collect()
    }

    /// The objects whose controlling owner has this uid, ordered by namespace and name.
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<Entry>> {
        let (objects, uid) = (self.snapshot(), Uid::new(uid));
        let owned = objects.by_owner.from(|entry| owner(entry) < Some(&uid));
        owned.take_while(|entry| owner(entry) == Some(&uid)).map(Arc::clone).collect()
    }

    /// The objects that have a value in an index, ordered by namespace and name.
    ///
    /// # Errors
    /// When the store has no such index.
    pub fn indexed(&self, index: &str, value: &str) -> Result<Vec<Arc<Entry>>, NoIndex> {
        let at = self.0.options.indexes.iter().position(|declared| &*declared.name == index);
        let index =
            at.and_then(|at| u16::try_from(at).ok()).ok_or_else(|| NoIndex(index.to_owned()))?;
        let objects = self.snapshot();
        let found = objects.by_index.from(|posting| posting.order(index, value).is_lt());
        let found = found.take_while(|posting| posting.order(index, value).is_eq());
        Ok(found.map(|posting| Arc::clone(&posting.entry)).collect())
    }

    pub(super) fn payload(&self) -> Payload {
        self.read().payload
    }

    /// Bytes of the objects' JSON as it is stored, packed or not.
    pub fn packed_bytes(&self) -> usize {
        self.payload().packed
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.read().by_key.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How much is in it.
    pub fn size(&self) -> StoreSize {
        let objects = self.read();
        let Payload { objects: count, bytes, .. } = objects.payload;
        let places = count * size_of::<Arc<Entry>>();
        let cache_bytes = objects.entry_bytes + objects.shared_bytes + places;
        StoreSize { objects: count, cache_bytes, json_bytes: bytes }
    }

    /// Bytes held for objects, headers, tables and dictionaries.
    pub fn bytes(&self) -> usize {
        self.bytes_by_part().total()
    }

    /// [`Self::bytes`], by what they are held for.
    pub fn bytes_by_part(&self) -> CacheBytes {
        let objects = self.snapshot();
        let dictionaries = objects.generations.iter().filter_map(Weak::upgrade);
        CacheBytes {
            entries: objects.entry_bytes,
            tables: objects.by_key.heap_bytes()
                + objects.by_owner.heap_bytes()
                + objects.by_index.heap_bytes(),
            shared: objects.shared_bytes,
            dictionaries: objects.encoder_bytes
                + dictionaries.map(|decoder| decoder.bytes()).sum::<usize>(),
        }
    }
}

fn select<'a>(
    entries: impl Iterator<Item = &'a Arc<Entry>>,
    selector: &Selector,
    holds_of: impl Fn(&Labels, &Selector) -> bool,
) -> Vec<Arc<Entry>> {
    if selector.is_all() {
        return entries.map(Arc::clone).collect();
    }
    // Objects share their labels, neighbours most often: what held for one holds for the others.
    let (mut last, mut known) = (None, HashMap::new());
    let selected = entries.filter(|entry| {
        let labels = &entry.header.labels;
        let address = labels.address();
        let holds = match last {
            Some((before, holds)) if before == address => holds,
            _ => *known.entry(address).or_insert_with(|| holds_of(labels, selector)),
        };
        last = Some((address, holds));
        holds
    });
    selected.map(Arc::clone).collect()
}

/// So many keys of a selector are sought one by one. For more of them, labels are put into a table.
const FEW_KEYS: usize = 4;

/// Whether labels are selected.
fn holds_of(labels: &Labels, selector: &Selector) -> bool {
    let (sought, table) = (Cell::new(0), OnceCell::new());
    selector.matches(|key| {
        if sought.replace(sought.get() + 1) < FEW_KEYS {
            return labels.get(key);
        }
        let table: &Vec<(&str, &str)> = table.get_or_init(|| labels.iter().collect());
        let at = table.binary_search_by(|(found, _)| (*found).cmp(key)).ok()?;
        Some(table[at].1)
    })
}

fn owner(entry: &Arc<Entry>) -> Option<&Uid> {
    entry.header.owner.as_deref().map(|owner| &owner.uid)
}

impl Objects {
    /// Puts an entry in; returns the one it replaced.
    pub(super) fn insert(&mut self, entry: &Arc<Entry>) -> Option<Arc<Entry>> {
        let header = &entry.header;
        let old = self.by_key.insert(Arc::clone(entry), |other| other.header.key.cmp(&header.key));
        if let Some(old) = &old {
            self.forget(old);
        }
        self.payload.objects += 1;
        self.payload.bytes += entry.json_len();
        self.payload.packed += entry.packed_len();
        self.entry_bytes += entry.bytes();
        if header.owner.is_some() {
            self.by_owner.insert(Arc::clone(entry), |other| by_owner(other, entry));
        }
        for (at, indexed) in (0..).zip(header.indexed()) {
            let posting = Posting { entry: Arc::clone(entry), at };
            self.by_index.insert(posting, |other| other.place(indexed, &header.key));
        }
        old
    }

    /// Takes an entry out.
    pub(super) fn take(&mut self, key: &LocalKey) -> Option<Arc<Entry>> {
        let entry = self.by_key.remove(|other| other.header.key.cmp(key))?;
        self.forget(&entry);
        Some(entry)
    }

    /// Undoes what [`Self::insert`] does beside the first table.
    fn forget(&mut self, entry: &Arc<Entry>) {
        let header = &entry.header;
        self.payload.objects -= 1;
        self.payload.bytes -= entry.json_len();
        self.payload.packed -= entry.packed_len();
        self.entry_bytes -= entry.bytes();
        if header.owner.is_some() {
            self.by_owner.remove(|other| by_owner(other, entry));
        }
        for indexed in header.indexed() {
            self.by_index.remove(|other| other.place(indexed, &header.key));
        }
    }
}

fn by_owner(a: &Arc<Entry>, b: &Arc<Entry>) -> Ordering {
    owner(a).cmp(&owner(b)).then_with(|| a.header.key.cmp(&b.header.key))
}

#[cfg(test)]
mod tests {
    use super::super::StoreWriter;
    use super::*;

    /// A store with so many objects, each with some of the labels `k00` to `k29`.
    fn store(objects: usize, labels: impl Fn(usize) -> std::ops::Range<usize>) -> Store {
        let mut writer = StoreWriter::default();
        for number in 0..objects {
            let labels: Vec<_> =
                labels(number).map(|label| format!(r#""k{label:02}":"v{label}""#)).collect();
            let labels = labels.join(",");
            let object = format!(
                r#"{{"metadata":{{"name":"a{number}","uid":"u{number}","resourceVersion":"1","labels":{{{labels}}}}}}}"#
            );
            let entry = writer.parse(&object).unwrap();
            writer.upsert(&entry);
        }
        writer.store()
    }

    #[test]
    fn labels_that_many_objects_share_are_looked_at_once() {
        let looks = Cell::new(0);
        let objects = store(100, |number| if number % 2 == 0 { 0..9 } else { 9..18 }).snapshot();
        let found = select(objects.by_key.iter(), &"k10".parse().unwrap(), |labels, selector| {
            looks.set(looks.get() + 1);
            holds_of(labels, selector)
        });
        assert_eq!((found.len(), looks.get()), (50, 2));
    }

    #[test]
    fn a_selector_may_ask_for_many_labels() {
        let store = store(2, |number| number..30);
        let keys = (0..30).map(|label| format!("k{label:02}")).collect::<Vec<_>>().join(",");
        for (more, expect) in
            [("", 1), (",k29=v29", 1), (",k29=v28", 0), (",!k30", 1), (",!k00", 0), (",k30!=v", 1)]
        {
            let selector: Selector = format!("{keys}{more}").parse().unwrap();
            assert_eq!(store.list(None, &selector).len(), expect, "{more}");
        }
    }
}
