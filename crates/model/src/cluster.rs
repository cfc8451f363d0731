//! A cluster as the manager sees it: engaged with a client, or down for a reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::{Budget, ClusterName, ClusterUid, Wire};

/// An engaged cluster: its name and a way to reach it.
#[derive(Clone)]
pub struct Cluster {
    /// The cluster's name in the fleet.
    pub name: ClusterName,
    /// Its connection: authenticated, but without fence or budget. Its users add those.
    pub wire: Wire,
    /// Rises each time the kubeconfig of this cluster changes. Then every watch must be opened again.
    pub incarnation: u64,
    /// A hash of where its client leads: the server's address and who vouches for it. It stays over incarnations
    /// that differ in their credentials, or because the cluster was down.
    pub destination: u64,
    /// How much of it is kept; `None` for as much as of any other.
    pub budget: Option<Budget>,
    /// Which cluster it is; `None` if its server does not tell, and for clusters of a test.
    pub identity: Option<Arc<Identity>>,
}

/// Names that stand for another cluster in a replica than in its fleet, each with the fleet's cluster of that name.
pub type DisputedNames = BTreeMap<ClusterName, ClusterUid>;

/// The identities of a fleet's processes that may live, as home shows it to one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Living(Option<BTreeSet<String>>);

impl Living {
    /// These live. The default is that nobody knows.
    pub fn these(identities: BTreeSet<String>) -> Self {
        Self(Some(identities))
    }

    /// Whether a process of that identity may live, if that is known. Of long identities only the beginning may be
    /// known.
    pub fn includes(&self, identity: &str) -> Option<bool> {
        Some(self.0.as_ref()?.iter().any(|living| identity.starts_with(living.as_str())))
    }
}

/// Which cluster has a name, and who gave it that name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The cluster.
    pub uid: ClusterUid,
    /// The kubeconfig and context that gave the name, for people.
    pub origin: Arc<str>,
    /// The place of what it comes from in the configuration. Of two names that are new, the first stays.
    pub place: usize,
}

impl Cluster {
    /// A cluster whose wire goes through `client`, and whose identity nobody asked for. Each incarnation leads elsewhere.
    pub fn new(name: ClusterName, client: kube::Client, incarnation: u64) -> Self {
        Self {
            name,
            wire: client.into(),
            incarnation,
            destination: incarnation,
            budget: None,
            identity: None,
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("name", &self.name)
            .field("incarnation", &self.incarnation)
            .finish_non_exhaustive()
    }
}

/// The state of a configured cluster.
#[derive(Clone, Debug)]
pub enum ClusterState {
    /// It has a client. That does not mean that the server answers.
    Engaged(Cluster),
    /// It has no client. The text names the kubeconfig, the cause and the fix.
    Down(Arc<str>),
}

/// All configured clusters at one moment, published as a snapshot.
#[derive(Clone, Debug, Default)]
pub struct ClusterSet {
    /// Every configured cluster by name, engaged or down.
    pub clusters: BTreeMap<ClusterName, ClusterState>,
    /// Which clusters those are that have told it before they are engaged for the first time.
    pub told: BTreeMap<ClusterName, Arc<Identity>>,
    /// What the names of further ones may begin with: of sources of clusters that could not be read yet. An empty text
    /// if their names may be any.
    pub open: BTreeSet<String>,
}

impl ClusterSet {
    /// The engaged clusters, in order of their names.
    pub fn engaged(&self) -> impl Iterator<Item = &Cluster> {
        self.clusters.values().filter_map(|state| match state {
            ClusterState::Engaged(cluster) => Some(cluster),
            ClusterState::Down(_) => None,
        })
    }

    /// Which clusters these are, as far as they have told.
    pub fn identities(&self) -> BTreeMap<ClusterName, Arc<Identity>> {
        let engaged = self
            .engaged()
            .filter_map(|cluster| Some((cluster.name.clone(), cluster.identity.clone()?)));
        engaged
            .chain(self.told.iter().map(|(name, told)| (name.clone(), Arc::clone(told))))
            .collect()
    }

    /// Where the client of each configured cluster leads; `None` for those that are down.
    pub fn destinations(&self) -> BTreeMap<ClusterName, Option<u64>> {
        let leads_to = |name: &ClusterName| self.get(name).map(|cluster| cluster.destination);
        self.clusters.keys().map(|name| (name.clone(), leads_to(name))).collect()
    }

    /// The engaged cluster of that name, if it is one.
    pub fn get(&self, name: &ClusterName) -> Option<&Cluster> {
        match self.clusters.get(name)? {
            ClusterState::Engaged(cluster) => Some(cluster),
            ClusterState::Down(_) => None,
        }
    }
}
