//! The gates of engaged clusters, for status and metrics.

use std::sync::{Arc, Mutex, Weak};

use model::{ClusterName, Moment};

use super::gate::Gate;

/// The gates of all clusters. It keeps none of them alive. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Gates(Arc<Mutex<Vec<Watched>>>);

/// A cluster and the gate before it.
type Watched = (ClusterName, Weak<Gate>);

impl Gates {
    /// Adds the gate of a cluster, in place of an earlier one.
    pub fn watch(&self, cluster: &ClusterName, gate: &Arc<Gate>) {
        let mut gates = self.0.lock().expect("no holder of this lock panics");
        // A run may keep the gate of an earlier incarnation alive.
        gates.retain(|(of, old)| of != cluster && old.strong_count() > 0);
        gates.push((cluster.clone(), Arc::downgrade(gate)));
    }

    /// All of them, ordered by cluster.
    pub fn all(&self) -> Vec<(ClusterName, Arc<Gate>)> {
        let gates = self.0.lock().expect("no holder of this lock panics");
        let alive = gates.iter().filter_map(|(of, gate)| Some((of.clone(), gate.upgrade()?)));
        let mut gates: Vec<_> = alive.collect();
        gates.sort_by(|(a, _), (b, _)| a.cmp(b));
        gates
    }

    /// The clusters that are left alone, and why, ordered by name.
    pub fn left_alone(&self, now: Moment) -> impl Iterator<Item = (ClusterName, Arc<str>)> {
        let closed = move |(cluster, gate): (ClusterName, Arc<Gate>)| {
            Some((cluster, gate.reading(now).closed_for?.cause))
        };
        self.all().into_iter().filter_map(closed)
    }
}
