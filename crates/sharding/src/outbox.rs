//! Writes under way and pauses after failed ones: at most one write per object, a bounded number in
//! all, with backoff after failures.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::{Moment, doubled};

use crate::record::{Kind, Object, Target, Write, WriteOutcome};

/// The most writes under way at once. The member's own Lease is exempt.
const WRITES_IN_FLIGHT: usize = 64;
/// The pause after the first failure; doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause after failures.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Failures in a row that count: after them the pause is [`MAX_PAUSE`] anyway.
const MOST_FAILURES: u32 = 6;
/// The longest pause after conflicts. It is short, because the answer shows the present state.
const MAX_CONFLICT_PAUSE: Duration = Duration::from_secs(1);

/// The writes of one member.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Outbox {
    in_flight: BTreeMap<Target, InFlight>,
    /// Those under way whose answers no longer count.
    forgotten: BTreeSet<Target>,
    retries: BTreeMap<Target, Retry>,
    ready: Vec<Write>,
}

/// A write under way.
#[derive(Clone, Debug, Hash)]
pub(crate) struct InFlight {
    pub(crate) write: Write,
    /// A moment not after its sending.
    pub(crate) sent: Moment,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Retry {
    at: Moment,
    failures: u32,
}

impl Outbox {
    /// Sends a write, unless another to the same object is under way, the object pauses, or too many
    /// writes are under way. Returns whether it was sent.
    pub(crate) fn offer(&mut self, write: Write, now: Moment) -> bool {
        let target = write.target();
        let pausing = self.retries.get(&target).is_some_and(|retry| now < retry.at);
        if pausing || self.in_flight.len() >= WRITES_IN_FLIGHT {
            return false;
        }
        self.offer_urgent(write, now)
    }

    /// Sends a write to the member's own Lease, unless another is under way. Neither a pause nor the
    /// bound delays it: renewals have a pace of their own.
    pub(crate) fn offer_urgent(&mut self, write: Write, now: Moment) -> bool {
        let target = write.target();
        if self.in_flight.contains_key(&target) {
            return false;
        }
        self.ready.push(write.clone());
        self.in_flight.insert(target, InFlight { write, sent: now });
        true
    }

    pub(crate) fn take(&mut self) -> Vec<Write> {
        std::mem::take(&mut self.ready)
    }

    /// A write ended. Returns it, and sets the pause before the next write to that object.
    pub(crate) fn complete(
        &mut self,
        target: &Target,
        outcome: &WriteOutcome,
        jitter: f64,
        now: Moment,
    ) -> Option<InFlight> {
        let ended = self.in_flight.remove(target)?;
        if self.forgotten.remove(target) {
            return None;
        }
        let failures = self.retries.get(target).map_or(0, |retry| retry.failures);
        let pause = match outcome {
            WriteOutcome::Done(_) => {
                self.retries.remove(target);
                return Some(ended);
            }
            // No pause after the first conflict: its answer shows what to write now.
            WriteOutcome::Conflict(_) if failures == 0 => Duration::ZERO,
            WriteOutcome::Conflict(_) => doubled(FIRST_PAUSE, failures - 1, MAX_CONFLICT_PAUSE),
            WriteOutcome::Failed => doubled(FIRST_PAUSE, failures, MAX_PAUSE),
        };
        let failures = failures.saturating_add(1).min(MOST_FAILURES);
        let at = now + pause.mul_f64(jitter);
        self.retries.insert(target.clone(), Retry { at, failures });
        Some(ended)
    }

    /// Drops what is not sent yet and the pauses. What is under way ends, but its answers no longer
    /// count: they may come from before home's history changed.
    pub(crate) fn forget(&mut self) {
        for write in std::mem::take(&mut self.ready) {
            self.in_flight.remove(&write.target());
        }
        self.retries.clear();
        self.forgotten = self.in_flight.keys().cloned().collect();
    }

    /// Whether a write to that object is under way.
    pub(crate) fn is_in_flight(&self, target: &Target) -> bool {
        self.in_flight.contains_key(target)
    }

    /// Whether there is no room for another write.
    pub(crate) fn is_full(&self) -> bool {
        self.in_flight.len() >= WRITES_IN_FLIGHT
    }

    /// Whether so many writes are under way that planning should wait: the plan of a large fleet should
    /// find room for many writes.
    pub(crate) fn is_busy(&self) -> bool {
        self.in_flight.len() > WRITES_IN_FLIGHT / 2
    }

    /// The objects of that kind as the creates and replaces under way will leave them.
    pub(crate) fn pending(&self, kind: Kind) -> impl Iterator<Item = &Object> {
        let counts = |target: &Target| !self.forgotten.contains(target);
        let counting = self.in_flight.iter().filter(move |(target, _)| counts(target));
        counting.filter_map(move |(_, write)| match &write.write {
            Write::Create(object) | Write::Replace(object) => {
                (object.target().kind == kind).then_some(object)
            }
            Write::Delete(..) => None,
        })
    }

    pub(crate) fn next_retry(&self, now: Moment) -> Option<Moment> {
        self.retries.values().map(|retry| retry.at).filter(|&at| at > now).min()
    }

    /// Forgets pauses that ended long ago, of objects that are no longer written to.
    pub(crate) fn prune(&mut self, now: Moment) {
        self.retries.retain(|_, retry| now < retry.at + MAX_PAUSE * 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::MapRecord;

    fn at(ms: u64) -> Moment {
        Moment::from_origin(Duration::from_millis(ms))
    }

    fn map(name: &str) -> Write {
        Write::Create(Object::Map(MapRecord::new(name.parse().unwrap())))
    }

    #[test]
    fn one_write_per_object_and_a_pause_after_a_failure() {
        let mut outbox = Outbox::default();
        let target = map("east").target();
        assert!(outbox.offer(map("east"), at(0)));
        assert!(!outbox.offer(map("east"), at(0)));
        assert_eq!(outbox.take().len(), 1);
        for (now, expect_ms) in [(10, 110), (200, 400), (500, 900)] {
            outbox.complete(&target, &WriteOutcome::Failed, 1.0, at(now)).unwrap();
            assert_eq!(outbox.next_retry(at(now)), Some(at(expect_ms)));
            assert!(!outbox.offer(map("east"), at(expect_ms - 1)));
            assert!(outbox.offer(map("east"), at(expect_ms)));
        }
        outbox.complete(&target, &WriteOutcome::Done(None), 1.0, at(900)).unwrap();
        assert!(outbox.offer(map("east"), at(900)));
    }

    #[test]
    fn a_first_conflict_is_repeated_at_once() {
        let mut outbox = Outbox::default();
        let target = map("east").target();
        assert!(outbox.offer(map("east"), at(0)));
        outbox.complete(&target, &WriteOutcome::Conflict(None), 1.0, at(5)).unwrap();
        assert!(outbox.offer(map("east"), at(5)));
        outbox.complete(&target, &WriteOutcome::Conflict(None), 1.0, at(9)).unwrap();
        assert!(!outbox.offer(map("east"), at(9)));
    }

    #[test]
    fn writes_are_bounded_but_the_own_lease_is_not_delayed() {
        let mut outbox = Outbox::default();
        for n in 0..WRITES_IN_FLIGHT {
            assert!(outbox.offer(map(&format!("c{n}")), at(0)));
        }
        assert!(!outbox.offer(map("one-more"), at(0)));
        assert!(outbox.offer_urgent(map("one-more"), at(0)));
    }
}
