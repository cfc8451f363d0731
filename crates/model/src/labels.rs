//! Which clusters have metric label values of their own: those on which this member works, and of them a
//! limited number, because each value costs series.
//!
//! # Invariants
//! - A cluster has a value while somebody keeps it, the same value for all who do.
//! - At most `cap` clusters have values of their own; the others share [`OTHER_CLUSTERS`].
//! - A tenth of them is for work: clusters on which nobody works have the rest, for as long as a scrape takes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex};

use crate::ClusterName;

/// The label value of clusters past the cap.
pub const OTHER_CLUSTERS: &str = "other";
/// How many clusters have values of their own by default.
pub const DEFAULT_CLUSTER_LABELS: usize = 1_000;
/// How many clusters may have values of their own at most.
pub const MAX_CLUSTER_LABELS: usize = 10_000;

/// Gives clusters their label values, under a cap.
#[derive(Debug)]
pub struct ClusterLabels {
    cap: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    all: BTreeMap<ClusterName, Value>,
    /// How many of them have values of their own.
    named: usize,
}

#[derive(Debug)]
struct Value {
    keepers: usize,
    is_named: bool,
}

/// The label value of a cluster, kept until this is dropped.
#[derive(Debug)]
pub struct ClusterLabel {
    cluster: ClusterName,
    is_named: bool,
    labels: Arc<ClusterLabels>,
}

impl Default for ClusterLabels {
    fn default() -> Self {
        Self::new(DEFAULT_CLUSTER_LABELS)
    }
}

impl ClusterLabels {
    /// Gives at most `cap` clusters values of their own.
    pub fn new(cap: usize) -> Self {
        Self { cap, kept: Mutex::default() }
    }

    /// Keeps the label value of a cluster. One that shares a value goes on sharing it until nobody keeps it,
    /// so that its series do not change their names meanwhile.
    pub fn keep(self: &Arc<Self>, cluster: &ClusterName) -> ClusterLabel {
        self.keep_under(self.cap, cluster)
    }

    /// The same for a cluster on which nobody works, but of which a scrape says something. Give it back at the end of the
    /// scrape.
    pub fn keep_idle(self: &Arc<Self>, cluster: &ClusterName) -> ClusterLabel {
        self.keep_under(self.cap - self.cap / 10, cluster)
    }

    fn keep_under(self: &Arc<Self>, cap: usize, cluster: &ClusterName) -> ClusterLabel {
        let is_named = self.with(|kept| {
            let is_named = kept.named < cap;
            match kept.all.entry(cluster.clone()) {
                Entry::Occupied(value) => {
                    let value = value.into_mut();
                    value.keepers += 1;
                    value.is_named
                }
                Entry::Vacant(vacant) => {
                    vacant.insert(Value { keepers: 1, is_named });
                    kept.named += usize::from(is_named);
                    is_named
                }
            }
        });
        ClusterLabel { cluster: cluster.clone(), is_named, labels: Arc::clone(self) }
    }

    /// Whether somebody keeps the label value of a cluster.
    pub fn is_kept(&self, cluster: &ClusterName) -> bool {
        self.with(|kept| kept.all.contains_key(cluster))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Kept) -> T) -> T {
        act(&mut self.kept.lock().expect("no holder of this lock panics"))
    }
}

impl ClusterLabel {
    /// The value: the cluster's name, or [`OTHER_CLUSTERS`] past the cap.
    pub fn value(&self) -> &str {
        if self.is_named { self.cluster.as_str() } else { OTHER_CLUSTERS }
    }
}

impl Drop for ClusterLabel {
    fn drop(&mut self) {
        self.labels.with(|kept| {
            if let Entry::Occupied(mut value) = kept.all.entry(self.cluster.clone()) {
                value.get_mut().keepers -= 1;
                if value.get().keepers == 0 {
                    value.remove();
                    kept.named -= usize::from(self.is_named);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_past_the_cap_share_a_value_until_nobody_keeps_it() {
        let labels = Arc::new(ClusterLabels::new(2));
        let keep = |name: &str| labels.keep(&name.parse().unwrap());
        let (a, b, c) = (keep("a"), keep("b"), keep("c"));
        assert_eq!([a.value(), b.value(), c.value()], ["a", "b", OTHER_CLUSTERS]);
        let again = keep("a");
        drop(a);
        assert_eq!(keep("d").value(), OTHER_CLUSTERS, "somebody still keeps a");
        drop(again);
        assert!(!labels.is_kept(&"a".parse().unwrap()));
        assert_eq!(keep("c").value(), OTHER_CLUSTERS, "its series keep their name");
        drop(c);
        assert_eq!(keep("c").value(), "c");
        assert!(labels.is_kept(&"b".parse().unwrap()) && b.value() == "b");
    }

    #[test]
    fn clusters_on_which_nobody_works_leave_some_values_for_work() {
        let labels = Arc::new(ClusterLabels::new(20));
        let name = |number: usize| format!("c{number}").parse::<ClusterName>().unwrap();
        let idle: Vec<_> = (0..30).map(|number| labels.keep_idle(&name(number))).collect();
        let named = idle.iter().filter(|label| label.value() != OTHER_CLUSTERS).count();
        assert_eq!(named, 18);
        let kept = [40, 41, 42].map(|n| labels.keep(&name(n)));
        assert_eq!(kept.each_ref().map(ClusterLabel::value), ["c40", "c41", OTHER_CLUSTERS]);
    }

    #[test]
    fn no_cluster_has_a_value_of_its_own_with_a_cap_of_nothing() {
        let labels = Arc::new(ClusterLabels::new(0));
        assert_eq!(labels.keep(&"a".parse().unwrap()).value(), OTHER_CLUSTERS);
    }
}
