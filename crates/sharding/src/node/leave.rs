//! Leaving: everything is handed over, then given back, then cleaned up.

use model::Moment;

use super::Node;
use crate::handle::Departure;
use crate::lease::{self, COORDINATOR};
use crate::member::Standing;
use crate::record::{Kind, Object, Target, Write};

impl Node {
    /// Goes through the stages of leaving, each when the one before is done: all shards are with
    /// others; the coordinator's Lease is given back; our own is; our Member is deleted.
    pub(super) fn leave(&mut self, now: Moment) {
        let Some(leave_by) = self.leave_by else { return };
        if self.departed.is_some() {
            return;
        }
        if now >= leave_by {
            self.give_up();
            return;
        }
        match self.membership.standing() {
            Standing::Joining => {
                let name = lease::member_lease_name(self.membership.id());
                if !self.outbox.is_in_flight(&Target { kind: Kind::Lease, name }) {
                    self.membership.end();
                    self.departed = Some(Departure::HandedOver);
                }
            }
            Standing::Holding { .. } if self.world.is_synced() && self.is_free() => {
                if self.coordinator().as_ref() == Some(self.membership.id()) {
                    self.release(COORDINATOR, now);
                } else if self.release(&lease::member_lease_name(self.membership.id()), now) {
                    // Before the release is sent: from here on we act for nothing.
                    self.membership.end();
                    self.tracker.restart(self.membership.id().clone());
                }
            }
            Standing::Holding { .. } => {}
            Standing::Gone => self.clean_up(now),
        }
    }

    /// Whether nothing is ours any more, by the maps and by what we hold.
    fn is_free(&self) -> bool {
        let warming = |held: &model::Holding| held.hold == model::Hold::Warming;
        !self.owns_any()
            && !self.tracker.withholds_any()
            && self.tracker.owned().holdings.values().all(warming)
    }

    pub(super) fn release(&mut self, name: &str, now: Moment) -> bool {
        let Some(held) = self.world.leases().get(name) else { return false };
        let write = Write::Replace(Object::Lease(held.record.released()));
        self.outbox.offer(write, now)
    }

    /// After the own Lease was given back: repeat that if it failed, then delete the Member.
    fn clean_up(&mut self, now: Moment) {
        let id = self.membership.id().clone();
        let name = lease::member_lease_name(&id);
        if self.outbox.is_in_flight(&Target { kind: Kind::Lease, name: name.clone() }) {
            return;
        }
        let held = self.world.lease_of(&id).map(|lease| lease.record.holder.as_deref());
        if held == Some(Some(id.as_str())) {
            self.release(&name, now);
            return;
        }
        match self.world.members().get(&id) {
            Some(member) => {
                let target = Target { kind: Kind::Member, name: id.as_str().to_owned() };
                self.outbox.offer(Write::Delete(target, member.version.clone()), now);
            }
            None => self.departed = Some(Departure::HandedOver),
        }
    }

    fn give_up(&mut self) {
        // If the Lease was given back, what is left undone is cosmetic.
        let handed_over = self.membership.standing() == Standing::Gone;
        self.membership.end();
        self.tracker.restart(self.membership.id().clone());
        self.departed =
            Some(if handed_over { Departure::HandedOver } else { Departure::Abandoned });
    }
}
