//! The writes of a plan.

use serde_json::Value;

use crate::program::Start;

/// The kinds that are planned, children before their owners: an owner that is planned after all its
/// children reports their changes in one status instead of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Volume,
    Claim,
    Pod,
    Job,
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
#[derive(Debug, Clone)]
pub(crate) enum Action {
    /// Creates an object.
    Create { kind: Kind, namespace: String, body: Value },
    /// Merge-patches an object.
    Patch { key: ObjectRef, body: Value },
    /// Merge-patches an object's status.
    PatchStatus { key: ObjectRef, body: Value },
    /// Deletes an object, if it still has this uid.
    Delete { key: ObjectRef, uid: String },
    /// Starts a program in a container of the Pod with this uid.
    Start { key: ObjectRef, uid: String, start: Box<Start> },
}

// === impl Kind ===

impl Kind {
    pub(crate) const ALL: [Self; 8] = [
        Self::Volume,
        Self::Claim,
        Self::Pod,
        Self::Job,
        Self::ReplicaSet,
        Self::StatefulSet,
        Self::DaemonSet,
        Self::Deployment,
    ];

    /// Its name in owner references and objects.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
            Self::Job => "Job",
            Self::Pod => "Pod",
            Self::Claim => "PersistentVolumeClaim",
            Self::Volume => "PersistentVolume",
        }
    }

    /// Its API group.
    pub(crate) fn group(self) -> &'static str {
        match self {
            Self::Volume | Self::Claim | Self::Pod => "",
            Self::Job => "batch",
            Self::ReplicaSet | Self::StatefulSet | Self::DaemonSet | Self::Deployment => "apps",
        }
    }

    /// The kind to which an owner reference points, if it is one that has Pods or ReplicaSets.
    pub(crate) fn of_owner(api_version: &str, kind: &str) -> Option<Self> {
        let known =
            [Self::Deployment, Self::ReplicaSet, Self::StatefulSet, Self::DaemonSet, Self::Job];
        let (group, _) = api_version.split_once('/')?;
        known.into_iter().find(|k| k.group() == group && k.as_str() == kind)
    }
}

// === impl ObjectRef ===

impl ObjectRef {
    pub(crate) fn new(kind: Kind, object: &impl kube::ResourceExt) -> Self {
        let namespace = object.namespace().unwrap_or_default();
        Self { kind, namespace, name: object.name_any() }
    }
}
