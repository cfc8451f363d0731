//! What of a [`Node`] decides, as its hash: two nodes that hash alike, each relative to its own
//! `now`, do alike whatever happens to both.
//!
//! The model checker tells by it whether it has been in a state before. Every field is named: one
//! that is added must be put on one side or the other.

use std::hash::{Hash, Hasher};

use super::Node;

impl Hash for Node {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            // The same for a process throughout.
            config: _,
            groups: _,
            clusters,
            down_clusters,
            world,
            unread,
            // For logs and whoever asks; what decides is the world.
            problems: _,
            membership,
            tracker,
            election,
            coordinator,
            floor,
            planned,
            // Estimates, which change only where work is measured; what they amount to is told in
            // the Member, which is part of the world. The model measures none.
            load: _,
            // Told in the Member as well.
            trouble: _,
            // For metrics and logs.
            ledger: _,
            notes: _,
            outbox,
            member_written,
            leave_by,
            drain,
            departed,
            was_coordinating,
            // Jitter, of which no decision may hang.
            rng: _,
        } = self;
        (clusters, down_clusters, world, unread, tracker, election, coordinator).hash(state);
        (membership.id(), membership.standing(), membership.renew_at()).hash(state);
        (outbox, member_written, leave_by, drain, departed, was_coordinating, floor).hash(state);
        // A plan from an older revision is as good as none; revisions themselves only count up.
        let current = planned.as_ref().filter(|plan| plan.is_of(world.revision()));
        current.map(super::lead::Planned::holds).hash(state);
    }
}
