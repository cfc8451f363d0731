//! A decided restart: which owners and Pods it names. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::ResourceExt;
use schemars::JsonSchema;
use sdk::Kind;
use serde::{Deserialize, Serialize};

use crate::children::controller;

/// The most owners and Pods restarted for one change: what a status or an annotation can name within the
/// size that an API server stores.
pub(crate) const MAX_TARGETS: usize = 500;
/// How soon a restart that has begun is looked at again, at first.
const FIRST_LOOK: Duration = Duration::from_secs(5);
/// How long it waits between two looks at most.
pub(super) const LONGEST_LOOK: Duration = Duration::from_secs(60);
/// How many workloads one restart reads in a second, on average.
const READS_PER_SECOND: u64 = 10;
/// The most names that a summary has.
const MAX_NAMES: usize = 10;
/// The most annotations that a message tells of.
const MAX_TOLD: usize = 3;

/// A restart that is decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pending {
    /// The content it is for.
    pub hash: String,
    /// When it was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "sdk::schema::time")]
    pub decided_at: Option<Time>,
    /// Owners of Pods to roll out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<Workload>,
    /// Whether the rollouts of all of them have begun.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub started: bool,
    /// Pods to evict because nothing rolls them out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<PodRef>,
    /// The selector by which these were found, and those in their place are: it may be changed meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// How many of them are not gone yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<i32>,
    /// When the last one went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "sdk::schema::time")]
    pub left_since: Option<Time>,
    /// Pods that are left alone, because nothing creates them again, or their Job would begin anew.
    #[serde(default, skip_serializing_if = "crate::is_zero")]
    pub kept: i32,
    /// What annotations say that cannot be read, and whose they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
}

/// An owner of Pods that rolls them out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Workload {
    /// Its kind.
    pub kind: WorkloadKind,
    /// Its name.
    pub name: String,
    /// Whether its rollout has begun, as long as not all have.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub begun: bool,
}

/// The kinds that roll their Pods out, when their template changes or when they are told to.
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
    /// `argoproj.io/v1alpha1` Rollout, of Argo Rollouts.
    Rollout,
}

/// One incarnation of a Pod: a new Pod of the same name has another uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct PodRef {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The uid of its controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
}

impl WorkloadKind {
    /// All of them.
    pub(crate) const ALL: [Self; 4] =
        [Self::Deployment, Self::StatefulSet, Self::DaemonSet, Self::Rollout];

    /// The kind as the API knows it.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Deployment => Kind::new("apps", "v1", "Deployment", "deployments", true),
            Self::StatefulSet => Kind::new("apps", "v1", "StatefulSet", "statefulsets", true),
            Self::DaemonSet => Kind::new("apps", "v1", "DaemonSet", "daemonsets", true),
            Self::Rollout => Kind::new("argoproj.io", "v1alpha1", "Rollout", "rollouts", true),
        }
    }
}

impl Workload {
    pub(crate) fn new(kind: WorkloadKind, name: impl Into<String>) -> Self {
        Self { kind, name: name.into(), begun: false }
    }

    /// The workload as people write it.
    pub(crate) fn label(&self) -> String {
        format!("{:?} {}", self.kind, self.name)
    }
}

/// Whether a Pod can be restarted: alive, and not a static Pod of a kubelet.
pub(super) fn restartable(pod: &Pod) -> bool {
    is_active(pod) && is_selectable(pod)
}

/// Whether a Pod, of which only the metadata may be known, is neither being deleted nor a static Pod.
pub(crate) fn is_selectable<K: ResourceExt>(pod: &K) -> bool {
    let is_static = controller(pod).is_some_and(|owner| owner.kind == "Node");
    pod.meta().deletion_timestamp.is_none() && !is_static
}

/// Whether a Pod has not come to its end.
pub(super) fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

/// The names of the ReplicaSets between these Pods and their Deployments.
pub(super) fn replica_sets<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> BTreeSet<String> {
    pods.into_iter()
        .filter_map(controller)
        .filter(|owner| is_of(owner, "apps") && owner.kind == "ReplicaSet")
        .map(|owner| owner.name.clone())
        .collect()
}

/// The restart of `pods` for content `hash`. `rolled_out` maps ReplicaSets to the workloads that have them.
///
/// Pods whose controller rolls nothing out (a ReplicaSet of its own, an unknown controller) are evicted: their
/// controller creates new ones. Pods without a controller are evicted only if `bare` says so, and those of a Job never:
/// they would lose what they have done, and count as failed.
pub(super) fn pending<'a>(
    hash: String,
    pods: impl IntoIterator<Item = &'a Pod>,
    rolled_out: &BTreeMap<String, Workload>,
    bare: bool,
) -> Pending {
    let (mut workloads, mut evicted, mut kept) = (BTreeSet::new(), BTreeSet::new(), 0);
    for pod in pods {
        let controller = controller(pod);
        if let Some(workload) = controller.and_then(|owner| workload(owner, rolled_out)) {
            workloads.insert(workload);
        } else if controller.map_or(!bare, |owner| is_of(owner, "batch")) {
            kept += 1;
        } else if let Some(uid) = pod.uid() {
            let controller = controller.map(|owner| owner.uid.clone());
            evicted.insert(PodRef { name: pod.name_any(), uid, controller });
        }
    }
    let left = (!evicted.is_empty()).then(|| i32::try_from(evicted.len()).unwrap_or(i32::MAX));
    let (workloads, pods) = (workloads.into_iter().collect(), evicted.into_iter().collect());
    Pending { hash, workloads, pods, left, kept, ..Pending::default() }
}

impl Pending {
    /// Adds workloads to roll out, each once.
    #[must_use]
    pub(super) fn with(self, workloads: impl IntoIterator<Item = Workload>) -> Self {
        let all: BTreeSet<_> = self.workloads.into_iter().chain(workloads).collect();
        Self { workloads: all.into_iter().collect(), ..self }
    }

    /// What it writes into Pod templates: no two restarts the same, also where content returns that a template had before.
    pub(super) fn stamp(&self) -> String {
        let decided = self.decided_at.as_ref().map(|decided| format!("-{}", decided.0));
        format!("{}{}", self.hash, decided.unwrap_or_default())
    }

    /// The workloads whose rollout has not begun.
    pub(super) fn waiting(&self) -> Vec<Workload> {
        self.workloads.iter().filter(|workload| !workload.begun).cloned().collect()
    }

    /// The restart once these rollouts have begun too.
    #[must_use]
    pub(super) fn begun(&self, begun: &[Workload]) -> Self {
        let mut after = self.clone();
        for workload in &mut after.workloads {
            workload.begun |= begun.contains(workload);
        }
        if after.workloads.iter().all(|workload| workload.begun) {
            after.started = true;
            after.workloads.iter_mut().for_each(|workload| workload.begun = false);
        }
        after
    }

    /// How many owners and Pods it names.
    pub fn targets(&self) -> usize {
        self.workloads.len() + self.pods.len()
    }

    /// Notes what annotations say that cannot be read.
    #[must_use]
    pub(super) fn with_unread(self, words: &[String]) -> Self {
        Self { unread: (!words.is_empty()).then(|| told(words)), ..self }
    }

    /// When it is looked at again. Workloads are read from the server instead of watched: few are restarted
    /// at a time, and a watch would put every controller that watches their kinds into one controller group.
    /// The looks become rarer the longer nothing is seen to go on, and with the number of workloads that each
    /// look reads.
    pub(super) fn next_look(&self, now: Timestamp) -> Duration {
        let since = self.left_since.as_ref().or(self.decided_at.as_ref());
        let since = since.map_or(now, |since| since.0);
        let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        let reads = u64::try_from(self.workloads.len()).unwrap_or(u64::MAX);
        let spaced = Duration::from_secs(reads / READS_PER_SECOND);
        (passed / 4).max(spaced).clamp(FIRST_LOOK, LONGEST_LOOK)
    }

    /// Whether it waits for rollouts alone, which tell nothing by changes of Pods that a look does not find.
    pub(crate) fn only_rolls(&self) -> bool {
        self.started && self.pods.is_empty()
    }

    /// What it restarts, for people.
    pub fn summary(&self) -> String {
        let pods = (!self.pods.is_empty()).then(|| match self.pods.as_slice() {
            [one] => format!("Pod {}", one.name),
            many => format!("{} Pods", many.len()),
        });
        let names: Vec<_> = self.workloads.iter().map(Workload::label).chain(pods).collect();
        listed(&names)
    }
}

/// The first of these sentences, and how many more there are.
pub(crate) fn told(words: &[String]) -> String {
    let shown = words[..words.len().min(MAX_TOLD)].join("; ");
    match words.len().saturating_sub(MAX_TOLD) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}

/// The first of these names, and how many more there are.
pub(super) fn listed(names: &[String]) -> String {
    let shown = names[..names.len().min(MAX_NAMES)].join(", ");
    match names.len().saturating_sub(MAX_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn workload(owner: &OwnerReference, rolled_out: &BTreeMap<String, Workload>) -> Option<Workload> {
    if !is_of(owner, "apps") {
        return None;
    }
    let kind = match owner.kind.as_str() {
        "ReplicaSet" => return rolled_out.get(&owner.name).cloned(),
        "StatefulSet" => WorkloadKind::StatefulSet,
        "DaemonSet" => WorkloadKind::DaemonSet,
        _ => return None,
    };
    Some(Workload::new(kind, &owner.name))
}

/// The workload that controls a ReplicaSet with these owners.
pub(super) fn workload_of(owners: &[OwnerReference]) -> Option<Workload> {
    let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
    let kind = match owner.kind.as_str() {
        "Deployment" if is_of(owner, "apps") => WorkloadKind::Deployment,
        "Rollout" if is_of(owner, "argoproj.io") => WorkloadKind::Rollout,
        _ => return None,
    };
    Some(Workload::new(kind, &owner.name))
}

fn is_of(owner: &OwnerReference, group: &str) -> bool {
    owner.api_version.split_once('/').is_some_and(|(found, _)| found == group)
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
            owned("api-1", "apps/v1", "ReplicaSet", "api-abc"),
            owned("db-0", "apps/v1", "StatefulSet", "db"),
            owned("agent-x", "apps/v1", "DaemonSet", "agent"),
            owned("job-1", "batch/v1", "Job", "job"),
            owned("other-1", "example.com/v1", "StatefulSet", "other"),
            pod(json!({"metadata": {"name": "bare", "uid": "uid-bare"}})),
        ];
        let sets = ["api-abc", "lone", "web-abc"].map(str::to_owned);
        assert_eq!(replica_sets(&pods), sets.into());
        let owner = |version: &str, kind: &str| {
            let owner = json!({"apiVersion": version, "kind": kind, "name": "n", "uid": "u", "controller": true});
            workload_of(&[serde_json::from_value(owner).unwrap()]).map(|found| found.label())
        };
        assert_eq!(owner("apps/v1", "Deployment").as_deref(), Some("Deployment n"));
        assert_eq!(owner("argoproj.io/v1alpha1", "Rollout").as_deref(), Some("Rollout n"));
        assert_eq!(owner("apps/v1", "Rollout"), None);
        let workload = |kind, name: &str| Workload::new(kind, name);
        let rolled_out = [
            ("web-abc".to_owned(), workload(WorkloadKind::Deployment, "web")),
            ("api-abc".to_owned(), workload(WorkloadKind::Rollout, "api")),
        ];
        let found = pending("hash".to_owned(), &pods, &rolled_out.clone().into(), false);
        insta::assert_yaml_snapshot!(found);
        let summary = "Deployment web, StatefulSet db, DaemonSet agent, Rollout api, 2 Pods";
        assert_eq!((found.summary().as_str(), found.kept), (summary, 2));
        let asked = pending("hash".to_owned(), &pods, &rolled_out.into(), true);
        assert_eq!((asked.pods.len(), asked.kept), (3, 1), "a Job's Pod is kept all the same");
    }

    /// What has begun is not begun again, and when all have nothing more is recorded of each.
    #[test]
    fn rollouts_begin_once_each() {
        let all = ["a", "b", "c"].map(|name| Workload::new(WorkloadKind::Deployment, name));
        let decided = Pending { workloads: all.to_vec(), ..Pending::default() };
        let some = decided.begun(&[all[0].clone(), all[2].clone()]);
        assert_eq!((some.waiting(), some.started), (vec![all[1].clone()], false));
        let started = some.begun(&all[1..2]);
        assert_eq!(started, Pending { started: true, ..decided });
    }

    /// Else a template that had the content before would not change, and no Pod restart.
    #[test]
    fn content_that_returns_has_another_stamp() {
        let stamped = |second: Option<i64>| {
            let at = second.map(|second| Timestamp::from_second(second).unwrap());
            let decided_at = at.map(sdk::condition::whole_seconds);
            Pending { hash: "h".to_owned(), decided_at, ..Pending::default() }.stamp()
        };
        assert_eq!(stamped(Some(0)), "h-1970-01-01T00:00:00Z");
        assert_ne!(stamped(Some(0)), stamped(Some(60)));
        assert_eq!(stamped(None), "h", "of an earlier version");
    }

    #[test]
    fn looks_become_rarer_and_have_a_bound() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let workload = |number: usize| Workload::new(WorkloadKind::DaemonSet, number.to_string());
        let restart = |count: usize| Pending {
            decided_at: Some(sdk::condition::whole_seconds(at(1_000))),
            workloads: (0..count).map(workload).collect(),
            ..Pending::default()
        };
        for (workloads, second, expect) in [
            (1, 1_000, FIRST_LOOK),
            // A clock that was set back.
            (1, 0, FIRST_LOOK),
            (1, 1_100, Duration::from_secs(25)),
            (1, 9_000, LONGEST_LOOK),
            // At most ten reads in a second.
            (100, 1_000, Duration::from_secs(10)),
            (MAX_TARGETS, 1_000, Duration::from_secs(50)),
            (2 * MAX_TARGETS, 1_000, LONGEST_LOOK),
        ] {
            let found = restart(workloads).next_look(at(second));
            assert_eq!(found, expect, "{workloads} at {second}");
        }
        // A Pod that went counts as a beginning.
        let went = Some(sdk::condition::whole_seconds(at(8_990)));
        let evicts = Pending { left_since: went, ..restart(1) };
        assert_eq!(evicts.next_look(at(9_000)), FIRST_LOOK);
    }

    #[test]
    fn a_summary_has_a_bound() {
        let names: Vec<_> = (0..=MAX_NAMES).map(|number| number.to_string()).collect();
        assert_eq!(listed(&names[..2]), "0, 1");
        assert!(listed(&names).ends_with(", 9 and 1 more"));
        assert_eq!(told(&names[..2]), "0; 1");
        assert!(told(&names).ends_with("; 2; and 8 more"));
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
