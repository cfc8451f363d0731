//! The writes of a plan.

use serde_json::Value;

/// The kinds that are planned, children before their owners: an owner that is planned after all its
/// children reports their changes in one status instead of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Pod,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    Deployment,
}

/// One object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectRef {
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    /// Creates an object.
    Create { kind: Kind, namespace: String, body: Value },
    /// Merge-patches an object.
    Patch { key: ObjectRef, body: Value },
    /// Merge-patches an object's status.
    PatchStatus { key: ObjectRef, body: Value },
    /// Deletes an object, if it still has this uid.
    Delete { key: ObjectRef, uid: String },
}

// === impl Kind ===

impl Kind {
    pub(crate) const ALL: [Self; 5] =
        [Self::Pod, Self::ReplicaSet, Self::StatefulSet, Self::DaemonSet, Self::Deployment];

    /// Its name in owner references and objects.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
            Self::Pod => "Pod",
        }
    }

    /// The kind to which an owner reference of the `apps` group points.
    pub(crate) fn of_owner(api_version: &str, kind: &str) -> Option<Self> {
        let known = [Self::Deployment, Self::ReplicaSet, Self::StatefulSet, Self::DaemonSet];
        known.into_iter().find(|k| api_version == "apps/v1" && k.as_str() == kind)
    }
}

// === impl ObjectRef ===

impl ObjectRef {
    pub(crate) fn new(kind: Kind, object: &impl kube::ResourceExt) -> Self {
        let namespace = object.namespace().unwrap_or_default();
        Self { kind, namespace, name: object.name_any() }
    }
}
