//! Whether the home cluster is still the one that this member knows (S9): its history may go back,
//! begin anew, or be another's.
//!
//! Somebody may restore home from a backup, empty it, or put another in its place. Then nothing that was
//! observed holds any more, and what was written since the backup never happened for home, although it
//! did happen: owners went to work at epochs that home does not know.
//!
//! # What proves it
//! A list or a watch may come from a cache that lags, so an old version in them proves nothing by itself.
//! The answer to a write, and the read of one object after a conflict, are linearizable: they show all that
//! was observed before the request was sent. So these are proofs:
//! - a replacement meets the object at a *lower* version than the one it replaces;
//! - a list of a version shows an object as it was before that version, and not as it was known to be
//!   ([`World::compare`](crate::world::World::compare)). A list that is only older than what is known is read
//!   again after the next renewal;
//! - a write of the own Lease gets a lower version than a Lease that was seen before it was sent;
//! - a list that is newer than all that was seen shows none of the Leases that home had, not even the
//!   coordinator's, which no member ever deletes: home is another one, whatever its versions;
//! - an epoch appears that leaps over every known one. Only a member that has one of these proofs makes
//!   that leap, so one proof reaches all members whose watches work.
//!
//! # What follows
//! A member that learns of it fences itself and joins again under another id, so that what a restored
//! ShardMap says of its former id gives nothing to anybody. It forgets all that it observed, reads home
//! anew, and keeps one thing: the highest epoch that it ever saw. From there it *leaps*, and reports the
//! result in its Member.
//!
//! # Why it is safe
//! - **S1** As coordinator, a member writes no map before one silence has passed since it learned of the
//!   change. An owner that home does not know any more cannot renew its Lease: home has that at another
//!   version, or not at all. So it learns of the change itself, or its validity ends within that silence.
//!   An owner whose Lease was restored at exactly the version that it holds lost no renewal. It goes on,
//!   rightly, until the leap reaches it.
//! - **S3** The coordinator carries the highest reported leap into the epoch floor of its Lease, and reads
//!   that back, before it writes maps. No owner is named at or below the floor
//!   ([`crate::coordinator`]). The leap also covers epochs that only members saw which did not
//!   survive: nobody can remember those.
//! - **S5** Silence of a restored Lease counts from when it was read anew.
//!
//! # What it does not cover
//! A process that starts after the change knows nothing of the time before. It learns of the change from
//! Members and from the floor. The same holds for a member that had not seen what was lost. Therefore a
//! member that home did not answer until it lost its Lease, or when it began, first listens as
//! coordinator: for two intervals, in which every member that reaches home writes there. So there is one
//! gap: a process that starts in the second after home's return, into a home whose coordinator's Lease
//! nobody holds, may coordinate before any other member has written to home again. And API servers that
//! were not restarted with their etcd may show the lost history for as long as its versions are ahead:
//! members then prove the change again and again, and nobody acts.

use std::collections::BTreeMap;

use model::{Epoch, Moment};

use crate::config::LeaseTimings;
use crate::lease::COORDINATOR;
use crate::record::{Kind, Object, Observation, Write, WriteOutcome};

/// How far the epochs leap when home's history changes. Far more than the owners that a shard had while
/// nobody who is left was watching.
const LEAP: u64 = 1 << 24;
/// A rise of the highest epoch that is no ordinary one: half a leap, because members that leap do so from
/// epochs that differ a little.
const UNHEARD_OF: u64 = LEAP / 2;

/// What a member remembers of home, whatever home says later.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// The highest version of any Lease.
    newest_lease: u64,
    /// The same when the last write of the own Lease was sent.
    written_after: u64,
    /// The names and uids of the Leases that the watches show. Not those of answers: a member may write
    /// to another home before it has read that.
    leases: BTreeMap<String, String>,
    /// The highest epoch, as of the last call of [`leapt`](Self::leapt).
    epoch: Epoch,
    /// The highest epoch in anything observed.
    seen: Epoch,
    /// Whether all of home was read at least once.
    is_known: bool,
    /// Whether home has not answered since this member lost its Lease, or began.
    is_away: bool,
    /// When home answered again after that.
    returned: Option<Moment>,
    /// The result of the last leap.
    floor: Option<Epoch>,
    /// When the last change was learned of.
    changed: Option<Moment>,
}

impl History {
    /// Takes in what a watch shows. Returns the proof that home is another one, if it is one.
    pub(crate) fn observe(&mut self, event: &Observation) -> Option<&'static str> {
        match event {
            Observation::Applied(object) => {
                if let Object::Lease(lease) = object {
                    self.leases.insert(lease.name.clone(), lease.version.uid.clone());
                }
                self.saw(object);
            }
            Observation::Deleted(object) => {
                if let Object::Lease(lease) = object {
                    self.leases.remove(&lease.name);
                }
                self.saw(object);
            }
            Observation::Listed(Kind::Lease, resource, objects) => {
                if self.is_elsewhere(resource, objects) {
                    return Some("none of the Leases that home had is left");
                }
                let shown = objects.iter().map(|lease| (lease.target().name, lease.version()));
                self.leases = shown.map(|(name, version)| (name, version.uid.clone())).collect();
                objects.iter().for_each(|object| self.saw(object));
            }
            Observation::Listed(_, _, objects) => {
                objects.iter().for_each(|object| self.saw(object))
            }
        }
        None
    }

    /// Takes in an object.
    pub(crate) fn saw(&mut self, object: &Object) {
        let epoch = match object {
            Object::Lease(lease) => {
                let version = lease.version.resource.parse().unwrap_or_default();
                self.newest_lease = self.newest_lease.max(version);
                lease.floor.known()
            }
            Object::Member(member) => member.spec.history_floor,
            Object::Map(map) => Some(map.highest_epoch()),
        };
        self.seen = self.seen.max(epoch.unwrap_or_default());
    }

    /// The own Lease is about to be written.
    pub(crate) fn writes_lease(&mut self) {
        self.written_after = self.newest_lease;
    }

    /// Home does not answer this member, which has no Lease.
    pub(crate) fn away(&mut self) {
        self.is_away = true;
    }

    /// Home answers.
    pub(crate) fn answers(&mut self, now: Moment) {
        if std::mem::take(&mut self.is_away) {
            self.returned = Some(now);
        }
    }

    /// The proof that an answer gives, if it gives one.
    pub(crate) fn refuted_by(
        &self,
        write: &Write,
        outcome: &WriteOutcome,
        own_lease: &str,
    ) -> Option<&'static str> {
        match (write, outcome) {
            (Write::Create(_) | Write::Replace(_), WriteOutcome::Done(Some(Object::Lease(made))))
                if made.name == own_lease
                    && is_before(&made.version.resource, self.written_after) =>
            {
                Some("a Lease got a lower version than Leases had before")
            }
            (Write::Replace(object), WriteOutcome::Conflict(Some(found)))
                if found.version().older_than(&object.version().resource) =>
            {
                Some("an object is back at a lower version than it had")
            }
            (Write::Delete(_, version), WriteOutcome::Conflict(Some(found)))
                if found.version().older_than(&version.resource) =>
            {
                Some("an object is back at a lower version than it had")
            }
            _ => None,
        }
    }

    /// Whether epochs leapt since the last call: another member has a proof that this one does not have.
    pub(crate) fn leapt(&mut self, is_synced: bool) -> bool {
        if !is_synced {
            return false;
        }
        let was_known = std::mem::replace(&mut self.is_known, true);
        if was_known && self.seen.0 > self.epoch.0.saturating_add(UNHEARD_OF) {
            return true;
        }
        self.epoch = self.epoch.max(self.seen);
        false
    }

    /// Home's history changed.
    pub(crate) fn change(&mut self, now: Moment) {
        // Those who leapt before are followed, not overtaken: else each would make the others leap.
        let leapt = self.seen.0 > self.epoch.0.saturating_add(UNHEARD_OF) && self.is_known;
        let leap = if leapt { 0 } else { LEAP };
        let next = Epoch(self.epoch.max(self.seen).0.saturating_add(leap));
        *self = Self {
            epoch: next,
            seen: next,
            is_known: self.is_known,
            floor: Some(next),
            changed: Some(now),
            ..Self::default()
        };
    }

    /// Until when a coordinator waits, as far as it is known now.
    pub(crate) fn open_until(&self, timings: LeaseTimings) -> Option<Moment> {
        let silent = self.changed.map(|changed| changed + timings.silence());
        let heard = self.returned.map(|returned| returned + timings.renew_interval * 2);
        silent.max(heard)
    }

    /// Whether home does not answer this member, which has no Lease.
    pub(crate) fn is_away(&self) -> bool {
        self.is_away
    }

    /// The epoch that no owner may be named at, or below, as far as this member knows; `None` if it
    /// knows of no change.
    pub(crate) fn floor(&self) -> Option<Epoch> {
        self.floor
    }

    /// Until when a coordinator writes no map. `required` is the highest reported leap, `durable` the
    /// epoch floor in its Lease.
    pub(crate) fn waits(
        &mut self,
        required: Epoch,
        durable: Epoch,
        timings: LeaseTimings,
        now: Moment,
    ) -> Option<Moment> {
        if required.0 > durable.0.saturating_add(UNHEARD_OF) {
            // It is new, and others learned of the change before it came.
            self.changed.get_or_insert(now);
        }
        self.open_until(timings).filter(|&until| now < until)
    }

    /// Whether a list of Leases is of another home.
    fn is_elsewhere(&self, resource: &str, objects: &[Object]) -> bool {
        let stays =
            |lease: &Object| self.leases.get(&lease.target().name) == Some(&lease.version().uid);
        self.leases.contains_key(COORDINATOR)
            && !is_before(resource, self.newest_lease)
            && !objects.iter().any(stays)
    }
}

fn is_before(version: &str, other: u64) -> bool {
    version.parse::<u64>().is_ok_and(|version| version < other)
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
