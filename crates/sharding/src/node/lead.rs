//! The member's part in the election, and its work as coordinator.

use model::{Epoch, MemberId, Moment};

use super::handovers::HandoverLog;
use super::{Node, Note, PlanTask};
use crate::api::{MemberSpec, MemberState};
use crate::coordinator::Coordinator;
use crate::election;
use crate::handover::Entry;
use crate::lease::{self, COORDINATOR};
use crate::outbox::InFlight;
use crate::record::{Object, Write, WriteOutcome};
use crate::versions::ProtocolVersions;

impl Node {
    /// Takes part in the election and, if elected, coordinates. Returns the plan to make, and when to look
    /// again.
    pub(super) fn coordinate(&mut self, now: Moment) -> (Option<PlanTask>, Option<Moment>) {
        let required = self.required_floor();
        self.world.raise_floor(required);
        // After a sleep of the machine nothing hangs, and it is in office no more.
        let gives_up = self.is_coordinator(now) && self.planning.give_up(now);
        if gives_up || self.planning.tries_again(now) {
            self.look_for_problems();
        }
        let wake = if self.may_coordinate(now) { self.stand_for_election(now) } else { None };
        if self.defers(now) {
            self.step_down(now);
        }
        let coordinating = self.is_coordinator(now);
        if self.was_coordinating != coordinating {
            self.was_coordinating = coordinating;
            self.notes.push(Note::Coordinating(coordinating));
            self.coordinator = Coordinator::speaking(self.config.speaks);
            self.written.begin_office();
            self.handovers = HandoverLog::default();
            self.floor = Epoch::default();
            self.mass = self.world.keeps_mass();
            self.planning.drop_all();
            self.notice(Vec::new());
        }
        let (plan, again) = if coordinating { self.next_plan(now) } else { (None, None) };
        if coordinating && self.world.durable_floor().is_some_and(|durable| durable < self.floor) {
            // Does not wait for the next renewal, because deletions of maps wait for it.
            self.stand_for_election(now);
        }
        (plan, [wake, again].into_iter().flatten().min())
    }

    /// A leaving member goes on coordinating while it owns shards. It begins to coordinate only if no
    /// other member can.
    fn may_coordinate(&self, now: Moment) -> bool {
        if !self.membership.is_valid(now) || !self.is_ready() || self.defers(now) {
            return false;
        }
        if !self.world.knows_all_leases() {
            return false;
        }
        self.leave_by.is_none()
            || (self.owns_any() && (self.is_coordinator(now) || !self.sees_another_candidate(now)))
    }

    /// Whether it leaves coordinating to others: to a member that speaks the versions of all maps, because this one may
    /// not replace a map whose version it does not speak. If there is none, it coordinates the other maps. And to
    /// anybody while a plan of its own does not end, and a while after one has panicked; and before it knows what people
    /// want, because it makes no plan then, and others may know it.
    pub(super) fn defers(&self, now: Moment) -> bool {
        self.planning.hangs()
            || self.policies.is_none()
            || (!self.reads_all(self.config.speaks) && self.sees_another_candidate(now))
    }

    fn step_down(&mut self, now: Moment) {
        self.election.lost();
        if self.world.coordinator().as_ref() == Some(self.membership.id()) {
            self.release(COORDINATOR, now);
        }
    }

    /// Whether this member owns shards in a map that it can read.
    pub(super) fn owns_any(&self) -> bool {
        let me = self.membership.id();
        let unread = self.unread.iter().filter_map(|cluster| self.world.maps().get(cluster));
        let mine = |entry: &&Entry| entry.owner() == Some(me);
        let unread: usize = unread.map(|map| map.entries.values().filter(mine).count()).sum();
        self.world.owners().get(me).is_some_and(|all| *all > unread)
    }

    fn sees_another_candidate(&self, now: Moment) -> bool {
        self.world.members().iter().any(|(id, member)| {
            let state = |lease: &lease::ObservedLease| lease.state(id, self.config.lease, now);
            id != self.membership.id()
                && self.could_coordinate(id, &member.spec)
                && self.world.lease_of(id).is_some_and(|lease| state(lease).is_alive())
        })
    }

    /// Whether a member could coordinate, if it lives.
    pub(super) fn could_coordinate(&self, id: &MemberId, said: &MemberSpec) -> bool {
        said.state == MemberState::Active
            && !self.world.is_dead(id)
            && self.reads_all(said.versions())
    }

    fn reads_all(&self, versions: ProtocolVersions) -> bool {
        self.world.protocols().all(|version| versions.speaks(version))
    }

    fn stand_for_election(&mut self, now: Moment) -> Option<Moment> {
        // Who waits after a change of home's history leaves the floor low: if it goes before the end, the next one sees
        // that nobody has waited.
        let is_low = self.durable() < self.required_floor() && self.silent_until(now).is_some();
        if is_low {
            self.waited = self.wall;
        }
        let observed = self.world.leases().get(COORDINATOR);
        let me = self.membership.id();
        let holds =
            |lease: &lease::ObservedLease| lease.record.holder.as_deref() == Some(me.as_str());
        let is_mine = observed.map(holds);
        if is_mine == Some(false) {
            self.election.lost();
            self.written.succeed();
        }
        // Whoever takes office begins above all that was named before, known or not (`crate::floor`).
        let began = if is_mine == Some(true) { self.waited } else { self.wall };
        let floor = self.floor.max(self.world.highest_floor()).max(began);
        let carried = election::Carried {
            floor: if is_low { Epoch::default() } else { floor },
            installation: &self.config.installation,
            // Until its own first plan it says what the one before said.
            mass: if self.was_coordinating { self.mass } else { self.world.keeps_mass() },
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
}
