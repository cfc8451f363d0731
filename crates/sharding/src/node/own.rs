//! The member's own objects: its Lease, which it renews, and its Member.

use std::collections::{BTreeMap, BTreeSet};

use model::{ClusterName, MemberId, Moment, ShardId, Work};

use super::{Node, Note};
use crate::api::{DownCluster, GroupDetail, MemberSpec, ObjectVersion};
use crate::lease::{self, LeaseRecord};
use crate::load::LoadReporter;
use crate::member::{Departure, Standing};
use crate::outbox::InFlight;
use crate::record::{MemberRecord, Object, Write, WriteOutcome};

impl Node {
    /// Reads whether people cordoned the process. Runs before the fence, so that a request at that very
    /// moment reaches the next incarnation.
    pub(super) fn follow_cordon(&mut self) {
        self.cordon.follow(self.membership.id(), self.world.members());
    }

    /// Ends this incarnation if it may not act any more.
    pub(super) fn fence(&mut self, now: Moment) {
        let Standing::Holding { .. } = self.membership.standing() else { return };
        let was = self.membership.id().clone();
        let cause = if self.membership.fence_if_expired(now) {
            self.history.away();
            "its Lease could not be renewed in time"
        } else {
            match self.world.lease_of(&was).map(|lease| &lease.record.holder) {
                Some(Some(holder)) if holder == was.as_str() => return,
                Some(_) => "its Lease was taken",
                None => "its Lease was deleted",
            }
        };
        self.start_over(&was, cause, now);
    }

    pub(super) fn start_over(&mut self, was: &MemberId, cause: &'static str, now: Moment) {
        if self.leave_by.is_some() {
            self.membership.end();
            self.departed = Some(Departure::Abandoned);
        } else if self.membership.id() == was {
            self.membership.rejoin(now);
        }
        let is = self.membership.id().clone();
        self.cordon.rejoin(was, self.world.members());
        self.tracker.restart(is.clone());
        for cluster in self.world.maps().keys().cloned().collect::<Vec<_>>() {
            self.follow_map(&cluster, now);
        }
        // Its report was about shards that it no longer holds.
        self.load = LoadReporter::default();
        self.election.lost();
        self.notes.push(Note::Fenced { was: was.clone(), is, cause });
    }

    pub(super) fn keep_lease(&mut self, now: Moment) {
        if now < self.membership.renew_at() {
            return;
        }
        let id = self.membership.id();
        match self.membership.standing() {
            Standing::Gone => {}
            Standing::Joining if self.leave_by.is_some() => {}
            Standing::Joining => {
                let name = lease::member_lease_name(id);
                let record = LeaseRecord::new(name, id, self.config.lease.duration);
                self.outbox.offer_urgent(Write::Create(Object::Lease(record)), now);
            }
            Standing::Holding { .. } => {
                if let Some(held) = self.world.lease_of(id) {
                    let renewed = held.record.renewed(self.config.lease.duration);
                    let renewal = Write::Replace(Object::Lease(renewed));
                    self.outbox.offer_urgent(renewal, now);
                }
            }
        }
    }

    pub(super) fn own_lease_written(
        &mut self,
        write: &InFlight,
        outcome: &WriteOutcome,
        now: Moment,
    ) {
        let id = self.membership.id().clone();
        match (self.membership.standing(), outcome) {
            // It gave the Lease back; the world shows the result.
            (Standing::Gone, _) => {}
            (_, WriteOutcome::Done(_)) => {
                self.history.answers(now);
                self.look_again();
                self.membership.renewed(write.sent);
                self.confirm_policies(&write.write, write.sent, now);
            }
            (standing, WriteOutcome::Failed) => {
                if standing == Standing::Joining {
                    self.history.away();
                }
                self.membership.renewal_failed(now);
            }
            (Standing::Joining, WriteOutcome::Conflict(_)) => {
                // The name is in use, maybe through an earlier write whose answer was lost.
                self.start_over(&id, "its Lease exists already", now);
            }
            (Standing::Holding { .. }, WriteOutcome::Conflict(Some(Object::Lease(held))))
                if held.holder.as_deref() == Some(id.as_str()) =>
            {
                self.membership.renew_now(now);
            }
            (Standing::Holding { .. }, WriteOutcome::Conflict(_)) => self.fence(now),
        }
    }

    pub(super) fn measured(&mut self, work: &BTreeMap<ShardId, Work>, now: Moment) {
        let me = self.membership.id();
        let others = self.world.members().iter().filter(|(id, _)| *id != me);
        self.load.measure(work, others.flat_map(|(_, member)| member.spec.loads.iter()), now);
    }

    pub(super) fn keep_member(&mut self, now: Moment) {
        if !self.membership.is_valid(now) {
            return;
        }
        self.follow_reach();
        let id = self.membership.id();
        let spec = self.member_spec();
        let Some(held) = self.world.members().get(id) else {
            if self.leave_by.is_none() {
                let record =
                    MemberRecord { id: id.clone(), version: ObjectVersion::default(), spec };
                self.write_member(Write::Create(Object::Member(record)), now);
            }
            return;
        };
        // Older definitions do not keep the history: then it is not written again at once.
        let only_count = held.spec.is_same_but_counts(&spec);
        let soon = now < self.member_written + self.config.lease.renew_interval;
        if held.spec == spec || (only_count && soon) || self.has_sent(&held.version, &spec) {
            return;
        }
        let record = MemberRecord { spec, ..held.clone() };
        self.write_member(Write::Replace(Object::Member(record)), now);
    }

    fn write_member(&mut self, write: Write, now: Moment) {
        if self.outbox.offer(write, now) {
            self.member_written = now;
        }
    }

    fn member_spec(&self) -> MemberSpec {
        MemberSpec {
            identity: self.config.identity.clone(),
            state: self.state(),
            capacity: self.config.capacity,
            protocol_version: self.config.speaks.newest,
            oldest_protocol_version: self.config.speaks.reported_oldest(),
            groups: self.groups.clone(),
            group_details: GroupDetail::all_of(&self.config.traits),
            shards: self.tracker.owned().holdings.len().try_into().unwrap_or(u32::MAX),
            acknowledged_drains: self.tracker.acknowledged(),
            drain: self.cordon.is_cordoned(),
            named_clusters: self.names.said(),
            busy: self.load.reported_busy(),
            loads: self.load.reported(),
            cluster_loads: self.load.reported_sums(),
            rest_load: self.load.reported_rest(),
            down_clusters: self.reported_down(),
            clusters: self.reach.said(),
            container: self.config.container.clone(),
            succeeds: self.world.succeeded(),
            history: self.history.said(),
            zone: self.config.zone.clone(),
            installation: Some(self.config.installation.clone()),
        }
    }

    /// Texts are made only of those that the Member has room for: there may be thousands, and this is done at each turn.
    fn reported_down(&self) -> Vec<DownCluster> {
        let unusable: BTreeSet<&ClusterName> = self.unusable.names().collect();
        let failing = self.names.down().chain(self.failing.reported());
        let failing = failing.filter(|failing| !unusable.contains(&failing.cluster));
        DownCluster::that_fit(self.unusable.reported().chain(failing))
    }
}

#[cfg(test)]
#[path = "own_tests.rs"]
mod tests;
