//! A decided restart: which owners and Pods it names, and whether content asks for one. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most owners and Pods restarted for one change: what a status can name within the size that an
/// API server stores.
pub(crate) const MAX_TARGETS: usize = 1_000;

/// A restart that is decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pending {
    /// The content it is for.
    pub hash: String,
    /// Owners of Pods to roll out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<Workload>,
    /// Pods to delete because nothing rolls them out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<PodRef>,
}

/// An owner of Pods that rolls them out when its template changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Workload {
    /// Its kind.
    pub kind: WorkloadKind,
    /// Its name.
    pub name: String,
}

/// The kinds that roll their Pods out when their template changes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum WorkloadKind {
    /// `apps/v1` Deployment.
    Deployment,
    /// `apps/v1` StatefulSet.
    StatefulSet,
    /// `apps/v1` DaemonSet.
    DaemonSet,
}

/// One incarnation of a Pod: a new Pod of the same name has another uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct PodRef {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// What the content asks for, compared with the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// Nothing: it is the recorded one, or is seen for the first time.
    None,
    /// A restart: it is another.
    Restart,
    /// The end of a restart that is recorded and may not be finished.
    Resume(&'a Pending),
}

/// What the content `hash` asks for, given the last `recorded` one and a `pending` restart.
pub(crate) fn change<'a>(
    recorded: Option<&str>,
    pending: Option<&'a Pending>,
    hash: &str,
) -> Change<'a> {
    match (pending, recorded) {
        (Some(pending), _) if pending.hash == hash => Change::Resume(pending),
        (None, None) => Change::None,
        (None, Some(recorded)) if recorded == hash => Change::None,
        _ => Change::Restart,
    }
}

/// Whether a Pod can be restarted: alive, and not a static Pod of a kubelet.
pub(crate) fn restartable(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let mirror = controller(pod).is_some_and(|owner| owner.kind == "Node");
    pod.metadata.deletion_timestamp.is_none()
        && !matches!(phase, Some("Succeeded" | "Failed"))
        && !mirror
}

/// The names of the ReplicaSets between these Pods and their Deployments.
pub(super) fn replica_sets<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> BTreeSet<String> {
    pods.into_iter()
        .filter_map(controller)
        .filter(|owner| is_apps(owner) && owner.kind == "ReplicaSet")
        .map(|owner| owner.name.clone())
        .collect()
}

/// The restart of `pods` for content `hash`. `deployments` maps ReplicaSets to their Deployments.
///
/// Pods whose controller rolls nothing out (a ReplicaSet without a Deployment, a Job, an unknown
/// controller) are deleted like those without one: their controller creates new ones.
pub(super) fn pending<'a>(
    hash: String,
    pods: impl IntoIterator<Item = &'a Pod>,
    deployments: &BTreeMap<String, String>,
) -> Pending {
    let mut workloads = BTreeSet::new();
    let mut bare = BTreeSet::new();
    for pod in pods {
        if let Some(workload) = controller(pod).and_then(|owner| workload(owner, deployments)) {
            workloads.insert(workload);
        } else if let Some(uid) = pod.uid() {
            bare.insert(PodRef { name: pod.name_any(), uid });
        }
    }
    Pending { hash, workloads: workloads.into_iter().collect(), pods: bare.into_iter().collect() }
}

impl Pending {
    /// How many owners and Pods it names.
    pub fn targets(&self) -> usize {
        self.workloads.len() + self.pods.len()
    }

    /// What it restarts, for people.
    pub fn summary(&self) -> String {
        let workloads = self.workloads.iter().map(|w| format!("{:?} {}", w.kind, w.name));
        let pods = (!self.pods.is_empty()).then(|| match self.pods.as_slice() {
            [one] => format!("Pod {}", one.name),
            many => format!("{} Pods", many.len()),
        });
        workloads.chain(pods).collect::<Vec<_>>().join(", ")
    }
}

fn workload(owner: &OwnerReference, deployments: &BTreeMap<String, String>) -> Option<Workload> {
    if !is_apps(owner) {
        return None;
    }
    let (kind, name) = match owner.kind.as_str() {
        "ReplicaSet" => (WorkloadKind::Deployment, deployments.get(&owner.name)?),
        "StatefulSet" => (WorkloadKind::StatefulSet, &owner.name),
        "DaemonSet" => (WorkloadKind::DaemonSet, &owner.name),
        _ => return None,
    };
    Some(Workload { kind, name: name.clone() })
}

/// The Deployment that controls a ReplicaSet with these owners.
pub(super) fn deployment_of(owners: &[OwnerReference]) -> Option<&str> {
    owners
        .iter()
        .find(|owner| owner.controller == Some(true))
        .filter(|owner| is_apps(owner) && owner.kind == "Deployment")
        .map(|owner| owner.name.as_str())
}

fn controller(pod: &Pod) -> Option<&OwnerReference> {
    pod.owner_references().iter().find(|owner| owner.controller == Some(true))
}

fn is_apps(owner: &OwnerReference) -> bool {
    owner.api_version.split_once('/').is_some_and(|(group, _)| group == "apps")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(value: Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    fn owned(name: &str, api_version: &str, kind: &str, owner: &str) -> Pod {
        pod(json!({"metadata": {"name": name, "uid": format!("uid-{name}"), "ownerReferences": [
            {"apiVersion": api_version, "kind": kind, "name": owner, "uid": "o", "controller": true}
        ]}}))
    }

    #[test]
    fn whom_a_restart_names() {
        let pods = [
            owned("web-1", "apps/v1", "ReplicaSet", "web-abc"),
            owned("web-2", "apps/v1", "ReplicaSet", "web-abc"),
            owned("lone-1", "apps/v1", "ReplicaSet", "lone"),
            owned("db-0", "apps/v1", "StatefulSet", "db"),
            owned("agent-x", "apps/v1", "DaemonSet", "agent"),
            owned("job-1", "batch/v1", "Job", "job"),
            owned("other-1", "example.com/v1", "StatefulSet", "other"),
            pod(json!({"metadata": {"name": "bare", "uid": "uid-bare"}})),
        ];
        assert_eq!(replica_sets(&pods), ["lone".to_owned(), "web-abc".to_owned()].into());
        let deployments = [("web-abc".to_owned(), "web".to_owned())].into();
        let pending = pending("hash".to_owned(), &pods, &deployments);
        insta::assert_yaml_snapshot!(pending);
        assert_eq!(pending.summary(), "Deployment web, StatefulSet db, DaemonSet agent, 4 Pods");
    }

    #[test]
    fn only_living_pods_restart() {
        for (value, expect) in [
            (json!({"metadata": {"name": "a"}}), true),
            (json!({"metadata": {"name": "a"}, "status": {"phase": "Running"}}), true),
            (json!({"metadata": {"name": "a"}, "status": {"phase": "Succeeded"}}), false),
            (
                json!({"metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
                false,
            ),
        ] {
            assert_eq!(restartable(&pod(value.clone())), expect, "{value}");
        }
        assert!(!restartable(&owned("etcd", "v1", "Node", "node-1")));
    }
}
