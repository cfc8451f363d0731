//! The interface to sources of clusters: files today, inventories later.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use kube::config::{Cluster, Kubeconfig};
use model::{ClusterName, Prefix, SourceBudget};
use sha2::{Digest, Sha256};

use crate::budget::Asked;
use crate::error::Unusable;
use crate::trust::Granted;

/// Knows some clusters and reports when they change.
pub trait ClusterProvider: Send + 'static {
    /// What it reads, for logs: `directory ./clusters`.
    fn label(&self) -> String;

    /// The sources. The first call returns as soon as they are known, each later one when they differ from
    /// the last result. It need not be cancel safe: the registry drops the future only to stop for good.
    fn next(&mut self) -> BoxFuture<'_, Snapshot>;

    /// How much is kept of each of its clusters; `None` for as much as of any other.
    fn budget(&self) -> Option<SourceBudget> {
        None
    }

    /// What the names of its clusters begin with; `None` if they may be any.
    fn prefix(&self) -> Option<Prefix> {
        None
    }
}

/// The same provider, whose clusters have this budget.
pub fn budgeted(
    provider: Box<dyn ClusterProvider>,
    budget: Option<impl Into<SourceBudget>>,
) -> Box<dyn ClusterProvider> {
    Box::new(Budgeted { provider, budget: budget.map(Into::into) })
}

struct Budgeted {
    provider: Box<dyn ClusterProvider>,
    budget: Option<SourceBudget>,
}

impl ClusterProvider for Budgeted {
    fn label(&self) -> String {
        self.provider.label()
    }

    fn next(&mut self) -> BoxFuture<'_, Snapshot> {
        self.provider.next()
    }

    fn budget(&self) -> Option<SourceBudget> {
        self.budget
    }

    fn prefix(&self) -> Option<Prefix> {
        self.provider.prefix()
    }
}

/// Everything that one provider knows at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Its clusters. Of duplicates, the one that has the name keeps it; else the first wins.
    pub sources: Vec<Source>,
    /// Problems of the provider as a whole, for people.
    pub problems: Vec<Arc<str>>,
    /// Whether it may have further clusters: since the start, a part of it could not be read.
    pub is_partial: bool,
}

/// One cluster as a provider knows it.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name in the fleet.
    pub name: ClusterName,
    /// Where it comes from, for people: `kubeconfig clusters/east.yaml, context "east"`.
    pub origin: Arc<str>,
    /// Changes with anything that goes into the client.
    pub fingerprint: Fingerprint,
    /// How to reach it, or why that is unknown.
    pub access: Result<Access, Arc<Unusable>>,
    /// The budget that its author asks for, or why that is none.
    pub(crate) asked: Asked,
}

/// How to reach a cluster.
#[derive(Clone)]
pub enum Access {
    /// With this context of this kubeconfig, which holds what its files held, but for a `tokenFile`.
    Kubeconfig {
        /// The kubeconfig, reduced to what the context needs.
        kubeconfig: Arc<Kubeconfig>,
        /// The context to use.
        context: Arc<str>,
        /// What it may do.
        granted: Arc<Granted>,
    },
    /// With the ServiceAccount of the Pod in which this process runs.
    InCluster,
}

/// SHA-256 over everything that goes into a client.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Access {
    /// With a context of a person's own kubeconfig, which may do everything.
    pub fn own(kubeconfig: Arc<Kubeconfig>, context: &str) -> Self {
        Self::Kubeconfig {
            kubeconfig,
            context: context.into(),
            granted: Granted::everything().into(),
        }
    }

    /// Whether the server's certificate is not checked.
    pub(crate) fn is_insecure(&self) -> bool {
        self.clusters().any(|cluster| cluster.insecure_skip_tls_verify == Some(true))
    }

    /// The server's URL; `None` for the cluster of the Pod.
    pub(crate) fn server(&self) -> Option<&str> {
        self.clusters().find_map(|cluster| cluster.server.as_deref())
    }

    /// What leads to the server: its URL and how its certificate is checked. Credentials do not count.
    pub(crate) fn destination(&self) -> Fingerprint {
        let text = |cluster: &Cluster| serde_json::to_vec(cluster).unwrap_or_default();
        let parts: Vec<_> = self.clusters().map(text).collect();
        Fingerprint::of(parts.iter().map(Vec::as_slice))
    }

    fn clusters(&self) -> impl Iterator<Item = &Cluster> {
        let named = match self {
            Self::Kubeconfig { kubeconfig, .. } => kubeconfig.clusters.as_slice(),
            Self::InCluster => &[],
        };
        named.iter().filter_map(|named| named.cluster.as_ref())
    }
}

impl Source {
    /// Where it leads, if that is known.
    pub(crate) fn destination(&self) -> Option<Fingerprint> {
        self.access.as_ref().ok().map(Access::destination)
    }
}

impl Fingerprint {
    /// The fingerprint of these parts. The borders between parts count.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// Its first eight bytes.
    pub(crate) fn number(self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

impl AsRef<[u8]> for Fingerprint {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Two sources are equal if they come from the same place, lead to the same client and ask for the same budget.
impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.origin == other.origin
            && self.fingerprint == other.fingerprint
            && self.asked == other.asked
    }
}

impl Eq for Source {}

/// Never prints credentials.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kubeconfig { context, .. } => {
                f.debug_struct("Kubeconfig").field("context", context).finish_non_exhaustive()
            }
            Self::InCluster => f.write_str("InCluster"),
        }
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders_between_parts_count() {
        let of = |parts: &[&str]| Fingerprint::of(parts.iter().map(|p| p.as_bytes()));
        assert_eq!(of(&["ab", "c"]), of(&["ab", "c"]));
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_ne!(of(&["a"]), of(&["a", ""]));
    }
}
