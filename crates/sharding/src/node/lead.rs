//! The member's part in the election, and its work as coordinator.

use model::{Epoch, MemberId, Moment};

use super::handovers::HandoverLog;
use super::{Node, Note};
use crate::api::MemberState;
use crate::coordinator::{Coordinator, View};
use crate::election;
use crate::lease::{self, COORDINATOR, LeaseState};
use crate::outbox::InFlight;
use crate::record::{Kind, Object, Write, WriteOutcome};
use crate::versions::ProtocolVersions;

/// The inputs of the last plan whose change makes a new plan necessary.
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

    /// How long it holds: while the Leases have these states, and until that moment.
    pub(super) fn holds(&self) -> (&[(MemberId, LeaseState)], Option<Moment>) {
        (&self.states, self.wake)
    }
}

impl Node {
    /// Takes part in the election and, if elected, coordinates. Returns when to look again.
    pub(super) fn coordinate(&mut self, now: Moment) -> Option<Moment> {
        let required = self.required_floor();
        self.world.raise_floor(required);
        let wake = if self.may_coordinate(now) { self.stand_for_election(now) } else { None };
        if !self.unread.is_empty() {
            self.step_down(now);
        }
        let coordinating = self.is_coordinator(now);
        if self.was_coordinating != coordinating {
            self.was_coordinating = coordinating;
            self.notes.push(Note::Coordinating(coordinating));
            self.coordinator = Coordinator::speaking(self.config.speaks);
            self.handovers = HandoverLog::default();
            self.floor = Epoch::default();
            self.planned = None;
            self.notice(Vec::new());
        }
        let planned = if coordinating { self.plan(now) } else { None };
        if coordinating && self.world.durable_floor().is_some_and(|durable| durable < self.floor) {
            // Does not wait for the next renewal, because deletions of maps wait for it.
            self.stand_for_election(now);
        }
        [wake, planned].into_iter().flatten().min()
    }

    /// A leaving member goes on coordinating while it owns shards. It begins to coordinate only if no
    /// other member can.
    fn may_coordinate(&self, now: Moment) -> bool {
        if !self.membership.is_valid(now) || !self.is_ready() || !self.unread.is_empty() {
            return false;
        }
        self.leave_by.is_none()
            || (self.owns_any() && (self.is_coordinator(now) || !self.sees_another_candidate(now)))
    }

    /// Leaves coordinating to members that speak the versions of all maps: this one may not replace a map
    /// whose version it does not speak.
    fn step_down(&mut self, now: Moment) {
        self.election.lost();
        if self.world.coordinator().as_ref() == Some(self.membership.id()) {
            self.release(COORDINATOR, now);
        }
    }

    /// Whether this member owns shards in a map that it can read.
    pub(super) fn owns_any(&self) -> bool {
        let me = self.membership.id();
        let read = self.world.maps().values().filter(|map| !self.unread.contains(&map.cluster));
        read.flat_map(|map| map.entries.values()).any(|entry| entry.owner() == Some(me))
    }

    fn sees_another_candidate(&self, now: Moment) -> bool {
        self.world.members().iter().any(|(id, member)| {
            let state = |lease: &lease::ObservedLease| lease.state(id, self.config.lease, now);
            id != self.membership.id()
                && !self.world.is_dead(id)
                && member.spec.state == MemberState::Active
                && self.reads_all(member.spec.versions())
                && self.world.lease_of(id).is_some_and(|lease| state(lease).is_alive())
        })
    }

    fn reads_all(&self, versions: ProtocolVersions) -> bool {
        self.world.maps().values().all(|map| versions.speaks(map.protocol))
    }

    fn stand_for_election(&mut self, now: Moment) -> Option<Moment> {
        let observed = self.world.leases().get(COORDINATOR);
        let me = self.membership.id();
        let holds =
            |lease: &lease::ObservedLease| lease.record.holder.as_deref() == Some(me.as_str());
        let is_mine = observed.map(holds);
        if is_mine == Some(false) {
            self.election.lost();
        }
        // Whoever takes office begins above all that was named before, known or not (`crate::floor`).
        let began = if is_mine == Some(true) { Epoch::default() } else { self.wall };
        let carried = election::Carried {
            floor: self.floor.max(self.world.highest_floor()).max(began),
            installation: &self.config.installation,
        };
        let is_dead = self.world.coordinator().is_some_and(|holder| self.world.is_dead(&holder));
        match self.election.step(me, observed, carried, is_dead, self.config.lease, now) {
            election::ElectionStep::Wait(until) => Some(until),
            election::ElectionStep::Write(write) => {
                self.outbox.offer(write, now);
                None
            }
        }
    }

    pub(super) fn coordinator_lease_written(&mut self, write: &InFlight, outcome: &WriteOutcome) {
        let me = self.membership.id().as_str();
        let mine = |object: &Object| matches!(object, Object::Lease(lease) if lease.holder.as_deref() == Some(me));
        match (outcome, &write.write) {
            (WriteOutcome::Done(_), Write::Create(wanted) | Write::Replace(wanted))
                if mine(wanted) =>
            {
                self.election.won(write.sent, self.config.lease);
            }
            (WriteOutcome::Failed, _) => {}
            (WriteOutcome::Conflict(Some(found)), _) if mine(found) => {}
            _ => self.election.lost(),
        }
    }

    /// Plans if anything changed since the last plan, and sends the writes.
    fn plan(&mut self, now: Moment) -> Option<Moment> {
        if self.outbox.is_busy() {
            return None;
        }
        if let Some(until) = self.waits_for_history(now) {
            return Some(until);
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
        let policies = self.policies.as_ref()?;
        let pending = self.outbox.pending(Kind::Map).filter_map(|object| match object {
            Object::Map(map) => Some((&map.cluster, map)),
            _ => None,
        });
        let view = View {
            me: self.membership.id(),
            world: &self.world,
            pending: pending.collect(),
            clusters,
            identities: self.names.own(),
            policies,
            timings: self.config.lease,
            since,
        };
        let plan = self.coordinator.step(&view, now);
        self.floor = self.floor.max(plan.floor);
        self.notice(plan.problems);
        self.handovers.begun(plan.reasons);
        let mut held_back = false;
        for write in plan.writes {
            held_back |= !self.send(write, now);
        }
        // A write held back by a pause is planned again when the pause ends. One held back by another
        // under way is planned again when that one ends.
        let retry = self.outbox.next_retry(now).filter(|_| held_back);
        let wake = [plan.wake, retry].into_iter().flatten().min();
        self.planned = Some(Planned { revision, states, wake });
        wake
    }

    fn send(&mut self, write: Write, now: Moment) -> bool {
        let sent = self.outbox.offer(write.clone(), now);
        if sent && let Write::Replace(Object::Map(map)) = &write {
            self.handovers.sent(self.world.maps().get(&map.cluster), map, &self.world, now);
        }
        sent
    }
}
