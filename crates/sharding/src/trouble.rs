//! Which clusters a member says fail it, so that `leasehold status` knows. Pure.
//!
//! A cluster that hiccups is nobody's business and no reason to write to home; one that has failed
//! for a while is told, until it has answered for as long. A reason that changes is told anew now
//! and then only: some differ each time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::{ClusterName, Moment};

use crate::api::DownCluster;

/// How long a cluster must fail until it is told, and answer until it is told no longer.
pub const TELL_AFTER: Duration = Duration::from_secs(10);

/// How long a reason is told at least.
pub const RETELL_AFTER: Duration = Duration::from_secs(60);

/// The clusters that fail, or did a moment ago.
#[derive(Clone, Debug, Default)]
pub struct Trouble(BTreeMap<ClusterName, Failing>);

#[derive(Clone, Debug)]
struct Failing {
    reason: Arc<str>,
    /// When it was first and last seen to fail.
    seen: [Moment; 2],
    /// Since when this reason is told.
    told: Option<Moment>,
}

impl Trouble {
    /// Takes in what fails now.
    pub fn look(&mut self, failing: BTreeMap<ClusterName, Arc<str>>, now: Moment) {
        for (cluster, reason) in failing {
            let fresh = || Failing { reason: Arc::clone(&reason), seen: [now; 2], told: None };
            let failing = self.0.entry(cluster).or_insert_with(fresh);
            failing.seen[1] = now;
            let retell = failing.told.is_none_or(|told| now.since(told) >= RETELL_AFTER);
            if retell && now.since(failing.seen[0]) >= TELL_AFTER {
                (failing.reason, failing.told) = (reason, Some(now));
            }
        }
        self.0.retain(|_, failing| {
            let quiet = now.since(failing.seen[1]);
            quiet.is_zero() || (failing.told.is_some() && quiet < TELL_AFTER)
        });
    }

    /// What is told, ordered by name.
    pub fn told(&self) -> impl Iterator<Item = DownCluster> {
        let told = self.0.iter().filter(|(_, failing)| failing.told.is_some());
        told.map(|(cluster, failing)| DownCluster::new(cluster, &failing.reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told after looks at these seconds; a look with a reason saw the cluster fail.
    fn told(looks: &[(u64, Option<&str>)]) -> Option<String> {
        let mut trouble = Trouble::default();
        for (second, reason) in looks {
            let failing = reason.map(|reason| ("east".parse().unwrap(), Arc::from(reason)));
            let now = Moment::default() + Duration::from_secs(*second);
            trouble.look(failing.into_iter().collect(), now);
        }
        trouble.told().map(|down| down.reason).next()
    }

    #[test]
    fn what_has_failed_for_a_while_is_told_until_it_has_answered_for_as_long() {
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
            assert_eq!(told(looks).as_deref(), expect, "{looks:?}");
        }
    }
}
