//! How long what a reconcile has found out is this member's to show: as long as it holds the key's shard at the same
//! epoch, and is not about to give it up.

use std::fmt;
use std::sync::Arc;

use crate::{Epoch, Ownership, Purpose, ShardId};

/// The time in which this member holds the shard of a reconcile. Clones are the same.
#[derive(Clone)]
pub struct Validity {
    ownership: Arc<dyn Ownership>,
    shard: ShardId,
    epoch: Epoch,
    label: String,
}

impl Validity {
    /// While `shard` is held at `epoch`, in a cluster with this label value.
    pub fn new(ownership: Arc<dyn Ownership>, shard: ShardId, epoch: Epoch, label: String) -> Self {
        Self { ownership, shard, epoch, label }
    }

    /// Whether it goes on.
    pub fn lasts(&self) -> bool {
        self.ownership.permit(&self.shard, self.epoch, Purpose::Dispatch).is_ok()
    }

    /// The cluster's label value in metrics: its name, or `other` if it has no series of its own.
    pub fn cluster_label(&self) -> &str {
        &self.label
    }
}

impl fmt::Debug for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Validity").field("shard", &self.shard).field("epoch", &self.epoch).finish()
    }
}
