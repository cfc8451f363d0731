//! Classes: shards of one cluster of which people want the same stand alike with every member.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{ClusterName, MemberId};

use super::reach::{Fit, Preferences};
use super::{PlanMember, PlanShard};

/// The classes of all shards.
pub(super) struct Classes<'a> {
    all: Vec<Class<'a>>,
    /// The class of each shard, in their order.
    of: Vec<usize>,
}

struct Class<'a> {
    cluster: &'a ClusterName,
    preferences: Option<&'a Arc<Preferences>>,
}

impl<'a> Classes<'a> {
    /// Finds the classes of shards that are in the order of their clusters.
    pub(super) fn of(shards: &[&'a PlanShard]) -> Self {
        let mut classes = Self { all: Vec::new(), of: Vec::with_capacity(shards.len()) };
        let mut here: BTreeMap<Option<*const Preferences>, usize> = BTreeMap::new();
        for shard in shards {
            let (cluster, preferences) = (&shard.id.cluster, shard.preferences.as_ref());
            if classes.all.last().is_some_and(|last| last.cluster != cluster) {
                here.clear();
            }
            let class = *here.entry(preferences.map(Arc::as_ptr)).or_insert_with(|| {
                classes.all.push(Class { cluster, preferences });
                classes.all.len() - 1
            });
            classes.of.push(class);
        }
        classes
    }

    /// The class of each shard, in their order.
    pub(super) fn of_each(&self) -> impl Iterator<Item = usize> + '_ {
        self.of.iter().copied()
    }

    /// How a member stands with each class; `None` if it serves all, and is wanted in all.
    pub(super) fn fits(&self, id: &MemberId, member: &PlanMember) -> Option<Vec<Fit>> {
        let wanted = |class: &Class<'_>| {
            let preferences = class.preferences.and_then(|preferences| preferences.get(id));
            preferences.copied().unwrap_or(Fit::Serves)
        };
        if member.reach.is_whole() && self.all.iter().all(|class| wanted(class) == Fit::Serves) {
            return None;
        }
        let fit = |class: &Class<'_>| member.reach.of(class.cluster).min(wanted(class));
        Some(self.all.iter().map(fit).collect())
    }
}
