//! The names under which this member may not act: see [`crate::identity`].

use std::collections::BTreeSet;

use model::{ClusterName, Moment};

use super::Node;
use crate::identity::Identities;

impl Node {
    /// The clusters said who they are.
    pub(super) fn identified(&mut self, identities: Identities) {
        if *self.names.own() != identities {
            self.names.learn(identities);
            self.planned = None;
        }
    }

    /// Takes in what the changed maps say, and adds the clusters under whose name this member may act no
    /// longer, or again.
    pub(super) fn follow_names(&mut self, changed: &mut BTreeSet<ClusterName>, now: Moment) {
        for cluster in changed.iter() {
            self.names.observe(cluster, self.world.maps().get(cluster));
        }
        let turned = self.names.follow(&self.world, now);
        if !turned.is_empty() {
            // They are among the problems.
            self.problems.0 = u64::MAX;
        }
        for cluster in turned {
            self.tracker.refuse(&cluster, self.names.refuses(&cluster));
            changed.insert(cluster);
        }
    }
}
