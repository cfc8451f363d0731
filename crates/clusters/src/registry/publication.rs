//! What the registry publishes, and when: the first time only when enough is known.

use std::sync::Arc;
use std::time::Duration;

use model::{ClusterName, ClusterSet};

use super::{Provided, Report, Task};
use crate::entry::{Entry, same};
use crate::status::Status;

/// How long the first publication waits for slow clients after all providers have answered. Clusters
/// whose client is not ready by then are published as down.
const FIRST_WAIT: Duration = Duration::from_secs(2);
/// After a publication, the next waits so long for each cluster. A publication costs this task and all that follow it
/// time for each of them: without a rest, ten thousand clusters that are engaged one by one would take all of a machine.
const REST_FOR_EACH: Duration = Duration::from_micros(50);
/// A shorter rest is none.
const SHORTEST_REST: Duration = Duration::from_millis(1);

/// The progress of the first publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Publication {
    /// Some provider has not answered.
    Incomplete,
    /// All have answered, but some clients are not ready.
    Waiting,
    /// It is due, whether or not all clients are ready.
    Due,
}

impl Task {
    /// Publishes. The first time only when all is ready or the wait is over.
    pub(super) fn publish(&mut self) {
        let answered =
            self.overdue || self.providers.iter().all(|provider| provider.latest.is_some());
        if self.publication == Publication::Incomplete && answered {
            self.publication = Publication::Waiting;
            self.work.spawn(async {
                tokio::time::sleep(FIRST_WAIT).await;
                Report::FirstWaitOver
            });
        }
        let first = self.publication == Publication::Waiting;
        if first && !self.entries.values().any(Entry::is_connecting) {
            self.publication = Publication::Due;
        }
        if self.publication != Publication::Due {
            return;
        }
        if let Some(is_news) = &mut self.rest {
            *is_news = true;
            return;
        }
        self.publish_now();
        let clusters = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        let rest = REST_FOR_EACH.saturating_mul(clusters);
        if rest >= SHORTEST_REST {
            self.rest = Some(false);
            self.work.spawn(async move {
                tokio::time::sleep(rest).await;
                Report::RestOver
            });
        }
    }

    /// Whether the published status of a cluster is its present one.
    pub(super) fn is_published(&self, name: &ClusterName) -> bool {
        let (status, entry) = (self.status.borrow(), self.entries.get(name));
        let at = status.clusters.binary_search_by(|known| known.name.cmp(name));
        self.sent && at.is_ok_and(|at| entry.is_some_and(|e| status.clusters[at] == e.status(name)))
    }

    fn publish_now(&mut self) {
        let clusters = self.entries.iter().map(|(name, entry)| entry.status(name)).collect();
        // First the status: whoever has seen the set finds the status of its clusters.
        self.status.send_replace(Arc::new(Status { clusters, problems: self.problems.clone() }));
        let is_open =
            |provider: &&Provided| provider.latest.as_ref().is_none_or(|it| it.is_partial);
        let open = self.providers.iter().filter(is_open);
        let set = ClusterSet {
            clusters: self.entries.iter().map(|(n, e)| (n.clone(), e.state())).collect(),
            told: self.entries.iter().filter_map(|(n, e)| Some((n.clone(), e.told()?))).collect(),
            open: open.map(|provider| provider.beginning.clone()).collect(),
        };
        // Probes change only the status. Then receivers of the set are not woken.
        let first = !std::mem::replace(&mut self.sent, true);
        self.set.send_if_modified(|current| {
            let changed = first || !same(current, &set);
            if changed {
                *current = Arc::new(set);
            }
            changed
        });
    }
}
