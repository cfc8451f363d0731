//! The coordinator's plan: it weighs shards, and moves, splits and merges them.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use model::{ClusterName, MemberId, Moment, Range};

use super::draft::{Causes, Drafts, FleetHolders};
use super::peers::Peers;
use super::{Coordinator, Plan, View};
use crate::api::{MAX_SHARDS, MoveCause, ShardPath};
use crate::lease::LeaseState::Fresh;
use crate::planner::{self, Fit, Move, PlanShard, Reach, Reason, Role};
use crate::problem;
use crate::ranges::{self, RangeChange, Situation};
use crate::weight::{self, OwnedShard, Points};

impl Coordinator {
    /// Plans over all shards that stay, and puts the result into the drafts. Returns why shards begin to move.
    pub(super) fn assign(
        &mut self,
        view: &View<'_>,
        drafts: &mut Drafts<'_>,
        peers: &Peers<'_>,
        holders: &FleetHolders,
        now: Moment,
        plan: &mut Plan,
    ) -> Causes {
        let mut causes = Causes::new();
        self.resting.prune(now);
        self.resting.follow(unserved(drafts, peers), now);
        let (shards, points) = self.weigh(view, drafts, peers, now);
        let limits = view.policies.limits(shards.len(), peers.roles.len());
        let proposal = planner::plan(&peers.roles, &peers.groups, &shards, &limits);
        let mut held_back = BTreeSet::new();
        for step in &proposal.moves {
            if waits_for_another(drafts, peers, holders, step) {
                held_back.insert(step.shard.group.clone());
                continue;
            }
            if step.reason == Reason::Unreached && fails_at_owner(drafts, peers, step) {
                self.resting.moved(&step.shard.cluster, now);
            }
            begin_move(drafts, step);
            causes.extend(MoveCause::of(step.reason).map(|cause| (step.shard.clone(), cause)));
        }
        let mut failing = Vec::new();
        for cluster in holders.unsettled(&held_back) {
            if let Some(draft) = drafts.get_mut(cluster) {
                draft.rewrite();
            }
            failing.extend(self.written.is_open(cluster).then_some(cluster));
        }
        plan.problems.extend(problem::unwritten(&failing, &held_back));
        // A cluster that has rested may go on.
        if let Some(at) = self.resting.next_end(now) {
            plan.wake_at(at);
        }
        let complete = view.since + weight::MEMORY;
        let range_changes = ranges::decide(&Situation {
            shards: &shards,
            groups: &peers.groups,
            points: &points,
            points_are_complete: now >= complete,
            proposal: &proposal,
            under_way: self.range_changes.len(),
        });
        for change in range_changes {
            if !self.has_room(drafts, &change) {
                continue;
            }
            begin_range_change(drafts, &change);
            let cause = match change {
                RangeChange::Split(_) => MoveCause::Split,
                RangeChange::Merge(_) => MoveCause::Merged,
            };
            causes.extend(change.parts().into_iter().map(|part| (part, cause)));
            self.range_changes.insert(change);
        }
        // Plan again when a load is forgotten: halves may be idle then.
        let merges = shards.iter().any(|shard| shard.id.range != Range::WHOLE).then_some(complete);
        for at in [merges, self.loads.forgets(now)].into_iter().flatten() {
            if now < at {
                plan.wake_at(at);
            }
        }
        self.last.planned(shards);
        causes
    }

    /// Whether the map has room for what becomes of a change: paused shards count too.
    fn has_room(&self, drafts: &Drafts<'_>, change: &RangeChange) -> bool {
        let cluster = &change.shard().cluster;
        let of_cluster = |other: &&RangeChange| matches!(other, RangeChange::Split(shard) if shard.cluster == *cluster);
        let begun = self.range_changes.iter().filter(of_cluster).count();
        let shards = drafts.get(cluster).map_or(0, |draft| draft.count());
        matches!(change, RangeChange::Merge(_)) || shards + begun < MAX_SHARDS
    }

    fn weigh(
        &mut self,
        view: &View<'_>,
        drafts: &Drafts<'_>,
        peers: &Peers<'_>,
        now: Moment,
    ) -> (Vec<PlanShard>, Vec<Points>) {
        let (mut shards, owners) = self.last.shards(drafts, peers);
        let members = view.world.members().iter().map(|(id, member)| (id, &member.spec));
        let mut placing = view.policies.placing(members);
        for (shard, owner) in shards.iter_mut().zip(owners.iter().copied()) {
            let cluster = &shard.id.cluster;
            let waits = |owner: &MemberId| self.resting.waits(cluster, owner, now);
            shard.rests = self.resting.rests(cluster, now) || owner.is_some_and(waits);
            shard.preferences = placing.of(&shard.id);
        }
        let fresh = peers.states.iter().filter(|(_, state)| **state == Fresh);
        let fresh: HashSet<&MemberId> = fresh.map(|(id, _)| id).collect();
        let owned = shards.iter().zip(owners).map(|(shard, owner)| OwnedShard {
            shard: shard.id.clone(),
            owner,
            can_report: owner.is_some_and(|owner| fresh.contains(owner)),
        });
        let owned: Vec<OwnedShard<'_>> = owned.collect();
        let mut points = self.loads.weigh(&owned, &peers.reported, now);
        let ranges = owned.iter().map(|owned| owned.shard.range);
        let mut levelled = weight::levelled(&points, ranges);
        for ((points, levelled), shard) in points.iter_mut().zip(&mut levelled).zip(&owned) {
            if let Some(busy) = view.policies.busy_of(&shard.shard) {
                *points = points.set(busy);
                *levelled = *points;
            }
        }
        let weights = weight::weights(&levelled, peers.roles.len());
        for (shard, weight) in shards.iter_mut().zip(weights) {
            (shard.weight, shard.divisible) = (weight.all, weight.divisible);
        }
        (shards, points)
    }
}

/// The owners that do not serve the cluster of a shard while another member does, with that cluster.
fn unserved(drafts: &Drafts<'_>, peers: &Peers<'_>) -> BTreeSet<(ClusterName, MemberId)> {
    let odd = peers.roles.iter().filter(|(_, member)| member.reach != Reach::default());
    let odd: BTreeMap<&MemberId, &Reach> = odd.map(|(id, member)| (id, &member.reach)).collect();
    if odd.is_empty() {
        return BTreeSet::new();
    }
    let owners = drafts
        .iter()
        .flat_map(|(&cluster, draft)| draft.owners().map(move |owner| (cluster, owner)));
    let is_off = |&(cluster, owner): &(&ClusterName, &MemberId)| {
        let fit = odd.get(owner).map(|reach| reach.of(cluster));
        matches!(fit, Some(Fit::Lacks | Fit::Fails))
    };
    let serves = |&(cluster, _): &(&ClusterName, &MemberId)| {
        let mut open = peers.roles.values().filter(|member| member.role == Role::Open);
        open.any(|member| member.reach.of(cluster) == Fit::Serves)
    };
    let unserved = owners.filter(is_off).filter(serves);
    unserved.map(|(cluster, owner)| (cluster.clone(), owner.clone())).collect()
}

/// Whether a shard without an owner is of a group of scope `Fleet` for which another member may still act. The
/// planner does not see shards that are paused and still drain, nor those in maps that nobody can read: one that such
/// a map binds to its owner stays there as long as it may.
fn waits_for_another(
    drafts: &Drafts<'_>,
    peers: &Peers<'_>,
    holders: &FleetHolders,
    Move { shard, to, reason }: &Move,
) -> bool {
    let draft = drafts.get(&shard.cluster);
    let owner = draft.and_then(|draft| draft.owner(&ShardPath::from(shard)));
    match owner {
        None => holders.has_another(&shard.group, to.as_ref(), peers),
        Some(_) if to.is_none() => false,
        Some(_) => {
            !matches!(reason, Reason::OwnerLeaves | Reason::TargetLost)
                && holders.is_bound_to_another(&shard.group, to.as_ref())
        }
    }
}

/// Whether a shard leaves an owner that has its cluster configured.
fn fails_at_owner(drafts: &Drafts<'_>, peers: &Peers<'_>, step: &Move) -> bool {
    let Move { shard, .. } = step;
    let draft = drafts.get(&shard.cluster);
    let owner = draft.and_then(|draft| peers.roles.get(draft.owner(&ShardPath::from(shard))?));
    owner.is_some_and(|owner| owner.reach.of(&shard.cluster) == Fit::Fails)
}

fn begin_move(drafts: &mut Drafts<'_>, step: &Move) {
    let Some(draft) = drafts.get_mut(&step.shard.cluster) else { return };
    draft.change(&ShardPath::from(&step.shard), |entry| match &step.to {
        Some(to) => entry.assign(to),
        None => entry.drain(None),
    });
}

/// Drains the parts of a split or merge: for their owner, or the owner of the first of two.
fn begin_range_change(drafts: &mut Drafts<'_>, change: &RangeChange) {
    let Some(draft) = drafts.get_mut(&change.shard().cluster) else { return };
    let parts: Vec<ShardPath> = change.parts().iter().map(ShardPath::from).collect();
    let next_owner = parts.first().and_then(|first| draft.owner(first)).cloned();
    for part in &parts {
        draft.change(part, |entry| entry.drain(next_owner.as_ref()));
    }
}
