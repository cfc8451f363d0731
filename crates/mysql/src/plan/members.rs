//! Changes of the list of members. Pure.
//!
//! Keeps rules 3 and 4: H holds after each change. What the primary had sent is known from the round
//! before, in which it was looked at last: who received nothing then has acknowledged nothing besides. That
//! includes commits that still wait: the one that leaves may have acknowledged them, and is counted.

use super::*;
use crate::memory::{Member, Memory};
use crate::names::MAX_INSTANCES;
use crate::observed::Earlier;
use crate::server::Look;

impl Observed {
    /// Whether so many of these members have what the primary had sent when it waited for so many already:
    /// what it sends since has as many acknowledgements.
    pub(super) fn holds(&self, primary: &str, members: &[Member], acks: u32) -> bool {
        let others = members.iter().filter(|member| member.name != primary);
        let needed = others.clone().count().min(acks as usize);
        let holders = others.filter(|member| {
            let look = self.seen(&member.name).and_then(|seen| seen.answer());
            look.is_some_and(|look| look.uuid == member.uuid && self.is_caught_up(look))
        });
        let waited = self.earlier().is_some_and(|earlier| {
            let waits = planted!(self, RaiseBeforeServer) || earlier.waits_for >= acks;
            waits || planted!(self, RaiseLookedTooEarly)
        });
        waited && holders.count() >= needed
    }

    /// Whether it has received what the primary had sent the round before.
    pub(super) fn is_caught_up(&self, look: &Look) -> bool {
        self.earlier().is_some_and(|earlier| look.received.contains(&earlier.sent))
    }

    /// The round before, if the same one was primary.
    fn earlier(&self) -> Option<&Earlier> {
        let primary = self.member(self.memory.primary.as_deref()?);
        self.earlier.as_ref().filter(|earlier| Some(&earlier.primary) == primary)
    }

    /// Whether this member receives nothing now, and did not when the primary was looked at.
    fn was_silent(&self, member: &Member) -> bool {
        let now = self.seen(&member.name).is_none_or(|seen| seen.is_silent(member));
        now && self.earlier().is_some_and(|earlier| earlier.silent.contains(&member.name))
    }

    /// Takes an instance into the list, in the place of the one that had its name. H needs no more than
    /// that it is caught up: then it has what the lost one counted for.
    pub(super) fn admit(&self, name: &str, look: &Look) -> Step {
        let wait = |why: &str| Waiting::moment("Joining", format!("{name} joins: {why}"));
        let stale = self.member(name);
        if stale.is_some_and(|stale| !self.was_silent(stale)) {
            return wait("it is looked at once more");
        }
        if stale.is_none() && self.memory.members.len() >= MAX_INSTANCES {
            return Waiting::stuck("TooMany", format!("{name} waits for a member to leave"));
        }
        let others = self.memory.members.iter().filter(|member| member.name != name);
        let joined = Member { name: name.to_owned(), uuid: look.uuid.clone() };
        let members: Vec<_> = others.cloned().chain([joined]).collect();
        if !self.is_caught_up(look) && !planted!(self, MembersWithoutBarrier) {
            return wait("commits still arrive");
        }
        let memory = Memory { members, ..self.memory.clone() };
        Step::remember(memory, Change::Join(name.to_owned()))
    }

    /// Takes a member from the list that is one too many: it serves until the others do without it.
    pub(super) fn release(&self, primary: &str, member: &Member) -> Step {
        let name = &member.name;
        let others: Vec<_> = self.others(primary).filter(|other| other.name != *name).collect();
        let needed = others.len().min(self.memory.acks as usize);
        let serving = others.iter().filter(|other| self.serves(primary, other)).count();
        let serve = match self.own(member) {
            Some(look) if serving < needed => self.attach(primary, name, look, true),
            _ => None,
        };
        serve.unwrap_or_else(|| match serving < needed && !self.was_silent(member) {
            true => Waiting::moment("Leaving", format!("{name} leaves when others take its place")),
            false => self.dismiss(primary, member, "it is one too many"),
        })
    }

    /// Takes all these from the list at once, when the primary does not get its acknowledgements: each may
    /// stand in the way of the other, as none has what is asked of those that stay.
    pub(super) fn dismiss_all(&self, primary: &str, going: &[&Member]) -> Option<Step> {
        let first = going.first()?;
        let members = self.memory.members.iter().filter(|member| !going.contains(member));
        let members: Vec<_> = members.cloned().collect();
        let is_safe = going.iter().all(|member| self.was_silent(member))
            && self.holds(primary, &members, self.memory.acks);
        let memory = Memory { members, ..self.memory.clone() };
        is_safe.then(|| Step::remember(memory, Change::Leave(first.name.clone())))
    }

    /// Takes a member from the list.
    pub(super) fn dismiss(&self, primary: &str, member: &Member, why: &str) -> Step {
        let name = &member.name;
        let look = self.own(member);
        if look.is_some_and(Look::receives) && !planted!(self, LeavesReceiving) {
            return Step::tell(name, Order::StopReceiving);
        }
        let members = self.memory.members.iter().filter(|other| other.name != *name);
        let members: Vec<_> = members.cloned().collect();
        let is_safe = (self.was_silent(member) || planted!(self, LeavesReceiving))
            && self.holds(primary, &members, self.memory.acks);
        if !is_safe && !planted!(self, MembersWithoutBarrier) {
            let text = format!("{name} leaves ({why}) when the others have what it may have");
            return Waiting::moment("Leaving", text);
        }
        let memory = Memory { members, ..self.memory.clone() };
        Step::remember(memory, Change::Leave(name.clone()))
    }
}
