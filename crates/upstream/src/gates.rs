//! The gates of engaged clusters, for status and metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use model::{ClusterName, Moment};

use super::gate::Gate;

/// The gates of all clusters. It keeps none of them alive. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Gates(Arc<Mutex<Watched>>);

#[derive(Debug, Default)]
struct Watched {
    by_cluster: BTreeMap<ClusterName, Weak<Gate>>,
    /// How many there were when those were removed that nobody keeps.
    swept: usize,
}

/// So many more clusters may come before those are removed that nobody keeps.
const UNSWEPT: usize = 64;

impl Gates {
    /// Adds the gate of a cluster, in place of an earlier one.
    pub fn watch(&self, cluster: &ClusterName, gate: &Arc<Gate>) {
        let mut gates = self.0.lock().expect("no holder of this lock panics");
        if gates.by_cluster.len() >= 2 * gates.swept + UNSWEPT {
            gates.by_cluster.retain(|_, gate| gate.strong_count() > 0);
            gates.swept = gates.by_cluster.len();
        }
        // A run may keep the gate of an earlier incarnation alive.
        gates.by_cluster.insert(cluster.clone(), Arc::downgrade(gate));
    }

    /// All of them, ordered by cluster.
    pub fn all(&self) -> Vec<(ClusterName, Arc<Gate>)> {
        let gates = self.0.lock().expect("no holder of this lock panics");
        let all = gates.by_cluster.iter();
        all.filter_map(|(of, gate)| Some((of.clone(), gate.upgrade()?))).collect()
    }

    /// The clusters that are left alone, and why, ordered by name.
    pub fn left_alone(&self, now: Moment) -> impl Iterator<Item = (ClusterName, Arc<str>)> {
        let closed = move |(cluster, gate): (ClusterName, Arc<Gate>)| {
            Some((cluster, gate.reading(now).closed_for?.cause))
        };
        self.all().into_iter().filter_map(closed)
    }
}
