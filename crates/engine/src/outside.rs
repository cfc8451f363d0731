//! The keys that objects of one cluster name in others, and that nothing else accounts for: no object of that name is
//! cached there. Each counts against the cluster whose objects name it, for as long as it waits.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::{ClusterName, ObjectKey};

use crate::assignment::AssignmentQueue;

/// So many keys of a cluster are kept before it is looked whether they still wait.
const UNSWEPT_KEYS: usize = 1024;
/// With so many, others come slowly: half of what the default budget has room for.
const MANY_KEYS: usize = 64 << 10;

/// Those of one controller.
#[derive(Debug, Default)]
pub(crate) struct Outside(Mutex<Named>);

#[derive(Debug, Default)]
struct Named {
    by: BTreeMap<ClusterName, ByCluster>,
    /// How many keys of each cluster others have named.
    of: BTreeMap<ClusterName, usize>,
}

/// What the objects of one cluster name.
#[derive(Debug, Default)]
struct ByCluster {
    keys: HashSet<ObjectKey>,
    /// How many were left when those went that waited no more.
    swept: usize,
}

impl Outside {
    fn named(&self) -> MutexGuard<'_, Named> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Objects of a cluster name keys. Returns whether many wait that they have named.
    pub(crate) fn add(
        &self,
        cluster: &ClusterName,
        keys: Vec<ObjectKey>,
        queue: &AssignmentQueue,
    ) -> bool {
        let mut named = self.named();
        let Named { by, of } = &mut *named;
        let by = &mut by.entry(cluster.clone()).or_default().keys;
        for key in keys {
            if by.insert(key.clone()) {
                *of.entry(key.cluster).or_default() += 1;
            }
        }
        if by.len() <= MANY_KEYS {
            return false;
        }
        named.sweep(|by| by == cluster, queue);
        named.by.get(cluster).is_some_and(|by| by.keys.len() > MANY_KEYS)
    }

    /// Forgets what a cluster has named and waits no more.
    pub(crate) fn sweep(&self, by: &ClusterName, queue: &AssignmentQueue) {
        self.named().sweep(|source| source == by, queue);
    }

    /// How many keys a cluster has named elsewhere, and how many others have named there, of which so many keys wait.
    pub(crate) fn count(
        &self,
        cluster: &ClusterName,
        waiting: usize,
        queue: &AssignmentQueue,
    ) -> (usize, usize) {
        let mut named = self.named();
        let is_large = |by: &ByCluster| by.keys.len() > UNSWEPT_KEYS + 2 * by.swept;
        if named.by.get(cluster).is_some_and(is_large) {
            named.sweep(|by| by == cluster, queue);
        }
        // Who named them may be gone.
        if named.of.get(cluster).is_some_and(|of| *of > waiting) {
            named.sweep(|_| true, queue);
        }
        let by = named.by.get(cluster).map_or(0, |by| by.keys.len());
        (by, named.of.get(cluster).copied().unwrap_or_default())
    }
}

impl Named {
    /// Forgets what waits no more of what these clusters have named.
    fn sweep(&mut self, of_these: impl Fn(&ClusterName) -> bool, queue: &AssignmentQueue) {
        let Self { by, of } = self;
        by.retain(|source, ByCluster { keys, swept }| {
            if of_these(source) {
                keys.retain(|key| {
                    let waits = queue.is_waiting(key);
                    if !waits && let Some(of) = of.get_mut(&key.cluster) {
                        *of -= 1;
                    }
                    waits
                });
                *swept = keys.len();
            }
            !keys.is_empty()
        });
        of.retain(|_, keys| *keys > 0);
    }
}
