//! The gates of engaged clusters, for those who look at them from outside.

use std::sync::{Arc, Mutex, Weak};

use model::{ClusterName, Moment};

use super::gate::Gate;

/// A list that holds no gate alive. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gates(Arc<Mutex<Vec<Weak<Gate>>>>);

impl Gates {
    /// Adds one, in the place of an earlier one of its cluster.
    pub(crate) fn watch(&self, gate: &Arc<Gate>) {
        let mut gates = self.0.lock().expect("no holder of this lock panics");
        // Of an earlier incarnation a gate may live on for as long as somebody runs there.
        gates.retain(|old| old.upgrade().is_some_and(|old| old.cluster() != gate.cluster()));
        gates.push(Arc::downgrade(gate));
    }

    /// All of them, ordered by cluster.
    pub(crate) fn all(&self) -> Vec<Arc<Gate>> {
        let gates = self.0.lock().expect("no holder of this lock panics");
        let mut gates: Vec<_> = gates.iter().filter_map(Weak::upgrade).collect();
        gates.sort_by(|a, b| a.cluster().cmp(b.cluster()));
        gates
    }

    /// The clusters that are left alone, and why, ordered by name.
    pub(crate) fn left_alone(&self, now: Moment) -> impl Iterator<Item = (ClusterName, Arc<str>)> {
        let closed = move |gate: Arc<Gate>| {
            let refusal = gate.reading(now).closed_for?;
            Some((gate.cluster().clone(), refusal.cause))
        };
        self.all().into_iter().filter_map(closed)
    }
}
