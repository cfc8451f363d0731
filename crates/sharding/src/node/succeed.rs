//! Whose process has ended; and what the next process of a container does about the one before.
//!
//! That its predecessors have ended is known to this process alone, so it does not leave their Leases to
//! the coordinator: it takes them itself, by compare-and-swap against the version that it read. Everybody
//! sees then who has them, and the coordinator moves the shards, as after every takeover (S5).

use model::{MemberId, Moment};

use super::{Node, Note};
use crate::death::Ended;
use crate::record::{Object, Write};

impl Node {
    /// Whether home can say anything of the members' containers.
    pub(crate) fn names_containers(&self) -> bool {
        self.world.members().values().any(|member| member.spec.container.is_some())
    }

    pub(super) fn learn_of_ended(&mut self, ended: Vec<Ended>) {
        let before: Vec<MemberId> = self.dead().cloned().collect();
        self.world.learn_of_ended(ended);
        let new: Vec<_> = self.dead().filter(|dead| !before.contains(dead)).cloned().collect();
        self.notes.extend(new.into_iter().map(Note::Ended));
    }

    fn dead(&self) -> impl Iterator<Item = &MemberId> {
        self.world.members().keys().filter(|member| self.world.is_dead(member))
    }

    pub(super) fn succeed(&mut self, now: Moment) {
        let me = self.membership.id();
        let held = self.world.predecessors().filter_map(|member| {
            let lease = self.world.lease_of(member)?;
            (lease.record.holder.as_deref() == Some(member.as_str())).then_some(&lease.record)
        });
        let taken: Vec<_> =
            held.map(|lease| lease.taken_by(me, self.config.lease.duration)).collect();
        for lease in taken {
            self.outbox.offer(Write::Replace(Object::Lease(lease)), now);
        }
    }
}

#[cfg(test)]
#[path = "succeed_tests.rs"]
mod tests;
