//! Which map stands for which cluster (S8): one map for each cluster, whatever its names.
//!
//! ```text
//!  second name of a cluster:  its map, if it has one, drains and goes; it gets none
//!  renamed cluster:           old map: drains ─▶ unowned ──────────────────▶ deleted
//!                             new map:              └─▶ created, unowned, ─────┴─▶ stands for the cluster,
//!                                                       with the old epochs        gets owners
//!  name of another cluster:   its map drains (the owners see it) ─▶ unowned ─▶ stands for the new one, when
//!                             no live member has had the one before for a while
//! ```
//!
//! # Invariants
//! - **S1** The map of a cluster gets owners for shards that have none only while no other map stands for
//!   the cluster: while one is there, somebody may act under its name. So a rename never serves a cluster
//!   under two names at once. The old map goes only when no shard in it has an owner, which is what S1
//!   says about any next owner.
//! - **S3** The new map of a renamed cluster begins from the entries of the old one: the epochs, and the
//!   splits, go on. The old map goes only when the new one is there.
//! - A cluster that has a map keeps its name, however the configurations call it besides: who adds a name
//!   takes nothing from a cluster that is in use. Nor does who has another cluster of that name: the map
//!   stands for the first as long as a live member has the name configured and does not say that it is
//!   another cluster. If all such fail to reach it, they may not know; then that lasts for [`LONG_GRACE`].
//! - **P1** What people have paused by a cluster's old name stays paused, for as long as a policy pauses something by it
//!   that the same policy does not pause by the new name: home has a map that says the old name before the one goes that
//!   had it, or stands for another cluster, and a map that is made anew says what the one before it said. What they have
//!   not paused goes on.
//!
//! Two coordinators that overlap could each create a map for one cluster, because these are two objects.
//! Then members act under the first of the two names as soon as they see both.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::{ClusterName, ClusterUid, MemberId, Moment, single};

use super::draft::Drafts;
use super::peers::Peers;
use super::removal::{self, LONG_GRACE, REMOVAL_GRACE, Wanted};
use super::{Plan, View};
use crate::planner::{Fit, Role};

/// What the names of clusters stand for.
#[derive(Debug, Default)]
pub(super) struct Names<'a> {
    /// For which cluster a name stands, by those who have it configured.
    said: BTreeMap<&'a ClusterName, &'a ClusterUid>,
    /// The names whose map stands for another cluster than that, while no member that could get its shards
    /// may have the first one; and after which time the map stands for that one no more.
    disputed: BTreeMap<&'a ClusterName, Option<Duration>>,
    /// The names of clusters that another name keeps.
    seconds: BTreeSet<&'a ClusterName>,
    /// The names that nobody has configured any more, each with the name that the cluster has now.
    renamed: BTreeMap<&'a ClusterName, &'a ClusterName>,
    /// The names of clusters that have another map too.
    waiting: BTreeSet<&'a ClusterName>,
}

impl<'a> Names<'a> {
    /// Judges the names of all clusters that have a map or should have one. `is_wanted` says whether
    /// somebody has a name configured.
    fn judge(
        view: &View<'a>,
        peers: &Peers<'_>,
        mut is_wanted: impl FnMut(&ClusterName) -> bool,
    ) -> Self {
        let maps = view.world.maps();
        let mut names = Self { said: said(view, peers), ..Self::default() };
        let mut claims: BTreeMap<&ClusterUid, Vec<&ClusterName>> = BTreeMap::new();
        let unmapped = view.clusters.iter().filter(|name| !maps.contains_key(*name));
        for name in maps.keys().chain(unmapped).filter(|name| name.as_str() != single::FLEET) {
            let stands = maps.get(name).and_then(|map| map.cluster_uid.as_ref());
            let said = names.said.get(name).copied();
            if let Some(stands) = stands
                && said.is_some_and(|said| said != stands)
                && let Some(patience) = patience(view, peers, name, stands)
            {
                names.disputed.insert(name, patience);
            }
            if let Some(uid) = stands.or(said) {
                claims.entry(uid).or_default().push(name);
            }
        }
        for claimants in claims.into_values().filter(|claimants| claimants.len() > 1) {
            names.choose(view, &claimants, &mut is_wanted);
        }
        names
    }

    /// Chooses among the names of one cluster.
    fn choose(
        &mut self,
        view: &View<'a>,
        claimants: &[&'a ClusterName],
        mut is_wanted: impl FnMut(&ClusterName) -> bool,
    ) {
        let maps = view.world.maps();
        // A map that stands for it, then any map, then the order of the configuration.
        let rank = |name: &'a ClusterName| {
            let map = maps.get(name).map(|map| map.cluster_uid.is_none());
            let place = view.identities.get(name).map(|identity| identity.place);
            (map.is_none(), map, place.is_none(), place, name)
        };
        let settled = claimants.iter().copied().filter(|name| !self.disputed.contains_key(name));
        let (wanted, gone): (Vec<_>, Vec<_>) = settled.partition(|name| is_wanted(name));
        let Some(keeper) = wanted.iter().copied().min_by_key(|name| rank(name)) else { return };
        self.seconds.extend(wanted.into_iter().filter(|name| *name != keeper));
        self.renamed.extend(gone.into_iter().map(|name| (name, keeper)));
        if claimants.iter().any(|name| *name != keeper && maps.contains_key(*name)) {
            self.waiting.insert(keeper);
        }
    }

    /// The clusters that should have a map.
    pub(super) fn kept(
        &self,
        clusters: &'a BTreeSet<ClusterName>,
    ) -> Cow<'a, BTreeSet<ClusterName>> {
        let mut kept = Cow::Borrowed(clusters);
        if !self.seconds.is_empty() {
            kept.to_mut().retain(|name| !self.seconds.contains(name));
        }
        kept
    }

    /// Whether a cluster has another name now.
    pub(super) fn has_renamed(&self, old: &ClusterName) -> bool {
        self.renamed.contains_key(old)
    }

    /// The names whose maps are to go now.
    pub(super) fn unwanted(&self) -> impl Iterator<Item = ClusterName> {
        self.seconds.iter().chain(self.renamed.keys()).map(|name| (*name).clone())
    }

    /// Puts into the drafts for which cluster each map stands and which names that had, who waits, and what the map of a
    /// new name takes over from that of the old one. The names in `lost` stand for the clusters before no more.
    pub(super) fn apply(
        &self,
        view: &View<'_>,
        drafts: &mut Drafts<'_>,
        lost: &BTreeSet<ClusterName>,
    ) {
        for (old, new) in &self.renamed {
            let Some((name, mut before)) = drafts.remove_entry(*old) else { continue };
            if let Some(next) = drafts.get_mut(*new) {
                next.take_over(&mut before, view.policies);
            }
            drafts.insert(name, before);
        }
        let maps = view.world.maps().values().chain(view.pending.values().copied());
        let mut taken: BTreeMap<&ClusterUid, BTreeSet<&ClusterName>> = BTreeMap::new();
        for map in maps {
            if let Some(uid) = &map.cluster_uid {
                taken.entry(uid).or_default().insert(&map.cluster);
            }
        }
        for draft in drafts.values_mut() {
            draft.forget_deleted();
            let name = draft.cluster().clone();
            if self.disputed.contains_key(&name) {
                draft.dispute(lost.contains(&name));
            } else if let Some(uid) = self.said.get(&name) {
                if self.waiting.contains(&name) {
                    draft.wait();
                }
                let mut holders = taken.get(uid).into_iter().flatten();
                if holders.all(|holder| **holder == name) {
                    draft.stand_for(uid);
                }
            }
            draft.follow_names(view);
        }
    }
}

/// Since when nobody is known to have the old names of clusters, although somebody may: a member with a source of clusters
/// that it cannot read, or whose clusters nobody can tell exactly. That must not keep a cluster from being served under
/// its new name for ever; whoever turns out to have the old one keeps nothing by it. The next coordinator begins anew.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Unclaimed(BTreeMap<ClusterName, Moment>);

impl Unclaimed {
    /// Judges the names of all clusters.
    pub(super) fn judge<'a>(
        &mut self,
        view: &View<'a>,
        peers: &Peers<'_>,
        now: Moment,
        plan: &mut Plan,
    ) -> Names<'a> {
        let known = std::mem::take(&mut self.0);
        Names::judge(view, peers, |name| match removal::wanted(name, view, peers) {
            Wanted::Unknown => {
                let since = known.get(name).copied().unwrap_or(now);
                self.0.insert(name.clone(), since);
                let is_wanted = now < since + REMOVAL_GRACE;
                if is_wanted {
                    plan.wake_at(since + REMOVAL_GRACE);
                }
                is_wanted
            }
            wanted => wanted != Wanted::No,
        })
    }
}

/// Since when names have been disputed. The next coordinator begins anew.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Disputes(BTreeMap<ClusterName, Moment>);

impl Disputes {
    /// The names whose clusters before nobody has had for a while.
    pub(super) fn lost(
        &mut self,
        names: &Names<'_>,
        now: Moment,
        plan: &mut Plan,
    ) -> BTreeSet<ClusterName> {
        // While a live member may have the first, no time passes.
        self.0.retain(|name, _| names.disputed.get(name).is_some_and(Option::is_some));
        let mut lost = BTreeSet::new();
        for (name, patience) in &names.disputed {
            let Some(patience) = patience else { continue };
            let due = *self.0.entry((*name).clone()).or_insert(now) + *patience;
            if now < due {
                plan.wake_at(due);
            } else {
                lost.insert((*name).clone());
            }
        }
        lost
    }
}

/// After which time the map of a name stands no more for the cluster for which it `stands`, although some say that
/// it is another: never while a live member may have the first. `None` if such a member could get its shards: then
/// all goes on.
fn patience(
    view: &View<'_>,
    peers: &Peers<'_>,
    name: &ClusterName,
    stands: &ClusterUid,
) -> Option<Option<Duration>> {
    let says_another = |id: &MemberId| {
        if id == view.me && view.identities.contains_key(name) {
            return true;
        }
        let named = view.world.members().get(id).map(|member| &member.spec.named_clusters);
        named.is_some_and(|named| named.iter().any(|n| n.name == *name && n.uid != *stands))
    };
    let mut best = Fit::Lacks;
    for (id, member) in &peers.roles {
        if !peers.is_alive(id) || says_another(id) {
            continue;
        }
        let fit = member.reach.of(name);
        if fit >= Fit::Unwanted && member.role == Role::Open {
            return None;
        }
        best = best.max(fit);
    }
    Some(match best {
        Fit::Unwanted | Fit::Serves => None,
        Fit::Unknown | Fit::Fails | Fit::Doubtful => Some(LONG_GRACE),
        Fit::Lacks => Some(REMOVAL_GRACE),
    })
}

/// For which clusters names stand, by the coordinator, or else by a live member.
fn said<'a>(view: &View<'a>, peers: &Peers<'_>) -> BTreeMap<&'a ClusterName, &'a ClusterUid> {
    let mut said = BTreeMap::new();
    for (id, member) in view.world.members() {
        let counts = peers.is_alive(id) && !peers.is_foreign(&member.spec);
        if counts {
            for named in &member.spec.named_clusters {
                said.entry(&named.name).or_insert(&named.uid);
            }
        }
    }
    said.extend(view.identities.iter().map(|(name, identity)| (name, &identity.uid)));
    said
}
