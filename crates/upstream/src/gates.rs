//! The gates of engaged clusters, for status and metrics.

use std::sync::{Arc, Mutex};

use model::{ClusterName, Moment, WeakMap};

use super::gate::Gate;

/// The gates of all clusters. It keeps none of them alive. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Gates(Arc<Mutex<WeakMap<ClusterName, Gate>>>);

impl Gates {
    /// Adds the gate of a cluster, in place of an earlier one.
    pub fn watch(&self, cluster: &ClusterName, gate: &Arc<Gate>) {
        let mut gates = self.0.lock().expect("no holder of this lock panics");
        // A run may keep the gate of an earlier incarnation alive.
        gates.insert(cluster.clone(), gate);
    }

    /// All of them, ordered by cluster.
    pub fn all(&self) -> Vec<(ClusterName, Arc<Gate>)> {
        let gates = self.0.lock().expect("no holder of this lock panics");
        gates.iter().map(|(of, gate)| (of.clone(), gate)).collect()
    }

    /// The clusters that are left alone, and why, ordered by name.
    pub fn left_alone(&self, now: Moment) -> impl Iterator<Item = (ClusterName, Arc<str>)> {
        let closed = move |(cluster, gate): (ClusterName, Arc<Gate>)| {
            Some((cluster, gate.reading(now).closed_for?.cause))
        };
        self.all().into_iter().filter_map(closed)
    }
}
