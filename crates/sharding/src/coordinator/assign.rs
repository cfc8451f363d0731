//! The coordinator's plan: shards are weighed, moved, split and merged.

use model::Moment;

use super::draft::Drafts;
use super::peers::Peers;
use super::{Coordinator, Plan, View};
use crate::api::ShardPath;
use crate::lease::LeaseState::Fresh;
use crate::planner::{self, Limits, Move, Unit};
use crate::ranges::{self, Reshape, Situation};
use crate::weight::{self, Owned};

impl Coordinator {
    /// Plans over all wanted shards and puts what follows into the drafts.
    pub(super) fn assign(
        &mut self,
        view: &View<'_>,
        drafts: &mut Drafts<'_>,
        peers: &Peers<'_>,
        now: Moment,
        plan: &mut Plan,
    ) {
        let (units, points) = self.weigh(drafts, peers, now);
        let proposal = planner::plan(&peers.roles, &peers.groups, &units, &Limits::default());
        for step in &proposal.moves {
            begin_move(drafts, step);
        }
        let complete = view.since + weight::MEMORY;
        let reshapes = ranges::decide(&Situation {
            units: &units,
            groups: &peers.groups,
            points: &points,
            points_are_complete: now >= complete,
            proposal: &proposal,
            under_way: self.reshaping.len(),
        });
        for reshape in reshapes {
            begin_reshape(drafts, &reshape);
            self.reshaping.insert(reshape);
        }
        // What is remembered of loads counts until it is forgotten; then halves may be idle.
        for at in [Some(complete), self.scales.forgets()].into_iter().flatten() {
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
    ) -> (Vec<Unit>, Vec<u32>) {
        let mut units = Vec::new();
        let mut owned = Vec::new();
        for (shard, place, owner) in drafts.values().flat_map(|draft| draft.planned(peers)) {
            units.push(Unit { shard: shard.clone(), weight: weight::BASE, place });
            let heard = owner.is_some_and(|owner| peers.states.get(owner) == Some(&Fresh));
            owned.push(Owned { shard, owner, heard });
        }
        let points = self.scales.weigh(&owned, &peers.told, now);
        for (unit, weight) in units.iter_mut().zip(weight::weights(&points, peers.roles.len())) {
            unit.weight = weight;
        }
        (units, points)
    }
}

fn begin_move(drafts: &mut Drafts<'_>, step: &Move) {
    let Some(draft) = drafts.get_mut(&step.shard.cluster) else { return };
    draft.change(&ShardPath::from(&step.shard), |entry| match &step.to {
        Some(to) => entry.assign(to),
        None => entry.drain(None),
    });
}

/// Drains what is to be replaced, for the present owner; of two, for the owner of the first.
fn begin_reshape(drafts: &mut Drafts<'_>, reshape: &Reshape) {
    let Some(draft) = drafts.get_mut(&reshape.shard().cluster) else { return };
    let parts: Vec<ShardPath> = reshape.parts().iter().map(ShardPath::from).collect();
    let heir = parts.first().and_then(|first| draft.owner(first)).cloned();
    for part in &parts {
        draft.change(part, |entry| entry.drain(heir.as_ref()));
    }
}
