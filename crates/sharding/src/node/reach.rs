//! What the member says about its clusters, in its Member and to people.

use std::collections::BTreeSet;

use model::{ClusterName, Hold, Moment, ShardId, single};

use super::{Node, Note};
use crate::api::{DownCluster, MemberSpec};
use crate::handover::Entry;
use crate::outbox::InFlight;
use crate::problem;
use crate::record::{Object, Write, WriteOutcome};

impl Node {
    /// These clusters count as configured from now on.
    pub(super) fn configured(&mut self, clusters: BTreeSet<ClusterName>) {
        self.reach.configured(&clusters, &self.world);
        self.clusters = Some(clusters);
        self.planning.afresh();
    }

    /// Some unusable clusters may have been there for long enough by now.
    pub(super) fn follow_unusable(&mut self, now: Moment) {
        let Some(before) = &self.clusters else { return };
        let counted = self.unusable.follow(Some(before), self.names.own(), now);
        if counted != *before {
            self.configured(counted);
        }
    }

    /// Brings its report up to date: with the ShardMaps, the configured clusters and those that fail.
    pub(super) fn follow_reach(&mut self) {
        let fails = self.fails();
        let Some(own) = &self.clusters else { return };
        let mut fails: Vec<&ClusterName> = fails.iter().collect();
        if fails.len() > 1 {
            // Their shards must move; of the others it only gets none.
            let holdings = &self.tracker.owned().holdings;
            let held: BTreeSet<&ClusterName> = holdings.keys().map(|s| &s.cluster).collect();
            fails.sort_by_key(|cluster| !held.contains(cluster));
        }
        self.reach.follow(own, &self.world, &fails);
    }

    /// The clusters that it has configured and fails to reach, also those that its Member has no room for.
    fn fails(&self) -> BTreeSet<ClusterName> {
        let all = self.unusable.names().chain(self.failing.names()).chain(self.names.unfit());
        let is_own = |cluster: &&ClusterName| {
            self.clusters.as_ref().is_some_and(|own| own.contains(*cluster))
        };
        all.filter(is_own).cloned().collect()
    }

    /// The shards that it owns and does not serve: it does not have their cluster configured, or fails to
    /// reach it, or may not act on what a ShardMap gives it.
    pub(crate) fn unserved(&self) -> BTreeSet<ShardId> {
        let (fails, own) = (self.fails(), self.clusters.as_ref());
        let is_off = |cluster: &ClusterName| {
            let lacks = own.is_some_and(|own| !own.contains(cluster));
            cluster.as_str() != single::FLEET && (lacks || fails.contains(cluster))
        };
        let holdings = self.tracker.owned().holdings.iter();
        let active =
            holdings.filter(|(shard, held)| held.hold == Hold::Active && is_off(&shard.cluster));
        let active = active.map(|(shard, _)| shard.clone());
        active.chain(self.given_in_vain()).collect()
    }

    /// The shards that a ShardMap names as its own and that it does not hold.
    fn given_in_vain(&self) -> Vec<ShardId> {
        let (me, holdings) = (self.membership.id(), &self.tracker.owned().holdings);
        let held = holdings.values().filter(|held| held.hold != Hold::Warming).count();
        if self.world.owners().get(me).copied().unwrap_or_default() == held {
            return Vec::new();
        }
        let maps = self.world.maps().iter().flat_map(|(cluster, map)| {
            let mine = map.entries.iter().filter(|(_, entry)| match entry {
                Entry::Owned { owner, .. } => owner == me,
                _ => false,
            });
            mine.map(|(path, _)| path.in_cluster(cluster))
        });
        maps.filter(|shard| !holdings.contains_key(shard)).collect()
    }

    /// What is wrong if its clusters differ from the coordinator's by more than a Member can say.
    pub(super) fn unsaid(&self) -> Option<String> {
        let said = self.reach.said().filter(|_| self.reach.is_too_different())?;
        let coordinator = self.world.coordinator()?;
        let its = self.world.members().get(&coordinator)?.spec.clusters.as_ref()?;
        (its.digest != said.digest).then(|| problem::too_different(self.membership.id()))
    }

    /// Takes in what the coordinator's last plan noticed.
    pub(super) fn notice(&mut self, problems: Vec<String>) {
        if self.noticed != problems {
            self.noticed = problems;
            self.find_problems_again();
        }
    }

    /// Remembers what it sent and which version that gave. A home cluster with the definitions of an
    /// earlier release drops what it does not know: to send that again and again would not help.
    pub(super) fn member_written(&mut self, write: &InFlight, outcome: &WriteOutcome) {
        let (Write::Create(Object::Member(sent)) | Write::Replace(Object::Member(sent))) =
            &write.write
        else {
            return;
        };
        if let WriteOutcome::Done(Some(Object::Member(kept))) = outcome
            && kept.id == *self.membership.id()
        {
            let before = self.sent.replace((kept.version.clone(), sent.spec.clone()));
            let before = before.map(|(_, spec)| spec.down_clusters).unwrap_or_default();
            self.tell_down(&before, &sent.spec.down_clusters);
        }
    }

    fn tell_down<'a>(&mut self, before: &'a [DownCluster], after: &'a [DownCluster]) {
        let not_in = |others: &'a [DownCluster]| {
            move |down: &&DownCluster| !others.iter().any(|other| other.cluster == down.cluster)
        };
        let down = after.iter().filter(not_in(before)).cloned().map(Note::ClusterDown);
        let up = before.iter().filter(not_in(after)).map(|up| Note::ClusterUp(up.cluster.clone()));
        self.notes.extend(down.chain(up));
    }

    /// Whether the Member of that version is what the home cluster made of `spec`.
    pub(super) fn has_sent(&self, version: &crate::api::ObjectVersion, spec: &MemberSpec) -> bool {
        self.sent.as_ref().is_some_and(|(kept, sent)| kept == version && sent == spec)
    }
}
