//! The one handle that changes a store. It belongs to the informer's task.

use std::fmt::Write as _;
use std::sync::Arc;

use super::codec::Encoder;
use super::decoded::{DECODED_BYTES, DecodedCache, DecodedPart};
use super::entry::Entry;
use super::header::{Header, HeaderError, Indexed, Labels, LocalKey, ResourceVersion, Uid};
use super::intern::Interner;
use super::options::{StoreOptions, Unindexed};
use super::pass::Scan;
use super::plan::{self, Basis, Budget};
use super::scan::scan;
use super::store::Store;
use super::table::Table;
use super::training::{Trained, Training};

/// The most that the buffer for an object's text keeps between uses, in bytes.
const KEPT_BUFFER: usize = 64 << 10;

/// The one handle that changes a store.
#[derive(Debug)]
pub struct StoreWriter {
    store: Store,
    interner: Interner,
    /// What a replacement under way has not mentioned yet.
    unseen: Option<Table<Arc<Entry>>>,
    /// Whether no replacement has ended yet: the first list is under way.
    listing: bool,
    /// How entries are packed; absent as long as they stay raw.
    encoder: Option<Encoder>,
    /// Of the last training.
    basis: Option<Basis>,
    recode: Progress,
    sweep: Progress,
    buffer: Vec<u8>,
    /// Of objects that were read, until somebody takes it.
    unindexed: Vec<Unindexed>,
}

/// How far a walk through all entries has come.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    Done,
    Begins,
    After(LocalKey),
}

impl Default for StoreWriter {
    fn default() -> Self {
        Self::new(StoreOptions::default(), Arc::new(DecodedCache::new(DECODED_BYTES)))
    }
}

impl StoreWriter {
    /// A new, empty store that keeps what the options say. The stores of a cluster share a part for decoded values.
    pub fn new(options: StoreOptions, decoded: impl Into<DecodedPart>) -> Self {
        Self {
            store: Store::new(options, decoded.into()),
            interner: Interner::default(),
            unseen: None,
            listing: true,
            encoder: None,
            basis: None,
            recode: Progress::Done,
            sweep: Progress::Done,
            buffer: Vec::new(),
            unindexed: Vec::new(),
        }
    }

    /// A read handle.
    pub fn store(&self) -> Store {
        self.store.clone()
    }

    /// Reads an object from its JSON text, sharing parts with those in the store. If the
    /// store has it at the same version, returns the stored entry.
    ///
    /// # Errors
    /// When the text is no object with name, uid and resourceVersion, or is longer than 4 MiB.
    pub fn parse(&mut self, raw: &str) -> Result<Arc<Entry>, HeaderError> {
        let options = &self.store.0.options;
        let found = scan(raw, options.transform.as_ref())?;
        let uid = Uid::new(&found.uid);
        let resource_version = ResourceVersion::new(&found.resource_version);
        let namespace = found.namespace.as_deref().filter(|namespace| !namespace.is_empty());
        if let Some(known) = self.store.get(namespace, &found.name)
            && known.header.uid == uid
            && known.header.resource_version == resource_version
        {
            return Ok(known);
        }
        let mut header = header(&found, uid, resource_version, &mut self.interner);
        self.buffer.clear();
        if !options.indexes.is_empty() {
            // Indexes see what is dropped.
            match options.transform {
                Some(_) => scan(raw, None)?.kept(raw, &mut self.buffer),
                None => found.kept(raw, &mut self.buffer),
            }
            header.indexed = index(options, &self.buffer, &mut self.interner, &mut self.unindexed);
            self.buffer.clear();
        }
        found.kept(raw, &mut self.buffer);
        let entry = Entry::new(header, &self.buffer, self.encoder.as_ref());
        if self.buffer.capacity() > KEPT_BUFFER {
            self.buffer = Vec::new();
        }
        Ok(Arc::new(entry))
    }

    /// What indexes lack of the objects that were read since this was asked last; the first few.
    pub fn take_unindexed(&mut self) -> Vec<Unindexed> {
        std::mem::take(&mut self.unindexed)
    }

    /// Puts an object in; returns the one it replaced.
    pub fn upsert(&mut self, entry: &Arc<Entry>) -> Option<Arc<Entry>> {
        self.seen(&entry.header.key);
        let shared_bytes = self.interner.bytes();
        self.store.edit(|objects| {
            objects.shared_bytes = shared_bytes;
            objects.insert(entry)
        })
    }

    /// Takes an object out; returns it as it was last known.
    pub fn remove(&mut self, key: &LocalKey) -> Option<Arc<Entry>> {
        self.seen(key);
        // Reading what is deleted may have shared parts anew.
        let shared_bytes = self.interner.bytes();
        self.store.edit(|objects| {
            objects.shared_bytes = shared_bytes;
            objects.take(key)
        })
    }

    fn seen(&mut self, key: &LocalKey) {
        if let Some(unseen) = &mut self.unseen {
            unseen.remove(|entry| entry.header.key.cmp(key));
        }
    }

    /// Begins a replacement of everything: [`Self::finish_replace`] removes the objects that were not
    /// put in until then. A new beginning forgets an unfinished replacement.
    pub fn begin_replace(&mut self) {
        self.unseen = Some(self.store.snapshot().by_key.clone());
    }

    /// Ends a replacement; takes out and gives, in order, the objects it did not mention.
    pub fn finish_replace(&mut self) -> Vec<Arc<Entry>> {
        self.finish_some(usize::MAX)
    }

    /// Goes on with [`Self::finish_replace`]: takes out and gives the next objects, at most so many. It has ended when
    /// there are fewer.
    pub fn finish_some(&mut self, at_most: usize) -> Vec<Arc<Entry>> {
        self.listing = false;
        let unseen = self.unseen.iter().flat_map(Table::iter);
        let stale: Vec<_> = unseen.take(at_most).map(Arc::clone).collect();
        if stale.len() < at_most {
            self.unseen = None;
        }
        stale.iter().filter_map(|entry| self.remove(&entry.header.key)).collect()
    }

    // === Sweeping ===

    /// Begins a sweep of all entries by [`Self::sweep`].
    pub fn begin_sweep(&mut self) {
        self.sweep = Progress::Begins;
    }

    /// Takes out entries that are not to be kept: looks at `at_most`.
    pub fn sweep(&mut self, at_most: usize, keeps: impl Fn(&Header) -> bool) {
        for entry in self.sweep.walk(&self.store, at_most) {
            if !keeps(&entry.header) {
                self.remove(&entry.header.key);
            }
        }
    }

    /// Whether [`Self::sweep`] or [`Self::recode`] has something to do.
    pub fn is_busy(&self) -> bool {
        self.sweep != Progress::Done || self.is_recoding()
    }

    // === Packing ===

    /// The training that is due, if one is. It may run on any thread; then comes [`Self::adopt`].
    pub fn training(&self) -> Option<Training> {
        let budget = self.budget()?;
        let objects = self.store.snapshot();
        let payload = objects.payload;
        let count = budget.objects.min(payload.objects);
        // Spread over all of them: neighbours are alike.
        let spread =
            |entry: usize| (entry + 1) * count / payload.objects > entry * count / payload.objects;
        let sampled = objects.by_key.iter().enumerate().filter(|(entry, _)| spread(*entry));
        let samples = sampled.map(|(_, entry)| Arc::clone(entry)).collect();
        Some(Training { samples, budget, payload })
    }

    /// Whether a training is due.
    pub fn is_training_due(&self) -> bool {
        self.budget().is_some()
    }

    fn budget(&self) -> Option<Budget> {
        match self.recode {
            Progress::Done => plan::due(&self.store.payload(), self.listing, self.basis.as_ref()),
            Progress::Begins | Progress::After(_) => None,
        }
    }

    /// Packs from now on as the training found best. [`Self::recode`] packs older entries again.
    pub fn adopt(&mut self, trained: Trained) {
        self.basis = Some(trained.basis);
        let Some(encoder) = trained.encoder else { return };
        self.store.edit(|objects| {
            objects.generations.retain(|decoder| decoder.strong_count() > 0);
            objects.generations.push(Arc::downgrade(encoder.decoder()));
            objects.encoder_bytes = encoder.bytes();
        });
        self.encoder = Some(encoder);
        self.recode = Progress::Begins;
    }

    /// Goes on as if the training had found nothing better: the next is due when the objects have
    /// changed much.
    pub fn give_up_training(&mut self) {
        let payload = self.store.payload();
        self.basis = Some(Basis { payload, holdout: (payload.bytes, payload.packed) });
    }

    /// Whether [`Self::recode`] has something to do.
    pub fn is_recoding(&self) -> bool {
        self.recode != Progress::Done
    }

    /// Packs some entries again that are not packed with the present dictionary: looks at `at_most`.
    /// Readers do not wait; each entry is replaced whole.
    pub fn recode(&mut self, at_most: usize) {
        let Some(encoder) = &self.encoder else { return };
        let looked_at = self.recode.walk(&self.store, at_most);
        for entry in looked_at.iter().filter(|entry| !entry.is_packed_by(encoder)) {
            if let Some(packed) = entry.packed_anew(encoder) {
                let packed = Arc::new(packed);
                self.store.edit(|objects| objects.insert(&packed));
                if let Some(unseen) = &mut self.unseen {
                    // It must not keep the old bytes alive.
                    let order = |other: &Arc<Entry>| other.header.key.cmp(&packed.header.key);
                    if unseen.get(order).is_some() {
                        unseen.insert(Arc::clone(&packed), order);
                    }
                }
            }
        }
    }

    /// Trains and packs again, here and now, until nothing is due: what the informer does bit by bit.
    pub fn settle(&mut self) {
        while let Some(training) = self.training() {
            self.adopt(training.run());
            while self.is_recoding() {
                self.recode(usize::MAX);
            }
        }
    }
}

impl Progress {
    /// The next entries, in order.
    fn walk(&mut self, store: &Store, at_most: usize) -> Vec<Arc<Entry>> {
        let next = match self {
            Self::Done => return Vec::new(),
            Self::Begins => store.after(None, at_most),
            Self::After(key) => store.after(Some(key), at_most),
        };
        *self = match next.last() {
            Some(last) if next.len() == at_most => Self::After(last.header.key.clone()),
            _ => Self::Done,
        };
        next
    }
}

fn header(
    found: &Scan<'_>,
    uid: Uid,
    resource_version: ResourceVersion,
    interner: &mut Interner,
) -> Header {
    let namespace = found.namespace.as_deref().filter(|namespace| !namespace.is_empty());
    let mut labels = String::new();
    for (key, value) in &found.labels {
        // Writing to a String does not fail.
        let _ = write!(labels, "{key}\0{value}\0");
    }
    Header {
        key: LocalKey {
            namespace: namespace.map(|namespace| interner.share(namespace)),
            name: Box::from(&*found.name),
        },
        uid,
        resource_version,
        generation: found.generation,
        deleting: found.deleting,
        owner: found
            .controller
            .as_ref()
            .map(|owner| interner.owner(&owner.api_version, &owner.kind, &owner.name, &owner.uid)),
        labels: Labels((!labels.is_empty()).then(|| interner.share(&labels))),
        indexed: None,
    }
}

#[expect(clippy::box_collection, reason = "the header says why")]
fn index(
    options: &StoreOptions,
    json: &[u8],
    interner: &mut Interner,
    notes: &mut Vec<Unindexed>,
) -> Option<Box<Vec<Indexed>>> {
    let mut all = Vec::new();
    for (index, declared) in (0..).zip(&options.indexes) {
        let values = declared.values(json, notes).into_iter();
        all.extend(values.map(|value| Indexed { index, value: interner.share(&value) }));
    }
    all.sort_unstable();
    all.dedup();
    all.shrink_to_fit();
    (!all.is_empty()).then(|| Box::new(all))
}
