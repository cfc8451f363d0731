//! The keys that objects of one cluster name in others, and that nothing else accounts for: no object of that name is
//! cached there. Each counts against the cluster whose objects name it, for as long as it waits.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::{ClusterName, ObjectKey};
use queue::WorkQueue;

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
    /// The keys of each cluster that others have named, and how many have.
    of: BTreeMap<ClusterName, HashMap<ObjectKey, usize>>,
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
        queue: &WorkQueue<impl Clone>,
    ) -> bool {
        let mut named = self.named();
        let Named { by, of } = &mut *named;
        let by = &mut by.entry(cluster.clone()).or_default().keys;
        for key in keys {
            if by.insert(key.clone()) {
                *of.entry(key.cluster.clone()).or_default().entry(key).or_default() += 1;
            }
        }
        if by.len() <= MANY_KEYS {
            return false;
        }
        named.sweep(|by| by == cluster, queue);
        named.by.get(cluster).is_some_and(|by| by.keys.len() > MANY_KEYS)
    }

    /// Forgets what a cluster has named and waits no more.
    pub(crate) fn sweep(&self, by: &ClusterName, queue: &WorkQueue<impl Clone>) {
        self.named().sweep(|source| source == by, queue);
    }

    /// How many keys a cluster has named elsewhere, and how many others have named there, of which so many keys wait.
    pub(crate) fn count(
        &self,
        cluster: &ClusterName,
        waiting: usize,
        queue: &WorkQueue<impl Clone>,
    ) -> (usize, usize) {
        let mut named = self.named();
        let is_large = |by: &ByCluster| by.keys.len() > UNSWEPT_KEYS + 2 * by.swept;
        if named.by.get(cluster).is_some_and(is_large) {
            named.sweep(|by| by == cluster, queue);
        }
        // Who named them may be gone. As this looks at what all have named, it is done once most wait no more, and not
        // after each few that are done.
        if named.of.get(cluster).is_some_and(|of| of.len() > 2 * waiting) {
            named.sweep(|_| true, queue);
        }
        let by = named.by.get(cluster).map_or(0, |by| by.keys.len());
        (by, named.of.get(cluster).map_or(0, HashMap::len))
    }
}

impl Named {
    /// Forgets what waits no more of what these clusters have named.
    fn sweep(&mut self, of_these: impl Fn(&ClusterName) -> bool, queue: &WorkQueue<impl Clone>) {
        let Self { by, of } = self;
        by.retain(|source, ByCluster { keys, swept }| {
            if of_these(source) {
                keys.retain(|key| {
                    let waits = queue.is_waiting(key);
                    if !waits
                        && let Some(of) = of.get_mut(&key.cluster)
                        && let Some(times) = of.get_mut(key)
                    {
                        *times -= 1;
                        if *times == 0 {
                            of.remove(key);
                        }
                    }
                    waits
                });
                *swept = keys.len();
            }
            !keys.is_empty()
        });
        of.retain(|_, keys| !keys.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use metrics::Metrics;
    use model::testing::PausedClock;
    use model::{Epoch, Range, ShardId};
    use queue::{Limits, Priority, RateLimiter};
    use tracing::Span;

    use super::*;

    fn queue() -> WorkQueue<()> {
        let controller = "c".parse().unwrap();
        let metrics = Metrics::new(&prometheus::Registry::new(), Arc::default()).unwrap();
        let metrics = metrics.queue(&controller);
        let limits = Limits { per_cluster: 1, total: 1 };
        let retries = (RateLimiter::default(), fastrand::Rng::with_seed(1));
        WorkQueue::new(controller, limits, retries, PausedClock::new(), metrics)
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_no_more_is_looked_for_once_it_is_most() {
        let (queue, outside) = (queue(), Outside::default());
        let [east, hub]: [ClusterName; 2] = ["east", "hub"].map(|name| name.parse().unwrap());
        let key = |name: &str| ObjectKey::new(east.clone(), Some("ns"), name);
        outside.add(&hub, ["a", "b", "c"].map(key).into(), &queue);
        assert_eq!(outside.count(&east, 2, &queue), (0, 3));
        assert_eq!(outside.count(&east, 1, &queue), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_two_clusters_name_counts_once_until_both_have_forgotten_it() {
        let queue = queue();
        let east: ClusterName = "east".parse().unwrap();
        let (cluster, group) = (east.clone(), "g".parse().unwrap());
        let shard = ShardId { cluster, group, range: Range::WHOLE };
        queue.warm(&shard, Epoch(1), ());
        let key = ObjectKey::new(east, Some("ns"), "a");
        queue.add(&[(key.clone(), None)], Priority::Change, &Span::none()).await;
        let outside = Outside::default();
        let sources = ["hub-a", "hub-b"].map(|name| name.parse::<ClusterName>().unwrap());
        for source in &sources {
            assert!(!outside.add(source, vec![key.clone()], &queue));
        }
        assert_eq!(outside.count(&key.cluster, 1, &queue), (0, 1));
        assert_eq!(outside.count(&sources[0], 0, &queue), (1, 0));
        queue.close(&shard);
        outside.sweep(&sources[0], &queue);
        assert_eq!(outside.count(&key.cluster, 1, &queue), (0, 1), "the other names it still");
        assert_eq!(outside.count(&key.cluster, 0, &queue), (0, 0));
    }
}
