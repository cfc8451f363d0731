//! Which clusters have metric label values of their own: those on which this member works, and of them a
//! limited number, because each value costs series.
//!
//! # Invariants
//! - A cluster has a value while somebody claims it, the same value for all who do.
//! - At most `cap` clusters have values of their own; the others share [`OTHER_CLUSTERS`].

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
    claims: Mutex<Claims>,
}

#[derive(Debug, Default)]
struct Claims {
    all: BTreeMap<ClusterName, Claim>,
    /// How many of them have values of their own.
    named: usize,
}

#[derive(Debug)]
struct Claim {
    claimants: usize,
    is_named: bool,
}

/// A claim to the label value of a cluster, until it is dropped.
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
        Self { cap, claims: Mutex::default() }
    }

    /// Claims the label value of a cluster. One that shares a value keeps sharing it until nobody claims it,
    /// so that its series do not change their names meanwhile.
    pub fn claim(self: &Arc<Self>, cluster: &ClusterName) -> ClusterLabel {
        let is_named = self.with(|claims| {
            let is_named = claims.named < self.cap;
            match claims.all.entry(cluster.clone()) {
                Entry::Occupied(claim) => {
                    let claim = claim.into_mut();
                    claim.claimants += 1;
                    claim.is_named
                }
                Entry::Vacant(vacant) => {
                    vacant.insert(Claim { claimants: 1, is_named });
                    claims.named += usize::from(is_named);
                    is_named
                }
            }
        });
        ClusterLabel { cluster: cluster.clone(), is_named, labels: Arc::clone(self) }
    }

    /// Whether somebody claims the label value of a cluster.
    pub fn is_claimed(&self, cluster: &ClusterName) -> bool {
        self.with(|claims| claims.all.contains_key(cluster))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Claims) -> T) -> T {
        act(&mut self.claims.lock().expect("no holder of this lock panics"))
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
        self.labels.with(|claims| {
            if let Entry::Occupied(mut claim) = claims.all.entry(self.cluster.clone()) {
                claim.get_mut().claimants -= 1;
                if claim.get().claimants == 0 {
                    claim.remove();
                    claims.named -= usize::from(self.is_named);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_past_the_cap_share_a_value_until_nobody_claims_them() {
        let labels = Arc::new(ClusterLabels::new(2));
        let claim = |name: &str| labels.claim(&name.parse().unwrap());
        let (a, b, c) = (claim("a"), claim("b"), claim("c"));
        assert_eq!([a.value(), b.value(), c.value()], ["a", "b", OTHER_CLUSTERS]);
        let again = claim("a");
        drop(a);
        assert_eq!(claim("d").value(), OTHER_CLUSTERS, "somebody still claims a");
        drop(again);
        assert!(!labels.is_claimed(&"a".parse().unwrap()));
        assert_eq!(claim("c").value(), OTHER_CLUSTERS, "its series keep their name");
        drop(c);
        assert_eq!(claim("c").value(), "c");
        assert!(labels.is_claimed(&"b".parse().unwrap()) && b.value() == "b");
    }

    #[test]
    fn no_cluster_has_a_value_of_its_own_with_a_cap_of_nothing() {
        let labels = Arc::new(ClusterLabels::new(0));
        assert_eq!(labels.claim(&"a".parse().unwrap()).value(), OTHER_CLUSTERS);
    }
}
