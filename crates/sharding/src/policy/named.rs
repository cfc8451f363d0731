//! Which clusters, groups and shards policies name of which there is nothing: whoever misspells one of several names
//! must learn that the policy does not hold for what was meant. Pure.

use std::collections::HashSet;

use model::{ClusterName, GroupName, ShardId};

use super::Policies;
use crate::api::ShardSelector;

/// The names that policies select by, without those of shards that were seen.
#[derive(Debug)]
pub(super) struct Unmatched<'p> {
    clusters: HashSet<&'p str>,
    groups: HashSet<&'p str>,
    named: HashSet<&'p (ClusterName, GroupName)>,
}

impl Policies {
    /// All names, while no shard is seen.
    pub(super) fn named(&self) -> Unmatched<'_> {
        let selectors = || self.policies.iter().filter_map(|policy| policy.spec.shards.as_ref());
        Unmatched {
            clusters: selectors().flat_map(|it| &it.clusters).map(String::as_str).collect(),
            groups: selectors().flat_map(|it| &it.groups).map(String::as_str).collect(),
            named: self.index.named.keys().collect(),
        }
    }
}

impl Unmatched<'_> {
    /// There is such a shard.
    pub(super) fn saw(&mut self, shard: &ShardId) {
        self.clusters.remove(shard.cluster.as_str());
        self.groups.remove(shard.group.as_str());
        if !self.named.is_empty() {
            self.named.remove(&(shard.cluster.clone(), shard.group.clone()));
        }
    }

    /// The first part of a selector of which no shard was seen. What is no name is told elsewhere.
    pub(super) fn part_of(&self, selector: &ShardSelector) -> Option<String> {
        let is_unseen = |name: &&String| {
            let shard: Option<ShardId> = name.parse().ok();
            shard.is_some_and(|shard| self.named.contains(&(shard.cluster, shard.group)))
        };
        let no_cluster = |name: &&String| {
            self.clusters.contains(name.as_str()) && name.parse::<ClusterName>().is_ok()
        };
        let no_group = |name: &&String| {
            self.groups.contains(name.as_str()) && name.parse::<GroupName>().is_ok()
        };
        let ShardSelector { clusters, groups, names } = selector;
        let cluster = clusters.iter().find(no_cluster).map(|name| format!("cluster {name}"));
        let group = || Some(format!("controller group {}", groups.iter().find(no_group)?));
        let shard = || Some(format!("shard {}", names.iter().find(is_unseen)?));
        cluster.or_else(group).or_else(shard)
    }
}
