//! The key of one object in one cluster: what flows through queues.

use std::fmt;
use std::sync::Arc;

use crate::ClusterName;

/// Names one object by cluster, namespace and name. Its kind follows from the context.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The cluster the object lives in.
    pub cluster: ClusterName,
    /// Its namespace; `None` for kinds without namespaces.
    pub namespace: Option<Arc<str>>,
    /// Its name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// A key from its parts; an empty namespace counts as none.
    pub fn new(cluster: ClusterName, namespace: Option<&str>, name: &str) -> Self {
        Self {
            cluster,
            namespace: namespace.filter(|ns| !ns.is_empty()).map(Arc::from),
            name: Arc::from(name),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{}/{namespace}/{}", self.cluster, self.name),
            None => write!(f, "{}/{}", self.cluster, self.name),
        }
    }
}
