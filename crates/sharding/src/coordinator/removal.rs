//! Which maps go: those of clusters that no live member has configured, after a while.
//!
//! A map that goes too early takes the shards of a cluster out of the fleet's sight while users wait for
//! them; one that stays too long does no harm. So
//! - a map goes soon only if a live member that holds a shard of it says that it has the cluster no
//!   longer: somebody removed it. If all members that had it left in order, as when replicas are replaced by
//!   ones without the cluster, it goes a little later, because one may come back. Whoever died may come back
//!   much later;
//! - **P1** a map of which people have paused something does not go soon: the cluster may come back under another name,
//!   and the map is all that tells which one it was. Nor does it while some member has a cluster that has not told which
//!   one it is, because it may be that one;
//! - while it is not known what some live member has configured, no map goes;
//! - a mass of maps does not go soon either, nor most of them if they are several: a Secret or a folder that
//!   somebody emptied by mistake must not drain a fleet. Meanwhile the shards stay where they are, and go on when
//!   the clusters are back. Those that are not back yet stay as long as if all were missing, whoever coordinates: the
//!   coordinator's Lease says that there are some, and then whatever is missing counts with them. The only map goes as
//!   soon as any: nothing tells whether it was meant, and of all fleets that have one cluster, most are tried out and
//!   taken down.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::{ClusterName, Moment, single};

use super::peers::Peers;
use super::{Plan, View};
use crate::api::ConfiguredClusters;
use crate::handover::Entry;
use crate::planner::{Fit, Role};
use crate::problem;
use crate::reach;

/// How long a cluster must be missing from the configuration before its shards are drained: loading or
/// swapping a configuration must not stop a fleet.
pub(super) const REMOVAL_GRACE: Duration = Duration::from_secs(5);
/// The same for a cluster whose members left.
pub(super) const LEFT_GRACE: Duration = Duration::from_secs(45);
/// The same for a cluster whose members died, and for a mass of clusters: enough for a node to be
/// replaced, and for people to notice.
pub(super) const LONG_GRACE: Duration = Duration::from_secs(600);
/// So many maps at once are a mass, if they are also more than [`MASS_PART`] of all.
const MASS: usize = 10;
/// The part of all maps, as its reciprocal.
const MASS_PART: usize = 5;

/// The clusters with a map that no live member has configured.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Removals {
    missing: BTreeMap<ClusterName, Missing>,
    /// The clusters that only leaving members have configured.
    leaving: BTreeSet<ClusterName>,
}

#[derive(Clone, Debug, Hash)]
struct Missing {
    since: Moment,
    /// Whether a live owner said so.
    was_removed: bool,
    /// Whether the last members that had it left in order.
    was_left: bool,
    /// Whether it would have gone with a mass of others.
    was_of_mass: bool,
}

/// Whether live members have a cluster configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Yes,
    /// Only by members that leave.
    Leaving,
    Unknown,
    No,
}

impl Removals {
    /// The clusters whose maps are to go now. Of one that `is_renamed` nobody need be told that it is missing.
    pub(super) fn due(
        &mut self,
        view: &View<'_>,
        peers: &Peers<'_>,
        is_renamed: impl Fn(&ClusterName) -> bool,
        now: Moment,
        plan: &mut Plan,
    ) -> BTreeSet<ClusterName> {
        let all_known = self.follow(view, peers, now);
        let all = reach::mapped(view.world).count();
        let count = self.missing.keys().filter(|name| is_workload(name)).count();
        let is_mass = (count > MASS && count * MASS_PART > all) || (count > 1 && count * 2 > all);
        let was_mass = view.world.keeps_mass();
        let (mut due, mut kept, mut paused) = (BTreeSet::new(), Vec::new(), None);
        let mut any_of_mass = false;
        let maps = view.world.maps();
        let is_there =
            |cluster: &ClusterName| is_workload(cluster) && !self.missing.contains_key(cluster);
        let any_untold =
            maps.values().any(|map| map.cluster_uid.is_none() && is_there(&map.cluster));
        for (cluster, missing) in &mut self.missing {
            let early = missing.since + REMOVAL_GRACE;
            if now < early {
                plan.wake_at(early);
                continue;
            }
            let with_mass = is_mass || was_mass;
            missing.was_of_mass |= with_mass && is_workload(cluster) && !missing.is_death();
            let map = &maps[cluster];
            let mut paths = map.entries.keys().filter(|_| is_workload(cluster));
            let policy = paths.find_map(|path| view.policies.pause_in(map, path));
            let may_be_another = policy.is_some() && map.cluster_uid.is_some() && any_untold;
            let may_be_mistaken =
                missing.was_of_mass || may_return(cluster, peers) || policy.is_some();
            let grace = missing.grace(may_be_mistaken);
            let late = missing.since + grace;
            if now < late || may_be_another {
                if now < late {
                    plan.wake_at(late);
                }
                match policy {
                    _ if grace < LONG_GRACE || is_renamed(cluster) => {}
                    Some(policy) if !missing.was_of_mass => {
                        paused = paused.or(Some((cluster, policy)));
                    }
                    _ => {
                        any_of_mass |= missing.was_of_mass;
                        kept.push(cluster);
                    }
                }
            } else if wanted(cluster, view, peers) == Wanted::No {
                due.insert(cluster.clone());
            }
        }
        plan.problems.extend(problem::unclaimed(&kept, LONG_GRACE, any_of_mass));
        plan.problems.extend(paused.map(|(name, policy)| problem::paused_and_gone(name, policy)));
        plan.problems.extend(perhaps_unclaimed(view, peers));
        if all == 0
            && !view.clusters.iter().any(is_workload)
            && !peers.groups.keys().all(single::is_single)
        {
            plan.problems.push(problem::NO_CLUSTER.to_owned());
        }
        plan.mass = self.missing.values().any(|missing| missing.was_of_mass)
            || (was_mass && !(all_known && self.missing.is_empty()));
        due
    }

    /// Brings it up to date. While it is not known whether a cluster is missing, its time goes on. Returns whether that
    /// is known of all.
    fn follow(&mut self, view: &View<'_>, peers: &Peers<'_>, now: Moment) -> bool {
        let mut all_known = true;
        let maps = view.world.maps();
        let is_foreign =
            |name: &ClusterName| maps.contains_key(name) && !view.clusters.contains(name);
        self.missing.retain(|cluster, _| is_foreign(cluster));
        self.leaving.retain(is_foreign);
        for (cluster, map) in maps.iter().filter(|(name, _)| !view.clusters.contains(*name)) {
            let wanted = wanted(cluster, view, peers);
            match wanted {
                Wanted::Unknown => {
                    all_known = false;
                    continue;
                }
                Wanted::Yes | Wanted::Leaving => {
                    self.missing.remove(cluster);
                    if wanted == Wanted::Leaving {
                        self.leaving.insert(cluster.clone());
                    } else {
                        self.leaving.remove(cluster);
                    }
                    continue;
                }
                Wanted::No => {}
            }
            let mut holders = map.entries.values().filter_map(Entry::owner);
            let was_removed =
                cluster.as_str() == single::FLEET || holders.any(|holder| peers.is_alive(holder));
            let was_left = self.leaving.contains(cluster);
            let fresh = Missing { since: now, was_removed: false, was_left, was_of_mass: false };
            self.missing.entry(cluster.clone()).or_insert(fresh).was_removed |= was_removed;
        }
        all_known
    }
}

impl Missing {
    /// Whether all who had it died, as far as is known.
    fn is_death(&self) -> bool {
        !self.was_removed && !self.was_left
    }

    /// How long its map stays.
    fn grace(&self, may_be_mistaken: bool) -> Duration {
        match self {
            _ if may_be_mistaken => LONG_GRACE,
            Self { was_removed: true, .. } => REMOVAL_GRACE,
            Self { was_left: true, .. } => LEFT_GRACE,
            _ => LONG_GRACE,
        }
    }
}

/// What is wrong where clusters are served by nobody, because a member may have them in a source that it cannot read.
fn perhaps_unclaimed(view: &View<'_>, peers: &Peers<'_>) -> Option<String> {
    let is_partial = |said: &ConfiguredClusters| !said.open.is_empty();
    let members = view.world.members().iter();
    let partial = members.filter(|(_, its)| its.spec.clusters.as_ref().is_some_and(is_partial));
    let partial: Vec<_> =
        partial.filter_map(|(id, _)| Some((id, &peers.roles.get(id)?.reach))).collect();
    let may_have = |name: &ClusterName| {
        let mut partial = partial.iter();
        partial.find(|(_, reach)| reach.of(name) == Fit::Unknown).map(|(id, _)| *id)
    };
    let unclaimed = view.world.maps().keys().filter(|name| !view.clusters.contains(*name));
    let mut open = unclaimed.filter(|name| wanted(name, view, peers) == Wanted::Unknown);
    let (first, member) = open.find_map(|name| Some((name, may_have(name)?)))?;
    let more = open.filter(|name| may_have(name) == Some(member)).count();
    Some(problem::perhaps_unclaimed(first, more, member))
}

/// Whether it is a cluster, and not the name that stands for the fleet.
fn is_workload(cluster: &ClusterName) -> bool {
    cluster.as_str() != single::FLEET
}

/// Whether a member had a cluster configured that died a short while ago.
fn may_return(cluster: &ClusterName, peers: &Peers<'_>) -> bool {
    peers.died.iter().any(|reach| reach.of(cluster) >= Fit::Fails)
}

/// Whether live members have a cluster configured.
pub(super) fn wanted(cluster: &ClusterName, view: &View<'_>, peers: &Peers<'_>) -> Wanted {
    if view.clusters.contains(cluster) {
        return Wanted::Yes;
    }
    if cluster.as_str() == single::FLEET {
        return Wanted::No;
    }
    let mut wanted = Wanted::No;
    for member in peers.roles.values() {
        match member.reach.of(cluster) {
            Fit::Fails | Fit::Doubtful | Fit::Unwanted | Fit::Serves
                if member.role == Role::Leaving =>
            {
                wanted = if wanted == Wanted::No { Wanted::Leaving } else { wanted };
            }
            Fit::Fails | Fit::Doubtful | Fit::Unwanted | Fit::Serves => return Wanted::Yes,
            Fit::Unknown => wanted = Wanted::Unknown,
            Fit::Lacks => {}
        }
    }
    if peers.groups_known { wanted } else { Wanted::Unknown }
}
