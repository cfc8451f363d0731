//! Home's history changed: the member fences itself, forgets what it observed, and reads home anew.
//! [`crate::history`] says when, and why this is enough. What people have paused stays paused
//! ([`crate::policy`]).

use model::{Epoch, Moment};

use super::{Node, Note};
use crate::lease::{self, COORDINATOR};
use crate::member::Standing;
use crate::record::{Observation, Write, WriteOutcome};

/// The proof that a list can give.
const CONTRADICTION: &str = "a list shows an object at a lower version than it had by then";
/// The proof that a ShardMap gives.
const EPOCHS_FALL: &str = "a ShardMap has shards at lower epochs than they had";
/// The proof of a member that has none itself.
const TOLD: &str = "other members say so";

impl Node {
    /// Takes in what a watch shows. From a change of history until home is read anew, nothing.
    pub(super) fn observe(&mut self, event: Observation, now: Moment) {
        if self.reread {
            return;
        }
        let proof = match &event {
            Observation::Listed(kind, resource, objects) => {
                // A first list may have been read before this member's first writes.
                let is_first = !self.world.has_listed(*kind);
                let is_odd = self.history.is_behind(*kind, resource)
                    || self.world.loses_much(*kind, resource, objects);
                self.is_behind |= is_odd && !is_first;
                let falls = objects.iter().any(|object| self.world.goes_back(object));
                (self.world.is_contradicted_by(resource, objects))
                    .then_some(CONTRADICTION)
                    .or_else(|| falls.then_some(EPOCHS_FALL))
            }
            Observation::Applied(object) => self.world.goes_back(object).then_some(EPOCHS_FALL),
            Observation::Deleted(_) => None,
        };
        match self.history.observe(&event).or(proof) {
            Some(proof) => self.begin_anew(proof, now),
            None => self.world.observe(event, now),
        }
    }

    /// Home accepted a renewal. If a list was older than what was known, home is read again: by now a list
    /// shows whether that was a cache that lagged, or a history that went back. So it is if a list lacked much.
    pub(super) fn look_again(&mut self) {
        self.reread |= std::mem::take(&mut self.is_behind);
    }

    /// Whether the answer to a write is one of the home that this member knows. Else it begins anew; only
    /// a Lease that was made for an id which holds nothing yet still counts.
    pub(super) fn is_of_home(
        &mut self,
        write: &Write,
        outcome: &WriteOutcome,
        now: Moment,
    ) -> bool {
        let falls =
            matches!(outcome, WriteOutcome::Conflict(Some(found)) if self.world.goes_back(found));
        let proof = self.history.refuted_by(write, outcome).or(falls.then_some(EPOCHS_FALL));
        let Some(proof) = proof else { return true };
        let own = lease::member_lease_name(self.membership.id());
        let joins = self.membership.standing() == Standing::Joining && write.target().name == own;
        self.begin_anew(proof, now);
        joins && matches!((write, outcome), (Write::Create(_), WriteOutcome::Done(_)))
    }

    /// Begins anew if other members know of a change of which this one does not.
    pub(super) fn follow_others(&mut self, now: Moment) {
        if self.history.is_told(self.world.is_synced()) {
            self.begin_anew(TOLD, now);
        }
    }

    /// The epoch above which every owner must be named, by all members and this one.
    pub(super) fn required_floor(&self) -> Epoch {
        let members = self.world.members().values().map(|member| member.spec.history);
        let said = members.chain([self.history.said()]).flatten();
        said.map(|history| history.floor).max().unwrap_or_default()
    }

    /// Until when a coordinator writes no map because of a change of history: one silence, and until the
    /// epochs that nobody may repeat are durable.
    pub(super) fn waits_for_history(&mut self, now: Moment) -> Option<Moment> {
        let until = self.silent_until(now);
        let least = self.required_floor().max(self.waited);
        until.or_else(|| (self.durable() < least).then(|| now + super::MAX_SLEEP))
    }

    /// Until when somebody may act of whom home knows nothing any more.
    pub(super) fn silent_until(&mut self, now: Moment) -> Option<Moment> {
        let (required, durable) = (self.required_floor(), self.durable());
        let timings = (self.config.lease, self.world.silence(self.config.lease, now));
        self.history.waits(required, durable, timings, now)
    }

    /// The epoch floor in the coordinator's Lease; the lowest if there is no Lease. While it cannot be read, nobody can
    /// raise it: this member keeps in mind what it should be.
    pub(super) fn durable(&self) -> Epoch {
        let lease = self.world.leases().get(COORDINATOR);
        lease.map_or_else(Epoch::default, |it| it.record.floor.known().unwrap_or(Epoch::MAX))
    }

    fn begin_anew(&mut self, proof: &'static str, now: Moment) {
        self.history.change(now);
        if let Standing::Holding { .. } = self.membership.standing() {
            let was = self.membership.id().clone();
            self.start_over(&was, proof, now);
        }
        self.shown = None;
        if let Some(policies) = &mut self.policies {
            policies.outlive_history();
        }
        self.world.forget();
        self.unread.clear();
        // Not by its former id, and not by maps of the former history.
        self.tracker.restart(self.membership.id().clone());
        self.election.lost();
        self.outbox.forget();
        (self.reread, self.is_behind) = (true, false);
        self.notes.push(Note::HistoryChanged { proof });
    }
}

#[cfg(test)]
#[path = "anew_tests.rs"]
mod tests;
