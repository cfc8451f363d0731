//! A cluster in which nobody is primary: one is chosen, by proof. Pure.
//!
//! Keeps rule 1. The former primary is asked first: closed, it is itself the proof of what was committed,
//! and nobody's commits are thrown away. Only if it does not answer, or has sessions that wait for
//! acknowledgements it does not get, the other members decide, who then receive no more.

use super::*;
use crate::memory::{Member, Memory};
use crate::server::Look;

/// A member that may become primary.
struct Heir<'a> {
    member: &'a Member,
    look: &'a Look,
}

impl Observed {
    pub(super) fn choose(&self) -> Step {
        let former = self.memory.former.as_deref().unwrap_or_default();
        let Some(look) = self.own_look(former) else { return self.choose_by_members(former) };
        if look.is_writable && !planted!(self, OpenCountsAsClosed) {
            let gets_answers = self.is_served(former, look);
            return match look.waiting == 0 || gets_answers {
                true => Step::tell(former, Order::Close),
                false => self.choose_by_members(former),
            };
        }
        match look.waiting {
            0 => self.choose_after(former, look),
            _ => self.choose_by_members(former),
        }
    }

    /// The former primary is closed: who has all that it has may follow it.
    fn choose_after(&self, former: &str, sealed: &Look) -> Step {
        let heirs = self.answering(former);
        let heirs = heirs.filter(|heir| heir.look.received.contains(&sealed.received));
        if let Some(heir) = self.best(heirs).filter(|heir| !self.is_leaving(&heir.member.name)) {
            return self.elect(heir.member);
        }
        let arrives = |heir: &Heir<'_>| {
            heir.look.is_connected_to(former) && !self.is_leaving(&heir.member.name)
        };
        if let Some(heir) = self.answering(former).find(arrives) {
            let text = format!("{} receives the last commits of {former}", heir.member.name);
            return Waiting::moment("SwitchingOver", text);
        }
        self.reinstate(former).unwrap_or_else(|| self.choose_by_members(former))
    }

    /// The former primary is primary again: it has all that was acknowledged, closed or not.
    fn reinstate(&self, former: &str) -> Option<Step> {
        let stays = self.seen(former).is_some_and(|seen| seen.stays());
        let member = self.member(former).filter(|member| stays && self.own(member).is_some())?;
        Some(self.elect(member))
    }

    /// The former primary cannot be asked: the others receive no more, and one of them has it all.
    fn choose_by_members(&self, former: &str) -> Step {
        let missing: Vec<_> = self.missing_members(former).collect();
        let all: Vec<_> = self.answering(former).collect();
        if !self.is_enough(missing.len()) || all.is_empty() {
            if let Some(step) = self.reinstate(former) {
                return step;
            }
            let text = format!(
                "{former} was primary and cannot be asked; {} do not answer with their data \
                 either, and may have commits that nobody else has: see why they do not run",
                listed(missing)
            );
            return Waiting::stuck("QuorumLost", text);
        }
        let receiving = all.iter().find(|heir| heir.look.receives());
        if let Some(heir) = receiving.filter(|_| !planted!(self, StillReceiving)) {
            return Step::tell(&heir.member.name, Order::StopReceiving);
        }
        let has_all = |heir: &Heir<'_>| {
            let mut others = all.iter();
            others.all(|other| heir.look.received.contains(&other.look.received))
                || planted!(self, AnyHeir)
        };
        if let Some(heir) = self.best(self.answering(former).filter(has_all)) {
            return self.elect(heir.member);
        }
        match self.reinstate(former) {
            Some(step) => step,
            None => Waiting::stuck(
                "Diverged",
                format!(
                    "{} each have transactions that another of them does not have, and {former}, \
                     which was primary, cannot be asked: bring it back, or compare them \
                     (SELECT @@gtid_executed)",
                    listed(all.iter().map(|heir| heir.member.name.as_str()))
                ),
            ),
        }
    }

    /// The members besides the former primary that answer with their own data.
    fn answering<'a>(&'a self, former: &'a str) -> impl Iterator<Item = Heir<'a>> {
        self.others(former).filter_map(|member| Some(Heir { member, look: self.own(member)? }))
    }

    /// Who serves soonest and longest.
    fn best<'a>(&self, heirs: impl Iterator<Item = Heir<'a>>) -> Option<Heir<'a>> {
        heirs.min_by_key(|heir| {
            let name = &heir.member.name;
            let seen = self.seen(name);
            (
                self.is_leaving(name),
                heir.look.is_broken(),
                !seen.is_some_and(|seen| seen.stays()),
                self.wanted.primary.as_ref() != Some(name),
                !heir.look.has_applied_all(),
                !seen.and_then(|seen| seen.pod.as_ref()).is_some_and(|pod| pod.is_ready),
            )
        })
    }

    fn elect(&self, member: &Member) -> Step {
        let name = member.name.clone();
        let memory = Memory { primary: Some(name.clone()), former: None, ..self.memory.clone() };
        Step::remember(memory, Change::Elect(name))
    }
}
