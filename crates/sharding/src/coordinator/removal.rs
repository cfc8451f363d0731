//! Which maps go: those of clusters that no live member has configured, after a while.
//!
//! A map that goes too early takes the shards of a cluster out of the fleet's sight while users wait for
//! them; one that stays too long does no harm. So
//! - a map goes soon only if a live member that holds a shard of it says that it has the cluster no
//!   longer: somebody removed it. Whoever merely died or left may come back with it;
//! - while it is not known what some live member has configured, no map goes;
//! - a mass of maps does not go soon either: a Secret or a folder that somebody emptied by mistake must
//!   not drain a fleet. Meanwhile the shards stay where they are, and go on when the clusters are back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::{ClusterName, Moment, single};

use super::peers::Peers;
use super::{Plan, View};
use crate::handover::Entry;
use crate::planner::Fit;
use crate::problem;

/// How long a cluster must be missing from the configuration before its shards are drained: loading or
/// swapping a configuration must not stop a fleet.
pub(super) const REMOVAL_GRACE: Duration = Duration::from_secs(5);
/// The same for a cluster whose members are gone, and for a mass of clusters: enough for a node to be
/// replaced, and for people to notice.
pub(super) const LONG_GRACE: Duration = Duration::from_secs(600);
/// So many maps at once are a mass, if they are also more than [`MASS_PART`] of all.
const MASS: usize = 10;
/// The part of all maps, as its reciprocal.
const MASS_PART: usize = 5;

/// The clusters with a map that no live member has configured.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Removals(BTreeMap<ClusterName, Missing>);

#[derive(Clone, Debug, Hash)]
struct Missing {
    since: Moment,
    /// Whether a live owner said so.
    was_removed: bool,
}

/// Whether live members have a cluster configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Yes,
    Unknown,
    No,
}

impl Removals {
    /// The clusters whose maps are to go now.
    pub(super) fn due(
        &mut self,
        view: &View<'_>,
        peers: &Peers<'_>,
        now: Moment,
        plan: &mut Plan,
    ) -> BTreeSet<ClusterName> {
        self.follow(view, peers, now);
        let is_mass = self.0.len() > MASS && self.0.len() * MASS_PART > view.world.maps().len();
        let mut due = BTreeSet::new();
        let mut kept = Vec::new();
        for (cluster, missing) in &self.0 {
            let (early, late) = (missing.since + REMOVAL_GRACE, missing.since + LONG_GRACE);
            let goes_early = missing.was_removed && !is_mass && !may_return(cluster, peers);
            if now < early {
                plan.wake_at(early);
            } else if now < late && !goes_early {
                plan.wake_at(late);
                kept.push(cluster);
            } else if wanted(cluster, view, peers) == Wanted::No {
                due.insert(cluster.clone());
            }
        }
        plan.problems.extend(problem::unclaimed(&kept, LONG_GRACE, is_mass));
        due
    }

    /// Brings it up to date. While it is not known whether a cluster is missing, its time goes on.
    fn follow(&mut self, view: &View<'_>, peers: &Peers<'_>, now: Moment) {
        let maps = view.world.maps();
        self.0.retain(|cluster, _| maps.contains_key(cluster));
        for (cluster, map) in maps.iter().filter(|(name, _)| !view.clusters.contains(*name)) {
            let is_missing = match wanted(cluster, view, peers) {
                Wanted::Yes => false,
                Wanted::Unknown => continue,
                Wanted::No => true,
            };
            if !is_missing {
                self.0.remove(cluster);
                continue;
            }
            let mut owners = map.entries.values().filter_map(Entry::owner);
            let was_removed =
                cluster.as_str() == single::FLEET || owners.any(|owner| peers.is_alive(owner));
            let fresh = Missing { since: now, was_removed: false };
            self.0.entry(cluster.clone()).or_insert(fresh).was_removed |= was_removed;
        }
        self.0.retain(|cluster, _| !view.clusters.contains(cluster));
    }
}

/// Whether a member had a cluster configured that died a short while ago.
fn may_return(cluster: &ClusterName, peers: &Peers<'_>) -> bool {
    peers.died.iter().any(|reach| matches!(reach.of(cluster), Fit::Fails | Fit::Serves))
}

/// Whether a live member may have a cluster configured.
pub(super) fn is_wanted(cluster: &ClusterName, view: &View<'_>, peers: &Peers<'_>) -> bool {
    wanted(cluster, view, peers) != Wanted::No
}

/// Whether live members have a cluster configured.
fn wanted(cluster: &ClusterName, view: &View<'_>, peers: &Peers<'_>) -> Wanted {
    if view.clusters.contains(cluster) {
        return Wanted::Yes;
    }
    if cluster.as_str() == single::FLEET {
        return Wanted::No;
    }
    let mut wanted = Wanted::No;
    for member in peers.roles.values() {
        match member.reach.of(cluster) {
            Fit::Fails | Fit::Serves => return Wanted::Yes,
            Fit::Unknown => wanted = Wanted::Unknown,
            Fit::Lacks => {}
        }
    }
    if peers.groups_known { wanted } else { Wanted::Unknown }
}
