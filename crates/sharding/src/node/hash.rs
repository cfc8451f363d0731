//! The hash of a [`Node`] covers what its decisions depend on: two nodes with the same hash, each
//! relative to its own `now`, act alike on the same inputs.
//!
//! The model checker recognises states by it. The code names every field, so that a new field must be
//! sorted in or out.

use std::hash::{Hash, Hasher};

use model::Moment;

use super::Node;

impl Hash for Node {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            // Constant for a process.
            config,
            groups: _,
            clusters,
            world,
            unread,
            // The home of the model never goes back, but it may have been away.
            history,
            reread,
            is_behind,
            // For logs and status; decisions depend on the world.
            problems: _,
            hindrance: _,
            membership,
            tracker,
            election,
            // Nobody edits Leases in the model.
            office: _,
            elsewhere: _,
            coordinator,
            // No group of the model has scope `Fleet`.
            written: _,
            floor,
            mass,
            // The model tells no time of day.
            wall: _,
            waited: _,
            planning,
            narrow_from,
            // Estimates. Their result is in the Member, which is part of the world. The model measures
            // no work.
            load: _,
            // Its result is in the Member too.
            failing: _,
            unusable: _,
            // No cluster of the model tells its identity.
            names: _,
            refused: _,
            disputed: _,
            reach,
            // It only saves writes that would change nothing.
            sent: _,
            noticed: _,
            // The people of the model want nothing.
            policies: _,
            shown: _,
            policy_changes: _,
            // For metrics and logs.
            handovers: _,
            notes: _,
            outbox,
            member_written,
            leave_by,
            cordon,
            departed,
            was_coordinating,
            // Jitter. No decision may depend on it.
            rng: _,
        } = self;
        (clusters, world, unread, tracker, election, coordinator).hash(state);
        (reach.said(), reread, is_behind).hash(state);
        (
            history.is_away(),
            history.open_until(config.lease, world.silence(config.lease, Moment::default())),
        )
            .hash(state);
        (membership.id(), membership.standing(), membership.renew_at()).hash(state);
        (narrow_from, outbox, member_written, leave_by, cordon, departed).hash(state);
        (was_coordinating, floor, mass).hash(state);
        // A plan from an older revision counts as none. The revision itself does not matter. What a plan
        // waits for beyond the own Lease is beyond the model's time: the objects of dead members go then.
        let beyond = membership.valid_until() + config.lease.duration;
        let plan = planning.holds(world.revision());
        plan.map(|(states, wake)| (states, wake.filter(|&at| at < beyond))).hash(state);
    }
}
