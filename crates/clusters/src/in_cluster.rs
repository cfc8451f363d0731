//! The cluster in which this process runs, reached with the Pod's ServiceAccount.

use std::path::Path;

use model::ClusterName;

use crate::polled::{Look, Polled, Settled};
use crate::provider::{Access, ClusterProvider, Fingerprint, Snapshot, Source};
use crate::reference::read_bounded;

/// Where the kubelet puts the certificates of the cluster's authority.
const AUTHORITY: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// The cluster in which this process runs, under a name of the operator's choice.
#[derive(Debug)]
pub struct InCluster {
    name: ClusterName,
    authority: Settled<Fingerprint>,
}

impl InCluster {
    /// The cluster in which this process runs, called `name`.
    pub fn new(name: ClusterName) -> Self {
        Self { name, authority: Settled::trusting() }
    }

    /// As a provider. It changes with the certificates of the cluster's authority; the client itself reads
    /// rotated tokens.
    pub fn provider(self) -> Box<dyn ClusterProvider> {
        Box::new(Polled::new(self))
    }
}

impl Look for InCluster {
    fn label(&self) -> String {
        "in-cluster".to_owned()
    }

    fn look(&mut self) -> Snapshot {
        let authority = read_bounded(Path::new(AUTHORITY)).unwrap_or_default();
        let seen = Fingerprint::of([b"in-cluster".as_slice(), &authority]);
        self.authority.observe(seen);
        let source = Source {
            name: self.name.clone(),
            origin: "in-cluster".into(),
            fingerprint: self.authority.accepted.unwrap_or(seen),
            access: Ok(Access::InCluster),
            asked: None,
        };
        Snapshot { sources: vec![source], ..Snapshot::default() }
    }
}
