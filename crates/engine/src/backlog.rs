//! What the keys that wait for a controller in a cluster take of the cluster's budget.
//!
//! Informers charge each object for one waiting key, so keys of objects cost nothing here. A server can name
//! others without end: owners that do not exist, objects that come and go. Those are charged, because neither the
//! cache nor a shard that is not open yet bounds them. Keys of other clusters are charged to the cluster whose
//! objects name them (`outside`), not to the one that they are of.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cache::{Store, StoreSize};
use extent::{Overrun, Part};
use model::ClusterName;
use queue::{HashedKey, Priority};
use tracing::Span;

use crate::assignment::AssignmentQueue;
use crate::outside::Outside;

/// Bytes of a key that waits: the longest names there are, and its places in the queue. An estimate.
const KEY_BYTES: usize = 512;
/// So many keys more or less than are charged may wait: all clusters share one ledger.
const UNCHARGED_KEYS: usize = 64;
/// How often it is looked whether keys that were charged still wait.
pub(crate) const SETTLE_EVERY: Duration = Duration::from_secs(10);
/// How often a few keys are added of a cluster whose objects have named many elsewhere.
const MANY_EVERY: Duration = Duration::from_secs(1);

/// The keys of one controller in one cluster, and what is charged for them.
#[derive(Debug)]
pub(crate) struct Backlog {
    cluster: ClusterName,
    queue: Arc<AssignmentQueue>,
    /// The stores of the primary kind.
    primary: Arc<[Store]>,
    outside: Arc<Outside>,
    /// Keys that were added since it was settled.
    unsettled: AtomicUsize,
    /// Whether a task waits to settle it, beside the handlers.
    is_settling: AtomicBool,
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
        outside: Arc<Outside>,
        part: Part,
    ) -> Self {
        let (unsettled, charge) = (AtomicUsize::new(0), Mutex::new(Charge { keys: 0, part }));
        let is_settling = AtomicBool::new(false);
        Self { cluster, queue, primary, outside, unsettled, is_settling, charge }
    }

    /// Queues keys that objects of the cluster concern, a few at a time.
    ///
    /// # Errors
    /// As [`Self::settle`]. The rest is not queued: the cluster is left alone.
    pub(crate) async fn add(
        &self,
        keys: &[HashedKey],
        priority: Priority,
        cause: &Span,
    ) -> Result<(), Overrun> {
        for keys in keys.chunks(UNCHARGED_KEYS) {
            let many = self.name(keys);
            self.queue.add(keys, priority, cause).await;
            // What did not wait yet may have been forgotten meanwhile.
            self.name(keys);
            self.added(keys.len())?;
            if many {
                // A change of all objects of a hub is no reason to leave it alone, if others take it in.
                tokio::time::sleep(MANY_EVERY).await;
            }
        }
        Ok(())
    }

    /// Keeps which of these keys are of other clusters and of no object there. Returns whether many such keys wait.
    fn name(&self, keys: &[HashedKey]) -> bool {
        let is_outside = |(key, hash): &&HashedKey| hash.is_none() && key.cluster != self.cluster;
        let outside: Vec<_> = keys.iter().filter(is_outside).map(|(key, _)| key.clone()).collect();
        !outside.is_empty() && self.outside.add(&self.cluster, outside, &self.queue)
    }

    /// So many keys were added: once they are more than a few, the cluster is charged for what waits.
    fn added(&self, keys: usize) -> Result<(), Overrun> {
        let before = self.unsettled.fetch_add(keys, Ordering::Relaxed);
        if before + keys < UNCHARGED_KEYS { Ok(()) } else { self.settle() }
    }

    /// Charges the cluster for the keys that wait now.
    ///
    /// # Errors
    /// If that exceeds its budget.
    fn settle(&self) -> Result<(), Overrun> {
        self.unsettled.store(0, Ordering::Relaxed);
        let objects: usize = self.primary.iter().map(Store::len).sum();
        let waiting = self.queue.waiting(&self.cluster);
        let (elsewhere, of_others) = self.outside.count(&self.cluster, waiting, &self.queue);
        let keys = waiting.saturating_sub(objects + of_others) + elsewhere;
        let mut charge = self.charge.lock().unwrap_or_else(PoisonError::into_inner);
        if charge.keys.abs_diff(keys) < UNCHARGED_KEYS && (keys > 0 || charge.keys == 0) {
            return Ok(());
        }
        charge.keys = keys;
        charge.part.takes(StoreSize { cache_bytes: keys * KEY_BYTES, ..StoreSize::default() })
    }

    /// Gives back what was charged for keys that wait no more. Of an overrun the supervisor knows.
    pub(crate) fn settle_again(&self) {
        self.outside.sweep(&self.cluster, &self.queue);
        let _ = self.settle();
    }

    /// Whether the caller may wait to settle it: one at a time, because each looks at all that the cluster has named.
    pub(crate) fn begin_settling(&self) -> bool {
        !self.is_settling.swap(true, Ordering::SeqCst)
    }

    /// Settles it. Then another may wait.
    pub(crate) fn end_settling(&self) {
        self.is_settling.store(false, Ordering::SeqCst);
        self.settle_again();
    }

    /// Whether keys are charged, so that it must be settled again.
    pub(crate) fn is_charged(&self) -> bool {
        self.charge.lock().unwrap_or_else(PoisonError::into_inner).keys > 0
    }
}
