//! What managers send in the model, and what arrives of it: at once, late, or not at all.

use super::world::{Sent, World};
use crate::memory::Memory;
use crate::planted::Bug;
use crate::server::Order;

impl World {
    /// An order arrives. Only the session that has the lock is heard.
    pub(super) fn order(&mut self, server: usize, run: u32, session: u64, order: &Order) {
        let target = &self.servers[server];
        let is_heard = target.lock == Some(session) || self.planted(Bug::NoLock);
        if !target.is_up || target.run != run || !is_heard {
            self.tell(|| format!("db-{server} does not hear {order:?}"));
            return;
        }
        self.tell(|| format!("db-{server} is told {order:?}"));
        if let Order::CloneFrom(donor) = order {
            return self.replace(server, self.place(donor));
        }
        let names = self.names.clone();
        let place = |name: &str| names.iter().position(|known| known == name).unwrap();
        let told = self.servers[server].obey(order, place);
        self.acknowledged.extend(told);
    }

    fn replace(&mut self, server: usize, donor: usize) {
        let (from, fails) = (self.servers[donor].clone(), self.rng.u8(..5) == 0);
        let known = self.servers[server].uuid;
        let uuid = self.uuid();
        // It ends only when no commit waits at its donor.
        let goes = from.is_up && from.waiting() == 0 && self.reaches(server, donor);
        if !goes || server == donor {
            return;
        }
        let keeps = self.planted(Bug::CloneKeepsUuid) || self.planted(Bug::MemberCloned);
        let uuid = if keeps { known } else { uuid };
        // A clone that breaks off has thrown the data away before.
        if fails {
            self.servers[server].lose(uuid);
            return;
        }
        self.servers[server].clone_from_donor(&from, uuid);
    }

    /// The memory is written, unless it has changed since this version of it.
    pub(super) fn write_memory(&mut self, version: usize, memory: &Memory) -> bool {
        let is_current = version + 1 == self.memories.len();
        if is_current {
            self.tell(|| format!("remembered: {memory:?}"));
            self.memories.push(memory.clone());
        }
        is_current
    }

    /// Something that was sent long ago arrives.
    pub(super) fn arrive(&mut self) {
        if self.sent.is_empty() {
            return;
        }
        let which = self.rng.usize(..self.sent.len());
        match self.sent.swap_remove(which) {
            Sent::Order { server, run, session, order } => {
                self.order(server, run, session, &order);
            }
            Sent::Memory { version, memory } => {
                self.write_memory(version, &memory);
            }
        }
    }
}
