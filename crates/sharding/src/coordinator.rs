//! What the coordinator does, as a step from the observed world to writes.
//!
//! In this order: judge every member by its Lease; take the Leases that ran out; bring every
//! ShardMap up to date with what is final (gone owners, finished drains, clusters and groups that
//! came or went); weigh the shards, plan moves, splits and merges for what remains; collect what
//! the dead left behind.
//!
//! # Invariants
//! - **S4** A map is written only as a replacement of the version its plan was computed from, or as
//!   a creation where none is. While a write of a map is under way, planning goes on from what it
//!   would leave, and nothing is written to that map (the outbox holds one write per object).
//! - **S5** A shard is taken from a silent member only after that member's Lease was taken by
//!   compare-and-swap and the taken Lease was read back: from then on no renewal of it can succeed.
//!   A Lease that is missing is created in the coordinator's name first, which fails if it was
//!   merely not seen.
//! - A map of a version of the protocol that the coordinator does not speak is neither replaced nor
//!   deleted, and one that it speaks changes its version only when all who own shards of it speak
//!   the next one ([`crate::protocol`]).
//! - **S3** A map is deleted only when the coordinator's Lease, as read back, carries the map's
//!   highest epoch, and a map made anew begins from what that carries ([`crate::floor`]).
//! - The facts that free a shard (acknowledged drain, taken or released Lease) never become false
//!   again, so acting on an old view of *other* objects does no harm.
//! - Shards of a group of scope `Fleet` get a next owner only when nobody else may act for any of
//!   them, over all maps. Two coordinators that overlap could still give shards of such a group, in
//!   *different* maps, to different members: what S1 promises, it promises per shard.

mod assign;
mod dead;
mod draft;
mod peers;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::{ClusterName, Epoch, MemberId, Moment, single};

use crate::config::LeaseTimings;
use crate::lease::{self, LeaseRecord, LeaseState};
use crate::protocol::Versions;
use crate::ranges::Reshape;
use crate::record::{MapRecord, Object, Write};
use crate::weight::Scales;
use crate::world::World;

use draft::Draft;
use peers::Peers;

/// How long a new coordinator waits for members that start together, when nobody owns anything.
pub const SETTLE: Duration = Duration::from_millis(400);
/// How long a cluster is missing from the configuration before its shards are drained: a
/// configuration that is being loaded or swapped must not stop a fleet.
pub const REMOVAL_GRACE: Duration = Duration::from_secs(5);
/// How long Leases and Members of the dead are kept, for people to see.
pub const DEAD_KEPT: Duration = Duration::from_secs(60);

/// What a step is computed from.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// The coordinator itself.
    pub me: &'a MemberId,
    /// The home cluster as it sees it.
    pub world: &'a World,
    /// The maps as the writes under way would leave them.
    pub pending: BTreeMap<&'a ClusterName, &'a MapRecord>,
    /// The configured clusters.
    pub clusters: &'a BTreeSet<ClusterName>,
    /// How liveness is told.
    pub timings: LeaseTimings,
    /// Since when it coordinates.
    pub since: Moment,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The writes, the most urgent first.
    pub writes: Vec<Write>,
    /// When to plan again even if nothing changes.
    pub wake: Option<Moment>,
    /// The epoch floor that the coordinator's Lease must carry before maps can be deleted.
    pub floor: Epoch,
}

/// What a coordinator remembers between steps: how long it waits for what is missing, what shards
/// weighed, and which splits and merges it began. The next coordinator need not know: a drain that
/// was to end in a split then merely ends.
#[derive(Clone, Debug, Hash)]
pub struct Coordinator {
    speaks: Versions,
    missing_leases: BTreeMap<MemberId, Moment>,
    missing_clusters: BTreeMap<ClusterName, Moment>,
    scales: Scales,
    reshaping: BTreeSet<Reshape>,
}

impl Default for Coordinator {
    fn default() -> Self {
        Self::speaking(Versions::SPOKEN)
    }
}

impl Coordinator {
    /// A coordinator that speaks these versions of the protocol, and remembers nothing.
    pub fn speaking(speaks: Versions) -> Self {
        Self {
            speaks,
            missing_leases: BTreeMap::new(),
            missing_clusters: BTreeMap::new(),
            scales: Scales::default(),
            reshaping: BTreeSet::new(),
        }
    }

    /// One step. Pure but for what is remembered.
    pub fn step(&mut self, view: &View<'_>, now: Moment) -> Plan {
        let mut plan = Plan::default();
        let peers = Peers::judge(view, self.speaks, now);
        let clusters = with_fleet(view.clusters, &peers);
        let view = &View { clusters: &clusters, ..view.clone() };
        self.take_leases(view, &peers, now, &mut plan);
        self.write_maps(view, &peers, now, &mut plan);
        dead::collect(view, &peers, now, &mut plan);
        plan
    }

    /// Takes the Leases that ran out, and those that are missing for as long.
    fn take_leases(&mut self, view: &View<'_>, peers: &Peers, now: Moment, plan: &mut Plan) {
        for (member, state) in &peers.states {
            let Some(observed) = view.world.lease_of(member) else { continue };
            if *state == LeaseState::Expired {
                let taken = observed.record.taken_by(view.me, view.timings.duration);
                plan.writes.push(Write::Replace(Object::Lease(taken)));
            } else if state.is_alive() {
                let next = observed.late(view.timings);
                let expires = observed.expires(view.timings.margin);
                plan.wake_at(if next > now { next } else { expires });
            }
        }
        self.missing_leases.retain(|member, _| peers.missing.contains(member));
        for member in &peers.missing {
            let due = now + view.timings.silence();
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
        let unwanted = self.unwanted_clusters(view, now, plan);
        let mut drafts = draft::all(view, &peers.speech, &unwanted);
        self.reshaping.retain(|reshape| draft::is_under_way(&drafts, reshape));
        let waiting = draft::fleet_holders(&drafts, peers);
        for draft in drafts.values_mut() {
            draft.bring_up_to_date(peers, &self.reshaping, &waiting);
        }
        let settled = view.since + SETTLE;
        if now < settled && drafts.values().all(Draft::is_nobodys) {
            plan.wake_at(settled);
            return;
        }
        self.assign(view, &mut drafts, peers, now, plan);
        for draft in drafts.values_mut() {
            draft.speak(peers, view.world);
        }
        for draft in drafts.into_values() {
            plan.floor = plan.floor.max(draft.floor());
            plan.writes.extend(draft.into_write());
        }
    }

    /// The clusters that have a map and have been missing from the configuration for long enough.
    fn unwanted_clusters(
        &mut self,
        view: &View<'_>,
        now: Moment,
        plan: &mut Plan,
    ) -> BTreeSet<ClusterName> {
        let missing = |cluster: &ClusterName| {
            view.world.maps().contains_key(cluster) && !view.clusters.contains(cluster)
        };
        self.missing_clusters.retain(|cluster, _| missing(cluster));
        for cluster in view.world.maps().keys().filter(|cluster| missing(cluster)) {
            self.missing_clusters.entry(cluster.clone()).or_insert(now);
        }
        let mut unwanted = BTreeSet::new();
        for (cluster, &since) in &self.missing_clusters {
            if now < since + REMOVAL_GRACE {
                plan.wake_at(since + REMOVAL_GRACE);
            } else {
                unwanted.insert(cluster.clone());
            }
        }
        unwanted
    }
}

/// The clusters to have maps: the configured ones, and the one that stands for the fleet, if a member
/// can run work that is of no cluster.
fn with_fleet<'a>(
    configured: &'a BTreeSet<ClusterName>,
    peers: &Peers<'_>,
) -> Cow<'a, BTreeSet<ClusterName>> {
    let mut clusters = Cow::Borrowed(configured);
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
