//! Which clusters a member has configured, and which of these it cannot use, because a kubeconfig or a Secret is wrong.
//! Pure.
//!
//! Somebody may write such a Secret again and again, under one name or ever other ones. That must not make each member
//! write its Member each time. So
//! - a cluster that is unusable when it comes counts as configured when it has been there for a while. Those of the
//!   configuration with which the process starts count at once, and so does one whose server has told which cluster it
//!   is: it may be one that has another name by now;
//! - one that becomes unusable is reported at once, until it has been usable for a while, and its reason stays for a
//!   minute ([`crate::failing`]). One for which a process that has just started has no client yet is reported only until
//!   it has one: that comes once, and others may need its shards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::{ClusterName, Moment};

use crate::api::DownCluster;
use crate::failing::{FailingClusters, REPORT_AFTER};
use crate::identity::Identities;

/// What the configuration says, and what of it counts.
#[derive(Clone, Debug)]
pub(crate) struct UnusableClusters {
    configured: BTreeSet<ClusterName>,
    down: BTreeMap<ClusterName, Arc<str>>,
    /// Since when those have been there that do not count yet.
    newcomers: BTreeMap<ClusterName, Moment>,
    /// Those that were unusable when the process started, and have been ever since.
    awaited: BTreeSet<ClusterName>,
    reported: FailingClusters,
}

impl Default for UnusableClusters {
    fn default() -> Self {
        Self {
            configured: BTreeSet::new(),
            down: BTreeMap::new(),
            newcomers: BTreeMap::new(),
            awaited: BTreeSet::new(),
            reported: FailingClusters::reported_after(Duration::ZERO),
        }
    }
}

impl UnusableClusters {
    /// The configuration changed.
    pub(crate) fn configure(&mut self, configured: BTreeSet<ClusterName>, down: Vec<DownCluster>) {
        self.configured = configured;
        self.down = down.into_iter().map(|down| (down.cluster, Arc::from(down.reason))).collect();
    }

    /// Brings it up to date. Returns the clusters that count as configured; `before` are those that did, if the process
    /// has just started none. One that has `told` which it is counts at once.
    pub(crate) fn follow(
        &mut self,
        before: Option<&BTreeSet<ClusterName>>,
        told: &Identities,
        now: Moment,
    ) -> BTreeSet<ClusterName> {
        let is_new = |name: &&ClusterName| {
            before.is_some_and(|before| !before.contains(*name)) && !told.contains_key(*name)
        };
        let new = self.down.keys().filter(|name| self.configured.contains(*name)).filter(is_new);
        let since = |name: &ClusterName| self.newcomers.get(name).copied().unwrap_or(now);
        let new = new.map(|name| (name.clone(), since(name)));
        self.newcomers = new.filter(|(_, since)| now.since(*since) < REPORT_AFTER).collect();
        let counts = |name: &&ClusterName| !self.newcomers.contains_key(*name);
        let down = self.down.iter().filter(|(name, _)| counts(name));
        self.reported
            .observe(down.map(|(name, why)| (name.clone(), Arc::clone(why))).collect(), now);
        if before.is_none() {
            self.awaited = self.down.keys().cloned().collect();
        }
        let Self { awaited, down, reported, .. } = self;
        awaited.retain(|name| {
            let waits = down.contains_key(name);
            if !waits {
                reported.recovered(name);
            }
            waits
        });
        self.configured.iter().filter(counts).cloned().collect()
    }

    /// Those to report, ordered by name.
    pub(crate) fn reported(&self) -> impl Iterator<Item = DownCluster> {
        self.reported.reported()
    }

    /// Their names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &ClusterName> {
        self.reported.names()
    }
}

#[cfg(test)]
mod tests {
    use model::Identity;

    use super::*;

    #[test]
    fn who_has_just_started_reaches_a_cluster_as_soon_as_it_has_a_client() {
        let east: ClusterName = "east".parse().unwrap();
        let all = BTreeSet::from([east.clone()]);
        let mut unusable = UnusableClusters::default();
        let mut fails = |before, is_down: bool, now| {
            let down = is_down.then(|| DownCluster::new(&east, "not ready"));
            unusable.configure(all.clone(), down.into_iter().collect());
            unusable.follow(before, &Identities::new(), now);
            unusable.reported().next().is_some()
        };
        let at = |s| Moment::from_origin(Duration::from_secs(s));
        assert!(fails(None, true, at(0)) && fails(Some(&all), true, at(5)));
        assert!(!fails(Some(&all), false, at(14)), "it comes for the first time");
        // From then on it is as any other.
        assert!(fails(Some(&all), true, at(20)) && fails(Some(&all), false, at(21)));
        assert!(!fails(Some(&all), false, at(31)));
    }

    #[test]
    fn a_newcomer_without_a_client_counts_at_once_if_it_has_told_which_cluster_it_is() {
        let name = |text: &str| -> ClusterName { text.parse().unwrap() };
        let both: BTreeSet<ClusterName> = [name("east"), name("west")].into();
        let uid = "u1".parse().unwrap();
        let identity = Identity { uid, origin: "a file".into(), place: 0 };
        let told = Identities::from([(name("east"), Arc::new(identity))]);
        let mut unusable = UnusableClusters::default();
        let down = both.iter().map(|name| DownCluster::new(name, "not ready")).collect();
        unusable.configure(both.clone(), down);
        let (before, mut now) = (BTreeSet::new(), Moment::default());
        assert_eq!(unusable.follow(Some(&before), &told, now), [name("east")].into());
        now = now + REPORT_AFTER;
        assert_eq!(unusable.follow(Some(&before), &told, now), both);
    }
}
