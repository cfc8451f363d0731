//! The cluster this process runs in, reached with the Pod's ServiceAccount.

use futures::FutureExt;
use futures::future::BoxFuture;
use model::ClusterName;

use crate::provider::{Access, ClusterProvider, Fingerprint, Snapshot, Source};

/// One cluster: the one we run in, under a name of the operator's choice.
#[derive(Debug)]
pub struct InCluster {
    name: ClusterName,
    told: bool,
}

impl InCluster {
    /// The cluster we run in, called `name`.
    pub fn new(name: ClusterName) -> Self {
        Self { name, told: false }
    }

    /// As a provider. Token and certificates are read anew by the client as they rotate, so nothing
    /// here ever changes.
    pub fn provider(self) -> Box<dyn ClusterProvider> {
        Box::new(self)
    }
}

impl ClusterProvider for InCluster {
    fn label(&self) -> String {
        "in-cluster".to_owned()
    }

    fn next(&mut self) -> BoxFuture<'_, Snapshot> {
        if std::mem::replace(&mut self.told, true) {
            return futures::future::pending().boxed();
        }
        let source = Source {
            name: self.name.clone(),
            origin: "in-cluster".into(),
            fingerprint: Fingerprint::of([b"in-cluster".as_slice()]),
            access: Ok(Access::InCluster),
        };
        futures::future::ready(Snapshot { sources: vec![source], problems: Vec::new() }).boxed()
    }
}
