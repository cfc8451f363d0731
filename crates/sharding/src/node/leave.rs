//! Leaving: the member hands over its shards, gives its Lease back and deletes its Member.

use model::Moment;

use super::Node;
use crate::lease::{self, COORDINATOR};
use crate::member::{Departure, Standing};
use crate::record::{Kind, Object, Target, Write};

impl Node {
    /// Goes through the stages of leaving, one after the other: wait until others have all shards, give
    /// back the coordinator's Lease, give back the own Lease, delete the Member.
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
                    if self.silent_until(now).is_some() {
                        // The next coordinator may know of no change, and not wait.
                        return;
                    }
                    self.release(COORDINATOR, now);
                } else if self.release(&lease::member_lease_name(self.membership.id()), now) {
                    // Before the release is sent: from here on the member acts for no shard.
                    self.membership.end();
                    self.tracker.restart(self.membership.id().clone());
                }
            }
            Standing::Holding { .. } => {}
            Standing::Gone => self.clean_up(now),
        }
    }

    /// Whether the member has no shard any more, by the maps and by its holdings.
    fn is_free(&self) -> bool {
        let warming = |held: &model::Holding| held.hold == model::Hold::Warming;
        !self.owns_any()
            && !self.tracker.withholds_any()
            && self.tracker.owned().holdings.values().all(warming)
    }

    pub(super) fn release(&mut self, name: &str, now: Moment) -> bool {
        let Some(held) = self.world.leases().get(name) else { return false };
        let mut released = held.record.released();
        if name == COORDINATOR {
            // What somebody wrote there meanwhile is undone.
            released.installation = Some(self.config.installation.clone());
            if self.silent_until(now).is_none() {
                released.floor = released.floor.raised(self.world.highest_floor());
            }
        }
        let write = Write::Replace(Object::Lease(released));
        self.outbox.offer(write, now)
    }

    /// After giving back the own Lease: repeats that if it failed, then deletes the Member.
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
        // If the Lease was given back, only cosmetic steps are left.
        let handed_over = self.membership.standing() == Standing::Gone;
        self.membership.end();
        self.tracker.restart(self.membership.id().clone());
        self.departed =
            Some(if handed_over { Departure::HandedOver } else { Departure::Abandoned });
    }
}
