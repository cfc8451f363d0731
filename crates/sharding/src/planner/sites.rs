//! Sites: shards of one cluster of which people want the same stand alike with every member.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{ClusterName, MemberId};

use super::reach::{Fit, Preferences};
use super::{PlanMember, PlanShard};

/// The sites of all shards.
pub(super) struct Sites<'a> {
    all: Vec<Site<'a>>,
    /// The site of each shard, in their order.
    of: Vec<usize>,
}

struct Site<'a> {
    cluster: &'a ClusterName,
    preferences: Option<&'a Arc<Preferences>>,
}

impl<'a> Sites<'a> {
    /// Finds the sites of shards that are in the order of their clusters.
    pub(super) fn of(shards: &[&'a PlanShard]) -> Self {
        let mut sites = Self { all: Vec::new(), of: Vec::with_capacity(shards.len()) };
        let mut here: BTreeMap<Option<*const Preferences>, usize> = BTreeMap::new();
        for shard in shards {
            let (cluster, preferences) = (&shard.id.cluster, shard.preferences.as_ref());
            if sites.all.last().is_some_and(|last| last.cluster != cluster) {
                here.clear();
            }
            let site = *here.entry(preferences.map(Arc::as_ptr)).or_insert_with(|| {
                sites.all.push(Site { cluster, preferences });
                sites.all.len() - 1
            });
            sites.of.push(site);
        }
        sites
    }

    /// The site of each shard, in their order.
    pub(super) fn of_each(&self) -> impl Iterator<Item = usize> + '_ {
        self.of.iter().copied()
    }

    /// How a member stands with each site; `None` if it serves all, and is wanted in all.
    pub(super) fn fits(&self, id: &MemberId, member: &PlanMember) -> Option<Vec<Fit>> {
        let wanted = |site: &Site<'_>| {
            let preferences = site.preferences.and_then(|preferences| preferences.get(id));
            preferences.copied().unwrap_or(Fit::Serves)
        };
        if member.reach.is_whole() && self.all.iter().all(|site| wanted(site) == Fit::Serves) {
            return None;
        }
        let fit = |site: &Site<'_>| member.reach.of(site.cluster).min(wanted(site));
        Some(self.all.iter().map(fit).collect())
    }
}
