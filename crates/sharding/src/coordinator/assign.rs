//! The coordinator's plan: it weighs shards, and moves, splits and merges them.

use model::Moment;

use super::draft::Drafts;
use super::peers::Peers;
use super::{Coordinator, Plan, View};
use crate::api::ShardPath;
use crate::lease::LeaseState::Fresh;
use crate::planner::{self, Limits, Move, PlanShard};
use crate::ranges::{self, RangeChange, Situation};
use crate::weight::{self, OwnedShard, Points};

impl Coordinator {
    /// Plans over all shards that stay, and puts the result into the drafts.
    pub(super) fn assign(
        &mut self,
        view: &View<'_>,
        drafts: &mut Drafts<'_>,
        peers: &Peers<'_>,
        now: Moment,
        plan: &mut Plan,
    ) {
        let (shards, points) = self.weigh(drafts, peers, now);
        let proposal = planner::plan(&peers.roles, &peers.groups, &shards, &Limits::default());
        for step in &proposal.moves {
            begin_move(drafts, step);
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
            begin_range_change(drafts, &change);
            self.range_changes.insert(change);
        }
        // Plan again when a load is forgotten: halves may be idle then.
        for at in [Some(complete), self.loads.forgets()].into_iter().flatten() {
            if now < at {
                plan.wake_at(at);
            }
        }
    }

    fn weigh(
        &mut self,
        drafts: &Drafts<'_>,
        peers: &Peers<'_>,
        now: Moment,
    ) -> (Vec<PlanShard>, Vec<Points>) {
        let mut shards = Vec::new();
        let mut owned = Vec::new();
        for (shard, placement, owner) in drafts.values().flat_map(|draft| draft.planned(peers)) {
            let id = shard.clone();
            shards.push(PlanShard { id, weight: weight::BASE, divisible: 0, placement });
            let can_report = owner.is_some_and(|owner| peers.states.get(owner) == Some(&Fresh));
            owned.push(OwnedShard { shard, owner, can_report });
        }
        let points = self.loads.weigh(&owned, &peers.reported, now);
        for (shard, weight) in shards.iter_mut().zip(weight::weights(&points, peers.roles.len())) {
            (shard.weight, shard.divisible) = (weight.all, weight.divisible);
        }
        (shards, points)
    }
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
