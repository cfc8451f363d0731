//! What edits of Leases by hand cannot do. Whoever may write Leases can change their duration and holder,
//! with `kubectl edit` or a script. Neither lets an observer give away what a member may still work on
//! (S5), and neither keeps a dead member's shards for ever.
//!
//! # Duration
//! A member acts by the duration that it is configured with, whatever its Lease says, and writes that
//! duration with each renewal. An observer cannot know it: while the setting is rolled out, members differ.
//! So the observer counts the longest that the Lease ever said, but at least its own duration and at most
//! [`MAX_LEASE`], which no member's exceeds. The longest, because the duration of an id never changes: a
//! shorter one is an edit, and its member may still act by the longer one, by a renewal that was perhaps
//! never seen. So a duration edited to nonsense delays the takeover of that one id by [`MAX_LEASE`] at most.
//!
//! Somebody may also delete a Lease, and with it what it said; or home forgets all Leases. A member that does not see
//! that acts on by its own duration. Whoever waits for a Lease that is gone therefore waits for the longest duration
//! that it saw in the Lease of any member that may still act (`World::silence`). A single version with another duration
//! than the one before does not count there: a member repeats its own. Nor does what a Lease says that its member does
//! not hold. A coordinator that never saw the Lease of such a member, and none as long, waits too short.
//!
//! # Holder
//! A member that finds another holder in its Lease, or none, fences itself. It finds it in its watch or by
//! its next renewal, which fails; until then it acts, for as long as its last renewal allows. So another
//! holder says that the member is gone
//! - at once, if this observer took the Lease by compare-and-swap itself: `Taken`. Then the
//!   member was gone before that, and its id never acts again, whatever is written into the Lease later;
//! - else not before the Lease has run out, counted from when the observer first saw it so. Until then it
//!   is `Lost`, then `Over`. What looks like a takeover by another coordinator,
//!   or like a release, may be an edit. It may also have been undone since, unseen, so shards of such a
//!   member move only after this observer has taken the Lease itself.
//!
//! A member that gives its Lease back is not kept waiting: it does so when no map names it any more.

use std::time::Duration;

use model::{MemberId, Moment};

use super::{LeaseRecord, LeaseState, ObservedLease, subject};
use crate::config::{LeaseTimings, MAX_LEASE};

/// What an observer knows of a Lease beside its last version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Past {
    /// The longest duration that any version said, within the bound.
    longest: Duration,
    /// Whether this observer took it from its member.
    taken: bool,
}

/// A duration as a Lease says it: in whole seconds, rounded up.
pub(crate) fn whole(duration: Duration) -> Duration {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    Duration::from_secs(seconds.max(1))
}

/// Whether a member's Lease says the duration that its member writes with each renewal, as far as that can be known: it
/// is the first version of it that is seen, or says what the version before said.
pub(crate) fn is_usual(record: &LeaseRecord, known: Option<&ObservedLease>) -> bool {
    known.is_none_or(|known| known.record.duration == record.duration)
}

/// Whether it is a member's Lease, and that member has it.
pub(crate) fn is_held(record: &LeaseRecord) -> bool {
    subject(&record.name).is_some() && !is_lost(record)
}

impl ObservedLease {
    /// A version of a Lease, seen at `now`. `known` is the version before.
    pub(crate) fn seen(record: LeaseRecord, known: Option<&Self>, now: Moment) -> Self {
        let passed_on = known.filter(|known| known.record.holder != record.holder);
        let alive = passed_on.map_or(now, |known| known.alive);
        let past = known.map(|known| known.past).unwrap_or_default();
        // What others write into a Lease that its member has lost says nothing about the member.
        let stays = known.filter(|known| is_lost(&known.record) && is_lost(&record));
        let changed = stays.map_or(now, |known| known.changed);
        let longest = past.longest.max(record.duration.min(MAX_LEASE));
        Self { record, changed, alive, past: Past { longest, ..past } }
    }

    /// This observer took it by compare-and-swap.
    pub(crate) fn take(&mut self) {
        self.past.taken = true;
    }

    /// Whether it is a member's Lease, and that member has it.
    pub(crate) fn is_held(&self) -> bool {
        !self.past.taken && is_held(&self.record)
    }

    /// The state of a member's Lease.
    pub(crate) fn state(
        &self,
        member: &MemberId,
        timings: LeaseTimings,
        now: Moment,
    ) -> LeaseState {
        let is_over = now >= self.expires(timings);
        match &self.record.holder {
            _ if self.past.taken => LeaseState::Taken,
            Some(holder) if holder == member.as_str() => match now {
                _ if is_over => LeaseState::Expired,
                now if now >= self.suspect_at(timings) => LeaseState::Suspect,
                _ => LeaseState::Fresh,
            },
            _ if is_over => LeaseState::Over,
            _ => LeaseState::Lost,
        }
    }

    /// When its member can act no more if it stays silent.
    pub(crate) fn expires(&self, timings: LeaseTimings) -> Moment {
        self.changed + self.past.longest.max(whole(timings.duration)) + timings.margin
    }

    /// How long it lasts without renewal, as far as an observer with these timings may believe it.
    pub(crate) fn lasts(&self, timings: LeaseTimings) -> Duration {
        let own = whole(timings.duration);
        self.record.duration.min(MAX_LEASE).max(own)
    }

    /// A moment after which no decision depends on when it changed.
    pub(crate) fn settles(&self) -> Moment {
        self.changed + self.past.longest * 2
    }
}

/// Whether a member's Lease has another holder, or none.
fn is_lost(record: &LeaseRecord) -> bool {
    subject(&record.name).is_some_and(|member| record.holder.as_deref() != Some(member.as_str()))
}

#[cfg(test)]
#[path = "edits_tests.rs"]
mod tests;
