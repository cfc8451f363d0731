//! Which clusters a member could serve, as the planner sees it.
//!
//! A member that lacks a cluster has no way to its objects, so it gets none of its shards. One that fails
//! to reach a cluster gets them only if nobody else is better: the shard of a cluster that is down
//! everywhere has an owner, and is served as soon as the cluster is back. So it is with one of which nobody
//! knows whether it reaches the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{ClusterName, MemberId};

/// How a member stands with a cluster, from the worst to the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fit {
    /// It does not have the cluster configured.
    Lacks,
    /// Nobody knows. It keeps what it has and gets nothing.
    Unknown,
    /// It has the cluster configured and does not reach it.
    Fails,
    /// It has the cluster configured, and nobody knows whether it reaches it. It keeps what it has, and gets what no
    /// better member can take: if many clusters are down, the others have owners all the same.
    Doubtful,
    /// It serves the cluster, and people want its shards elsewhere.
    Unwanted,
    /// It has the cluster configured, and nothing says that it does not reach it.
    Serves,
}

/// How a member stands with each cluster. By default it serves all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// How it stands with the clusters that are not named.
    pub otherwise: Fit,
    /// The named ones. Members with the same configuration share them.
    pub named: Arc<BTreeMap<ClusterName, Fit>>,
}

impl Default for Reach {
    fn default() -> Self {
        Self { otherwise: Fit::Serves, named: Arc::default() }
    }
}

impl Reach {
    /// That of a member that serves none.
    pub fn none() -> Self {
        Self { otherwise: Fit::Lacks, named: Arc::default() }
    }

    /// How the member stands with a cluster.
    pub fn of(&self, cluster: &ClusterName) -> Fit {
        self.named.get(cluster).copied().unwrap_or(self.otherwise)
    }

    /// Whether it serves all clusters.
    pub(super) fn is_whole(&self) -> bool {
        self.otherwise == Fit::Serves && self.named.values().all(|fit| *fit == Fit::Serves)
    }
}

/// What people want of members for some shards: those that are not as good as any other.
pub type Preferences = BTreeMap<MemberId, Fit>;

/// What one shard counts that a member serves although people want it elsewhere, compared with one that it
/// fails to reach; and one that it serves.
const UNWANTED: u64 = 1 << 20;
const SERVED: u64 = 1 << 40;

impl Fit {
    /// What a shard counts at a member that stands so. Sums compare members for several shards at once.
    pub(super) fn merit(self) -> u64 {
        match self {
            Self::Lacks | Self::Unknown => 0,
            Self::Fails => 1,
            Self::Doubtful => 2,
            Self::Unwanted => UNWANTED,
            Self::Serves => SERVED,
        }
    }
}

/// How well shards are served where they count that much together: by how many are where people want them,
/// then by how many are served elsewhere.
pub(super) fn served(merit: u64) -> u64 {
    merit / UNWANTED
}
