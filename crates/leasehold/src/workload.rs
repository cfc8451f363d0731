//! What sharding hears about this process: the work that the engine counts, and the clusters that fail.
//!
//! A cluster fails if the engine's requests fail, or if the registry's probes get no answer. The engine
//! asks only the clusters of which this process holds shards. The probes ask all, so that nobody is given
//! the shards of a cluster that does not answer it, and so that an owner notices that its idle watches
//! hang.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clusters::Clusters;
use engine::Meter;
use model::{Clock, ClusterName, Moment, ShardId, Work, Workload};

/// How long a cluster must be without an answer to probes before it counts as failing. Sharding reports it
/// ten seconds later, and then two probes in turn have failed: a single one may be lost.
const DOUBT: Duration = Duration::from_secs(8);

/// The work of this process and the clusters that fail it.
#[derive(Debug)]
pub(crate) struct ProcessWorkload {
    meter: Meter,
    clusters: Clusters,
    clock: Arc<dyn Clock>,
    /// Since when clusters do not answer the probes; at most those that are configured.
    silent: Mutex<BTreeMap<ClusterName, Moment>>,
}

impl ProcessWorkload {
    pub(crate) fn new(meter: Meter, clusters: Clusters, clock: Arc<dyn Clock>) -> Self {
        Self { meter, clusters, clock, silent: Mutex::default() }
    }

    /// The clusters that have not answered probes for a while.
    fn silent(&self) -> BTreeMap<ClusterName, Arc<str>> {
        let (status, now) = (self.clusters.status(), self.clock.now());
        let silent = status.clusters.iter().filter(|cluster| cluster.answers == Some(false));
        let mut since = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *since);
        let mut failing = BTreeMap::new();
        for cluster in silent {
            let first = before.get(&cluster.name).copied().unwrap_or(now);
            since.insert(cluster.name.clone(), first);
            if now.since(first) >= DOUBT {
                let reason = cluster.reason.clone().unwrap_or_default();
                failing.insert(cluster.name.clone(), reason);
            }
        }
        failing
    }
}

impl Workload for ProcessWorkload {
    fn measure(&self) -> BTreeMap<ShardId, Work> {
        self.meter.measure()
    }

    fn failing(&self) -> BTreeMap<ClusterName, Arc<str>> {
        let mut failing = self.silent();
        // The engine knows better than a probe how requests fail.
        failing.extend(self.meter.failing());
        failing
    }
}
