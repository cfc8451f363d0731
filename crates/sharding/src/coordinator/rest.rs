//! Shards that stay where they are for now, although their owner does not serve them.
//!
//! An owner that lacks or does not reach a cluster which another member serves may do so in a moment, and
//! the other may be about to report the same: loading or swapping a configuration must not move anything,
//! nor must the end of a cluster.
//!
//! A cluster whose shards have just left an owner that did not reach it rests.
//!//! The next owner needs time to try. If it fails too, the shard may go on, but each time after a longer
//! pause: the shards of a cluster that fails everywhere must not go round the fleet.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::{ClusterName, MemberId, Moment};

/// The first pause. A member reports a cluster after it has failed for ten seconds, and probes it every ten
/// seconds.
pub(super) const FIRST_REST: Duration = Duration::from_secs(60);
/// The longest pause: each further move of a cluster doubles its pause.
pub(super) const LONGEST_REST: Duration = Duration::from_secs(3600);

/// How long an owner must not serve a cluster that another member serves before its shards move.
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// What stays, and until when.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Resting {
    /// The clusters that rest, or did a moment ago.
    moved: BTreeMap<ClusterName, Rest>,
    /// Since when owners do not serve clusters that another member serves.
    unserved: BTreeMap<(ClusterName, MemberId), Moment>,
}

#[derive(Clone, Debug, Hash)]
struct Rest {
    until: Moment,
    pause: Duration,
}

impl Resting {
    /// Forgets the clusters that have not moved again for as long as they rested.
    pub(super) fn prune(&mut self, now: Moment) {
        self.moved.retain(|_, rest| now < rest.until + rest.pause);
    }

    /// Whether a cluster rests.
    pub(super) fn rests(&self, cluster: &ClusterName, now: Moment) -> bool {
        self.moved.get(cluster).is_some_and(|rest| now < rest.until)
    }

    /// Takes in which owners do not serve which clusters, while another member does.
    pub(super) fn follow(&mut self, unserved: BTreeSet<(ClusterName, MemberId)>, now: Moment) {
        self.unserved.retain(|pair, _| unserved.contains(pair));
        for pair in unserved {
            self.unserved.entry(pair).or_insert(now);
        }
    }

    /// Whether an owner has not served a cluster for a moment only.
    pub(super) fn waits(&self, cluster: &ClusterName, owner: &MemberId, now: Moment) -> bool {
        if self.unserved.is_empty() {
            return false;
        }
        let since = self.unserved.get(&(cluster.clone(), owner.clone()));
        since.is_some_and(|&since| now < since + GRACE)
    }

    /// Shards of a cluster leave an owner that does not reach it.
    pub(super) fn moved(&mut self, cluster: &ClusterName, now: Moment) {
        let fresh = Rest { until: now, pause: FIRST_REST / 2 };
        let rest = self.moved.entry(cluster.clone()).or_insert(fresh);
        if rest.until <= now {
            rest.pause = (rest.pause * 2).min(LONGEST_REST);
            rest.until = now + rest.pause;
        }
    }

    /// When the next of them may move.
    pub(super) fn next_end(&self, now: Moment) -> Option<Moment> {
        let rested = self.moved.values().map(|rest| rest.until);
        let waited = self.unserved.values().map(|&since| since + GRACE);
        rested.chain(waited).filter(|&at| at > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_move_of_a_cluster_that_fails_everywhere_rests_longer() {
        let (mut resting, east) = (Resting::default(), "east".parse().unwrap());
        let mut now = Moment::from_origin(Duration::from_secs(1));
        let mut pauses = Vec::new();
        for _ in 0..9 {
            resting.prune(now);
            assert!(!resting.rests(&east, now));
            resting.moved(&east, now);
            // A second shard of it moves at the same time.
            resting.moved(&east, now);
            let end = resting.next_end(now).unwrap();
            pauses.push(end.since(now).as_secs());
            assert!(resting.rests(&east, now));
            now = end;
        }
        assert_eq!(pauses, [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]);
        resting.prune(now + LONGEST_REST);
        resting.moved(&east, now);
        assert_eq!(resting.next_end(now), Some(now + FIRST_REST), "it begins anew");
    }
}
