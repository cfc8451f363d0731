//! Which clusters have metric label values of their own: a limited number, because each value
//! costs series.

use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::ClusterName;

/// The label value of clusters past the cap.
pub const OTHER_CLUSTERS: &str = "other";

/// Gives clusters their label values, under a cap.
#[derive(Debug)]
pub struct ClusterLabels {
    cap: usize,
    named: Mutex<BTreeSet<ClusterName>>,
}

impl ClusterLabels {
    /// Gives at most `cap` clusters values of their own.
    pub fn new(cap: usize) -> Self {
        Self { cap, named: Mutex::new(BTreeSet::new()) }
    }

    /// The label value of a cluster: its name, or [`OTHER_CLUSTERS`] past the cap.
    pub fn of<'a>(&self, cluster: &'a ClusterName) -> &'a str {
        let mut named = self.named.lock().expect("no holder of this lock panics");
        if named.contains(cluster) {
            return cluster.as_str();
        }
        if named.len() >= self.cap {
            return OTHER_CLUSTERS;
        }
        named.insert(cluster.clone());
        cluster.as_str()
    }

    /// Frees the value of a cluster that is gone. Returns whether it had one.
    pub fn release(&self, cluster: &ClusterName) -> bool {
        self.named.lock().expect("no holder of this lock panics").remove(cluster)
    }
}
