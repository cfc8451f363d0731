//! What the member learns of processes that have ended ([`crate::death`]).

use model::MemberId;

use super::{Node, Note};
use crate::death::Ended;

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
}

#[cfg(test)]
#[path = "end_tests.rs"]
mod tests;
