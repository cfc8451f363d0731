//! What the coordinator does, as a step from the observed world to writes.
//!
//! In this order, it judges every member by its Lease; takes the Leases that ran out; brings every
//! ShardMap up to date with what is final (gone owners, finished drains, clusters and groups that came
//! or went); weighs the shards and plans moves, splits and merges; removes the objects of the dead. A cluster
//! in which nothing has changed since the last step is taken over from it (`last`).
//!
//! # Invariants
//! - **S4** A write of a map replaces exactly the version from which its plan was computed, or creates
//!   a map where there is none. While a write of a map is under way, planning goes on from what it will
//!   leave, and the map is not written (`base::Base`).
//! - **S5** The coordinator takes a shard from a silent or dead member only after it took that member's
//!   Lease by compare-and-swap and read the taken Lease back: from then on no renewal can succeed. If the Lease is
//!   missing, the coordinator first creates it in its own name, after the longest duration that it ever saw in a Lease;
//!   that fails if the Lease was only not seen. A Lease that anybody else took, gave back or edited is taken too, when
//!   it has run out (`lease::edits`).
//! - The coordinator neither replaces nor deletes a map in a version of the protocol that it does not
//!   speak. It changes the version of a map only when all owners of its shards speak the next one
//!   ([`crate::protocol`]).
//! - **S3** A map is deleted only when the coordinator's Lease, as read back, carries the map's highest
//!   epoch. A new map begins from what the Lease carries ([`crate::floor`]).
//! - **S3** No owner is named at the epoch floor or below it: after a change of home's history the floor
//!   lies above all epochs that home has forgotten (`src/history.rs`).
//! - The facts that free a shard (acknowledged drain, taken or released Lease) never become false again,
//!   so acting on an old view of *other* objects does no harm.
//! - Shards of a group of scope `Fleet` get a next owner only when no other member may act for any of
//!   them, over all maps. In a map that cannot be read any more, those may act who owned them last, until their Leases
//!   are taken; in one that was never read, or that others write, anybody. So it is in a map that a write under way
//!   could still replace: of a coordinator that was in office before, or one of this coordinator that got no answer.
//!   The coordinator writes such maps anew, with what they say, and gives the shards away when it has read that back
//!   (`written`).
//! - **S1** No map is made in place of one that the coordinator does not know for certain before one silence has passed,
//!   unless nobody else may act (`unseen`).
//! - There is one map for each cluster, whatever its names (`names`).
//! - Work in no cluster ([`model::single`]) has its shards in a map of its own, which exists as long as
//!   a live member can run such work. Names alone decide that, so a coordinator needs to know neither
//!   the work nor its configuration.

mod assign;
mod base;
mod dead;
mod draft;
mod last;
mod names;
mod peers;
mod reach;
mod removal;
mod rest;
mod unseen;
mod written;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::{ClusterName, Epoch, MemberId, Moment, ShardId, single};

use crate::config::LeaseTimings;
use crate::identity::Identities;
use crate::lease::{self, LeaseRecord, LeaseState};
use crate::policy::Policies;
use crate::ranges::RangeChange;
use crate::record::{MapRecord, Object, Write};
use crate::versions::ProtocolVersions;
use crate::weight::LoadHistory;
use crate::world::World;

use draft::Draft;
use last::LastPlan;
use names::{Disputes, Unclaimed};
use peers::Peers;
use removal::Removals;
use rest::Resting;
use unseen::Unseen;
pub(crate) use written::Written;

/// How long a new coordinator waits for members that start together, if no shard has an owner.
const START_WAIT: Duration = Duration::from_millis(400);
/// How long Leases and Members of the dead stay, for people to see.
const DEAD_KEPT: Duration = Duration::from_secs(60);

/// The inputs of a step.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// The coordinator itself.
    pub me: &'a MemberId,
    /// The home cluster as it sees it.
    pub world: &'a World,
    /// The maps as the writes under way will leave them.
    pub pending: BTreeMap<&'a ClusterName, &'a MapRecord>,
    /// The clusters that the coordinator itself has configured.
    pub clusters: &'a BTreeSet<ClusterName>,
    /// Which clusters these are, as far as they told.
    pub identities: &'a Identities,
    /// What people want.
    pub policies: &'a Policies,
    /// The timings by which it judges Leases.
    pub timings: LeaseTimings,
    /// Since when it coordinates.
    pub since: Moment,
}

/// The result of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The writes, the most urgent first.
    pub writes: Vec<Write>,
    /// When to plan again even if nothing changes, the states of the Leases neither.
    pub wake: Option<Moment>,
    /// The epoch floor that the coordinator's Lease must carry before maps can be deleted.
    pub floor: Epoch,
    /// Whether maps stay because they went with a mass of others.
    pub mass: bool,
    /// What people should know, each with object, cause and fix.
    pub problems: Vec<String>,
    /// How many clusters it took over from the plan before, because nothing had changed in them.
    pub kept: usize,
    /// How many clusters it looked at anew.
    pub rebuilt: usize,
}

/// What a coordinator remembers between steps: since when something is missing, the loads of shards, the splits
/// and merges it began, and what the next plan may take over. The next coordinator does not need this: a drain
/// for a split then ends without the split.
#[derive(Clone, Debug, Hash)]
pub struct Coordinator {
    speaks: ProtocolVersions,
    missing_leases: BTreeMap<MemberId, Moment>,
    unclaimed: Unclaimed,
    disputes: Disputes,
    removals: Removals,
    resting: Resting,
    loads: LoadHistory,
    range_changes: BTreeSet<RangeChange>,
    unseen: Unseen,
    last: LastPlan,
    /// What it knows of its own writes; by default, that nobody was in office before and none has failed.
    pub(crate) written: Written,
}

impl Default for Coordinator {
    fn default() -> Self {
        Self::speaking(ProtocolVersions::SPOKEN)
    }
}

impl Coordinator {
    /// A coordinator that speaks these versions of the protocol and remembers nothing.
    pub(crate) fn speaking(speaks: ProtocolVersions) -> Self {
        Self {
            speaks,
            missing_leases: BTreeMap::new(),
            unclaimed: Unclaimed::default(),
            disputes: Disputes::default(),
            removals: Removals::default(),
            resting: Resting::default(),
            loads: LoadHistory::default(),
            range_changes: BTreeSet::new(),
            unseen: Unseen::default(),
            last: LastPlan::default(),
            written: Written::default(),
        }
    }

    /// One step. Depends only on its inputs and on what the coordinator remembers.
    pub fn step(&mut self, view: &View<'_>, now: Moment) -> Plan {
        let mut plan = Plan::default();
        let peers = Peers::judge(view, self.speaks, now);
        let clusters = wanted(view.clusters, &peers);
        let view = &View { clusters: &clusters, ..view.clone() };
        self.take_leases(view, &peers, now, &mut plan);
        self.write_maps(view, &peers, now, &mut plan);
        dead::collect(view, &peers, now, &mut plan);
        plan
    }

    /// Takes the Leases that ran out or whose member is dead, and creates those that have been missing for
    /// as long as a silence.
    fn take_leases(&mut self, view: &View<'_>, peers: &Peers, now: Moment, plan: &mut Plan) {
        for (member, state) in &peers.states {
            let Some(observed) = view.world.lease_of(member) else { continue };
            let owns = || {
                let mut former = view.world.former_owners();
                view.world.owners().contains_key(member) || former.any(|owner| owner == member)
            };
            let is_due = *state == LeaseState::Expired || (*state == LeaseState::Over && owns());
            if is_due {
                let taken = observed.record.taken_by(view.me, view.timings.duration);
                plan.writes.push(Write::Replace(Object::Lease(taken)));
            }
        }
        self.missing_leases.retain(|member, _| peers.missing.contains(member));
        for member in &peers.missing {
            let due = now + view.world.silence(view.timings, now);
            let due = *self.missing_leases.entry(member.clone()).or_insert(due);
            if now < due {
                plan.wake_at(due);
                continue;
            }
            let name = lease::member_lease_name(member);
            let tombstone = LeaseRecord::new(name, view.me, view.timings.duration);
            plan.writes.push(Write::Create(Object::Lease(tombstone)));
        }
    }

    fn write_maps(&mut self, view: &View<'_>, peers: &Peers, now: Moment, plan: &mut Plan) {
        let names = self.unclaimed.judge(view, peers, now, plan);
        let is_renamed = |name: &ClusterName| names.has_renamed(name);
        let mut unwanted = self.removals.due(view, peers, is_renamed, now, plan);
        unwanted.extend(names.unwanted());
        let kept = names.kept(view.clusters);
        let view = &View { clusters: &kept, ..view.clone() };
        let mut drafts = draft::all(view, peers, &unwanted);
        self.range_changes.retain(|change| draft::is_under_way(&drafts, change));
        self.unseen.follow(view, peers, &mut drafts, now, plan);
        let holders = draft::fleet_holders(&drafts, peers, view.world, &self.written);
        self.last.compare(&mut drafts, peers, view.world);
        for draft in drafts.values_mut() {
            // Before what drains for another member gets there.
            draft.pause(view.policies);
            if !draft.is_as_before() {
                draft.bring_up_to_date(peers, &self.range_changes, &holders);
            }
        }
        let lost = self.disputes.lost(&names, now, plan);
        names.apply(view, &mut drafts, &lost);
        // Again for shards that are new, and by names that are known only now.
        drafts.values_mut().for_each(|draft| draft.pause(view.policies));
        if !view.policies.is_empty() {
            let shards: Vec<ShardId> = drafts.values().flat_map(Draft::named_shards).collect();
            plan.problems.extend(view.policies.problems(shards.iter()));
            plan.problems.extend(drafts.values().flat_map(|d| d.paused_by_former(view.policies)));
        }
        let started = view.since + START_WAIT;
        if now < started && drafts.values().all(Draft::is_unowned) {
            plan.wake_at(started);
            return;
        }
        plan.kept = drafts.values().filter(|draft| draft.is_as_before()).count();
        plan.rebuilt = drafts.len() - plan.kept;
        let causes = self.assign(view, &mut drafts, peers, &holders, now, plan);
        for draft in drafts.values_mut() {
            draft.use_protocol(peers, view.world);
            draft.raise_epochs(view.world);
            draft.explain(&causes, view);
        }
        for draft in drafts.into_values() {
            plan.floor = plan.floor.max(draft.floor());
            plan.writes.extend(draft.into_write());
        }
    }
}

/// The clusters to have maps: the configured ones, those that other members have configured, and the one
/// that stands for the fleet, if a member can run work that is of no cluster.
fn wanted<'a>(
    configured: &'a BTreeSet<ClusterName>,
    peers: &Peers<'_>,
) -> Cow<'a, BTreeSet<ClusterName>> {
    let mut clusters = Cow::Borrowed(configured);
    if peers.new_clusters.iter().any(|cluster| !configured.contains(*cluster)) {
        clusters.to_mut().extend(peers.new_clusters.iter().copied().cloned());
    }
    if peers.groups.keys().any(single::is_single) {
        clusters.to_mut().insert(single::fleet_cluster());
    }
    clusters
}

impl Plan {
    fn wake_at(&mut self, at: Moment) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }
}

#[cfg(test)]
mod tests;
