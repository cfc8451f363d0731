//! What a plan takes over from the one before it: the clusters in which nothing has changed.
//!
//! A large fleet has thousands of clusters, and between two plans few of them change. The others need not be brought up
//! to date, and the planner sees the same shards of them.
//!
//! # Why the result is that of a plan from scratch
//! A cluster is taken over only if each of its shards was planned and settled at its owner. Bringing such a cluster up to
//! date changes it only if one of these changes, and each is compared:
//! - its entries: they are those that were planned, in the same memory, which nobody can change while it is shared;
//! - the groups that there are;
//! - that its map should stay;
//! - that no owner of its shards lost its Lease for good, and that no member acknowledges a drain there.
//!
//! Everything else is judged in each plan, for all shards: roles of members, loads, what rests, what people want, and
//! for which cluster a map stands. `an_incremental_plan_is_that_from_scratch` compares the two.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use model::{ClusterName, GroupName, MemberId};

use super::draft::Drafts;
use super::peers::Peers;
use crate::api::ShardPath;
use crate::handover::Entry;
use crate::planner::PlanShard;
use crate::weight;
use crate::world::World;

/// What is known from the last plan.
#[derive(Clone, Debug, Default)]
pub(super) struct LastPlan {
    /// The groups that there were.
    groups: Vec<GroupName>,
    /// The entries of the clusters that may be taken over.
    settled: BTreeMap<ClusterName, Arc<BTreeMap<ShardPath, Entry>>>,
    /// All shards that were planned, in the order of their ids.
    shards: Vec<PlanShard>,
}

impl LastPlan {
    /// Tells the drafts of clusters in which nothing has changed.
    pub(super) fn compare(&mut self, drafts: &mut Drafts<'_>, peers: &Peers<'_>, world: &World) {
        if !self.groups.iter().eq(peers.groups.keys()) {
            let groups = peers.groups.keys().cloned().collect();
            *self = Self { groups, ..Self::default() };
        }
        let over: BTreeSet<&MemberId> =
            world.owners().keys().filter(|owner| peers.is_over(owner)).collect();
        for (cluster, entries) in &self.settled {
            if !peers.acknowledge_in(cluster)
                && let Some(draft) = drafts.get_mut(cluster)
            {
                draft.compare(entries, &over);
            }
        }
    }

    /// The shards to plan, in the order of their ids, each with its owner. All weigh the same.
    pub(super) fn shards<'d>(
        &mut self,
        drafts: &'d Drafts<'_>,
        peers: &'d Peers<'_>,
    ) -> (Vec<PlanShard>, Vec<Option<&'d MemberId>>) {
        let mut shards = Vec::with_capacity(self.shards.len());
        let mut owners = Vec::with_capacity(self.shards.len());
        let mut last = std::mem::take(&mut self.shards).into_iter().peekable();
        self.settled.clear();
        for (&cluster, draft) in drafts {
            let begun = shards.len();
            if draft.is_as_before() {
                while last.next_if(|shard| shard.id.cluster < *cluster).is_some() {}
                while let Some(shard) = last.next_if(|shard| shard.id.cluster == *cluster) {
                    shards.push(shard);
                }
                owners.extend(draft.owners().map(Some));
            } else {
                for (id, placement, owner) in draft.planned(peers) {
                    let former = owner.is_none().then(|| draft.last_owner(&id)).flatten();
                    let before = former.and_then(|former| peers.successor(former)).cloned();
                    owners.push(owner);
                    shards.push(PlanShard {
                        id,
                        weight: weight::BASE,
                        divisible: 0,
                        placement,
                        rests: false,
                        before,
                        preferences: None,
                    });
                }
            }
            if let Some(entries) = draft.settled(&shards[begun..]) {
                self.settled.insert(cluster.clone(), entries);
            }
        }
        debug_assert_eq!(shards.len(), owners.len());
        (shards, owners)
    }

    /// Takes in the shards that were planned.
    pub(super) fn planned(&mut self, shards: Vec<PlanShard>) {
        self.shards = shards;
    }
}

impl Hash for LastPlan {
    /// Hashes nothing: it saves time, and no decision depends on it.
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
