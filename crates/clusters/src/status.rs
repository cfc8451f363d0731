//! The status of every cluster, for `/debug/clusters` and for people.

use std::sync::Arc;

use model::{ClusterName, ClusterUid};
use serde::Serialize;

use crate::credentials::CredentialLife;

/// Every configured cluster, and problems of the configuration of clusters as a whole.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// In order of their names.
    pub clusters: Vec<ClusterStatus>,
    /// Duplicate names, folders that cannot be listed and the like.
    pub problems: Vec<Arc<str>>,
}

/// One cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Its name in the fleet.
    pub name: ClusterName,
    /// Whether there is a client for it.
    pub state: State,
    /// The kubeconfig and context from which it comes.
    pub origin: Arc<str>,
    /// A number that rises with each engagement of any cluster; the number of its last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<u64>,
    /// Which cluster it is: the uid of its namespace `kube-system`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<ClusterUid>,
    /// Why that is unknown, and how to repair it, if its server does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unidentified: Option<Arc<str>>,
    /// Why it has no mark of this fleet, and what to do, if it takes none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmarked: Option<Arc<str>>,
    /// Whether another fleet keeps this one away.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
    /// From when until when its credential is valid, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<CredentialLife>,
    /// Whether its API server answered the last probe; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answers: Option<bool>,
    /// Why it is down or does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<str>>,
}

impl ClusterStatus {
    /// Engaged, and the last probe did not fail.
    pub(crate) fn is_up(&self) -> bool {
        self.state == State::Engaged && self.answers != Some(false)
    }
}

/// Whether there is a client for a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// Its client is not ready yet.
    Connecting,
    /// There is a client.
    Engaged,
    /// There is no client, for a reason.
    Down,
}
