//! When the coordinator plans, and what becomes of a plan.
//!
//! A plan of a large fleet takes longer than a member may be silent, so it is made apart from the loop that
//! renews the Lease: a step gives out a [`PlanTask`], which has all that the plan depends on, and its result
//! comes back as an input. One plan at a time is being made.
//!
//! # Why an old plan does no harm
//! Each of its writes is bound to the version of the object from which it was computed (S4), so what has
//! changed meanwhile conflicts. The facts on which a shard may go to another member stay true
//! ([`crate::coordinator`]). A plan of a former term of office, of a former incarnation or of a former history
//! of home is dropped, and one that comes while this member must not write maps as well.
//!
//! # A plan that does not end, or panics
//! While a plan is being made, the loop renews the Leases, so nobody else would ever notice that it hangs. So a
//! coordinator whose plan takes longer than [`PLAN_LIMIT`] gives up its office, and takes none before that plan has
//! ended. If that of every member hangs, owners go on with what they have. No process ends for it: what hangs because of
//! what home says would hang again, and the owners would be lost. People end it by a new replica, or by the restart of
//! one: nobody holds the office, so it coordinates, and begins with what home says by then.
//!
//! A coordinator whose plan panics leaves the office too, for the same reason. It may take it again after a minute, if
//! nobody else has it: other than one that hangs, such a plan is over, and home may say something else by then.
//!
//! One of a small fleet is made within the loop (`shell::run`): if that hangs, so does the loop. Then the member's Lease
//! runs out, and its process fails the probe of its life.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use model::{ClusterName, MemberId, Moment};

use super::Node;
use crate::coordinator::{Coordinator, Plan, View, Written};
use crate::identity::Identities;
use crate::lease::LeaseState;
use crate::policy::Policies;
use crate::problem;
use crate::record::{Kind, MapRecord, Object, Target, Write};
use crate::world::World;
use crate::{LeaseTimings, lease};

/// How often loads alone are a reason to plan again.
const LOADS_INTERVAL: Duration = Duration::from_secs(5);
/// How long a plan may take: far longer than that of the largest fleet (`examples/plan_speed.rs`).
const PLAN_LIMIT: Duration = Duration::from_secs(60);

/// What is wrong with a coordinator whose plan has panicked.
const PANICKED: &str = "a plan for the shards of the fleet has panicked, so this replica leaves coordinating to others and tries again after a minute: a defect of the manager; fix: take back what was changed last, and report it with the log of this replica";

/// The states of Leases.
type States = [(MemberId, LeaseState)];

/// A plan to be made, anywhere and at any pace.
#[derive(Debug)]
pub struct PlanTask {
    term: u64,
    basis: Basis,
    now: Moment,
    since: Moment,
    me: MemberId,
    coordinator: Coordinator,
    world: World,
    pending: BTreeMap<ClusterName, MapRecord>,
    clusters: BTreeSet<ClusterName>,
    identities: Identities,
    policies: Policies,
    timings: LeaseTimings,
}

/// A plan that was made.
#[derive(Clone, Debug)]
pub struct MadePlan {
    term: u64,
    basis: Basis,
    begun: Moment,
    coordinator: Coordinator,
    plan: Plan,
}

/// What a plan was made from, as far as a change of it makes a new plan necessary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Basis {
    revision: u64,
    states: Vec<(MemberId, LeaseState)>,
    /// Changes of loads: they alone do not make a new plan necessary at once.
    loads: u64,
}

/// The plans of this member.
#[derive(Clone, Debug, Default)]
pub(super) struct Planning {
    /// Counts the terms of office, incarnations and histories.
    term: u64,
    /// The plan that is being made.
    under_way: Option<UnderWay>,
    /// A plan that it gave up.
    hanging: Option<Hanging>,
    /// The last plan, until something makes it void.
    last: Option<Planned>,
    /// Writes of the last plan for which there was no room yet. While the Leases are in the states of that plan,
    /// they are sent before the next one is made.
    backlog: VecDeque<Write>,
    backlog_states: Vec<(MemberId, LeaseState)>,
    /// When the next plan may begin.
    next: Moment,
}

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    begun: Moment,
    /// Whether something changed meanwhile that the basis does not tell.
    is_void: bool,
    has_panicked: bool,
}

#[derive(Clone, Copy, Debug)]
struct Hanging {
    term: u64,
    /// Until when it counts, if it has panicked; else it counts until it ends.
    until: Option<Moment>,
}

#[derive(Clone, Debug)]
struct Planned {
    basis: Basis,
    begun: Moment,
    /// Until when it holds.
    wake: Option<Moment>,
}

// === impl PlanTask ===

impl PlanTask {
    /// Makes the plan.
    pub fn run(mut self) -> MadePlan {
        let view = View {
            me: &self.me,
            world: &self.world,
            pending: self.pending.iter().collect(),
            clusters: &self.clusters,
            identities: &self.identities,
            policies: &self.policies,
            timings: self.timings,
            since: self.since,
        };
        let plan = self.coordinator.step(&view, self.now);
        // It is told anew for each plan.
        self.coordinator.written = Written::default();
        let Self { term, basis, now: begun, coordinator, .. } = self;
        MadePlan { term, basis, begun, coordinator, plan }
    }

    /// The same; nothing if it panics.
    pub(crate) fn run_caught(self) -> Option<MadePlan> {
        catch_unwind(AssertUnwindSafe(|| self.run())).ok()
    }

    /// How many clusters it is about.
    pub fn clusters(&self) -> usize {
        self.clusters.len().max(self.world.maps().len())
    }
}

// === impl Planning ===

impl Planning {
    /// What was planned, or is being planned, is void: something changed that the basis does not tell.
    pub(super) fn again(&mut self) {
        self.last = None;
        if let Some(plan) = &mut self.under_way {
            plan.is_void = true;
        }
    }

    /// What people or the configuration want has changed: nothing more is sent of what was planned before.
    pub(super) fn afresh(&mut self) {
        self.again();
        self.backlog.clear();
    }

    /// A plan that is being made is of no use any more.
    pub(super) fn drop_all(&mut self) {
        *self = Self { term: self.term + 1, hanging: self.hanging, ..Self::default() };
    }

    /// The plan that is being made has panicked, or the one that it gave up.
    pub(super) fn panicked(&mut self, now: Moment) {
        if let Some(plan) = &mut self.under_way {
            plan.has_panicked = true;
        } else if let Some(hanging) = &mut self.hanging {
            hanging.until = hanging.until.or(Some(now + PLAN_LIMIT));
        }
    }

    /// Gives up the plan that is being made if it takes too long or has panicked. Returns whether it does so now.
    pub(super) fn give_up(&mut self, now: Moment) -> bool {
        let is_lost = |plan: &mut UnderWay| plan.has_panicked || now >= plan.begun + PLAN_LIMIT;
        let given_up = self.under_way.take_if(is_lost);
        if let Some(UnderWay { has_panicked, .. }) = given_up {
            let until = has_panicked.then_some(now + PLAN_LIMIT);
            self.hanging = Some(Hanging { term: self.term, until });
        }
        given_up.is_some()
    }

    /// Whether it may plan again from now on, long enough after a panic.
    pub(super) fn tries_again(&mut self, now: Moment) -> bool {
        let is_over = |hanging: &mut Hanging| hanging.until.is_some_and(|until| now >= until);
        self.hanging.take_if(is_over).is_some()
    }

    /// Whether a plan that it gave up has not ended yet, or has panicked a short while ago.
    pub(super) fn hangs(&self) -> bool {
        self.hanging.is_some()
    }

    /// What people should know of that plan.
    pub(super) fn problem(&self) -> Option<String> {
        self.hanging.map(|hanging| match hanging.until {
            Some(_) => PANICKED.to_owned(),
            None => problem::endless_plan(PLAN_LIMIT),
        })
    }

    /// A plan ended. Returns whether it is the one that it gave up.
    fn ended(&mut self, term: u64) -> bool {
        self.hanging.take_if(|hanging| hanging.term == term).is_some()
    }

    /// How long the last plan holds, if it was made from the world at that revision: while the Leases have
    /// these states, and until that moment.
    pub(super) fn holds(&self, revision: u64) -> Option<(&States, Option<Moment>)> {
        let last = self.last.as_ref().filter(|last| last.basis.revision == revision)?;
        Some((&last.basis.states, last.wake))
    }
}

impl Node {
    /// The plan to make now, if anything changed since the last one; and when to look again.
    pub(super) fn next_plan(&mut self, now: Moment) -> (Option<PlanTask>, Option<Moment>) {
        if let Some(until) = self.waits_for_history(now) {
            self.planning.afresh();
            return (None, Some(until));
        }
        let has_backlog = self.send_backlog(now);
        if has_backlog || self.planning.under_way.is_some() || self.outbox.is_busy() {
            return (None, None);
        }
        let basis = Basis {
            revision: self.world.revision(),
            states: self.world.lease_states(self.config.lease, now).collect(),
            loads: self.world.loads_revision(),
        };
        let next_state = self.world.next_lease_state(self.config.lease, now);
        if let Some(last) = &self.planning.last {
            let loads = (last.basis.loads != basis.loads).then(|| last.begun + LOADS_INTERVAL);
            let due = [last.wake, loads].into_iter().flatten().min();
            let is_same =
                last.basis.revision == basis.revision && last.basis.states == basis.states;
            if is_same && due.is_none_or(|due| now < due) {
                return (None, [due, next_state].into_iter().flatten().min());
            }
        }
        if now < self.planning.next {
            return (None, Some(self.planning.next));
        }
        (self.plan_task(basis, now), None)
    }

    fn plan_task(&mut self, basis: Basis, now: Moment) -> Option<PlanTask> {
        let (since, clusters) = (self.election.leading_since(now)?, self.clusters.as_ref()?);
        let policies = self.policies.as_ref()?;
        let pending = self.outbox.pending(Kind::Map).filter_map(|object| match object {
            Object::Map(map) => Some((map.cluster.clone(), map.clone())),
            _ => None,
        });
        if !self.world.is_first_coordinator(self.membership.id()) {
            self.written.succeed();
        }
        self.coordinator.written = self.written.clone();
        let under_way = UnderWay { begun: now, is_void: false, has_panicked: false };
        self.planning.under_way = Some(under_way);
        let fresh = Coordinator::speaking(self.config.speaks);
        Some(PlanTask {
            term: self.planning.term,
            basis,
            now,
            since,
            me: self.membership.id().clone(),
            coordinator: std::mem::replace(&mut self.coordinator, fresh),
            world: self.world.clone(),
            pending: pending.collect(),
            clusters: clusters.clone(),
            identities: self.names.own().clone(),
            policies: policies.clone(),
            timings: self.config.lease,
        })
    }

    /// Takes in a plan, which took that long to make, and sends its writes.
    pub(super) fn planned(&mut self, made: MadePlan, took: Duration, now: Moment) {
        if self.planning.ended(made.term) {
            self.look_for_problems();
        }
        if made.term != self.planning.term {
            return;
        }
        let mut is_void = self.planning.under_way.take().is_some_and(|plan| plan.is_void);
        // Half of the time at most goes into plans.
        self.planning.next = now + took;
        self.coordinator = made.coordinator;
        if !self.is_coordinator(now) || self.waits_for_history(now).is_some() {
            return;
        }
        let plan = made.plan;
        self.floor = self.floor.max(plan.floor);
        self.mass = plan.mass;
        self.notice(plan.problems);
        let mut held_back = false;
        for write in plan.writes {
            match self.is_stale(&write) {
                true => is_void = true,
                false if self.outbox.is_full() => self.planning.backlog.push_back(write),
                false => held_back |= !self.send(write, now),
            }
        }
        // A write held back by a pause is planned again when the pause ends. One held back by another
        // under way is planned again when that one ends.
        let retry = self.outbox.next_retry(now).filter(|_| held_back);
        let wake = [plan.wake, retry].into_iter().flatten().min();
        self.planning.backlog_states.clone_from(&made.basis.states);
        let last = Planned { basis: made.basis, begun: made.begun, wake };
        self.planning.last = (!is_void).then_some(last);
    }

    /// Sends what has room of the last plan's writes. Returns whether some are left.
    fn send_backlog(&mut self, now: Moment) -> bool {
        if self.planning.backlog.is_empty() {
            return false;
        }
        let states = self.world.lease_states(self.config.lease, now);
        if !states.eq(self.planning.backlog_states.iter().cloned()) {
            self.planning.backlog.clear();
        }
        while !self.outbox.is_full()
            && let Some(write) = self.planning.backlog.pop_front()
        {
            if !self.is_stale(&write) {
                self.send(write, now);
            }
        }
        !self.planning.backlog.is_empty()
    }

    /// Whether the object of a write has changed since the plan was begun.
    fn is_stale(&self, write: &Write) -> bool {
        matches!(write, Write::Replace(object)
            if self.world.version_of(&object.target()) != Some(object.version()))
    }

    fn send(&mut self, write: Write, now: Moment) -> bool {
        let sent = self.outbox.offer(write.clone(), now);
        if sent && let Write::Replace(Object::Map(map)) = &write {
            self.handovers.sent(self.world.maps().get(&map.cluster), map, &self.world, now);
        }
        sent
    }

    /// Whether the end of a write to that object changes nothing that a plan depends on, whatever the world
    /// shows.
    pub(super) fn is_own_object(&self, target: &Target) -> bool {
        let id = self.membership.id();
        match target.kind {
            Kind::Lease => {
                target.name == lease::member_lease_name(id) || target.name == lease::COORDINATOR
            }
            Kind::Member => target.name == id.as_str(),
            Kind::Map => false,
        }
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
