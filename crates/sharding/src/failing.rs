//! Which clusters fail a member, for its Member and `leasehold status`. Pure.
//!
//! A short failure is not worth a write to the home cluster. A cluster is reported once it has failed
//! for a while, and until it has answered for as long. A reason that changes is reported again only
//! now and then, because some reasons differ each time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::{ClusterName, Moment};

use crate::api::DownCluster;

/// How long a cluster must fail before it is reported, and answer before it is no longer.
pub(crate) const REPORT_AFTER: Duration = Duration::from_secs(10);

/// How long a reported reason stays at least.
const REASON_KEPT: Duration = Duration::from_secs(60);

/// The clusters that fail, or failed a moment ago.
#[derive(Clone, Debug)]
pub(crate) struct FailingClusters {
    report_after: Duration,
    all: BTreeMap<ClusterName, Failing>,
}

#[derive(Clone, Debug)]
struct Failing {
    reason: Arc<str>,
    /// When it was first and last seen to fail.
    seen: [Moment; 2],
    /// Since when this reason is reported.
    reported: Option<Moment>,
}

impl FailingClusters {
    /// None fails. One that does is reported when it has failed for so long.
    pub(crate) fn reported_after(report_after: Duration) -> Self {
        Self { report_after, all: BTreeMap::new() }
    }

    /// Takes in what fails now.
    pub(crate) fn observe(&mut self, failing: BTreeMap<ClusterName, Arc<str>>, now: Moment) {
        for (cluster, reason) in failing {
            let fresh = || Failing { reason: Arc::clone(&reason), seen: [now; 2], reported: None };
            let failing = self.all.entry(cluster).or_insert_with(fresh);
            failing.seen[1] = now;
            let is_due = failing.reported.is_none_or(|at| now.since(at) >= REASON_KEPT);
            if is_due && now.since(failing.seen[0]) >= self.report_after {
                (failing.reason, failing.reported) = (reason, Some(now));
            }
        }
        self.all.retain(|_, failing| {
            let quiet = now.since(failing.seen[1]);
            quiet.is_zero() || (failing.reported.is_some() && quiet < REPORT_AFTER)
        });
    }

    /// A cluster fails no more, for certain.
    pub(crate) fn recovered(&mut self, cluster: &ClusterName) {
        self.all.remove(cluster);
    }

    /// The clusters to report, ordered by name.
    pub(crate) fn reported(&self) -> impl Iterator<Item = DownCluster> {
        self.due().map(|(cluster, failing)| DownCluster::new(cluster, &failing.reason))
    }

    /// Their names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &ClusterName> {
        self.due().map(|(cluster, _)| cluster)
    }

    fn due(&self) -> impl Iterator<Item = (&ClusterName, &Failing)> {
        self.all.iter().filter(|(_, failing)| failing.reported.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is reported after looks at these seconds; a look with a reason saw the cluster fail.
    fn reported(looks: &[(u64, Option<&str>)]) -> Option<String> {
        let mut clusters = FailingClusters::reported_after(REPORT_AFTER);
        for (second, reason) in looks {
            let failing = reason.map(|reason| ("east".parse().unwrap(), Arc::from(reason)));
            let now = Moment::default() + Duration::from_secs(*second);
            clusters.observe(failing.into_iter().collect(), now);
        }
        clusters.reported().map(|down| down.reason).next()
    }

    #[test]
    fn a_cluster_that_failed_for_a_while_is_reported_until_it_has_answered_for_as_long() {
        let (refused, timeout) = (Some("refused"), Some("timeout"));
        for (looks, expect) in [
            (&[(0, refused), (5, refused)][..], None),
            (&[(0, refused), (5, refused), (10, timeout)], timeout),
            (&[(0, refused), (10, refused), (15, timeout)], refused),
            (&[(0, refused), (10, refused), (70, timeout)], timeout),
            (&[(0, refused), (5, None), (10, refused)], None),
            (&[(0, refused), (10, refused), (15, None)], refused),
            (&[(0, refused), (10, refused), (15, None), (20, timeout)], refused),
            (&[(0, refused), (10, refused), (15, None), (20, None)], None),
            (&[(0, refused), (10, refused), (20, None), (25, timeout), (35, timeout)], timeout),
        ] {
            assert_eq!(reported(looks).as_deref(), expect, "{looks:?}");
        }
    }
}
