//! The results of a controller's last writes, so that an object that still equals its result is not
//! written again.
//!
//! In memory only: to keep it in an annotation would be a second write of every object. What is
//! forgotten is at worst written once more, which changes nothing. Of what servers answer only digests are
//! kept, so that none of them fills the memory.

use std::hash::{BuildHasher, Hash, RandomState};

use model::ClusterName;
use quick_cache::sync::Cache;

/// How many writes are remembered, about 6 MB. Beyond it the least recently used are forgotten.
pub(crate) const MAX_REMEMBERED: usize = 1 << 16;

/// A part of an object that is written by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// All of it but the status, applied.
    Object,
    /// Its status, applied.
    Status,
    /// Fields of its status, patched, by a digest of their names.
    Fields(u64),
}

/// The result of a write, by its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// Of what was written.
    pub(crate) digest: u64,
    /// A digest of the object's version since.
    pub(crate) version: u64,
    /// A digest of what the part is since, if that is compared.
    pub(crate) content: Option<u64>,
}

/// The results of one controller's last writes.
pub(crate) struct Remembered {
    known: Cache<u64, Known>,
    /// Random, so that nobody outside can construct other content with the same digest.
    hasher: RandomState,
}

impl Default for Remembered {
    fn default() -> Self {
        Self { known: Cache::new(MAX_REMEMBERED), hasher: RandomState::new() }
    }
}

impl Remembered {
    /// The result of the last write of a part of an object.
    pub(crate) fn get(&self, cluster: &ClusterName, part: Part, uid: &impl Hash) -> Option<Known> {
        self.known.get(&self.key(cluster, part, uid))
    }

    /// Remembers the result of a write.
    pub(crate) fn keep(&self, cluster: &ClusterName, part: Part, uid: &impl Hash, known: Known) {
        self.known.insert(self.key(cluster, part, uid), known);
    }

    /// What digests the versions and contents that are compared.
    pub(crate) fn hasher(&self) -> &RandomState {
        &self.hasher
    }

    fn key(&self, cluster: &ClusterName, part: Part, uid: &impl Hash) -> u64 {
        self.hasher.hash_one((cluster, part, uid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_objects_are_remembered_apart_and_so_many_of_them() {
        let remembered = Remembered::default();
        let (east, west): (ClusterName, ClusterName) =
            ("east".parse().unwrap(), "west".parse().unwrap());
        let known = Known { digest: 1, version: 7, content: None };
        remembered.keep(&east, Part::Object, &0, known);
        assert!(remembered.get(&east, Part::Object, &0).is_some());
        assert!(remembered.get(&east, Part::Status, &0).is_none());
        assert!(remembered.get(&west, Part::Object, &0).is_none());
        for uid in 1..2 * MAX_REMEMBERED {
            remembered.keep(&east, Part::Object, &uid, known);
        }
        assert!(remembered.known.len() <= MAX_REMEMBERED);
        assert!(
            MAX_REMEMBERED * size_of::<(u64, Known)>() <= 4 << 20,
            "nothing of it is elsewhere"
        );
    }
}
