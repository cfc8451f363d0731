//! Which cluster a name stands for (S8): a cluster is the uid of its namespace `kube-system`. Pure.
//!
//! Two replicas may know one cluster by two names, and one name may come to stand for another cluster.
//! The ShardMap of a name says for which cluster it stands: an annotation, so that the definitions of
//! every release keep it. Only the coordinator writes it (`coordinator::names`), and only into one map
//! for each cluster. Each member compares it with what the clusters say to *it*.
//!
//! # Invariants
//! - A member acts under no name whose map stands for another cluster than its own of that name, and
//!   under no name whose cluster has a map under another name. It finds that out by itself, so it holds
//!   also beside a coordinator that knows less, or is of an earlier release.
//! - What it finds is not taken for more than it is: as long as a cluster does not tell its identity, or
//!   the map does not, members act as those of earlier releases do.
//! - A member that may not act drains by itself, as if the map asked it to, and acknowledges that drain
//!   (`ownership`). So S1 and S2 hold as for any drain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::{ClusterName, ClusterUid, DisputedNames, Identity, Moment};

use crate::api::{DownCluster, NamedCluster};
use crate::record::MapRecord;
use crate::world::World;

/// How long a name must be refused before the Member says so: while a cluster is renamed, its new name is
/// refused for a moment.
pub(crate) const REPORT_AFTER: Duration = Duration::from_secs(10);
/// The most clusters that a Member names because their maps do not.
pub(crate) const MAX_NAMED: usize = 64;
/// How often it names them anew: while a coordinator fills in the maps of a fleet, a Member is not written
/// for each of them.
const SAY_EVERY: Duration = Duration::from_secs(5);

/// The clusters that a member has configured and that told it who they are.
pub type Identities = BTreeMap<ClusterName, Arc<Identity>>;

/// Why a member may not act under a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Refusal {
    /// The map of that name stands for another cluster.
    Another(ClusterUid),
    /// The cluster has this other name.
    Second(ClusterName),
}

/// The names of one cluster.
#[derive(Clone, Debug, Default)]
struct Called {
    /// Those that the member has configured, in the order that the coordinator will follow.
    own: BTreeSet<(usize, ClusterName)>,
    /// Those whose maps stand for it. Only coordinators that overlap can write two.
    mapped: BTreeSet<ClusterName>,
}

/// What a member knows of its clusters' identities, and what follows from it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    own: Identities,
    /// For which cluster each map stands that says it.
    stands: BTreeMap<ClusterName, ClusterUid>,
    called: BTreeMap<ClusterUid, Called>,
    /// The names that may have to be refused, or no longer, since the last look. A fleet has ten thousand: not all
    /// are looked at for each.
    unjudged: BTreeSet<ClusterName>,
    /// The names under which the member may not act, and since when.
    refused: BTreeMap<ClusterName, (Refusal, Moment)>,
    /// What the Member says, and when that is looked at again.
    said: (Vec<NamedCluster>, Moment),
    /// The last look.
    now: Moment,
}

// === impl Names ===

impl Names {
    /// Takes in the clusters that told this member who they are.
    pub(crate) fn learn(&mut self, own: Identities) {
        if self.own == own {
            return;
        }
        let before = std::mem::replace(&mut self.own, own.clone());
        for (name, was) in before.iter().filter(|(name, was)| own.get(*name) != Some(*was)) {
            self.call(&was.uid, |called| called.own.remove(&(was.place, name.clone())));
            self.unjudged.insert(name.clone());
        }
        for (name, is) in own.iter().filter(|(name, is)| before.get(*name) != Some(*is)) {
            self.call(&is.uid, |called| called.own.insert((is.place, name.clone())));
        }
        // What a coordinator may have to learn does not wait.
        self.said.1 = Moment::default();
    }

    pub(crate) fn own(&self) -> &Identities {
        &self.own
    }

    /// Takes in the present state of a map, or its absence.
    pub(crate) fn observe(&mut self, name: &ClusterName, map: Option<&MapRecord>) {
        let stands = map.and_then(|map| map.cluster_uid.as_ref());
        if self.stands.get(name) == stands {
            return;
        }
        let before = match stands {
            Some(uid) => self.stands.insert(name.clone(), uid.clone()),
            None => self.stands.remove(name),
        };
        if let Some(uid) = before {
            self.call(&uid, |called| called.mapped.remove(name));
        }
        if let Some(uid) = stands {
            self.call(uid, |called| called.mapped.insert(name.clone()));
        }
        self.unjudged.insert(name.clone());
    }

    /// Changes what a cluster is called, so that all its names have to be judged.
    fn call(&mut self, uid: &ClusterUid, change: impl FnOnce(&mut Called) -> bool) {
        let called = self.called.entry(uid.clone()).or_default();
        change(called);
        self.unjudged.extend(called.own.iter().map(|(_, name)| name.clone()));
        if called.own.is_empty() && called.mapped.is_empty() {
            self.called.remove(uid);
        }
    }

    /// Compares the two. Returns the names that are refused from now on or for another reason, or
    /// no longer are.
    pub(crate) fn follow(&mut self, world: &World, now: Moment) -> Vec<ClusterName> {
        self.now = now;
        let changed = self.judge(now);
        // A coordinator that does not know why a name is refused would give it back at once.
        if world.is_synced() && (now >= self.said.1 || !changed.is_empty()) {
            self.said = (self.unsaid(), now + SAY_EVERY);
        }
        changed
    }

    fn judge(&mut self, now: Moment) -> Vec<ClusterName> {
        let mut changed = Vec::new();
        for name in std::mem::take(&mut self.unjudged) {
            let before = self.refused.get(&name);
            let why = self.refusal(&name);
            if why.as_ref() == before.map(|(why, _)| why) {
                continue;
            }
            let since = before.map_or(now, |(_, since)| *since);
            match why {
                Some(why) => drop(self.refused.insert(name.clone(), (why, since))),
                None => drop(self.refused.remove(&name)),
            }
            changed.push(name);
        }
        changed
    }

    /// Why this member may not act under a name.
    fn refusal(&self, name: &ClusterName) -> Option<Refusal> {
        let Identity { uid, .. } = &**self.own.get(name)?;
        if let Some(other) = self.stands.get(name).filter(|other| *other != uid) {
            return Some(Refusal::Another(other.clone()));
        }
        let called = self.called.get(uid)?;
        // Where no map says it, the first in the order that the coordinator will follow.
        let first = || called.own.first().map(|(_, name)| name);
        let keeper = called.mapped.first().or_else(first)?;
        (keeper != name).then(|| Refusal::Second(keeper.clone()))
    }

    /// Whether this member may not act under a name.
    pub(crate) fn refuses(&self, name: &ClusterName) -> bool {
        self.refused.contains_key(name)
    }

    /// The names that stand for other clusters than this member's, each with the fleet's cluster of that name.
    pub(crate) fn disputed(&self) -> DisputedNames {
        let disputed = self.refused.iter().filter_map(|(name, (why, _))| match why {
            Refusal::Another(mapped) => Some((name.clone(), mapped.clone())),
            Refusal::Second(_) => None,
        });
        disputed.collect()
    }

    /// What is wrong with each refused name, and how to repair it.
    pub(crate) fn problems(&self) -> impl Iterator<Item = String> {
        self.refused
            .iter()
            .map(|(name, (why, _))| format!("cluster {name}: {}", self.text(name, why)))
    }

    /// The names to report: those that have been refused for a while.
    pub(crate) fn down(&self) -> impl Iterator<Item = DownCluster> {
        let due = self.refused.iter().filter(|(_, (_, since))| self.now >= *since + REPORT_AFTER);
        due.map(|(name, (why, _))| DownCluster::new(name, &self.text(name, why)))
    }

    /// The names for which this member must get no shards: those of other clusters at once, and second
    /// names when that lasts. A coordinator knows of these by itself, and a renamed cluster needs no Member
    /// to be written.
    pub(crate) fn unfit(&self) -> impl Iterator<Item = &ClusterName> {
        let is_unfit = |(why, since): &(Refusal, Moment)| {
            matches!(why, Refusal::Another(_)) || self.now >= *since + REPORT_AFTER
        };
        self.refused.iter().filter(move |(_, refused)| is_unfit(refused)).map(|(name, _)| name)
    }

    /// What the Member says because the maps do not say it: for which clusters its names stand.
    pub(crate) fn said(&self) -> Vec<NamedCluster> {
        self.said.0.clone()
    }

    fn unsaid(&self) -> Vec<NamedCluster> {
        let is_unsaid =
            |(name, own): &(&ClusterName, &Arc<Identity>)| self.stands.get(*name) != Some(&own.uid);
        // The refused ones first: they are the ones that matter.
        let (refused, others): (Vec<_>, Vec<_>) =
            self.own.iter().filter(is_unsaid).partition(|(name, _)| self.refuses(name));
        let unsaid = refused.into_iter().chain(others).take(MAX_NAMED);
        unsaid
            .map(|(name, own)| NamedCluster { name: name.clone(), uid: own.uid.clone() })
            .collect()
    }

    fn text(&self, name: &ClusterName, why: &Refusal) -> String {
        let Some(own) = self.own.get(name) else { return String::new() };
        let Identity { uid, origin, .. } = &**own;
        match why {
            Refusal::Another(mapped) => format!(
                "it is another cluster than the one that the fleet knows by this name: its kube-system has \
                 the uid {uid}, the ShardMap's cluster {mapped}; it comes from {origin}; fix: correct the \
                 kubeconfig, or give this cluster a name of its own; if the cluster was made anew, this ends \
                 when no replica has the old one"
            ),
            Refusal::Second(first) => {
                let of_first = match self.own.get(first) {
                    Some(first) => format!("comes from {}", first.origin),
                    None => {
                        "is not configured here, but in another replica, or may be in one that cannot read all of \
                         its clusters"
                            .to_owned()
                    }
                };
                format!(
                    "it is the same cluster as {first} (the uid of its kube-system is {uid}), which keeps \
                     it: {first} {of_first}, {name} comes from {origin}; fix: remove one of the two; to \
                     rename a cluster, remove the old name from all replicas; of a cluster and its copy \
                     from a backup, give one to another fleet"
                )
            }
        }
    }
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
