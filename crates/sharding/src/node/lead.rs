//! The member's part in the election, and its work as coordinator.

use model::{Epoch, MemberId, Moment};

use super::{Node, Note};
use crate::api::MemberState;
use crate::coordinator::{Coordinator, View};
use crate::election;
use crate::lease::{self, COORDINATOR, LeaseState};
use crate::ledger::Ledger;
use crate::outbox::Flight;
use crate::protocol::Versions;
use crate::record::{Kind, Object, Outcome, Write};

/// What the last plan was computed from, as far as it must be computed anew when that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    revision: u64,
    states: Vec<(MemberId, LeaseState)>,
    wake: Option<Moment>,
}

impl Planned {
    /// Whether it was made from the world at that revision.
    pub(super) fn is_of(&self, revision: u64) -> bool {
        self.revision == revision
    }

    /// How long it holds: as long as the Leases stand so, and until that moment.
    pub(super) fn holds(&self) -> (&[(MemberId, LeaseState)], Option<Moment>) {
        (&self.states, self.wake)
    }
}

impl Node {
    /// Takes part in the election and, if elected, coordinates. Says when to look again.
    pub(super) fn coordinate(&mut self, now: Moment) -> Option<Moment> {
        let wake = if self.may_coordinate(now) { self.stand_for_election(now) } else { None };
        if !self.unread.is_empty() {
            self.step_down(now);
        }
        let coordinating = self.is_coordinator(now);
        if self.was_coordinating != coordinating {
            self.was_coordinating = coordinating;
            self.notes.push(Note::Coordinating(coordinating));
            self.coordinator = Coordinator::speaking(self.config.speaks);
            self.ledger = Ledger::default();
            self.floor = Epoch::default();
            self.planned = None;
        }
        let planned = if coordinating { self.plan(now) } else { None };
        if coordinating && self.world.durable_floor().is_some_and(|durable| durable < self.floor) {
            // Before the next renewal is due: maps wait for it.
            self.stand_for_election(now);
        }
        [wake, planned].into_iter().flatten().min()
    }

    /// A leaving member goes on coordinating while it has shards of its own to give away, and
    /// begins only if nobody else is there to do it.
    fn may_coordinate(&self, now: Moment) -> bool {
        if !self.membership.is_valid(now) || !self.is_ready() || !self.unread.is_empty() {
            return false;
        }
        self.leave_by.is_none()
            || (self.owns_any() && (self.is_coordinator(now) || !self.sees_another(now)))
    }

    /// A map of a version that we do not speak is not ours to replace: whoever speaks it shall
    /// coordinate.
    fn step_down(&mut self, now: Moment) {
        self.election.lost();
        if self.world.coordinator().as_ref() == Some(self.membership.id()) {
            self.release(COORDINATOR, now);
        }
    }

    /// Whether shards of maps that we can read name us as owner.
    pub(super) fn owns_any(&self) -> bool {
        let me = self.membership.id();
        let read = self.world.maps().values().filter(|map| !self.unread.contains(&map.cluster));
        read.flat_map(|map| map.entries.values()).any(|entry| entry.owner() == Some(me))
    }

    fn sees_another(&self, now: Moment) -> bool {
        self.world.members().iter().any(|(id, member)| {
            let state = |lease: &lease::ObservedLease| lease.state(id, self.config.lease, now);
            id != self.membership.id()
                && member.spec.state == MemberState::Active
                && self.reads_all(member.spec.versions())
                && self.world.lease_of(id).is_some_and(|lease| state(lease).is_alive())
        })
    }

    fn reads_all(&self, versions: Versions) -> bool {
        self.world.maps().values().all(|map| versions.speaks(map.protocol))
    }

    fn stand_for_election(&mut self, now: Moment) -> Option<Moment> {
        let observed = self.world.leases().get(COORDINATOR);
        let me = self.membership.id();
        if observed.is_some_and(|lease| lease.record.holder.as_deref() != Some(me.as_str())) {
            self.election.lost();
        }
        let floor = self.floor.max(self.world.highest_floor());
        match self.election.step(me, observed, floor, self.config.lease, now) {
            election::Step::Wait(until) => Some(until),
            election::Step::Write(write) => {
                self.outbox.offer(write, now);
                None
            }
        }
    }

    pub(super) fn coordinator_lease_written(&mut self, flight: &Flight, outcome: &Outcome) {
        let me = self.membership.id().as_str();
        let mine = |object: &Object| matches!(object, Object::Lease(lease) if lease.holder.as_deref() == Some(me));
        match (outcome, &flight.write) {
            (Outcome::Done(_), Write::Create(wanted) | Write::Replace(wanted)) if mine(wanted) => {
                self.election.won(flight.sent, self.config.lease);
            }
            (Outcome::Failed, _) => {}
            (Outcome::Conflict(Some(found)), _) if mine(found) => {}
            _ => self.election.lost(),
        }
    }

    /// Plans if anything changed since the last plan, and offers the writes.
    fn plan(&mut self, now: Moment) -> Option<Moment> {
        if self.outbox.is_busy() {
            return None;
        }
        let states: Vec<_> = self.world.lease_states(self.config.lease, now).collect();
        let revision = self.world.revision();
        if let Some(last) = &self.planned
            && last.revision == revision
            && last.states == states
            && last.wake.is_none_or(|wake| now < wake)
        {
            return last.wake;
        }
        let (since, clusters) = (self.election.leading_since(now)?, self.clusters.as_ref()?);
        let pending = self.outbox.pending(Kind::Map).filter_map(|object| match object {
            Object::Map(map) => Some((&map.cluster, map)),
            _ => None,
        });
        let view = View {
            me: self.membership.id(),
            world: &self.world,
            pending: pending.collect(),
            clusters,
            timings: self.config.lease,
            since,
        };
        let plan = self.coordinator.step(&view, now);
        self.floor = self.floor.max(plan.floor);
        let mut held_back = false;
        for write in plan.writes {
            held_back |= !self.send(write, now);
        }
        // A write held back by a pause is planned anew when the pause ends; one held back by
        // another in flight, when that one completes.
        let retry = self.outbox.next_retry(now).filter(|_| held_back);
        let wake = [plan.wake, retry].into_iter().flatten().min();
        self.planned = Some(Planned { revision, states, wake });
        wake
    }

    fn send(&mut self, write: Write, now: Moment) -> bool {
        let sent = self.outbox.offer(write.clone(), now);
        if sent && let Write::Replace(Object::Map(map)) = &write {
            self.ledger.sent(self.world.maps().get(&map.cluster), map, &self.world, now);
        }
        sent
    }
}
