//! What a manager keeps of one cluster between two rounds. It is lost with the manager, and nothing is
//! wrong without it: then time counts from now, and a change of members takes one round more. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::ailment::Ailment;
use crate::observed::{Earlier, Observed};
use crate::planted::planted;
use crate::step::{MOMENT, RETRY, SOON, Step};

/// How long a replica has to be well until it counts as that: one that fails is well for a moment each
/// time that it is told to try again.
const WELL: Duration = Duration::from_secs(10);

/// How long an instance may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it may take if it is primary and was silent the round before: it is asked more than once before
/// another takes over.
const AGAIN: Duration = Duration::from_secs(2);
/// How long it may take if it is not primary and was silent the round before, while there is something to
/// do: each step of a takeover would wait for it.
const HURRY: Duration = Duration::from_millis(500);

/// How long commits wait until they are helped. Replicas take five seconds to notice that a network to their
/// source fails (`replica_net_timeout`); until then that help would wait as well.
const STALLED: Duration = Duration::from_secs(7);

/// How many steps are kept, to see which are taken again and again.
const RECENT: usize = 16;

/// A time in which something ails an instance.
#[derive(Clone, Copy, Debug)]
struct Spell {
    ailment: Ailment,
    since: Timestamp,
    /// When it was seen last.
    until: Timestamp,
}

/// What a manager keeps of one cluster between two rounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    /// The reign that this manager wrote.
    reign: Option<i64>,
    unwell: BTreeMap<String, Spell>,
    earlier: Option<Earlier>,
    /// The steps that it took since the memory changed last, the last one at the end.
    recent: Vec<Step>,
    /// Whether there was something to do the round before.
    is_busy: bool,
    /// Since when commits may wait in vain, which the next look shows.
    doubtful: Option<Timestamp>,
}

impl Kept {
    /// Adds to what was observed what is known from before, and keeps what the next round needs.
    pub(crate) fn round(&mut self, observed: &mut Observed) {
        observed.last = self.recent.last().cloned();
        observed.has_begun = self.reign == Some(observed.memory.reign);
        observed.earlier = std::mem::replace(&mut self.earlier, Earlier::of(observed));
        let now = observed.now;
        let doubtful = self.doubtful.unwrap_or(now);
        self.doubtful = self.may_wait_in_vain(observed).then_some(doubtful);
        let mut unwell = BTreeMap::new();
        for place in 0..observed.instances.len() {
            let name = observed.instances[place].name.clone();
            let known = self.unwell.get(&name).copied();
            let ailment = observed.ailment(&name);
            let spell = match ailment {
                Some(ailment) => Some(Spell::of(ailment, known, now)),
                None => known.filter(|spell| spell.lingers(now)),
            };
            observed.instances[place].unwell =
                ailment.and(spell).map(|spell| (spell.ailment, spell.since));
            unwell.extend(spell.map(|spell| (name, spell)));
        }
        self.unwell = unwell;
    }

    /// Whether commits wait at the primary: those of the look before still, or some for the first time.
    fn may_wait_in_vain(&self, observed: &Observed) -> bool {
        let primary = observed.memory.primary.as_deref();
        let look = primary.and_then(|primary| observed.own_look(primary));
        let Some(look) = look.filter(|look| look.waiting > 0) else { return false };
        let earlier = observed.earlier.as_ref();
        self.doubtful.is_none()
            || earlier.is_some_and(|earlier| !look.executed.contains(&earlier.sent))
    }

    /// Whether the next look should come soon, although there is nothing to do.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.doubtful.is_some()
    }

    /// Whether commits wait for so long that replicas would know if the primary were gone.
    pub(crate) fn is_stalled(&self, now: Timestamp) -> bool {
        self.doubtful.is_some_and(|since| now >= since + STALLED)
    }

    /// This manager wrote the memory with this reign.
    pub(crate) fn begin(&mut self, reign: i64) {
        self.reign = Some(reign);
    }

    /// A memory was sent, and whether it was written is not known. It may still arrive, until this manager
    /// has begun anew.
    pub(crate) fn doubt(&mut self) {
        self.reign = None;
    }

    /// How long an instance may take to answer, if this one is primary.
    pub(crate) fn patience(&self, name: &str, primary: Option<&str>) -> Duration {
        match self.unwell.get(name).map(|spell| spell.ailment) {
            Some(Ailment::Silent) if primary == Some(name) => AGAIN,
            Some(Ailment::Silent) if self.is_busy => HURRY,
            _ => PATIENCE,
        }
    }

    /// How long to wait before the next round, after this step. What did not help is not done again at
    /// once.
    pub(crate) fn pause(&mut self, step: &Step, failover_after: Duration) -> Duration {
        self.is_busy =
            step.is_deed() || matches!(step, Step::Wait(waiting) if waiting.pause <= MOMENT);
        match step {
            Step::Wait(waiting) => waiting.pause,
            Step::Rest => (failover_after / 5).max(RETRY),
            Step::Remember { .. } => {
                self.recent.clear();
                SOON
            }
            _ => {
                let is_again = self.recent.contains(step);
                self.recent.retain(|known| known != step);
                self.recent.drain(..self.recent.len().saturating_sub(RECENT - 1));
                self.recent.push(step.clone());
                if is_again { RETRY } else { SOON }
            }
        }
    }
}

impl Spell {
    fn of(ailment: Ailment, known: Option<Self>, now: Timestamp) -> Self {
        let kind = |ailment: Ailment| (ailment.is_down(), ailment == Ailment::Troubled);
        let same = known.filter(|known| kind(known.ailment) == kind(ailment));
        Self { ailment, since: same.map_or(now, |known| known.since), until: now }
    }

    fn lingers(&self, now: Timestamp) -> bool {
        let well = Duration::try_from(now.duration_since(self.until)).unwrap_or_default();
        self.ailment == Ailment::Troubled && well < WELL
    }
}

impl Earlier {
    fn of(observed: &Observed) -> Option<Self> {
        let primary = observed.member(observed.memory.primary.as_deref()?)?;
        let look = observed.own(primary).filter(|look| look.is_writable)?;
        let mut sent = look.executed.clone();
        if !planted!(observed, WaitingOverlooked) {
            sent = sent.union(&look.pending);
        }
        let silent =
            observed.memory.members.iter().filter(|member| {
                observed.seen(&member.name).is_none_or(|seen| seen.is_silent(member))
            });
        Some(Self {
            primary: primary.clone(),
            sent,
            waits_for: look.waits_for,
            silent: silent.map(|member| member.name.clone()).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::Waiting;

    #[test]
    fn who_was_silent_does_not_hold_up_a_takeover() {
        let now = Timestamp::UNIX_EPOCH;
        let spell = |ailment| Spell::of(ailment, None, now);
        let silent = ["db-0", "db-1"].map(|name| (name.to_owned(), spell(Ailment::Silent)));
        let mut kept = Kept { unwell: silent.into(), ..Kept::default() };
        kept.unwell.insert("db-2".to_owned(), spell(Ailment::Troubled));
        let mut after = |step: &Step| {
            kept.pause(step, Duration::from_secs(5));
            ["db-0", "db-1", "db-2"].map(|name| kept.patience(name, Some("db-0")))
        };
        assert_eq!(after(&Step::Rest), [AGAIN, PATIENCE, PATIENCE]);
        let waits = Waiting::step("InstanceDown", "db-1 does not serve");
        assert_eq!(after(&waits), [AGAIN, PATIENCE, PATIENCE]);
        let label = Step::Label { instance: "db-2".to_owned(), role: None };
        for step in [label, Waiting::moment("Opening", "it takes a moment")] {
            assert_eq!(after(&step), [AGAIN, HURRY, PATIENCE], "{step:?}");
        }
    }
}
