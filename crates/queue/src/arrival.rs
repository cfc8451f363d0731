//! Keys on their way into a queue. Pure.

use std::hash::BuildHasher;

use foldhash::quality::RandomState;
use model::{Moment, ObjectKey};
use tracing::Span;

use super::priority::Priority;

/// A key that comes in.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) key: ObjectKey,
    /// Its hash among those of its cluster.
    pub(super) hash: u64,
    /// That of the primary object's uid, if it is known.
    pub(super) uid_hash: Option<u64>,
    pub(super) priority: Priority,
    pub(super) cause: Span,
    /// When it came.
    pub(super) at: Moment,
}

/// Hashes keys, each among those of its cluster. Clones give the same hashes.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyHasher(RandomState);

impl KeyHasher {
    pub(super) fn hash(&self, key: &ObjectKey) -> u64 {
        self.0.hash_one((&key.namespace, &key.name))
    }
}
