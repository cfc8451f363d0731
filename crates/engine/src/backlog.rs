//! What the keys that wait for a controller in a cluster take of the cluster's budget.
//!
//! Informers charge each object for one waiting key, so keys of objects cost nothing here. A server can name
//! others without end: owners that do not exist, objects that come and go. Those are charged, because neither the
//! cache nor a shard that is not open yet bounds them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cache::{Store, StoreSize};
use extent::{Overrun, Part};
use model::ClusterName;

use crate::assignment::AssignmentQueue;

/// Bytes of a key that waits: the longest names there are, and its places in the queue. An estimate.
const KEY_BYTES: usize = 512;
/// So many keys more or less than are charged may wait: all clusters share one ledger.
const UNCHARGED_KEYS: usize = 64;

/// The keys of one controller in one cluster, and what is charged for them.
#[derive(Debug)]
pub(crate) struct Backlog {
    cluster: ClusterName,
    queue: Arc<AssignmentQueue>,
    /// The stores of the primary kind.
    primary: Arc<[Store]>,
    /// Keys that were added since it was settled.
    unsettled: AtomicUsize,
    charge: Mutex<Charge>,
}

#[derive(Debug)]
struct Charge {
    keys: usize,
    part: Part,
}

impl Backlog {
    pub(crate) fn new(
        cluster: ClusterName,
        queue: Arc<AssignmentQueue>,
        primary: Arc<[Store]>,
        part: Part,
    ) -> Self {
        let (unsettled, charge) = (AtomicUsize::new(0), Mutex::new(Charge { keys: 0, part }));
        Self { cluster, queue, primary, unsettled, charge }
    }

    /// So many keys were added: once they are more than a few, the cluster is charged for what waits.
    ///
    /// # Errors
    /// As [`Self::settle`].
    pub(crate) fn added(&self, keys: usize) -> Result<(), Overrun> {
        let before = self.unsettled.fetch_add(keys, Ordering::Relaxed);
        if before + keys < UNCHARGED_KEYS { Ok(()) } else { self.settle() }
    }

    /// Charges the cluster for the keys that wait now.
    ///
    /// # Errors
    /// If that exceeds its budget.
    pub(crate) fn settle(&self) -> Result<(), Overrun> {
        self.unsettled.store(0, Ordering::Relaxed);
        let objects: usize = self.primary.iter().map(Store::len).sum();
        let keys = self.queue.waiting(&self.cluster).saturating_sub(objects);
        let mut charge = self.charge.lock().unwrap_or_else(PoisonError::into_inner);
        if charge.keys.abs_diff(keys) < UNCHARGED_KEYS && (keys > 0 || charge.keys == 0) {
            return Ok(());
        }
        charge.keys = keys;
        charge.part.takes(StoreSize { cache_bytes: keys * KEY_BYTES, ..StoreSize::default() })
    }

    /// Whether keys are charged, so that it must be settled again.
    pub(crate) fn is_charged(&self) -> bool {
        self.charge.lock().unwrap_or_else(PoisonError::into_inner).keys > 0
    }
}
