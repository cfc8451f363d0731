//! One configured cluster as the registry keeps it.

use std::sync::Arc;

use model::{Cluster, ClusterName, ClusterSet, ClusterState};
use tokio::task::AbortHandle;

use crate::probe::Finding;
use crate::provider::Source;
use crate::status::{ClusterStatus, State};

/// The reason of a cluster whose client is not ready when the set is published.
const CONNECTING: &str = "its client is not ready yet: its credential plugin is slow";

/// A configured cluster.
pub(crate) struct Entry {
    pub(crate) source: Source,
    pub(crate) serving: Serving,
    /// The result of the last probe.
    pub(crate) finding: Option<Finding>,
    /// The task that makes a client, or waits before the next attempt.
    pub(crate) making: Option<AbortHandle>,
    /// The task of the next probe.
    pub(crate) probing: Option<AbortHandle>,
}

/// The published state of a cluster.
pub(crate) enum Serving {
    /// Nothing yet: its first client is not ready.
    Connecting,
    /// A client.
    Engaged(Cluster),
    /// A reason.
    Down(Arc<str>),
}

impl Entry {
    pub(crate) fn new(source: Source) -> Self {
        Self { source, serving: Serving::Connecting, finding: None, making: None, probing: None }
    }

    pub(crate) fn is_connecting(&self) -> bool {
        matches!(self.serving, Serving::Connecting)
    }

    /// Engaged, and the last probe did not fail.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.serving, Serving::Engaged(_)) && !matches!(self.finding, Some(Err(_)))
    }

    /// As the rest of the manager sees it.
    pub(crate) fn state(&self) -> ClusterState {
        match &self.serving {
            Serving::Connecting => ClusterState::Down(CONNECTING.into()),
            Serving::Engaged(cluster) => ClusterState::Engaged(cluster.clone()),
            Serving::Down(reason) => ClusterState::Down(Arc::clone(reason)),
        }
    }

    /// As people see it.
    pub(crate) fn status(&self, name: &ClusterName) -> ClusterStatus {
        let unanswered = self.finding.as_ref().and_then(|found| found.as_ref().err()).cloned();
        let (state, incarnation, reason) = match &self.serving {
            Serving::Connecting => (State::Connecting, None, Some(CONNECTING.into())),
            Serving::Engaged(cluster) => (State::Engaged, Some(cluster.incarnation), unanswered),
            Serving::Down(reason) => (State::Down, None, Some(Arc::clone(reason))),
        };
        ClusterStatus {
            name: name.clone(),
            state,
            origin: Arc::clone(&self.source.origin),
            incarnation,
            answers: self.finding.as_ref().map(Result::is_ok),
            reason,
        }
    }

    pub(crate) fn stop_making(&mut self) {
        if let Some(task) = self.making.take() {
            task.abort();
        }
    }

    /// Stops its tasks.
    pub(crate) fn stop(&mut self) {
        self.stop_making();
        if let Some(task) = self.probing.take() {
            task.abort();
        }
    }
}

/// Whether two sets are equal.
pub(crate) fn same(a: &ClusterSet, b: &ClusterSet) -> bool {
    use ClusterState::{Down, Engaged};
    a.clusters.len() == b.clusters.len()
        && a.clusters.iter().zip(&b.clusters).all(|(a, b)| match (a, b) {
            ((a_name, Engaged(a)), (b_name, Engaged(b))) => {
                a_name == b_name && a.incarnation == b.incarnation
            }
            ((a_name, Down(a)), (b_name, Down(b))) => a_name == b_name && a == b,
            _ => false,
        })
}
