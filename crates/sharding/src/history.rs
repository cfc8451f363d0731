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
//!   ([`World::is_contradicted_by`](crate::world::World::is_contradicted_by)). A list that is only older than what
//!   the watch had shown before is read again after the next renewal. What only the answers to own writes have shown
//!   does not count: they may be newer than the list because they were made after it was asked for;
//! - a write gets a lower version than an object of its kind that was seen before it was sent;
//! - a list that is newer than all that was seen shows none of the Leases that home had, not even the
//!   coordinator's, which no member ever deletes: home is another one, whatever its versions;
//! - a ShardMap has shards at lower epochs than they had, at a later version: somebody put back an earlier state
//!   of it, as backups of objects do, or edited it ([`World::goes_back`](crate::world::World::goes_back)). So it is if
//!   nobody could read it in between;
//! - a Member knows of a later change than this member does. So one proof reaches all members whose watches
//!   work. Changes have numbers, which go round: whatever somebody writes into a Member by hand, all follow it once or
//!   not at all, and the next change is later again.
//!
//! # What follows
//! A member that learns of it fences itself and joins again under another id, so that what a restored
//! ShardMap says of its former id gives nothing to anybody. It forgets all that it observed, reads home
//! anew, and keeps two things, which it reports in its Member: the number of the last change that it knows of, and
//! the highest epoch that it ever saw.
//!
//! # Why it is safe
//! - **S1** As coordinator, a member writes no map before one silence has passed since it learned of the
//!   change, counted by the longest Lease of those that may still act (`World::silence`). An owner that home
//!   does not know any more cannot renew its Lease: home has that at another version, or not at all. So it
//!   learns of the change itself, or its validity ends within that silence.
//!   An owner whose Lease was restored at exactly the version that it holds lost no renewal. It goes on,
//!   rightly, until it is told.
//! - **S3** The coordinator carries the highest reported epoch into the epoch floor of its Lease, and reads
//!   that back, before it writes maps. It does so when it has waited. So if it goes before, whoever comes next
//!   sees the low floor, and waits as well (S1). No owner is named at or below the floor
//!   ([`crate::coordinator`]). Epochs that nobody remembers lie below the time of day at which it took its
//!   Lease ([`crate::floor`]).
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
use std::time::Duration;

use model::{Epoch, Moment};

use crate::api::HomeHistory;
use crate::config::LeaseTimings;
use crate::floor::MAX_FLOOR;
use crate::lease::COORDINATOR;
use crate::record::{Kind, Object, Observation, Target, Write, WriteOutcome};

/// The highest number of a change. The next one is the first again, so that no number which somebody wrote by hand is the
/// last of all.
const LAST_CHANGE: u64 = (1 << 32) - 1;

/// What a member remembers of home, whatever home says later.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// The highest version of any object of a kind. Versions of different kinds may not be compared.
    newest: BTreeMap<Kind, u64>,
    /// The same of what the watches have shown. Whatever they list after that shows it too.
    shown: BTreeMap<Kind, u64>,
    /// The newest of its kind when the last write of an object was sent, until it is answered.
    sent_after: BTreeMap<Target, u64>,
    /// The names and uids of the Leases that the watches show. Not those of answers: a member may write
    /// to another home before it has read that.
    leases: BTreeMap<String, String>,
    /// The highest epoch in anything observed.
    seen: Epoch,
    /// Whether all of home was read at least once.
    is_known: bool,
    /// Whether home has not answered since this member lost its Lease, or began.
    is_away: bool,
    /// When home answered again after that.
    returned: Option<Moment>,
    /// The number of the last change that it knows of, and that of the last one that others do; 0 if there was none.
    changes: u64,
    told: u64,
    /// The highest epoch as of the last change.
    floor: Epoch,
    /// When the last change was learned of.
    changed: Option<Moment>,
}

impl HomeHistory {
    /// Whether it can be true. What somebody wrote by hand must not reach other members, which would carry it on.
    pub(crate) fn is_credible(&self) -> bool {
        self.changes <= LAST_CHANGE && self.floor <= MAX_FLOOR
    }
}

/// Whether a change came after another one: if fewer numbers lie between it and that one than the other way round. So
/// members that are told another number, whoever wrote it, all go on from one and the same.
fn is_later(change: u64, other: u64) -> bool {
    match (change, other) {
        (0, _) => false,
        (_, 0) => true,
        _ => (1..=LAST_CHANGE / 2).contains(&((change + LAST_CHANGE - other) % LAST_CHANGE)),
    }
}

impl History {
    /// Takes in what a watch shows. Returns the proof that home is another one, if it is one.
    pub(crate) fn observe(&mut self, event: &Observation) -> Option<&'static str> {
        match event {
            Observation::Applied(object) => {
                if let Object::Lease(lease) = object {
                    self.leases.insert(lease.name.clone(), lease.version.uid.clone());
                }
                self.shows(object);
            }
            Observation::Deleted(object) => {
                if let Object::Lease(lease) = object {
                    self.leases.remove(&lease.name);
                }
                self.shows(object);
            }
            Observation::Listed(Kind::Lease, resource, objects) => {
                if self.is_elsewhere(resource, objects) {
                    return Some("none of the Leases that home had is left");
                }
                let shown = objects.iter().map(|lease| (lease.target().name, lease.version()));
                self.leases = shown.map(|(name, version)| (name, version.uid.clone())).collect();
                objects.iter().for_each(|object| self.shows(object));
            }
            Observation::Listed(_, _, objects) => {
                objects.iter().for_each(|object| self.shows(object))
            }
        }
        None
    }

    /// Whether a list is older than what the watches had shown when it was asked for.
    pub(crate) fn is_behind(&self, kind: Kind, resource: &str) -> bool {
        is_before(resource, self.shown.get(&kind).copied().unwrap_or_default())
    }

    fn shows(&mut self, object: &Object) {
        let shown = self.shown.entry(object.target().kind).or_default();
        *shown = (*shown).max(object.version().resource.parse().unwrap_or_default());
        self.saw(object);
    }

    /// Takes in an object.
    pub(crate) fn saw(&mut self, object: &Object) {
        let newest = self.newest.entry(object.target().kind).or_default();
        *newest = (*newest).max(object.version().resource.parse().unwrap_or_default());
        let epoch = match object {
            Object::Lease(lease) => lease.floor.known(),
            Object::Member(member) => member.spec.history.map(|history| {
                if is_later(history.changes, self.told) {
                    self.told = history.changes;
                }
                history.floor
            }),
            Object::Map(map) => Some(map.highest_epoch()),
        };
        self.seen = self.seen.max(epoch.unwrap_or_default().min(MAX_FLOOR));
    }

    /// An object is about to be written.
    pub(crate) fn sends(&mut self, target: Target) {
        let newest = self.newest_of(target.kind);
        self.sent_after.insert(target, newest);
    }

    fn newest_of(&self, kind: Kind) -> u64 {
        self.newest.get(&kind).copied().unwrap_or_default()
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
        &mut self,
        write: &Write,
        outcome: &WriteOutcome,
    ) -> Option<&'static str> {
        let sent_after = self.sent_after.remove(&write.target()).unwrap_or_default();
        match (write, outcome) {
            // It changed nothing, as when home's definitions lack the field that is new: then its version stays.
            (Write::Replace(object), WriteOutcome::Done(Some(made)))
                if made.version() == object.version() =>
            {
                None
            }
            (_, WriteOutcome::Done(Some(made)))
                if is_before(&made.version().resource, sent_after) =>
            {
                Some("a write got a lower version than objects of its kind had before")
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

    /// Whether others know of a change of which this member does not.
    pub(crate) fn is_told(&mut self, is_synced: bool) -> bool {
        if !is_synced {
            return false;
        }
        if !std::mem::replace(&mut self.is_known, true) {
            // What a newcomer reads first is where it begins.
            self.changes = self.last_known();
        }
        is_later(self.told, self.changes)
    }

    /// The last change of those that it knows and that others know.
    fn last_known(&self) -> u64 {
        if is_later(self.told, self.changes) { self.told } else { self.changes }
    }

    /// Home's history changed. If others were told before, of the same change.
    pub(crate) fn change(&mut self, now: Moment) {
        let is_told = self.is_known && is_later(self.told, self.changes);
        let last = self.last_known();
        let changes = if is_told { last } else { last % LAST_CHANGE + 1 };
        *self = Self {
            seen: self.seen,
            is_known: self.is_known,
            changes,
            told: changes,
            floor: self.seen,
            changed: Some(now),
            ..Self::default()
        };
    }

    /// Until when a coordinator waits, as far as it is known now. `silence` is how long a member may act of which home
    /// knows nothing any more.
    pub(crate) fn open_until(&self, timings: LeaseTimings, silence: Duration) -> Option<Moment> {
        let silent = self.changed.map(|changed| changed + silence);
        let heard = self.returned.map(|returned| returned + timings.renew_interval * 2);
        silent.max(heard)
    }

    /// Whether home does not answer this member, which has no Lease.
    pub(crate) fn is_away(&self) -> bool {
        self.is_away
    }

    /// What its Member says of it; `None` while there was no change.
    pub(crate) fn said(&self) -> Option<HomeHistory> {
        let Self { changes, floor, .. } = *self;
        (changes > 0).then_some(HomeHistory { changes, floor })
    }

    /// Until when a coordinator writes no map. `required` is the highest reported floor, `durable`
    /// that in its Lease.
    pub(crate) fn waits(
        &mut self,
        required: Epoch,
        durable: Epoch,
        (timings, silence): (LeaseTimings, Duration),
        now: Moment,
    ) -> Option<Moment> {
        if required > durable {
            // It is new, and others learned of the change before it came. Whoever told it may go.
            self.changed.get_or_insert(now);
            self.floor = self.floor.max(required);
        }
        self.open_until(timings, silence).filter(|&until| now < until)
    }

    /// From now on the watch shows the coordinator's Lease only. That it was made anew proves nothing.
    pub(crate) fn sees_coordinators_lease(&mut self) {
        self.leases.clear();
    }

    /// Whether a list of Leases is of another home.
    fn is_elsewhere(&self, resource: &str, objects: &[Object]) -> bool {
        let stays =
            |lease: &Object| self.leases.get(&lease.target().name) == Some(&lease.version().uid);
        // One Lease alone may have been deleted and made anew.
        self.leases.contains_key(COORDINATOR)
            && self.leases.len() > 1
            && !is_before(resource, self.newest_of(Kind::Lease))
            && !objects.iter().any(stays)
    }
}

fn is_before(version: &str, other: u64) -> bool {
    version.parse::<u64>().is_ok_and(|version| version < other)
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
