//! The names under which this member may not act: see [`crate::identity`].

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{ClusterName, DisputedNames, Moment};

use super::{Node, Note};
use crate::identity::Identities;

/// The most names of clusters that are said to be wrong.
const MAX_SAID: usize = 64;

impl Node {
    /// The clusters said who they are.
    pub(super) fn identified(&mut self, identities: Identities) {
        if *self.names.own() != identities {
            self.names.learn(identities);
            self.planning.afresh();
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
            let said = self.names.problems().take(MAX_SAID).collect();
            let known = std::mem::replace(&mut self.refused, said);
            let new = self.refused.iter().filter(|text| !known.contains(text)).cloned();
            self.notes.extend(new.map(Note::Problem));
            let old = known.into_iter().filter(|text| !self.refused.contains(text));
            self.notes.extend(old.map(Note::Solved));
            self.disputed = Arc::new(self.names.disputed());
        }
        for cluster in turned {
            self.tracker.refuse(&cluster, self.names.refuses(&cluster));
            changed.insert(cluster);
        }
    }

    /// The names of clusters that stand for others than this member's.
    pub(crate) fn disputed(&self) -> &Arc<DisputedNames> {
        &self.disputed
    }

    /// What is wrong with names of clusters. It is those clusters' trouble alone: the member is as ready as
    /// without them.
    pub(crate) fn refused(&self) -> &[String] {
        &self.refused
    }
}
