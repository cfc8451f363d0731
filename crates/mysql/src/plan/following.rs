//! Instances besides an open primary: they follow it, join, leave, and are cloned when their data is of
//! no use. Pure.
//!
//! Keeps rules 4 and 5: only a member acknowledges, nothing received is dropped before it is applied, and
//! nobody is cloned over who is a member.

use std::time::Duration;

use super::*;
use crate::ailment::Ailment;
use crate::memory::Member;
use crate::observed::InstanceSeen;
use crate::server::{Look, Receives};

/// For how long replication has ended with an error before the instance is made anew.
const BROKEN: Duration = Duration::from_secs(60);

impl Observed {
    /// What the instances besides the primary need, each.
    pub(super) fn follow(&self, primary: &str, source: &Look) -> Vec<Step> {
        let others = self.instances.iter().filter(|seen| seen.name != primary);
        let gone = self.others(primary).filter(|member| {
            self.is_leaving(&member.name)
                && self.seen(&member.name).is_none_or(|seen| seen.answer().is_none())
        });
        let steps = others.filter_map(|seen| {
            // What is open, or has sessions that wait, is not touched before it has ended.
            let look = seen.answer().filter(|look| !look.is_writable && look.waiting == 0)?;
            self.guide(primary, source, seen, look)
        });
        let leaving = gone.map(|member| self.dismiss(primary, member, "it is one too many"));
        steps.chain(leaving).chain(self.let_go(primary, source)).collect()
    }

    /// Lets all members go that are of no use, if the primary waits for them in vain.
    fn let_go(&self, primary: &str, source: &Look) -> Option<Step> {
        if self.is_served(primary, source) {
            return None;
        }
        let is_useless = |member: &&Member| match self.own(member) {
            Some(look) => {
                self.is_errant(source, look) || self.is_hopeless(primary, &member.name, look)
            }
            None => self.is_leaving(&member.name),
        };
        let going: Vec<_> = self.others(primary).filter(is_useless).collect();
        self.dismiss_all(primary, &going)
    }

    fn guide(
        &self,
        primary: &str,
        source: &Look,
        seen: &InstanceSeen,
        look: &Look,
    ) -> Option<Step> {
        let name = &seen.name;
        let listed = self.member(name);
        let member = listed.filter(|member| member.uuid == look.uuid);
        let flaw = self.flaw(primary, source, name, look);
        if self.is_leaving(name) {
            // Without a place in the list it goes as soon as its Pod does.
            let listed = listed?;
            return Some(match flaw {
                None if member.is_some() => self.release(primary, listed),
                _ => self.dismiss(primary, listed, "it is one too many"),
            });
        }
        let clone = || match self.instances.iter().find(|seen| seen.is_cloning()) {
            // A donor has no more than one at a time.
            Some(other) => {
                Waiting::step("Joining", format!("{name} is cloned after {}", other.name))
            }
            None => Step::tell(name, Order::CloneFrom(primary.to_owned())),
        };
        match (member, flaw) {
            (Some(_), Some(_)) if planted!(self, MemberCloned) => Some(clone()),
            (Some(member), Some(flaw)) => Some(self.dismiss(primary, member, flaw)),
            (Some(_), None) => self.attach(primary, name, look, true),
            (None, Some(_)) => Some(clone()),
            (None, None) => {
                let acknowledges = planted!(self, AcknowledgesEarly);
                let step = self.attach(primary, name, look, acknowledges);
                Some(step.unwrap_or_else(|| match look.is_connected_to(primary) {
                    true => self.admit(name, look),
                    false => Waiting::moment("Joining", format!("{name} connects")),
                }))
            }
        }
    }

    /// Why an instance's data is of no use.
    pub(super) fn flaw(
        &self,
        primary: &str,
        source: &Look,
        name: &str,
        look: &Look,
    ) -> Option<&'static str> {
        if self.is_errant(source, look) {
            return Some("it has transactions that the primary does not have");
        }
        let is_member = self.member(name).is_some_and(|member| member.uuid == look.uuid);
        if !is_member && look.received.is_empty() && !source.executed.is_empty() {
            return Some("it is empty");
        }
        // One after the other: it may not be their data.
        let mut others = self.instances.iter().filter(|seen| seen.name != primary);
        let first = others.find(|seen| seen.answer().is_some_and(Look::is_broken));
        let is_first = first.is_some_and(|first| first.name == name);
        (is_first && self.is_hopeless(primary, name, look))
            .then_some("its replication ended with an error")
    }

    /// Whether it has what the primary does not have. What the primary numbered itself it may have sent
    /// before it committed it.
    fn is_errant(&self, source: &Look, look: &Look) -> bool {
        let foreign = look.received.difference(&source.executed).without(&source.uuid);
        !foreign.is_empty() && !planted!(self, ErrantKept)
    }

    /// Whether it has failed to replicate from this primary for long. What it says of an earlier one, as that
    /// it could not connect, is nothing that its data is to blame for.
    fn is_hopeless(&self, primary: &str, name: &str, look: &Look) -> bool {
        let unwell = self.unwell(name);
        let follows = look.following.as_ref().is_some_and(|following| following.source == primary);
        follows
            && look.is_broken()
            && unwell.is_some_and(|(ailment, lasts)| {
                matches!(ailment, Ailment::Troubled | Ailment::VolumeLost) && lasts >= BROKEN
            })
    }

    /// Lets an instance follow the primary and acknowledge, or not.
    pub(super) fn attach(
        &self,
        primary: &str,
        name: &str,
        look: &Look,
        acks: bool,
    ) -> Option<Step> {
        let tell = |order| Some(Step::tell(name, order));
        // What it applies would wait for replicas, too.
        if look.waits_for > 0 {
            return tell(Order::WaitFor(0));
        }
        let follow = || tell(Order::Follow(primary.to_owned()));
        let Some(following) = &look.following else {
            return match look.acknowledges == acks {
                true => follow(),
                false => tell(Order::Acknowledge(acks)),
            };
        };
        let is_idle = following.receives == Receives::Stopped;
        let is_same = following.source == primary;
        let is_done = look.has_applied_all() || planted!(self, FollowsUnapplied);
        if look.acknowledges != acks || !is_same {
            if !is_idle || (!is_done && !following.applies) {
                return tell(Order::StopReceiving);
            }
            if look.acknowledges != acks {
                return tell(Order::Acknowledge(acks));
            }
            let text = format!("{name} applies what it received from {}", following.source);
            return if is_done { follow() } else { Some(Waiting::moment("Rejoining", text)) };
        }
        if is_idle || !following.applies { follow() } else { None }
    }
}
