//! The shared cache of one informer: every object as raw JSON bytes beside a small header.
//!
//! It owns the objects and their indexes. It does not own how they got here (`informer`), and hands
//! out typed values only by decoding on read. [`Store`] is a read handle; the one [`StoreWriter`]
//! belongs to the informer's task. The face is made so that the bytes can later be compressed and
//! the decoded values cached, without a change for its users.
//!
//! # Invariants
//! - A reader sees every object either before or after a change, never half of it: objects are
//!   replaced whole, as `Arc<Entry>`.
//! - The lock inside is held for look-ups and pointer swaps only, never over a decode or an await.

use std::collections::hash_map;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::header::{Header, Interner, LocalKey, parse};
use crate::object::{Kind, Object};
use crate::selector::Selector;

pub use crate::header::HeaderError;

/// One object in the cache.
#[derive(Debug)]
pub struct Entry {
    /// What routing and selection need.
    pub header: Header,
    json: Box<[u8]>,
}

/// A cached object that does not fit the Rust type it is asked for as.
#[derive(Debug, thiserror::Error)]
#[error("decode {kind} {}", name(.key))]
pub struct DecodeError {
    kind: Kind,
    key: LocalKey,
    #[source]
    source: serde_json::Error,
}

fn name(key: &LocalKey) -> String {
    match &key.namespace {
        Some(namespace) => format!("{namespace}/{}", key.name),
        None => key.name.to_string(),
    }
}

/// A read handle on the objects of one kind, as one informer sees them.
#[derive(Clone, Debug)]
pub struct Store(Arc<RwLock<Objects>>);

/// The one handle that changes a store.
#[derive(Debug)]
pub struct StoreWriter {
    store: Store,
    interner: Interner,
    /// Raised by each replacement; entries that still carry an older one at its end are gone.
    round: u64,
}

#[derive(Debug, Default)]
struct Objects {
    by_key: HashMap<LocalKey, Slot>,
    by_namespace: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
    by_owner: HashMap<Arc<str>, BTreeSet<LocalKey>>,
    bytes: usize,
}

#[derive(Debug)]
struct Slot {
    entry: Arc<Entry>,
    round: u64,
}

impl Entry {
    /// Reads an object from its JSON text, dropping `managedFields`.
    ///
    /// # Errors
    /// When the text is no object with name, uid and resourceVersion.
    pub fn parse(raw: &str, interner: &mut Interner) -> Result<Self, HeaderError> {
        let (header, json) = parse(raw, interner)?;
        Ok(Self { header, json })
    }

    /// Decodes the object.
    ///
    /// # Errors
    /// When it does not fit `K`.
    pub fn decode<K: Object>(&self) -> Result<K, DecodeError> {
        serde_json::from_slice(&self.json).map_err(|source| DecodeError {
            kind: Kind::of::<K>(),
            key: self.header.key.clone(),
            source,
        })
    }

    /// The object's JSON, without `managedFields`.
    pub fn json(&self) -> &[u8] {
        &self.json
    }

    /// Bytes this object takes in the cache, index entries and shared texts left out.
    pub fn bytes(&self) -> usize {
        size_of::<Entry>() + size_of::<Slot>() + self.header.heap_bytes() + self.json.len()
    }
}

impl Store {
    fn read(&self) -> RwLockReadGuard<'_, Objects> {
        self.0.read().expect("no holder of this lock panics")
    }

    fn write(&self) -> RwLockWriteGuard<'_, Objects> {
        self.0.write().expect("no holder of this lock panics")
    }

    /// One object.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<Entry>> {
        let key = LocalKey { namespace: namespace.map(Arc::from), name: Arc::from(name) };
        self.get_key(&key)
    }

    /// One object by its key.
    pub fn get_key(&self, key: &LocalKey) -> Option<Arc<Entry>> {
        self.read().by_key.get(key).map(|slot| Arc::clone(&slot.entry))
    }

    /// The objects of a namespace (of all, for `None`) that a selector selects, ordered by
    /// namespace and name. Served from the headers.
    pub fn list(&self, namespace: Option<&str>, selector: &Selector) -> Vec<Arc<Entry>> {
        let objects = self.read();
        let selected = |slot: &&Slot| selector.matches(|key| slot.entry.header.label(key));
        let mut found: Vec<Arc<Entry>> = match namespace {
            None => {
                objects.by_key.values().filter(selected).map(|s| Arc::clone(&s.entry)).collect()
            }
            Some(namespace) => {
                let Some((namespace, names)) = objects.by_namespace.get_key_value(namespace) else {
                    return Vec::new();
                };
                names
                    .iter()
                    .filter_map(|name| {
                        objects.by_key.get(&LocalKey {
                            namespace: Some(Arc::clone(namespace)),
                            name: Arc::clone(name),
                        })
                    })
                    .filter(selected)
                    .map(|slot| Arc::clone(&slot.entry))
                    .collect()
            }
        };
        drop(objects);
        found.sort_unstable_by(|a, b| a.header.key.cmp(&b.header.key));
        found
    }

    /// The objects whose controlling owner has this uid, ordered by namespace and name.
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<Entry>> {
        let objects = self.read();
        let keys = objects.by_owner.get(uid).into_iter().flatten();
        keys.filter_map(|key| objects.by_key.get(key)).map(|s| Arc::clone(&s.entry)).collect()
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.read().by_key.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes held for objects and headers.
    pub fn bytes(&self) -> usize {
        self.read().bytes
    }
}

impl Default for StoreWriter {
    fn default() -> Self {
        Self {
            store: Store(Arc::new(RwLock::new(Objects::default()))),
            interner: Interner::default(),
            round: 0,
        }
    }
}

impl StoreWriter {
    /// A read handle.
    pub fn store(&self) -> Store {
        self.store.clone()
    }

    /// Reads an object from its JSON text, sharing texts with those in the store.
    ///
    /// # Errors
    /// When the text is no object with name, uid and resourceVersion.
    pub fn parse(&mut self, raw: &str) -> Result<Arc<Entry>, HeaderError> {
        Entry::parse(raw, &mut self.interner).map(Arc::new)
    }

    /// Puts an object in; gives the one it replaced.
    pub fn upsert(&mut self, entry: &Arc<Entry>) -> Option<Arc<Entry>> {
        let slot = Slot { entry: Arc::clone(entry), round: self.round };
        self.store.write().insert(slot)
    }

    /// Takes an object out; gives it as it was last known.
    pub fn remove(&mut self, key: &LocalKey) -> Option<Arc<Entry>> {
        self.store.write().take(key)
    }

    /// Begins a replacement of everything: objects not put in until [`Self::finish_replace`] are
    /// gone then. Beginning anew forgets an unfinished one.
    pub fn begin_replace(&mut self) {
        self.round += 1;
    }

    /// Ends a replacement; takes out and gives, in order, the objects it did not mention.
    pub fn finish_replace(&mut self) -> Vec<Arc<Entry>> {
        let mut objects = self.store.write();
        let stale = objects.by_key.iter().filter(|(_, slot)| slot.round < self.round);
        let mut stale: Vec<LocalKey> = stale.map(|(key, _)| key.clone()).collect();
        stale.sort_unstable();
        stale.iter().filter_map(|key| objects.take(key)).collect()
    }
}

impl Objects {
    fn insert(&mut self, slot: Slot) -> Option<Arc<Entry>> {
        let entry = Arc::clone(&slot.entry);
        let key = &entry.header.key;
        self.bytes += entry.bytes();
        let old = match self.by_key.entry(key.clone()) {
            hash_map::Entry::Occupied(mut present) => Some(present.insert(slot).entry),
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert(slot);
                if let Some(namespace) = &key.namespace {
                    let names = self.by_namespace.entry(Arc::clone(namespace)).or_default();
                    names.insert(Arc::clone(&key.name));
                }
                None
            }
        };
        if let Some(old) = &old {
            self.bytes -= old.bytes();
            self.forget_owner(&old.header);
        }
        if let Some(owner) = &entry.header.owner {
            self.by_owner.entry(Arc::clone(&owner.uid)).or_default().insert(key.clone());
        }
        old
    }

    fn take(&mut self, key: &LocalKey) -> Option<Arc<Entry>> {
        let entry = self.by_key.remove(key)?.entry;
        self.bytes -= entry.bytes();
        self.forget_owner(&entry.header);
        if let Some(namespace) = &key.namespace
            && let Some(names) = self.by_namespace.get_mut(namespace)
        {
            names.remove(&key.name);
            if names.is_empty() {
                self.by_namespace.remove(namespace);
            }
        }
        Some(entry)
    }

    fn forget_owner(&mut self, header: &Header) {
        if let Some(owner) = &header.owner
            && let Some(keys) = self.by_owner.get_mut(&owner.uid)
        {
            keys.remove(&header.key);
            if keys.is_empty() {
                self.by_owner.remove(&owner.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn put(writer: &mut StoreWriter, namespace: &str, name: &str, rv: u64, extra: &str) {
        let raw = format!(
            r#"{{"metadata":{{"namespace":"{namespace}","name":"{name}","uid":"u-{name}","resourceVersion":"{rv}"{extra}}},"data":{{"rv":"{rv}"}}}}"#
        );
        let entry = writer.parse(&raw).unwrap();
        writer.upsert(&entry);
    }

    fn names(entries: &[Arc<Entry>]) -> String {
        entries.iter().map(|e| e.header.key.name.to_string()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn objects_are_found_by_namespace_label_and_owner() {
        let mut writer = StoreWriter::default();
        let owner = r#","ownerReferences":[{"apiVersion":"v1","kind":"X","name":"x","uid":"ux","controller":true}]"#;
        put(&mut writer, "b", "two", 1, r#","labels":{"app":"web"}"#);
        put(&mut writer, "a", "one", 2, r#","labels":{"app":"web"}"#);
        put(&mut writer, "a", "zero", 3, owner);
        let store = writer.store();
        let web: Selector = "app=web".parse().unwrap();
        assert_eq!(names(&store.list(None, &web)), "one two");
        assert_eq!(names(&store.list(Some("a"), &Selector::all())), "one zero");
        assert_eq!(names(&store.list(Some("none"), &Selector::all())), "");
        assert_eq!(names(&store.owned_by("ux")), "zero");
        let object: ConfigMap = store.get(Some("a"), "one").unwrap().decode().unwrap();
        assert_eq!(object.data.unwrap()["rv"], "2");

        put(&mut writer, "a", "zero", 4, "");
        assert_eq!(names(&store.owned_by("ux")), "", "an owner that is gone leaves the index");
    }

    #[test]
    fn a_replacement_surfaces_what_it_did_not_mention() {
        let mut writer = StoreWriter::default();
        for name in ["a", "b", "c"] {
            put(&mut writer, "ns", name, 1, "");
        }
        writer.begin_replace();
        put(&mut writer, "ns", "a", 2, "");
        // Interrupted: what the first attempt mentioned does not count for the second.
        writer.begin_replace();
        put(&mut writer, "ns", "b", 3, "");
        assert_eq!(names(&writer.finish_replace()), "a c");
        assert_eq!(names(&writer.store().list(None, &Selector::all())), "b");
    }

    #[test]
    fn bytes_return_to_zero() {
        let mut writer = StoreWriter::default();
        put(&mut writer, "ns", "a", 1, r#","labels":{"app":"web"}"#);
        put(&mut writer, "ns", "a", 22, "");
        assert!(writer.store().bytes() > 0);
        let key = LocalKey { namespace: Some("ns".into()), name: "a".into() };
        assert_eq!(&*writer.remove(&key).unwrap().header.resource_version, "22");
        assert!(writer.remove(&key).is_none());
        assert_eq!((writer.store().bytes(), writer.store().len()), (0, 0));
        assert!(writer.store().read().by_namespace.is_empty());
    }

    #[test]
    fn a_value_of_another_shape_names_itself() {
        let mut writer = StoreWriter::default();
        let entry = writer
            .parse(r#"{"metadata":{"namespace":"ns","name":"a","uid":"u","resourceVersion":"1"},"data":7}"#)
            .unwrap();
        let error = entry.decode::<ConfigMap>().unwrap_err();
        assert_eq!(error.to_string(), "decode ConfigMap ns/a");
    }
}
