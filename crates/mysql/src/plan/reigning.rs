//! A cluster with a primary: it is opened, watched, and deposed if it fails. Pure.
//!
//! Keeps rule 2: before an instance is opened, the memory names it, and it has applied all that it
//! received; and that nobody is primary is written before anything that makes another one.

use std::time::Duration;

use super::*;
use crate::ailment::Ailment;
use crate::api::WhenAlone;
use crate::memory::{Member, Memory};
use crate::server::{Look, Receives};

/// How long a primary is unwell before another takes over that could not commit either, until one more
/// instance is back.
const NO_GAIN: Duration = Duration::from_secs(30);
/// For how long an elected primary that fails to apply what it received is told to try again.
const TRIES: Duration = Duration::from_secs(60);
/// How much longer a primary that answers may be not ready: readiness lags behind.
const NOT_READY: Duration = Duration::from_secs(30);

impl Observed {
    pub(super) fn reign(&self, primary: &str) -> Step {
        if let Some(step) = self.falter(primary) {
            return step;
        }
        let Some(look) = self.own_look(primary) else {
            return Waiting::step("PrimaryDown", format!("{primary} does not answer"));
        };
        if let Some(step) = self.unlabel(primary).or_else(|| self.close_strays(primary)) {
            return step;
        }
        if !look.is_writable {
            return self.open(primary, look);
        }
        let step = self.enforce(primary, look).or_else(|| self.label(primary));
        let step = step.or_else(|| self.hand_over(primary, look));
        let step = step.or_else(|| self.make_room(primary, look));
        if let Some(step) = step {
            return step;
        }
        let replicas = self.follow(primary, look);
        let acks = self.tune_acks(primary, look);
        let rest = [self.upgrade(primary), self.missing(primary, look)];
        let steps = replicas.into_iter().chain(acks).chain(rest.into_iter().flatten());
        next_turn(steps, self.last.as_ref()).unwrap_or(Step::Rest)
    }

    /// Opens the primary that the memory names.
    fn open(&self, primary: &str, look: &Look) -> Step {
        let is_ready_to = look.has_applied_all() || planted!(self, OpenUnapplied);
        if let Some(following) = &look.following {
            if look.waits_for > 0 && !look.has_applied_all() {
                // What it applies would wait for replicas.
                return Step::tell(primary, Order::WaitFor(0));
            }
            let idle = following.receives == Receives::Stopped;
            if idle && is_ready_to {
                return Step::tell(primary, Order::FollowNobody);
            }
            let is_tried = self.unwell(primary).is_some_and(|(_, lasts)| lasts >= TRIES);
            if !idle || (!following.applies && !is_tried) {
                return Step::tell(primary, Order::StopReceiving);
            }
            let trouble = following.trouble.as_deref().unwrap_or("it takes a moment");
            let text = format!("{primary} applies what it received: {trouble}");
            return match following.applies {
                false => Waiting::stuck("Opening", text),
                true => Waiting::moment("Opening", text),
            };
        }
        if let Some(step) = self.fill_room(primary, look) {
            return step;
        }
        if look.waits_for != self.memory.acks && !planted!(self, OpenWithFewer) {
            return Step::tell(primary, Order::WaitFor(self.memory.acks));
        }
        if !self.seen(primary).is_some_and(|seen| seen.stays()) {
            return Waiting::step("Opening", format!("the Pod of {primary} ends"));
        }
        Step::tell(primary, Order::Open)
    }

    /// Waits for a primary that fails, and deposes it when it is time and another can take over.
    fn falter(&self, primary: &str) -> Option<Step> {
        let (ailment, lasts) = self.unwell(primary)?;
        match ailment {
            Ailment::Troubled => return None,
            Ailment::NotReady => {
                let patience = self.wanted.failover_after + NOT_READY;
                (lasts >= patience && self.has_heir(primary)).then_some(())?;
                return Some(self.depose(primary, Change::Depose(why(ailment).to_owned())));
            }
            Ailment::CutOff if !self.is_provable(primary) || !self.is_gain(primary) => return None,
            Ailment::Gone | Ailment::Silent | Ailment::VolumeLost | Ailment::CutOff => {}
        }
        if let Some(step) = self.irreplaceable(primary, ailment) {
            return Some(step);
        }
        let is_soon = self.is_gain(primary) || ailment == Ailment::VolumeLost;
        let patience = self.wanted.failover_after;
        let patience = if is_soon { patience } else { patience.max(NO_GAIN) };
        if lasts >= patience {
            return Some(self.depose(primary, Change::Depose(why(ailment).to_owned())));
        }
        let left = (patience - lasts).as_secs();
        let text = format!("{primary}: {}; another takes over in {left} s", why(ailment));
        Some(Waiting::moment("PrimaryDown", text))
    }

    /// What is said of a primary that fails and that nobody can replace.
    fn irreplaceable(&self, primary: &str, ailment: Ailment) -> Option<Step> {
        if self.is_provable(primary) {
            return None;
        }
        let why = why(ailment);
        let missing = listed(self.missing_members(primary));
        let is_lost = ailment == Ailment::VolumeLost;
        Some(match self.memory.acks {
            0 if is_lost => Waiting::stuck(
                "DataLost",
                format!(
                    "the volume of {primary} is gone, and nobody else certainly has all that was \
                     committed: create another MySQLCluster from a backup, or bring the volume back"
                ),
            ),
            0 => Waiting::step("PrimaryDown", format!("{primary}: {why}; nobody may take over")),
            acks => Waiting::stuck(
                "QuorumLost",
                format!(
                    "{primary}: {why}; {missing} do not answer with their data either, and with \
                     {acks} acknowledgements they may have commits that nobody else has: see why \
                     they do not run"
                ),
            ),
        })
    }

    /// Whether there would be a proof that the primary cannot commit.
    fn is_provable(&self, primary: &str) -> bool {
        let mut answering = self.others(primary).filter(|member| self.own(member).is_some());
        self.is_enough(self.missing_members(primary).count()) && answering.next().is_some()
    }

    /// Whether fewer are missing than acknowledge a commit.
    pub(super) fn is_enough(&self, missing: usize) -> bool {
        let one_more = u32::from(planted!(self, OneTooFew));
        let counts = self.memory.acks > 0 || planted!(self, HeirWithoutAcks);
        counts && missing < (self.memory.acks + one_more).max(1) as usize
    }

    pub(super) fn missing_members<'a>(&'a self, primary: &'a str) -> impl Iterator<Item = &'a str> {
        let missing = self.others(primary).filter(|member| self.own(member).is_none());
        missing.map(|member| member.name.as_str())
    }

    /// Whether another primary could commit without this one.
    fn is_gain(&self, primary: &str) -> bool {
        let answering = self.others(primary).filter(|member| self.own(member).is_some()).count();
        answering > self.memory.acks as usize || self.continues_alone()
    }

    /// Whether a commit is acknowledged in a moment, by what the primary and the members say.
    pub(crate) fn is_acknowledged(&self, primary: &str, look: &Look) -> bool {
        self.ackers(primary).min(look.followers) >= look.waits_for
    }

    /// How many members say that they receive from this one and acknowledge. It may learn later than they
    /// do that a connection is dead, so they are asked.
    pub(super) fn ackers(&self, primary: &str) -> u32 {
        let ackers = self.others(primary).filter(|member| self.serves(primary, member));
        u32::try_from(ackers.count()).unwrap_or(u32::MAX)
    }

    pub(super) fn serves(&self, primary: &str, member: &Member) -> bool {
        let look = self.own(member);
        look.is_some_and(|look| look.acknowledges && look.is_connected_to(primary))
    }

    pub(super) fn continues_alone(&self) -> bool {
        self.wanted.when_alone == WhenAlone::Continue && self.wanted.instances == 2
    }

    /// Nobody is primary from now on.
    pub(super) fn depose(&self, primary: &str, change: Change) -> Step {
        let memory = Memory {
            term: self.memory.term + 1,
            primary: None,
            former: Some(primary.to_owned()),
            ..self.memory.clone()
        };
        Step::remember(memory, change)
    }

    /// What is said while instances are missing.
    fn missing(&self, primary: &str, look: &Look) -> Option<Step> {
        let missing = self
            .instances
            .iter()
            .take(self.wanted.instances)
            .filter(|seen| seen.name != primary && self.ailment(&seen.name).is_some());
        let missing: Vec<_> = missing.map(|seen| seen.name.as_str()).collect();
        if missing.is_empty() {
            return None;
        }
        let names = listed(missing);
        if !self.is_acknowledged(primary, look) {
            let text = format!("writes to {primary} wait until {names} acknowledge them");
            return Some(Waiting::stuck("WritesWait", text));
        }
        Some(Waiting::step("InstanceDown", format!("{names} do not serve")))
    }
}

fn why(ailment: Ailment) -> &'static str {
    match ailment {
        Ailment::Gone => "it has no Pod",
        Ailment::Silent => "it does not answer",
        Ailment::VolumeLost => "its volume was lost",
        Ailment::NotReady => "its Pod is not ready",
        Ailment::CutOff => "no replica can connect to it",
        Ailment::Troubled => "its replication ended",
    }
}
