//! Which Leases of home a member watches.
//!
//! Each member renews its Lease every few seconds. If all watched all Leases, what home sends would grow with
//! the square of the members. Only a coordinator judges by the Leases of others, so in a large fleet only the
//! coordinator and a few heirs watch them all. The others watch the coordinator's Lease; their own they know
//! from the answers to their renewals.
//!
//! # Why this is enough
//! - Only a member that has listed all Leases coordinates (`may_coordinate`). Who begins to watch them judges
//!   each from that list on, by its own clock: it waits for a whole silence before it takes one (S5).
//! - The heirs are the first members by id that could coordinate, as everybody's Members say: nobody elects
//!   them, and it does no harm if two members differ about them.
//! - If no heir takes office, the coordinator's Lease stays run out, and then everybody watches all Leases and
//!   may stand for election.

use std::collections::BTreeSet;

use model::{Living, Moment};

use super::Node;
use crate::lease::COORDINATOR;
use crate::member::identity_of;
use crate::world::LeasesSeen;

/// How many members besides the coordinator watch all Leases. With up to this many and one, all do.
pub const HEIRS: usize = 7;

impl Node {
    /// Decides which Leases to watch. More at once; fewer only after a Lease's time without a reason for more,
    /// because each change lists Leases anew.
    pub(super) fn look_at_leases(&mut self, now: Moment) {
        let is_narrow = self.world.leases_seen() == LeasesSeen::Coordinator;
        if self.needs_all_leases(now) {
            self.narrow_from = None;
            if is_narrow {
                self.world.see_all_leases();
            }
        } else if !is_narrow {
            let from = *self.narrow_from.get_or_insert(now + self.config.lease.duration);
            if now >= from {
                self.world.see_coordinators_lease(self.membership.id());
                self.history.sees_coordinators_lease();
            }
        }
    }

    /// The processes that may live, as far as this member sees; nobody knows while it has no Lease.
    pub(crate) fn living(&self, now: Moment) -> Living {
        if !self.membership.is_valid(now) {
            return Living::default();
        }
        let states = self.world.lease_states(self.config.lease, now);
        let gone: BTreeSet<_> =
            states.filter(|(_, state)| !state.is_alive()).map(|(member, _)| member).collect();
        let members = self.world.members().keys().filter(|member| !gone.contains(member));
        Living::these(members.map(|member| identity_of(member).to_owned()).collect())
    }

    fn needs_all_leases(&self, now: Moment) -> bool {
        self.world.members().len() <= HEIRS + 1
            || self.leave_by.is_some()
            || !self.membership.is_valid(now)
            || self.is_coordinator(now)
            || self.is_heir()
            || !self.is_led(now)
    }

    fn is_heir(&self) -> bool {
        let me = self.membership.id();
        let members = self.world.members().iter();
        let heirs = members.filter(|(id, member)| self.could_coordinate(id, &member.spec));
        heirs.take(HEIRS).any(|(id, _)| id == me)
    }

    /// Whether somebody coordinates, or an heir still has time to take office.
    fn is_led(&self, now: Moment) -> bool {
        let timings = self.config.lease;
        self.world.leases().get(COORDINATOR).is_some_and(|lease| {
            let patience = lease.lasts(timings) + timings.renew_interval;
            lease.record.holder.is_some() && now < lease.changed + patience
        })
    }
}
