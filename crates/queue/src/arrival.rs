//! Keys on their way into a queue. Pure.

use std::hash::BuildHasher;

use foldhash::quality::RandomState;
use model::{ClusterName, Moment, ObjectKey};
use tracing::Span;

use super::item::Local;
use super::priority::Priority;

/// A key that comes in.
#[derive(Debug)]
pub(super) struct Arrival {
    /// Its cluster, unless that is the one of the key before it.
    pub(super) cluster: Option<ClusterName>,
    pub(super) key: Local,
    /// Its hash among those of its cluster.
    pub(super) hash: u64,
    /// That of the primary object's uid, if it is known.
    pub(super) uid_hash: Option<u64>,
    pub(super) priority: Priority,
    pub(super) cause: Span,
    /// When it came.
    pub(super) at: Moment,
}

/// Keys that have come, in order.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    keys: Vec<Arrival>,
    /// The cluster of the last of them.
    last: Option<ClusterName>,
}

impl Arrivals {
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// `arrival` has come, a key of that cluster.
    pub(super) fn push(&mut self, cluster: &ClusterName, arrival: Arrival) {
        let cluster = (self.last.as_ref() != Some(cluster)).then(|| cluster.clone());
        if cluster.is_some() {
            self.last.clone_from(&cluster);
        }
        self.keys.push(Arrival { cluster, ..arrival });
    }

    /// Puts them into `empty`, whose memory is for those that come next.
    pub(super) fn leave(&mut self, empty: &mut Vec<Arrival>) {
        self.last = None;
        std::mem::swap(&mut self.keys, empty);
    }
}

/// What hashes keys, each among those of its cluster. Clones give the same hashes.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyHasher(RandomState);

impl KeyHasher {
    pub(super) fn hash(&self, key: &ObjectKey) -> u64 {
        self.0.hash_one((&key.namespace, &key.name))
    }
}
